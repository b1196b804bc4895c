"""The argument ``out`` of a request: arrays and tensors of the caller that receive results, and outputs that stay on
their devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import InferenceError, did_you_mean, shown
from ..model.types import Port
from .address_ranges import UsedMemory, range_of, ranges_of
from .conversion import Unfit, data_remedy, on_device
from .remote import HOST_DEVICE, ON_DEVICE, HostTensor, RemoteContext, RemoteTensor
from .tensor import Outputs, keyed_by_name

__all__ = ["GivenOutputs", "bind_out"]

_NO_PLACE = np.empty(0, np.uint8)


class GivenOutputs:
    """Checked memory for some outputs of one inference. ``values``: by position, the objects that the caller passed.
    ``memory``: by position, a NumPy array over the same memory, writable and C-contiguous. ``tensors``: by position,
    tensors in the memory of a device. ``kept``: the positions of results that stay on their devices, including those
    for ``tensors``."""

    __slots__ = ("_ports", "kept", "memory", "tensors", "values")

    def __init__(
        self,
        ports: Sequence[Port],
        values: Mapping[int, Any],
        memory: Mapping[int, np.ndarray],
        tensors: Mapping[int, RemoteTensor],
        kept: frozenset[int],
    ) -> None:
        self._ports = ports
        self.values = values
        self.memory = memory
        self.tensors = tensors
        self.kept = kept

    def places(self, memories: Mapping[int, RemoteContext]) -> list[Any]:
        """Memory for each result, for `PlacingRunner.run_into`. Of no bytes where the runner must allocate.
        ``memories``: position -> the memory of a device that computes this result."""
        places: list[Any] = [_NO_PLACE] * len(self._ports)
        for position, array in self.memory.items():
            if array.flags.aligned and not array.dtype.hasobject:
                places[position] = array.reshape(-1).view(np.uint8)
        for position, tensor in self.tensors.items():
            if tensor.context is memories.get(position):
                places[position] = tensor
        return places

    def check(self, results: Sequence[Any]) -> None:
        """Raise `InferenceError` unless each array has the dtype and shape of its result. Only the results of this call
        decide: the shapes that models declare may be wrong, and some depend on data."""
        given: list[tuple[int, Any]] = [*self.memory.items(), *self.tensors.items()]
        for position, array in given:
            result = results[position]
            if not isinstance(result, (np.ndarray, RemoteTensor)):
                raise InferenceError(f"out for output {self._name(position)}: the result is not a tensor")
            if result.shape != array.shape or result.dtype != array.dtype:
                raise InferenceError(
                    f"out for output {self._name(position)}: expected {_type(result)}, found {_type(array)}"
                )

    def fill(self, results: Sequence[Any]) -> None:
        """Copy each result that its runner did not place into its array."""
        elsewhere = {at: results[at] for at, array in self.memory.items() if not _is_same(results[at], array)}
        if elsewhere:  # a copy below must not change another result
            written = ranges_of(self.memory.values())
            for position, result in elsewhere.items():
                if written.overlaps(*range_of(result)):
                    elsewhere[position] = result.copy()
        for position, result in elsewhere.items():
            np.copyto(self.memory[position], result)
        for position, tensor in self.tensors.items():
            result = results[position]
            if result is tensor:
                continue
            is_near = isinstance(result, np.ndarray) or result.context is tensor.context
            tensor.write(result if is_near else result.numpy())

    def _name(self, position: int) -> str:
        return repr(self._ports[position].name)


def bind_out(
    ports: Sequence[Port], out: Any, inputs: Sequence[Any], memories: Mapping[int, RemoteContext] | None = None
) -> GivenOutputs:
    """Check ``out`` before an inference. Raises `InferenceError`, which names the output.

    ``out``: a mapping from output (its name, position or port) to array, or a sequence in the order of ``ports``; None
    for an output leaves it to the device. If the model has one output, also the array alone. `ON_DEVICE` in place of an
    array, or alone for all outputs, leaves results where they are computed. ``inputs``: the values that the inference
    reads. Memory is compared by its bounds, so an array between the rows of a strided input is also rejected.
    ``memories``: position -> the memory of a device that computes the output; other libraries' tensors there are
    accepted.
    """
    if out is ON_DEVICE:
        return GivenOutputs(ports, {}, {}, {}, frozenset(range(len(ports))))
    values: dict[int, Any] = {}
    memory: dict[int, np.ndarray] = {}
    tensors: dict[int, RemoteTensor] = {}
    kept: set[int] = set()
    sources, earlier = UsedMemory(inputs), UsedMemory()

    def use(position: int, place: np.ndarray | RemoteTensor, what: str) -> None:
        """Note the memory for an output. Raises `InferenceError` if it is in use."""
        prefix = f"out for output {ports[position].name!r}: the {what} overlaps"
        if sources.overlaps(place):
            raise InferenceError(f"{prefix} an input")
        if earlier.overlaps(place):
            given = {**memory, **tensors}
            other = next(at for at, value in given.items() if UsedMemory([value]).overlaps(place))
            raise InferenceError(f"{prefix} the one for output {ports[other].name!r}")
        earlier.add(place)

    for position, value in _by_position(ports, out):
        if value is ON_DEVICE:
            kept.add(position)
            continue
        port = ports[position]
        prefix = f"out for output {port.name!r}:"
        if not port.is_tensor:
            raise InferenceError(f"{prefix} only tensors can be written to given arrays")
        tensor = _tensor_of(value, [memories[position]] if memories and position in memories else [], prefix)
        if tensor is not None:
            if port.dtype is not None and tensor.dtype != port.dtype:
                raise InferenceError(f"{prefix} expected dtype {port.dtype}, found {_type(tensor)}")
            if not tensor.is_writable:
                raise InferenceError(f"{prefix} the tensor is read-only: {_type(tensor)}")
            use(position, tensor, "tensor")
            values[position], tensors[position] = value, tensor
            kept.add(position)
            continue
        array = _memory_of(value, prefix)
        if port.dtype is not None and array.dtype != port.dtype:
            raise InferenceError(f"{prefix} expected dtype {port.dtype}, found {_type(array)}")
        if not array.flags.c_contiguous:
            raise InferenceError(
                f"{prefix} the array is not C-contiguous: {_type(array)} with strides {list(array.strides)}"
            )
        if not array.flags.writeable:
            raise InferenceError(f"{prefix} the array is read-only: {_type(array)}")
        use(position, array, "array")
        values[position], memory[position] = value, array
    return GivenOutputs(ports, values, memory, tensors, frozenset(kept))


def _tensor_of(value: Any, memories: Sequence[RemoteContext], prefix: str) -> RemoteTensor | None:
    """``value`` as a tensor in the memory of a device; None if it is in the memory of this machine."""
    if isinstance(value, np.ndarray):
        return None
    if isinstance(value, RemoteTensor) and value.context is not None:
        return value
    try:
        return on_device(value, memories)
    except Unfit as unfit:
        raise InferenceError(f"{prefix} {unfit}") from unfit.__cause__


def _by_position(ports: Sequence[Port], out: Any) -> Iterable[tuple[int, Any]]:
    """The position and the array of each output that has one."""
    if isinstance(out, Outputs):
        out = out.values()
    if isinstance(out, Mapping):
        positions = {port.name: position for position, port in enumerate(ports)}
        out = keyed_by_name(ports, out, "output")
        for name in out:
            if name not in positions:
                near = did_you_mean(name, positions) if isinstance(name, str) else ""
                listed = ", ".join(positions) or "none"
                raise InferenceError(f"out: the model has no output {shown(name)}{near}; its outputs: {listed}")
        return [(positions[name], value) for name, value in out.items() if value is not None]
    if not isinstance(out, (list, tuple)):
        if len(ports) != 1:
            raise InferenceError(
                f"out: expected a mapping from output name to array, or a list of {len(ports)} arrays, "
                f"found {type(out).__name__}"
            )
        out = [out]
    if len(out) != len(ports):
        raise InferenceError(
            f"out: expected {len(ports)} arrays in the order of the outputs, found {len(out)}; "
            "None leaves an output to the device"
        )
    return [(position, value) for position, value in enumerate(out) if value is not None]


def _memory_of(value: Any, prefix: str) -> np.ndarray:
    """A NumPy array over the memory of ``value``."""
    if isinstance(value, np.ma.MaskedArray):
        raise InferenceError(f"{prefix} a masked array cannot receive results; pass its .data")
    if isinstance(value, np.ndarray):
        return value.view(np.ndarray)
    if hasattr(value, "__dlpack__"):
        try:
            return _writable(np.from_dlpack(value), value)
        except Exception as error:
            if _is_elsewhere(value):
                raise InferenceError(
                    f"{prefix} {type(value).__name__} is in the memory of a device; pass a tensor that the context of "
                    "the device created or adopted (Core.get_default_context)"
                ) from error
            raise InferenceError(
                f"{prefix} {type(value).__name__}, whose __dlpack__ returned no CPU array: {error}"
            ) from error
    try:
        return np.asarray(memoryview(value))
    except (TypeError, ValueError) as error:
        remedy = data_remedy(value)
        raise InferenceError(
            f"{prefix} expected an array, an object with __dlpack__ or a buffer, found {type(value).__name__}"
            f"{remedy and f'; {remedy}'}"
        ) from error


def _is_elsewhere(value: Any) -> bool:
    """Whether an object with ``__dlpack__`` says that it is in the memory of a device."""
    try:
        return bool(value.__dlpack_device__()[0] != HOST_DEVICE)
    except Exception:
        return False


def _writable(array: np.ndarray, value: Any) -> np.ndarray:
    """``array``, an import by DLPack of ``value``; as a writable array, if ``value`` gives one over the same memory.

    NumPy before 2.3 imports every tensor read-only.
    """
    if array.flags.writeable or not (isinstance(value, HostTensor) or hasattr(value, "__array__")):
        return array
    other = value.numpy() if isinstance(value, HostTensor) else np.asarray(value)
    is_like = other.dtype == array.dtype and other.shape == array.shape and other.flags.c_contiguous
    return other if is_like and array.flags.c_contiguous and other.ctypes.data == array.ctypes.data else array


def _is_same(result: Any, array: np.ndarray) -> bool:
    """Whether ``result``, of the same type and shape, is in the memory of ``array``."""
    return isinstance(result, np.ndarray) and (
        bool(result.flags.c_contiguous)
        and result.__array_interface__["data"][0] == array.__array_interface__["data"][0]
    )


def _type(array: Any) -> str:
    return f"{array.dtype} {list(array.shape)}"
