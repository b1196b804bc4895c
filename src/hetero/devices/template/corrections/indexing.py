"""Gathering, scattering and sampling."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops._op_list import GridSample as UpstreamGridSample
from onnx.reference.ops._op_list import ScatterElements as UpstreamScatterElements

__all__ = ["CORRECTIONS"]


class Scatter(UpstreamScatterElements):
    # Scatter of opsets 9 and 10 is ScatterElements by its old name; onnx.reference does not know it. Backend suite.

    def _run(self, data: np.ndarray, indices: np.ndarray, updates: np.ndarray, axis: int = 0) -> Any:
        return super()._run(data, indices, updates, axis=axis, reduction="none")


class GridSample_16(UpstreamGridSample):
    # Opset 20 renamed the modes; onnx.reference knows the new names only. Backend suite stamped as opset 16.

    def _run(
        self,
        x: np.ndarray,
        grid: np.ndarray,
        mode: str = "bilinear",
        padding_mode: str = "zeros",
        align_corners: int = 0,
    ) -> Any:
        renamed = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
        return super()._run(x, grid, mode=renamed, padding_mode=padding_mode, align_corners=align_corners)


CORRECTIONS: tuple[tuple[str, str, int, int | None, type[OpRun]], ...] = (
    ("", "Scatter", 9, 10, Scatter),
    ("", "GridSample", 16, 19, GridSample_16),
)
