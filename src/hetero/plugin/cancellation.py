"""Stops a run from another thread."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from ..errors import Cancelled

__all__ = ["Cancellation"]


class Cancellation:
    """A flag that one thread sets and that a run in another thread checks wherever it can stop.

    The owner of a run clears the flag before the run starts. `CpuRunner.cancellation` is the flag of a request on CPU:
    kernels check it between parts of their work, within 100 ms. TEMPLATE checks its flag before each node.

    ``parts``: the flags of the runs that make up this run. They are set and cleared together with this flag.
    """

    __slots__ = ("_lock", "_parts", "requested")

    def __init__(self, parts: Iterable[Cancellation] = ()) -> None:
        self.requested = False
        self._parts = tuple(parts)
        self._lock = threading.Lock()

    def request(self) -> None:
        """Ask the run to stop. May be called from any thread, any number of times."""
        self.requested = True
        with self._lock:
            for part in self._parts:
                part.request()

    def clear(self) -> None:
        """Withdraw the request, before a run starts."""
        self.requested = False
        for part in self._parts:
            part.clear()

    def check(self) -> None:
        """Raise `Cancelled` if the run was asked to stop."""
        if self.requested:
            raise Cancelled("the run was cancelled")

    def lend(self, part: Cancellation) -> None:
        """Make ``part`` the only part of this flag until `take_back`. Clears ``part`` first."""
        part.clear()
        with self._lock:
            self._parts = (part,)
        if self.requested:
            part.request()

    def take_back(self) -> None:
        """Remove the part that `lend` added: requests no longer reach it."""
        with self._lock:
            self._parts = ()
