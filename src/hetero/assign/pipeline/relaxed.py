"""A relaxation of the problem of minimizing the slowest stage. It gives a lower bound, and the approximate stage of
each node.

Problem. Stages must not descend along edges. The bottleneck is at least the mean of the stages' times under any weights
that are not negative and add up to 1. So for any weights, the minimum weighted work of any stages is a lower bound of
the bottleneck (Lagrangian relaxation). Transfers are left out, which only lowers it. The weights are found by
multiplicative updates (S. Arora, E. Hazan, S. Kale, "The multiplicative weights update method", Theory of Computing 8,
2012): a stage that is slower than the mean becomes more expensive.

- `share_bound` ignores edges: each node is in the stage where it is cheapest at these weights. A step takes O(stages *
  nodes).
- `Relaxation` respects edges: for given weights, the cheapest stages are a minimum cut (H. Ishikawa, "Exact
  optimization for Markov random fields with convex priors", IEEE PAMI 25, 2003). The network has a vertex for each node
  v and each boundary j between stages, on the sink side if v is after j. Arcs that must not be cut keep the sides of
  each node ascending, and those of each boundary along edges.

The stages of one step are integral, but usually unbalanced. Their mean over all steps approaches the fractional optimum
and ascends along edges as well, so sorting nodes by it gives a topological order whose intervals are balanced.

Cost: one minimum cut of nodes * (stages - 1) vertices a step (`_AllBoundaries`). In large graphs, cuts of as many
vertices as nodes instead halve the range of stages of each node until one is left (`_Halving`), which ignores edges
inside each half. The bound then comes from one cut of all boundaries, or from the first halving if that is too large.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ...partition import Graph
from ..cuts import AssignmentProblem
from .costs import StageCosts

__all__ = ["Relaxation", "are_proportional", "share_bound"]

_SHARE_WORK = 20_000_000  # stages * nodes, summed over the steps of `share_bound`
_SHARE_STEPS = (8, 60)

_MAX_VERTICES = 20_000  # of cuts of all boundaries in each step; one takes 30 ms
_MAX_BOUND_VERTICES = 100_000  # of the one such cut that only raises the lower bound
_CUT_WORK = 400_000  # vertices, summed over all steps
_CUT_STEPS = (8, 32)
_HALVING_WORK = 2_000_000  # nodes, summed over all halvings of all steps
_HALVING_STEPS = (4, 24)

_ROUNDING = 1e-12  # relative error of sums, subtracted from bounds
_CAPACITY_BITS = 57  # a minimum cut rounds each capacity by less than the sum of all, divided by 2 to this power


def share_bound(costs: StageCosts) -> tuple[float, NDArray[np.float64]]:
    """Seconds that the slowest stage takes at least if its work were shared freely, and float64 [num_stages], the
    weights that prove it.

    Proof. Let stages take B at most. With weights w, B >= sum of w[s] * time[s] over the stages s, because the weights
    add up to 1. The work in it is at least the sum over the nodes of the least w[s] * work[s, node]. The launches in it
    are those of the stages that some node requires, or at least the cheapest if no node requires any.
    """
    k, n = costs.work.shape
    steps = int(np.clip(_SHARE_WORK // max(1, n * k), *_SHARE_STEPS))
    weights = np.full(k, 1 / k)
    best, best_weights = 0.0, weights
    node = np.arange(n)
    for step in range(steps):
        priced = weights[:, None] * costs.work
        stage = priced.argmin(axis=0)
        bound = float(priced[stage, node].sum()) * (1 - _ROUNDING) + least_launch(costs, weights)
        if bound > best:
            best, best_weights = bound, weights
        weights = _updated(weights, _loads(stage, costs.work[stage, node], k), 0.5 / np.sqrt(1 + step / 4))
    return best, best_weights


def are_proportional(costs: StageCosts) -> bool:
    """Whether each stage takes a constant times as long as the first for every node. Then any two orders can be cut
    equally well, up to single nodes."""
    if not costs.allowed.all():
        return False
    shares = costs.work / np.maximum(costs.work.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    return bool(np.allclose(shares, shares[0], rtol=1e-6, atol=0.0))


def least_launch(costs: StageCosts, weights: NDArray[np.float64]) -> float:
    """Weighted seconds of launches that no stages avoid."""
    if not costs.graph.num_nodes:
        return 0.0
    is_required = costs.allowed[:, costs.allowed.sum(axis=0) == 1].any(axis=1)
    launches = weights * costs.launch
    return float(launches[is_required].sum() if is_required.any() else launches.min())


def _loads(stage: NDArray[np.intp], seconds: NDArray[np.float64], num_stages: int) -> NDArray[np.float64]:
    """float64 [num_stages]: the sum of the seconds of the nodes in each stage."""
    return np.bincount(stage, seconds, num_stages).astype(np.float64)  # bincount of an empty array returns integers


def _updated(weights: NDArray[np.float64], load: NDArray[np.float64], rate: float) -> NDArray[np.float64]:
    """The weights after one multiplicative update by the seconds per stage."""
    largest = float(load.max(initial=0.0))
    if not largest > 0:
        return weights
    relative = load / largest
    updated = weights * np.exp(rate * (relative - weights @ relative))
    normalized: NDArray[np.float64] = updated / updated.sum()
    return normalized


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Relaxation:
    """``lower_bound``: seconds that the slowest stage takes at least. ``tendency``: float64 [num_nodes], the mean stage
    of each node. ``stage_of``: int64 [num_nodes], the stages of the step whose slowest stage does the least work. Both
    ascend along edges; a node may be in a stage that cannot have it."""

    lower_bound: float
    tendency: NDArray[np.float64]
    stage_of: NDArray[np.int64]

    @classmethod
    def of(
        cls, costs: StageCosts, first: NDArray[np.int32], last: NDArray[np.int32], weights: NDArray[np.float64]
    ) -> Relaxation:
        """The relaxation of stages with these costs. ``first``, ``last``: from `stage_ranges`. ``weights``: from
        `share_bound`. Deterministic."""
        k, n = costs.work.shape
        if k == 1 or not n:
            return cls(0.0, np.zeros(n), np.zeros(n, np.int64))
        # Stages outside the range of a node are excluded, so that `stage_of` is valid if no range has a gap.
        stages = np.arange(k)[:, None]
        work = np.where((first <= stages) & (stages <= last), costs.work, np.inf)
        unit = float(work[np.isfinite(work)].max()) or 1.0
        work /= unit  # cuts scale costs, which must not overflow
        is_small = n * (k - 1) <= _MAX_VERTICES
        solver: _AllBoundaries | _Halving
        if is_small:
            solver = _AllBoundaries(costs.graph, work, first, last)
            steps = int(np.clip(_CUT_WORK // (n * (k - 1)), *_CUT_STEPS))
        else:
            solver = _Halving(costs.graph, work)
            steps = int(np.clip(_HALVING_WORK // (n * (k - 1).bit_length()), *_HALVING_STEPS))
        tendency, node = np.zeros(n), np.arange(n)
        finite = np.where(np.isfinite(work), work, 0.0)
        lightest, lightest_load = np.zeros(n, np.int64), np.inf
        best_minimum, best_weights = 0.0, weights
        for step in range(steps):
            stage, minimum = solver.solve(weights)
            tendency += stage
            load = _loads(stage, finite[stage, node], k)
            if load.max() < lightest_load:
                lightest_load, lightest = float(load.max()), stage
            if minimum > best_minimum:
                best_minimum, best_weights = minimum, weights
            weights = _updated(weights, load, 1 / np.sqrt(1 + step))
        if not is_small and n * (k - 1) <= _MAX_BOUND_VERTICES:
            best_minimum = _AllBoundaries(costs.graph, work, first, last).solve(best_weights)[1]
        bound = best_minimum * unit + least_launch(costs, best_weights)
        return cls(bound, np.clip(tendency / steps, first, last), np.clip(lightest, first, last))

    def orders(self, graph: Graph) -> Iterator[NDArray[np.int32]]:
        """int32 [num_nodes] each: the graph's own order sorted by the mean stage, and by `stage_of`."""
        own = graph.topological_order
        for key in (self.tendency, self.stage_of):
            yield own[np.argsort(key[own], kind="stable")]


