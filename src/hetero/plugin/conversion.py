"""Converts one input from the caller to a plain NumPy array.

Arrays, and objects with ``__dlpack__``, ``__array__`` or a buffer, keep their element type. Python numbers and lists of
numbers are converted to the element type of the port if they are of its kind and in its range: integers for an integer
port, integers and floats for a float port. All other values raise an error, on every device, so that no element is
invented, truncated or unmasked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..errors import HeteroError, InferenceError, raise_out_of_memory
from .remote import HOST_DEVICE, RemoteContext, RemoteTensor

__all__ = ["Unfit", "as_array", "data_remedy", "on_device"]

_MOST_LEVELS = 64
"""The maximum nesting of lists: NumPy's maximum number of dimensions."""

# Kind of a port -> the kinds of Python and NumPy numbers it accepts. Floats are rounded to the port's precision.
_TAKES = {"bool": {"bool"}, "int": {"int"}, "float": {"int", "float"}, "complex": {"int", "float", "complex"}}
_KIND_OF_DTYPE = {"b": "bool", "i": "int", "u": "int", "f": "float", "c": "complex", "U": "str", "S": "bytes"}
_KIND_OF_TYPE = {bool: "bool", int: "int", float: "float", complex: "complex", str: "str", bytes: "bytes"}
_ML_INTEGERS = ("int4", "uint4", "int2", "uint2")


class Unfit(InferenceError):
    """A value that cannot become an array of the port's element type. The message is a phrase that follows "found"."""


def on_device(value: Any, memories: Sequence[RemoteContext]) -> RemoteTensor | None:
    """``value`` as a tensor in one of ``memories``, without a copy of its contents; None if it is in none of them."""
    if isinstance(value, RemoteTensor) and value.context is not None:
        return value if any(value.context is memory for memory in memories) else None
    if not hasattr(value, "__dlpack__") or isinstance(value, np.ndarray):
        return None
    for memory in memories:
        try:
            tensor = memory.adopt(value)
        except HeteroError:
            raise
        except Exception as error:
            raise_out_of_memory(error)
            raise Unfit(f"{type(value).__name__}, whose __dlpack__ failed: {error}") from error
        if tensor is not None:
            return tensor
    return None


def as_array(value: Any, dtype: np.dtype[Any] | None) -> np.ndarray:
    """``value`` as a plain array in native byte order. Plain arrays are not copied. Raises `Unfit`.

    ``dtype``: the port's element type, None if it is unknown. Python numbers are converted to it. Arrays keep their own
    dtype; the caller checks it, and all shapes. Arrays of strings become object arrays of `str`.
    """
    if type(value) is np.ndarray:
        array = value
    else:
        array = _converted(value, dtype)
    kind = array.dtype.kind
    if kind in "OUST":
        if dtype is None or dtype.hasobject:
            return _strings(array)
        if kind == "O":
            raise Unfit(f"an array of Python objects ({_first_types(array)}); convert it to an array of numbers first")
    elif kind in "mM" or array.dtype.names is not None:
        raise Unfit(f"dtype {array.dtype}, which ONNX does not have; convert it to an array of numbers first")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return array


def _converted(value: Any, dtype: np.dtype[Any] | None) -> np.ndarray:
    """Converts a value that is not a plain array."""
    if value is None:
        raise Unfit("None; pass an array")
    if isinstance(value, np.ndarray):
        _check_mask(value)
        return np.asarray(value)  # without the subclass: matrix, memmap, ...
    if isinstance(value, RemoteTensor) and (value.context is not None or value.__dlpack_device__()[0] != HOST_DEVICE):
        array = value.numpy()
        # A view would change if the device writes a result to the same tensor.
        return array if array.flags.owndata else array.copy()
    if hasattr(value, "__dlpack__"):
        try:
            return np.from_dlpack(value)
        except Exception as error:
            raise_out_of_memory(error)
            raise Unfit(f"{type(value).__name__}, whose __dlpack__ returned no CPU array: {error}") from error
    if not isinstance(value, np.generic) and _has_own_dtype(value):
        try:
            array = np.asanyarray(value)
        except Exception as error:
            raise_out_of_memory(error)
            raise Unfit(f"{type(value).__name__}, which NumPy cannot convert to an array: {error}") from error
        _check_mask(array)
        return np.asarray(array)
    return _from_numbers(value, dtype)


def _check_mask(array: np.ndarray) -> None:
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        count = int(np.count_nonzero(np.ma.getmaskarray(array)))
        elements = "1 masked element" if count == 1 else f"{count} masked elements"
        raise Unfit(f"a masked array with {elements}; replace them first, with .filled(value)")


def _has_own_dtype(value: Any) -> bool:
    if isinstance(value, (list, tuple, str, bytes, int, float)):
        return False
    if any(hasattr(value, name) for name in ("__array__", "__array_interface__", "__array_struct__")):
        return True
    try:
        memoryview(value)
    except TypeError:
        return False
    return True


def _from_numbers(value: Any, dtype: np.dtype[Any] | None) -> np.ndarray:
    """An array of Python numbers, NumPy scalars or strings, or of nested sequences of them."""
    kinds = _kinds_of(value)
    is_list = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
    description = type(value).__name__
    if is_list:
        description = f"a {description} of {' and '.join(sorted(kinds)) or 'nothing'}"
    is_text = bool(kinds) and kinds <= {"str", "bytes"}
    if is_text if dtype is None else dtype.hasobject:
        if not kinds <= {"str", "bytes"}:
            raise Unfit(f"{description}; convert the elements to str first")
        return _made(value, np.dtype(object), description)
    kind = None if dtype is None else _kind(dtype)
    if not kinds <= (_TAKES.keys() if kind is None else _TAKES.get(kind, set())):
        remedy = "pass an array" if dtype is None else f"convert it explicitly to an array of {dtype} first"
        alone = value[0] if is_list and len(value) == 1 else value
        raise Unfit(f"{description}; {data_remedy(alone) or remedy}")
    if dtype is None or kind == "bool" or not kinds:
        return _made(value, dtype, description)
    exact = _made(value, np.dtype(object), description)
    return _integers(exact, dtype) if kind == "int" else _floats(exact, dtype)


