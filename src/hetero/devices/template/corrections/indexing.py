"""Gathering, scattering, sampling and selecting."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops import load_op

from .table import Corrections

__all__ = ["CORRECTIONS"]

UpstreamGridSample: Any = load_op("", "GridSample", None)
UpstreamNonMaxSuppression: Any = load_op("", "NonMaxSuppression", None)
UpstreamRoiAlign: Any = load_op("", "RoiAlign", None)
UpstreamScatterElements: Any = load_op("", "ScatterElements", None)
UpstreamSlice: Any = load_op("", "Slice", 13)


class GatherElements(OpRun):
    # onnx.reference rejects indices that are shorter than the data along the other axes. Compared with onnxruntime.

    def _run(self, x: np.ndarray, indices: np.ndarray, axis: int = 0) -> tuple[np.ndarray, ...]:
        axis %= x.ndim
        if x.ndim != indices.ndim or any(
            n > size for at, (n, size) in enumerate(zip(indices.shape, x.shape, strict=True)) if at != axis
        ):
            raise ValueError(f"indices of shape {list(indices.shape)} do not fit {list(x.shape)} along axis {axis}")
        beside = tuple(slice(None) if at == axis else slice(n) for at, n in enumerate(indices.shape))
        return (np.take_along_axis(x[beside], indices, axis),)


class Scatter(UpstreamScatterElements):  # type: ignore[misc]
    # Scatter of opsets 9 and 10 is the old name of ScatterElements; onnx.reference does not know it. Backend suite.

    def _run(self, data: np.ndarray, indices: np.ndarray, updates: np.ndarray, axis: int = 0) -> Any:
        return super()._run(data, indices, updates, axis=axis, reduction="none")


class ScatterElements(UpstreamScatterElements):  # type: ignore[misc]
    # onnx.reference uses Python's min and max, whose result for NaN depends on the order of the operands. Its
    # ScatterND, Min and Max return NaN.

    def _run(
        self, data: np.ndarray, indices: np.ndarray, updates: np.ndarray, axis: int = 0, reduction: str = "none"
    ) -> Any:
        if reduction not in ("min", "max"):
            return super()._run(data, indices, updates, axis=axis, reduction=reduction)
        choose = np.minimum if reduction == "min" else np.maximum
        result, axis = data.copy(), axis % data.ndim
        for place in np.ndindex(indices.shape):
            at = (*place[:axis], indices[place], *place[axis + 1 :])
            result[at] = choose(result[at], updates[place])
        return (result,)


class OneHot(OpRun):
    # onnx.reference fails if the depth is a one-element tensor instead of a scalar. It compares fractional indices
    # unchanged; the specification casts them to int64. It wraps uint64. It computes with both values, so an infinite
    # one spoils the other. Compared with onnxruntime.

    def _run(
        self, indices: np.ndarray, depth: np.ndarray, values: np.ndarray, axis: int = -1
    ) -> tuple[np.ndarray, ...]:
        size = int(depth.reshape(-1)[0])
        if size < 0:
            raise ValueError(f"expected a depth of at least 0, found {size}")
        wide = indices
        if indices.dtype.kind not in "iu":  # the cast is defined only within these bounds
            wide = np.where((indices >= -(2.0**62)) & (indices < 2.0**62), indices, -(2.0**62)).astype(np.float64)
        wide = np.expand_dims(wide.astype(np.int64), axis)
        if indices.dtype.kind != "u":
            wide = np.where(wide < 0, wide + size, wide)
        classes = np.arange(size).reshape(-1, *(1,) * (indices.ndim - axis % (indices.ndim + 1)))
        return (np.where(wide == classes, values[1], values[0]).astype(values.dtype),)


class Slice(UpstreamSlice):  # type: ignore[misc]
    # For negative steps, the specification clamps a start before the first element to that element; onnx.reference
    # slices as NumPy does, which selects nothing. Found by fuzzing against onnxruntime.

    def _run(
        self,
        data: np.ndarray,
        starts: np.ndarray,
        ends: np.ndarray,
        axes: np.ndarray | None = None,
        steps: np.ndarray | None = None,
    ) -> Any:
        if steps is not None:
            sizes = np.array(data.shape)[: np.size(starts)] if axes is None else np.array(data.shape)[axes]
            starts = np.where(steps < 0, np.maximum(starts, -sizes), starts)
        return super()._run(data, starts, ends, axes, steps)


class GridSample(UpstreamGridSample):  # type: ignore[misc]
    # In cubic mode with border padding, onnx.reference moves the sampling point into the image, while the specification
    # (like PyTorch, its origin) repeats the border's elements. Compared with onnxruntime over modes and paddings.

    def _run(
        self,
        x: np.ndarray,
        grid: np.ndarray,
        align_corners: int = 0,
        mode: str = "linear",
        padding_mode: str = "zeros",
    ) -> Any:
        mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
        if mode == "cubic" and padding_mode == "border" and x.size and grid.size:
            return (_cubic_sample(x, grid, bool(align_corners)),)
        return super()._run(x, grid, mode=mode, padding_mode=padding_mode, align_corners=align_corners)


class GridSample_16(GridSample):
    # Opset 20 renamed the modes; onnx.reference knows only the new names. Backend suite stamped as opset 16.

    def _run(
        self,
        x: np.ndarray,
        grid: np.ndarray,
        align_corners: int = 0,
        mode: str = "bilinear",
        padding_mode: str = "zeros",
    ) -> Any:
        return super()._run(x, grid, align_corners, mode, padding_mode)


def _cubic_sample(x: np.ndarray, grid: np.ndarray, align_corners: bool) -> np.ndarray:
    """Cubic interpolation of ``x`` [N, C, spatial...] at ``grid`` [N, positions..., rank], repeating the border."""
    rank = x.ndim - 2
    positions = grid.shape[1:-1]
    points = grid.reshape(len(grid), -1, rank)[..., ::-1].astype(np.float64)
    result = np.empty((*x.shape[:2], points.shape[1]), np.float64)
    for image in range(len(x)):
        values = x[image].astype(np.float64)
        weights, places = [], []
        for axis, size in enumerate(x.shape[2:]):
            unit = points[image, :, axis]
            at = (unit + 1) / 2 * (size - 1) if align_corners else ((unit + 1) * size - 1) / 2
            start = np.floor(at)
            weights.append(_cubic_weights(at - start))
            places.append((start[:, None] + np.arange(-1, 3)).clip(0, size - 1).astype(np.int64))
        total = np.zeros((x.shape[1], points.shape[1]))
        for taps in np.ndindex(*(4,) * rank):
            index = tuple(places[axis][:, tap] for axis, tap in enumerate(taps))
            total += values[(slice(None), *index)] * np.prod([weights[a][:, t] for a, t in enumerate(taps)], axis=0)
        result[image] = total
    return result.reshape(*x.shape[:2], *positions).astype(x.dtype)


def _cubic_weights(fraction: np.ndarray, a: float = -0.75) -> np.ndarray:
    """Keys's cubic kernel at the four neighbors of each point: float[points, 4]."""
    distance = np.abs(fraction[:, None] - np.arange(-1, 3))
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((distance - 5) * distance + 8) * distance * a - 4 * a
    return np.where(distance <= 1, near, far)


