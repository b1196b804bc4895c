"""Operators of shapes: their results are known before the run, and computed on the host."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....errors import InferenceError
from ..builder import check_size
from ..tensors import Tensor
from .table import ANY, INT64, LAYOUT, NUMBERS, PlannedNode, StaticNode, add

__all__: list[str] = []

_EVERY = ANY | {"float64", "uint16", "uint32", "uint64", "int16", "bfloat16"}


def _shape(node: PlannedNode) -> Sequence[Tensor]:
    rank = node[0].rank

    def clamped(name: str, default: int) -> int:
        at = int(node.attributes.get(name, default))
        return min(max(at + rank if at < 0 else at, 0), rank)

    sizes = np.array(node[0].shape[clamped("start", 0) : clamped("end", rank)], np.int64)
    return [Tensor(INT64, sizes.shape, array=sizes)]


def _size(node: PlannedNode) -> Sequence[Tensor]:
    return [Tensor(INT64, (), array=np.array(node[0].size, np.int64))]


add("Shape", (1, 13, 15, 19, *LAYOUT), (_EVERY,), _shape, ("start", "end"))
add("Size", (1, 13, 19, *LAYOUT), (_EVERY,), _size)


def _filler(attributes: Mapping[str, Any]) -> np.ndarray:
    from onnx import numpy_helper

    value = attributes.get("value")
    return np.zeros(1, np.float32) if value is None else numpy_helper.to_array(value).reshape(-1)


def _sizes(array: Any) -> tuple[int, ...]:
    sizes = tuple(int(size) for size in array.reshape(-1))
    if min(sizes, default=0) < 0:
        raise InferenceError(f"a tensor cannot have the shape {list(sizes)}")
    check_size(sizes)
    return sizes


def _constant_of_shape(node: PlannedNode) -> Sequence[Tensor]:
    shape, value = node.array(0), _filler(node.attributes)
    assert shape is not None
    result = node.builder.new(value.dtype, _sizes(shape))
    node.builder.fill(result, value[0], value.dtype)
    return [result]


def _check_constant_of_shape(node: StaticNode) -> str | None:
    value = node.attributes.get("value")
    if value is not None:
        from ....model.types import dtype_of

        dtype = dtype_of(value.data_type)
        if dtype is None or dtype.name not in ANY:
            return f"tensors of {dtype} are not supported"
        if math.prod(value.dims) != 1:
            return "its attribute 'value' must have one element"
    return None


add(
    "ConstantOfShape",
    (9, 20, *LAYOUT),
    (frozenset({"int64"}),),
    _constant_of_shape,
    ("value",),
    host=(0,),
    states_size=True,
    check=_check_constant_of_shape,
    on_host=lambda a, v, x: np.full(_sizes(x[0]), _filler(a)[0]),
)


_LARGEST_RANGE = 1 << 22
"""Elements: Range is computed on the host."""


def _range(attributes: Mapping[str, Any], version: int, inputs: Sequence[Any]) -> Any:
    start, _, step = (each.reshape(-1)[0] for each in inputs)
    return start + np.arange(_range_size(inputs), dtype=inputs[0].dtype) * step


def _range_size(inputs: Sequence[Any]) -> int:
    start, limit, step = (each.reshape(-1)[0].item() for each in inputs)
    if step == 0:
        raise InferenceError("Range has a step of 0")
    # Integers beyond 2^53 are not exact as floating-point numbers.
    is_integer = isinstance(step, int)
    size: int = max(0, -((start - limit) // step) if is_integer else math.ceil((limit - start) / step))
    if size > _LARGEST_RANGE:
        raise InferenceError(f"a Range of {size} elements is larger than {_LARGEST_RANGE}")
    return size


def _planned_range(node: PlannedNode) -> Sequence[Tensor]:
    arrays = [node.array(position) for position in range(3)]
    array = _range(node.attributes, node.version, arrays)
    return [Tensor(array.dtype, array.shape, array=array)]


def _check_range(node: StaticNode) -> str | None:
    kinds = {str(kind.dtype) for kind in node.inputs if kind is not None}
    return None if len(kinds) == 1 else "its inputs must have one element type"


add(
    "Range",
    (11,),
    (NUMBERS - {"float16"},),
    _planned_range,
    host=(0, 1, 2),
    check=_check_range,
    on_host=_range,
)
