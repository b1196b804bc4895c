"""Tensors in the memory of a device that users create, for inputs of requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ...errors import PropertyError
from ...plugin.remote import RemoteContext, RemoteTensor
from .builder import LARGEST
from .device import Device
from .elementwise import STORED
from .memory import DeviceValue

__all__ = ["OpenclContext", "OpenclTensor"]


class OpenclTensor(RemoteTensor):
    """A tensor in the memory of an OpenCL device. `write` fills it; `numpy` returns a copy.

    DLPack has no consumer of OpenCL memory, so `__dlpack__` returns a copy in host memory.
    """

    def __init__(self, value: DeviceValue) -> None:
        self.value = value

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        return self.value.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of its dimensions."""
        return self.value.shape

    def numpy(self) -> NDArray[Any]:
        """A copy of the contents in host memory."""
        return self.value.numpy()

    def write(self, array: NDArray[Any]) -> None:
        """Copy ``array`` to the device. It must have the tensor's element type and shape; otherwise raises
        `PropertyError`. Do not call it while an inference reads the tensor."""
        if not isinstance(array, np.ndarray) or array.dtype != self.dtype or array.shape != self.shape:
            found = f"{array.dtype} {list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
            raise PropertyError(f"expected an array of {self.dtype} {list(self.shape)}, found {found}")
        self.value.memory.write(self.value.block, np.ascontiguousarray(array), self.value.ready)

    def __dlpack__(self, **options: Any) -> Any:
        return self.numpy().__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.numpy_device

    numpy_device = (1, 0)
    """The device of the copy that `__dlpack__` returns: the host."""

    def __repr__(self) -> str:
        return f"<OpenclTensor {self.dtype}{list(self.shape)} on {self.value.memory.name}>"


class OpenclContext(RemoteContext):
    """Creates `OpenclTensor` objects on one device."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def create_tensor(self, dtype: DTypeLike, shape: Sequence[int]) -> OpenclTensor:
        """Raises `PropertyError` for a type or a shape that the device does not support, and `InsufficientMemory`."""
        kind, sizes = np.dtype(dtype), tuple(int(size) for size in shape)
        count = int(np.prod([float(size) for size in sizes]))
        if kind.name not in STORED or min(sizes, default=0) < 0 or count > LARGEST:
            raise PropertyError(f"{self.device.name}: cannot create a tensor of {kind} {list(sizes)}")
        memory = self.device.memory
        return OpenclTensor(DeviceValue(memory, memory.allocate(count * kind.itemsize), kind, sizes, None))

    def __repr__(self) -> str:
        return f"<OpenclContext of {self.device.name}>"
