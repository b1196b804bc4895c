"""The inputs and outputs of a request."""

from __future__ import annotations

import contextlib
import operator
import types
from collections.abc import Collection, Iterator, KeysView, Mapping, Sequence
from typing import Any

import numpy as np

from ..base.formatting import counted, shape_text
from ..base.notebook import html_table
from ..base.other_names import OtherNames
from ..base.warn import warn
from ..errors import InferenceError, UnknownOutput, did_you_mean, shown
from ..model.types import Port
from .conversion import Unfit, as_array, on_device
from .remote import RemoteContext, RemoteTensor

__all__ = ["NO_INPUTS", "Outputs", "bind_inputs", "check_outputs", "inputs_by_name", "keyed_by_name"]

NO_INPUTS: Mapping[Any, Any] = types.MappingProxyType({})

_MOST_SUMMARIZED = 1 << 22  # elements of a result whose range a table shows
_MOST_NAMES = 5  # of unknown inputs in a message


class Outputs(OtherNames):
    """The results of one inference, in the order of the model's outputs.

    Access them by unpacking (``first, second = compiled(x)``), by name (``out["name"]``), by position (``out[0]``) or
    by port (``out[compiled.outputs[0]]``).
    Each result is an array; a sequence is a list of arrays, and an empty optional is None. Iteration and ``len`` behave
    like a tuple of results. `keys` returns the names, so ``dict(out)`` and ``**out`` work by name. ``"name" in out``
    checks for a name.

    An unknown name or position raises `UnknownOutput`, which is both a `KeyError` and an `IndexError`. Any other key
    raises `TypeError`.
    """

    __slots__ = ("_arrays", "_positions")

    other_names = types.MappingProxyType(
        {"names": "outputs.keys()", "to_dict": "dict(outputs)", "to_tuple": "tuple(outputs)", "copy": "dict(outputs)"}
    )

    def __init__(self, positions: Mapping[str, int], arrays: Sequence[Any]) -> None:
        """Stores ``arrays`` without a copy."""
        self._positions = positions
        self._arrays = arrays

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            position = self._positions.get(key)
            if position is None:
                near = did_you_mean(key, self._positions)
                raise UnknownOutput(f"the model has no output {key!r}{near}; {self._known()}")
            return self._arrays[position]
        if isinstance(key, Port):
            return self[key.name]
        if isinstance(key, slice):
            return tuple(self._arrays[key])
        try:
            position = _as_position(key)
        except TypeError:
            raise TypeError(
                f"expected the name or the position of an output, found {_key_text(key)}; iterating over outputs "
                "gives their values: use .keys() for names, .items() for both"
            ) from None
        try:
            return self._arrays[position]
        except IndexError:
            raise UnknownOutput(f"the model has no output number {position}; {self._known()}") from None

    def __iter__(self) -> Iterator[Any]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            raise TypeError(f"'in' expects the name of an output, found {_key_text(name)}; use .values() for values")
        return name in self._positions

    def keys(self) -> KeysView[str]:
        """The names, in order."""
        return self._positions.keys()

    def values(self) -> tuple[Any, ...]:
        """The results, in order."""
        return tuple(self._arrays)

    def items(self) -> tuple[tuple[str, Any], ...]:
        """The name and the result of each output, in order."""
        return tuple((name, self._arrays[position]) for name, position in self._positions.items())

    def get(self, name: str, default: Any = None) -> Any:
        """The output ``name``, or ``default`` if the model has no output of this name."""
        position = self._positions.get(name)
        return default if position is None else self._arrays[position]

    def arrays(self) -> tuple[Any, ...]:
        """`values`."""
        return tuple(self._arrays)

    def _known(self) -> str:
        return f"its outputs: {', '.join(self._positions) or 'none'}"

    def __repr__(self) -> str:
        entries = (f"{name!r}: {_describe_value(value)}" for name, value in self.items())
        return f"Outputs({{{', '.join(entries)}}})"

    def _repr_html_(self) -> str:
        """Types, shapes and ranges, for notebooks."""
        rows = ((name, *_summary(value)) for name, value in self.items())
        return html_table("Outputs", ("name", "dtype", "shape", "min", "mean", "max"), rows, len(self))


def _as_position(key: Any) -> int:
    if isinstance(key, (np.ndarray, bool)):  # operator.index accepts an integer array of one element
        raise TypeError
    return operator.index(key)


def _key_text(key: object) -> str:
    return "an array" if isinstance(key, np.ndarray) else f"{type(key).__name__}"


