"""Operators over spatial axes that invert or generalize others: ConvTranspose, Col2Im, MaxUnpool, LpPool."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .... import _kernels
from ...._sizes import ask
from ....errors import InferenceError
from ..registry import FLOATS, Node, operator
from ..values import Context, Value
from .elementwise import _optional, _required
from .movement import transposed
from .network import MAX_WINDOW, WINDOW, packed_b, pool_sizes, reduced, three, window_of

if TYPE_CHECKING:
    from ....model.model import Model, NodeView

_ASSIGN = _kernels.constant("SCATTER_NONE")
_PANEL = _kernels.constant("PANEL")
_SHORT_ROW = 16  # windows of a row up to which a transposed convolution is faster with channels in the lanes
_LANES_PLANE = 1 << 13  # elements of a plane of its result for which its sums stay in the L2 cache: 512 KB


def _list(node: Node, name: str, rank: int, default: int, minimum: int, count: int = 1) -> list[int]:
    numbers = [int(entry) for entry in node.get(name, None) or [default] * (rank * count)]
    if len(numbers) != rank * count or min(numbers) < minimum or max(numbers) > MAX_WINDOW:
        raise InferenceError(f"{name} {numbers} do not fit {rank} spatial axes")
    return numbers


@operator("ConvTranspose", dtypes=FLOATS, attributes=WINDOW | {
    "group": None, "output_padding": None, "output_shape": None,
})  # fmt: skip
def _conv_transpose(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    """A matrix product per group computes what each element of x contributes to the result; `col2im` adds it up."""
    x, weights, bias = _required(inputs[0]), _required(inputs[1]), _optional(inputs, 2)
    rank, group = x.rank - 2, node.get("group", 1)
    if not 1 <= rank <= 3 or weights.rank != x.rank:
        raise InferenceError(f"weights {list(weights.shape)} do not fit the input {list(x.shape)}")
    kernel, channels, maps = weights.shape[2:], x.shape[1], weights.shape[1]
    if list(node.get("kernel_shape", kernel)) != list(kernel) or min(kernel) < 1:
        raise InferenceError(f"weights {list(weights.shape)} do not fit kernel_shape {node.get('kernel_shape', None)}")
    if group < 1 or channels % group or weights.shape[0] != channels:
        raise InferenceError(f"weights {list(weights.shape)}, group {group} do not fit {channels} channels")
    if bias is not None and bias.shape != (group * maps,):
        raise InferenceError(f"a bias of shape {list(bias.shape)} does not fit {group * maps} channels")
    strides, dilations, before, sizes = _enlarged(node, x.shape[2:], kernel)
    shape = (x.shape[0], group * maps, *sizes)
    ints = [*three(kernel, 1), *three(x.shape[2:], 1), *three(strides, 1), *three(before, 0), *three(dilations, 1)]
    can_pack = weights.data is not None and x.data is None and x.dtype == np.float32
    is_short = x.shape[-1] <= _SHORT_ROW and math.prod(sizes) <= _LANES_PLANE
    # With few windows, the product alone is so much faster that lanes may stay empty.
    if can_pack and is_short and (maps >= _PANEL or math.prod(x.shape[2:]) < _PANEL):
        columns = _by_window(context, x, weights, group)
        return [context.call("col2im_lanes", [columns, bias], shape, x.dtype, [*ints, group])]
    return [context.call("col2im", [_by_channel(context, x, weights, group), bias], shape, x.dtype, ints)]


def _by_window(context: Context, x: Value, weights: Value, group: int) -> Value:
    """The contribution of each window, [batch, group, windows, taps * channels]: a product with packed weights."""
    depth, maps, taps = weights.shape[0] // group, weights.shape[1], math.prod(weights.shape[2:])
    batch, windows, columns = x.shape[0], math.prod(x.shape[2:]), taps * maps

    def pack() -> Value:
        channels_last = transposed(context, context.reshaped(weights, (group, depth, maps, taps)), (0, 1, 3, 2))
        return packed_b(
            context,
            context.reshaped(channels_last, (group, depth, columns)),
            group,
            depth,
            columns,
            False,
            as_float32=True,
        )

    right = context.packed(weights, ("by_window", group), pack)
    steps = [group * depth * windows, depth * windows, 0, ask("panel_floats", depth, columns)]
    ints = [windows, columns, depth, 1, 0, 1, 0, 0, 0, 2, batch, group, *steps]
    shape = (batch, group, windows, columns)
    return context.call("matmul", [x, right, None, None], shape, x.dtype, ints, [1.0, 0.0, 0.0, 0.0])


def _by_channel(context: Context, x: Value, weights: Value, group: int) -> Value:
    """The contributions to each channel of the result, [batch, group, channels * taps, windows]."""
    depth, rows = weights.shape[0] // group, math.prod(weights.shape[1:])
    batch, windows = x.shape[0], math.prod(x.shape[2:])

    def by_output() -> Value:
        return transposed(context, context.reshaped(weights, (group, depth, rows)), (0, 2, 1))

    left = context.packed(weights, ("by_output", group), by_output) if weights.data is not None else by_output()
    steps = [0, rows * depth, group * depth * windows, depth * windows]
    ints = [rows, windows, depth, 0, 0, 0, 0, 0, 0, 2, batch, group, *steps]
    shape = (batch, group, rows, windows)
    return context.call("matmul", [left, x, None, None], shape, x.dtype, ints, [1.0, 0.0, 0.0, 0.0])


def _enlarged(
    node: Node, spatial: Sequence[int], kernel: Sequence[int]
) -> tuple[list[int], list[int], list[int], list[int]]:
    """Strides, dilations, pads before and sizes of a transposed convolution."""
    rank = len(spatial)
    strides, dilations = _list(node, "strides", rank, 1, 1), _list(node, "dilations", rank, 1, 1)
    pads, more = _list(node, "pads", rank, 0, 0, 2), _list(node, "output_padding", rank, 0, 0)
    auto_pad, asked = node.get("auto_pad", b"NOTSET"), node.get("output_shape", None)
    if asked is not None and len(asked) == rank + 2:
        asked = asked[2:]
    if asked is not None and (len(asked) != rank or min(asked) < 0):
        raise InferenceError(f"output_shape {list(asked)} does not fit {rank} spatial axes")
    before, sizes = pads[:rank], []
    for i in range(rank):
        span = dilations[i] * (kernel[i] - 1) + 1
        if span > MAX_WINDOW:
            raise InferenceError(f"a kernel of {kernel[i]} with dilation {dilations[i]} is out of range")
        room = strides[i] * (spatial[i] - 1) + more[i] + span
        if asked is not None or auto_pad in (b"SAME_UPPER", b"SAME_LOWER"):
            size = asked[i] if asked is not None else spatial[i] * strides[i]
            total = max(room - size, 0)
            before[i] = total // 2 if auto_pad == b"SAME_UPPER" else total - total // 2
        elif auto_pad == b"VALID":
            before[i], size = 0, room
        else:
            size = room - pads[i] - pads[i + rank]
        if size < 0 or spatial[i] < 1:
            raise InferenceError(f"pads {pads} and a kernel of {list(kernel)} leave no output for {list(spatial)}")
        sizes.append(size)
    return strides, dilations, before, sizes


def _col2im_refusal(model: Model, view: NodeView) -> str | None:
    shape = model.type_of(int(model.node_inputs[view.index][1])).shape
    if shape is None or len(shape) != 1 or not isinstance(shape[0], int) or shape[0] <= 3:
        return None
    return "Col2Im over more than three spatial axes"


@operator("Col2Im", dtypes=(FLOATS, ("int64",)), attributes={"strides": None, "pads": None, "dilations": None},
          check=_col2im_refusal)  # fmt: skip
def _col2im(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    image, block = ([int(entry) for entry in context.known(_required(value)).reshape(-1)] for value in inputs[1:3])
    rank = len(image)
    if not 1 <= rank <= 3 or len(block) != rank or min(block) < 1 or min(image) < 0 or max(*image, *block) > MAX_WINDOW:
        raise InferenceError(f"image_shape {image} and block_shape {block} do not fit")
    strides, dilations = _list(node, "strides", rank, 1, 1), _list(node, "dilations", rank, 1, 1)
    pads = _list(node, "pads", rank, 0, 0, 2)
    windows = [
        (image[i] + pads[i] + pads[i + rank] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1 for i in range(rank)
    ]
    taps = math.prod(block)
    if min(windows) < 0 or x.rank != 3 or x.shape[1] % taps or x.shape[2] != math.prod(windows):
        raise InferenceError(f"columns {list(x.shape)} do not fit blocks {block} of an image {image}")
    ints = [*three(block, 1), *three(windows, 1), *three(strides, 1), *three(pads[:rank], 0), *three(dilations, 1)]
    return [context.call("col2im", [x, None], (x.shape[0], x.shape[1] // taps, *image), x.dtype, ints)]


def _unpool_refusal(model: Model, view: NodeView) -> str | None:
    if any(view.inputs[2:]):
        return "MaxUnpool with output_shape: ONNX's node test computes indices without it, onnxruntime with it"
    return None


@operator("MaxUnpool", dtypes=(FLOATS, ("int64",)), check=_unpool_refusal, attributes={
    "kernel_shape": None, "strides": None, "pads": None,
})  # fmt: skip
def _max_unpool(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x, places = _required(inputs[0]), _required(inputs[1])
    rank = x.rank - 2
    kernel = [int(size) for size in node.get("kernel_shape", ())]
    if rank < 1 or len(kernel) != rank or min(kernel) < 1 or max(kernel) > MAX_WINDOW or places.shape != x.shape:
        raise InferenceError(f"kernel_shape {kernel} and indices {list(places.shape)} do not fit {list(x.shape)}")
    strides, pads = _list(node, "strides", rank, 1, 1), _list(node, "pads", rank, 0, 0, 2)
    shape = [*x.shape[:2]]
    for i in range(rank):
        shape.append((x.shape[2 + i] - 1) * strides[i] + kernel[i] - pads[i] - pads[i + rank])
    size, known = math.prod(shape), x.data is not None and places.data is not None
    # Filled in every run unless all is known: the scatter would have to read and copy a constant.
    (zeros,) = context.call_many("fill", [context.scalar(0, x.dtype)], [((size,), x.dtype)], fold=known)
    flat, at = context.reshaped(x, (x.size,)), context.reshaped(places, (x.size,))
    result = context.call("scatter_elements", [zeros, at, flat], zeros.shape, x.dtype, [0, _ASSIGN])
    return [context.reshaped(result, shape)]


def _lp_refusal(model: Model, view: NodeView) -> str | None:
    p = view.attributes.get("p", 2)
    if p != int(p) or not 1 <= p <= 1 << 20:
        return f"{view.op_type} with p = {p}; kernels support whole numbers of at least 1"
    return None


@operator("LpPool", dtypes=FLOATS, attributes=WINDOW | {"p": None, "ceil_mode": (0, 1)}, check=_lp_refusal)
def _lp_pool(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    kernel = list(node.get("kernel_shape", ()))
    strides, dilations, before, after, sizes = window_of(node, x, kernel)
    sizes = pool_sizes(node, x, kernel, strides, dilations, before, after, sizes)
    ints = [*three(kernel, 1), *three(strides, 1), *three(before, 0), *three(dilations, 1), int(node.get("p", 2))]
    return [context.call("lp_pool", [x], (*x.shape[:2], *sizes), x.dtype, ints)]


@operator("GlobalLpPool", dtypes=FLOATS, attributes={"p": None}, check=_lp_refusal)
def _global_lp_pool(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x, p = _required(inputs[0]), int(node.get("p", 2))
    if x.rank < 3:
        raise InferenceError(f"expected an input of rank 3 or more, found shape {list(x.shape)}")
    if p <= 2:
        return [reduced(context, x, "magnitudes" if p == 1 else "root", range(2, x.rank), keep=True)]
    size = math.prod(x.shape[2:])
    if size == 0:
        raise InferenceError(f"the spatial axes of {list(x.shape)} are empty")
    line = context.reshaped(x, (*x.shape[:2], size))
    ints = [1, 1, size, 1, 1, 1, 0, 0, 0, 1, 1, 1, p]
    pooled = context.call("lp_pool", [line], (*x.shape[:2], 1), x.dtype, ints)
    return [context.reshaped(pooled, (*x.shape[:2], *[1] * (x.rank - 2)))]
