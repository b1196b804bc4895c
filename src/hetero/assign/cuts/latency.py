"""`least_latency`: an assignment and its partition with the lowest predicted latency: work, transfers, and launches.

A minimum cut counts nodes and values, but the number of subgraphs is known only after partitioning. So the search
approximates launches at first:
1. Candidates: the start (by priority); each device alone; a minimum cut without launches; and a minimum cut in which
   each transfer pays for the launch of the device where it arrives, which is exact for chains. With ``caution``, nodes
   pay for leaving the best of the first two, because a search over uncertain costs prefers nodes whose costs are
   underestimated (the winner's curse).
2. Each candidate is partitioned, and its latency predicted from the partition: `predict`.
3. From the best candidate, whole subgraphs move to a neighbor's device while that helps, those with the least work
   first. This removes subgraphs that cost more to launch and to reach than they save. If thorough partitions take long,
   moves get a quick one first, and a thorough one only if that is better than the quick one of the best candidate. In
   the end, the best of the others get a thorough one, too.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import PartitionError
from ...partition import Graph, Partition, has_quick_cut, partition_graph
from .problem import AssignmentProblem
from .solve import assign_by_cost

__all__ = ["LatencyAssignment", "Prediction", "least_latency", "predict"]

_MAX_TRIALS = 200  # subgraph moves in step 3
_MAX_TRIAL_NODES = 2_000_000  # nodes of the graph times trials; bounds the time of step 3 in large graphs
_SECOND_CHANCES = 5  # thorough partitions at the end of step 3: 0.1 s


@dataclasses.dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted seconds of one inference that runs its subgraphs one after the other."""

    work: float
    launches: float
    transfers: float
    num_transfers: int

    @property
    def total(self) -> float:
        """The sum of work, launches and transfers."""
        return self.work + self.launches + self.transfers


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LatencyAssignment:
    """A device per node, its partition, and its predicted latency.

    ``device_of``: int32 [num_nodes], read-only. ``lower_bound``: seconds; no assignment and partition take less.
    """

    device_of: NDArray[np.int32]
    partition: Partition
    prediction: Prediction
    lower_bound: float

    @property
    def gap(self) -> float:
        """The excess of the prediction over the lower bound, relative to the bound; infinite if the bound is 0."""
        total = self.prediction.total
        if total <= self.lower_bound:
            return 0.0
        return total / self.lower_bound - 1 if self.lower_bound > 0 else np.inf


def predict(problem: AssignmentProblem, partition: Partition, launch: ArrayLike) -> Prediction:
    """The latency of a partition. ``launch``: float64 [num_devices], seconds per subgraph of a device.

    The problem may have nodes beyond those of the graph, such as one for the host. They belong to no subgraph and are
    on the device where they cost least.
    """
    cost = problem.cost(_with_extra_nodes(problem, partition.device_of[partition.subgraph_of]))
    launches = float(np.asarray(launch, np.float64)[partition.device_of].sum())
    return Prediction(cost.work, launches, cost.transfers, cost.num_transfers)


def _with_extra_nodes(problem: AssignmentProblem, device_of: NDArray[np.int32]) -> NDArray[np.int32]:
    """The devices of all nodes of the problem; ``device_of``: of the graph's nodes, which come first."""
    extra_work = problem.work[:, len(device_of) :]
    return np.concatenate([device_of, np.argmin(extra_work, axis=0)]).astype(np.int32)


