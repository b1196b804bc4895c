"""Operators that onnx.reference lacks, or lacks in some versions, and that fit nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from ....model.types import dtype_of

__all__ = ["CORRECTIONS"]


class DequantizeLinear_10(OpRun):
    # onnx.reference starts at opset 19. Backend suite stamped as opsets 10 and 13.

    def _run(
        self, x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray | None = None, axis: int = 1
    ) -> tuple[np.ndarray]:
        if scale.ndim == 1 and scale.size > 1:
            along = [1] * x.ndim
            along[axis] = scale.size
            scale = scale.reshape(along)
            zero_point = None if zero_point is None else zero_point.reshape(along)
        zero = 0 if zero_point is None else zero_point.astype(np.int64)
        return (((x.astype(np.int64) - zero) * scale).astype(scale.dtype),)


class Multinomial(OpRun):
    """Draws classes from unnormalised log probabilities [batch, classes], by the inverse of the distribution."""

    def _run(
        self, logits: np.ndarray, dtype: int = 6, sample_size: int = 1, seed: float | None = None
    ) -> tuple[np.ndarray]:
        random = np.random.default_rng(None if seed is None else int(np.float32(seed).view(np.uint32)))
        wide = logits.astype(np.float64)
        odds = np.cumsum(np.exp(wide - wide.max(axis=1, keepdims=True)), axis=1)
        draws = random.random((len(logits), sample_size)) * odds[:, -1:]
        chosen = (draws[:, :, None] >= odds[:, None, :]).sum(axis=2)
        return (chosen.astype(dtype_of(dtype)),)


class CategoryMapper(OpRun):
    """Strings to integers and back, by two lists."""

    op_domain = "ai.onnx.ml"

    def _run(
        self,
        x: np.ndarray,
        cats_int64s: Sequence[int] = (),
        cats_strings: Sequence[str] = (),
        default_int64: int = -1,
        default_string: str = "_Unused",
    ) -> tuple[np.ndarray]:
        if x.dtype.kind in "OU":
            numbers = dict(zip(cats_strings, cats_int64s, strict=True))
            found: Any = [numbers.get(item, default_int64) for item in x.flat]
            return (np.array(found, np.int64).reshape(x.shape),)
        texts = dict(zip(cats_int64s, cats_strings, strict=True))
        return (np.array([texts.get(int(i), default_string) for i in x.flat], object).reshape(x.shape),)


class ZipMap(OpRun):
    """A row of scores becomes a map from class to score; the result is a sequence of such maps."""

    op_domain = "ai.onnx.ml"

    def _run(
        self,
        x: np.ndarray,
        classlabels_int64s: Sequence[int] | None = None,
        classlabels_strings: Sequence[str] | None = None,
    ) -> tuple[list[dict[Any, Any]]]:
        labels = list(classlabels_strings or classlabels_int64s or ())
        return ([dict(zip(labels, row, strict=True)) for row in np.atleast_2d(x)],)


class CastMap(OpRun):
    """A map from integer to value becomes a row: its values in order of their keys, or each at its key."""

    op_domain = "ai.onnx.ml"

    def _run(
        self, x: dict[int, Any], cast_to: str = "TO_FLOAT", map_form: str = "DENSE", max_map: int = 1
    ) -> tuple[np.ndarray]:
        dtype: Any = {"TO_FLOAT": np.float32, "TO_INT64": np.int64, "TO_STRING": object}[cast_to]
        convert = str if dtype is object else float
        if map_form == "DENSE":
            return (np.array([[convert(x[key]) for key in sorted(x)]]).astype(dtype),)
        row = np.zeros((1, max_map), dtype) if dtype is not object else np.full((1, max_map), "", object)
        for key, value in x.items():
            if 0 <= key < max_map:
                row[0, key] = convert(value)
        return (row,)


CORRECTIONS: tuple[tuple[str, str, int, int | None, type[OpRun]], ...] = (
    ("", "DequantizeLinear", 10, 18, DequantizeLinear_10),
    ("", "Multinomial", 7, None, Multinomial),
    ("ai.onnx.ml", "CategoryMapper", 1, None, CategoryMapper),
    ("ai.onnx.ml", "ZipMap", 1, None, ZipMap),
    ("ai.onnx.ml", "CastMap", 1, None, CastMap),
)
