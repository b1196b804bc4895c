"""Python's search for cyclic garbage, put off while very many objects are made that all stay.

Each time that the number of objects has grown by a quarter, the search goes through all of them, and more often through
the younger ones. For models of ten thousand submodels that takes longer than making them.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

__all__ = ["collection_paused"]


class _Pauses:
    """How many blocks want no search, in all threads, and whether there was one before the first of them."""

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
    """No automatic search in the block, in any thread. Where the program has turned it off itself, it stays off.

    ``wanted``: False for a block that makes few objects, where nothing is changed.
    """
    if not wanted:
        yield
        return
    _pauses.begin()
    try:
        yield
    finally:
        _pauses.end()
