"""Attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from .table import Corrections
from .widening import widening

__all__ = ["CORRECTIONS"]

UpstreamAttention: Any = widening("Attention", 24)


class Attention(UpstreamAttention):  # type: ignore[misc]
    # With mode 0, ONNX specifies the product before the softcap as the fourth result; onnx.reference returns it after
    # the softcap. Found by comparing with onnxruntime.

    def _run(
        self,
        *inputs: np.ndarray | None,
        softcap: float | None = None,
        qk_matmul_output_mode: int = 0,
        **attributes: Any,
    ) -> tuple[np.ndarray, ...]:
        results: list[np.ndarray] = list(
            super()._run(*inputs, softcap=softcap, qk_matmul_output_mode=qk_matmul_output_mode, **attributes)
        )
        if softcap and not qk_matmul_output_mode:
            results[3] = super()._run(*inputs, **attributes)[3]
        return tuple(results)


CORRECTIONS: Corrections = (("", "Attention", 23, 24, Attention),)
