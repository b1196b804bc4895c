"""DeformConv and MaxRoiPool, which run in Python: NumPy selects the inputs of each output, and multiplies."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....errors import InferenceError
from ..registry import FLOATS, ContradictionError, Node, hosted

Run = Callable[..., Sequence[Any]]
Array = NDArray[Any]
_MOST = 1 << 20  # of a stride, a dilation, a pad or a pooled size


def _sizes(node: Node, name: str, least: int) -> list[int] | None:
    sizes = node.get(name, None)
    if sizes is not None and not all(least <= size <= _MOST for size in sizes):
        error = ContradictionError if min(sizes) < least else InferenceError
        raise error(f"attribute {name} is {list(sizes)[:8]}; expected numbers from {least} to {_MOST}")
    return None if sizes is None else list(sizes)


@hosted("DeformConv", dtypes=FLOATS, attributes=dict.fromkeys((
    "dilations", "group", "kernel_shape", "offset_group", "pads", "strides")), result=0)  # fmt: skip
def _deform_conv(node: Node) -> Run:
    """A convolution that reads each of its inputs at a place with an offset, interpolated linearly; zero outside."""
    pads, strides, dilations = (_sizes(node, name, at) for name, at in (("pads", 0), ("strides", 1), ("dilations", 1)))
    group, groups = node.get("group", 1), node.get("offset_group", 1)
    if min(group, groups) < 1:
        raise ContradictionError(f"group is {group} and offset_group {groups}; expected 1 or more")

    def run(x: Array, w: Array, offset: Array, b: Array | None = None, mask: Array | None = None) -> Sequence[Any]:
        rank = x.ndim - 2
        if rank < 1 or w.ndim != x.ndim or x.shape[1] != w.shape[1] * group or w.shape[0] % group:
            raise InferenceError(f"weights {list(w.shape)} do not fit x {list(x.shape)} and group {group}")
        kernel, image = w.shape[2:], x.shape[2:]
        step, gap, pad = strides or [1] * rank, dilations or [1] * rank, pads or [0] * (2 * rank)
        if len(step) != rank or len(gap) != rank or len(pad) != 2 * rank:
            raise InferenceError(f"strides, dilations or pads do not fit {rank} axes")
        if node.get("kernel_shape", None) not in (None, [*kernel], (*kernel,)):
            raise InferenceError(f"kernel_shape {node.get('kernel_shape', None)} does not fit weights {list(w.shape)}")
        out = tuple(
            (size + pad[at] + pad[rank + at] - gap[at] * (kernel[at] - 1) - 1) // step[at] + 1
            for at, size in enumerate(image)
        )
        taps, count, channels = math.prod(kernel), len(x), x.shape[1]
        if channels % groups or min(out) < 0 or offset.shape != (count, groups * taps * rank, *out):
            raise InferenceError(
                f"offset {list(offset.shape)} does not fit x {list(x.shape)} and {groups} offset groups"
            )
        if mask is not None and mask.shape != (count, groups * taps, *out):
            raise InferenceError(f"mask {list(mask.shape)} does not fit an output of {list(out)}")
        if b is not None and b.shape != (len(w),):
            raise InferenceError(f"bias {list(b.shape)} does not fit weights {list(w.shape)}")
        base = np.zeros((rank, taps, *out))
        for at in range(rank):
            taps_at = np.broadcast_to(
                np.arange(kernel[at]).reshape([-1 if axis == at else 1 for axis in range(rank)]), kernel
            ).reshape(-1)
            line = np.arange(out[at]).reshape([-1 if axis == at else 1 for axis in range(rank)])
            base[at] = line * step[at] - pad[at] + taps_at.reshape(-1, *[1] * rank) * gap[at]
        pixels = math.prod(out)
        made = np.empty((count, len(w), pixels), x.dtype)
        weights = w.reshape(group, len(w) // group, -1)
        for n in range(count):
            shifts = np.moveaxis(offset[n].reshape(groups, taps, rank, *out), 2, 1)
            columns = np.empty((channels, taps * pixels), x.dtype)
            for g in range(groups):
                own = slice(g * (channels // groups), (g + 1) * (channels // groups))
                places = (base + shifts[g]).reshape(rank, -1)
                columns[own] = _sampled(x[n, own].reshape(channels // groups, *image), places)
                if mask is not None:
                    columns[own] *= mask[n].reshape(groups, -1)[g]
            for g, part in enumerate(columns.reshape(group, -1, pixels)):
                rows = slice(g * (len(w) // group), (g + 1) * (len(w) // group))
                made[n, rows] = weights[g] @ part
        made = made.reshape(count, len(w), *out)
        return [made if b is None else made + b.reshape(-1, *[1] * rank)]

    return run


def _sampled(planes: Array, places: Array) -> Array:
    """Planes [channels, ...] at ``places`` [rank, count], interpolated linearly: [channels, count]."""
    image = planes.shape[1:]
    flat = planes.reshape(len(planes), -1)
    # Infinities and NaN are outside; everything outside is zero, so its distance does not matter.
    bounded = np.clip(np.nan_to_num(places, nan=-2.0), -2, np.array(image).reshape(-1, 1) + 1.0)
    low = np.floor(bounded)
    total = np.zeros((len(planes), places.shape[1]), planes.dtype)
    if not flat.size:
        return total
    for corner in itertools.product((0, 1), repeat=len(image)):
        at = low + np.array(corner).reshape(-1, 1)
        inside = ((at >= 0) & (at < np.array(image).reshape(-1, 1))).all(axis=0)
        share = np.prod(np.where(np.array(corner).reshape(-1, 1) == 1, bounded - low, 1 - (bounded - low)), axis=0)
        index = np.ravel_multi_index(tuple(np.where(inside, at, 0).astype(np.intp)), image)
        total += np.where(inside, flat[:, index] * share, 0).astype(planes.dtype)
    return total


@hosted("MaxRoiPool", dtypes=FLOATS, attributes={"pooled_shape": None, "spatial_scale": None}, result=0)
def _max_roi_pool(node: Node) -> Run:
    """The maximum of each bin of a region; 0 for empty bins. Corners are rounded to pixels, halves away from 0."""
    pooled = _sizes(node, "pooled_shape", 1)
    if pooled is None or len(pooled) != 2:
        raise ContradictionError(f"attribute pooled_shape is {pooled}; expected a height and a width")
    scale = np.float32(node.get("spatial_scale", 1.0))
    if not np.isfinite(scale):
        raise ContradictionError(f"attribute spatial_scale is {scale}")

    def run(x: Array, rois: Array) -> Sequence[Any]:
        if x.ndim != 4 or rois.ndim != 2 or rois.shape[1] != 5 or not np.isfinite(rois).all():
            raise InferenceError(f"rois {list(rois.shape)} do not fit x {list(x.shape)}, or are not finite")
        if len(rois) * x.shape[1] * math.prod(pooled) > 1 << 34:
            raise InferenceError(f"{len(rois)} regions of {pooled} bins are too large")
        made = np.zeros((len(rois), x.shape[1], *pooled), x.dtype)
        for roi, result in zip(rois, made, strict=True):
            image = int(roi[0])
            if not 0 <= image < len(x):
                raise InferenceError(f"a region is of image {image}; there are {len(x)}")
            corners = roi[1:].astype(np.float32) * scale
            left, top, right, bottom = (int(math.copysign(math.floor(abs(c) + 0.5), c)) for c in corners.tolist())
            spans = [
                _bins(first, last, bins, size)
                for first, last, bins, size in (
                    (top, bottom, pooled[0], x.shape[2]),
                    (left, right, pooled[1], x.shape[3]),
                )
            ]
            for row, (y0, y1) in enumerate(spans[0]):
                for column, (x0, x1) in enumerate(spans[1]):
                    if y0 < y1 and x0 < x1:
                        result[:, row, column] = x[image, :, y0:y1, x0:x1].max(axis=(1, 2))
        return [made]

    return run


def _bins(first: int, last: int, bins: int, size: int) -> list[tuple[int, int]]:
    """The pixels of each bin of a region from ``first`` to ``last``, within an axis of ``size``."""
    step = np.float32(max(last - first + 1, 1)) / np.float32(bins)
    made = []
    for at in range(bins):
        begin, end = math.floor(np.float32(at) * step) + first, math.ceil(np.float32(at + 1) * step) + first
        made.append((min(max(begin, 0), size), min(max(end, 0), size)))
    return made
