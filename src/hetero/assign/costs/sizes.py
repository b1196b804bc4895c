"""Sizes of a model's values as arrays, so that the work of many nodes is one expression."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...model.types import ValueType, element_bits, onnx_dtype_of

if TYPE_CHECKING:
    from ...model.model import Model

__all__ = ["ASSUMED_BATCH", "ASSUMED_DIM", "MOST_DIMS", "ValueSizes", "value_sizes"]

MOST_DIMS = 6
"""Dims kept of each shape, the last ones."""
ASSUMED_BATCH = 1
ASSUMED_DIM = 64
"""What an unknown dim is taken for: the first of a shape is a batch."""

_STRING_BITS = 256
_UNKNOWN_BITS = 32


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ValueSizes:
    """Per value of a model, by its number.

    ``dims``: float64 [num_values, MOST_DIMS], the last dims of the shape, right-aligned, 1 where there are fewer.
    ``rank``: int32. ``elements``, ``bytes``: float64. ``assumed``: bool, True where a size is not known and taken for
    `ASSUMED_BATCH` (the first dim) or `ASSUMED_DIM` (others, and a whole shape of unknown rank).
    """

    dims: NDArray[np.float64]
    rank: NDArray[np.int32]
    elements: NDArray[np.float64]
    bytes: NDArray[np.float64]
    assumed: NDArray[np.bool_]


def value_sizes(model: Model, sizes: Mapping[str, int] | None = None) -> ValueSizes:
    """The sizes of all values. ``sizes``: symbol -> what to take it for. May run shape inference, once."""
    kinds, kind_of = model.type_table()
    known_sizes = dict(sizes or {})
    count = max(1, len(kinds))
    dims = np.ones((count, MOST_DIMS))
    rank = np.zeros(count, np.int32)
    elements, bits = np.ones(count), np.ones(count)
    assumed = np.zeros(count, np.bool_)
    for number, kind in enumerate(kinds):
        shape, rank[number], elements[number], bits[number], assumed[number] = _entry(kind, known_sizes)
        if shape:
            dims[number, MOST_DIMS - len(shape) :] = shape
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
    return shape[-MOST_DIMS:], len(shape), float(np.prod(shape, dtype=np.float64)), bits, assumed


def _bits(dtype: np.dtype[Any] | None) -> int:
    if dtype is None:
        return _UNKNOWN_BITS
    return _STRING_BITS if dtype.hasobject else element_bits(onnx_dtype_of(dtype))
