"""Resize and Upsample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops._op_list import Resize as UpstreamResize

__all__ = ["CORRECTIONS"]


class Resize(UpstreamResize):  # type: ignore[misc]
    # Nearest mode of onnx.reference: it computes coordinates in double precision, where 1.5 / 0.6f - 0.5 is not 2, and
    # so takes another element than every backend, which compute in float32; and where a coordinate is whole it treats
    # it as the one before. Found by comparing with onnxruntime over coordinate modes and roundings.

    def _run(
        self,
        x: np.ndarray,
        roi: np.ndarray | None = None,
        scales: np.ndarray | None = None,
        sizes: np.ndarray | None = None,
        antialias: int = 0,
        axes: Sequence[int] | None = None,
        coordinate_transformation_mode: str = "half_pixel",
        cubic_coeff_a: float = -0.75,
        exclude_outside: int = 0,
        extrapolation_value: float = 0.0,
        keep_aspect_ratio_policy: str = "stretch",
        mode: str = "nearest",
        nearest_mode: str = "round_prefer_floor",
    ) -> tuple[np.ndarray, ...]:
        scales = None if scales is None or not scales.size else scales
        sizes = None if sizes is None or not sizes.size else sizes
        if mode != "nearest":
            result: tuple[np.ndarray, ...] = super()._run(
                x, roi, scales, sizes, antialias, axes, coordinate_transformation_mode, cubic_coeff_a, exclude_outside,
                extrapolation_value, keep_aspect_ratio_policy, mode, nearest_mode,
            )  # fmt: skip
            return result
        chosen = [axis % x.ndim for axis in axes] if axes is not None else list(range(x.ndim))
        factors, lengths = _target(x, chosen, scales, sizes, keep_aspect_ratio_policy)
        result_array = x
        outside = np.zeros((), np.bool_)
        for position, axis in enumerate(chosen):
            region = None
            if coordinate_transformation_mode == "tf_crop_and_resize" and roi is not None and roi.size:
                region = (np.float32(roi[position]), np.float32(roi[position + len(chosen)]))
            places = coordinates(
                coordinate_transformation_mode, x.shape[axis], lengths[position], factors[position], region
            )
            rounding = nearest_mode
            if nearest_mode == "simple":
                rounding = "ceil" if factors[position] < 1 else "floor"
            index = _round(places, rounding).clip(0, x.shape[axis] - 1)
            result_array = np.take(result_array, index, axis=axis)
            if region is not None:
                beyond = (places < 0) | (places > x.shape[axis] - 1)
                outside = outside | beyond.reshape(-1, *(1,) * (x.ndim - axis - 1))
        if outside.any():
            result_array = np.where(outside, np.asarray(extrapolation_value, x.dtype), result_array)
        return (result_array,)


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
    """float32[length]: where each element of the result lies in the input, along one axis."""
    y = np.arange(length, dtype=np.float32)
    half = np.float32(0.5)
    match mode:
        case "asymmetric":
            return y / scale
        case "align_corners":
            resized = np.float32(scale * np.float32(size))
            return y * np.float32(size - 1) / (resized - 1) if resized != 1 else np.zeros_like(y)
        case "pytorch_half_pixel":
            return (y + half) / scale - half if length > 1 else np.full_like(y, -0.5)
        case "half_pixel":
            return (y + half) / scale - half
        case "half_pixel_symmetric":
            adjustment = np.float32(length) / np.float32(scale * np.float32(size))
            offset = np.float32(size) / 2 * (1 - adjustment)
            return offset + (y + half) / scale - half
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


class Resize_10(Resize):
    # Opset 10 has the scales as second input and one set of formulas: asymmetric coordinates, rounded down when
    # enlarging and up when shrinking ("simple"). onnx.reference takes the second input for a region. Compared with
    # onnxruntime at opset 10.

    def _run(self, x: np.ndarray, scales: np.ndarray, mode: str = "nearest") -> tuple[np.ndarray, ...]:
        # "bilinear" is what exporters wrote before "linear" was settled on
        mode = "linear" if mode == "bilinear" else mode
        return super()._run(
            x, None, scales, coordinate_transformation_mode="asymmetric", mode=mode, nearest_mode="simple"
        )


class Upsample_7(Resize_10):
    # Upsample of opsets 7 and 8 has its scales as an attribute; onnx.reference looks for an input.

    def _run(self, x: np.ndarray, mode: str = "nearest", scales: Sequence[float] = ()) -> tuple[np.ndarray, ...]:
        return super()._run(x, np.array(scales, np.float32), mode)


class Upsample_1(Resize_10):
    # Upsample of opsets 1 to 6 scales the last two axes, by two attributes.

    def _run(
        self, x: np.ndarray, height_scale: float = 1.0, width_scale: float = 1.0, mode: str = "nearest"
    ) -> tuple[np.ndarray, ...]:
        return super()._run(x, np.array([1, 1, height_scale, width_scale], np.float32), mode)


CORRECTIONS: tuple[tuple[str, str, int, int | None, type[Any]], ...] = (
    ("", "Resize", 10, 10, Resize_10),
    ("", "Resize", 11, None, Resize),
    ("", "Upsample", 1, 6, Upsample_1),
    ("", "Upsample", 7, 8, Upsample_7),
    # onnx.reference implements nearest mode with whole scales only
    ("", "Upsample", 9, 9, Resize_10),
)
