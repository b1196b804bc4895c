"""What goes into a request and what comes out of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import InferenceError
from ..model.types import Dim, Port

__all__ = ["Outputs", "bind_inputs", "check_outputs"]


class Outputs(Mapping[str, Any]):
    """The results of one inference: ``out["name"]``, or ``out[0]`` by position.

    Each is an array; for a sequence a list of arrays, for an empty optional None. Iteration and ``len`` are those of a
    mapping over names, in the order of the model's outputs.
    """

    __slots__ = ("_arrays", "_positions")

    def __init__(self, positions: Mapping[str, int], arrays: Sequence[Any]) -> None:
        """Keeps ``arrays`` as they are."""
        self._positions = positions
        self._arrays = arrays

    def __getitem__(self, key: str | int) -> Any:
        if isinstance(key, str):
            return self._arrays[self._positions[key]]
        return self._arrays[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._positions)

    def __len__(self) -> int:
        return len(self._positions)

    def arrays(self) -> tuple[Any, ...]:
        """The results by position."""
        return tuple(self._arrays)

    def __repr__(self) -> str:
        entries = (f"{name!r}: {_describe_value(self[name])}" for name in self)
        return f"Outputs({{{', '.join(entries)}}})"


def bind_inputs(ports: Sequence[Port], inputs: Any) -> list[Any]:
    """Arrays in the order of ``ports``, checked for dtype and shape; for a sequence a list of arrays, for an empty
    optional None.

    ``inputs``: a mapping from input name to array; for a model of one input also the array alone. Arrays are NumPy
    arrays or offer ``__dlpack__``; lists and Python numbers are converted. Nothing is copied unless an array is in
    the other byte order. Dimensions of one symbol must agree across inputs.

    Raises `InferenceError` naming the input, what was expected and what was found.
    """
    if not isinstance(inputs, Mapping):
        if len(ports) != 1:
            wanted = ", ".join(port.name for port in ports) or "none"
            raise InferenceError(f"expected a mapping from input name to array (inputs: {wanted}), found one array")
        inputs = {ports[0].name: inputs}
    symbols: dict[str, tuple[int, str]] = {}
    bound: list[Any] = []
    for port in ports:
        if port.name not in inputs:
            raise InferenceError(f"input {port.name!r} is missing; expected {_describe(port)}")
        value = inputs[port.name]
        if not port.is_tensor:
            bound.append(_as_items(value, port))
            continue
        array = _as_array(value, port)
        _check(array, port, symbols)
        bound.append(array)
    if len(inputs) != len(ports):
        from ..errors import did_you_mean

        known = [port.name for port in ports]
        extra = next(name for name in inputs if name not in known)
        raise InferenceError(
            f"the model has no input {extra!r}{did_you_mean(str(extra), known)}; its inputs: {', '.join(known)}"
        )
    return bound


def check_outputs(ports: Sequence[Port], results: Sequence[np.ndarray], device: str) -> None:
    """Raise `InferenceError` if a result is not of the type that its port declares: the device is wrong, or the model
    contradicts itself. Symbolic dimensions take any size, and shapes that were only inferred are not held against it.

    Two things that real files declare wrongly are a `RuntimeWarning`: another rank, which tools leave behind, and a
    size that is one off, as onnx's own inference rounds it down (a Resize of 320 by 0.7: 223, where runtimes make 224).
    """
    for port, result in zip(ports, results, strict=True):
        if not port.is_stated:
            continue
        if not port.is_tensor and (result is None or isinstance(result, (np.ndarray, list))):
            continue
        if not isinstance(result, np.ndarray) or (port.dtype is not None and result.dtype != port.dtype):
            found = f"{result.dtype} {list(result.shape)}" if isinstance(result, np.ndarray) else type(result).__name__
            raise InferenceError(f"{device}: output {port.name!r} is declared {_describe(port)}, found {found}")
        if not port.declared or port.shape is None:
            continue
        other_rank = len(port.shape) != result.ndim
        off = [abs(dim - size) for dim, size in zip(port.shape, result.shape, strict=False) if isinstance(dim, int)]
        if other_rank or any(off):
            found = f"{result.dtype} {list(result.shape)}"
            text = f"{device}: output {port.name!r} is declared {_describe(port)}, found {found}"
            if not other_rank and max(off) > 1:
                raise InferenceError(text)
            import warnings

            warnings.warn(text, RuntimeWarning, stacklevel=3)


def _as_array(value: Any, port: Port) -> np.ndarray:
    if isinstance(value, np.ndarray):
        array = value
    elif hasattr(value, "__dlpack__"):
        try:
            array = np.from_dlpack(value)
        except Exception as error:
            raise InferenceError(f"input {port.name!r}: its __dlpack__ gave no CPU array: {error}") from error
    else:
        try:
            array = np.asarray(value, port.dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise InferenceError(
                f"input {port.name!r}: expected {_describe(port)}, found {type(value).__name__}: {error}"
            ) from error
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return array


def _as_items(value: Any, port: Port) -> Any:
    """A sequence as a list of arrays; what an optional holds; None."""
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return [None if item is None else _as_array(item, port) for item in value]
    return _as_array(value, port)


def _check(array: np.ndarray, port: Port, symbols: dict[str, tuple[int, str]]) -> None:
    if port.dtype is not None and array.dtype != port.dtype and not (port.dtype == object and array.dtype.kind in "US"):
        raise InferenceError(f"input {port.name!r}: expected {_describe(port)}, found dtype {array.dtype}")
    if port.shape is None:
        return
    fits = array.ndim == len(port.shape)
    if fits:
        for size, dim in zip(array.shape, port.shape, strict=True):
            if isinstance(dim, int):
                fits = fits and size == dim
            elif dim is not None:
                first, owner = symbols.setdefault(dim, (size, port.name))
                if first != size:
                    raise InferenceError(
                        f"input {port.name!r}: expected {_describe(port)} with {dim} = {first} as in input "
                        f"{owner!r}, found shape {list(array.shape)}"
                    )
    if not fits:
        raise InferenceError(f"input {port.name!r}: expected {_describe(port)}, found shape {list(array.shape)}")


def _describe(port: Port) -> str:
    if not port.is_tensor:
        return "a list of arrays or an optional value"
    dtype = "any dtype" if port.dtype is None else str(port.dtype)
    return f"{dtype} {shape_text(port.shape)}"


def _describe_value(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    return "none" if value is None else f"{len(value)} arrays"


def shape_text(shape: Sequence[Dim] | None) -> str:
    """``[1, 3, h, ?]``, or ``of any shape``."""
    if shape is None:
        return "of any shape"
    return "[" + ", ".join("?" if dim is None else str(dim) for dim in shape) + "]"
