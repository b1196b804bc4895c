"""Tensors in a device's memory, and the contexts that create them.

A request accepts any object with ``__dlpack__``, without a copy if the device can read its memory. Use a context to
allocate, in advance, the memory that the device reads fastest.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..errors import PropertyError

__all__ = ["DeviceContexts", "HostContext", "HostTensor", "RemoteContext", "RemoteTensor"]

_ALIGNMENT = 64  # bytes: a cache line, and the widest vector


class RemoteTensor(abc.ABC):
    """A tensor in a device's own memory, exchanged through DLPack."""

    @abc.abstractmethod
    def __dlpack__(self, **options: Any) -> Any:
        """A DLPack capsule. ``options``: as in the array API standard (``stream``, ``max_version``, ...)."""

    @abc.abstractmethod
    def __dlpack_device__(self) -> tuple[int, int]: ...


class RemoteContext(abc.ABC):
    """Creates tensors in a device's memory."""

    @abc.abstractmethod
    def create_tensor(self, dtype: DTypeLike, shape: Sequence[int]) -> RemoteTensor:
        """A tensor with undefined contents. Raises `PropertyError` for an invalid shape or dtype."""


class HostTensor(RemoteTensor):
    """A tensor in this machine's memory, aligned for the kernels. Fill it through `numpy`, which is a view of it."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        return self._array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of its dimensions."""
        return self._array.shape

    def numpy(self) -> NDArray[Any]:
        """A view of the memory: a request reads the values written there."""
        return self._array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()

    def __repr__(self) -> str:
        return f"<HostTensor {self.dtype}{list(self.shape)}>"


class HostContext(RemoteContext):
    """The context of devices that compute in this machine's memory. Creates `HostTensor` objects."""

    def __init__(self, device: str) -> None:
        self.device = device

    def create_tensor(self, dtype: DTypeLike, shape: Sequence[int]) -> HostTensor:
        kind = np.dtype(dtype)
        sizes = [int(size) for size in shape]
        if kind.hasobject or any(size < 0 for size in sizes):
            raise PropertyError(f"{self.device}: cannot create a tensor of {kind} {sizes}")
        size = math.prod(sizes) * kind.itemsize
        try:
            memory = np.empty(size + _ALIGNMENT, np.uint8)
        except (MemoryError, ValueError) as error:
            raise PropertyError(f"{self.device}: not enough memory for a tensor of {kind} {sizes}") from error
        begin = -memory.ctypes.data % _ALIGNMENT
        return HostTensor(memory[begin : begin + size].view(kind).reshape(sizes))

    def __repr__(self) -> str:
        return f"<HostContext of {self.device}>"


class DeviceContexts(RemoteContext):
    """The contexts of the devices in a list, for HETERO. The first context creates the tensors."""

    def __init__(self, contexts: Mapping[str, RemoteContext]) -> None:
        if not contexts:
            raise PropertyError("a context over several devices requires at least one device, found none")
        self.contexts = dict(contexts)

    def create_tensor(self, dtype: DTypeLike, shape: Sequence[int]) -> RemoteTensor:
        return next(iter(self.contexts.values())).create_tensor(dtype, shape)

    def __repr__(self) -> str:
        return f"<DeviceContexts of {', '.join(self.contexts)}>"