def bind_inputs(
    ports: Sequence[Port],
    inputs: Any,
    memories: Mapping[int, Sequence[RemoteContext]] | None = None,
    strict: Collection[str] = (),
) -> list[Any]:
    """Arrays in the order of ``ports``, checked for dtype and shape.

    A sequence is a list of arrays; an empty optional is None.

    ``inputs``: a mapping from input to array, where a key is the name, the position or the port of an input; a list or
    tuple of arrays in the order of the inputs; the `Outputs` of another model, by name; if the model has one input,
    also its value alone (see `_listed`). Inputs with a default may be left out. Arrays are NumPy arrays or have
    ``__dlpack__``. Python numbers and lists of them are converted if no element is lost (see `conversion`). Arrays are
    copied only if their byte order is not native. Different sizes for one symbol cause a warning.

    ``memories``: position of an input -> memories of devices that read it. A value that is in one of them is returned
    as a `RemoteTensor`. Tensors elsewhere are copied to this machine if they are `RemoteTensor` objects.
    ``strict``: the inputs whose symbols must have the same sizes as in the other inputs, because they follow from them.

    Raises `InferenceError` with the name of the input, what was expected and what was found.
    """
    inputs = inputs_by_name(ports, inputs)
    symbols: dict[str, tuple[int, str]] = {}
    bound: list[Any] = []
    left_out = 0
    for position, port in enumerate(ports):
        if port.name in inputs:
            value = inputs[port.name]
        elif port.default is not None:
            value = port.default
            left_out += 1
        else:
            _refuse_unknown(ports, inputs)
            raise InferenceError(f"input {port.name!r} is missing; expected {_describe(port)}")
        if not port.is_tensor:
            bound.append(_as_items(value, port))
            continue
        array = _as_array(value, port, memories.get(position, ()) if memories else ())
        _check(array, port, symbols, value, strict)
        bound.append(array)
    if len(inputs) + left_out != len(ports):
        _refuse_unknown(ports, inputs)
    return bound


def inputs_by_name(ports: Sequence[Port], inputs: Any) -> Mapping[Any, Any]:
    """``inputs`` of `bind_inputs` as a mapping from name to value. Keys that are no inputs stay as they are."""
    if isinstance(inputs, Outputs):
        return dict(inputs.items())
    if isinstance(inputs, Mapping):
        return keyed_by_name(ports, inputs, "input")
    if _listed(ports, inputs):
        if len(inputs) > len(ports):
            raise InferenceError(
                f"expected up to {counted(len(ports), 'array')}, one for each input, found {len(inputs)}"
            )
        return {port.name: value for port, value in zip(ports, inputs, strict=False)}
    if len(ports) != 1:
        names = ", ".join(port.name for port in ports) or "none"
        kind = "one array" if isinstance(inputs, np.ndarray) else f"an object of type {type(inputs).__name__}"
        example = "".join(f"; write {{{port.name!r}: array, …}}" for port in ports[:1])
        raise InferenceError(f"expected a mapping from input name to array (inputs: {names}), found {kind}{example}")
    return {ports[0].name: inputs}


def keyed_by_name(ports: Sequence[Port], values: Mapping[Any, Any], what: str) -> Mapping[Any, Any]:
    """``values`` with names in place of positions and ports as keys. Keys that are none of these stay as they are.
    Raises `InferenceError` for a port with two keys. ``what``: "input" or "output"."""
    if all(isinstance(key, str) for key in values):
        return values
    named: dict[Any, Any] = {}
    for key, value in values.items():
        name = key
        if isinstance(key, Port):
            name = key.name
        elif isinstance(key, (int, np.integer)) and not isinstance(key, bool) and 0 <= key < len(ports):
            name = ports[int(key)].name
        if name in named:
            raise InferenceError(f"{what} {name!r} has two values, under its name, position or port")
        named[name] = value
    return named


def _listed(ports: Sequence[Port], inputs: Any) -> bool:
    """Whether ``inputs`` is a list of one value for each input.

    If the model has one input, a list is its value, unless it holds a single array of the rank of the input: as a
    value, this list would have one dimension more, so it can mean only one thing.
    """
    if not isinstance(inputs, (list, tuple)):
        return False
    if len(ports) != 1:
        return True
    port = ports[0]
    if len(inputs) != 1 or not port.is_tensor or port.shape is None:
        return False
    return _rank(inputs[0]) == len(port.shape)


