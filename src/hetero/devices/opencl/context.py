"""Tensors in the memory of a device: values between subgraphs, and those that users create and receive."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ...errors import PropertyError
from ...plugin.remote import HOST_DEVICE, RemoteContext, RemoteTensor, check_written, tensor_type
from .builder import LARGEST
from .device import Device
from .elementwise import STORED
from .memory import DeviceValue

__all__ = ["OpenclContext", "OpenclTensor", "context_of"]


class OpenclTensor(RemoteTensor):
    """A tensor in the memory of an OpenCL device. `write` fills it; `numpy` returns a copy.

    DLPack has no consumer of OpenCL memory, so `__dlpack__` returns a copy in host memory.
    """

    def __init__(self, context: OpenclContext, value: DeviceValue) -> None:
        self.context: OpenclContext = context
        self.value = value

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.value.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    def numpy(self) -> NDArray[Any]:
        """A copy of the contents in host memory."""
        return self.value.numpy()

    def read_into(self, array: NDArray[Any]) -> None:
        self.value.read_into(array)

    def write(self, value: NDArray[Any] | RemoteTensor) -> None:
        """Copy ``value`` to the device. It must have the tensor's element type and shape; otherwise raises
        `PropertyError`. Waits for inferences that read the tensor."""
        check_written(self, value)
        if isinstance(value, OpenclTensor) and value.context is self.context:
            self.value.copy_from(value.value)
        else:
            self.value.write(value.numpy() if isinstance(value, RemoteTensor) else value)

    @property
    def is_writable(self) -> bool:
        return not self.value.block.is_constant

    @property
    def address_range(self) -> tuple[int, int]:
        """Values share whole blocks or nothing."""
        number = id(self.value.block)
        return number, number + 1

    def __dlpack__(self, **options: Any) -> Any:
        return self.numpy().__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return HOST_DEVICE, 0

    def __repr__(self) -> str:
        return f"<OpenclTensor {self.dtype}{list(self.shape)} on {self.value.memory.name}>"


class OpenclContext(RemoteContext):
    """The memory of one device. `context_of` returns the only one of a device."""

    moves_values = True

    def __init__(self, device: Device) -> None:
        self.device = device

    def holds(self, dtype: np.dtype[Any]) -> bool:
        return dtype.name in STORED

    def create_tensor(self, dtype: DTypeLike, shape: Sequence[int]) -> OpenclTensor:
        """Raises `PropertyError` for a type or a shape that the device does not support, and `InsufficientMemory`."""
        kind, sizes = tensor_type(self.device.name, dtype, shape)
        if not self.holds(kind) or math.prod(sizes) > LARGEST:
            raise PropertyError(f"{self.device.name}: cannot create a tensor of {kind} {list(sizes)}")
        memory = self.device.memory
        block = memory.allocate(math.prod(sizes) * kind.itemsize)
        return OpenclTensor(self, DeviceValue(memory, block, kind, sizes, None))

    def upload(self, array: NDArray[Any]) -> OpenclTensor:
        """Returns before the copy has ended if the device has its own memory."""
        if array.size > LARGEST or not self.holds(array.dtype):
            raise PropertyError(f"{self.device.name}: cannot hold an array of {array.dtype} {list(array.shape)}")
        block, ready = self.device.memory.upload_later(array)
        return OpenclTensor(self, DeviceValue(self.device.memory, block, array.dtype, array.shape, ready))

    def __repr__(self) -> str:
        return f"<OpenclContext of {self.device.name}>"


_contexts: dict[int, OpenclContext] = {}
_lock = threading.Lock()


def context_of(device: Device) -> OpenclContext:
    """The memory of a device. Devices live as long as the process (`device.shared_device`)."""
    with _lock:
        return _contexts.setdefault(id(device), OpenclContext(device))
