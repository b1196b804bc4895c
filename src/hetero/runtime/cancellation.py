"""Asking a run to stop from another thread."""

from __future__ import annotations

from ..errors import Cancelled

__all__ = ["Cancellation"]


class Cancellation:
    """A flag that one thread sets and a run in another looks at where it can stop.

    Who owns the run clears the flag before it starts one. `CpuRunner.cancellation` is the flag of a request on CPU: a
    run looks at it between two segments, and in a Loop or Scan at least every 10 ms, unless one trip takes longer.
    """

    __slots__ = ("requested",)

    def __init__(self) -> None:
        self.requested = False

    def request(self) -> None:
        self.requested = True

    def clear(self) -> None:
        self.requested = False

    def check(self) -> None:
        """Raise `Cancelled` if that was asked for."""
        if self.requested:
            raise Cancelled("the run was cancelled")
