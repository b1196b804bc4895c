"""Memory that this process and its workers map: where boundary values lie, so that none is copied on its way."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import threading
import weakref
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["SharedMemory", "SharedPool"]

_RESERVED = 1 << 40
"""Bytes of address space. Pages exist from when they are first written."""

_ALIGNMENT = 64
_LARGE = 1 << 20
# Of large blocks of one size that nobody uses, so many, or so many bytes, keep their pages for whoever wants one next:
# to take fresh ones costs ten times what it costs to fill them.
_SPARE_BLOCKS, _SPARE_BYTES = 8, 64 << 20


class SharedMemory:
    """A mapping of anonymous memory. A worker maps what its parent made, by its file descriptor."""

    def __init__(self, descriptor: int, size: int) -> None:
        # MAP_NORESERVE, which `mmap` has no name for: no swap is set aside for what is never written.
        self._memory = mmap.mmap(descriptor, size, flags=mmap.MAP_SHARED | 0x4000)
        self.descriptor = descriptor
        self.size = size
        self._address = _address_of(np.frombuffer(self._memory, np.uint8, 1))

    def array(self, offset: int, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """A view. ``ValueError`` or ``TypeError`` if it would not lie inside."""
        if not 0 <= offset < self.size:
            raise ValueError(f"there is no byte {offset} in {self.size} bytes of shared memory")
        return np.ndarray(shape, dtype, self._memory, offset)

    def offset_of(self, array: NDArray[Any]) -> int | None:
        """Where a contiguous array of native byte order lies; None if it is elsewhere, or laid out otherwise."""
        if not (array.flags.c_contiguous and array.dtype.isnative):
            return None
        offset = _address_of(array) - self._address
        return offset if 0 <= offset <= self.size - array.nbytes else None


class SharedPool(SharedMemory):
    """Shared memory in blocks, handed out as arrays; a block is free again when nobody has its array any longer.

    Thread-safe. Blocks that arrays of another process are made over must be kept here meanwhile.
    """

    def __init__(self) -> None:
        descriptor = os.memfd_create("hetero", os.MFD_CLOEXEC)
        size = _RESERVED
        while True:
            try:
                os.ftruncate(descriptor, size)
                super().__init__(descriptor, size)
                break
            except (OSError, ValueError):  # a limit of address space or file size
                size //= 2
                if size < 1 << 28:
                    os.close(descriptor)
                    raise
        self._lock = threading.Lock()
        self._end = 0
        # None of these is under the lock: blocks come back whenever an array goes.
        self._free: dict[int, list[int]] = {}  # bytes -> offsets
        self._bare: dict[int, list[int]] = {}  # the same, of those without pages
        self._taken: dict[int, _Block] = {}  # by offset
        weakref.finalize(self, os.close, descriptor).atexit = False

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> tuple[NDArray[Any], int]:
        """A fresh array of undefined contents, and where it lies. ``MemoryError`` if there is no room."""
        kind = np.dtype(dtype)
        size = _rounded(math.prod(shape) * kind.itemsize)
        offset = self._take(size)
        array = np.ndarray(shape, kind, self._memory, offset)
        block = self._taken[offset] = _Block(array, self._give_back)
        block.offset, block.size = offset, size
        return array, offset

    def share(self, array: NDArray[Any]) -> tuple[NDArray[Any], int]:
        """The array, or a copy of it, that lies here, and where."""
        offset = self.offset_of(array)
        if offset is not None:
            return array, offset
        own, offset = self.empty(array.shape, array.dtype.newbyteorder("="))
        own[...] = array
        return own, offset

    def _take(self, size: int) -> int:
        for spare in (self._free, self._bare):
            try:
                return spare[size].pop()
            except (KeyError, IndexError):
                pass
        with self._lock:
            offset = -(-self._end // mmap.PAGESIZE) * mmap.PAGESIZE if size >= _LARGE else self._end
            if offset + size > self.size:
                raise MemoryError(f"{size} bytes of shared memory: {self.size - self._end} are left")
            self._end = offset + size
        return offset

    def _give_back(self, block: _Block) -> None:
        del self._taken[block.offset]
        spare = self._free.setdefault(block.size, [])
        if block.size >= _LARGE and len(spare) >= max(_SPARE_BLOCKS, _SPARE_BYTES // block.size):
            self._memory.madvise(mmap.MADV_REMOVE, block.offset, block.size)
            spare = self._bare.setdefault(block.size, [])
        spare.append(block.offset)


class _Block(weakref.ref):  # type: ignore[type-arg]  # mypy takes its subclasses for other than they are
    """Calls back when the array over it goes. (`weakref.finalize` takes five times as long to make.)"""

    __slots__ = ("offset", "size")
    offset: int
    size: int


def _address_of(array: NDArray[Any]) -> int:
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array))  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):  # read-only, empty, or of a type that buffers have no name for
        address: int = array.__array_interface__["data"][0]
        return address


def _rounded(nbytes: int) -> int:
    """Up to a multiple of an eighth of the next power of two, so that blocks fit more than one size."""
    size = max(_ALIGNMENT, nbytes)
    step = max(_ALIGNMENT, 1 << max(0, (size - 1).bit_length() - 3))
    return -(-size // step) * step
