"""Operators that choose elements: TopK, NonZero, Compress, OneHot, Trilu, EyeLike, Hardmax, ReverseSequence.

The number of elements that NonZero, Compress and Unique return depends on data: a kernel writes the indices to a buffer
of the maximum size and counts them, the plan is cut, and the rest is planned for the count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .... import _kernels
from ...._sizes import whole
from ....errors import InferenceError
from ....model.types import dtype_of
from ..registry import ANY, BOOL, FLOATS, NUMBERS, Node, operator, stated_by
from ..values import Context, Value
from .elementwise import _optional, _required, binary, cast
from .movement import axis_of, expanded, lines_of, strided

if TYPE_CHECKING:
    from ....model.model import Model, NodeView

_INT64 = np.dtype(np.int64)
_BOOL = np.dtype(np.bool_)
_ASSIGN = _kernels.constant("SCATTER_NONE")
_WITH_PLACES = ("float32", "float64", "int32", "int64", "int8", "uint8")  # types that the kernel arg_extreme supports


@operator(
    "TopK",
    dtypes=(NUMBERS, ("int64",)),
    attributes={"axis": None, "k": None, "largest": (0, 1), "sorted": (0, 1)},
    further=("int64",),
)
def _top_k(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    """The result is always sorted; ``sorted=0`` allows any order."""
    x = _required(inputs[0])
    k = node.get("k", None) if node.opset < 10 else whole(context.known(_required(inputs[1])).reshape(()).item())
    axis = axis_of(node.get("axis", -1), x.rank)
    size = x.shape[axis]
    if k is None or not 0 <= k <= size:
        raise InferenceError(f"k = {k} is outside 0..{size}, the length of axis {axis}")
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    outer, inner, largest = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :]), int(node.get("largest", 1))
    if k == 1 and largest and x.dtype.name in _WITH_PLACES:
        # ArgMax picks the same element: NaN is the largest, and the first of equal elements wins.
        place = context.call("arg_extreme", [x], shape, _INT64, [outer, size, inner, 0, 0])
        return [context.call("gather_elements", [x, place], shape, x.dtype, [axis]), place]
    ints = [outer, size, inner, k, largest]
    return context.call_many("topk", [x], [(shape, x.dtype), (shape, _INT64)], ints)


def _places(context: Context, x: Value) -> Value:
    """Indices of the non-zero elements: int64[count, rank]."""
    rank = max(x.rank, 1)
    specs = [((x.size, rank), _INT64), ((1,), _INT64)]
    places, count = context.staged(lambda: context.call_many("nonzero", [x], specs))
    number = whole(context.known(count)[0])
    return strided(context, places, 0, (number, rank), (rank, 1))


@operator("NonZero", dtypes=(*NUMBERS, *BOOL), result="int64")
def _nonzero(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    places = _places(context, x)
    number, rank = places.shape
    return [strided(context, places, 0, (rank if x.rank else 0, number), (1, rank))]


@operator("Compress", dtypes=(ANY, BOOL), attributes={"axis": None})
def _compress(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x, condition = _required(inputs[0]), _required(inputs[1])
    axis = node.get("axis", None)
    if axis is None:
        x, axis = context.reshaped(x, (x.size,)), 0
    axis = axis_of(axis, x.rank)
    if condition.rank != 1 or condition.size > x.shape[axis]:
        raise InferenceError(
            f"expected a condition of at most {x.shape[axis]} elements, found shape {list(condition.shape)}"
        )
    places = _places(context, condition)
    number = places.shape[0]
    shape = (*x.shape[:axis], number, *x.shape[axis + 1 :])
    return [context.call("gather", [x, context.reshaped(places, (number,))], shape, x.dtype, [axis])]


@operator("Unique", dtypes=(*NUMBERS, *BOOL), attributes={"axis": None, "sorted": (0, 1)})
def _unique(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    axis = node.get("axis", None)
    if axis is None:
        x, axis = context.reshaped(x, (x.size,)), 0
    axis = axis_of(axis, x.rank)
    size = x.shape[axis]
    ints = [math.prod(x.shape[:axis]), size, math.prod(x.shape[axis + 1 :]), int(node.get("sorted", 1))]
    specs = [((size,), _INT64)] * 3 + [((1,), _INT64)]
    made = context.staged(lambda: [x, *context.call_many("unique", [x], specs, ints)])
    x, first, counts, inverse, count = made
    number = whole(context.known(count)[0])
    first, counts = (strided(context, value, 0, (number,), (1,)) for value in (first, counts))
    shape = (*x.shape[:axis], number, *x.shape[axis + 1 :])
    return [context.call("gather", [x, first], shape, x.dtype, [axis]), first, inverse, counts][: node.num_outputs]


@operator("OneHot", dtypes=(NUMBERS, NUMBERS, ANY), attributes={"axis": None}, result=2)
def _one_hot(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    indices, depth, values = (_required(value) for value in inputs)
    size = whole(context.known(depth).reshape(-1)[0])
    axis = axis_of(node.get("axis", -1), indices.rank + 1)
    if values.shape != (2,) or size < 0:
        raise InferenceError(f"expected two values and a depth of at least 0, found {list(values.shape)} and {size}")
    shape = (*indices.shape[:axis], 1, *indices.shape[axis:])
    classes = (size, *[1] * (indices.rank - axis))
    classes_of = context.reshaped(cast(context, indices, _INT64), shape)
    if indices.dtype.kind != "u":  # uint64 values beyond int64 become negative and match no class
        negative = binary(context, "less", classes_of, context.scalar(0, _INT64), _BOOL)
        wrapped = binary(context, "add", classes_of, context.integers([size], ()))
        classes_of = context.call("where", [negative, wrapped, classes_of], shape, _INT64)
    numbers = context.reshaped(context.counting(size), classes)
    hit = binary(context, "equal", classes_of, numbers, _BOOL)
    off, on = (strided(context, values, position, (1,), (0,)) for position in range(2))
    return [context.call("where", [hit, on, off], hit.shape, values.dtype)]


@operator("Trilu", dtypes=(ANY, ("int64",)), attributes={"upper": (0, 1)})
def _trilu(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x, diagonal = _required(inputs[0]), _optional(inputs, 1)
    if x.rank < 2 or (diagonal is not None and diagonal.size != 1):
        raise InferenceError(f"expected rank 2 or more and one diagonal, found shape {list(x.shape)}")
    k = context.scalar(0, _INT64) if diagonal is None else context.reshaped(diagonal, ())
    comparison = "greater_or_equal" if node.get("upper", 1) else "less_or_equal"
    kept = binary(context, comparison, _offsets(context, *x.shape[-2:]), k, _BOOL)
    return [context.call("where", [kept, x, context.scalar(0, x.dtype)], x.shape, x.dtype)]


def _offsets(context: Context, rows: int, columns: int) -> Value:
    """The column minus the row of each element of a matrix."""
    numbers = [context.counting(count) for count in (columns, rows)]
    return binary(context, "sub", numbers[0], context.reshaped(numbers[1], (rows, 1)))


def _eye_refusal(model: Model, view: NodeView) -> str | None:
    number = view.attributes.get("dtype", None)
    dtype = dtype_of(number) if isinstance(number, int) else None
    return f"EyeLike of type {number}" if number is not None and (dtype is None or dtype.name not in ANY) else None


@operator(
    "EyeLike", dtypes=ANY, attributes={"dtype": None, "k": None}, check=_eye_refusal, result=stated_by("dtype", 0)
)
def _eye_like(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    if x.rank != 2:
        raise InferenceError(f"expected a matrix, found shape {list(x.shape)}")
    dtype = dtype_of(node.get("dtype", 0)) or x.dtype
    k = context.scalar(node.get("k", 0), _INT64)
    return [cast(context, binary(context, "equal", _offsets(context, *x.shape), k, _BOOL), dtype)]


@operator("Hardmax", dtypes=FLOATS, attributes={"axis": None})
def _hardmax(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    outer, size, inner = lines_of(node, x)
    if size == 0:
        return [context.reshaped(x, x.shape)]
    return [context.call("hardmax", [x], x.shape, x.dtype, [outer, size, inner])]


@operator("ReverseSequence", dtypes=(ANY, ("int64",)), attributes={"batch_axis": (0, 1), "time_axis": (0, 1)})
def _reverse_sequence(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x, lengths = _required(inputs[0]), _required(inputs[1])
    batch, time = node.get("batch_axis", 1), node.get("time_axis", 0)
    if x.rank < 2 or batch == time or lengths.shape != (x.shape[batch],):
        raise InferenceError(f"lengths {list(lengths.shape)}, batch axis {batch} and time axis {time} do not fit x")
    # Step t of a sequence of length n comes from step n - 1 - t if t < n, else from itself.
    ends = context.reshaped(lengths, _column(x, batch))
    steps = context.reshaped(context.counting(x.shape[time]), _column(x, time))
    turned = binary(context, "sub", binary(context, "sub", ends, context.scalar(1, _INT64)), steps)
    inside = binary(context, "less", steps, ends, _BOOL)
    chosen = context.call("where", [inside, turned, steps], turned.shape, _INT64)
    indices = context.reshaped(chosen, (*chosen.shape, 1))
    if time == 0:  # the step and the sequence; else the step of each sequence
        sequences = expanded(context, context.counting(x.shape[1]), chosen.shape)
        pair = [indices, context.reshaped(sequences, indices.shape)]
        indices = context.call("concat", pair, (*chosen.shape, 2), _INT64, [2])
    return [context.call("gather_nd", [x, indices], x.shape, x.dtype, [time])]


def _column(x: Value, axis: int) -> tuple[int, int]:
    return (x.shape[0], 1) if axis == 0 else (1, x.shape[1])
