"""The kernel rotary against a plain loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hetero import _kernels
from hetero.errors import InferenceError
from kernel_arrays import normal

pytestmark = pytest.mark.spread(2)

VARIANTS = _kernels.variants("rotary")
Array = np.ndarray[Any, Any]


def naive(x: Array, cosines: Array, sines: Array, rows: Array, interleaved: int) -> Array:
    """x[batch][steps][heads][size], rows[batch][steps]."""
    y, half = x.copy(), cosines.shape[1]
    for b, s, h, i in np.ndindex(*x.shape[:3], half):
        first, second = (2 * i, 2 * i + 1) if interleaved else (i, half + i)
        cosine, sine = cosines[rows[b, s], i], sines[rows[b, s], i]
        one, other = x[b, s, h, first], x[b, s, h, second]
        y[b, s, h, first] = cosine * one - sine * other
        y[b, s, h, second] = sine * one + cosine * other
    return y


def rotary(
    x: Array, cosines: Array, sines: Array, rows: Array | None, interleaved: int, heads_first: int, variant: str | None
) -> Array:
    steps, heads = (x.shape[2], x.shape[1]) if heads_first else x.shape[1:3]
    ints = [steps, heads, x.shape[3], cosines.shape[1], interleaved, heads_first]
    (y,) = _kernels.call("rotary", [x, cosines, sines, rows], [(x.shape, x.dtype)], ints, variant=variant)
    return y


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("half", [0, 1, 3, 4, 8, 13, 16, 37])
def test_rotary(variant: str, interleaved: int, half: int) -> None:
    for batch, steps, heads, rest in (
        (1, 1, 1, 0),
        (2, 3, 2, 0),
        (1, 4, 3, 2),
        (2, 1, 1, 5),
        (0, 2, 1, 1),
        (2, 2, 0, 1),
        (2, 0, 1, 0),
    ):
        x = normal(batch, steps, heads, max(2 * half + rest, 1))
        cosines, sines = normal(7, half, seed=1), normal(7, half, seed=2)
        rows = np.random.default_rng(0).integers(-7, 7, (batch, steps))
        expected = naive(x, cosines, sines, rows, interleaved)
        np.testing.assert_array_equal(rotary(x, cosines, sines, rows, interleaved, 0, variant), expected)
        turned = rotary(x.swapaxes(1, 2).copy(), cosines, sines, rows, interleaved, 1, variant)
        np.testing.assert_array_equal(turned.swapaxes(1, 2), expected)
        if batch:  # the same positions for all sequences; and angles for each row
            shared = naive(x, cosines, sines, np.broadcast_to(rows[0], rows.shape), interleaved)
            np.testing.assert_array_equal(rotary(x, cosines, sines, rows[0], interleaved, 0, variant), shared)
            each = [cache[rows.ravel()] for cache in (cosines, sines)]
            np.testing.assert_array_equal(rotary(x, *each, None, interleaved, 0, variant), expected)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("half", [1, 5, 16])
def test_in_place(variant: str, interleaved: int, half: int) -> None:
    operands = [normal(2, 3, 2, 2 * half + 3), normal(6, half, seed=1), normal(6, half, seed=2), None]
    ints = [3, 2, 2 * half + 3, half, interleaved, 0]
    expected = rotary(operands[0], operands[1], operands[2], None, interleaved, 0, variant)
    x = operands[0]
    spec = [(x.shape, x.dtype)]
    _kernels.call("rotary", operands, spec, ints, variant=variant, memory=lambda _: x.reshape(-1).view(np.uint8))
    np.testing.assert_array_equal(x, expected)


def test_nothing_else_is_touched_by_nan() -> None:
    x, caches = normal(1, 2, 1, 5), [normal(2, 2, seed=seed) for seed in (1, 2)]
    x[0, 0] = np.nan
    np.testing.assert_array_equal(rotary(x, *caches, None, 0, 0, None), naive(x, *caches, np.array([[0, 1]]), 0))


@pytest.mark.parametrize("position", [7, -8, 2**63 - 1, -(2**63)])
def test_a_position_without_angles(position: int) -> None:
    x, caches = normal(1, 2, 1, 4), [normal(7, 2, seed=seed) for seed in (1, 2)]
    with pytest.raises(InferenceError, match=f"index {position} is out of bounds for axis 0 with size 7"):
        rotary(x, *caches, np.array([[1, position]]), 0, 0, None)


def test_refused() -> None:
    x, cosines = normal(2, 3, 2, 8), normal(6, 4)
    spec = [(x.shape, x.dtype)]
    for operands, ints in (
        ([x, cosines, cosines, None], [3, 2, 8, 5, 0, 0]),
        ([x, cosines, cosines, None], [4, 2, 8, 4, 0, 0]),
        ([x, cosines, cosines, None], [3, 2, 6, 4, 0, 0]),
        ([x, cosines, normal(5, 4), None], [3, 2, 8, 4, 0, 0]),
        ([x, normal(5, 4), normal(5, 4), None], [3, 2, 8, 4, 0, 0]),
        ([x, cosines, cosines, np.zeros((2, 2), np.int64)], [3, 2, 8, 4, 0, 0]),
        ([x, cosines, cosines, np.zeros((2, 3), np.int32)], [3, 2, 8, 4, 0, 0]),
        ([x, cosines, cosines, None], [2**62, 2**62, 8, 4, 0, 0]),
    ):
        with pytest.raises(InferenceError):
            _kernels.call("rotary", operands, spec, ints)
