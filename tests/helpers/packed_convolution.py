"""The kernel conv over packed weights, as planned for constant weights, and its check against a plain convolution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hetero import _kernels
from kernel_arrays import normal
from plain_convolution import ACTIVATIONS, naive

Array = np.ndarray[Any, Any]
Pair = Sequence[int]


def conv(
    x: Array,
    w: Array,
    group: int,
    strides: Pair,
    dilations: Pair,
    begin: Pair,
    end: Pair,
    *,
    variant: str | None = None,
    finite: int = 1,
    bias: Array | None = None,
    addend: Array | None = None,
    activation: int = 0,
    after: Sequence[Array | None] = (),
    team: _kernels.Team | None = None,
) -> Array:
    """The kernel over weights that are packed, and said to be ``finite``. ``after``: what follows the activation."""
    maps, k = w.shape[0], int(np.prod(w.shape[1:]))
    geometry = zip(x.shape[2:], w.shape[2:], strides, dilations, begin, end, strict=True)
    out = [(size + b + e - (taps - 1) * d - 1) // s + 1 for size, taps, s, d, b, e in geometry]
    spec = [((group * -(-(maps // group) // 16) * 16 * k,), np.float32)]
    packed = _kernels.call("pack_b", [w], spec, [group, k, maps // group, 1], variant=variant)[0]
    ints = [group, 1, activation]
    for values, filler in [(w.shape[2:], 1), (strides, 1), (begin, 0), (dilations, 1)]:
        ints += [filler] * (3 - len(values)) + list(values)
    operands, outputs = [x, packed, bias, addend, None, None, *after], [((x.shape[0], maps, *out), np.float32)]
    y: Array = _kernels.call("conv", operands, outputs, [*ints, finite], (-1, 2), 1 << 20, variant, team=team)[0]
    return y


def after_activation(shape: Sequence[int]) -> list[Array]:
    """A factor for each channel, which is never 0, a number to add to each channel, and an array to add."""
    scale = normal(shape[1], seed=7)
    return [scale + np.copysign(0.1, scale), normal(shape[1], seed=8), normal(*shape, seed=9)]


def followed(y: Array, after: Sequence[Array | None]) -> Array:
    """What a convolution with ``after`` computes, from the result of its activation."""
    for operand, combine in zip(after, (np.multiply, np.add, np.add), strict=False):
        if operand is not None:
            y = combine(y, operand if operand.ndim > 1 else operand.reshape(-1, *[1] * (y.ndim - 2)))
    return y


def check(x: Array, w: Array, *geometry: Any, activation: int = 0, extras: bool = True, **options: Any) -> None:
    expected = naive(x, w, *geometry)
    if extras:
        options["bias"] = normal(w.shape[0], seed=5)
        options["addend"] = normal(*expected.shape, seed=6)
        options["after"] = after_activation(expected.shape)
        expected = expected + options["bias"].reshape(-1, *[1] * (x.ndim - 2)) + options["addend"]
    found = conv(x, w, *geometry, activation=activation, **options)
    k = int(np.prod(w.shape[1:]))
    expected = followed(ACTIVATIONS[activation](expected), options.get("after", ()))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=3e-6 * (1 + k))
