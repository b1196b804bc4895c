"""Memory in huge pages (2 MiB) for packed weights."""

from __future__ import annotations

import contextlib
import mmap
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import _kernels

__all__ = ["Pages"]

_HUGE_PAGE = 2 << 20  # bytes
_CHUNK = 8 * _HUGE_PAGE  # bytes requested from the system at a time, at least
_ALIGNMENT = _kernels.constant("ALIGNMENT")
_FIRST_BYTES = 4 << 20  # allocated by NumPy; see `Pages`
_ADVICE = getattr(mmap, "MADV_HUGEPAGE", None)  # only on Linux


class Pages:
    """Allocates arrays one after another in pages of 2 MiB, if the system has them. They are freed all together.

    A product of few rows reads its weights once per run. In pages of 4 KiB, it spends a fifth of its time on
    translating addresses, and filling the memory takes 512 page faults instead of one. The first 4 MiB come from NumPy:
    a processor caches the translations for that much, and a huge page would be partly unused. Thread-safe.

    Arrays are aligned to 64 bytes: with AVX-512, each load of a vector that is not would read two cache lines, and
    products would take a fifth longer.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = 0
        self._chunk = np.empty(0, np.uint8)
        self._used = 0

    def take(self, num_bytes: int) -> NDArray[Any]:
        """``num_bytes`` of uninitialized memory as uint8."""
        with self._lock:
            self._taken += num_bytes
            if _ADVICE is None or self._taken <= _FIRST_BYTES:
                return _aligned(np.empty(num_bytes + _ALIGNMENT, np.uint8), _ALIGNMENT)[:num_bytes]
            if self._used + num_bytes > len(self._chunk):
                self._chunk, self._used = _chunk(max(_CHUNK, num_bytes)), 0
            begin = self._used
            self._used = begin + -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
            return self._chunk[begin : begin + num_bytes]


def _chunk(num_bytes: int) -> NDArray[Any]:
    """At least ``num_bytes`` in whole huge pages. A page takes memory only when it is first written."""
    whole = -(-num_bytes // _HUGE_PAGE) * _HUGE_PAGE
    memory = mmap.mmap(-1, whole + _HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    assert _ADVICE is not None
    with contextlib.suppress(OSError):  # a system without huge pages
        memory.madvise(_ADVICE)
    return _aligned(np.frombuffer(memory, np.uint8), _HUGE_PAGE)[:whole]


def _aligned(memory: NDArray[Any], alignment: int) -> NDArray[Any]:
    """``memory`` from its first aligned byte on."""
    return memory[-_kernels.range_of(memory)[0] % alignment :]
