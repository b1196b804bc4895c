"""Conv: chooses the algorithm of the kernel `conv` and packs the weights for it.

``packing``, the kernel's second int, states the layout of the weights: 0 plain, 1 panels of a matrix product, 2 or 4
transformed for Winograd's filtering with tiles of that size, 3 converted for products of AMX's tiles
(kernels/tiled_product.c). Depthwise convolutions and weights that are not constant stay plain, and with AMX those of
large planes do; 3x3 kernels without strides use Winograd's filtering if the kernels estimate that it is faster
(``winograd_tile`` in kernels/questions.c); all others are matrix products. kernels/conv.c describes the algorithms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .... import _kernels
from ...._sizes import ask, is_symbolic
from ..registry import F32, Node, operator
from ..values import Context, Value
from .elementwise import _optional, _required, binary
from .network import WINDOW, convolution_of, packed_b, parts_of, three

_DEPTHWISE_MAPS = _kernels.constant("CONV_DEPTHWISE_MAPS")
ALL_KEPT = _kernels.constant("CONV_KEPT")
_SMALL_PLANE = 256  # pixels
_FEW_PIXELS = 16  # of the output: a kernel that looks for infinite weights then takes 10 to 25 % longer


@operator("Conv", dtypes=F32, attributes=WINDOW | {"group": None})
def _conv(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x, weights, bias = _required(inputs[0]), _required(inputs[1]), _optional(inputs, 2)
    group, window, shape = convolution_of(node, x, weights, bias)
    depth, maps = math.prod(weights.shape[1:]), weights.shape[0] // group
    if _only_scales(node, weights, maps, window):
        column = (weights.shape[0], *[1] * (x.rank - 2))
        product = binary(context, "mul", x, context.reshaped(_scaled(weights), column))
        return [product if bias is None else binary(context, "add", product, context.reshaped(bias, column))]
    constant = weights.data is not None and x.data is None
    depthwise = weights.shape[1] == 1 and maps <= _DEPTHWISE_MAPS
    tile, plain, extents = 0, list[Value | None](), (*three(x.shape[2:], 1), *three(shape[2:], 1))
    # Not for weights kept in 16 bits: the transform loses too many digits, and more weights would be widened.
    is_dilated = max(window[9:]) > 1
    if constant and not depthwise and not context.halves and (x.rank == 4 or not is_dilated):
        tile = int(ask("winograd_tile", weights.shape[1], maps, *extents, *window))
        if tile and group > 1 and _transforms_cost_more(weights.shape[1], tile, math.prod(shape[2:])):
            tile = 0
    if tile and is_dilated:
        return [_by_phases(context, x, weights, bias, group, window, shape, tile)]
    if tile:
        packing, operand = tile, _packed_winograd(context, weights, group, tile)
        plain = _bytes_and_scale(context, weights)
        ints = [group, packing, 0, *window]
    elif constant and not depthwise:
        # Elsewhere it does not pay to read all weights here. Weights that are kept in 16 bits may overflow.
        pixels = math.prod(shape[2:])
        is_small = not is_symbolic(pixels) and pixels <= _FEW_PIXELS
        is_finite = (group > 1 or is_dilated or is_small) and not context.halves and _are_finite(weights)
        tiled = _for_tiles(context, x, weights, group, shape, (*extents, *window) if is_finite else None)
        packing, operand = tiled or (1, context.widened(packed_b(context, weights, group, depth, maps, True)))
        # Plans for other sizes do not look for infinite weights because of few pixels, and shall give the same bits.
        knowledge = 0 if not is_finite else 1 if group > 1 or is_dilated else 2
        ints = [group, packing, 0, *window, knowledge]
    else:
        operand = _scaled(weights)
        ints = [group, 0, 0, *window]
    return [context.call("conv", [x, operand, bias, None, *plain], shape, x.dtype, ints, [0.0, 0.0])]


def _transforms_cost_more(channels: int, tile: int, pixels: int) -> bool:
    """Whether Winograd's filtering takes longer than plain products for a group of ``channels`` input channels.

    Measured with AVX2: plain products of 8 channels, and of 16 in small planes, take 0.7 to 1.04 of the time. Tiles of
    2 x 2 read 16/9 of the weights: 15 % slower in nfnet_l0."""
    return channels <= 8 or (tile == 2 and channels <= 64) or (channels <= 16 and pixels <= _SMALL_PLANE)


def _for_tiles(
    context: Context, x: Value, weights: Value, group: int, shape: Sequence[int], padding: Sequence[int] | None
) -> tuple[int, Value] | None:
    """Packing and weights if the kernel should multiply with tiles, which convert all operands. It also does so with
    panels, which serve all sizes if those of the planes may change. padding: what ``conv_kept`` asks for, if weights
    are finite."""
    if context.halves or not _kernels.has_tiles() or is_symbolic(math.prod(shape[2:])):
        return None
    pixels, channels, taps = math.prod(shape[2:]), weights.shape[1], math.prod(weights.shape[2:])
    maps = weights.shape[0] // group
    kept = ask("conv_kept", *padding) if padding else ALL_KEPT
    product = maps, math.prod(x.shape[2:]), pixels, channels, taps, kept
    if context.has_fixed_sizes and ask("conv_parts", *product):
        parts = parts_of(context, weights, group, channels * taps, maps, trans=True, are_rows=True)
        if parts is not None:
            return 3, parts
    if not ask("conv_tiled", *product):
        return None
    return 0, weights if weights.scale is None else _kept_scaled(context, weights)


def _kept_scaled(context: Context, weights: Value) -> Value:
    return context.packed(weights, ("scaled", weights.scale_key), lambda: _scaled(weights))


def _by_phases(
    context: Context,
    x: Value,
    weights: Value,
    bias: Value | None,
    group: int,
    window: Sequence[int],
    shape: tuple[int, ...],
    tile: int,
) -> Value:
    """A dilated 3x3 convolution: one without dilations of the phases of x side by side, and back."""
    pads, dilations = window[7:9], window[10:12]
    lengths = [
        ask("phase_length", x.shape[2 + axis], shape[2 + axis], dilations[axis], pads[axis], tile) for axis in (0, 1)
    ]
    sizes = [dilation * length for dilation, length in zip(dilations, lengths, strict=True)]
    parameters = [*dilations, *lengths, *pads]
    split = context.call("phases", [x], (*x.shape[:2], *sizes), x.dtype, [0, *parameters])
    operands = [split, _packed_winograd(context, weights, group, tile), bias, None, *_bytes_and_scale(context, weights)]
    ints = [group, tile, 0, *window[:6], 0, 0, 0, 1, 1, 1]
    convolved = context.call("conv", operands, (*shape[:2], *sizes), x.dtype, ints, [0.0, 0.0])
    return context.call("phases", [convolved], shape, x.dtype, [1, *parameters])


def _are_finite(weights: Value) -> bool:
    """Whether no weight is infinite or NaN, also after scaling. Then products of padding are 0 and can be skipped."""
    assert weights.data is not None
    largest = _magnitude(weights.data)
    if weights.scale is not None:
        largest *= _magnitude(weights.scale)
    return largest <= float(np.finfo(np.float32).max)


def _magnitude(numbers: np.ndarray) -> float:
    """The largest magnitude, or NaN if any number is NaN."""
    return float(np.maximum(numbers.max(), -numbers.min())) if numbers.size else 0.0


def _only_scales(node: Node, weights: Value, maps: int, window: Sequence[int]) -> bool:
    """Whether each channel of the result is one of the input times a number: one tap, which moves along every pixel.
    Such a kernel gets no padding from auto_pad."""
    return weights.shape[1] == maps == 1 and set(window[:6]) == {1} and not any(node.get("pads", ()))


def _scaled(weights: Value) -> Value:
    if weights.scale is None or weights.data is None:
        return weights
    factors = weights.scale.reshape(-1, *[1] * (weights.rank - 1))
    return Value(weights.dtype, weights.shape, weights.data * factors)


def _packed_winograd(context: Context, weights: Value, group: int, tile: int) -> Value:
    outputs, channels = weights.shape[:2]
    maps = outputs // group
    size = group * ask("winograd_floats", channels, maps, tile)

    def make() -> Value:
        ints = [group, channels, maps, tile]
        return context.call("pack_winograd", [_scaled(weights)], (size,), weights.dtype, ints, lasting=True)

    return context.packed(weights, ("pack_winograd", group, tile, weights.scale_key), make)


def _bytes_and_scale(context: Context, weights: Value) -> list[Value | None]:
    """The original weights and their scale, from which the kernel recomputes outputs near extreme inputs.

    The kernel reads the weights only then, so they stay in the model's file. They are passed as bytes, which may be at
    any address.
    """
    assert weights.data is not None
    plain = Value(np.dtype(np.uint8), (weights.data.nbytes,), weights.data.reshape(-1).view(np.uint8), shared=True)
    return [plain, None if weights.scale is None else context.constant(weights.scale)]