def data_remedy(value: Any) -> str:
    """What to pass in place of a value that holds an array, such as openvino.Tensor; empty for other values."""
    return "pass its array, .data" if isinstance(getattr(value, "data", None), np.ndarray) else ""


def _integers(exact: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Python integers as ``dtype``. Raises `Unfit` for an integer outside its range."""
    low, high = _range(dtype)
    for number in (min(exact.flat, default=0), max(exact.flat, default=0)):
        if not low <= int(number) <= high:
            raise Unfit(f"the value {number}, outside the range of {dtype} ({low} to {high})")
    return exact.astype(np.int64 if low < 0 else np.uint64).astype(dtype)


def _floats(exact: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Python numbers rounded to ``dtype``, a float or complex type. Raises `Unfit` for a finite number outside its
    range."""
    with np.errstate(over="ignore"):
        try:
            wide = exact.astype(np.complex128 if dtype.kind == "c" else np.float64)
        except OverflowError:
            raise Unfit(f"a number outside the range of {dtype}") from None
        array = wide.astype(dtype)
        lost = np.isfinite(wide) & ~np.isfinite(array.astype(wide.dtype))
    if lost.any():
        raise Unfit(f"the value {wide[lost].flat[0]}, outside the range of {dtype}")
    return array


def _made(value: Any, dtype: np.dtype[Any] | None, description: str) -> np.ndarray:
    try:
        array = np.array(value, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise Unfit(f"{description}: {error}") from error
    if array.dtype.hasobject:
        if not set(map(type, array.flat)) <= _KIND_OF_TYPE.keys():
            for position, item in enumerate(array.flat):
                if isinstance(item, np.ndarray) and item.ndim == 0:
                    array.flat[position] = item[()]
                elif isinstance(item, (Sequence, np.ndarray)) and not isinstance(item, (str, bytes)):
                    raise Unfit(f"{description} with rows of different lengths")
        if dtype is None:
            raise Unfit(f"{description}; pass an array")
    return array


def _kinds_of(value: Any, level: int = 0) -> set[str]:
    """The kinds of the elements in a value: keys of `_TAKES`, or else type names."""
    if level > _MOST_LEVELS:
        raise Unfit(f"lists nested more than {_MOST_LEVELS} levels deep")
    kind = _KIND_OF_TYPE.get(type(value))
    if kind is not None:
        return {kind}
    if isinstance(value, np.ndarray):
        _check_mask(value)
    if isinstance(value, (np.ndarray, np.generic)):
        return {_kind(value.dtype)}
    if isinstance(value, (int, float, complex, str, bytes)):  # a subclass, such as an IntEnum
        return {next(kind for base, kind in _KIND_OF_TYPE.items() if isinstance(value, base))}
    if isinstance(value, Sequence) and not _has_own_dtype(value):
        return _kinds_in(value, level + 1)
    if _has_own_dtype(value) or hasattr(value, "__dlpack__"):
        return {_kind(as_array(value, None).dtype)}
    return {type(value).__name__}


def _kinds_in(values: Iterable[Any], level: int) -> set[str]:
    types = set(map(type, values))
    kinds = {_KIND_OF_TYPE[known] for known in types if known in _KIND_OF_TYPE}
    if not types <= _KIND_OF_TYPE.keys():
        for value in values:
            if type(value) not in _KIND_OF_TYPE:
                kinds |= _kinds_of(value, level)
    return kinds


def _kind(dtype: np.dtype[Any]) -> str:
    """The kind of an element type: a key of `_TAKES`, or else its name."""
    kind = _KIND_OF_DTYPE.get(dtype.kind)
    if kind is None and dtype.kind == "V" and dtype.names is None and dtype.type.__module__ == "ml_dtypes":
        return "int" if dtype.name in _ML_INTEGERS else "float"
    return kind or dtype.name


def _range(dtype: np.dtype[Any]) -> tuple[int, int]:
    """The minimum and the maximum of an integer type."""
    if dtype.kind in "iu":
        return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    bits = int(dtype.name[-1])  # int4, uint2, ...
    return (0, 2**bits - 1) if dtype.name[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _strings(array: np.ndarray) -> np.ndarray:
    """An array of strings as an object array of `str`. Returns the same array if it already is one."""
    objects = array if array.dtype == object else array.astype(object)
    types = set(map(type, objects.flat))
    if all(issubclass(element_type, str) for element_type in types):
        return objects
    if not all(issubclass(element_type, (str, bytes)) for element_type in types):
        raise Unfit(f"an array of Python objects ({_first_types(objects)}); convert the elements to str first")
    decoded = np.empty(objects.size, object)
    try:
        decoded[:] = [item.decode() if isinstance(item, bytes) else item for item in objects.flat]
    except UnicodeDecodeError as error:
        raise Unfit(f"bytes that are not UTF-8: {error}") from error
    return decoded.reshape(objects.shape)


def _first_types(array: np.ndarray) -> str:
    names = sorted({"None" if item is None else type(item).__name__ for item in array.flat})
    return ", ".join(names[:4]) or "empty"
