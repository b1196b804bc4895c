"""Memory that this process and its workers map. It holds boundary values, so that they pass without a copy."""

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

__all__ = ["SharedMemory", "SharedPool", "address_of"]

_RESERVED = 1 << 40
"""The size of the address space in B. The system allocates pages when they are first written."""

_ALIGNMENT = 64
_LARGE = 1 << 20
# For each size of large blocks, this many free blocks, or this many bytes, keep their pages for reuse: allocating new
# pages takes ten times as long as filling them.
_SPARE_BLOCKS, _SPARE_BYTES = 8, 64 << 20


class SharedMemory:
    """A mapping of anonymous memory. A worker maps its parent's memory by its file descriptor."""

    def __init__(self, descriptor: int, size: int) -> None:
        # 0x4000 is MAP_NORESERVE, which `mmap` does not define: reserve no swap space for unwritten pages.
        self._memory = mmap.mmap(descriptor, size, flags=mmap.MAP_SHARED | 0x4000)
        # To write a core dump, the system would allocate every page of the address space.
        self._memory.madvise(mmap.MADV_DONTDUMP)
        self.descriptor = descriptor
        self.size = size
        self._address = address_of(np.frombuffer(self._memory, np.uint8, 1))

    def array(self, offset: int, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """A view of the memory. Raises `ValueError` or `TypeError` if it would lie outside."""
        if not 0 <= offset < self.size:
            raise ValueError(f"there is no byte {offset} in {self.size} bytes of shared memory")
        return np.ndarray(shape, dtype, self._memory, offset)

    def offset_of(self, array: NDArray[Any]) -> int | None:
        """The offset of an array; None if it is elsewhere, not C-contiguous, or not in native byte order."""
        if not (array.flags.c_contiguous and array.dtype.isnative):
            return None
        offset = address_of(array) - self._address
        return offset if 0 <= offset <= self.size - array.nbytes else None


class SharedPool(SharedMemory):
    """Shared memory in blocks, returned as arrays. A block is free again when its array is garbage collected.

    Thread-safe. While another process uses a block, keep the array alive in this process.
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
        # Not protected by the lock, because arrays may be garbage collected, and return their blocks, at any time.
        self._free: dict[int, list[int]] = {}  # bytes -> offsets
        self._bare: dict[int, list[int]] = {}  # as `_free`, for blocks without pages
        self._in_use: dict[int, _Block] = {}  # offset -> block
        self._sharing = threading.Lock()
        # owner -> number -> copy
        self._copies: weakref.WeakKeyDictionary[object, weakref.WeakValueDictionary[int, NDArray[Any]]]
        self._copies = weakref.WeakKeyDictionary()
        weakref.finalize(self, os.close, descriptor).atexit = False

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> tuple[NDArray[Any], int]:
        """A new array with undefined contents, and its offset. Raises `MemoryError` if there is not enough space."""
        kind = np.dtype(dtype)
        size = _rounded(math.prod(shape) * kind.itemsize)
        offset = self._take(size)
        array = np.ndarray(shape, kind, self._memory, offset)
        block = self._in_use[offset] = _Block(array, self._give_back)
        block.offset, block.size = offset, size
        return array, offset

    def share(self, array: NDArray[Any]) -> tuple[NDArray[Any], int]:
        """The array, or a copy if it is not in this memory, and its offset."""
        offset = self.offset_of(array)
        if offset is not None:
            return array, offset
        own, offset = self.empty(array.shape, array.dtype.newbyteorder("="))
        own[...] = array
        return own, offset

    def share_once(self, array: NDArray[Any], owner: object, number: int) -> tuple[NDArray[Any], int]:
        """As `share`, for the data that ``owner`` holds under ``number`` and never changes. Returns the same copy as
        long as one caller keeps it."""
        with self._sharing:
            copies = self._copies.setdefault(owner, weakref.WeakValueDictionary())
            copy = copies.get(number)
            if copy is None:
                copy = copies[number] = self.share(array)[0]
        offset = self.offset_of(copy)
        assert offset is not None, "it is in this memory"
        return copy, offset

    def _take(self, size: int) -> int:
        for spare in (self._free, self._bare):
            try:
                return spare[size].pop()
            except (KeyError, IndexError):
                pass
        with self._lock:
            offset = -(-self._end // mmap.PAGESIZE) * mmap.PAGESIZE if size >= _LARGE else self._end
            if offset + size > self.size:
                raise MemoryError(f"cannot allocate {size} B of shared memory: {self.size - self._end} B are left")
            self._end = offset + size
        return offset

    def _give_back(self, block: _Block) -> None:
        del self._in_use[block.offset]
        spare = self._free.setdefault(block.size, [])
        if block.size >= _LARGE and len(spare) >= max(_SPARE_BLOCKS, _SPARE_BYTES // block.size):
            self._memory.madvise(mmap.MADV_REMOVE, block.offset, block.size)
            spare = self._bare.setdefault(block.size, [])
        spare.append(block.offset)


class _Block(weakref.ref):  # type: ignore[type-arg]  # mypy takes its subclasses for other than they are
    """Calls back when its array is garbage collected. (Creating a `weakref.finalize` takes five times as long.)"""

    __slots__ = ("offset", "size")
    offset: int
    size: int


def address_of(array: NDArray[Any]) -> int:
    """The address of an array's first element."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array))  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):  # read-only, empty, or of a type that buffers do not support
        address: int = array.__array_interface__["data"][0]
        return address


def _rounded(nbytes: int) -> int:
    """``nbytes`` rounded up to a multiple of 1/8 of the next power of two, so that blocks can be reused for other
    sizes."""
    size = max(_ALIGNMENT, nbytes)
    step = max(_ALIGNMENT, 1 << max(0, (size - 1).bit_length() - 3))
    return -(-size // step) * step
