"""Pauses Python's garbage collector while very many objects are created that all stay alive.

The collector scans all objects each time their number has grown by a quarter, and younger objects more often. For
models of ten thousand submodels these scans take longer than creating the objects.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

__all__ = ["collection_paused"]


class _Pauses:
    """The number of active blocks in all threads, and whether the collector was enabled before the first of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._was_enabled = False

    def begin(self) -> None:
        with self._lock:
            if self._count == 0:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._count += 1

    def end(self) -> None:
        with self._lock:
            self._count -= 1
            if self._count == 0 and self._was_enabled:
                gc.enable()


_pauses = _Pauses()


@contextlib.contextmanager
def collection_paused(wanted: bool = True) -> Iterator[None]:
    """Disable automatic collection in all threads while the block runs. Afterwards, the previous state is restored.

    ``wanted``: False has no effect, for blocks that create few objects.
    """
    if not wanted:
        yield
        return
    _pauses.begin()
    try:
        yield
    finally:
        _pauses.end()
