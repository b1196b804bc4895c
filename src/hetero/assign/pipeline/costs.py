"""The predicted times of a pipeline's stages.

A stage pays for the work of its nodes, one launch, one transfer for each value that it reads and another stage (or the
host) makes, and one for each result that it sends to the host. A value goes directly from its stage to each stage that
reads it: if two later stages read it, both pay, and the stages in between do not.
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
    """Per stage, float64 [num_stages]: seconds of ``work``, ``launch`` and ``transfers``.

    ``received``: the size (bytes) of the values that the stage reads and other stages make.
    """

    work: NDArray[np.float64]
    launch: NDArray[np.float64]
    transfers: NDArray[np.float64]
    received: NDArray[np.float64]

    @property
    def total(self) -> NDArray[np.float64]:
        """Seconds per stage: the sum of work, launch and transfers."""
        return self.work + self.launch + self.transfers

    @property
    def slowest(self) -> float:
        """Seconds of the slowest stage: the time between two results once the pipeline is full."""
        return float(self.total.max(initial=0.0))


class StageCosts:
    """The costs of a graph in stages, where stage s runs on device s of an `AssignmentProblem`.

    ``problem`` has the nodes of ``graph``, and optionally one more node, the host, which makes the inputs and reads the
    results; the host is on the device where it costs least. The first ``num_stages`` devices have a stage each; None:
    all devices. ``launch``: float64 [num_stages], seconds per run of each stage. Immutable. Raises `PartitionError` if
    the arguments do not match.
    """

    def __init__(
        self, graph: Graph, problem: AssignmentProblem, launch: ArrayLike, num_stages: int | None = None
    ) -> None:
        n = graph.num_nodes
        k = problem.num_devices if num_stages is None else num_stages
        if not 1 <= k <= problem.num_devices:
            raise PartitionError(f"num_stages must be from 1 to the number of devices {problem.num_devices}, found {k}")
        if problem.num_nodes not in (n, n + 1):
            raise PartitionError(
                f"the problem has {problem.num_nodes} nodes, expected {n} as in the graph, or {n + 1} with the host"
            )
        launches = np.array(launch, np.float64)
        if launches.shape != (k,) or not ((launches >= 0) & (launches < np.inf)).all():
            raise PartitionError(f"launch must hold {k} finite costs of 0 or more, one per stage; found {launch!r}")
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
        """int: the value of each read, ascending; ``reader`` holds the node."""
        self.reader = problem.readers

    @property
    def allowed(self) -> NDArray[np.bool_]:
        """bool [num_stages, num_nodes]: which stage may have which node."""
        return np.isfinite(self.work)

    def times(self, stage_of: ArrayLike) -> StageTimes:
        """The times of given stages. ``stage_of``: int [num_nodes], not descending along edges.

        A stage without nodes takes no time. A stage with a node that it may not have takes infinite time.
        """
        n, k = self.graph.num_nodes, self.num_stages
        stage = np.asarray(stage_of, np.int64)
        if stage.shape != (n,) or (n and not 0 <= stage.min() <= stage.max() < k):
            raise PartitionError(f"stage_of must hold one stage from 0 to {k - 1} for each of the {n} nodes")
        work = _sums(stage, self.work[stage, np.arange(n)], k)
        launch = np.where(np.bincount(stage, minlength=k) > 0, self.launch, 0.0)
        device = np.append(stage, self.host)
        producer = self.producer[self.value]
        source, target = device[producer], device[self.reader]
        # The reading stage pays; for a result, the stage that makes it. Nobody (-1) pays for host to host.
        to_host = self.reader == n
        payer = np.where(to_host, np.where(producer == n, -1, source), target)
        is_transfer = (source != target) & (payer >= 0)
        # One transfer for each value, payer and direction, however many nodes read the value there.
        key = self.value[is_transfer] * (2 * (k + 1)) + payer[is_transfer] * 2 + to_host[is_transfer]
        _, first = np.unique(key, return_index=True)
        chosen = np.flatnonzero(is_transfer)[first]
        source, target, payer, size = source[chosen], target[chosen], payer[chosen], self.size[self.value[chosen]]
        seconds = self.latency[source, target] + size * self.per_unit[source, target]
        transfers = _sums(payer, seconds, k)
        between_stages = (producer[chosen] < n) & ~to_host[chosen]
        received = _sums(payer[between_stages], size[between_stages], k)
        return StageTimes(work, launch, transfers, received)

    def lower_bound(self) -> float:
        """Seconds that the slowest stage takes at least: the slowest single node, or an equal share of all work."""
        if not self.graph.num_nodes:
            return 0.0
        slowest_node = float((self.work + self.launch[:, None]).min(axis=0).max())
        return max(slowest_node, float(self.work.min(axis=0).sum() + self.launch.min()) / self.num_stages)


def _sums(group: NDArray[np.int64], weights: NDArray[np.float64], num_groups: int) -> NDArray[np.float64]:
    return np.bincount(group, weights, num_groups).astype(np.float64)  # bincount of an empty array returns integers
