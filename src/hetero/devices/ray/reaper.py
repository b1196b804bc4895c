"""Runs clean-up on its own thread, because finalizers may run at any point and must not take locks."""

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
    """Runs clean-up functions one after the other. Thread-safe."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[tuple[Callable[..., None], tuple[Any, ...]]] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="hetero ends Ray actors", daemon=True).start()

    def later(self, work: Callable[..., None], *arguments: Any) -> None:
        """Run a function soon. Finalizers may call this, because it takes no lock that their thread may hold."""
        self._work.put((work, arguments))

    def _serve(self) -> None:
        while True:
            work, arguments = self._work.get()
            try:
                work(*arguments)
            except SystemExit:
                pass  # Ray raises this in running calls when its connection is closed
            except BaseException as error:  # print it, and continue with the next function
                with contextlib.suppress(BaseException):  # stderr may be closed at interpreter exit
                    print(f"hetero: cannot end a Ray actor: {type(error).__name__}: {error}", file=sys.stderr)
            del work, arguments  # do not keep them alive while waiting


reaper = PerProcess(Reaper)
"""The reaper of this process."""
