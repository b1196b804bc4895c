"""Random operators. onnx.reference fails on seeds that are negative or not whole, and scalars."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from ....model.types import dtype_of
from ... import random_numbers
from .table import Corrections, since

__all__ = ["CORRECTIONS"]


def _dtype(number: int | None, like: np.ndarray | None = None) -> Any:
    return like.dtype if like is not None and not number else dtype_of(number or 1)


class RandomNormal(OpRun):
    def _run(
        self, dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: float | None = None, shape: Any = ()
    ) -> tuple[np.ndarray]:
        return (random_numbers.normal(shape, _dtype(dtype), mean, scale, seed),)


class RandomNormalLike(OpRun):
    def _run(
        self, x: np.ndarray, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
    ) -> tuple[np.ndarray]:
        return (random_numbers.normal(x.shape, _dtype(dtype, x), mean, scale, seed),)


class RandomUniform(OpRun):
    def _run(
        self, dtype: int = 1, high: float = 1.0, low: float = 0.0, seed: float | None = None, shape: Any = ()
    ) -> tuple[np.ndarray]:
        return (random_numbers.uniform(shape, _dtype(dtype), low, high, seed),)


class RandomUniformLike(OpRun):
    def _run(
        self, x: np.ndarray, dtype: int | None = None, high: float = 1.0, low: float = 0.0, seed: float | None = None
    ) -> tuple[np.ndarray]:
        return (random_numbers.uniform(x.shape, _dtype(dtype, x), low, high, seed),)


class Bernoulli(OpRun):
    def _run(self, x: np.ndarray, dtype: int | None = None, seed: float | None = None) -> tuple[np.ndarray]:
        return (random_numbers.bernoulli(x, _dtype(dtype, x), seed),)


class Multinomial(OpRun):
    def _run(self, x: np.ndarray, dtype: int = 6, sample_size: int = 1, seed: float | None = None) -> tuple[np.ndarray]:
        return (random_numbers.multinomial(x, sample_size, dtype_of(dtype), seed),)  # type: ignore[arg-type]


class Dropout(OpRun):
    def _run(
        self,
        x: np.ndarray,
        ratio: np.ndarray | None = None,
        training_mode: np.ndarray | None = None,
        seed: float | None = None,
    ) -> tuple[np.ndarray, ...]:
        fraction = 0.5 if ratio is None else float(np.reshape(ratio, -1)[0])
        if training_mode is None or not np.reshape(training_mode, -1)[0] or fraction == 0:
            results: tuple[np.ndarray, ...] = (x, np.ones(x.shape, bool))
        else:
            results = random_numbers.dropout(x, fraction, seed)
        return results[: len(self.onnx_node.output)]


CORRECTIONS: Corrections = (
    *since(1, RandomNormal, RandomNormalLike, RandomUniform, RandomUniformLike),
    *since(15, Bernoulli),
    *since(7, Multinomial),
    *since(12, Dropout),
)
