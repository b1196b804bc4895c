"""Conv: chooses the algorithm of the kernel `conv` and packs the weights for it.

``packing``, the kernel's second int, states the layout of the weights: 0 plain, 1 panels of a matrix product, 2 or 4
transformed for Winograd's filtering with tiles of that size. Depthwise convolutions and weights that are not constant
stay plain; 3x3 kernels without strides use Winograd's filtering if `winograd_tile` estimates that it is faster; all
others are matrix products. kernels/conv.c describes the algorithms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .... import _kernels
from ..registry import F32, Node, operator
from ..values import Context, Value
from .elementwise import _optional, _required
from .network import WINDOW, convolution_of, packed_b

_DEPTHWISE_MAPS = _kernels.constant("CONV_DEPTHWISE_MAPS")
_PANEL, _LONGEST_ROW = _kernels.constant("PANEL"), _kernels.constant("WINOGRAD_WIDTH")
_LARGEST_WINOGRAD = 12 << 20
"""Bytes of weights for tiles of 4 x 4, at most: four times those of the plain weights."""
_MIN_DILATED = 32
"""Channels and maps, at least, for which it pays to copy the phases of a dilated convolution."""


@operator("Conv", dtypes=F32, attributes=WINDOW | {"group": None})
def _conv(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x, weights, bias = _required(inputs[0]), _required(inputs[1]), _optional(inputs, 2)
    group, window, shape = convolution_of(node, x, weights, bias)
    depth, maps = math.prod(weights.shape[1:]), weights.shape[0] // group
    constant = weights.data is not None and x.data is None
    depthwise = weights.shape[1] == 1 and maps <= _DEPTHWISE_MAPS
    tile, plain = 0, list[Value | None]()
    if constant and not depthwise and x.rank == 4 and window[:7] == [1, 3, 3, 1, 1, 1, 0]:
        # Not for weights kept in 16 bits: the transform loses too many digits, and more weights would be widened.
        tile = 0 if context.halves else winograd_tile(weights.shape[1], maps, x.shape[2:], shape[2:], window[10:])
    if tile:
        packing, operand = tile, _packed_winograd(context, weights, group, tile)
        plain = _bytes_and_scale(context, weights)
    elif constant and not depthwise:
        packing, operand = 1, context.widened(packed_b(context, weights, group, depth, maps, True))
    else:
        packing, operand = 0, _scaled(weights)
    return [
        context.call("conv", [x, operand, bias, None, *plain], shape, x.dtype, [group, packing, 0, *window], [0.0, 0.0])
    ]


def _panels(maps: int) -> int:
    return -(-maps // _PANEL)


def _scaled(weights: Value) -> Value:
    if weights.scale is None or weights.data is None:
        return weights
    factors = weights.scale.reshape(-1, *[1] * (weights.rank - 1))
    return Value(weights.dtype, weights.shape, weights.data * factors)


# ---- Winograd's filtering


def winograd_tile(
    channels: int, maps: int, extent: Sequence[int], sizes: Sequence[int], dilations: Sequence[int] = (1, 1)
) -> int:
    """The Winograd tile with the lowest estimated cost for a 3x3 convolution of one group: 4, 2, or 0 for none.

    ``channels``, ``maps``: input and output channels of a group. ``extent``, ``sizes``: height and width of the input
    and of the result. Costs are in vector operations of 16 lanes, fitted to measurements with AVX-512; the ratios of
    the other instruction sets are similar.
    """
    if max(extent[1], sizes[1]) > _LONGEST_ROW or not 0 < channels <= _LONGEST_ROW or not math.prod(sizes):
        return 0
    if max(dilations) > 1:  # one convolution per phase, whose inputs and outputs are copied
        if min(channels, maps) < _MIN_DILATED or max(dilations) > min(sizes):
            return 0
        sizes = _phase(sizes, dilations)
    pixels = math.prod(sizes)
    plain = pixels * channels * _panels(maps) * 9 / 0.88 + pixels * maps / 2
    costs = {0: 0.9 * plain}  # must gain at least 10 %, because the weights take more memory
    for tile, transform in ((4, 500), (2, 200)):
        positions, together = (tile + 2) ** 2, _kernels.winograd_columns(channels, tile)
        weights = 4 * positions * channels * maps
        if tile == 4 and weights > _LARGEST_WINOGRAD:
            continue
        tiles = -(-sizes[0] // tile) * -(-sizes[1] // tile)
        blocks, rest = divmod(tiles, together)
        vectors = (blocks * together + _panels(rest) * _PANEL) / _PANEL
        read = weights * -(-tiles // together) / (10 if weights < 16 << 20 else 4)  # bytes per operation
        product = positions * channels * maps * vectors / 0.85
        costs[tile] = max(product, read) + (channels + maps) * transform * max(1.0, tiles / _PANEL) * 1.1
    return min(costs, key=lambda tile: costs[tile])


def _phase(extent: Sequence[int], dilations: Sequence[int]) -> tuple[int, int]:
    """Rows and columns of the largest phase of a dilated convolution."""
    return -(-extent[0] // dilations[0]), -(-extent[1] // dilations[1])


def _packed_winograd(context: Context, weights: Value, group: int, tile: int) -> Value:
    outputs, channels = weights.shape[:2]
    maps = outputs // group
    size = group * _panels(maps) * _PANEL * ((tile + 2) ** 2 * channels + 1)

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