class _AllBoundaries:
    """The stages of minimum weighted work, which ascend along the edges of ``graph``, by one minimum cut.

    ``work``: float64 [num_stages, num_nodes]. ``first``, ``last``: int [num_nodes], the range of stages of each node,
    ascending along edges. In a gap of its range, a node costs a finite penalty.
    """

    def __init__(
        self, graph: Graph, work: NDArray[np.float64], first: NDArray[np.int32], last: NDArray[np.int32]
    ) -> None:
        k, n = work.shape
        self._graph = graph
        self._is_forbidden = ~np.isfinite(work)
        self._finite = np.where(self._is_forbidden, 0.0, work)
        # Vertex j * n + v is on the sink side (1) if node v is after boundary j, in a stage above j.
        boundary = np.arange(k - 1)[:, None]
        self._is_after, self._is_before = boundary < first, boundary >= last
        vertex = np.arange(n * (k - 1)).reshape(k - 1, n)
        source, target = _edges(graph)
        tail = np.concatenate([vertex[:, source].ravel(), vertex[1:].ravel()])
        head = np.concatenate([vertex[:, target].ravel(), vertex[:-1].ravel()])
        by_tail = np.argsort(tail, kind="stable")
        self._problem = _arcs(n * (k - 1), tail[by_tail], head[by_tail])

    def solve(self, weights: NDArray[np.float64]) -> tuple[NDArray[np.int64], float]:
        """int64 [num_nodes], the stages, and a lower bound of the weighted work of any stages.

        The bound holds whatever the penalties are: a descent along an edge, a stage that may not have the node, and
        sides of a node that do not ascend would cost infinity, and penalties are finite.
        """
        k, n = self._finite.shape
        priced = weights[:, None] * self._finite
        penalty = float(priced.max(axis=0).sum()) or 1.0
        priced[self._is_forbidden] = penalty
        # A node's cost on a stage is its cost on stage 0 plus what each boundary up to that stage adds.
        added = np.diff(priced, axis=0)
        cost = np.stack([np.maximum(-added, 0.0), np.maximum(added, 0.0)])
        constant = float(priced[0].sum() + np.minimum(added, 0.0).sum())
        magnitude = float(priced[0].sum() + cost.sum())
        cost[0][self._is_after], cost[1][self._is_before] = np.inf, np.inf
        problem = _with_arcs(self._problem, cost.reshape(2, -1), 2 * penalty)
        side = problem.move(self._is_after.ravel().astype(np.int32), 1)
        error = _error_of_cut(problem, magnitude) + _ROUNDING * magnitude
        minimum = problem.cost(side).total + constant - error
        is_above = np.logical_and.accumulate(side.reshape(k - 1, n).astype(np.bool_), axis=0)
        return _ascending(self._graph, is_above.sum(axis=0)), minimum


