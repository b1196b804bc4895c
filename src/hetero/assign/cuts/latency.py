"""The least latency of a graph that is cut into subgraphs: work, transfers, and a launch for each subgraph.

What a minimum cut can count are nodes and values; how many subgraphs there will be, only the partitioner knows. So
launches are approximated first, and counted in the end:
1. Beside the labelling to start from (by priority) and each device alone, labellings are found with the launch charged
   to each transfer that arrives at a device, as is right for chains, and without. Where costs are uncertain, nodes pay
   for leaving the best of the former: else what is found would be where costs err most.
2. Each is cut by the partitioner, and its latency predicted from that: `predict`.
3. From the best, whole subgraphs are moved to other devices while that helps, the cheapest first: what costs more to
   launch and to reach than it saves, vanishes.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import PartitionError
from ...partition import Graph, Partition, partition_graph
from .problem import AssignmentProblem
from .solve import assign_by_cost

__all__ = ["LatencyAssignment", "Prediction", "least_latency", "predict"]

# Nodes that are looked at in all trials of step 3 together, and subgraphs tried at most.
_TRIAL_NODES = 2_000_000
_MOST_TRIALS = 200


@dataclasses.dataclass(frozen=True, slots=True)
class Prediction:
    """Seconds of one inference that runs its subgraphs one after the other."""

    work: float
    launches: float
    transfers: float
    num_transfers: int

    @property
    def total(self) -> float:
        """Work, launches and transfers together."""
        return self.work + self.launches + self.transfers


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LatencyAssignment:
    """A device per node, the partition that follows, and what it is predicted to take.

    ``device_of``: int32 [num_nodes], read-only. No assignment and partition take less than ``lower_bound``.
    """

    device_of: NDArray[np.int32]
    partition: Partition
    prediction: Prediction
    lower_bound: float

    @property
    def gap(self) -> float:
        """By how much the prediction can exceed the least one, relative to it."""
        total = self.prediction.total
        if total <= self.lower_bound:
            return 0.0
        return total / self.lower_bound - 1 if self.lower_bound > 0 else np.inf


def predict(problem: AssignmentProblem, partition: Partition, launch: ArrayLike) -> Prediction:
    """The latency of a partition. ``launch``: float64 [num_devices], seconds per subgraph of a device.

    Nodes of the problem beyond those of the graph (such as one that stands for where inputs come from) are where they
    cost least, and in no subgraph.
    """
    cost = problem.cost(_extended(problem, partition.device_of[partition.subgraph_of]))
    launches = float(np.asarray(launch, np.float64)[partition.device_of].sum())
    return Prediction(cost.work, launches, cost.transfers, cost.num_transfers)


def _extended(problem: AssignmentProblem, device_of: NDArray[np.int32]) -> NDArray[np.int32]:
    """The devices of the graph's nodes, and of those beyond."""
    beyond = problem.work[:, len(device_of) :]
    return np.concatenate([device_of, np.argmin(beyond, axis=0)]).astype(np.int32)


