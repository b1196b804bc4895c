"""Resize and Upsample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from onnx.numpy_helper import saturate_cast
from onnx.reference.ops import load_op

from .table import Corrections

__all__ = ["CORRECTIONS", "coordinates", "target"]

UpstreamResize: Any = load_op("", "Resize", None)


class Resize(UpstreamResize):  # type: ignore[misc]
    # onnx.reference computes the coordinates of nearest mode in double precision, where 1.5 / 0.6f - 0.5 is not 2, and
    # so selects other elements than all backends, which use float32. In linear and cubic mode it looks for neighbors
    # by coordinates of the padded axis, and reads other elements where a coordinate rounds to an integer there. For
    # tf_crop_and_resize it uses the unrounded length that the scales give. For pytorch_half_pixel it takes -0.5 as the
    # coordinate where one element is left, the specification 0. It fails for negative axes. Found by comparing with
    # onnxruntime over coordinate modes and roundings.

    def _run(
        self,
        x: np.ndarray,
        roi: np.ndarray | None = None,
        scales: np.ndarray | None = None,
        sizes: np.ndarray | None = None,
        mode: str = "nearest",
        **attributes: Any,
    ) -> tuple[np.ndarray, ...]:
        scales = None if scales is None or not scales.size else scales
        sizes = None if sizes is None or not sizes.size else sizes
        if attributes.get("axes") is not None:
            attributes["axes"] = [axis % x.ndim for axis in attributes["axes"]]
        if mode == "nearest":
            return (_nearest(x, roi, scales, sizes, **attributes),)
        if x.size:
            return (_interpolated(x, roi, scales, sizes, mode, **attributes),)
        result: tuple[np.ndarray, ...] = super()._run(x, roi, scales, sizes, mode=mode, **attributes)
        return result


def _nearest(
    x: np.ndarray,
    roi: np.ndarray | None,
    scales: np.ndarray | None,
    sizes: np.ndarray | None,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    nearest_mode: str = "round_prefer_floor",
    **_: Any,
) -> np.ndarray:
    """``x`` resized by selecting elements, one axis after the other."""
    resized_axes = list(range(x.ndim) if axes is None else axes)
    factors, lengths = target(x, resized_axes, scales, sizes, keep_aspect_ratio_policy)
    result = x
    outside = np.zeros((), np.bool_)
    for position, axis in enumerate(resized_axes):
        region = None
        if coordinate_transformation_mode == "tf_crop_and_resize" and roi is not None and roi.size:
            region = (roi[position], roi[position + len(resized_axes)])
        size = x.shape[axis]
        places = coordinates(coordinate_transformation_mode, size, lengths[position], factors[position], region)
        rounding = nearest_mode
        if rounding == "simple":
            rounding = "ceil" if factors[position] < 1 else "floor"
        result = np.take(result, _round(places, rounding).clip(0, size - 1), axis=axis)
        if region is not None:
            beyond = (places < 0) | (places > size - 1)
            outside = outside | beyond.reshape(-1, *(1,) * (x.ndim - axis - 1))
    if outside.any():
        if x.dtype.kind in "iu":
            limits = np.iinfo(x.dtype)
            extrapolation_value = min(max(int(np.nan_to_num(extrapolation_value)), limits.min), limits.max)
        result = np.where(outside, np.asarray(extrapolation_value, x.dtype), result)
    return result


def _interpolated(
    x: np.ndarray,
    roi: np.ndarray | None,
    scales: np.ndarray | None,
    sizes: np.ndarray | None,
    mode: str,
    axes: Sequence[int] | None = None,
    antialias: int = 0,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    **_: Any,
) -> np.ndarray:
    """Interpolates ``x``, or its region ``roi`` for tf_crop_and_resize, one axis after the other."""
    resized_axes = list(range(x.ndim) if axes is None else axes)
    factors, lengths = target(x, resized_axes, scales, sizes, keep_aspect_ratio_policy)
    result = x.astype(np.float64)
    outside = np.zeros((), np.bool_)
    for position, (axis, length) in enumerate(zip(resized_axes, lengths, strict=True)):
        size, region = x.shape[axis], None
        if roi is not None and roi.size and coordinate_transformation_mode == "tf_crop_and_resize":
            region = (roi[position], roi[position + len(resized_axes)])
        factor = factors[position]
        places = coordinates(coordinate_transformation_mode, size, length, factor, region, np.float64)
        if region is not None:
            beyond = (places < 0) | (places > size - 1)
            outside = outside | beyond.reshape(-1, *(1,) * (x.ndim - axis - 1))
        shrink = min(float(factor), 1.0) if antialias else 1.0
        reach = math.ceil((2 if mode == "cubic" else 1) / shrink)
        places = places.clip(-reach, size + reach - 1)
        taps = np.floor(places)[:, None] + np.arange(1 - reach, reach + 1)
        distance = np.abs(taps - places[:, None]) * shrink
        if mode == "cubic":
            a = cubic_coeff_a
            near = (a + 2) * distance**3 - (a + 3) * distance**2 + 1
            far = a * distance**3 - 5 * a * distance**2 + 8 * a * distance - 4 * a
            weights = np.where(distance <= 1, near, np.where(distance < 2, far, 0))
        else:
            weights = np.maximum(1 - distance, 0)
        if exclude_outside:
            weights = np.where((taps < 0) | (taps > size - 1), 0, weights)
        if exclude_outside or antialias:
            total = weights.sum(axis=1, keepdims=True)
            weights = weights / np.where(total == 0, 1, total)
        matrix = np.zeros((length, size))
        for place, weight in zip(taps.clip(0, size - 1).astype(np.int64).T, weights.T, strict=True):
            matrix[np.arange(length), place] += weight  # one element of each row
        result = np.moveaxis(np.tensordot(matrix, result, (1, axis)), 0, axis)
    made = np.where(outside, extrapolation_value, result)
    return np.asarray(saturate_cast(made, x.dtype) if x.dtype.kind in "iu" else made.astype(x.dtype))


def target(
    x: np.ndarray, axes: Sequence[int], scales: np.ndarray | None, sizes: np.ndarray | None, policy: str
) -> tuple[list[float], list[int]]:
    """Scale and length of the result for each of ``axes``."""
    if scales is not None:
        return [float(s) for s in scales], [
            math.floor(float(s) * x.shape[a]) for s, a in zip(scales, axes, strict=True)
        ]
    if sizes is None:
        raise ValueError("expected scales or sizes, found neither")
    ratios = [Fraction(int(n), x.shape[a]) for n, a in zip(sizes, axes, strict=True)]
    if policy == "stretch":
        return [float(ratio) for ratio in ratios], [int(n) for n in sizes]
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    lengths = [math.floor(ratio * x.shape[a] + Fraction(1, 2)) for a in axes]
    return [float(np.float32(ratio))] * len(axes), lengths


def coordinates(
    mode: str,
    size: int,
    length: int,
    factor: float,
    region: tuple[float, float] | None,
    dtype: Any = np.float32,
) -> np.ndarray:
    """[length] of ``dtype``: the coordinate in the input of each element of the result, along one axis."""
    y: np.ndarray = np.arange(length, dtype=dtype)
    scale, half = dtype(factor), dtype(0.5)
    places: np.ndarray
    match mode:
        case "asymmetric":
            places = y / scale
        case "align_corners":
            # If the scale is the ratio of the lengths up to rounding, use the length itself, so that corners map to
            # integers.
            is_ratio = abs(factor * size - length) <= 1e-6 * length
            resized = dtype(length) if is_ratio else dtype(scale * dtype(size))
            places = y * dtype(size - 1) / (resized - 1) if resized != 1 else np.zeros_like(y)
        case "half_pixel" | "pytorch_half_pixel":
            is_one = mode == "pytorch_half_pixel" and length <= 1
            places = np.zeros_like(y) if is_one else (y + half) / scale - half
        case "half_pixel_symmetric":
            adjustment = dtype(length) / dtype(scale * dtype(size))
            offset = dtype(size) / 2 * (1 - adjustment)
            # Rounded only once, as in onnxruntime, so that nearly integer coordinates fall on the same side.
            places = (float(offset) + (y + half).astype(np.float64) / float(scale) - 0.5).astype(dtype)
        case "tf_crop_and_resize" if region is not None:
            start, end = dtype(region[0]), dtype(region[1])
            places = np.full_like(y, half * (start + end) * dtype(size - 1))
            if length > 1:
                places = start * dtype(size - 1) + y * (end - start) * dtype(size - 1) / dtype(length - 1)
        case _:
            raise ValueError(f"unknown coordinate_transformation_mode {mode!r}, or its roi is missing")
    return places


def _round(places: np.ndarray, mode: str) -> np.ndarray:
    match mode:
        case "round_prefer_floor":
            rounded = np.ceil(places - np.float32(0.5))
        case "round_prefer_ceil":
            rounded = np.floor(places + np.float32(0.5))
        case "floor":
            rounded = np.floor(places)
        case "ceil":
            rounded = np.ceil(places)
        case _:
            raise ValueError(f"unknown nearest_mode {mode!r}")
    return rounded.astype(np.int64)


class _ByScales(UpstreamResize):  # type: ignore[misc]
    """Resize before opset 11: asymmetric coordinates, rounded down when enlarging and up when shrinking."""

    def resize(self, x: np.ndarray, scales: np.ndarray, mode: str) -> tuple[np.ndarray, ...]:
        if mode == "nearest":
            resized = _nearest(
                x, None, scales, None, coordinate_transformation_mode="asymmetric", nearest_mode="simple"
            )
            return (resized,)
        # older exporters write "bilinear" instead of "linear"
        result: tuple[np.ndarray, ...] = UpstreamResize._run(
            self,
            x,
            None,
            scales,
            mode="linear" if mode == "bilinear" else mode,
            coordinate_transformation_mode="asymmetric",
        )
        return result


class Resize_10(_ByScales):
    # In opset 10 the scales are the second input; onnx.reference reads them as a region. Compared with onnxruntime at
    # 10.

    def _run(self, x: np.ndarray, scales: np.ndarray, mode: str = "nearest") -> tuple[np.ndarray, ...]:
        return self.resize(x, scales, mode)


class Upsample_7(_ByScales):
    # Upsample of opsets 7 and 8 has its scales as an attribute; onnx.reference looks for an input.

    def _run(self, x: np.ndarray, mode: str = "nearest", scales: Sequence[float] = ()) -> tuple[np.ndarray, ...]:
        return self.resize(x, np.array(scales, np.float32), mode)


class Upsample_1(_ByScales):
    # Upsample of opsets 1 to 6 scales the last two axes, with one attribute each.

    def _run(
        self, x: np.ndarray, height_scale: float = 1.0, width_scale: float = 1.0, mode: str = "nearest"
    ) -> tuple[np.ndarray, ...]:
        return self.resize(x, np.array([1, 1, height_scale, width_scale], np.float32), mode)


CORRECTIONS: Corrections = (
    ("", "Resize", 10, 10, Resize_10),
    ("", "Resize", 11, None, Resize),
    ("", "Upsample", 1, 6, Upsample_1),
    ("", "Upsample", 7, 8, Upsample_7),
    # onnx.reference implements nearest mode only for integer scales
    ("", "Upsample", 9, 9, Resize_10),
)
