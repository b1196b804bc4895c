"""Random numbers of ONNX's random operators, the same on every device that uses this module.

A node with a ``seed`` gives the same numbers in every run; one without gives others in every run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InferenceError

__all__ = ["bernoulli", "dropout", "multinomial", "normal", "uniform"]

Array = NDArray[Any]
_MOST_BYTES = 1 << 36


def _generator(seed: float | None) -> np.random.RandomState:
    """``seed``: None or NaN for other numbers each time. Whole seeds give the numbers of onnx.reference; of others,
    all bits of the float32 count."""
    if seed is None or math.isnan(seed):
        return np.random.RandomState()
    if seed == math.floor(seed) and 0 <= seed < 1 << 32:
        return np.random.RandomState(int(seed))
    return np.random.RandomState(int(np.float32(seed).view(np.uint32)))


def _checked(shape: Sequence[int], dtype: np.dtype[Any]) -> tuple[int, ...]:
    sizes = tuple(int(size) for size in shape)
    if min(sizes, default=0) < 0 or math.prod(sizes) * 8 > _MOST_BYTES:
        raise InferenceError(f"attribute shape is {list(sizes)}; expected sizes from 0, of at most {_MOST_BYTES} bytes")
    if dtype.kind not in "f" and dtype.name != "bfloat16":
        raise InferenceError(f"attribute dtype is {dtype}; expected a float type")
    return sizes


def normal(shape: Sequence[int], dtype: np.dtype[Any], mean: float, scale: float, seed: float | None) -> Array:
    """Numbers of a normal distribution, computed in float64."""
    numbers = _generator(seed).standard_normal(_checked(shape, dtype))
    return np.asarray(numbers * scale + mean).astype(dtype)


def uniform(shape: Sequence[int], dtype: np.dtype[Any], low: float, high: float, seed: float | None) -> Array:
    """Numbers from ``low`` to below ``high``, before they are rounded to ``dtype``."""
    numbers = _generator(seed).random_sample(_checked(shape, dtype))
    return np.asarray(numbers * (high - low) + low).astype(dtype)


def bernoulli(odds: Array, dtype: np.dtype[Any], seed: float | None) -> Array:
    """1 with the given probability, else 0."""
    wide = odds.astype(np.float64)
    if not ((wide >= 0) & (wide <= 1)).all():
        raise InferenceError("a probability is outside 0 to 1")
    return np.asarray(_generator(seed).binomial(1, wide)).astype(dtype)


def multinomial(logits: Array, count: int, dtype: np.dtype[Any], seed: float | None) -> Array:
    """``count`` classes for each row of unnormalized log probabilities [batch, classes], by inverting the cumulative
    distribution."""
    if logits.ndim != 2 or not logits.shape[1]:
        raise InferenceError(f"expected log probabilities [batch, classes], found shape {list(logits.shape)}")
    if count < 0 or len(logits) * count * 8 > _MOST_BYTES:
        raise InferenceError(f"attribute sample_size is {count}; expected 0 or more, of at most {_MOST_BYTES} bytes")
    wide = logits.astype(np.float64)
    odds = np.cumsum(np.exp(wide - wide.max(axis=1, keepdims=True)), axis=1)
    if not np.isfinite(odds).all():
        raise InferenceError("a log probability is NaN or infinite, or all of a row are -inf")
    draws = _generator(seed).random_sample((len(logits), count)) * odds[:, -1:]
    made = [np.searchsorted(row, draw, side="right") for row, draw in zip(odds, draws, strict=True)]
    return np.array(made, dtype).reshape(draws.shape)


def dropout(x: Array, ratio: float, seed: float | None) -> tuple[Array, Array]:
    """``x`` with elements set to 0 with the probability ``ratio`` and the others divided by 1 - ratio; and a mask of
    the elements that are kept."""
    if not 0 <= ratio < 1:
        raise InferenceError(f"ratio is {ratio}; expected 0 to below 1")
    kept = _generator(seed).random_sample(x.shape) >= ratio
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64 if x.dtype == np.float64 else np.float32)
        made = np.where(kept, wide / np.asarray(1 - ratio, wide.dtype), np.zeros((), wide.dtype))
    return made.astype(x.dtype), kept
