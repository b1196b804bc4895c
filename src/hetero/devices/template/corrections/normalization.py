"""Softmax and its relatives, and the normalizations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from onnx.reference.op_run import OpRun

from .table import Corrections
from .widening import widened, widening

__all__ = ["CORRECTIONS"]


def _as_matrix(x: np.ndarray, axis: int) -> np.ndarray:
    """``x`` flattened to 2-D, as opsets before 13 do: the axes before ``axis``, and those from ``axis`` on."""
    axis %= x.ndim + 1 if axis >= 0 else x.ndim
    return x.reshape(int(np.prod(x.shape[:axis])), -1) if x.size else x.reshape(0, 0)


def _softmax(matrix: np.ndarray) -> np.ndarray:
    exponentials = np.exp(matrix - matrix.max(axis=1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))


def _log_softmax(matrix: np.ndarray) -> np.ndarray:
    shifted = matrix - matrix.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def _hardmax(matrix: np.ndarray) -> np.ndarray:
    one_hot = np.zeros_like(matrix)
    np.put_along_axis(one_hot, matrix.argmax(axis=1, keepdims=True), 1, axis=1)
    return one_hot


def _coerced(name: str, compute: Callable[[np.ndarray], np.ndarray]) -> type[OpRun]:
    # Before opset 13 all axes from `axis` (default 1) on are normalized together. onnx.reference normalizes one axis,
    # by default the last. Found with the backend suite stamped as opsets 1 and 11.
    class Coerced(OpRun):
        def _run(self, x: np.ndarray, axis: int = 1) -> tuple[np.ndarray]:
            if x.size == 0:
                return (x,)
            return (compute(_as_matrix(widened(x), axis)).reshape(x.shape).astype(x.dtype),)

    Coerced.__name__ = Coerced.__qualname__ = name
    return Coerced


class BatchNormalizationInference(OpRun):
    # Opsets 7 to 13 normalize with the given mean and variance unless the node has training outputs, which no inference
    # framework supports. onnx.reference mixes in batch statistics, because `momentum` has a default, and fails in
    # opsets 6 to 8 (a tuple inside a tuple). Found with the backend suite stamped as opsets 7 and 9. Before opset 9,
    # `spatial` = 0 means statistics per activation instead of per channel.

    def _run(
        self,
        x: np.ndarray,
        scale: np.ndarray,
        bias: np.ndarray,
        mean: np.ndarray,
        var: np.ndarray,
        epsilon: float = 1e-5,
        momentum: float = 0.9,
        spatial: int = 1,
    ) -> tuple[np.ndarray, ...]:
        del momentum
        return (_normalize(x, scale, bias, mean, var, epsilon, spatial),)


class BatchNormalizationUntil6(OpRun):
    # onnx.reference starts at opset 6, where it returns a tuple inside a tuple. With `is_test` = 0 the batch's
    # statistics are used and the running ones returned. According to the specification; onnxruntime starts at opset 7.

    def _run(
        self,
        x: np.ndarray,
        scale: np.ndarray,
        bias: np.ndarray,
        mean: np.ndarray,
        var: np.ndarray,
        epsilon: float = 1e-5,
        is_test: int = 0,
        momentum: float = 0.9,
        spatial: int = 1,
    ) -> tuple[np.ndarray, ...]:
        if is_test or len(self.onnx_node.output) == 1:
            return (_normalize(x, scale, bias, mean, var, epsilon, spatial),)
        axes = (0, *range(2, x.ndim)) if spatial else (0,)
        batch_mean, batch_var = x.mean(axis=axes), x.var(axis=axes)
        y = _normalize(x, scale, bias, batch_mean, batch_var, epsilon, spatial)
        running_mean = (mean * momentum + batch_mean * (1 - momentum)).astype(mean.dtype)
        running_var = (var * momentum + batch_var * (1 - momentum)).astype(var.dtype)
        return y, running_mean, running_var, batch_mean.astype(mean.dtype), batch_var.astype(var.dtype)


def _normalize(
    x: np.ndarray,
    scale: np.ndarray,
    bias: np.ndarray,
    mean: np.ndarray,
    var: np.ndarray,
    epsilon: float,
    spatial: int,
) -> np.ndarray:
    def aligned(statistic: np.ndarray) -> np.ndarray:
        if spatial:
            return statistic.reshape(-1, *(1,) * max(x.ndim - 2, 0))
        return statistic.reshape(x.shape[1:])

    y = aligned(scale) * (x - aligned(mean)) / np.sqrt(aligned(var) + epsilon) + aligned(bias)
    return np.asarray(y, x.dtype)


class Softmax(OpRun):
    # See `widening`.

    def _run(self, x: np.ndarray, axis: int = -1) -> tuple[np.ndarray]:
        if x.size == 0:
            return (x,)
        exponentials = np.exp(widened(x) - x.max(axis=axis, keepdims=True))
        return ((exponentials / exponentials.sum(axis=axis, keepdims=True)).astype(x.dtype),)


class LogSoftmax(OpRun):
    # onnx.reference computes the logarithm in place, and so writes into its input if that is empty. Compared with
    # onnxruntime on zero-sized tensors; TEMPLATE passes read-only arrays.

    def _run(self, x: np.ndarray, axis: int = -1) -> tuple[np.ndarray]:
        if x.size == 0:
            return (x,)
        shifted = widened(x) - x.max(axis=axis, keepdims=True)
        return ((shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))).astype(x.dtype),)


class LRN(OpRun):
    # onnx.reference loops over the batch instead of the channels, so it normalizes only as many channels as there are
    # images. It also supports only 4-D input. Compared with onnxruntime over sizes and ranks. Each window is summed by
    # itself: with running sums, as in onnxruntime, NaN reaches channels that do not see it.

    def _run(
        self, x: np.ndarray, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0, size: int = 1
    ) -> tuple[np.ndarray]:
        before, after = (size - 1) // 2, size // 2
        widths = [(0, 0), (before, after), *[(0, 0)] * (x.ndim - 2)]
        squares = np.pad(np.square(x.astype(np.float64)), widths)
        energy = np.lib.stride_tricks.sliding_window_view(squares, before + after + 1, axis=1).sum(axis=-1)
        return ((x / (bias + alpha / size * energy) ** beta).astype(x.dtype),)


class LayerNormalization(OpRun):
    # onnx.reference computes in the type of x and returns the statistics in it; the schema has them, and the first
    # stage, in the type `stash_type`, or float64 for float64.

    def _run(
        self,
        x: np.ndarray,
        scale: np.ndarray,
        bias: np.ndarray | None = None,
        axis: int = -1,
        epsilon: float = 1e-5,
        stash_type: int = 1,
    ) -> tuple[np.ndarray, ...]:
        if stash_type != 1:
            raise NotImplementedError(f"LayerNormalization with stash_type {stash_type}")
        axes = tuple(range(axis % x.ndim, x.ndim))
        wide = widened(x)
        mean = wide.mean(axis=axes, keepdims=True)
        centered = wide - mean
        inverse = 1 / np.sqrt(np.square(centered).mean(axis=axes, keepdims=True) + epsilon)
        y = (centered * inverse).astype(x.dtype) * scale
        if bias is not None:
            y = y + bias
        return y.astype(x.dtype), mean.astype(np.float32), inverse.astype(np.float32)


class InstanceNormalization(OpRun):
    # See `widening`.

    def _run(self, x: np.ndarray, scale: np.ndarray, bias: np.ndarray, epsilon: float = 1e-5) -> tuple[np.ndarray, ...]:
        wide, axes = widened(x), tuple(range(2, x.ndim))
        mean, var = wide.mean(axis=axes, keepdims=True), wide.var(axis=axes, keepdims=True)
        scale, bias = (array.reshape(-1, *(1,) * len(axes)) for array in (scale, bias))
        return ((scale * (wide - mean) / np.sqrt(var + np.float32(epsilon)) + bias).astype(x.dtype),)


class MeanVarianceNormalization(OpRun):
    # The function of onnx.reference has constants of float32, so it fails for half precision.

    def _run(self, x: np.ndarray, axes: Sequence[int] = (0, 2, 3)) -> tuple[np.ndarray, ...]:
        wide, axes = widened(x), tuple(axes)
        mean = wide.mean(axis=axes, keepdims=True)
        deviation = np.sqrt(np.square(wide - mean).mean(axis=axes, keepdims=True))
        return (((wide - mean) / (deviation + np.float32(1e-9))).astype(x.dtype),)


class LpNormalization(OpRun):
    # For p = 1 onnx.reference sums x instead of |x|. Compared with onnxruntime over axes. See also `widening`.

    def _run(self, x: np.ndarray, axis: int = -1, p: int = 2) -> tuple[np.ndarray]:
        wide = widened(x)
        norm = (np.abs(wide) ** p).sum(axis=axis, keepdims=True) ** (1.0 / p)
        return (np.divide(wide, norm, out=np.zeros_like(wide), where=norm != 0).astype(x.dtype),)


class DropoutUntil9(OpRun):
    # onnx.reference starts at opset 7, where it uses the ratio as a seed and returns a bool mask; until opset 9 the
    # mask has the data's element type. Without `is_test`, opsets 1 to 6 drop at random. Every runtime treats such old
    # models as inference, and so does this class.

    def _run(self, x: np.ndarray, ratio: float = 0.5, is_test: int = 0) -> tuple[np.ndarray, ...]:
        del ratio, is_test
        return x, np.ones_like(x)


class Dropout_10(OpRun):
    # See DropoutUntil9; the mask is bool.

    def _run(self, x: np.ndarray, ratio: float = 0.5) -> tuple[np.ndarray, ...]:
        del ratio
        return x, np.ones(x.shape, np.bool_)


CORRECTIONS: Corrections = (
    ("", "Softmax", 1, 12, _coerced("Softmax", _softmax)),
    ("", "Softmax", 13, None, Softmax),
    ("", "LogSoftmax", 1, 12, _coerced("LogSoftmax", _log_softmax)),
    ("", "LogSoftmax", 13, None, LogSoftmax),
    ("", "Hardmax", 1, 12, _coerced("Hardmax", _hardmax)),
    ("", "BatchNormalization", 1, 6, BatchNormalizationUntil6),
    ("", "BatchNormalization", 7, 13, BatchNormalizationInference),
    ("", "LayerNormalization", 17, None, LayerNormalization),
    ("", "InstanceNormalization", 6, None, InstanceNormalization),
    ("", "MeanVarianceNormalization", 9, None, MeanVarianceNormalization),
    ("", "RMSNormalization", 23, None, widening("RMSNormalization")),
    ("", "LRN", 1, None, LRN),
    ("", "LpNormalization", 1, None, LpNormalization),
    ("", "Dropout", 1, 9, DropoutUntil9),
    ("", "Dropout", 10, 11, Dropout_10),
)
