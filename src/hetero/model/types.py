"""Types of values: element type and shape, as the model states or shape inference finds them."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np

__all__ = ["Dim", "Port", "ValueType", "dtype_of", "onnx_dtype_of"]

Dim = int | str | None
"""One dimension: a size, a symbol, or None where nothing is known."""

# onnx.TensorProto.DataType -> NumPy. Types NumPy lacks come from ml_dtypes, imported when first met.
_NUMPY = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "object",  # strings
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
}
_ML_DTYPES = {
    16: "bfloat16",
    17: "float8_e4m3fn",
    18: "float8_e4m3fnuz",
    19: "float8_e5m2",
    20: "float8_e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4_e2m1fn",
    24: "float8_e8m0fnu",
    25: "uint2",
    26: "int2",
}


@functools.cache
def dtype_of(onnx_dtype: int) -> np.dtype[Any] | None:
    """NumPy dtype of an ``onnx.TensorProto.DataType`` number; None for 0 (undefined) and unknown numbers."""
    if onnx_dtype in _NUMPY:
        return np.dtype(_NUMPY[onnx_dtype])
    if onnx_dtype in _ML_DTYPES:
        import ml_dtypes

        scalar = getattr(ml_dtypes, _ML_DTYPES[onnx_dtype], None)
        return None if scalar is None else np.dtype(scalar)
    return None


@functools.cache
def onnx_dtype_of(dtype: np.dtype[Any]) -> int:
    """``onnx.TensorProto.DataType`` number of a NumPy dtype; 0 if ONNX has none."""
    for number in (*_NUMPY, *_ML_DTYPES):
        if dtype_of(number) == dtype:
            return number
    return 8 if dtype.kind in "US" else 0


@dataclasses.dataclass(frozen=True, slots=True)
class ValueType:
    """What is known of a tensor value. ``dtype`` None: unknown. ``shape`` None: unknown rank."""

    dtype: np.dtype[Any] | None
    shape: tuple[Dim, ...] | None


@dataclasses.dataclass(frozen=True, slots=True)
class Port:
    """A named input or output of a model, compiled model or submodel."""

    name: str
    dtype: np.dtype[Any] | None
    shape: tuple[Dim, ...] | None
