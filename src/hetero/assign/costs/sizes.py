"""The sizes of a model's values as arrays, so that one expression computes the work of many nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...model.types import ValueType, element_bits, onnx_dtype_of

if TYPE_CHECKING:
    from ...model.model import Model

__all__ = ["ASSUMED_BATCH", "ASSUMED_DIM", "MAX_DIMS", "ValueSizes", "value_sizes"]

MAX_DIMS = 6
"""How many dims of each shape are kept, counted from the last."""
ASSUMED_BATCH = 1
ASSUMED_DIM = 64
"""Sizes assumed for unknown dims: `ASSUMED_BATCH` for the first dim of a shape, `ASSUMED_DIM` for the others."""

_STRING_BITS = 256  # assumed for an element that is a string
_UNKNOWN_BITS = 32  # assumed for an element of unknown type


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ValueSizes:
    """Sizes by value number.

    ``dims``: float64 [num_values, MAX_DIMS], the last dims of each shape, right-aligned, padded with 1. ``rank``: int32
    [num_values]. ``elements``, ``bytes``: float64 [num_values]. ``assumed``: bool [num_values], True if an unknown dim
    was assumed to be `ASSUMED_BATCH` (the first) or `ASSUMED_DIM` (others); a shape of unknown rank is assumed to be
    [`ASSUMED_DIM`].
    """

    dims: NDArray[np.float64]
    rank: NDArray[np.int32]
    elements: NDArray[np.float64]
    bytes: NDArray[np.float64]
    assumed: NDArray[np.bool_]


def value_sizes(model: Model, sizes: Mapping[str, int] | None = None) -> ValueSizes:
    """The sizes of all values. ``sizes``: symbolic dim -> size. May run shape inference once."""
    kinds, kind_of = model.type_table()
    known_sizes = dict(sizes or {})
    count = max(1, len(kinds))
    dims = np.ones((count, MAX_DIMS))
    rank = np.zeros(count, np.int32)
    elements, bits = np.ones(count), np.ones(count)
    assumed = np.zeros(count, np.bool_)
    for number, kind in enumerate(kinds):
        shape, rank[number], elements[number], bits[number], assumed[number] = _entry(kind, known_sizes)
        if shape:
            dims[number, MAX_DIMS - len(shape) :] = shape
    size = elements * bits / 8
    return ValueSizes(dims[kind_of], rank[kind_of], elements[kind_of], size[kind_of], assumed[kind_of])


def _entry(kind: ValueType, sizes: Mapping[str, int]) -> tuple[list[float], int, float, float, bool]:
    bits = _bits(kind.dtype)
    if kind.shape is None:
        return [ASSUMED_DIM], 1, float(ASSUMED_DIM), bits, True
    shape, assumed = [], False
    for position, dim in enumerate(kind.shape):
        size = sizes.get(dim) if isinstance(dim, str) else dim
        if not isinstance(size, int) or size < 0:
            size, assumed = (ASSUMED_DIM if position else ASSUMED_BATCH), True
        shape.append(float(size))
    return shape[-MAX_DIMS:], len(shape), float(np.prod(shape, dtype=np.float64)), bits, assumed


def _bits(dtype: np.dtype[Any] | None) -> int:
    if dtype is None:
        return _UNKNOWN_BITS
    return _STRING_BITS if dtype.hasobject else element_bits(onnx_dtype_of(dtype))