def least_latency(
    graph: Graph,
    problem: AssignmentProblem,
    launch: ArrayLike,
    start: ArrayLike | None = None,
    policy: str = "auto",
    *,
    caution: float = 0.0,
    bound: bool = True,
) -> LatencyAssignment:
    """The assignment with the lowest predicted latency that was found; never worse than ``start``. Deterministic.

    ``problem``: has the nodes of ``graph``, and optionally more nodes after them that only one device supports, as
    in `predict`. ``launch``: float64 [num_devices], seconds per subgraph. ``start``: int [graph.num_nodes], a
    labeling, returned unless a better one is found. ``policy``: of the partitioner. ``caution``: the part of its
    work that a node must save to leave the better of the start and a single device; the whole graph must save half
    that part. ``bound``: as for `assign_by_cost`.

    Raises `PartitionError` for launches that are negative or not finite, and for a problem with other nodes.
    """
    n = graph.num_nodes
    possible = np.isfinite(problem.work)
    _check_nodes(n, possible)
    launches = np.array(launch, np.float64)
    if launches.shape != (problem.num_devices,) or not ((launches >= 0) & (launches < np.inf)).all():
        raise PartitionError(
            f"launch must hold {problem.num_devices} finite costs of 0 or more, one per device; found {launch!r}"
        )
    search = _Search(graph, problem, launches, policy)
    start_labels = None if start is None else _with_extra_nodes(problem, np.asarray(start, np.int32))
    if start_labels is not None:
        search.consider(start_labels[:n])
    for device in np.flatnonzero(possible[:, :n].all(axis=1)).tolist():
        search.consider(np.full(n, device, np.int32))
    reference = search.best if caution else None

    without_launches = assign_by_cost(problem, start_labels, bound=bound)
    cautious = problem
    if reference is None:
        search.consider(without_launches.device_of[:n])
    else:
        cautious = _with_caution(problem, reference.device_of, caution)
        search.consider(assign_by_cost(cautious, without_launches.device_of, bound=False).device_of[:n])
    if launches.any():
        launch_on_arrival = cautious.with_costs(latency=problem.latency + launches)
        search.consider(assign_by_cost(launch_on_arrival, without_launches.device_of, bound=False).device_of[:n])
    search.move_subgraphs(possible[:, :n])

    best = search.best
    assert best is not None
    if reference is not None and best.prediction.total > reference.prediction.total * (1 - caution / 2):
        best = reference
    best.device_of.setflags(write=False)
    at_least = without_launches.lower_bound + _least_launches(possible[:, :n], launches)
    return LatencyAssignment(best.device_of, best.partition, best.prediction, min(at_least, best.prediction.total))


def _check_nodes(num_graph_nodes: int, possible: NDArray[np.bool_]) -> None:
    """Raises `PartitionError` unless the problem's extra nodes have one device each. ``possible``: by device, node."""
    num_nodes = possible.shape[1]
    if num_graph_nodes > num_nodes:
        raise PartitionError(f"the problem has {num_nodes} nodes, fewer than the {num_graph_nodes} nodes of the graph")
    num_devices = possible[:, num_graph_nodes:].sum(axis=0)
    if (num_devices != 1).any():
        extra = int(np.flatnonzero(num_devices != 1)[0])
        raise PartitionError(
            f"nodes of the problem after the {num_graph_nodes} nodes of the graph must have exactly one device, node "
            f"{num_graph_nodes + extra} has {num_devices[extra]}"
        )


def _with_caution(problem: AssignmentProblem, device_of: NDArray[np.int32], caution: float) -> AssignmentProblem:
    """The problem with all work more expensive by the factor ``1 + caution``, except on these devices."""
    here = _with_extra_nodes(problem, device_of), np.arange(problem.num_nodes)
    work = problem.work * (1 + caution)
    work[here] = problem.work[here]
    return problem.with_costs(work=work)


def _least_launches(possible: NDArray[np.bool_], launches: NDArray[np.float64]) -> float:
    """Seconds of launches that no assignment can avoid: one launch for each device that some node requires; if no node
    requires one, the cheapest launch of all devices."""
    if not possible.shape[1]:
        return 0.0
    is_needed = possible[:, possible.sum(axis=0) == 1].any(axis=1)
    if is_needed.any():
        return float(launches[is_needed].sum())
    return float(launches[possible.any(axis=1)].min(initial=np.inf))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    device_of: NDArray[np.int32]
    partition: Partition
    prediction: Prediction
    quick_seconds: float  # of a quick partition, which the next candidate has to beat first


