"""Tensors in a device's memory, and the contexts that create them.

A request accepts any object with ``__dlpack__``, without a copy if the device can read its memory. Use a context to
allocate, in advance, the memory that the device reads fastest.

If a context sets `RemoteContext.moves_values`, hetero keeps values in its memory: results stay there until something
outside that memory reads them, and callers pass and receive them as `RemoteTensor`.
"""

from __future__ import annotations

import abc
import math
import operator
import types
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..base.other_names import OtherNames
from ..errors import DeviceMemoryExceeded, NotSupported, PropertyError, shown
from ..model.types import Port, onnx_dtype_of

__all__ = [
    "HOST_DEVICE",
    "NO_MEMORIES",
    "ON_DEVICE",
    "DeviceContexts",
    "HostContext",
    "HostTensor",
    "PortMemories",
    "RemoteContext",
    "RemoteTensor",
    "can_stay",
    "check_written",
    "moving_memory",
    "tensor_type",
]

_ALIGNMENT = 64  # bytes: a cache line, and the widest vector

HOST_DEVICE: Final = 1
"""The type of this machine's memory in ``__dlpack_device__`` (kDLCPU)."""


class _OnDevice:
    """The type of `ON_DEVICE`."""

    __name__ = "ON_DEVICE"

    def __repr__(self) -> str:
        return "hetero.ON_DEVICE"

    def __reduce__(self) -> str:
        return "ON_DEVICE"


ON_DEVICE: Final = _OnDevice()
"""In the argument ``out`` of an inference: leave this output, or all outputs, in the memory of the device that computes
it. The result is a `RemoteTensor`; of a device that computes in this machine's memory, a `HostTensor`."""


class RemoteTensor(OtherNames, abc.ABC):
    """A tensor in a device's own memory, exchanged through DLPack.

    ``context``: the memory that it is in. None if hetero does not move values there; a tensor is then only exchanged
    through DLPack.
    """

    context: RemoteContext | None = None

    other_names = types.MappingProxyType(
        {
            **dict.fromkeys(("get_shape", "set_shape", "strides", "get_strides"), "tensor.shape"),
            **dict.fromkeys(("element_type", "get_element_type", "data_type"), "tensor.dtype"),
            **dict.fromkeys(
                ("size", "get_size", "byte_size", "get_byte_size", "tensor_size_in_bytes"), "tensor.nbytes"
            ),
            **dict.fromkeys(("data", "bytes_data", "str_data", "copy_to"), "tensor.numpy()"),
            **dict.fromkeys(("copy_from", "update_inplace"), "tensor.write(array)"),
            **dict.fromkeys(("get_device_name", "device_name", "get_params"), "tensor.context"),
            "data_ptr": "tensor.address_range",
        }
    )

    @abc.abstractmethod
    def __dlpack__(self, **options: Any) -> Any:
        """A DLPack capsule. ``options``: as in the array API standard (``stream``, ``max_version``, ...)."""

    @abc.abstractmethod
    def __dlpack_device__(self) -> tuple[int, int]: ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        raise NotSupported(f"{type(self).__name__} does not report its dtype")

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of its dimensions."""
        raise NotSupported(f"{type(self).__name__} does not report its shape")

    @property
    def nbytes(self) -> int:
        """The size of its elements in B."""
        return math.prod(self.shape) * self.dtype.itemsize

    def numpy(self) -> NDArray[Any]:
        """The contents as an array of this machine: a copy, or a view of memory that both share."""
        if self.__dlpack_device__()[0] != HOST_DEVICE:
            raise NotSupported(f"{type(self).__name__} cannot be copied to this machine's memory")
        array: NDArray[Any] = np.from_dlpack(self)
        return array

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """The contents, for functions of NumPy: of a tensor in this machine's memory, a view if ``copy`` allows it."""
        if copy is False and self.__dlpack_device__()[0] != HOST_DEVICE:
            raise ValueError(f"{type(self).__name__} is in the memory of a device, which NumPy cannot view")
        array = self.numpy()
        changed = array if dtype is None else array.astype(dtype, copy=False)
        if copy is False and changed is not array:
            raise ValueError(f"{array.dtype} cannot be viewed as {changed.dtype}")
        return changed.copy() if copy and changed is array else changed

    def read_into(self, array: NDArray[Any]) -> None:
        """Copy the contents to ``array``, which has the same dtype and shape, is C-contiguous and writable."""
        np.copyto(array, self.numpy())

    def write(self, value: NDArray[Any] | RemoteTensor) -> None:
        """Copy ``value``, of the same dtype and shape, into this tensor. ``value``: an array of any strides, or a
        tensor of the same context. Raises `PropertyError` for another dtype or shape (`check_written`)."""
        raise NotSupported(f"{type(self).__name__} cannot be written")

    @property
    def is_writable(self) -> bool:
        """Whether anything may be written to it; False for constants and for read-only memory of another owner. A
        caller gets a copy of a result that is not writable."""
        return True

    @property
    def address_range(self) -> tuple[int, int] | None:
        """The addresses of its first byte and after its last one, in numbers of its context, or addresses of this
        machine if ``__dlpack_device__`` reports its memory; equal if it has no elements. Tensors share memory if their
        ranges overlap. None: it shares memory with no other tensor."""
        return None


