"""Operators that move data without changing it, and early versions of other operators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx.defs
from onnx.reference.op_run import OpRun
from onnx.reference.ops import load_op

from .table import Corrections

__all__ = ["CORRECTIONS"]


class Reshape_1(OpRun):
    # Opset 1 has the shape as an attribute; onnx.reference starts at 5.

    def _run(self, x: np.ndarray, shape: Sequence[int] = ()) -> tuple[np.ndarray, ...]:
        sizes = [x.shape[axis] if size == 0 else size for axis, size in enumerate(shape)]
        return (x.reshape(sizes),)


class Concat_1(OpRun):
    # In opsets 1 to 3 the axis is optional and defaults to 1; onnx.reference requires it.
    op_schema = onnx.defs.get_schema("Concat", 1, "")

    def _run(self, *inputs: np.ndarray, axis: int | None = None) -> tuple[np.ndarray, ...]:
        return (np.concatenate(inputs, axis=1 if axis is None else axis),)


class Squeeze_1(OpRun):
    # onnx.reference squeezes one axis after the other, which is wrong unless the axes ascend. Compared with
    # onnxruntime. (In opset 13 the axes are an input, and onnx.reference is right.)

    def _run(self, x: np.ndarray, axes: Sequence[int] | None = None) -> tuple[np.ndarray, ...]:
        return (np.squeeze(x, axis=None if axes is None else tuple(axes)),)


class Unsqueeze_1(OpRun):
    # onnx.reference inserts one axis after the other, which is wrong unless the axes ascend, because they are axes of
    # the result. Compared with onnxruntime.

    def _run(self, x: np.ndarray, axes: Sequence[int] = ()) -> tuple[np.ndarray, ...]:
        return (np.expand_dims(x, axis=tuple(axes)),)


class Pad(OpRun):
    # Negative pads first remove elements; onnx.reference fails on them. Compared with onnxruntime.

    def _run(
        self,
        x: np.ndarray,
        pads: np.ndarray,
        value: np.ndarray | None = None,
        axes: np.ndarray | None = None,
        mode: str = "constant",
    ) -> tuple[np.ndarray, ...]:
        padded_axes = range(x.ndim) if axes is None else [int(axis) % x.ndim for axis in axes]
        return (_pad(x, [int(p) for p in pads], padded_axes, mode, 0 if value is None else value.reshape(-1)[0]),)


class Pad_2(OpRun):
    def _run(
        self, x: np.ndarray, mode: str = "constant", pads: Sequence[int] = (), value: float = 0.0
    ) -> tuple[np.ndarray, ...]:
        return (_pad(x, pads, range(x.ndim), mode, value),)


class Pad_1(OpRun):
    def _run(
        self, x: np.ndarray, mode: str = "constant", paddings: Sequence[int] = (), value: float = 0.0
    ) -> tuple[np.ndarray, ...]:
        return (_pad(x, paddings, range(x.ndim), mode, value),)


def _pad(x: np.ndarray, pads: Sequence[int], axes: Sequence[int], mode: str, value: object) -> np.ndarray:
    if len(pads) != 2 * len(axes):
        raise ValueError(f"expected {2 * len(axes)} pads, found {len(pads)}")
    begin, end = [0] * x.ndim, [0] * x.ndim
    for position, axis in enumerate(axes):
        begin[axis], end[axis] = pads[position], pads[position + len(axes)]
    sizes = [b + n + e for b, e, n in zip(begin, end, x.shape, strict=True)]
    if min(sizes, default=1) < 0:
        raise ValueError(f"pads {list(pads)} remove more elements than shape {list(x.shape)} has")
    if 0 in sizes:
        return np.empty(sizes, x.dtype)
    for axis, (b, e, n) in enumerate(zip(begin, end, x.shape, strict=True)):
        if min(b, 0) + n + min(e, 0) < 0:  # no element of x is left, only padding
            if mode != "constant":
                raise ValueError(f"mode {mode!r} needs elements along axis {axis}, but negative pads remove all")
            x = np.full((*x.shape[:axis], b + n + e, *x.shape[axis + 1 :]), value, x.dtype)
            begin[axis] = end[axis] = 0
    kept = tuple(slice(max(-b, 0), n - max(-e, 0)) for b, e, n in zip(begin, end, x.shape, strict=True))
    widths = [(max(b, 0), max(e, 0)) for b, e in zip(begin, end, strict=True)]
    if mode == "constant":
        fill = np.full((), value, x.dtype)
        return np.pad(x[kept], widths, constant_values=fill)
    return np.pad(x[kept], widths, mode=mode)  # type: ignore[call-overload, no-any-return]


class Tile_1(OpRun):
    # Opsets 1 to 5 repeat along one axis: tiles and axis are inputs. onnx.reference reads them as repeats per axis.

    def _run(self, x: np.ndarray, tiles: np.ndarray, axis: np.ndarray) -> tuple[np.ndarray, ...]:
        repeats = [1] * x.ndim
        repeats[int(axis.reshape(-1)[0])] = int(tiles.reshape(-1)[0])
        return (np.tile(x, repeats),)


class Shape_15(OpRun):
    # onnx.reference adds the rank to a negative end but does not clip the sum to 0. Compared with the CPU device.

    def _run(self, x: np.ndarray, start: int = 0, end: int | None = None) -> tuple[np.ndarray, ...]:
        first, last = (min(max(n + x.ndim if n < 0 else n, 0), x.ndim) for n in (start, x.ndim if end is None else end))
        return (np.array(x.shape[first:last], np.int64),)


class Flatten(OpRun):
    # onnx.reference leaves the second length to NumPy, which cannot find it where the first is 0. Found by
    # tests/fuzz/operators.py.

    def _run(self, x: np.ndarray, axis: int = 1) -> tuple[np.ndarray, ...]:
        axis += x.ndim if axis < 0 else 0
        return (x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:])),)


UpstreamSTFT: Any = load_op("", "STFT", 17)


class STFT(UpstreamSTFT):  # type: ignore[misc]
    # onnx.reference requires the dimension of real and imaginary parts. onnxruntime accepts real signals without it,
    # and models have them.

    def _run(self, x: np.ndarray, *others: np.ndarray | None, **attributes: Any) -> tuple[np.ndarray, ...]:
        results: tuple[np.ndarray, ...] = super()._run(x[..., None] if x.ndim == 2 else x, *others, **attributes)
        return results


CORRECTIONS: Corrections = (
    ("", "STFT", 17, None, STFT),
    ("", "Flatten", 1, None, Flatten),
    ("", "Shape", 15, None, Shape_15),
    ("", "Reshape", 1, 4, Reshape_1),
    ("", "Concat", 1, 3, Concat_1),
    ("", "Squeeze", 1, 12, Squeeze_1),
    ("", "Unsqueeze", 1, 12, Unsqueeze_1),
    ("", "Pad", 1, 1, Pad_1),
    ("", "Pad", 2, 10, Pad_2),
    ("", "Pad", 11, None, Pad),
    ("", "Tile", 1, 5, Tile_1),
)