def least_latency(
    graph: Graph,
    problem: AssignmentProblem,
    launch: ArrayLike,
    start: ArrayLike | None = None,
    policy: str = "auto",
    *,
    caution: float = 0.0,
) -> LatencyAssignment:
    """The assignment of least predicted latency that is found; never worse than ``start``.

    ``problem`` has the nodes of ``graph``, and may have more behind them that only one device takes: see `predict`.
    ``launch``: float64 [num_devices]. ``start``: int [graph.num_nodes], a labelling, which is kept unless another is
    better. ``policy``: how the graph is cut. ``caution``: what part of its work a node must gain to leave the better
    of the start and a single device, and the whole must gain half that part. Deterministic. Raises `PartitionError` for
    launches that are negative or no numbers, and a problem of other nodes.
    """
    n = graph.num_nodes
    possible = np.isfinite(problem.work)
    if n > problem.num_nodes or (possible[:, n:].sum(axis=0) != 1).any():
        raise PartitionError(f"the graph has {n} nodes, the problem {problem.num_nodes}, of which others have a choice")
    launches = np.array(launch, np.float64)
    if launches.shape != (problem.num_devices,) or not ((launches >= 0) & (launches < np.inf)).all():
        raise PartitionError(f"launch must hold a cost, finite, zero or more, per device, found {launch!r}")
    search = _Search(graph, problem, launches, policy)
    first = None if start is None else _extended(problem, np.asarray(start, np.int32))
    possible = possible[:, :n]
    if first is not None:
        search.consider(first[:n])
    for device in np.flatnonzero(possible.all(axis=1)).tolist():
        search.consider(np.full(n, device, np.int32))
    without = assign_by_cost(problem, first)
    careful, reference = problem, search.best
    if caution and search.best is not None:
        at = _extended(problem, search.best[0]), np.arange(problem.num_nodes)
        work = problem.work * (1 + caution)
        work[at] = problem.work[at]
        careful = problem.with_costs(work=work)
        search.consider(assign_by_cost(careful, without.device_of, bound=False).device_of[:n])
    else:
        search.consider(without.device_of[:n])
    if launches.any():
        charged = careful.with_costs(latency=problem.latency + launches)
        search.consider(assign_by_cost(charged, without.device_of, bound=False).device_of[:n])
    search.move_subgraphs(possible)
    assert search.best is not None
    if caution and reference is not None and search.best[2].total > reference[2].total * (1 - caution / 2):
        search.best = reference
    device_of, partition, prediction = search.best
    device_of.setflags(write=False)
    # Devices that some node needs are launched at least once; one device is in any case.
    only = possible[:, possible.sum(axis=0) == 1].any(axis=1)
    least_launch = launches[only].sum() if only.any() else launches[possible.any(axis=1)].min(initial=np.inf)
    least_launch = least_launch if n else 0.0
    bound = min(without.lower_bound + float(least_launch), prediction.total)
    return LatencyAssignment(device_of, partition, prediction, bound)


class _Search:
    """The best assignment so far."""

    def __init__(self, graph: Graph, problem: AssignmentProblem, launch: NDArray[np.float64], policy: str) -> None:
        self._graph = graph
        self._problem = problem
        self._launch = launch
        self._policy = policy
        self._tried: list[NDArray[np.int32]] = []
        self.best: tuple[NDArray[np.int32], Partition, Prediction] | None = None

    def consider(self, device_of: NDArray[np.int32]) -> bool:
        """Whether it is better than all before."""
        if any(np.array_equal(device_of, other) for other in self._tried):
            return False
        self._tried.append(device_of)
        return self._is_better(device_of)

    def _is_better(self, device_of: NDArray[np.int32]) -> bool:
        least = np.inf if self.best is None else self.best[2].total
        cost = self._problem.cost(_extended(self._problem, device_of)).total
        if self.best is not None and cost >= least:
            return False  # launches come on top
        partition = partition_graph(self._graph, device_of, self._policy)
        prediction = predict(self._problem, partition, self._launch)
        if self.best is None or prediction.total < least:
            self.best = device_of.copy(), partition, prediction
            return True
        return False

    def move_subgraphs(self, possible: NDArray[np.bool_]) -> None:
        """Tries to move subgraphs to other devices, those with the least work first, until a round gains nothing."""
        left = min(_MOST_TRIALS, _TRIAL_NODES // max(1, self._graph.num_nodes))
        gained = True
        while gained and left > 0:
            gained = False
            assert self.best is not None
            device_of, partition, _ = self.best
            if partition.num_subgraphs < 2:
                return
            work = self._problem.work[device_of, np.arange(len(device_of))]
            order = np.argsort(np.bincount(partition.subgraph_of, work, partition.num_subgraphs), kind="stable")
            for subgraph in order.tolist():
                nodes = partition.nodes(subgraph)
                here = int(partition.device_of[subgraph])
                around = self._neighbours(partition, subgraph)
                for device in [d for d in around if d != here and possible[d, nodes].all()]:
                    moved = device_of.copy()
                    moved[nodes] = device
                    left -= 1
                    if self._is_better(moved):
                        gained = True
                        break
                    if left <= 0:
                        return
                if gained:
                    break  # numbers of subgraphs have changed

    def _neighbours(self, partition: Partition, subgraph: int) -> list[int]:
        """Devices of the subgraphs that it reads from or that read from it, ascending."""
        quotient = partition.quotient
        beside = np.concatenate([quotient.predecessors(subgraph), quotient.successors(subgraph)])
        return [int(device) for device in np.unique(partition.device_of[beside])]
