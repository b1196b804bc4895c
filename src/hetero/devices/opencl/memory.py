"""The memory of one device: buffers, values that stay on the device, and pinned host memory for copies.

A buffer that is given back may still be used by kernels that were started before. The buffer remembers their events
(`Block.events`), and its next owner waits for them on the device.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.formatting import byte_size
from ...errors import HeteroError, InsufficientMemory, inference_error
from . import backend

__all__ = ["Block", "DeviceValue", "Memory", "Staging", "is_done"]

_SMALLEST = 64
"""B: the size of the smallest buffer. OpenCL has no empty buffers."""
_KEPT = 64
"""The maximum number of free blocks that are kept for values that stay on the device, and of staging buffers."""


class Block:
    """A buffer of the device. Its memory is free when the last reference to the block is gone.

    ``events``: of commands that may still use the buffer. The next owner of the block must wait for them.
    ``is_constant``: a compiled model reads the contents in every run, so nothing may be written to them.
    """

    __slots__ = ("__weakref__", "_memory", "_pooled", "buffer", "events", "is_constant", "nbytes")

    def __init__(self, memory: Memory, buffer: Any, nbytes: int, pooled: bool) -> None:
        self.buffer = buffer
        self.nbytes = nbytes
        self.events: list[Any] = []
        self.is_constant = False
        self._memory = memory
        self._pooled = pooled

    def __del__(self) -> None:
        memory = getattr(self, "_memory", None)
        if memory is not None:
            memory.give_back(self.buffer, self.nbytes, self.events, self._pooled)


class DeviceValue:
    """A result that stays on the device: a block, and the type of the value in it.

    Contents do not change. Who reads it waits for ``ready`` (None: the value is there), and adds an event of its own to
    the block's.
    """

    __slots__ = ("block", "dtype", "memory", "ready", "shape")

    def __init__(self, memory: Memory, block: Block, dtype: np.dtype[Any], shape: tuple[int, ...], ready: Any) -> None:
        self.memory = memory
        self.block = block
        self.dtype = dtype
        self.shape = shape
        self.ready = ready

    @property
    def nbytes(self) -> int:
        """The size of the value in B."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def numpy(self) -> NDArray[Any]:
        """A copy in host memory."""
        array = np.empty(self.shape, self.dtype)
        self.read_into(array)
        return array

    def read_into(self, array: NDArray[Any]) -> None:
        """Copy the contents to an array of the same type and shape, C-contiguous."""
        self.memory.read_into(array, self.block, self.ready)

    def write(self, array: NDArray[Any]) -> None:
        """Copy an array of the same type and shape to the device. Waits for readers, and for the copy."""
        self.memory.write(self.block, np.ascontiguousarray(array), self.ready)

    def copy_from(self, other: DeviceValue) -> None:
        """Copy a value of the same type and shape, of the same device. Waits for the copy."""
        if other.block is not self.block:
            self.memory.copy(self.block, self.ready, other.block, other.ready, self.nbytes)


class Staging:
    """Pinned host memory: copies between it and the device run without the processor."""

    __slots__ = ("_buffer", "array")

    def __init__(self, buffer: Any, array: NDArray[np.uint8]) -> None:
        self._buffer = buffer
        self.array = array