def check_written(tensor: RemoteTensor, value: Any) -> None:
    """Raise `PropertyError` unless ``value`` is an array or a tensor with the dtype and shape of ``tensor``."""
    is_typed = isinstance(value, (np.ndarray, RemoteTensor))
    if not is_typed or value.dtype != tensor.dtype or value.shape != tensor.shape:
        found = f"{value.dtype} {list(value.shape)}" if is_typed else type(value).__name__
        raise PropertyError(f"cannot write {found} to a tensor of {tensor.dtype} {list(tensor.shape)}")


def tensor_type(device: str, dtype: Any, shape: Any) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """The checked arguments of `RemoteContext.create_tensor`. Raises `PropertyError`, which names ``device``."""
    try:
        kind = np.dtype(object if dtype is None else dtype)  # for NumPy, None is float64
    except (TypeError, ValueError) as error:
        raise PropertyError(
            f"{device}: expected the dtype of a tensor, such as np.float32, found {shown(dtype)}"
        ) from error
    try:
        sizes = tuple(map(operator.index, shape))
    except TypeError as error:
        raise PropertyError(f"{device}: expected the sizes of a tensor, found {shown(shape)}") from error
    if kind.kind in "OUST" or not onnx_dtype_of(kind) or min(sizes, default=0) < 0:
        raise PropertyError(f"{device}: cannot create a tensor of {kind} {list(sizes)}")
    return kind, sizes


class RemoteContext(OtherNames, abc.ABC):
    """Creates tensors in a device's memory."""

    moves_values: ClassVar[bool] = False
    """Whether hetero moves values into this memory and out of it (`upload`, `RemoteTensor.numpy`). If a compiled model
    has such a context as its `CompiledModel.memory_space`:

    - Its runner receives tensors of this context in place of arrays, and tensors that a caller has given. It returns a
      tensor of this context for each position that the last call of ``keep_on_device`` named, and arrays otherwise.
      hetero may call ``keep_on_device`` before any run.
    - If the runner has ``run_into``, a place of such a position may be a tensor of this context: the runner writes the
      result into it and returns the tensor itself, or returns another one.

    Sequences, optional values, strings and values of unknown dtype are always passed as on the host.
    """

    other_names = types.MappingProxyType(
        {
            "create_host_tensor": "an array, such as np.empty(shape, dtype)",
            **dict.fromkeys(("get_device_name", "get_params"), "repr(context)"),
        }
    )

    def holds(self, dtype: np.dtype[Any]) -> bool:
        """Whether hetero may move values of this dtype into the memory. Others are passed as on the host."""
        return True

    @abc.abstractmethod
    def create_tensor(self, dtype: DTypeLike, shape: Sequence[int]) -> RemoteTensor:
        """A tensor with undefined contents. Raises `PropertyError` for an invalid shape or dtype, and
        `InsufficientMemory` if the device does not have enough memory."""

    def upload(self, array: NDArray[Any]) -> RemoteTensor:
        """A tensor with the contents of ``array``. hetero may modify the array afterwards. Raises `PropertyError` for
        another object."""
        if not isinstance(array, np.ndarray):
            raise PropertyError(f"expected a NumPy array to upload, found {shown(array)}")
        tensor = self.create_tensor(array.dtype, array.shape)
        tensor.write(array)
        return tensor

    def adopt(self, value: Any) -> RemoteTensor | None:
        """A tensor over the memory of ``value``, an object with ``__dlpack__``, without a copy of its contents. None if
        this device cannot read that memory. Work that the owner has queued for ``value`` must end before a runner
        reads the tensor."""
        return None


class PortMemories(NamedTuple):
    """The memories of devices where hetero moves the values of a compiled model. ``inputs``: position -> the memories
    in which devices read the input. ``outputs``: position -> the memory in which a device computes the output."""

    inputs: Mapping[int, Sequence[RemoteContext]]
    outputs: Mapping[int, RemoteContext]

    @classmethod
    def of_ports(cls, memory: RemoteContext | None, inputs: Sequence[Port], outputs: Sequence[Port]) -> PortMemories:
        """For a model that one device runs."""
        if memory is None:
            return NO_MEMORIES
        return cls(
            {position: (memory,) for position, port in enumerate(inputs) if can_stay(port, memory)},
            {position: memory for position, port in enumerate(outputs) if can_stay(port, memory)},
        )


NO_MEMORIES: Final = PortMemories({}, {})


def moving_memory(memory_space: object) -> RemoteContext | None:
    """``memory_space`` of a compiled model if hetero moves values there, otherwise None."""
    return memory_space if isinstance(memory_space, RemoteContext) and memory_space.moves_values else None


def can_stay(port: Port, memory: RemoteContext) -> bool:
    """Whether the values of a port can be in ``memory``, into which hetero moves values."""
    dtype = port.dtype if port.is_tensor else None
    return dtype is not None and dtype.kind not in "OUST" and memory.holds(dtype)


class HostTensor(RemoteTensor):
    """A tensor in this machine's memory, aligned for the kernels. Fill it through `numpy`, which is a view of it."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self._array.shape

    def numpy(self) -> NDArray[Any]:
        """A view of the memory: a request reads the values written there."""
        return self._array

    def write(self, value: NDArray[Any] | RemoteTensor) -> None:
        check_written(self, value)
        np.copyto(self._array, value.numpy() if isinstance(value, RemoteTensor) else value)

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
        kind, sizes = tensor_type(self.device, dtype, shape)
        size = math.prod(sizes) * kind.itemsize
        try:
            memory = np.empty(size + _ALIGNMENT, np.uint8)
        except (MemoryError, ValueError) as error:
            raise DeviceMemoryExceeded(
                f"{self.device}: not enough memory for a tensor of {kind} {list(sizes)}", {self.device: size}
            ) from error
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
