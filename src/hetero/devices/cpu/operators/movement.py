"""Operators that move elements: reshapes, slices, joins, gathers. Most are one strided copy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .... import _kernels
from ...._sizes import whole
from ....errors import InferenceError
from ....model.constants import array_of
from ....model.types import dtype_of
from ..registry import ANY, INDICES, NUMBERS, Node, operator, stated_by
from ..values import MAX_DIMS, Context, Value
from .elementwise import _optional, _required, broadcast

if TYPE_CHECKING:
    from ....model.model import Model, NodeView

_INT64 = np.dtype(np.int64)


def axis_of(axis: int, rank: int) -> int:
    """A possibly negative axis as 0..rank-1. Raises `InferenceError` if it is out of range."""
    if not -rank <= axis < rank:
        raise InferenceError(f"axis {axis} is outside rank {rank}")
    return axis % rank


def lines_of(node: Node, x: Value) -> tuple[int, int, int]:
    """The lines that Softmax and similar operators normalize, as (outer, size, inner): they run along ``axis``. Before
    opset 13, all axes from ``axis`` on form one line."""
    if node.opset >= 13:
        axis = axis_of(node.get("axis", -1), x.rank)
        return math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])
    axis = node.get("axis", 1)
    axis = axis if axis == x.rank else axis_of(axis, x.rank)
    return math.prod(x.shape[:axis]), math.prod(x.shape[axis:]), 1


def axes_of(axes: Sequence[int], rank: int) -> list[int]:
    normalized = [axis_of(int(axis), rank) for axis in axes]
    if len(set(normalized)) != len(normalized):
        raise InferenceError(f"an axis occurs twice in {list(axes)}")
    return normalized


def strides_of(shape: Sequence[int]) -> list[int]:
    """Row-major strides in elements."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return strides[::-1]


def strided(context: Context, x: Value, offset: int, shape: Sequence[int], steps: Sequence[int]) -> Value:
    """A copy of the view of ``x`` that starts at ``offset`` and walks ``steps`` elements per index."""
    return context.call("copy_strided", [x], shape, x.dtype, [offset, len(shape), *shape, *steps])


def expanded(context: Context, x: Value, shape: tuple[int, ...]) -> Value:
    """``x`` broadcast to ``shape``, which it must fit."""
    if shape == x.shape:
        return context.reshaped(x, shape)
    padded = [1] * (len(shape) - x.rank) + list(x.shape)
    steps = [0 if size == 1 else step for size, step in zip(padded, strides_of(padded), strict=True)]
    return strided(context, x, 0, shape, steps)


def integers(
    context: Context, node: Node, inputs: Sequence[Value | None], position: int, name: str
) -> list[int] | None:
    """A list of integers that is an input in newer opsets and an attribute in older ones; None if absent."""
    value = _optional(inputs, position)
    if value is not None:
        return [whole(entry) for entry in context.known(value).reshape(-1)]
    attribute = node.get(name, None)
    return None if attribute is None else [int(entry) for entry in attribute]


