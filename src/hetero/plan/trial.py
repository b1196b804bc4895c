"""Partitions a plan's model again with other devices, within a limit.

The limit is an amount of work rather than of time, so equal plans give equal answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..assign.with_readers import WithReaders
from ..partition import Partition, partition_graph

if TYPE_CHECKING:
    from .bound import BoundPlan

__all__ = ["Trials"]

_WORK = 1_500_000  # total nodes and edges partitioned again: about 0.5 s
_LARGEST_DOCUMENTED = 2_000  # nodes; this policy takes at least quadratic time


class Trials:
    """Partitions of a plan's graph with other devices, within ``work`` (total nodes and edges). The first is always
    allowed."""

    def __init__(self, plan: BoundPlan, work: int = _WORK) -> None:
        self._graph = plan.assignment.model.graph
        self._readers = WithReaders.of(plan.assignment.model, plan.assignment.affinity)
        self._policy = plan.policy
        self._each = self._graph.num_nodes + self._graph.num_edges
        self._left = max(work, self._each)
        if plan.policy == "documented" and self._graph.num_nodes > _LARGEST_DOCUMENTED:
            self._left = 0

    @property
    def left(self) -> int:
        """The number of partitions left."""
        return self._left // max(self._each, 1)

    def partition(self, device_of: NDArray[np.int32]) -> Partition | None:
        """The partition for these device numbers; None if the limit is reached."""
        if self._left < self._each:
            return None
        self._left -= self._each
        return partition_graph(self._graph, self._readers.place(device_of), policy=self._policy)
