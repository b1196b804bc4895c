"""The memory of a GPU or NPU that OpenVINO uses: values stay there as its remote tensors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ...errors import DeviceMemoryExceeded, PropertyError, raise_out_of_memory
from ...plugin.remote import HOST_DEVICE, RemoteContext, RemoteTensor, check_written, tensor_type
from . import backend

__all__ = ["OpenvinoMemory", "OpenvinoTensor", "out_of_memory"]

# The element types that its GPU and NPU store as they are.
_STORED = frozenset(("float32", "float16", "int32", "int8", "uint8"))

# How OpenCL and Level Zero, over which OpenVINO allocates, report a lack of memory.
_NO_MEMORY = re.compile(
    r"ALLOCATION_FAILURE|OUT_OF_(?:RESOURCES|\w*MEMORY)|[oO]ut of (?:\w+ )?(?:memory|resources)|[eE]xceeded max size of"
)


class OpenvinoMemory(RemoteContext):
    """The memory of one device. ``inner``: OpenVINO's context of the device."""

    moves_values = True

    def __init__(self, name: str, inner: Any) -> None:
        self.name = name
        self.inner = inner

    def holds(self, dtype: np.dtype[Any]) -> bool:
        return dtype.name in _STORED

    def create_tensor(self, dtype: DTypeLike, shape: Sequence[int]) -> OpenvinoTensor:
        kind, sizes = tensor_type(self.name, dtype, shape)
        what = f"a tensor of {kind} {list(sizes)}"
        if not self.holds(kind):
            raise PropertyError(f"{self.name}: cannot create {what}")
        openvino = backend.load()
        # A device has no allocations without bytes.
        stored = [max(1, size) for size in sizes]
        try:
            inner = self.inner.create_tensor(openvino.Type(kind), openvino.Shape(stored), {})
        except Exception as error:
            short = out_of_memory(error, self.name, f"for {what}", int(np.prod(stored)) * kind.itemsize)
            if short is not None:
                raise short from error
            raise_out_of_memory(error)
            raise PropertyError(f"{self.name}: cannot create {what}: {backend.error_text(error)}") from error
        return OpenvinoTensor(self, inner, kind, sizes)

    def __repr__(self) -> str:
        return f"<OpenvinoMemory {self.name}>"


class OpenvinoTensor(RemoteTensor):
    """A remote tensor of OpenVINO. DLPack gets a copy in host memory, because the package exports no remote memory."""

    def __init__(self, context: OpenvinoMemory, inner: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self.context: OpenvinoMemory = context
        self.inner = inner
        self._dtype = dtype
        self._shape = shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    def numpy(self) -> NDArray[Any]:
        array = np.empty(self._shape, self._dtype)
        self.read_into(array)
        return array

    def read_into(self, array: NDArray[Any]) -> None:
        if array.size:
            self.inner.copy_to(backend.load().Tensor(array, shared_memory=True))

    def write(self, value: NDArray[Any] | RemoteTensor) -> None:
        check_written(self, value)
        if not self.nbytes:
            return
        if isinstance(value, OpenvinoTensor) and value.context is self.context:
            self.inner.copy_from(value.inner)
        else:
            self.inner.copy_from(backend.tensor_of(value.numpy() if isinstance(value, RemoteTensor) else value))

    def __dlpack__(self, **options: Any) -> Any:
        return self.numpy().__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return HOST_DEVICE, 0

    def __repr__(self) -> str:
        return f"<OpenvinoTensor {self._dtype}{list(self._shape)} on {self.context.name}>"


def out_of_memory(error: Exception, device: str, what: str, missing: int) -> DeviceMemoryExceeded | None:
    """The error for a lack of memory on a device; None for other errors. ``missing``: the bytes that were requested."""
    if not _NO_MEMORY.search(str(error)):
        return None
    return DeviceMemoryExceeded(
        f"{device}: the device needs up to {missing} more bytes of memory {what}: {backend.error_text(error)}",
        {device: missing},
    )
