"""Pauses Python's garbage collector while very many objects are created that all stay alive.

The collector scans all objects each time their number has grown by a quarter, and younger objects more often. For
models of ten thousand submodels these scans take longer than creating the objects.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

__all__ = ["MANY_NODES", "collection_paused", "collection_rare"]

MANY_NODES = 10_000
"""Nodes of models that are planned and compiled with the collector paused."""

_RARE = 50_000  # new objects before a collection; Python's default is 700


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


@contextlib.contextmanager
def collection_rare() -> Iterator[None]:
    """Collect rarely while the block runs, for a process whose objects mostly live until it ends: in ``hetero plan`` of
    a small model, collections took 13 % of the CPU time. Afterwards, the previous thresholds are restored."""
    before = gc.get_threshold()
    gc.set_threshold(_RARE, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
