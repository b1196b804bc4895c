"""Errors of graphs that cannot be split into the requested stages."""

from __future__ import annotations

from ...errors import PartitionError

__all__ = ["NoRoom", "PipelineError", "TooManyStages"]


class PipelineError(PartitionError):
    """No stages in the order of the devices place every node on a device that supports it.

    ``node``: a node that no stage can have. ``earliest``: the first stage, from 0, that its predecessors allow.
    ``before``: the predecessor that requires ``earliest``; None if the predecessors do not matter.
    """

    def __init__(self, message: str, node: int, earliest: int, before: int | None = None) -> None:
        super().__init__(message)
        self.node = node
        self.earliest = earliest
        self.before = before


class TooManyStages(PartitionError):
    """More stages than the graph has nodes."""


class NoRoom(PartitionError):
    """No stages that fit in the memory of their devices were found."""