class Memory:
    """The buffers of one device. Thread-safe.

    ``limit``: the maximum total size of all buffers, in B. ``largest``: of one buffer. ``is_shared``: whether the
    device works in the host's memory, so that copies through pinned memory would only add another copy.
    """

    def __init__(self, context: Any, device: Any, name: str, copies: Any) -> None:
        """``copies``: the queue for copies that do not belong to a stream."""
        self.name = name
        self.limit = int(device.global_mem_size)
        self.largest = int(device.max_mem_alloc_size)
        self.is_shared = bool(device.host_unified_memory)
        self.used = 0
        self._cl = backend.load()
        self._context = context
        self._copies = copies
        self._lock = threading.RLock()  # reentrant: the garbage collector may free a block anywhere
        self._free: dict[int, list[tuple[Any, list[Any]]]] = {}
        self._free_blocks = 0
        self._staging: dict[int, list[Staging]] = {}
        self._copying: list[tuple[Any, Staging]] = []
        """Staging memory that is used until an event."""

    @contextlib.contextmanager
    def guarded(self, device: str, what: str) -> Iterator[None]:
        """Errors of the driver become errors of hetero. ``device``: its name for messages. ``what``: what fails."""
        try:
            yield
        except HeteroError:
            raise
        except Exception as error:
            text = backend.error_text(error)
            if backend.is_out_of_memory(error):
                raise InsufficientMemory(
                    f"{device}: the device has no memory left for this {what}: {text}",
                    {device: max(self.used - self.limit, 1)},
                ) from error
            raise inference_error(f"{device}: {what} failed: {text}", error) from error

    def allocate(self, nbytes: int) -> Block:
        """A block of at least ``nbytes`` B. Raises `InsufficientMemory`."""
        return Block(self, self._buffer(nbytes), max(nbytes, _SMALLEST), pooled=False)

    def pooled(self, nbytes: int) -> Block:
        """`allocate`, for values of which each inference needs a new one: uses a free block of the same size class."""
        size = _size_class(nbytes)
        with self._lock:
            free = self._free.get(size)
            if free:
                idle = (at for at, (_, events) in enumerate(free) if all(map(is_done, events)))
                buffer, events = free.pop(next(idle, -1))
                self._free_blocks -= 1
                block = Block(self, buffer, size, pooled=True)
                block.events = events
                return block
        return Block(self, self._buffer(size), size, pooled=True)

    def note_use(self, blocks: Iterable[Block], event: Any) -> None:
        """Let the next owners of the blocks wait for ``event``."""
        with self._lock:
            for block in blocks:
                if not block.is_constant:  # nothing is written to it
                    block.events = [*(each for each in block.events if not is_done(each)), event]

    def upload(self, array: NDArray[Any]) -> Block:
        """A new block with the contents of ``array``. Returns when they are copied."""
        block = self.allocate(array.nbytes)
        if array.nbytes:
            contiguous = np.ascontiguousarray(array)
            with self.guarded(self.name, "copy"):
                self._cl.enqueue_copy(
                    self._copies, block.buffer, contiguous.reshape(-1).view(np.uint8), is_blocking=True
                )
        return block

    def upload_later(self, array: NDArray[Any]) -> tuple[Block, Any]:
        """A block that gets the contents of ``array``, and the event of the copy; None if it is there. The caller may
        change the array at once."""
        if self.is_shared or not array.nbytes:
            return self.upload(array), None
        block, staging = self.allocate(array.nbytes), self.staging(array.nbytes)
        source = staging.array[: array.nbytes]
        source[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        with self.guarded(self.name, "copy"):
            event = self._cl.enqueue_copy(self._copies, block.buffer, source, is_blocking=False)
            self._copies.flush()
        with self._lock:
            self._copying.append((event, staging))
        return block, event

    def read_into(self, array: NDArray[Any], block: Block, ready: Any) -> None:
        """Copy the contents of a block to ``array``, C-contiguous. Returns when they are copied."""
        if array.nbytes:
            waits = [] if ready is None else [ready]
            target = array.reshape(-1).view(np.uint8)
            with self.guarded(self.name, "copy"):
                self._cl.enqueue_copy(self._copies, target, block.buffer, is_blocking=True, wait_for=waits)

    def copy(self, block: Block, ready: Any, source: Block, source_ready: Any, nbytes: int) -> None:
        """Copy ``nbytes`` B from ``source`` to ``block``. Returns when they are copied."""
        if nbytes:
            waits = [*block.events, *(event for event in (ready, source_ready) if event is not None)]
            with self.guarded(self.name, "copy"):
                event = self._cl.enqueue_copy(
                    self._copies, block.buffer, source.buffer, byte_count=nbytes, wait_for=waits or None
                )
                event.wait()

    def write(self, block: Block, array: NDArray[Any], ready: Any = None) -> None:
        """Copy ``array``, C-contiguous, to a block. Returns when it is copied."""
        if array.nbytes:
            waits = [*block.events] if ready is None else [*block.events, ready]
            source = array.reshape(-1).view(np.uint8)
            with self.guarded(self.name, "copy"):
                self._cl.enqueue_copy(self._copies, block.buffer, source, is_blocking=True, wait_for=waits)

    def staging(self, nbytes: int) -> Staging:
        """Pinned memory of at least ``nbytes`` B. The caller returns it with `release`."""
        size = _size_class(nbytes)
        with self._lock:
            for entry in [entry for entry in self._copying if is_done(entry[0])]:
                self._copying.remove(entry)
                self.release(entry[1])
            free = self._staging.get(size)
            if free:
                return free.pop()
        cl = self._cl
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
        with self.guarded(self.name, "copy"):
            buffer = cl.Buffer(self._context, flags, size)
            array, _ = cl.enqueue_map_buffer(
                self._copies, buffer, cl.map_flags.READ | cl.map_flags.WRITE, 0, (size,), np.uint8, is_blocking=True
            )
        return Staging(buffer, array)

    def release(self, staging: Staging) -> None:
        """Return pinned memory that no copy uses any more."""
        with self._lock:
            free = self._staging.setdefault(len(staging.array), [])
            if len(free) < _KEPT:
                free.append(staging)

    def give_back(self, buffer: Any, nbytes: int, events: list[Any], pooled: bool) -> None:
        """Called by a block that is no longer used."""
        with self._lock:
            if pooled and self._free_blocks < _KEPT:
                self._free.setdefault(nbytes, []).append((buffer, events))
                self._free_blocks += 1
            else:
                self.used -= nbytes  # OpenCL frees the buffer when the commands that use it have ended

    def _buffer(self, nbytes: int) -> Any:
        size = max(nbytes, _SMALLEST)
        with self._lock:
            if self.used + size > self.limit:
                self._drop_free()
            missing = max(self.used + size - self.limit, size - self.largest)
            if missing > 0:
                raise self._lack(size, missing)
            try:
                buffer = self._new(size)
            except Exception as error:
                if not backend.is_out_of_memory(error):
                    raise
                self._drop_free()
                try:
                    buffer = self._new(size)
                except Exception as second:
                    if not backend.is_out_of_memory(second):
                        raise
                    raise self._lack(size, size) from second
            self.used += size
            return buffer

    def _new(self, size: int) -> Any:
        return self._cl.Buffer(self._context, self._cl.mem_flags.READ_WRITE, size)

    def _drop_free(self) -> None:
        self.used -= sum(size * len(free) for size, free in self._free.items())
        self._free.clear()
        self._free_blocks = 0

    def _lack(self, size: int, missing: int) -> InsufficientMemory:
        return InsufficientMemory(
            f"{self.name}: a buffer of {byte_size(size)} does not fit: {byte_size(self.used)} of "
            f"{byte_size(self.limit)} are in use, and a buffer can have {byte_size(self.largest)}",
            {self.name: missing},
        )


def _size_class(nbytes: int) -> int:
    """The size in which blocks and staging memory are shared: at most a quarter larger than needed."""
    size = max(nbytes, _SMALLEST)
    step = max(1 << (size.bit_length() - 3), _SMALLEST)
    return -(-size // step) * step


def is_done(event: Any) -> bool:
    """Whether a command has ended."""
    return bool(event.command_execution_status <= backend.load().command_execution_status.COMPLETE)