class _Halving:
    """Stages of little weighted work, which ascend along the edges of ``graph``, by minimum cuts that halve the range
    of stages of each node. In each half, a node costs as much as in its cheapest stage there."""

    def __init__(self, graph: Graph, work: NDArray[np.float64]) -> None:
        self._graph = graph
        self._work = work
        self._edges = _edges(graph)

    def solve(self, weights: NDArray[np.float64]) -> tuple[NDArray[np.int64], float]:
        """int64 [num_nodes], the stages, and a lower bound of the weighted work of any stages.

        The bound is the minimum of the first halving: stages that ascend along edges are below or above the middle
        accordingly, and no node costs less than in the cheapest stage of its half.
        """
        k, n = self._work.shape
        priced = weights[:, None] * self._work
        magnitude = float(np.where(np.isfinite(priced), priced, 0.0).max(axis=0).sum())
        begin, end = np.zeros(n, np.int64), np.full(n, k)  # the range of stages of each node
        source, target = self._edges
        lower_bound = None
        while (end - begin > 1).any():
            middle = (begin + end) // 2
            below, above = np.full(n, np.inf), np.full(n, np.inf)
            for stage in range(k):
                in_range = (begin <= stage) & (stage < end)
                np.minimum(below, priced[stage], out=below, where=in_range & (stage < middle))
                np.minimum(above, priced[stage], out=above, where=in_range & (stage >= middle))
            # A range of one stage is all above its middle. Nodes with different ranges are in order already.
            is_open = (begin[source] == begin[target]) & (end[source] == end[target]) & (end - begin > 1)[source]
            # A node without a stage in its range, which gaps of ranges can cause, may be in either half.
            has_none = np.isinf(below) & np.isinf(above)
            below[has_none], above[has_none] = 0.0, 0.0
            problem = _with_arcs(
                _arcs(n, source[is_open], target[is_open]), np.stack([below, above]), 2 * magnitude or 1.0
            )
            side = problem.move(np.isinf(below).astype(np.int32), 1)
            if lower_bound is None:
                error = _error_of_cut(problem, magnitude)
                lower_bound = problem.cost(side).total - error - _ROUNDING * magnitude
            is_above = side.astype(np.bool_)
            begin, end = np.where(is_above, middle, begin), np.where(is_above, end, np.maximum(middle, begin + 1))
        return _ascending(self._graph, begin), lower_bound or 0.0


