"""Pooling over windows, vectorized: the window becomes trailing axes of a strided view.

onnx.reference pools in Python loops, one window at a time (seconds for one layer of an image model). Its errors:
- MaxPool returns zeros or no indices unless a stride or dilation is above 1, and misplaces asymmetric pads in opset 1.
- SAME_LOWER of MaxPool rounds the output size down.
- If ceil_mode enlarges the input by two or more, AveragePool and LpPool shift the windows, and LpPool omits elements.
- AveragePool and LpPool ignore dilations under VALID; AveragePool of opset 1 counts pads.
- GlobalMaxPool of 3-D input drops an axis.
Found by comparing with onnxruntime over kernels, strides, pads, dilations, ceil_mode and auto_pad
(tests/helpers/operator_cases.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from onnx.reference.op_run import OpRun

from .table import Corrections, since
from .widening import widening

__all__ = ["CORRECTIONS", "same_pads"]


class Windows(NamedTuple):
    """The windows of a pooling operator, per spatial axis. ``end`` includes the padding of ceil_mode, ``tail`` does
    not."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]
    tail: tuple[int, ...]
    sizes: tuple[int, ...]

    def view(self, padded: np.ndarray) -> np.ndarray:
        """All windows of an array padded by `begin` and `end`: axes [..., position..., offset...]."""
        rank = len(self.kernel)
        axes = tuple(range(padded.ndim - rank, padded.ndim))
        extents = tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))
        view = np.lib.stride_tricks.sliding_window_view(padded, extents, axes)
        positions = tuple(slice(0, (n - 1) * s + 1, s) for n, s in zip(self.sizes, self.strides, strict=True))
        offsets = tuple(slice(None, None, d) for d in self.dilations)
        leading = (slice(None),) * (padded.ndim - rank)
        return view[leading + positions + offsets]


