"""A thread for what must not be done where it comes to mind: by the garbage collector, amidst of anything."""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

from ...workers.per_process import PerProcess

__all__ = ["Reaper", "reaper"]


class Reaper:
    """Does one piece of work after the other. Thread-safe."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[tuple[Callable[..., None], tuple[Any, ...]]] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="hetero ends Ray actors", daemon=True).start()

    def later(self, work: Callable[..., None], *arguments: Any) -> None:
        """Have it done soon. A finalizer may call this: it takes no lock that its thread may have already."""
        self._work.put((work, arguments))

    def _serve(self) -> None:
        while True:
            work, arguments = self._work.get()
            try:
                work(*arguments)
            except SystemExit:
                pass  # how Ray ends calls that are under way when its connection is ended
            except BaseException as error:  # nobody is there whom it would help; the next is to be done all the same
                with contextlib.suppress(BaseException):  # at the end of the interpreter
                    print(f"hetero: an actor was not ended: {type(error).__name__}: {error}", file=sys.stderr)
            del work, arguments  # or it would hold them until there is more


reaper = PerProcess(Reaper)
"""The one of this process."""