class Unique(OpRun):
    # If unsorted, onnx.reference selects along axis 0 instead of the given axis, and without an axis it selects rows of
    # a tensor that should be flattened. Compared with onnxruntime.

    def _run(self, x: np.ndarray, axis: int | None = None, sorted: int = 1) -> tuple[np.ndarray, ...]:
        data = x.reshape(-1) if axis is None else x
        along = 0 if axis is None else axis
        if data.shape[along] == 0:
            empty = np.zeros(0, np.int64)
            return data, empty, empty, empty
        y, first, inverse, counts = np.unique(
            data, return_index=True, return_inverse=True, return_counts=True, axis=along
        )
        inverse = inverse.reshape(-1)
        if not sorted:
            order = np.argsort(first)
            rank = np.empty_like(order)
            rank[order] = np.arange(len(order))
            y, first, inverse, counts = np.take(y, order, axis=along), first[order], rank[inverse], counts[order]
        return y, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)


class NonMaxSuppression(UpstreamNonMaxSuppression):  # type: ignore[misc]
    # onnx.reference fails if optional inputs are absent. By default no box is chosen, and boxes must not overlap at
    # all. Compared with onnxruntime.

    def _run(
        self,
        boxes: np.ndarray,
        scores: np.ndarray,
        max_boxes: np.ndarray | None = None,
        overlap: np.ndarray | None = None,
        least_score: np.ndarray | None = None,
        center_point_box: int = 0,
    ) -> Any:
        if max_boxes is None or int(max_boxes.reshape(-1)[0]) <= 0:
            return (np.zeros((0, 3), np.int64),)
        overlap = np.zeros(1, np.float32) if overlap is None else overlap.reshape(-1)
        least_score = np.full(1, -np.inf, np.float32) if least_score is None else least_score.reshape(-1)
        return super()._run(
            boxes, scores, max_boxes.reshape(-1), overlap, least_score, center_point_box=center_point_box
        )


class RoiAlign_10(UpstreamRoiAlign):  # type: ignore[misc]
    # Before opset 16, regions are not shifted by half an element; onnx.reference uses the later default. Compared with
    # onnxruntime.

    def _run(
        self,
        x: np.ndarray,
        rois: np.ndarray,
        batch_indices: np.ndarray,
        mode: str = "avg",
        output_height: int = 1,
        output_width: int = 1,
        sampling_ratio: int = 0,
        spatial_scale: float = 1.0,
    ) -> Any:
        return super()._run(
            x, rois, batch_indices, "output_half_pixel", mode, output_height, output_width, sampling_ratio,
            spatial_scale,
        )  # fmt: skip


class AffineGrid(OpRun):
    # With align_corners onnx.reference puts an axis of one element at -1, onnxruntime at 1. It also returns float32 for
    # any type. Compared with onnxruntime.

    def _run(self, theta: np.ndarray, size: np.ndarray, align_corners: int = 0) -> tuple[np.ndarray, ...]:
        places = []
        for length in map(int, size[2:]):
            if align_corners:
                places.append(np.linspace(-1, 1, length) if length > 1 else np.ones(length))
            else:
                places.append((2 * np.arange(length) + 1) / max(length, 1) - 1)
        grid = np.meshgrid(*places, indexing="ij")
        points = np.stack([*grid[::-1], np.ones_like(grid[0])], axis=-1)
        return (np.einsum("nij,...j->n...i", theta.astype(np.float64), points).astype(theta.dtype),)


CORRECTIONS: Corrections = (
    ("", "AffineGrid", 20, None, AffineGrid),
    ("", "Scatter", 9, 10, Scatter),
    ("", "GatherElements", 11, None, GatherElements),
    ("", "ScatterElements", 16, None, ScatterElements),
    ("", "Slice", 10, None, Slice),
    ("", "GridSample", 16, 19, GridSample_16),
    ("", "GridSample", 20, None, GridSample),
    ("", "OneHot", 9, None, OneHot),
    ("", "Unique", 11, None, Unique),
    ("", "NonMaxSuppression", 10, None, NonMaxSuppression),
    ("", "RoiAlign", 10, 15, RoiAlign_10),
)
