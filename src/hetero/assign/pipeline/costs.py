"""What the stages of a pipeline take.

A stage pays for the work of its nodes, one launch, each value that it reads and another stage (or the host) makes,
once, and each result that it gives to the host. A value goes straight from the stage that makes it to each that reads
it: one that is read in two later stages is paid for by both, and by none of those in between.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import PartitionError
from ...partition import Graph
from ..cuts import AssignmentProblem

__all__ = ["StageCosts", "StageTimes"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class StageTimes:
    """Per stage, float64 [num_stages]: seconds of ``work``, ``launch`` and ``transfers``, and ``received``, the units
    (bytes) of values that other stages make and it reads."""

    work: NDArray[np.float64]
    launch: NDArray[np.float64]
    transfers: NDArray[np.float64]
    received: NDArray[np.float64]

    @property
    def total(self) -> NDArray[np.float64]:
        """Work, launch and transfers together, stage by stage, in seconds."""
        return self.work + self.launch + self.transfers

    @property
    def slowest(self) -> float:
        """The time between two results, once the pipeline is full."""
        return float(self.total.max(initial=0.0))


class StageCosts:
    """The costs of a graph over stages, stage s on device s of an `AssignmentProblem`.

    ``num_stages`` devices of the problem are stages. The problem has the nodes of ``graph`` and may have one more, the
    host, which makes the inputs and reads the results, on whichever device it costs least. ``launch``: float64
    [num_stages], seconds per run of each stage. Immutable. Raises `PartitionError` for what does not fit together.
    """

    def __init__(
        self, graph: Graph, problem: AssignmentProblem, launch: ArrayLike, num_stages: int | None = None
    ) -> None:
        n = graph.num_nodes
        k = problem.num_devices if num_stages is None else num_stages
        if problem.num_nodes not in (n, n + 1) or not 1 <= k <= problem.num_devices:
            raise PartitionError(
                f"a problem of {problem.num_nodes} nodes and {problem.num_devices} devices is none of a graph of {n} "
                f"nodes over {k} stages"
            )
        launches = np.array(launch, np.float64)
        if launches.shape != (k,) or not ((launches >= 0) & (launches < np.inf)).all():
            raise PartitionError(f"launch must hold a cost, finite, zero or more, per stage, found {launch!r}")
        self.graph = graph
        self.num_stages = k
        self.launch = launches
        self.work = problem.work[:k, :n]
        self.latency, self.per_unit = problem.latency.copy(), problem.per_unit.copy()
        np.fill_diagonal(self.latency, 0)
        np.fill_diagonal(self.per_unit, 0)
        self.host = int(np.argmin(problem.work[:, n])) if problem.num_nodes > n else problem.num_devices - 1
        self.producer, self.size = problem.producer, problem.size
        self.value = np.repeat(np.arange(len(self.producer)), np.diff(problem.indptr))
        """The value of each reading, by value; ``reader`` has the node."""
        self.reader = problem.readers

    @property
    def allowed(self) -> NDArray[np.bool_]:
        """[num_stages, num_nodes]: which stage may have which node."""
        return np.isfinite(self.work)

    def times(self, stage_of: ArrayLike) -> StageTimes:
        """What stages take. ``stage_of``: int [num_nodes], rising or level along edges; a stage without nodes takes
        nothing. Infinite where a node is in a stage that may not have it."""
        n, k = self.graph.num_nodes, self.num_stages
        stage = np.asarray(stage_of, np.int64)
        if stage.shape != (n,) or (n and not 0 <= stage.min() <= stage.max() < k):
            raise PartitionError(f"stage_of must hold a stage below {k} for each of the {n} nodes")
        work = _sums(stage, self.work[stage, np.arange(n)], k)
        launch = np.where(np.bincount(stage, minlength=k) > 0, self.launch, 0.0)
        label = np.append(stage, self.host)
        source = label[self.producer[self.value]]
        # Who pays: the stage that reads or, for what the host reads, the one that makes it.
        to_host = self.reader == n
        target = label[self.reader]
        payer = np.where(to_host, np.where(self.producer[self.value] == n, -1, source), target)
        counts = (source != target) & (payer >= 0)
        width = 2 * (k + 1)
        code = self.value[counts] * width + payer[counts] * 2 + to_host[counts]
        _, first = np.unique(code, return_index=True)
        at = np.flatnonzero(counts)[first]
        source, target, payer, size = source[at], target[at], payer[at], self.size[self.value[at]]
        seconds = self.latency[source, target] + size * self.per_unit[source, target]
        transfers = _sums(payer, seconds, k)
        between = (self.producer[self.value[at]] < n) & ~to_host[at]
        received = _sums(payer[between], size[between], k)
        return StageTimes(work, launch, transfers, received)

    def lower_bound(self) -> float:
        """No stages have a slowest one that takes less: it has a node that takes this, or its share of all work."""
        if not self.graph.num_nodes:
            return 0.0
        least = self.work.min(axis=0)
        one = float((self.work + self.launch[:, None]).min(axis=0).max())
        return max(one, float(least.sum() + self.launch.min()) / self.num_stages)


def _sums(at: NDArray[np.int64], weights: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    return np.bincount(at, weights, count).astype(np.float64)  # of none, it would count in integers