def _rank(value: Any) -> int | None:
    """The rank of an array or of another object with ``__array__``, or None."""
    rank = getattr(value, "ndim", None)
    if rank is None and hasattr(value, "__array__"):
        with contextlib.suppress(Exception):  # the conversion of the input reports it
            rank = np.ndim(value)
    return rank if isinstance(rank, int) else None


def _refuse_unknown(ports: Sequence[Port], inputs: Mapping[Any, Any]) -> None:
    """Raise `InferenceError` if ``inputs`` has names that the model does not have, with the nearest names."""
    known = {port.name for port in ports}
    extra = [name for name in inputs if name not in known]
    if not extra:
        return
    missing = [port.name for port in ports if port.name not in inputs]
    named = ", ".join(f"{shown(name)}{did_you_mean(name, missing or known)}" for name in extra[:_MOST_NAMES])
    more = f" and {len(extra) - _MOST_NAMES} more" if len(extra) > _MOST_NAMES else ""
    listed = ", ".join(port.name for port in ports) or "none"
    raise InferenceError(f"the model has no input {named}{more}; its inputs: {listed}")


def check_outputs(ports: Sequence[Port], results: Sequence[Any], device: str) -> None:
    """Raise `InferenceError` if a result does not have the element type that its port declares: either the device is
    wrong, or the model contradicts itself. Symbolic dimensions accept any size. Inferred shapes are not checked.

    Another shape only causes a `RuntimeWarning`, once for a model and device. onnxruntime also warns, because real
    files declare wrong shapes: onnx's own inference rounds sizes down (a Resize of 320 by 0.7 gives 223, but runtimes
    return 224), and some exporters declare one label for any number of rows.
    """
    for port, result in zip(ports, results, strict=True):
        if not port.is_stated:
            continue
        if not port.is_tensor and (result is None or isinstance(result, (np.ndarray, list))):
            continue
        is_tensor = isinstance(result, (np.ndarray, RemoteTensor))
        if not is_tensor or (port.dtype is not None and result.dtype != port.dtype):
            actual = f"{result.dtype} {list(result.shape)}" if is_tensor else type(result).__name__
            raise InferenceError(f"{device}: output {port.name!r} is declared {_describe(port)}, found {actual}")
        if not port.declared or port.shape is None or device in port.misfits:
            continue
        pairs = zip(port.shape, result.shape, strict=False)
        if len(port.shape) != len(result.shape) or any(isinstance(dim, int) and dim != size for dim, size in pairs):
            actual = f"{result.dtype} {list(result.shape)}"
            port.misfits.add(device)
            warn(f"{device}: output {port.name!r} is declared {_describe(port)}, found {actual}")


def _as_array(value: Any, port: Port, memories: Sequence[RemoteContext] = ()) -> Any:
    try:
        if memories and type(value) is not np.ndarray:
            tensor = on_device(value, memories)
            if tensor is not None:
                return tensor
        return as_array(value, port.dtype)
    except Unfit as unfit:
        raise InferenceError(f"input {port.name!r}: expected {_describe(port)}, found {unfit}") from unfit.__cause__


def _as_items(value: Any, port: Port) -> Any:
    """A sequence as a list of arrays, the content of an optional, or None. If the port knows the type of the elements,
    they are checked and converted like tensors."""
    kinds, dtype = port.holder
    if dtype is not None:
        return _as_held(value, kinds, dtype, port, "")
    if value is None:
        return None
    if not isinstance(value, (list, tuple)):
        return _as_item(value, port)
    items = [None if item is None else _as_item(item, port) for item in value]
    dtypes = {str(item.dtype): None for item in items if item is not None}
    if len(dtypes) > 1:
        raise InferenceError(f"input {port.name!r}: expected elements of one type, found {' and '.join(dtypes)}")
    return items


def _as_held(value: Any, kinds: tuple[str, ...], dtype: np.dtype[Any], port: Port, where: str) -> Any:
    """``value``, converted to the nested type ``kinds``, outermost first. ``where``: its position, for errors."""
    if kinds and kinds[0] == "optional":
        return None if value is None else _as_held(value, kinds[1:], dtype, port, where)
    prefix = f"input {port.name!r}: expected {_describe(port)}, found{where and f' in {where}:'}"
    if kinds:
        if not isinstance(value, (list, tuple)):
            what = "an array" if isinstance(value, np.ndarray) else type(value).__name__
            raise InferenceError(f"{prefix} {what}; pass a list")
        of = where and f" of {where}"
        return [_as_held(item, kinds[1:], dtype, port, f"element {at}{of}") for at, item in enumerate(value)]
    try:
        array = as_array(value, dtype)
    except Unfit as unfit:
        raise InferenceError(f"{prefix} {unfit}") from unfit.__cause__
    if array.dtype != dtype:
        how = "" if dtype.hasobject else f"; convert it with array.astype({dtype.name!r})"
        raise InferenceError(f"{prefix} dtype {array.dtype}{how}")
    return array


