"""Asking a run to stop from another thread."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import Cancelled

__all__ = ["Cancellation"]


class Cancellation:
    """A flag that one thread sets and a run in another looks at where it can stop.

    Who owns the run clears the flag before it starts one. `CpuRunner.cancellation` is the flag of a request on CPU: a
    run looks at it between two segments, and in a Loop or Scan at least every 10 ms, unless one trip takes longer.

    ``parts``: flags of the runs that this one is made of, which are set and cleared with it.
    """

    __slots__ = ("_parts", "requested")

    def __init__(self, parts: Iterable[Cancellation] = ()) -> None:
        self.requested = False
        self._parts = tuple(parts)

    def request(self) -> None:
        """Ask the run to stop. From any thread, any number of times."""
        self.requested = True
        for part in self._parts:
            part.request()

    def clear(self) -> None:
        """Take back what was asked for, before a run starts."""
        self.requested = False
        for part in self._parts:
            part.clear()

    def check(self) -> None:
        """Raise `Cancelled` if that was asked for."""
        if self.requested:
            raise Cancelled("the run was cancelled")
