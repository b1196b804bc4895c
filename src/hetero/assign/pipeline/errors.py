"""What cannot be a pipeline."""

from __future__ import annotations

from ...errors import PartitionError

__all__ = ["NoRoom", "PipelineError", "TooManyStages"]


class PipelineError(PartitionError):
    """No consecutive stages in the order of the devices have every node where it can be.

    ``node``: a node that has no stage left; ``earliest``: the first stage, counted from 0, that what it reads leaves to
    it; ``before``: the node that this is because of, None if the node has no stage at all.
    """

    def __init__(self, message: str, node: int, earliest: int, before: int | None = None) -> None:
        super().__init__(message)
        self.node = node
        self.earliest = earliest
        self.before = before


class TooManyStages(PartitionError):
    """More stages than the graph has nodes."""


class NoRoom(PartitionError):
    """No stages were found that fit into the memory of their devices."""
