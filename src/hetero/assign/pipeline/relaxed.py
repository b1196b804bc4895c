"""A relaxation of stages whose slowest one is fastest: a lower bound, and where in the pipeline each node belongs.

Problem. Stages must not descend along edges. The bottleneck is at least the mean of the stages' times under any weights
w >= 0 that add up to 1, one per stage. So for any weights, the least weighted work of any stages is a lower bound of the
bottleneck (Lagrangian relaxation). Transfers are left out, which only lowers it. The weights are found by
multiplicative updates (S. Arora, E. Hazan, S. Kale, "The multiplicative weights update method", Theory of Computing 8,
2012): a stage that is slower than the mean becomes dearer.

- `share_bound` ignores edges: each node is in the stage where it is cheapest at these weights. O(stages * nodes) a step.
- `Relaxation` respects edges: for given weights, the cheapest stages are a minimum cut (H. Ishikawa, "Exact optimization
  for Markov random fields with convex priors", IEEE PAMI 25, 2003). The network has a vertex for each node v and each
  boundary j between stages, on the sink side if v is after j. Arcs that must not be cut keep the sides of each node
  ascending, and those of each boundary along edges.

The stages of one step are integral, but usually unbalanced. Their mean over all steps approaches the fractional optimum
and ascends along edges as well, so sorting nodes by it gives a topological order whose intervals are balanced.

Cost: one minimum cut of nodes * (stages - 1) vertices a step. Large graphs are coarsened to `_MAX_VERTICES`: runs of a
depth-first order, which stay acyclic when contracted, become one node each. A coarse minimum is not a lower bound, so
the bound then comes from one cut of the whole graph, or from `share_bound` if that would be too large.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ...partition import Graph
from ..cuts import AssignmentProblem
from .costs import StageCosts
from .orders import depth_first

__all__ = ["Relaxation", "share_bound"]

_SHARE_WORK = 20_000_000  # stages * nodes, summed over the steps of `share_bound`
_SHARE_STEPS = (8, 60)

_MAX_VERTICES = 20_000  # a cut of so many takes 30 ms
_MAX_BOUND_VERTICES = 100_000  # of the one cut that only raises the lower bound
_CUT_WORK = 400_000  # vertices, summed over all steps
_CUT_STEPS = (8, 32)

_ROUNDING = 1e-9  # relative error of the sums and of the scaled capacities; subtracted from bounds


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
        weights = _updated(weights, np.bincount(stage, costs.work[stage, node], k), 0.5 / np.sqrt(1 + step / 4))
    return best, best_weights


def least_launch(costs: StageCosts, weights: NDArray[np.float64]) -> float:
    """Weighted seconds of launches that no stages avoid."""
    if not costs.graph.num_nodes:
        return 0.0
    is_required = costs.allowed[:, costs.allowed.sum(axis=0) == 1].any(axis=1)
    launches = weights * costs.launch
    return float(launches[is_required].sum() if is_required.any() else launches.min())


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
    ascend along edges."""

    lower_bound: float
    tendency: NDArray[np.float64]
    stage_of: NDArray[np.int64]

    @classmethod
    def of(cls, costs: StageCosts, first: NDArray[np.int32], last: NDArray[np.int32]) -> Relaxation:
        """The relaxation of stages with these costs. ``first``, ``last``: from `stage_ranges`. Deterministic."""
        graph, work = costs.graph, costs.work
        k, n = work.shape
        bound, weights = share_bound(costs)
        if k == 1 or not n:
            return cls(bound, np.zeros(n), np.zeros(n, np.int64))
        is_coarse = n * (k - 1) > _MAX_VERTICES
        block = np.arange(n)
        cuts = None
        if is_coarse:
            block = _blocks(graph, work, weights, _MAX_VERTICES // (k - 1))
            cuts = _coarse_cuts(costs, block)
        else:
            cuts = _WeightedCuts(graph, work, first, last)
        steps = int(np.clip(_CUT_WORK // cuts.num_vertices, *_CUT_STEPS))
        tendency = np.zeros(cuts.num_nodes)
        lightest, best, best_bound, best_weights = np.inf, None, 0.0, weights
        for step in range(steps):
            stage, minimum = cuts.solve(weights)
            tendency += stage
            load = cuts.load(stage)
            if best is None or load.max() < lightest:
                lightest, best = float(load.max()), stage
            if minimum > best_bound:
                best_bound, best_weights = minimum, weights
            weights = _updated(weights, load, 1 / np.sqrt(1 + step))
        assert best is not None
        if is_coarse and n * (k - 1) <= _MAX_BOUND_VERTICES:
            best_bound = _WeightedCuts(graph, work, first, last).solve(best_weights)[1]
        if not is_coarse or n * (k - 1) <= _MAX_BOUND_VERTICES:
            bound = max(bound, best_bound + least_launch(costs, best_weights))
        # Ranges ascend along edges, so what is clipped to them still does.
        return cls(bound, np.clip(tendency[block] / steps, first, last), np.clip(best[block], first, last))

    def orders(self, graph: Graph) -> Iterator[NDArray[np.int32]]:
        """int32 [num_nodes] each: the graph's own order sorted by the mean stage, and by the stages of the best step."""
        own = graph.topological_order
        for key in (self.tendency, self.stage_of):
            yield own[np.argsort(key[own], kind="stable")]


class _WeightedCuts:
    """The stages of least weighted work, which ascend along the edges of ``graph``, by a minimum cut.

    ``work``: float64 [num_stages, num_nodes]. ``first``, ``last``: int [num_nodes], the range of stages of each node,
    ascending along edges. A node costs a finite penalty in a stage within its range that may not have it.
    """

    def __init__(self, graph: Graph, work: NDArray[np.float64], first: NDArray[np.int32], last: NDArray[np.int32]):
        k, n = work.shape
        self.num_nodes, self.num_vertices = n, n * (k - 1)
        self._work = work
        self._is_forbidden = ~np.isfinite(work)
        self._finite = np.where(self._is_forbidden, 0.0, work)
        # Vertex j * n + v is on the sink side (1) if node v is after boundary j, in a stage above j.
        boundary = np.arange(k - 1)[:, None]
        self._is_after, self._is_before = boundary < first, boundary >= last
        vertex = np.arange(self.num_vertices).reshape(k - 1, n)
        source = np.repeat(np.arange(n), np.diff(graph.indptr))
        tail = np.concatenate([vertex[:, source].ravel(), vertex[1:].ravel()])
        head = np.concatenate([vertex[:, graph.indices].ravel(), vertex[:-1].ravel()])
        by_tail = np.argsort(tail, kind="stable")
        self._problem = AssignmentProblem.from_values(
            np.zeros((2, self.num_vertices)),
            np.arange(self.num_vertices),
            np.searchsorted(tail[by_tail], np.arange(self.num_vertices + 1)),
            head[by_tail],
            np.zeros(self.num_vertices),
            np.zeros((2, 2)),
            np.zeros((2, 2)),
        )

    def load(self, stage: NDArray[np.int64]) -> NDArray[np.float64]:
        """float64 [num_stages]: the work of each stage; forbidden nodes count as 0."""
        loads = np.bincount(stage, self._finite[stage, np.arange(self.num_nodes)], len(self._work))
        return loads.astype(np.float64)

    def solve(self, weights: NDArray[np.float64]) -> tuple[NDArray[np.int64], float]:
        """int64 [num_nodes], the stages, and a lower bound of the weighted work of any stages.

        The bound holds whatever the penalties are: a descent along an edge, a forbidden stage and stages that are not
        consecutive would cost infinity, and penalties are finite.
        """
        k, n = self._work.shape
        priced = weights[:, None] * self._finite
        penalty = float(priced.max(axis=0).sum()) or 1.0
        priced[self._is_forbidden] = penalty
        # The cost of a stage is that of stage 0, and what each boundary below it adds.
        added = np.diff(priced, axis=0)
        cost = np.stack([np.maximum(-added, 0.0), np.maximum(added, 0.0)])
        constant = float(priced[0].sum() + np.minimum(added, 0.0).sum())
        fixed = cost.copy()
        fixed[0][self._is_after], fixed[1][self._is_before] = np.inf, np.inf
        latency = np.array([[0.0, 0.0], [2 * penalty, 0.0]])
        problem = self._problem.with_costs(fixed.reshape(2, -1), latency)
        side = problem.move(self._is_after.ravel().astype(np.int32), 1)
        minimum = problem.cost(side).total + constant
        scale = float(cost.sum()) + float(priced[0].sum())
        sides = np.logical_and.accumulate(side.reshape(k - 1, n).astype(np.bool_), axis=0)
        return sides.sum(axis=0), minimum - _ROUNDING * scale


def _blocks(
    graph: Graph, work: NDArray[np.float64], weights: NDArray[np.float64], target: int
) -> NDArray[np.int64]:
    """int64 [num_nodes]: runs of a depth-first order, numbered along it, about ``target`` of them. Runs end where the
    cheapest stage at these weights changes, unless they are shorter than half the mean."""
    order = depth_first(graph)
    n = len(order)
    cheapest = (weights[:, None] * work).argmin(axis=0)[order]
    changes = (np.flatnonzero(np.diff(cheapest)) + 1).tolist()
    mean = -(-n // target)
    begins, begin = [0], 0
    for end in [*changes, n]:
        while end - begin > mean:
            begin += mean
            begins.append(begin)
        if end < n and 2 * (end - begin) >= mean:
            begin = end
            begins.append(begin)
    block = np.empty(n, np.int64)
    is_begin = np.zeros(n, np.int64)
    is_begin[begins] = 1
    block[order] = np.cumsum(is_begin) - 1
    return block


def _coarse_cuts(costs: StageCosts, block: NDArray[np.int64]) -> _WeightedCuts:
    """Blocks as nodes. A block may be in any stage; each node in it that the stage may not have costs as much as it
    costs in its dearest stage, because a block can hold nodes that share no stage."""
    graph, work = costs.graph, costs.work
    k = len(work)
    num_blocks = int(block.max()) + 1
    finite = np.where(np.isfinite(work), work, 0.0)
    full = np.where(np.isfinite(work), work, k * finite.max(axis=0))
    coarse = np.stack([np.bincount(block, row, num_blocks) for row in full])
    source, target = block[np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))], block[graph.indices]
    is_between = source != target
    quotient = Graph.from_edges(source[is_between], target[is_between], num_blocks)
    anywhere = np.zeros(num_blocks, np.int32)
    return _WeightedCuts(quotient, coarse, anywhere, anywhere + (k - 1))
