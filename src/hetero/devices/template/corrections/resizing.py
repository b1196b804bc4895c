"""Resize and Upsample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx.numpy_helper import saturate_cast
from onnx.reference.ops import load_op

from .table import Corrections

__all__ = ["CORRECTIONS"]

UpstreamResize: Any = load_op("", "Resize", None)


class Resize(UpstreamResize):  # type: ignore[misc]
    # In nearest mode, onnx.reference computes coordinates in double precision, where 1.5 / 0.6f - 0.5 is not 2, and so
    # selects other elements than all backends, which use float32. It also treats an integer coordinate as the one
    # before. For tf_crop_and_resize it uses the unrounded length that the scales give instead of the result's length,
    # and so reads other elements. For pytorch_half_pixel it takes -0.5 as the coordinate where one element is left, the
    # specification 0. It fails for negative axes. Found by comparing with onnxruntime over coordinate modes and
    # roundings.

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
        coordinate_mode = attributes.get("coordinate_transformation_mode")
        if (
            coordinate_mode in ("tf_crop_and_resize", "pytorch_half_pixel")
            and not attributes.get("antialias")
            and x.size
        ):
            if coordinate_mode == "tf_crop_and_resize" and roi is None:
                raise ValueError("tf_crop_and_resize requires a roi")
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
    factors, lengths = _target(x, resized_axes, scales, sizes, keep_aspect_ratio_policy)
    result = x
    outside = np.zeros((), np.bool_)
    for position, axis in enumerate(resized_axes):
        region = None
        if coordinate_transformation_mode == "tf_crop_and_resize" and roi is not None and roi.size:
            region = (np.float32(roi[position]), np.float32(roi[position + len(resized_axes)]))
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
        result = np.where(outside, np.asarray(extrapolation_value, x.dtype), result)
    return result


def _interpolated(
    x: np.ndarray,
    roi: np.ndarray | None,
    scales: np.ndarray | None,
    sizes: np.ndarray | None,
    mode: str,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    **_: Any,
) -> np.ndarray:
    """Interpolates ``x``, or its region ``roi`` for tf_crop_and_resize, one axis after the other."""
    resized_axes = list(range(x.ndim) if axes is None else axes)
    factors, lengths = _target(x, resized_axes, scales, sizes, keep_aspect_ratio_policy)
    result = x.astype(np.float64)
    outside = np.zeros((), np.bool_)
    for position, (axis, length) in enumerate(zip(resized_axes, lengths, strict=True)):
        size = x.shape[axis]
        if roi is not None and coordinate_transformation_mode == "tf_crop_and_resize":
            start, end = float(roi[position]), float(roi[position + len(resized_axes)])
            if length > 1:
                places = start * (size - 1) + np.arange(length) * (end - start) * (size - 1) / (length - 1)
            else:
                places = np.full(length, 0.5 * (start + end) * (size - 1))
            beyond = (places < 0) | (places > size - 1)
            outside = outside | beyond.reshape(-1, *(1,) * (x.ndim - axis - 1))
        else:
            places = coordinates(coordinate_transformation_mode, size, length, factors[position], None)
            places = places.astype(np.float64)
        taps = np.floor(places.clip(-2, size + 1))[:, None] + np.arange(-1, 3)
        distance = np.abs(taps - places.clip(-2, size + 1)[:, None])
        if mode == "cubic":
            a = cubic_coeff_a
            near = (a + 2) * distance**3 - (a + 3) * distance**2 + 1
            far = a * distance**3 - 5 * a * distance**2 + 8 * a * distance - 4 * a
            weights = np.where(distance <= 1, near, np.where(distance < 2, far, 0))
        else:
            weights = np.maximum(1 - distance, 0)
        if exclude_outside:
            weights = np.where((taps < 0) | (taps > size - 1), 0, weights)
            total = weights.sum(axis=1, keepdims=True)
            weights = weights / np.where(total == 0, 1, total)
        matrix = np.zeros((length, size))
        for place, weight in zip(taps.clip(0, size - 1).astype(np.int64).T, weights.T, strict=True):
            matrix[np.arange(length), place] += weight  # one element of each row
        result = np.moveaxis(np.tensordot(matrix, result, (1, axis)), 0, axis)
    made = np.where(outside, extrapolation_value, result)
    return np.asarray(saturate_cast(made, x.dtype) if x.dtype.kind in "iu" else made.astype(x.dtype))


def _target(
    x: np.ndarray, axes: Sequence[int], scales: np.ndarray | None, sizes: np.ndarray | None, policy: str
) -> tuple[list[np.float32], list[int]]:
    """Scale and length of the result for each of ``axes``."""
    if scales is not None:
        return [np.float32(s) for s in scales], [
            math.floor(float(s) * x.shape[a]) for s, a in zip(scales, axes, strict=True)
        ]
    if sizes is None:
        raise ValueError("expected scales or sizes, found neither")
    factors = [np.float32(int(n)) / np.float32(x.shape[a]) for n, a in zip(sizes, axes, strict=True)]
    if policy == "stretch":
        return factors, [int(n) for n in sizes]
    factor = min(factors) if policy == "not_larger" else max(factors)
    return [factor] * len(axes), [math.floor(float(factor) * x.shape[a] + 0.5) for a in axes]


def coordinates(
    mode: str, size: int, length: int, scale: np.float32, region: tuple[np.float32, np.float32] | None
) -> np.ndarray:
    """float32[length]: the coordinate in the input of each element of the result, along one axis."""
    y = np.arange(length, dtype=np.float32)
    half = np.float32(0.5)
    match mode:
        case "asymmetric":
            return y / scale
        case "align_corners":
            # If the scale is the ratio of the lengths up to rounding, use the length itself, so that corners map to
            # integers.
            is_ratio = abs(float(scale) * size - length) <= 1e-6 * length
            resized = np.float32(length) if is_ratio else np.float32(scale * np.float32(size))
            return y * np.float32(size - 1) / (resized - 1) if resized != 1 else np.zeros_like(y)
        case "pytorch_half_pixel":
            return (y + half) / scale - half if length > 1 else np.zeros_like(y)
        case "half_pixel":
            return (y + half) / scale - half
        case "half_pixel_symmetric":
            adjustment = np.float32(length) / np.float32(scale * np.float32(size))
            offset = np.float32(size) / 2 * (1 - adjustment)
            # Rounded only once, as in onnxruntime, so that nearly integer coordinates fall on the same side.
            return (float(offset) + (y + half).astype(np.float64) / float(scale) - 0.5).astype(np.float32)
        case "tf_crop_and_resize" if region is not None:
            start, end = region
            if length > 1:
                return start * np.float32(size - 1) + y * (end - start) * np.float32(size - 1) / np.float32(length - 1)
            return np.full_like(y, half * (start + end) * np.float32(size - 1))
    raise ValueError(f"unknown coordinate_transformation_mode {mode!r}, or its roi is missing")


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