@operator("Shape", dtypes=ANY, attributes={"start": None, "end": None}, result="int64")
def _shape(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    shape = _required(inputs[0]).shape
    return [context.integers(shape[slice(node.get("start", 0), node.get("end", None))])]


@operator("Size", dtypes=ANY, result="int64")
def _size(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    return [context.integers([_required(inputs[0]).size], ())]


@operator("Reshape", dtypes=(ANY, ("int64",)), attributes={"allowzero": (0, 1), "shape": None, "consumed_inputs": None})
def _reshape(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    shape = integers(context, node, inputs, 1, "shape")
    if shape is None:
        raise InferenceError("the shape is missing")
    if not node.get("allowzero", 0):
        if any(size == 0 and i >= x.rank for i, size in enumerate(shape)):
            raise InferenceError(f"shape {shape} copies a dimension that {list(x.shape)} does not have")
        shape = [x.shape[i] if size == 0 else size for i, size in enumerate(shape)]
    if shape.count(-1) > 1 or min(shape, default=0) < -1:
        raise InferenceError(f"cannot reshape {list(x.shape)} to {shape}")
    if -1 in shape:
        rest = math.prod(size for size in shape if size != -1)
        if rest == 0 or x.size % rest:
            raise InferenceError(f"cannot reshape {list(x.shape)} to {shape}")
        shape = [x.size // rest if size == -1 else size for size in shape]
    if math.prod(shape) != x.size:
        raise InferenceError(f"cannot reshape {list(x.shape)} to {shape}")
    return [context.reshaped(x, shape)]


@operator("Flatten", dtypes=ANY, attributes={"axis": None})
def _flatten(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    axis = node.get("axis", 1)
    if not -x.rank <= axis <= x.rank:
        raise InferenceError(f"axis {axis} is outside rank {x.rank}")
    axis += x.rank if axis < 0 else 0
    return [context.reshaped(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))]


@operator("Squeeze", dtypes=(ANY, ("int64",)), attributes={"axes": None})
def _squeeze(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    axes_input = integers(context, node, inputs, 1, "axes")
    axes = [i for i, size in enumerate(x.shape) if size == 1] if axes_input is None else axes_of(axes_input, x.rank)
    if any(x.shape[axis] != 1 for axis in axes):
        raise InferenceError(f"cannot squeeze axes {axes} of shape {list(x.shape)}")
    return [context.reshaped(x, [size for i, size in enumerate(x.shape) if i not in axes])]


@operator("Unsqueeze", dtypes=(ANY, ("int64",)), attributes={"axes": None})
def _unsqueeze(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    axes_input = integers(context, node, inputs, 1, "axes") or []
    axes = axes_of(axes_input, x.rank + len(axes_input))
    rest = iter(x.shape)
    return [context.reshaped(x, [1 if i in axes else next(rest) for i in range(x.rank + len(axes))])]


@operator("Transpose", dtypes=ANY, attributes={"perm": None})
def _transpose(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    perm = node.get("perm", None)
    perm = list(range(x.rank))[::-1] if perm is None else axes_of(perm, x.rank)
    if len(perm) != x.rank:
        raise InferenceError(f"perm {perm} does not fit rank {x.rank}")
    return [transposed(context, x, perm)]


def transposed(context: Context, x: Value, perm: Sequence[int]) -> Value:
    shape = [x.shape[axis] for axis in perm]
    moved = [axis for axis in perm if x.shape[axis] != 1]
    if moved == sorted(moved):
        return context.reshaped(x, shape)
    strides = strides_of(x.shape)
    return strided(context, x, 0, shape, [strides[axis] for axis in perm])


@operator("Expand", dtypes=(ANY, ("int64",)))
def _expand(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    asked = tuple(whole(size) for size in context.known(_required(inputs[1])))
    return [expanded(context, x, broadcast(x, Value(x.dtype, asked)))]


@operator("Tile", dtypes=(ANY, ("int64",)), since=6)
def _tile(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    repeats = [whole(count) for count in context.known(_required(inputs[1]))]
    if len(repeats) != x.rank or min(repeats, default=0) < 0:
        raise InferenceError(f"repeats {repeats} do not fit shape {list(x.shape)}")
    if x.rank > MAX_DIMS:
        raise InferenceError(f"Tile of more than {MAX_DIMS} dimensions")
    inner, steps = [], []
    for count, size, step in zip(repeats, x.shape, strides_of(x.shape), strict=True):
        inner += [count, size]
        steps += [0, step]
    shape = [count * size for count, size in zip(repeats, x.shape, strict=True)]
    return [context.call("copy_strided", [x], shape, x.dtype, [0, len(inner), *inner, *steps])]


@operator("Concat", dtypes=ANY, attributes={"axis": None})
def _concat(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    values = [_required(value) for value in inputs]
    first = values[0]
    axis = axis_of(node.get("axis", 1), first.rank)
    if len(values) == 1:  # as exporters write for an empty cache before another
        return [first]
    for value in values:
        if value.dtype != first.dtype or (
            (*value.shape[:axis], *value.shape[axis + 1 :]) != (*first.shape[:axis], *first.shape[axis + 1 :])
        ):
            shapes = ", ".join(f"{value.dtype}{list(value.shape)}" for value in values)
            raise InferenceError(f"cannot join {shapes} along axis {axis}")
    shape = list(first.shape)
    shape[axis] = sum(value.shape[axis] for value in values)
    return [context.call("concat", values, shape, first.dtype, [axis])]


def _split_sizes(context: Context, node: Node, inputs: Sequence[Value | None], size: int) -> list[int]:
    sizes = integers(context, node, inputs, 1, "split")
    if sizes is None:
        count = node.get("num_outputs", node.num_outputs)
        if node.opset < 18 and size % count:
            raise InferenceError(f"{size} entries do not split into {count} equal parts")
        part = -(-size // count)
        sizes = [part] * (count - 1) + [size - part * (count - 1)]
    if sum(sizes) != size or min(sizes, default=0) < 0 or len(sizes) != node.num_outputs:
        raise InferenceError(f"split {sizes} does not fit {size} entries and {node.num_outputs} outputs")
    return sizes


@operator(
    "Split",
    dtypes=(ANY, ("int64",)),
    attributes={"axis": None, "split": None, "num_outputs": None},
    since=2,
    further=(0,),
)
def _split(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    axis = axis_of(node.get("axis", 0), x.rank)
    strides = strides_of(x.shape)
    results, start = [], 0
    for part in _split_sizes(context, node, inputs, x.shape[axis]):
        shape = [part if i == axis else size for i, size in enumerate(x.shape)]
        results.append(strided(context, x, start * strides[axis], shape, strides))
        start += part
    return results


def _chosen(start: int, end: int, step: int, size: int) -> tuple[int, int]:
    """The first index and the number of indices of the slice start:end:step of an axis, as in Python."""
    lowest, highest = (0, size) if step > 0 else (-1, size - 1)
    bounds = []
    for bound in (start, end):
        if bound < 0:
            bound += size
        bounds.append(lowest if bound < lowest else highest if bound > highest else bound)
    first, last = bounds
    if (first >= last) if step > 0 else (first <= last):
        return first, 0
    return first, (last - first + step - 1) // step if step > 0 else (first - last - step - 1) // -step


@operator("Slice", dtypes=(ANY, INDICES), attributes={"starts": None, "ends": None, "axes": None})
def _slice(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    starts = integers(context, node, inputs, 1, "starts")
    ends = integers(context, node, inputs, 2, "ends")
    if starts is None or ends is None or len(starts) != len(ends):
        raise InferenceError(f"expected starts and ends of equal length, found {starts} and {ends}")
    given_axes = integers(context, node, inputs, 3, "axes")
    axes = list(range(len(starts))) if given_axes is None else given_axes
    steps = integers(context, node, inputs, 4, "steps") or [1] * len(starts)
    if len(axes) != len(starts) or len(steps) != len(starts):
        raise InferenceError(
            f"expected starts, ends, axes and steps of equal length, found {starts}, {ends}, {axes}, {steps}"
        )
    shape, walk, offset = list(x.shape), strides_of(x.shape), 0
    for start, end, axis, step in zip(starts, ends, axes_of(axes, x.rank), steps, strict=True):
        if step == 0:
            raise InferenceError("Slice with a step of 0")
        # As in NumPy, except that for negative steps ONNX clamps a start before the first element to that element.
        begin = max(start, -x.shape[axis]) if step < 0 else start
        first, count = _chosen(begin, end, step, x.shape[axis])
        offset += first * walk[axis] if count else 0
        shape[axis] = count
        walk[axis] *= step if count > 1 else 1  # an unused step may be of any size
    if shape == list(x.shape) and all(step == 1 for step in steps):
        return [context.reshaped(x, shape)]
    return [strided(context, x, offset if math.prod(shape) else 0, shape, walk)]


@operator("Gather", dtypes=(ANY, INDICES), attributes={"axis": None})
def _gather(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    data, indices = _required(inputs[0]), _required(inputs[1])
    axis = axis_of(node.get("axis", 0), data.rank)
    shape = (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])
    return [context.call("gather", [data, indices], shape, data.dtype, [axis])]


@operator("GatherElements", dtypes=(ANY, INDICES), attributes={"axis": None})
def _gather_elements(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    data, indices = _required(inputs[0]), _required(inputs[1])
    axis = axis_of(node.get("axis", 0), data.rank)
    fits = data.rank == indices.rank and all(
        i == axis or small <= large for i, (small, large) in enumerate(zip(indices.shape, data.shape, strict=False))
    )
    if not fits:
        raise InferenceError(f"indices {list(indices.shape)} do not fit data {list(data.shape)}")
    return [context.call("gather_elements", [data, indices], indices.shape, data.dtype, [axis])]


@operator("GatherND", dtypes=(ANY, ("int64",)), attributes={"batch_dims": None})
def _gather_nd(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    data, indices = _required(inputs[0]), _required(inputs[1])
    batch = node.get("batch_dims", 0)
    fits = 0 <= batch < min(data.rank, indices.rank) and data.shape[:batch] == indices.shape[:batch]
    if not fits or batch + indices.shape[-1] > data.rank:
        raise InferenceError(f"indices {list(indices.shape)} do not fit data {list(data.shape)}")
    shape = (*indices.shape[:-1], *data.shape[batch + indices.shape[-1] :])
    return [context.call("gather_nd", [data, indices], shape, data.dtype, [batch])]


_REDUCTIONS = {
    name: _kernels.constant(f"SCATTER_{name.decode().upper()}") for name in (b"none", b"add", b"mul", b"max", b"min")
}


@operator(
    "ScatterElements",
    "Scatter",
    dtypes=(NUMBERS, INDICES, NUMBERS),
    attributes={"axis": None, "reduction": tuple(_REDUCTIONS)},
)
def _scatter_elements(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    data, indices, updates = (_required(value) for value in inputs)
    axis = axis_of(node.get("axis", 0), data.rank)
    if indices.shape != updates.shape or indices.rank != data.rank or updates.dtype != data.dtype:
        raise InferenceError(f"indices {list(indices.shape)} and updates {list(updates.shape)} do not fit")
    if any(i != axis and small > large for i, (small, large) in enumerate(zip(indices.shape, data.shape, strict=True))):
        raise InferenceError(f"indices {list(indices.shape)} do not fit data {list(data.shape)}")
    reduction = _REDUCTIONS[node.get("reduction", b"none")]
    return [context.call("scatter_elements", [data, indices, updates], data.shape, data.dtype, [axis, reduction])]


@operator("ScatterND", dtypes=(NUMBERS, ("int64",), NUMBERS), attributes={"reduction": tuple(_REDUCTIONS)})
def _scatter_nd(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    data, indices, updates = (_required(value) for value in inputs)
    depth = indices.shape[-1] if indices.rank else 0
    if not 0 < depth <= data.rank or updates.shape != (*indices.shape[:-1], *data.shape[depth:]):
        raise InferenceError(f"indices {list(indices.shape)} and updates {list(updates.shape)} do not fit")
    reduction = _REDUCTIONS[node.get("reduction", b"none")]
    return [context.call("scatter_nd", [data, indices, updates], data.shape, data.dtype, [reduction])]


def _fill_refusal(model: Model, view: NodeView) -> str | None:
    value = view.stored_attributes.get("value")
    dtype = None if value is None else dtype_of(value.data_type)
    if value is not None and (dtype is None or dtype.name not in ANY):
        return "ConstantOfShape of an unsupported element type"
    return None


def _fill_result(attributes: Mapping[str, Any]) -> str | None:
    value = attributes.get("value")
    dtype = np.dtype(np.float32) if value is None else dtype_of(value.data_type)
    return None if dtype is None else dtype.name


@operator("ConstantOfShape", dtypes=("int64",), attributes={"value": None}, check=_fill_refusal, result=_fill_result)
def _constant_of_shape(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    shape = [whole(size) for size in context.known(_required(inputs[0]))]
    tensor = node.get("value", None)
    value = np.zeros(1, np.float32) if tensor is None else array_of(tensor).reshape(-1)
    if value.size != 1:
        raise InferenceError(f"value has {value.size} elements, expected 1")
    return [context.call("fill", [context.constant(value)], shape, value.dtype)]


@operator("Range", dtypes=("float32", "float64", "int16", "int32", "int64"))
def _range(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    values = [_required(value) for value in inputs]
    start, limit, delta = (context.known(value).reshape(()).item() for value in values)
    if delta == 0:
        raise InferenceError("Range with a delta of 0")
    if any(isinstance(number, float) and not math.isfinite(number) for number in (start, limit, delta)):  # not a symbol
        raise InferenceError(f"Range from {start} to {limit} by {delta}: expected finite numbers")
    if values[0].dtype.kind == "f":
        count = math.ceil((limit - start) / delta)
    else:
        count = -((whole(start) - whole(limit)) // whole(delta))
    scalars = [context.reshaped(value, ()) for value in values[::2]]
    return [context.call("range", scalars, (count if count > 0 else 0,), values[0].dtype)]


_PAD_MODES = {
    name: _kernels.constant(f"PAD_{name.decode().upper()}") for name in (b"constant", b"reflect", b"edge", b"wrap")
}


@operator(
    "Pad",
    dtypes=(ANY, ("int64",), ANY, INDICES),
    attributes={"mode": tuple(_PAD_MODES), "pads": None, "value": None},
    since=2,
)
def _pad(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    pads = integers(context, node, inputs, 1, "pads")
    given_axes = integers(context, node, inputs, 3, "axes")
    axes = list(range(x.rank)) if given_axes is None else axes_of(given_axes, x.rank)
    if pads is None or len(pads) != 2 * len(axes):
        raise InferenceError(f"pads {pads} do not fit {len(axes)} axes")
    if max(map(abs, pads), default=0) > 1 << 40:
        raise InferenceError(f"pads {pads} are out of range")
    before, after = [0] * x.rank, [0] * x.rank
    for position, axis in enumerate(axes):
        before[axis], after[axis] = pads[position], pads[position + len(axes)]
    shape = [low + size + high for low, size, high in zip(before, x.shape, after, strict=True)]
    value = _optional(inputs, 2)
    if value is None and node.opset < 11:
        value = context.scalar(node.get("value", 0.0), x.dtype)
    name = node.get("mode", b"constant")
    mode = _PAD_MODES[name]
    if name == b"reflect":
        _check_reflection(x, before, after)
    operands = [x, value] if mode == _PAD_MODES[b"constant"] and value is not None else [x]
    return [context.call("pad", operands, shape, x.dtype, [mode, *before])]


def _check_reflection(x: Value, before: Sequence[int], after: Sequence[int]) -> None:
    """As in onnxruntime, a pad has fewer elements than negative pads leave of its axis; NumPy would reflect again."""
    for axis, (low, size, high) in enumerate(zip(before, x.shape, after, strict=True)):
        largest = high if low < high else low
        kept = size + (low if low < 0 else 0) + (high if high < 0 else 0)
        if largest > 0 and largest >= kept:
            raise InferenceError(
                f"mode reflect would add {largest} elements at one end of axis {axis} of {list(x.shape)}; "
                f"expected at most {kept - 1 if kept > 0 else 0}"
            )


@operator("CumSum", "CumProd", dtypes=(NUMBERS, INDICES), attributes={"exclusive": (0, 1), "reverse": (0, 1)})
def _cumsum(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    axis = axis_of(int(context.known(_required(inputs[1])).reshape(())), x.rank)
    flags = [int(node.get("exclusive", 0)), int(node.get("reverse", 0))]
    return [context.call(node.op_type.lower(), [x], x.shape, x.dtype, [axis, *flags])]


@operator("DepthToSpace", dtypes=ANY, attributes={"blocksize": None, "mode": (b"DCR", b"CRD")})
def _depth_to_space(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    block = node.get("blocksize", 0)
    if x.rank != 4 or block <= 0 or x.shape[1] % (block * block):
        raise InferenceError(f"blocksize {block} does not fit {list(x.shape)}")
    n, c, h, w = x.shape
    depth = c // (block * block)
    if node.get("mode", b"DCR") == b"DCR":
        split, perm = (n, block, block, depth, h, w), (0, 3, 4, 1, 5, 2)
    else:
        split, perm = (n, depth, block, block, h, w), (0, 1, 4, 2, 5, 3)
    moved = transposed(context, context.reshaped(x, split), perm)
    return [context.reshaped(moved, (n, depth, h * block, w * block))]


@operator("SpaceToDepth", dtypes=ANY, attributes={"blocksize": None, "mode": (b"DCR", b"CRD")})
def _space_to_depth(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    block = node.get("blocksize", 0)
    if x.rank != 4 or block <= 0 or x.shape[2] % block or x.shape[3] % block:
        raise InferenceError(f"blocksize {block} does not fit {list(x.shape)}")
    n, c, h, w = x.shape
    split = (n, c, h // block, block, w // block, block)
    perm = (0, 3, 5, 1, 2, 4) if node.get("mode", b"DCR") == b"DCR" else (0, 1, 3, 5, 2, 4)
    return [
        context.reshaped(
            transposed(context, context.reshaped(x, split), perm), (n, c * block * block, h // block, w // block)
        )
    ]


def _bitcast_refusal(model: Model, view: NodeView) -> str | None:
    dtype, source = dtype_of(view.attributes.get("to", 0)), model.type_of(int(model.node_inputs[view.index][0])).dtype
    if dtype is None or dtype.name not in _BITS:
        return f"BitCast to {dtype or view.attributes.get('to', 0)}"
    if source is None or source.itemsize != dtype.itemsize:
        return f"BitCast of {source} to {dtype}, whose size differs"
    return None


_BITS = (*NUMBERS, "float16", "bfloat16")  # any bits are a value of these


@operator("BitCast", dtypes=ANY, attributes={"to": None}, check=_bitcast_refusal, result=stated_by("to", 0))
def _bitcast(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x, dtype = _required(inputs[0]), dtype_of(node.get("to", 0))
    assert dtype is not None
    return [context.call("bitcast", [x], x.shape, dtype)]


@operator("TensorScatter", dtypes=(ANY, ANY, ("int64",)), attributes={"axis": None, "mode": (b"linear", b"circular")})
def _tensor_scatter(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    """A copy of the cache with new entries along an axis. Each batch has its own first index."""
    cache, update, places = _required(inputs[0]), _required(inputs[1]), _optional(inputs, 2)
    axis = axis_of(node.get("axis", -2), cache.rank)
    fits = update.rank == cache.rank and update.dtype == cache.dtype and axis > 0
    if not fits or any(i != axis and a != b for i, (a, b) in enumerate(zip(cache.shape, update.shape, strict=True))):
        raise InferenceError(f"update {list(update.shape)} does not fit a cache {list(cache.shape)}, axis {axis}")
    batch, length, size = cache.shape[0], update.shape[axis], cache.shape[axis]
    if length > size or (places is not None and places.shape != (batch,)):
        raise InferenceError(f"update {list(update.shape)} or write_indices does not fit a cache {list(cache.shape)}")
    steps = context.reshaped(context.counting(length), (1, length))
    at, rows = steps, 1
    if places is not None:
        at, rows = context.call("add", [context.reshaped(places, (batch, 1)), steps], (batch, length), _INT64), batch
    if node.get("mode", b"linear") == b"circular" and size:
        at = context.call("mod", [at, context.scalar(size, _INT64)], (rows, length), _INT64)
    walk = [0] * cache.rank
    walk[0], walk[axis] = 0 if places is None else length, 1
    indices = strided(context, at, 0, update.shape, walk)
    return [context.call("scatter_elements", [cache, indices, update], cache.shape, cache.dtype, [axis, 0])]
