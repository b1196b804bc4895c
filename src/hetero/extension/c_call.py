"""Custom operators in C: the structures of ``hetero/custom_op.h`` for Python, and calls through `ctypes`.

The CPU device calls such functions from its programs (`_core/kernels/custom.c`); other devices use this module.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..model.types import onnx_dtype_of

__all__ = ["FUNCTION", "CAttribute", "CAttributes", "CCall", "CFunction", "CTensor"]

ABI = 1
_FLOAT, _INT, _STRING, _TENSOR, _FLOATS, _INTS, _STRINGS = 1, 2, 3, 4, 6, 7, 8
_MESSAGE_BYTES = 252


class CTensor(ctypes.Structure):
    """hetero_tensor"""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
        ("size", ctypes.c_int64),
        ("rank", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
    )


class CAttribute(ctypes.Structure):
    """hetero_attribute"""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("values", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("type", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
    )


class CCall(ctypes.Structure):
    """hetero_call"""

    _fields_ = (
        ("abi", ctypes.c_int32),
        ("num_inputs", ctypes.c_int32),
        ("num_outputs", ctypes.c_int32),
        ("num_attributes", ctypes.c_int32),
        ("inputs", ctypes.POINTER(CTensor)),
        ("outputs", ctypes.POINTER(CTensor)),
        ("attributes", ctypes.POINTER(CAttribute)),
        ("user_data", ctypes.c_void_p),
        ("message", ctypes.c_void_p),
        ("message_size", ctypes.c_int64),
    )


FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(CCall))
"""hetero_custom_op"""


class CAttributes:
    """The attributes of a node in C memory, valid while this object lives. Raises ValueError for an unsupported
    type."""

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        self._kept: list[Any] = []
        self.array = (CAttribute * len(attributes))(
            *(self._attribute(name, value) for name, value in attributes.items())
        )
        self.address = ctypes.addressof(self.array)
        self.count = len(attributes)

    def _attribute(self, name: str, value: Any) -> CAttribute:
        kind, count, values = self._values(name, value)
        encoded = _bytes_of(name)
        self._kept += [encoded, values]
        address = ctypes.cast(values, ctypes.c_void_p)
        return CAttribute(encoded, address, count, kind, 0)

    def _values(self, name: str, value: Any) -> tuple[int, int, Any]:
        """Type, count, and a ctypes object with the values."""
        if isinstance(value, int):
            return _INT, 1, (ctypes.c_int64 * 1)(value)
        if isinstance(value, float):
            return _FLOAT, 1, (ctypes.c_float * 1)(value)
        if isinstance(value, str):
            text = _bytes_of(value)
            return _STRING, len(text), ctypes.create_string_buffer(text)
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            tensor = _tensor(np.require(value, requirements=("C", "A")), self._kept)
            return _TENSOR, 1, (CTensor * 1)(tensor)
        if isinstance(value, tuple):
            if all(isinstance(item, int) for item in value):
                return _INTS, len(value), (ctypes.c_int64 * max(len(value), 1))(*value)
            if all(isinstance(item, (int, float)) for item in value):
                return _FLOATS, len(value), (ctypes.c_float * max(len(value), 1))(*value)
            if all(isinstance(item, str) for item in value):
                texts = [ctypes.create_string_buffer(_bytes_of(item)) for item in value]
                self._kept += texts
                pointers = [ctypes.cast(text, ctypes.c_char_p) for text in texts]
                return _STRINGS, len(value), (ctypes.c_char_p * len(value))(*pointers)
        raise ValueError(f"attribute {name!r}: C functions support only numbers, strings and tensors")


class CFunction:
    """A C function for one node. ``attributes``: kept alive."""

    def __init__(self, address: int, user_data: int, attributes: CAttributes) -> None:
        self._function = FUNCTION(address)
        self._user_data = user_data
        self._attributes = attributes

    def __call__(self, inputs: Sequence[NDArray[Any] | None], outputs: Sequence[NDArray[Any]]) -> None:
        """Call the function without the GIL. ``outputs``: C-contiguous, written. Raises RuntimeError if it
        fails."""
        kept: list[Any] = []
        aligned = [None if array is None else np.require(array, requirements=("C", "A")) for array in inputs]
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        call = CCall(
            ABI,
            len(aligned),
            len(outputs),
            self._attributes.count,
            (CTensor * len(aligned))(*(CTensor() if array is None else _tensor(array, kept) for array in aligned)),
            (CTensor * len(outputs))(*(_tensor(array, kept) for array in outputs)),
            self._attributes.array,
            self._user_data,
            ctypes.addressof(message),
            _MESSAGE_BYTES,
        )
        status = self._function(ctypes.byref(call))
        if status != 0:
            message[_MESSAGE_BYTES - 1] = b"\0"
            raise RuntimeError(failure(status, message.value))


def failure(status: int, message: bytes) -> str:
    """The message for a C function that did not return 0."""
    text = message.decode(errors="replace")
    return f"its C function returned {status}{': ' + text if text else ''}"


def _tensor(array: NDArray[Any], kept: list[Any]) -> CTensor:
    if array.dtype.hasobject:
        raise ValueError("C functions do not support string tensors")
    dims = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
    kept += [dims, array]
    return CTensor(array.ctypes.data, dims, array.size, array.ndim, onnx_dtype_of(array.dtype))


def _bytes_of(text: str) -> bytes:
    return text.encode(errors="surrogateescape")
