"""A 1x1 convolution and the depthwise convolution of its result become one call.

Contract: the same sums; the result of the 1x1 convolution is never in memory.

Conditions:

- The depthwise convolution alone reads the result of the 1x1 convolution, once, in its own shape, and it is not read
  after the segment.
- Both are float32 with two spatial axes. Each may have a bias and an activation, but no addend, and nothing after the
  activation.
- The 1x1 convolution has one group, weights that are packed as panels, no strides, no pads, at most `_MOST_CHANNELS`
  input channels, and at least `_LEAST_CHANNELS` output channels of at least `_LEAST_COLUMNS` columns. Its result has at
  least `_LEAST_ELEMENTS`, for the sizes for which the plan is made: for others the sums are the same. Alone, it would
  not be computed with tiles (AMX), which are faster, and whose sums differ in the last bits.
- The depthwise convolution has one output channel for each input channel and no dilations. Each row of windows contains
  a row of its input. Its kernel and its rows are small enough for conv_depthwise.c (`_MOST_TAPS`, `_MOST_COPIED`).
- What four rows of windows need of the input and of a panel's channels has at most `_MOST_HELD` elements.
"""

from __future__ import annotations

import numpy as np

from .... import _kernels
from ...._sizes import ask, hint
from ..operators.convolution import ALL_KEPT
from ..values import Call, Value
from .graph import CallGraph
from .matching import maker_of

__all__ = ["join"]

_MOST_CHANNELS = 128
"""Maximum channels of the input. With more, the 1x1 convolution takes much longer than writing and reading its result,
and the joined convolutions take up to a tenth longer than separate ones."""

_LEAST_CHANNELS = 16
"""Minimum channels of the result of the 1x1 convolution: a panel of weights."""

_LEAST_COLUMNS = 12
"""Minimum columns of the image. For narrower images, a separate depthwise convolution with channels in the vector lanes
is faster."""

_LEAST_ELEMENTS = 3 << 17
"""Minimum elements of the result of the 1x1 convolution (1.5 MB). A smaller result stays in the L2 cache between two
calls."""

_MOST_TAPS = 1024
"""Maximum taps of the depthwise kernel: MAX_TAPS of conv_depthwise.c."""

_MOST_COPIED = 1 << 17
"""Input elements of four rows of windows, of which conv_depthwise.c makes a padded copy. Its scratch memory holds twice
as many."""

_MOST_HELD = 1 << 20
"""Elements that each thread holds at least: of four rows of windows, all input channels and the output channels of a
panel. With more, which are far from the L2 cache, the joined convolutions take up to twice as long as separate ones."""

_ROWS, _PANEL = 4, 16  # HT_POINTWISE_LEAST_ROWS, HT_POINTWISE_CHANNELS


def join(graph: CallGraph) -> None:
    for position, call in graph:
        if call.kernel != "conv" or call.inputs[0] is None or call.inputs[0].rank != 4:
            continue
        pointwise = maker_of(graph, call.inputs[0], ("conv",))
        if pointwise is None or not (_is_pointwise(pointwise[1]) and _is_depthwise(call)):
            continue
        if _held(pointwise[1], call) > _MOST_HELD:
            continue
        graph.remove(pointwise[0])
        graph.replace(position, _joined(pointwise[1], call))


def _is_pointwise(call: Call) -> bool:
    x, y = call.inputs[0], call.outputs[0]
    assert x is not None
    group, packing, _, *window = call.ints[:15]
    return (
        y.dtype == np.float32
        and all(value is None for value in call.inputs[3:])
        and (group, packing) == (1, 1)
        and window[:9] == [1, 1, 1, 1, 1, 1, 0, 0, 0]
        and x.shape[2:] == y.shape[2:]
        and 1 <= x.shape[1] <= _MOST_CHANNELS
        and y.shape[1] >= _LEAST_CHANNELS
        and y.shape[2] >= 1
        and y.shape[3] >= _LEAST_COLUMNS
        and hint(y.size) >= _LEAST_ELEMENTS
        and not (_kernels.has_tiles() and _is_tiled(x, y))
    )


def _is_tiled(x: Value, y: Value) -> bool:
    pixels = y.shape[2] * y.shape[3]
    return bool(ask("conv_tiled", y.shape[1], pixels, pixels, x.shape[1], 1, ALL_KEPT))


def _is_depthwise(call: Call) -> bool:
    x, y = call.inputs[0], call.outputs[0]
    assert x is not None
    group, packing, _, *window = call.ints[:15]
    _, height, width, _, stride, step, _, pad, _ = window[:9]
    return (
        y.dtype == np.float32
        and all(value is None for value in call.inputs[3:])
        and packing == 0
        and x.shape[1] == y.shape[1] == group
        and window[9:] == [1, 1, 1]
        and height * width <= _MOST_TAPS
        and ((_ROWS - 1) * stride + height) * ((y.shape[3] + 32) * step + width) <= _MOST_COPIED
        and pad < height
        and (y.shape[2] - 1) * stride - pad < x.shape[2]
    )


def _held(pointwise: Call, depthwise: Call) -> int:
    x, y = pointwise.inputs[0], depthwise.outputs[0]
    assert x is not None
    height, stride = depthwise.ints[4], depthwise.ints[7]
    rows = min((min(_ROWS, y.shape[2]) - 1) * stride + height, x.shape[2])
    return (x.shape[1] + _PANEL) * rows * x.shape[3]


def _joined(pointwise: Call, depthwise: Call) -> Call:
    inputs = (*pointwise.inputs[:3], *depthwise.inputs[1:3])
    window = depthwise.ints[3:15]
    ints = (pointwise.ints[2], depthwise.ints[2], *window[1:3], *window[4:6], *window[7:9])
    floats = (*pointwise.floats, *depthwise.floats)
    return Call("pointwise_depthwise", inputs, depthwise.outputs, ints, floats, pointwise.node, pointwise.label)