def _edges(graph: Graph) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The source, ascending, and the target of each edge."""
    return np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr)), graph.indices


def _arcs(num_vertices: int, tail: NDArray[np.integer], head: NDArray[np.integer]) -> AssignmentProblem:
    """A problem of two labels, without costs, in which each vertex makes a value for the heads of its arcs. ``tail``:
    ascending."""
    vertex = np.arange(num_vertices)
    nothing = np.zeros((2, 2))
    begins = np.searchsorted(tail, np.arange(num_vertices + 1))
    return AssignmentProblem.from_values(
        np.zeros((2, num_vertices)), vertex, begins, head, np.zeros(num_vertices), nothing, nothing
    )


def _with_arcs(problem: AssignmentProblem, cost: NDArray[np.float64], descent: float) -> AssignmentProblem:
    """The problem of `_arcs` with ``cost``, float64 [2, num_vertices], in which a vertex of label 1 with arcs to
    vertices of label 0 costs ``descent``."""
    return problem.with_costs(cost, np.array([[0.0, 0.0], [descent, 0.0]]))


def _error_of_cut(problem: AssignmentProblem, finite: float) -> float:
    """The maximum excess over the minimum of a cut that `AssignmentProblem.move` finds, because it rounds capacities.
    ``finite``: at least the sum of the finite costs. A cut pays one rounded cost for each vertex, and one for each arc
    that descends."""
    descents = float(problem.latency.max()) * len(problem.readers)
    entries = problem.num_nodes + len(problem.readers)
    return entries * (finite + descents) * 2.0**-_CAPACITY_BITS


def _ascending(graph: Graph, stage: NDArray[np.int64]) -> NDArray[np.int64]:
    """The stages themselves if they ascend along edges; otherwise each raised to those of its ancestors. Only gaps in
    the ranges of stages can cause a descent, because they make it cheaper than a penalty."""
    source, target = _edges(graph)
    if (stage[source] <= stage[target]).all():
        return stage
    raised = stage.tolist()
    for node in graph.topological_order.tolist():
        for successor in graph.successors(node).tolist():
            raised[successor] = max(raised[successor], raised[node])
    return np.array(raised, np.int64)
