"""Convolutions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops import load_op

from .table import Corrections

__all__ = ["CORRECTIONS"]


UpstreamConv: Any = load_op("", "Conv", 11)


class Conv(UpstreamConv):  # type: ignore[misc]
    # onnx.reference fills the gaps of a dilated kernel with zeros, so that NaN and infinities reach outputs whose
    # windows do not hold them. Found by comparing with CPU and onnxruntime.

    def _run(
        self,
        x: np.ndarray,
        w: np.ndarray,
        b: np.ndarray | None = None,
        auto_pad: str | None = None,
        dilations: Sequence[int] | None = None,
        group: int = 1,
        kernel_shape: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> Any:
        rank = x.ndim - 2
        if dilations is None or all(d == 1 for d in dilations) or tuple(kernel_shape or w.shape[2:]) != w.shape[2:]:
            return super()._run(x, w, b, auto_pad, dilations, group, kernel_shape, pads, strides)
        kernel, steps = w.shape[2:], strides or [1] * rank
        spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        before, after = (pads[:rank], pads[rank:]) if pads and auto_pad != "VALID" else ([0] * rank, [0] * rank)
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            total = [max(-(-n // s) * s - s + k - n, 0) for n, s, k in zip(x.shape[2:], steps, spans, strict=True)]
            before = [(t + (auto_pad == "SAME_LOWER")) // 2 for t in total]
            after = [t - begin for t, begin in zip(total, before, strict=True)]
        padded = np.pad(x, [(0, 0), (0, 0), *zip(before, after, strict=True)])
        ends = [n - k + 1 for n, k in zip(padded.shape[2:], spans, strict=True)]
        taps = []
        for tap in itertools.product(*map(range, kernel)):
            window = tuple(slice(t * d, t * d + e, s) for t, d, e, s in zip(tap, dilations, ends, steps, strict=True))
            taps.append(padded[(slice(None),) * 2 + window])
        size = math.prod(kernel)
        columns = np.stack(taps, axis=2).reshape(x.shape[0], x.shape[1] * size, *taps[0].shape[2:])
        return super()._run(columns, w.reshape(len(w), w.shape[1] * size, *[1] * rank), b, group=group)


class ConvTranspose(OpRun):
    # onnx.reference fails for more than one group unless each group has one output channel, and adds the bias of the
    # first channels in every group. Found by comparing with onnxruntime over groups, strides, pads and dilations.

    def _run(
        self,
        x: np.ndarray,
        w: np.ndarray,
        b: np.ndarray | None = None,
        auto_pad: str | None = None,
        dilations: Sequence[int] | None = None,
        group: int = 1,
        kernel_shape: Sequence[int] | None = None,
        output_padding: Sequence[int] | None = None,
        output_shape: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> tuple[np.ndarray, ...]:
        rank = x.ndim - 2
        kernel = w.shape[2:]
        if kernel_shape is not None and tuple(kernel_shape) != kernel:
            raise ValueError(f"kernel_shape is {list(kernel_shape)}, the weights have {list(kernel)}")
        strides = strides or [1] * rank
        dilations = dilations or [1] * rank
        extra = output_padding or [0] * rank
        # `full` is the size that all windows cover together; the output is `size` elements of it from `begin` on.
        full = [(x.shape[2 + a] - 1) * strides[a] + (kernel[a] - 1) * dilations[a] + 1 + extra[a] for a in range(rank)]
        begin, sizes = [], []
        for a in range(rank):
            first, last = (pads[a], pads[a + rank]) if pads and auto_pad in (None, "", "NOTSET") else (0, 0)
            if output_shape or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
                output_size = output_shape[-rank:][a] if output_shape else x.shape[2 + a] * strides[a]
                total = max(full[a] - output_size, 0)
                first = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
                last = full[a] - output_size - first
            begin.append(first)
            sizes.append(full[a] - first - last)
        batch, channels = x.shape[:2]
        maps = w.shape[1]
        dtype = np.result_type(x.dtype, np.float32)
        canvas = np.zeros(
            (batch, group, maps, *(max(f, p + n) for f, p, n in zip(full, begin, sizes, strict=True))), dtype
        )
        grouped = x.reshape(batch, group, channels // group, math.prod(x.shape[2:]))
        weights = w.reshape(group, channels // group, maps, *kernel)
        for offset in itertools.product(*map(range, kernel)):
            tap_weights = weights.transpose(0, 2, 1, *range(3, weights.ndim))[(slice(None),) * 3 + offset]
            taps = np.matmul(tap_weights, grouped)
            places = tuple(
                slice(o * d, o * d + (n - 1) * s + 1, s)
                for o, d, n, s in zip(offset, dilations, x.shape[2:], strides, strict=True)
            )
            canvas[(slice(None),) * 3 + places] += taps.reshape(batch, group, maps, *x.shape[2:])
        crop = tuple(slice(p, p + n) for p, n in zip(begin, sizes, strict=True))
        result = canvas[(slice(None),) * 3 + crop].reshape(batch, group * maps, *sizes)
        if b is not None:
            result = result + b.reshape(-1, *(1,) * rank)
        return (result.astype(x.dtype),)


CORRECTIONS: Corrections = (("", "Conv", 1, None, Conv), ("", "ConvTranspose", 1, None, ConvTranspose))
