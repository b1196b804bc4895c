"""A plain convolution in float64, to check kernels by, and activations that they take over."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
ACTIVATIONS = {
    0: lambda y: y,
    1: lambda y: np.maximum(y, 0),
    2: lambda y: np.clip(y, -1, 2),
    8: lambda y: 1 / (1 + np.exp(-y)),
}


def naive(
    x: Array,
    w: Array,
    group: int,
    strides: Sequence[int],
    dilations: Sequence[int],
    begin: Sequence[int],
    end: Sequence[int],
) -> Array:
    """One product per kernel position over strided views of the padded input."""
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *zip(begin, end, strict=True)])
    kernel = w.shape[2:]
    geometry = list(zip(x.shape[2:], kernel, strides, dilations, strict=True))
    out = [(size - (k - 1) * d - 1) // s + 1 for size, k, s, d in geometry]
    batch, channels, maps = *x.shape[:2], w.shape[0]
    y = np.zeros((batch, group, maps // group, *out))
    for tap in itertools.product(*map(range, kernel)):
        window = tuple(
            slice(t * d, t * d + (o - 1) * s + 1, s)
            for t, d, o, s in zip(tap, dilations, out, strides, strict=True)
        )  # fmt: skip
        view = x[(slice(None), slice(None), *window)].reshape(batch, group, channels // group, *out)
        weights = w[(slice(None), slice(None), *tap)].reshape(group, maps // group, channels // group)
        y += np.einsum("ngc...,gmc->ngm...", view, weights.astype(np.float64))
    return y.reshape(batch, maps, *out)
