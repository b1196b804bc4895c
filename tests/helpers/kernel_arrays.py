"""Random arrays and shapes for the tests of kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

__all__ = [
    "FLOATS",
    "INTEGERS",
    "NUMERIC",
    "SIGNED",
    "broadcastable",
    "exact_offsets",
    "normal",
    "numbered",
    "random_array",
    "random_bytes",
    "requantized",
]

Array = np.ndarray[Any, Any]
FLOATS = ["float32", "float64"]
SIGNED = ["int8", "int16", "int32", "int64"]
INTEGERS = [*SIGNED, "uint8", "uint16", "uint32", "uint64"]
NUMERIC = FLOATS + INTEGERS


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def numbered(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    return (np.arange(np.prod(shape, dtype=int)) % 65_000).reshape(shape).astype(dtype)  # that float16 holds


def broadcastable(draw: st.DrawFn, num: int) -> list[tuple[int, ...]]:
    """Shapes that broadcast to one: each drops leading axes of it, and has 1 in some places."""
    full = draw(st.lists(st.integers(0, 5), max_size=5))
    shapes = []
    for _ in range(num):
        kept = full[draw(st.integers(0, len(full))) :]
        shapes.append(tuple(draw(st.sampled_from([size, 1])) for size in kept))
    return shapes


def random_array(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if np.dtype(dtype).kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)


def random_bytes(rng: np.random.Generator, dtype: Any, *shape: int) -> Array:
    """All values, the extremes often."""
    limits = np.iinfo(dtype)
    values = rng.integers(limits.min, limits.max + 1, shape)
    ends = rng.choice([limits.min, limits.max], shape)
    return np.where(rng.random(shape) < 0.3, ends, values).astype(dtype)


def exact_offsets(rng: np.random.Generator, outputs: int, per_output: bool) -> tuple[Array, Array]:
    """A bias of floats and scales with which no operation of `requantized` rounds, if the sums are below 2^24."""
    scale = 2.0 ** -rng.integers(3, 11, outputs if per_output else 1)
    offset = rng.integers(-2000, 2000, outputs) / 8
    offset[0] = rng.choice([0, 1e30, -1e30])
    return scale.astype(np.float32), offset.astype(np.float32)


def requantized(sums: Array, scale: Array, zero: Array, offset: Array | float = 0.0) -> Array:
    limits = np.iinfo(zero.dtype)
    levels = np.rint(sums.astype(np.float32) * scale.astype(np.float32) + np.float32(offset)).astype(np.float64)
    return np.clip(levels + zero, limits.min, limits.max).astype(zero.dtype)