class _Search:
    """The best candidate so far."""

    def __init__(self, graph: Graph, problem: AssignmentProblem, launch: NDArray[np.float64], policy: str) -> None:
        self._graph = graph
        self._problem = problem
        self._launch = launch
        self._policy = policy
        self._considered: list[NDArray[np.int32]] = []
        self._rejected: list[tuple[float, int, NDArray[np.int32]]] = []  # by quick seconds, ties by order
        self.best: _Candidate | None = None

    def consider(self, device_of: NDArray[np.int32]) -> None:
        """Partition and predict a labeling of the graph's nodes, unless it was considered before."""
        if not any(np.array_equal(device_of, other) for other in self._considered):
            self._considered.append(device_of)
            self._improves(device_of, thorough=True)

    def _improves(self, device_of: NDArray[np.int32], thorough: bool = False) -> bool:
        """Whether the labeling is better than the best, which it then replaces. ``thorough``: partition it
        thoroughly even if the quick partition of the best candidate is at least as good."""
        cost = self._problem.cost(_with_extra_nodes(self._problem, device_of)).total
        if self.best is not None and cost >= self.best.prediction.total:
            return False  # even without launches
        quick = self._quick_seconds(device_of)
        if self.best is not None and quick is not None and quick >= self.best.quick_seconds and not thorough:
            self._rejected.append((quick, len(self._rejected), device_of))
            return False
        partition = partition_graph(self._graph, device_of, self._policy)
        prediction = predict(self._problem, partition, self._launch)
        if self.best is not None and not prediction.total < self.best.prediction.total:
            return False
        self.best = _Candidate(device_of.copy(), partition, prediction, prediction.total if quick is None else quick)
        return True

    def _quick_seconds(self, device_of: NDArray[np.int32]) -> float | None:
        """The prediction for a quick partition, None if it takes as long as a thorough one."""
        if not has_quick_cut(self._graph, self._policy):
            return None
        quick = partition_graph(self._graph, device_of, self._policy, thorough=False)
        return predict(self._problem, quick, self._launch).total

    def move_subgraphs(self, possible: NDArray[np.bool_]) -> None:
        """Move subgraphs to other devices, trying those with the least work first, until no move helps.

        ``possible``: bool [num_devices, num_nodes].
        """
        trials_left = min(_MAX_TRIALS, _MAX_TRIAL_NODES // max(1, self._graph.num_nodes))
        improved = True
        while improved and trials_left > 0:
            improved = False
            for moved in self._subgraph_moves(possible):
                trials_left -= 1
                improved = self._improves(moved)
                if improved or trials_left <= 0:
                    break  # after a move, subgraphs have other numbers
        for _, _, device_of in heapq.nsmallest(_SECOND_CHANCES, self._rejected):
            self._improves(device_of, thorough=True)

    def _subgraph_moves(self, possible: NDArray[np.bool_]) -> Iterator[NDArray[np.int32]]:
        """The best labeling with one subgraph on the device of a neighbor, for each subgraph and such device."""
        assert self.best is not None
        device_of, partition = self.best.device_of, self.best.partition
        if partition.num_subgraphs < 2:
            return
        work = self._problem.work[device_of, np.arange(len(device_of))]
        by_work = np.argsort(np.bincount(partition.subgraph_of, work, partition.num_subgraphs), kind="stable")
        for subgraph in by_work.tolist():
            nodes = partition.nodes(subgraph)
            for device in self._neighbor_devices(partition, subgraph):
                if device != partition.device_of[subgraph] and possible[device, nodes].all():
                    moved = device_of.copy()
                    moved[nodes] = device
                    yield moved

    def _neighbor_devices(self, partition: Partition, subgraph: int) -> list[int]:
        """The devices of the subgraphs that it reads from or that read from it, ascending."""
        quotient = partition.quotient
        neighbors = np.concatenate([quotient.predecessors(subgraph), quotient.successors(subgraph)])
        return [int(device) for device in np.unique(partition.device_of[neighbors])]