def _as_item(value: Any, port: Port) -> Any:
    """An element of a sequence whose element type the port does not know. The element must have its own dtype."""
    if isinstance(value, (bool, int, float, complex, list, tuple)):
        raise InferenceError(
            f"input {port.name!r}: expected {_describe(port)}, found a Python {type(value).__name__} as an element; "
            "convert it to an array of the model's element type"
        )
    return _as_array(value, port)


def _check(array: Any, port: Port, symbols: dict[str, tuple[int, str]], value: Any, strict: Collection[str]) -> None:
    """Raise `InferenceError` if ``array``, which was made from ``value``, does not fit the port.

    Different sizes for one symbol only cause a `RuntimeWarning` unless an input is in ``strict``, because exporters
    give one name to sizes that differ. No device computes with the symbols of a file, so results are correct, or a node
    fails.
    """
    if port.dtype is not None and array.dtype != port.dtype:
        how = "" if port.dtype.hasobject else f"; convert it with array.astype({port.dtype.name!r})"
        raise InferenceError(f"input {port.name!r}: expected {_describe(port)}, found dtype {array.dtype}{how}")
    if port.shape is None:
        return
    fits = len(array.shape) == len(port.shape)
    if fits:
        for size, dim in zip(array.shape, port.shape, strict=True):
            if isinstance(dim, int):
                fits = fits and size == dim
            elif dim is not None:
                first, owner = symbols.setdefault(dim, (size, port.name))
                if first != size and (port.name in strict or owner in strict):
                    raise InferenceError(
                        f"input {port.name!r}: expected {_describe(port)} with {dim} = {first} as in input "
                        f"{owner!r}, found shape {list(array.shape)}"
                    )
                if first != size:  # the text has no sizes, so that Python shows it once
                    warn(f"inputs {owner!r} and {port.name!r} have different sizes, but the model calls both {dim!r}")
    if not fits:
        found = f"shape {list(array.shape)}"
        if isinstance(value, (list, tuple)) and any(isinstance(item, np.ndarray) for item in value):
            found += f", a {type(value).__name__} of {counted(len(value), 'array')}; write {{{port.name!r}: array}}"
        raise InferenceError(f"input {port.name!r}: expected {_describe(port)}, found {found}")


def _describe(port: Port) -> str:
    if not port.is_tensor:
        if port.holder.dtype is None:
            return "a list of arrays or an optional value"
        return _describe_held(port.holder.kinds, f"{port.holder.dtype} array")
    dtype = "any dtype" if port.dtype is None else "strings" if port.dtype == object else str(port.dtype)
    return f"{dtype} {shape_text(port.shape, 'of any shape')}"


def _describe_held(kinds: tuple[str, ...], element: str) -> str:
    """``a list of float32 arrays or None``."""
    if not kinds:
        return f"{'an' if element[0] in 'aeio' else 'a'} {element}"
    if kinds[0] == "optional":
        return f"{_describe_held(kinds[1:], element)} or None"
    inner = "lists of " if kinds[1:2] == ("sequence",) else ""
    return f"a list of {inner}{element}s{' or None' if 'optional' in kinds[1:] else ''}"


def _summary(value: Any) -> tuple[str | None, ...]:
    """dtype, shape, minimum, mean and maximum of a result; None for what it does not have."""
    if not isinstance(value, np.ndarray):
        return None, _describe_value(value), None, None, None
    kind, shape = str(value.dtype), shape_text(value.shape)
    if not 0 < value.size <= _MOST_SUMMARIZED or value.dtype.kind not in "biuf":
        return kind, shape, None, None, None
    with np.errstate(all="ignore"):
        wide = value.astype(np.float64)
        return kind, shape, *(f"{number:.6g}" for number in (wide.min(), wide.mean(), wide.max()))


def _describe_value(value: Any) -> str:
    if isinstance(value, (np.ndarray, RemoteTensor)):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, (list, tuple)):
        are_maps = bool(value) and all(isinstance(item, Mapping) for item in value)
        return counted(len(value), "map" if are_maps else "array")
    return "none" if value is None else type(value).__name__  # the caller's own object in `out`
