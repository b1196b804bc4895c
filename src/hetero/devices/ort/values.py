"""Converts arrays whose dtypes onnxruntime's Python interface does not support: bfloat16, float8 and 4-bit types.

They are passed as an ``OrtValue`` over the same memory. 4-bit elements, which take one byte in NumPy, are packed and
unpacked.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._onnx import unpack_bits
from ...model.types import dtype_of, element_bits, onnx_dtype_of

__all__ = ["FOREIGN_TYPES", "array_of", "is_native", "ort_value", "passes"]

_LAST_NATIVE = 13  # TensorProto.DataType; 1 to 13 are in NumPy, and onnxruntime has no complex types
_PASSING = frozenset((*range(1, _LAST_NATIVE + 1), 16, 17, 18, 19, 20, 21, 22))

FOREIGN_TYPES = frozenset(
    f"tensor({name})"
    for name in ("bfloat16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "int4", "uint4")
)
"""The types of onnxruntime whose arrays its Python interface does not support."""


def is_native(dtype: np.dtype[Any]) -> bool:
    """Whether onnxruntime's Python interface supports arrays of this dtype."""
    return dtype.kind in "US" or 0 < onnx_dtype_of(dtype) <= _LAST_NATIVE


def passes(dtype: np.dtype[Any]) -> bool:
    """Whether tensors of this dtype can be passed to and from onnxruntime."""
    return dtype.kind in "US" or onnx_dtype_of(dtype) in _PASSING


def ort_value(ort: Any, array: NDArray[Any]) -> Any:
    """An ``OrtValue`` for an array of any dtype that `passes`. It shares memory with a C-contiguous array, except for
    4-bit types, and must not outlive the array."""
    array = np.ascontiguousarray(array).reshape(array.shape)  # which is a vector for a scalar without the reshape
    if is_native(array.dtype):
        return ort.OrtValue.ortvalue_from_numpy(array)
    number = onnx_dtype_of(array.dtype)
    if element_bits(number) == 4:
        value = ort.OrtValue.ortvalue_from_shape_and_type(list(array.shape), number)
        packed = _packed(array)
        ctypes.memmove(value.data_ptr(), packed.ctypes.data, packed.nbytes)
        return value
    unsigned = array.view(np.dtype(f"u{array.dtype.itemsize}"))
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(unsigned, number)


def array_of(value: Any) -> Any:
    """The contents of an ``OrtValue``: an array that shares its memory and keeps it alive, or the result of
    ``numpy()``; None if it is empty."""
    if not value.has_value():
        return None
    if not value.is_tensor() or value.element_type() <= _LAST_NATIVE:
        return value.numpy()
    number, shape = value.element_type(), tuple(value.shape())
    dtype = dtype_of(number)
    assert dtype is not None
    count = math.prod(shape)
    if not count:
        return np.empty(shape, dtype)
    if element_bits(number) == 4:
        packed = np.asarray(_Memory(value, "|u1", ((count + 1) // 2,)))
        return unpack_bits(packed, 4, count).view(dtype).reshape(shape)
    return np.asarray(_Memory(value, f"u{dtype.itemsize}", shape)).view(dtype)


class _Memory:
    """The host memory of an ``OrtValue``. NumPy keeps this object alive while it uses the memory."""

    def __init__(self, value: Any, typestr: str, shape: tuple[int, ...]) -> None:
        self._value = value
        typestr = np.dtype(typestr).str
        self.__array_interface__ = {
            "data": (value.data_ptr(), False),
            "typestr": typestr,
            "shape": shape,
            "version": 3,
        }


def _packed(array: NDArray[Any]) -> NDArray[np.uint8]:
    """4-bit elements, two per byte, the first in the low bits."""
    flat: NDArray[np.uint8] = array.reshape(-1).view(np.uint8) & np.uint8(0xF)
    if len(flat) % 2:
        flat = np.append(flat, np.uint8(0))
    packed: NDArray[np.uint8] = flat[::2] | flat[1::2] << np.uint8(4)
    return packed
