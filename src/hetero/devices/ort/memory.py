"""The memory of a GPU that onnxruntime uses: values stay there as ``OrtValue`` objects."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..._dlpack import released_after_work
from ...errors import DeviceMemoryExceeded, PropertyError, raise_out_of_memory
from ...model.types import onnx_dtype_of
from ...plugin.remote import RemoteContext, RemoteTensor, check_written, tensor_type
from . import backend, nvidia
from .values import is_native

__all__ = ["OrtMemory", "OrtTensor", "memory_at", "out_of_memory"]

# How onnxruntime reports a lack of memory: with the missing size, or with the requested one.
_AVAILABLE = re.compile(r"Available memory of (\d+) is smaller than requested bytes of (\d+)")
_REQUESTED = re.compile(r"Failed to allocate memory for requested buffer of size (\d+)")

_DLPACK_TYPES = {"cuda": 2, "cpu": 1}
_STREAM_OF_PRODUCER = {"cuda": 1}  # the legacy default stream, for which the copies of onnxruntime wait


@functools.cache
def memory_at(device_type: str, number: int) -> OrtMemory:
    """The memory of a device, the same object for all plugins. ``device_type``: as in onnxruntime, such as ``cuda``."""
    return OrtMemory(device_type, number)


class OrtMemory(RemoteContext):
    """The memory of one device. Create it with `memory_at`."""

    moves_values = True

    def __init__(self, device_type: str, number: int) -> None:
        self.name = f"{device_type}:{number}"
        self._device_type = device_type
        self._number = number

    @functools.cached_property
    def device(self) -> Any:
        """The device for an I/O binding."""
        return backend.load().OrtDevice.make(self._device_type, self._number)._get_c_device()

    @functools.cached_property
    def waiting(self) -> tuple[int, int, int, int] | None:
        """See `nvidia.waiting`."""
        return nvidia.waiting(self._number) if self._device_type == "cuda" else None

    def holds(self, dtype: np.dtype[Any]) -> bool:
        return is_native(dtype) and dtype.kind not in "OUST"

    def create_tensor(self, dtype: DTypeLike, shape: Sequence[int]) -> OrtTensor:
        kind, sizes = tensor_type(self.name, dtype, shape)
        what = f"a tensor of {kind} {list(sizes)}"
        if not self.holds(kind):
            raise PropertyError(f"{self.name}: cannot create {what}")
        values = backend.core().OrtValue
        try:
            value = values.ortvalue_from_shape_and_onnx_type(sizes, onnx_dtype_of(kind), self.device)
        except Exception as error:
            raise self._failure(error, what) from error
        return OrtTensor(self, value, kind, sizes)

    def adopt(self, value: Any) -> OrtTensor | None:
        """See `RemoteContext.adopt`. The tensor must be contiguous and, as ``out``, writable."""
        kind, number = value.__dlpack_device__()
        if (int(kind), number) != (_DLPACK_TYPES.get(self._device_type), self._number):
            return None
        stream = _STREAM_OF_PRODUCER.get(self._device_type)
        capsule = value.__dlpack__() if stream is None else value.__dlpack__(stream=stream)
        try:
            tensor = self.tensor(backend.core().OrtValue.from_dlpack(capsule))
        except Exception as error:
            raise_out_of_memory(error)
            text = backend.error_text(error)
            told = "the tensor is not contiguous; pass a contiguous copy" if "contiguous" in text else text
            raise ValueError(told) from error
        if stream is not None:
            # A copy from the device waits for the stream, and so for the producer's work.
            self.create_tensor(np.uint8, (1,)).numpy()
        return tensor

    def tensor(self, value: Any, owner: object = None) -> OrtTensor:
        """A tensor for an ``OrtValue`` in this memory. ``owner``: what must live as long as the value."""
        dtype = backend.dtype_of_value(value)
        return OrtTensor(self, value, dtype, tuple(value.shape()), owner)

    def _failure(self, error: Exception, what: str) -> Exception:
        short = out_of_memory(error, self.name, f"for {what}")
        if short is not None:
            return short
        raise_out_of_memory(error)
        return PropertyError(f"{self.name}: cannot create {what}: {backend.error_text(error)}")

    def __repr__(self) -> str:
        return f"<OrtMemory {self.name}>"


class OrtTensor(RemoteTensor):
    """An ``OrtValue``. ``value``: as the C++ part of onnxruntime's package has it."""

    def __init__(
        self, context: OrtMemory, value: Any, dtype: np.dtype[Any], shape: tuple[int, ...], owner: object = None
    ) -> None:
        self.context: OrtMemory = context
        self.value = value
        self._dtype = dtype
        self._shape = shape
        self._owner = owner

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    def numpy(self) -> NDArray[Any]:
        array: NDArray[Any] = self.value.numpy()
        return array.copy() if self.value.device_name().lower() == "cpu" else array  # there, it shares the memory

    def write(self, value: NDArray[Any] | RemoteTensor) -> None:
        check_written(self, value)  # onnxruntime compares only the sizes
        if not self.nbytes:
            return
        if isinstance(value, OrtTensor):
            self.value.update_inplace(value.value)
        else:
            array = value.numpy() if isinstance(value, RemoteTensor) else value
            self.value.update_inplace(np.ascontiguousarray(array).reshape(self._shape))

    @property
    def address_range(self) -> tuple[int, int]:
        begin = self.value.data_ptr() if self.nbytes else 0
        return begin, begin + self.nbytes

    def __dlpack__(self, **options: Any) -> Any:
        stream = options.get("stream")
        capsule = backend.load().OrtValue(self.value).__dlpack__(**({} if stream is None else {"stream": stream}))
        # onnxruntime would use the memory again while work that the consumer has queued still reads it.
        waiting = self.context.waiting
        return capsule if waiting is None else released_after_work(capsule, *waiting)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, number = backend.load().OrtValue(self.value).__dlpack_device__()
        return int(kind), int(number)

    def __repr__(self) -> str:
        return f"<OrtTensor {self._dtype}{list(self._shape)} in {self.context.name}>"


def out_of_memory(error: Exception, device: str, what: str) -> DeviceMemoryExceeded | None:
    """The error for a lack of memory on a device, with the bytes that are missing as far as onnxruntime reports them;
    None for other errors."""
    text = str(error)
    available, requested = _AVAILABLE.search(text), _REQUESTED.search(text)
    if available is not None:
        missing = max(1, int(available[2]) - int(available[1]))
    elif requested is not None:
        missing = int(requested[1])
    else:
        return None
    return DeviceMemoryExceeded(
        f"{device}: the device needs up to {missing} more bytes of memory {what}: {backend.error_text(error)}",
        {device: missing},
    )
