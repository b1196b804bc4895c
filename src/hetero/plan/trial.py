"""Cutting a plan's model again under other devices, within a bound.

The bound is one of work, not of time, so that the same plan always gets the same answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..partition import Partition, partition_graph

if TYPE_CHECKING:
    from .record import PlanRecord

__all__ = ["Trials"]

_WORK = 1_500_000  # nodes and edges cut again in all: half a second or so
_LARGEST_DOCUMENTED = 2_000  # nodes; the policy takes time quadratic in them, and more


class Trials:
    """Partitions of a plan's graph under other devices, as many as ``work`` (nodes and edges in all) allows; one is
    always allowed."""

    def __init__(self, plan: PlanRecord, work: int = _WORK) -> None:
        bound = plan.require_bound()
        self._graph = bound.model.graph
        self._policy = plan.policy
        self._each = self._graph.num_nodes + self._graph.num_edges
        self._left = max(work, self._each)
        if plan.policy == "documented" and self._graph.num_nodes > _LARGEST_DOCUMENTED:
            self._left = 0

    @property
    def left(self) -> int:
        """How many more are allowed."""
        return self._left // max(self._each, 1)

    def partition(self, device_of: NDArray[np.int32]) -> Partition | None:
        """The partition under these device numbers; None if the bound is reached."""
        if self._left < self._each:
            return None
        self._left -= self._each
        return partition_graph(self._graph, device_of, policy=self._policy)