def same_pads(size: int, extent: int, stride: int, upper: bool) -> tuple[int, int]:
    """Pads of SAME_UPPER and SAME_LOWER, which give ceil(size / stride) outputs."""
    total = max((math.ceil(size / stride) - 1) * stride + extent - size, 0)
    return (total // 2, total - total // 2) if upper else (total - total // 2, total // 2)


def find_windows(
    spatial: Sequence[int],
    kernel_shape: Sequence[int],
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    pads: Sequence[int] | None,
    auto_pad: str | None,
    ceil_mode: int | None,
) -> Windows:
    """The windows over ``spatial`` sizes, by the formulas of the specification."""
    rank = len(spatial)
    strides = list(strides or [1] * rank)
    dilations = list(dilations or [1] * rank)
    begin, end, tail, sizes = [], [], [], []
    for axis, size in enumerate(spatial):
        extent = (kernel_shape[axis] - 1) * dilations[axis] + 1
        first, last = 0, 0
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            first, last = same_pads(size, extent, strides[axis], auto_pad == "SAME_UPPER")
        elif auto_pad != "VALID" and pads:
            first, last = pads[axis], pads[axis + rank]
        steps = (size + first + last - extent) / strides[axis]
        count = (math.ceil(steps) if ceil_mode else math.floor(steps)) + 1
        if ceil_mode and (count - 1) * strides[axis] >= size + first:
            count -= 1  # the last window must begin in the input or its leading pads
        count = max(count, 0)
        begin.append(first)
        tail.append(last)
        end.append(max((count - 1) * strides[axis] + extent - size - first, last, 0))
        sizes.append(count)
    return Windows(*map(tuple, (kernel_shape, strides, dilations, begin, end, tail, sizes)))


def _padded(x: np.ndarray, windows: Windows, value: Any) -> np.ndarray:
    pads = [(0, 0)] * (x.ndim - len(windows.kernel)) + list(zip(windows.begin, windows.end, strict=True))
    return np.pad(x, pads, constant_values=value)


def _inside(spatial: Sequence[int], windows: Windows, with_pads: bool) -> np.ndarray:
    """bool[position..., offset...]: whether an element of a window is in the input (or, with_pads, in its explicit
    pads)."""
    inside = np.ones(tuple(spatial), np.bool_)
    if with_pads:
        inside = np.pad(inside, list(zip(windows.begin, windows.tail, strict=True)), constant_values=True)
        more = [(0, e - t) for e, t in zip(windows.end, windows.tail, strict=True)]
        return windows.view(np.pad(inside, more, constant_values=False))
    return windows.view(_padded(inside, windows, False))


class MaxPool(OpRun):
    def _run(
        self,
        x: np.ndarray,
        auto_pad: str | None = None,
        ceil_mode: int = 0,
        dilations: Sequence[int] | None = None,
        kernel_shape: Sequence[int] = (),
        pads: Sequence[int] | None = None,
        storage_order: int = 0,
        strides: Sequence[int] | None = None,
    ) -> tuple[np.ndarray, ...]:
        spatial = x.shape[2:]
        windows = find_windows(spatial, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
        lowest = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
        view = windows.view(_padded(x, windows, lowest))
        offsets = tuple(range(-len(kernel_shape), 0))
        maxima = np.max(view, axis=offsets)
        if len(self.onnx_node.output) < 2:
            return (maxima,)
        hits = (view == np.expand_dims(maxima, offsets)) & _inside(spatial, windows, False)
        flat_hits = hits.reshape(*maxima.shape, -1)
        # Number all elements of the input (with storage_order column by column) and take the number at each first hit.
        plane = int(np.prod(spatial))
        numbers = np.arange(plane, dtype=np.int64).reshape(spatial[::-1] if storage_order else spatial)
        numbers = numbers.T if storage_order else numbers
        number_view = windows.view(_padded(numbers, windows, 0)).reshape(*windows.sizes, -1)
        first_hits = flat_hits.argmax(axis=-1)
        picked = np.take_along_axis(
            np.broadcast_to(number_view, (*first_hits.shape, number_view.shape[-1])), first_hits[..., None], axis=-1
        )[..., 0]
        planes = np.arange(x.shape[0] * x.shape[1], dtype=np.int64) * plane
        return maxima, picked + planes.reshape(*x.shape[:2], *(1,) * len(spatial))


class AveragePool(OpRun):
    def _run(
        self,
        x: np.ndarray,
        auto_pad: str | None = None,
        ceil_mode: int = 0,
        count_include_pad: int = 0,
        dilations: Sequence[int] | None = None,
        kernel_shape: Sequence[int] = (),
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> tuple[np.ndarray, ...]:
        spatial = x.shape[2:]
        windows = find_windows(spatial, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
        offsets = tuple(range(-len(kernel_shape), 0))
        sums = windows.view(_padded(x, windows, 0)).sum(axis=offsets, dtype=np.result_type(x.dtype, np.float32))
        counts = _inside(spatial, windows, bool(count_include_pad)).sum(axis=offsets)
        return ((sums / np.maximum(counts, 1)).astype(x.dtype),)


class LpPool(OpRun):
    def _run(
        self,
        x: np.ndarray,
        auto_pad: str | None = None,
        ceil_mode: int = 0,
        dilations: Sequence[int] | None = None,
        kernel_shape: Sequence[int] = (),
        p: float = 2,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> tuple[np.ndarray, ...]:
        windows = find_windows(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
        view = windows.view(_padded(np.abs(x).astype(np.result_type(x.dtype, np.float32)) ** p, windows, 0))
        return ((view.sum(axis=tuple(range(-len(kernel_shape), 0))) ** (1.0 / p)).astype(x.dtype),)


class GlobalMaxPool(OpRun):
    def _run(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


class GlobalLpPool(OpRun):
    # Missing in onnx.reference.

    def _run(self, x: np.ndarray, p: float = 2) -> tuple[np.ndarray, ...]:
        axes = tuple(range(2, x.ndim))
        powers = np.abs(x).astype(np.result_type(x.dtype, np.float32)) ** p
        return ((powers.sum(axis=axes, keepdims=True) ** (1.0 / p)).astype(x.dtype),)


class MaxRoiPool(OpRun):
    # Missing in onnx.reference. Region pooling of Fast R-CNN, rounded as in onnxruntime: corners round half away from
    # zero, and an empty bin gives 0.

    def _run(
        self, x: np.ndarray, rois: np.ndarray, pooled_shape: Sequence[int] = (), spatial_scale: float = 1.0
    ) -> tuple[np.ndarray, ...]:
        height, width = x.shape[2:]
        rows, columns = pooled_shape
        result = np.zeros((len(rois), x.shape[1], rows, columns), x.dtype)
        for number, (image, *corners) in enumerate(rois):
            left, top, right, bottom = (math.floor(float(c) * float(spatial_scale) + 0.5) for c in corners)
            for row, column in np.ndindex(rows, columns):
                tall, wide = max(bottom - top + 1, 1), max(right - left + 1, 1)
                y0, y1 = (min(max(v + top, 0), height) for v in (row * tall // rows, -(-(row + 1) * tall // rows)))
                x0, x1 = (
                    min(max(v + left, 0), width) for v in (column * wide // columns, -(-(column + 1) * wide // columns))
                )
                if y0 < y1 and x0 < x1:
                    result[number, :, row, column] = x[int(image), :, y0:y1, x0:x1].max(axis=(1, 2))
        return (result,)


CORRECTIONS: Corrections = since(
    1, MaxPool, AveragePool, LpPool, widening("GlobalAveragePool"), GlobalMaxPool, GlobalLpPool, MaxRoiPool
)
