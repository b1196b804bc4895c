"""Operators that onnx.reference does not support, or not in all versions, and that fit no other module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper
from onnx.reference.op_run import OpRun
from onnx.reference.ops import load_op

from ....model.types import dtype_of, onnx_dtype_of
from .table import Corrections

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


class Cast_1(OpRun):
    # Until opset 5 the target type is a name; onnx.reference parses the name as a number.

    def _run(self, x: np.ndarray, to: str = "FLOAT") -> tuple[np.ndarray]:
        number = TensorProto.DataType.Value(to)
        if number == TensorProto.STRING:
            return (x.astype(str).astype(object),)
        return (x.astype(dtype_of(number)),)


class CastLike_24(OpRun):
    # onnx.reference supports `round_mode` in Cast but not here. According to the schema.

    def _run(
        self, x: np.ndarray, like: np.ndarray, round_mode: str = "up", saturate: int = 1
    ) -> tuple[np.ndarray, ...]:
        target = TensorProto.STRING if like.dtype == object else onnx_dtype_of(like.dtype)
        node = helper.make_node("Cast", ["x"], ["y"], to=target, round_mode=round_mode, saturate=saturate)
        cast: Any = load_op("", "Cast", 24)
        result: tuple[np.ndarray, ...] = cast(node, self.run_params).run(x)
        return result


class Split_1(OpRun):
    # Opset 1 has the sizes as an attribute or a second input. onnx.reference starts at opset 2.

    def _run(
        self,
        x: np.ndarray,
        sizes: np.ndarray | None = None,
        axis: int | None = None,
        split: Sequence[int] | None = None,
    ) -> tuple[np.ndarray, ...]:
        axis = axis or 0  # the schema states no default
        parts = len(self.onnx_node.output)
        lengths = list(split or ()) or (
            sizes.astype(np.int64).tolist() if sizes is not None else [x.shape[axis] // parts] * parts
        )
        return tuple(np.split(x, np.cumsum(lengths)[:-1], axis=axis))


class StringNormalizer(OpRun):
    # onnx.reference removes accents, and compares words of another case as if is_case_sensitive were 1. By the schema.

    def _run(
        self,
        x: np.ndarray,
        case_change_action: str = "NONE",
        is_case_sensitive: int = 0,
        locale: str | None = None,
        stopwords: Sequence[str] | None = None,
    ) -> tuple[np.ndarray]:
        def plain(word: str) -> str:
            return word if is_case_sensitive else word.lower()

        stops = {plain(word) for word in stopwords or ()}
        changes: dict[str, Callable[[str], str]] = {"LOWER": str.lower, "UPPER": str.upper, "NONE": str}
        change = changes[case_change_action]
        words = [change(word) for word in x.reshape(-1).tolist() if plain(word) not in stops] or [""]
        return (np.array(words, object).reshape((-1,) if x.ndim == 1 else (1, -1)),)


CORRECTIONS: Corrections = (
    ("", "StringNormalizer", 10, None, StringNormalizer),
    ("", "Cast", 1, 5, Cast_1),
    ("", "CastLike", 24, None, CastLike_24),
    ("", "Split", 1, 1, Split_1),
    ("", "DequantizeLinear", 10, 18, DequantizeLinear_10),
)
