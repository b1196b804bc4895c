"""Asking a run to stop from another thread."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from ..errors import Cancelled

__all__ = ["Cancellation"]


class Cancellation:
    """A flag that one thread sets and a run in another looks at where it can stop.

    The owner of a run clears the flag before it starts one. `CpuRunner.cancellation` is the flag of a request on CPU:
    kernels check it between parts of their work, within 100 ms. TEMPLATE checks its flag before each node.

    ``parts``: flags of the runs that this one is made of, which are set and cleared with it.
    """

    __slots__ = ("_lock", "_parts", "requested")

    def __init__(self, parts: Iterable[Cancellation] = ()) -> None:
        self.requested = False
        self._parts = tuple(parts)
        self._lock = threading.Lock()

    def request(self) -> None:
        """Ask the run to stop. From any thread, any number of times."""
        self.requested = True
        with self._lock:
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

    def lend(self, part: Cancellation) -> None:
        """Have one run at a time be part of this one, cleared at first, until `take_back`."""
        part.clear()
        with self._lock:
            self._parts = (part,)
        if self.requested:
            part.request()

    def take_back(self) -> None:
        """The run that was lent is over: what is asked of this one is not asked of it any longer."""
        with self._lock:
            self._parts = ()
