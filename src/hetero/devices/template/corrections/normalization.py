"""Softmax and its relatives, and the normalisations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

__all__ = ["CORRECTIONS"]


def _as_matrix(x: np.ndarray, axis: int) -> np.ndarray:
    """``x`` with the axes before and from ``axis`` on flattened: the 2-D form of opsets before 13."""
    axis %= x.ndim + 1 if axis >= 0 else x.ndim
    return x.reshape(int(np.prod(x.shape[:axis])), -1) if x.size else x.reshape(0, 0)


def _softmax(matrix: np.ndarray) -> np.ndarray:
    exponentials = np.exp(matrix - matrix.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def _log_softmax(matrix: np.ndarray) -> np.ndarray:
    shifted = matrix - matrix.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def _hardmax(matrix: np.ndarray) -> np.ndarray:
    one_hot = np.zeros_like(matrix)
    np.put_along_axis(one_hot, matrix.argmax(axis=1, keepdims=True), 1, axis=1)
    return one_hot


def _coerced(name: str, compute: Callable[[np.ndarray], np.ndarray]) -> type[OpRun]:
    # Before opset 13 all axes from `axis` (default 1) on are normalised together. onnx.reference normalises one axis,
    # by default the last. Found with the backend suite stamped as opsets 1 and 11.
    class Coerced(OpRun):
        def _run(self, x: np.ndarray, axis: int = 1) -> tuple[np.ndarray]:
            if x.size == 0:
                return (x,)
            return (compute(_as_matrix(x, axis)).reshape(x.shape).astype(x.dtype),)

    Coerced.__name__ = Coerced.__qualname__ = name
    return Coerced


class BatchNormalizationInference(OpRun):
    # Opsets 7 to 13 normalise with the given mean and variance unless the node has training outputs, which no
    # framework that runs models offers. onnx.reference mixes batch statistics in, because `momentum` has a default,
    # and fails in opsets 6 to 8 (a tuple inside a tuple). Found with the backend suite stamped as opsets 7 and 9.
    # Before opset 9 there is `spatial`: 0 means statistics per activation and not per channel.

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


class BatchNormalization_1(OpRun):
    # onnx.reference starts at opset 6, and there returns a tuple inside a tuple. With `is_test` = 0 the statistics of
    # the batch are used and the running ones returned. By the text of the specification; onnxruntime starts at 7.

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
    return y.astype(x.dtype)


CORRECTIONS: tuple[tuple[str, str, int, int | None, type[Any]], ...] = (
    ("", "Softmax", 1, 12, _coerced("Softmax", _softmax)),
    ("", "LogSoftmax", 1, 12, _coerced("LogSoftmax", _log_softmax)),
    ("", "Hardmax", 1, 12, _coerced("Hardmax", _hardmax)),
    ("", "BatchNormalization", 1, 6, BatchNormalization_1),
    ("", "BatchNormalization", 7, 13, BatchNormalizationInference),
)
