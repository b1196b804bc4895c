"""Memory in large pages for packed weights."""

from __future__ import annotations

import contextlib
import mmap
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Pages"]

_LARGE = 2 << 20
_CHUNK = 8 * _LARGE
_ALIGNMENT = 64
_SMALL = 4 << 20
_WISH = getattr(mmap, "MADV_HUGEPAGE", None)  # Linux


class Pages:
    """Arrays that live as long as this object, one after another in pages of 2 MiB where the system has such.

    Weights stream through a product once in each run; in pages of 4 KiB a product of few rows spends a fifth of its
    time on translating addresses, and filling them takes 512 page faults instead of one. The first 4 MiB are taken
    elsewhere: a processor keeps translations for as much at hand, and large pages stay idle in part. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = 0
        self._chunk = np.empty(0, np.uint8)
        self._used = 0

    def take(self, num_bytes: int) -> NDArray[Any]:
        """``num_bytes`` of uninitialised memory, uint8, aligned to 64 bytes or, if small, as NumPy does."""
        with self._lock:
            self._taken += num_bytes
            if _WISH is None or self._taken <= _SMALL:
                return np.empty(num_bytes, np.uint8)
            if self._used + num_bytes > len(self._chunk):
                self._chunk, self._used = _chunk(max(_CHUNK, num_bytes)), 0
            begin = self._used
            self._used = begin + -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
            return self._chunk[begin : begin + num_bytes]


def _chunk(num_bytes: int) -> NDArray[Any]:
    """At least ``num_bytes`` in whole large pages; none takes memory before it is written."""
    whole = -(-num_bytes // _LARGE) * _LARGE
    memory = mmap.mmap(-1, whole + _LARGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    assert _WISH is not None
    with contextlib.suppress(OSError):  # a kernel without such pages
        memory.madvise(_WISH)
    array = np.frombuffer(memory, np.uint8)
    begin = -array.__array_interface__["data"][0] % _LARGE
    return array[begin : begin + whole]
