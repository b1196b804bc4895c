"""Sums of half-precision elements in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.reference.ops import load_op

__all__ = ["widened", "widening"]


def widened(x: Any) -> Any:
    """``x``, or in float32 if it is an array of half precision."""
    is_half = isinstance(x, np.ndarray) and x.dtype.name in ("bfloat16", "float16")
    return x.astype(np.float32) if is_half else x


def widening(op_type: str, version: int | None = None) -> type[Any]:
    """The class of onnx.reference for an operator whose inputs and results of half precision have the type of the first
    input, computing in float32. By itself, it adds in the type of the input, where a sum of many ones is 256 in
    bfloat16 and 2048 in float16. Found by comparing sums of ones with `CPU`."""
    upstream: Any = load_op("", op_type, version)

    class Widening(upstream):  # type: ignore[misc]
        def _run(self, x: np.ndarray, *others: np.ndarray | None, **attributes: Any) -> tuple[np.ndarray, ...]:
            results = super()._run(widened(x), *map(widened, others), **attributes)
            return tuple(result.astype(x.dtype) if widened(x) is not x else result for result in results)

    Widening.__name__ = Widening.__qualname__ = op_type
    return Widening
