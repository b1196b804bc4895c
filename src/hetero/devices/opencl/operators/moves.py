"""Operators that move elements: views where the order stays, otherwise one copy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....errors import InferenceError
from ..builder import contiguous
from ..device import file_kernel
from ..tensors import Tensor
from .table import ANY, INDICES, LAYOUT, PlannedNode, StaticNode, add, axis_of, text

__all__: list[str] = []

_INT64 = frozenset({"int64"})


def _host(function: Any) -> Any:
    """A function of the attributes, the version and arrays, for `Operator.on_host`, from one that returns the new
    shape."""

    def on_host(attributes: Mapping[str, Any], version: int, inputs: Sequence[Any]) -> Any:
        return inputs[0].reshape(function(attributes, version, inputs[0].shape, inputs[1:]))

    return on_host


def _viewed(function: Any) -> Any:
    """A plan of a node whose result is its first input with another shape."""

    def plan(node: PlannedNode) -> Sequence[Tensor]:
        arrays = [node.array(position) for position in range(1, len(node.inputs))]
        shape = function(node.attributes, node.version, node[0].shape, arrays)
        return [node.builder.view(node[0], shape)]

    return plan


def _axes(attributes: Mapping[str, Any], arrays: Sequence[Any]) -> list[int] | None:
    """Axes from the first of ``arrays`` or the attribute."""
    if arrays and arrays[0] is not None:
        return [int(axis) for axis in arrays[0].reshape(-1)]
    axes = attributes.get("axes")
    return None if axes is None else [int(axis) for axis in axes]


def _distinct(axes: Sequence[int], rank: int) -> list[int]:
    resolved = [axis_of(axis, rank) for axis in axes]
    if len(set(resolved)) != len(resolved):
        raise InferenceError(f"the axes {list(axes)} are not distinct")
    return resolved


def _reshaped(attributes: Mapping[str, Any], version: int, shape: tuple[int, ...], arrays: Sequence[Any]) -> list[int]:
    sizes = [int(size) for size in arrays[0].reshape(-1)]
    count = math.prod(shape)
    if not attributes.get("allowzero", 0):
        if any(size == 0 and at >= len(shape) for at, size in enumerate(sizes)):
            raise InferenceError(f"the shape {sizes} copies a dimension that {list(shape)} does not have")
        sizes = [shape[at] if size == 0 else size for at, size in enumerate(sizes)]
    if sizes.count(-1) == 1:
        known = math.prod(size for size in sizes if size != -1)
        sizes[sizes.index(-1)] = count // known if known and count % known == 0 else 0
    if min(sizes, default=0) < 0 or math.prod(sizes) != count:
        raise InferenceError(f"a tensor of shape {list(shape)} cannot have the shape {arrays[0].reshape(-1).tolist()}")
    return sizes


def _squeezed(attributes: Mapping[str, Any], version: int, shape: tuple[int, ...], arrays: Sequence[Any]) -> list[int]:
    axes = _axes(attributes, arrays)
    if axes is None:
        return [size for size in shape if size != 1]
    dropped = _distinct(axes, len(shape))
    if any(shape[axis] != 1 for axis in dropped):
        raise InferenceError(f"the axes {axes} of a tensor of shape {list(shape)} do not all have size 1")
    return [size for at, size in enumerate(shape) if at not in dropped]


def _unsqueezed(
    attributes: Mapping[str, Any], version: int, shape: tuple[int, ...], arrays: Sequence[Any]
) -> list[int]:
    axes = _axes(attributes, arrays)
    if axes is None:
        raise InferenceError("Unsqueeze has no axes")
    rank = len(shape) + len(axes)
    added, rest = _distinct(axes, rank), iter(shape)
    return [1 if at in added else next(rest) for at in range(rank)]


def _flattened(attributes: Mapping[str, Any], version: int, shape: tuple[int, ...], arrays: Sequence[Any]) -> list[int]:
    axis = axis_of(int(attributes.get("axis", 1)), len(shape), last=1)
    return [math.prod(shape[:axis]), math.prod(shape[axis:])]


add(
    "Reshape",
    (5, 13, 14, 19, *LAYOUT),
    (ANY, _INT64),
    _viewed(_reshaped),
    ("allowzero",),
    host=(1,),
    on_host=_host(_reshaped),
)
for _name, _function in (("Squeeze", _squeezed), ("Unsqueeze", _unsqueezed)):
    add(
        _name,
        (1, 11, 13, *LAYOUT),
        (ANY, _INT64),
        _viewed(_function),
        ("axes",),
        host=(1,),
        on_host=_host(_function),
    )
add("Flatten", (1, 9, 11, 13, *LAYOUT), (ANY,), _viewed(_flattened), ("axis",), on_host=_host(_flattened))


# -- Transpose


def _order(attributes: Mapping[str, Any], rank: int) -> list[int]:
    order = [int(axis) for axis in attributes.get("perm", range(rank)[::-1])]
    if sorted(order) != list(range(rank)):
        raise InferenceError(f"{order} is not an order of {rank} dimensions")
    return order


def _transpose(node: PlannedNode) -> Sequence[Tensor]:
    return [node.builder.transpose(node[0], _order(node.attributes, node[0].rank))]


add(
    "Transpose",
    (1, 13, *LAYOUT),
    (ANY,),
    _transpose,
    ("perm",),
    on_host=lambda a, v, x: np.asarray(x[0].transpose(_order(a, x[0].ndim)), order="C"),
)


# -- Slice


def _ranges(attributes: Mapping[str, Any], version: int, shape: Sequence[int], arrays: Sequence[Any]) -> list[slice]:
    """A slice for each dimension, with bounds that Python reads as ONNX does."""

    def integers(name: str, position: int) -> list[int] | None:
        given = attributes.get(name) if version < 10 else arrays[position] if position < len(arrays) else None
        return None if given is None else [int(each) for each in np.asarray(given).reshape(-1)]

    starts, ends, axes, steps = (integers(name, at) for at, name in enumerate(("starts", "ends", "axes", "steps")))
    if starts is None or ends is None:
        raise InferenceError("Slice has no starts or no ends")
    axes = list(range(len(starts))) if axes is None else _distinct(axes, len(shape))
    steps = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps) or len(axes) > len(shape) or 0 in steps:
        raise InferenceError(f"Slice has wrong starts {starts}, ends {ends}, axes {axes} or steps {steps}")
    ranges = [slice(0, size, 1) for size in shape]
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        size = shape[axis]
        start, end = (each + size if each < 0 else each for each in (start, end))
        if step > 0:
            ranges[axis] = slice(min(max(start, 0), size), min(max(end, 0), size), step)
        else:
            ranges[axis] = slice(min(max(start, 0), size - 1), min(max(end, -1), size - 1), step)
    return ranges


def _slice(node: PlannedNode) -> Sequence[Tensor]:
    x = node[0]
    arrays = [node.array(position) for position in range(1, len(node.inputs))]
    ranges = _ranges(node.attributes, node.version, x.shape, arrays)
    shape = [len(range(each.start, each.stop, each.step)) for each in ranges]
    if tuple(shape) == x.shape and all(each.step == 1 or size <= 1 for each, size in zip(ranges, shape, strict=True)):
        return [node.builder.view(x, shape)]
    result = node.builder.new(x.dtype, shape)
    if result.size:
        strides = contiguous(x.shape)
        begin = sum(each.start * stride for each, stride in zip(ranges, strides, strict=True))
        steps = [each.step * stride for each, stride in zip(ranges, strides, strict=True)]
        node.builder.move(x, result, shape, steps, contiguous(shape), (begin, 0))
    return [result]


def _sliced(attributes: Mapping[str, Any], version: int, inputs: Sequence[Any]) -> Any:
    x = inputs[0]
    for axis, each in enumerate(_ranges(attributes, version, x.shape, inputs[1:])):
        x = np.take(x, np.arange(each.start, each.stop, each.step), axis)
    return x


def _check_slice(node: StaticNode) -> str | None:
    return None if node.version < 10 or len(node.inputs) >= 3 else "it has no ends"


add(
    "Slice",
    (1, 10, 11, 13),
    (ANY, INDICES),
    _slice,
    ("starts", "ends", "axes"),
    host=(1, 2, 3, 4),
    check=_check_slice,
    on_host=_sliced,
)


# -- Concat and Split


def _concat(node: PlannedNode) -> Sequence[Tensor]:
    tensors = [node[position] for position in range(len(node.inputs))]
    first = tensors[0]
    axis = axis_of(int(node.attributes["axis"]), first.rank)
    for each in tensors:
        if each.rank != first.rank or any(
            a != b for at, (a, b) in enumerate(zip(each.shape, first.shape, strict=True)) if at != axis
        ):
            raise InferenceError(f"tensors of shapes {[list(t.shape) for t in tensors]} cannot be joined")
    shape = list(first.shape)
    shape[axis] = sum(each.shape[axis] for each in tensors)
    result = node.builder.new(first.dtype, shape)
    strides, begin = contiguous(shape), 0
    for each in tensors:
        node.builder.move(each, result, each.shape, contiguous(each.shape), strides, (0, begin * strides[axis]))
        begin += each.shape[axis]
    return [result]


def _check_concat(node: StaticNode) -> str | None:
    if "axis" not in node.attributes:
        return "its attribute 'axis' is missing"
    kinds = {str(kind.dtype) for kind in node.inputs if kind is not None}
    return None if len(kinds) == 1 else f"its inputs must have one element type, found {' and '.join(sorted(kinds))}"


add(
    "Concat",
    (4, 11, 13),
    (ANY,),
    _concat,
    ("axis",),
    check=_check_concat,
    on_host=lambda a, v, x: np.concatenate(x, int(a["axis"])),
)


def _split(node: PlannedNode) -> Sequence[Tensor]:
    x = node[0]
    axis = axis_of(int(node.attributes.get("axis", 0)), x.rank)
    size = x.shape[axis]
    sizes = node.integers(1) if node.version >= 13 else node.attributes.get("split")
    if sizes is None:
        count = int(node.attributes.get("num_outputs", node.num_outputs))
        each = -(-size // count)
        if node.version < 18 and each * count != size:
            raise InferenceError(f"a dimension of size {size} cannot be split into {count} equal parts")
        sizes = [max(0, min(each, size - at * each)) for at in range(count)]
    sizes = [int(each) for each in sizes]
    if sum(sizes) != size or min(sizes) < 0 or len(sizes) < node.num_outputs:
        raise InferenceError(f"a dimension of size {size} cannot be split into {sizes}")
    results, begin, strides = [], 0, contiguous(x.shape)
    for each in sizes[: node.num_outputs]:
        shape = [*x.shape[:axis], each, *x.shape[axis + 1 :]]
        result = node.builder.new(x.dtype, shape)
        node.builder.move(x, result, shape, strides, contiguous(shape), (begin * strides[axis], 0))
        results.append(result)
        begin += each
    return results


def _check_split(node: StaticNode) -> str | None:
    count = node.attributes.get("num_outputs")
    if count is not None and (count < 1 or (node.has(1) and node.version >= 18) or count != node.num_outputs):
        return "its attribute 'num_outputs' does not match its outputs"
    return None


add(
    "Split",
    (2, 11, 13, 18),
    (ANY, _INT64),
    _split,
    ("axis", "split", "num_outputs"),
    host=(1,),
    check=_check_split,
    num_outputs=1 << 16,
)


# -- Gather


def _gather(node: PlannedNode) -> Sequence[Tensor]:
    x, indices, builder = node[0], node[1], node.builder
    axis = axis_of(int(node.attributes.get("axis", 0)), x.rank)
    result = builder.new(x.dtype, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))
    types = (("T", {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong"}[x.dtype.itemsize]),)
    source = file_kernel("moves.cl", "gather", defines=(*types, ("I", _C_INDEX[indices.dtype.name])))
    numbers = [np.uint32(result.size), np.uint32(x.shape[axis]), np.uint32(math.prod(x.shape[axis + 1 :]))]
    numbers += [np.uint32(indices.size)]
    mark = np.int32(builder.node + 1)
    builder.per_element(source, [x, indices, result, builder.failure_flag(), *numbers, mark], result)
    return [result]


_C_INDEX = {"int32": "int", "int64": "long"}


def _gathered(attributes: Mapping[str, Any], version: int, inputs: Sequence[Any]) -> Any:
    x, indices = inputs
    axis = axis_of(int(attributes.get("axis", 0)), x.ndim)
    size = x.shape[axis]
    if indices.size and not (-size <= indices.min() and indices.max() < size):
        raise InferenceError(f"an index is outside of a dimension of size {size}")
    return np.take(x, indices, axis)


add("Gather", (1, 11, 13), (ANY, INDICES), _gather, ("axis",), on_host=_gathered)


# -- Expand and Tile


def _target(x: tuple[int, ...], shape: Any) -> tuple[int, ...]:
    sizes = tuple(int(size) for size in shape.reshape(-1))
    rank = max(len(x), len(sizes))
    pairs = zip((1,) * (rank - len(x)) + x, (1,) * (rank - len(sizes)) + sizes, strict=True)
    target = []
    for own, wanted in pairs:
        if wanted < 0 or (own != wanted and 1 not in (own, wanted)):
            raise InferenceError(f"a tensor of shape {list(x)} cannot be broadcast to {list(sizes)}")
        target.append(wanted if own == 1 else own)
    return tuple(target)


def _expand(node: PlannedNode) -> Sequence[Tensor]:
    shape = node.array(1)
    assert shape is not None
    return [node.builder.expand(node.builder.view(node[0], node[0].shape), _target(node[0].shape, shape))]


add(
    "Expand",
    (8, 13),
    (ANY, _INT64),
    _expand,
    host=(1,),
    states_size=True,
    on_host=lambda a, v, x: np.asarray(np.broadcast_to(x[0], _target(x[0].shape, x[1])), order="C"),
)


def _tile(node: PlannedNode) -> Sequence[Tensor]:
    x, repeats = node[0], node.integers(1)
    if repeats is None or len(repeats) != x.rank or min(repeats, default=0) < 0:
        raise InferenceError(f"expected {x.rank} repeats, found {repeats}")
    result = node.builder.new(x.dtype, [size * times for size, times in zip(x.shape, repeats, strict=True)])
    dims = [each for pair in zip(repeats, x.shape, strict=True) for each in pair]
    strides = [each for stride in contiguous(x.shape) for each in (0, stride)]
    if result.size:
        node.builder.move(x, result, dims, strides, contiguous(dims))
    return [result]


add("Tile", (6, 13), (ANY, _INT64), _tile, host=(1,))


# -- Pad


def _pad(node: PlannedNode) -> Sequence[Tensor]:
    x, builder = node[0], node.builder
    if node.version < 11:
        pads, value = [int(each) for each in node.attributes["pads"]], node.attributes.get("value", 0.0)
        axes = list(range(x.rank))
    else:
        found, given, chosen = node.integers(1), node.array(2), node.integers(3)
        pads, value = found or [], 0 if given is None or not given.size else given.reshape(-1)[0]
        axes = list(range(x.rank)) if chosen is None else _distinct(chosen, x.rank)
    if len(pads) != 2 * len(axes):
        raise InferenceError(f"expected {2 * len(axes)} pads, found {len(pads)}")
    before, after = [0] * x.rank, [0] * x.rank
    for at, axis in enumerate(axes):
        before[axis], after[axis] = pads[at], pads[at + len(axes)]
    shape = [size + low + high for size, low, high in zip(x.shape, before, after, strict=True)]
    if min(shape, default=0) < 0:
        raise InferenceError(f"the pads {pads} remove more than a tensor of shape {list(x.shape)} has")
    result = builder.new(x.dtype, shape)
    if any(pad > 0 for pad in (*before, *after)):
        builder.fill(result, value, x.dtype)
    kept = [max(0, size + min(low, 0) + min(high, 0)) for size, low, high in zip(x.shape, before, after, strict=True)]
    strides, steps = contiguous(x.shape), contiguous(shape)
    begin = sum(max(-low, 0) * stride for low, stride in zip(before, strides, strict=True))
    to = sum(max(low, 0) * step for low, step in zip(before, steps, strict=True))
    builder.move(x, result, kept, strides, steps, (begin, to))
    return [result]


def _check_pad(node: StaticNode) -> str | None:
    mode = text(node.attributes.get("mode"), "constant")
    if mode != "constant":
        return "only its mode 'constant' is supported"
    if node.version < 11 and "pads" not in node.attributes:
        return "its attribute 'pads' is missing"
    return None


add(
    "Pad",
    (2, 11, 13, 18, 19, *LAYOUT),
    (ANY, _INT64, ANY, INDICES),
    _pad,
    ("mode", "pads", "value"),
    host=(1, 2, 3),
    check=_check_pad,
)
