"""Conv, MaxPool, AveragePool and LRN, over one or two spatial dimensions."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ....errors import InferenceError
from ..device import file_kernel
from ..product import Matrix, multiply
from ..tensors import Tensor
from .table import FLOATS, PlannedNode, StaticNode, add, text

__all__: list[str] = []

_COLUMN_BYTES = 32 << 20
"""B: the maximum size of the columns of a convolution. Larger ones are computed in parts."""
_SHALLOW = 16
"""Convolutions that multiply fewer numbers for each element of the result, such as depthwise ones, compute it directly:
columns would be larger than the input."""


@dataclasses.dataclass(frozen=True)
class _Window:
    """A window that moves over images: two entries each, for height and width."""

    size: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int]
    output: tuple[int, int]

    def packed(self, x: Sequence[int], out_channels: int, groups: int) -> np.ndarray:
        """The struct of windows.cl. ``x``: [batch, channels, height, width]."""
        numbers = (*x[1:], out_channels, *self.output, *self.size, *self.strides, *self.dilations, *self.pads, groups)
        return np.array(numbers, np.int32)


def _window(attributes: Mapping[str, Any], kernel: Sequence[int], image: Sequence[int]) -> _Window:
    """The window for images of a height and width. ``kernel`` and ``image``: one or two entries."""
    rank = len(image)
    if len(kernel) != rank or rank not in (1, 2) or min(kernel) < 1:
        raise InferenceError(f"a window of {list(kernel)} does not fit images of {list(image)}")
    strides = [int(each) for each in attributes.get("strides", (1,) * rank)]
    dilations = [int(each) for each in attributes.get("dilations", (1,) * rank)]
    pads = [int(each) for each in attributes.get("pads", (0,) * (2 * rank))]
    if len(strides) != rank or len(dilations) != rank or len(pads) != 2 * rank:
        raise InferenceError(f"expected strides, dilations and pads for {rank} dimensions")
    if min(*strides, *dilations) < 1 or min(pads) < 0 or max(*strides, *dilations, *pads, *kernel) > 1 << 20:
        raise InferenceError("strides and dilations must be positive, and pads not negative")
    spans = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True)]
    mode = text(attributes.get("auto_pad"), "NOTSET")
    if mode == "VALID":
        pads = [0] * (2 * rank)
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        totals = [
            max((-(-size // stride) - 1) * stride + span - size, 0)
            for size, stride, span in zip(image, strides, spans, strict=True)
        ]
        pads = [(total + (mode == "SAME_LOWER")) // 2 for total in totals]
        pads += [total - before for total, before in zip(totals, pads, strict=True)]
    output = []
    for at in range(rank):
        room = image[at] + pads[at] + pads[at + rank] - spans[at]
        if room <= -(strides[at] if attributes.get("ceil_mode", 0) else 1):
            raise InferenceError(f"a window of {spans} does not fit images of {list(image)} with pads {pads}")
        size = room // strides[at] + 1
        if attributes.get("ceil_mode", 0):
            size = -(-room // strides[at]) + 1
            if (size - 1) * strides[at] >= image[at] + pads[at]:  # the last window would begin after the image
                size -= 1
        output.append(size)
    one = rank == 1

    def two(entries: Sequence[int], filler: int) -> tuple[int, int]:
        return (filler, entries[0]) if one else (entries[0], entries[1])

    return _Window(two(kernel, 1), two(strides, 1), two(dilations, 1), two(pads[:rank], 0), two(output, 1))


def _as_images(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """[batch, channels, height, width] of images with one or two spatial dimensions."""
    return (shape[0], shape[1], *((1, shape[2]) if len(shape) == 3 else (shape[2], shape[3])))


def _result_shape(x: Tensor, channels: int, window: _Window) -> tuple[int, ...]:
    return (x.shape[0], channels, *window.output[1 if x.rank == 3 else 0 :])


def _conv(node: PlannedNode) -> Sequence[Tensor]:
    x, w, bias, builder = node[0], node[1], node.optional(2), node.builder
    if x.rank not in (3, 4) or w.rank != x.rank:
        raise InferenceError(
            f"Conv supports one or two spatial dimensions, found shapes {list(x.shape)}, {list(w.shape)}"
        )
    groups = int(node.attributes.get("group", 1))
    channels, depth = w.shape[0], w.shape[1]
    if groups < 1 or depth * groups != x.shape[1] or channels % groups:
        raise InferenceError(f"{groups} groups do not fit shapes {list(x.shape)} and {list(w.shape)}")
    if list(node.attributes.get("kernel_shape", w.shape[2:])) != list(w.shape[2:]):
        raise InferenceError(f"kernel_shape does not match weights of shape {list(w.shape)}")
    if bias is not None and bias.shape != (channels,):
        raise InferenceError(f"expected {channels} elements in the bias, found shape {list(bias.shape)}")
    window = _window(node.attributes, w.shape[2:], x.shape[2:])
    images = _as_images(x.shape)
    result = builder.new(x.dtype, _result_shape(x, channels, window))
    packed = window.packed(images, channels, groups)
    k = depth * math.prod(window.size)
    if k < _SHALLOW or channels // groups < 4 or not result.size:
        source = file_kernel("windows.cl", "convolve", x.dtype == np.float16)
        numbers: list[Any] = [packed, np.uint32(result.size), np.int32(bias is not None)]
        builder.per_element(source, [x, w, w if bias is None else bias, result, *numbers], result)
        return [result]
    pixels, m = math.prod(window.output), channels // groups
    is_product = window.size == window.strides == (1, 1) and window.pads == (0, 0)
    if is_product and groups == 1:
        left, right = Matrix(w, k, 1, 0), Matrix(x, pixels, 1, k * pixels)
        target = Matrix(result, pixels, 1, m * pixels)
        multiply(builder, left, right, target, (m, pixels, k), x.shape[0], may_wait=True)
    else:
        _by_columns(node, x, w, result, window, packed, (m, pixels, k), groups, is_product)
    if bias is not None:
        shape = (channels, *(1,) * (x.rank - 2))
        result.num_readers = 1
        return [builder.elementwise("({0} + {1})", [result, builder.view(bias, shape)], x.dtype, result.shape)]
    return [result]


def _by_columns(
    node: PlannedNode,
    x: Tensor,
    w: Tensor,
    result: Tensor,
    window: _Window,
    packed: np.ndarray,
    sizes: tuple[int, int, int],
    groups: int,
    is_product: bool,
) -> None:
    """A convolution as products of the weights and columns: each image by itself, in parts of bounded size."""
    builder, (m, pixels, k) = node.builder, sizes
    part = max(1, min(pixels, _COLUMN_BYTES // (k * groups * x.dtype.itemsize)))
    source = file_kernel("windows.cl", "columns", x.dtype == np.float16)
    for image in range(x.shape[0]):
        for begin in range(0, pixels, part):
            count = min(part, pixels - begin)
            into = image * groups * m * pixels + begin
            left, target = Matrix(w, k, 1, m * k), Matrix(result, pixels, 1, m * pixels, into)
            if is_product:
                right = Matrix(x, pixels, 1, k * pixels, image * groups * k * pixels + begin)
            else:
                columns = builder.new(x.dtype, (groups * k, count))
                numbers = [np.uint32(columns.size), np.uint32(image), np.uint32(begin), np.uint32(count)]
                builder.per_element(source, [x, columns, packed, *numbers], columns)
                right = Matrix(columns, count, 1, k * count)
            multiply(builder, left, right, target, (m, count, k), groups)


def _check_images(node: StaticNode) -> str | None:
    rank = node.rank(0)
    if rank is None:
        return "the rank of its input is unknown"
    if rank not in (3, 4):
        return f"it supports one or two spatial dimensions, found rank {rank}"
    mode = text(node.attributes.get("auto_pad"), "NOTSET")
    if mode not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        return "its attribute 'auto_pad' is unknown"
    if node.num_outputs > 1:
        return "its output of indices is not supported"
    return None


def _check_conv(node: StaticNode) -> str | None:
    kinds = {str(kind.dtype) for kind in node.inputs if kind is not None}
    return "its inputs must have one element type" if len(kinds) > 1 else _check_images(node)


_PLACES = ("auto_pad", "dilations", "kernel_shape", "pads", "strides")
add("Conv", (1, 11, 22), (FLOATS,), _conv, (*_PLACES, "group"), check=_check_conv)


def _pool(name: str) -> Callable[[PlannedNode], Sequence[Tensor]]:
    def plan(node: PlannedNode) -> Sequence[Tensor]:
        x, builder = node[0], node.builder
        if x.rank not in (3, 4):
            raise InferenceError(f"pools support one or two spatial dimensions, found shape {list(x.shape)}")
        window = _window(node.attributes, [int(each) for each in node.attributes["kernel_shape"]], x.shape[2:])
        result = builder.new(x.dtype, _result_shape(x, x.shape[1], window))
        numbers: list[Any] = [window.packed(_as_images(x.shape), x.shape[1], 1), np.uint32(result.size)]
        if name == "average_pool":
            numbers.append(np.int32(node.attributes.get("count_include_pad", 0)))
        builder.per_element(file_kernel("windows.cl", name, x.dtype == np.float16), [x, result, *numbers], result)
        return [result]

    return plan


def _check_pool(node: StaticNode) -> str | None:
    if "kernel_shape" not in node.attributes:
        return "its attribute 'kernel_shape' is missing"
    pads, kernel = node.attributes.get("pads", ()), node.attributes["kernel_shape"]
    dilations = node.attributes.get("dilations", (1,) * len(kernel))
    if len(dilations) == len(kernel) and any(
        pad >= (kernel[at % len(kernel)] - 1) * dilations[at % len(kernel)] + 1 for at, pad in enumerate(pads)
    ):
        return "its pads are as large as its window, so a window can lie outside of the image"
    return _check_images(node)


def _check_average_pool(node: StaticNode) -> str | None:
    if node.attributes.get("ceil_mode", 0):
        return "its attribute 'ceil_mode' is not supported"
    return _check_pool(node)


add(
    "MaxPool",
    (1, 8, 10, 11, 12, 22),
    (FLOATS,),
    _pool("max_pool"),
    (*_PLACES, "ceil_mode", "storage_order"),
    check=_check_pool,
)
add(
    "AveragePool",
    (7, 10, 11, 19, 22),
    (FLOATS,),
    _pool("average_pool"),
    (*_PLACES, "ceil_mode", "count_include_pad"),
    check=_check_average_pool,
)


def _lrn(node: PlannedNode) -> Sequence[Tensor]:
    x, builder, size = node[0], node.builder, int(node.attributes["size"])
    if x.rank < 2:
        raise InferenceError(f"LRN requires a rank of at least 2, found {x.rank}")
    result = builder.new(x.dtype, x.shape)
    inner = math.prod(x.shape[2:])
    alpha, beta, bias = (
        float(node.attributes.get(name, default)) for name, default in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0))
    )
    numbers: list[Any] = [np.uint32(result.size), np.uint32(x.shape[1]), np.uint32(inner)]
    numbers += [np.int32((size - 1) // 2), np.int32(size // 2)]
    numbers += [np.float32(alpha / size), np.float32(beta), np.float32(bias)]
    source = file_kernel("windows.cl", "local_response", x.dtype == np.float16)
    builder.per_element(source, [x, result, *numbers], result)
    return [result]


def _check_lrn(node: StaticNode) -> str | None:
    return None if 1 <= int(node.attributes.get("size", 0)) <= 1 << 20 else "its attribute 'size' is missing or wrong"


add("LRN", (1, 13), (FLOATS,), _lrn, ("alpha", "beta", "bias", "size"), check=_check_lrn)
