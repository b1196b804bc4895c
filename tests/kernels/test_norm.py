"""layer_norm, group_norm, batch_norm and lrn against NumPy in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from hetero import _kernels
from hetero.errors import InferenceError
from kernel_arrays import normal

pytestmark = pytest.mark.spread(2)

VARIANTS = _kernels.variants("batch_norm", "layer_norm", "lrn")
WIDTHS = [1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 64, 65, 129, 768]
Array = np.ndarray[Any, Any]


def one(name: str, inputs: list[Array | None], ints: list[int], floats: list[float], variant: str) -> Array:
    assert inputs[0] is not None
    spec = [(inputs[0].shape, inputs[0].dtype)]
    return _kernels.call(name, inputs, spec, ints, floats, variant=variant)[0]


def over(
    number: int,
    name: str,
    operands: Sequence[Array | None],
    num_results: int,
    ints: list[int],
    variant: str,
    team: _kernels.Team | None = None,
) -> list[Array]:
    """The results of a normalization, the first of which is written over a copy of this operand (-1: in new memory)."""
    operands = [None if operand is None else operand.copy() for operand in operands]
    first = operands[0]
    assert first is not None
    target = operands[number] if number >= 0 else np.empty_like(first)
    assert target is not None
    places = iter([target, np.empty_like(first)])
    results = _kernels.call(
        name,
        operands,
        [(first.shape, np.float32)] * num_results,
        ints,
        [1e-5],
        variant=variant,
        team=team,
        memory=lambda num_bytes: next(places).reshape(-1).view(np.uint8)[:num_bytes],
    )
    assert np.shares_memory(results[0], target)
    return results


# ---- layer_norm


def naive_layer_norm(x: Array, scale: Array, bias: Array | None, epsilon: float, root_mean_square: bool) -> Array:
    x = x.astype(np.float64)
    if not root_mean_square:
        x = x - x.mean(axis=-1, keepdims=True)
    y = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + epsilon) * scale
    return y if bias is None else y + bias


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("width", [*WIDTHS, 4096, 9001])
@pytest.mark.parametrize("root_mean_square", [False, True])
def test_layer_norm(variant: str, width: int, root_mean_square: bool) -> None:
    x, scale, bias, addend = (
        normal(3, width) + 2,
        normal(width, seed=1),
        normal(width, seed=2),
        normal(3, width, seed=3),
    )
    ints = [3, width, root_mean_square]
    for b in (bias, None):
        found = one("layer_norm", [x, scale, b], ints, [1e-5], variant)
        expected = naive_layer_norm(x, scale, b, 1e-5, root_mean_square)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-5)
        found = one("layer_norm", [x, scale, b, addend], ints, [1e-5], variant)
        expected = naive_layer_norm(x + addend, scale, b, 1e-5, root_mean_square)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-5)
    spec = [(x.shape, np.float32)] * 2
    y, total = _kernels.call("layer_norm", [x, scale, bias, addend], spec, ints, [1e-5], variant=variant)
    np.testing.assert_array_equal(total, x + addend)
    np.testing.assert_array_equal(y, one("layer_norm", [x, scale, bias, addend], ints, [1e-5], variant))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("width", [1, 17, 768, 5000])
def test_layer_norm_in_place(variant: str, rows: int, width: int) -> None:
    x, scale, bias, addend = (
        normal(rows, width) + 2,
        normal(width, seed=1),
        normal(width, seed=2),
        normal(rows, width, seed=3),
    )

    for root_mean_square in (0, 1):
        for operands, numbers, num_results in (
            ([x, scale, bias], (0,), 1),
            ([x, scale, None], (0,), 1),
            ([x, scale, bias, addend], (0, 3), 1),
            ([x, scale, bias, addend], (0, 3), 2),
        ):
            ints = [rows, width, root_mean_square]
            expected = over(-1, "layer_norm", operands, num_results, ints, variant)
            for number in numbers:
                found = over(number, "layer_norm", operands, num_results, ints, variant)
                np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("variant", VARIANTS)
def test_layer_norm_keeps_digits_far_from_zero(variant: str) -> None:
    x = normal(2, 768) + np.float32(1000)
    scale = np.ones(768, np.float32)
    found = one("layer_norm", [x, scale, None], [2, 768], [0.0], variant)
    np.testing.assert_allclose(found, naive_layer_norm(x, scale, None, 0, False), atol=2e-4)


@pytest.mark.parametrize("variant", VARIANTS)
def test_layer_norm_of_nan_stays_in_its_row(variant: str) -> None:
    x = normal(3, 40)
    x[1, 39] = np.nan
    found = one("layer_norm", [x, np.ones(40, np.float32), None], [3, 40], [1e-5], variant)
    np.testing.assert_array_equal(np.isnan(found).all(axis=1), [False, True, False])
    np.testing.assert_array_equal(np.isnan(found).any(axis=1), [False, True, False])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("width", [1, 3, 49, 1000, 4097])
@pytest.mark.parametrize("value", [0.1, -1000.1, 1e6 + 0.1, 1e30])
def test_equal_elements_are_their_mean(variant: str, width: int, value: float) -> None:
    """The sum of many equal elements is rounded, and so is a mean that is not corrected."""
    x, scale, bias = np.full((3, width), value, np.float32), normal(width, seed=1), normal(width, seed=2)
    found = one("layer_norm", [x, scale, bias], [3, width, 0], [1e-5], variant)
    np.testing.assert_array_equal(found, np.broadcast_to(bias, x.shape))
    half = x / 2
    found = one("layer_norm", [half, scale, bias, half], [3, width, 0], [1e-5], variant)
    np.testing.assert_array_equal(found, np.broadcast_to(bias, x.shape))
    scale, bias = normal(6, seed=1), normal(6, seed=2)
    x = np.full((2, 6, width), value, np.float32)
    for groups in (1, 2, 6):
        found = one("group_norm", [x, scale, bias], [2, 6, width, groups], [1e-5], variant)
        np.testing.assert_array_equal(found, np.broadcast_to(bias[:, None], x.shape))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("inner", [1, 33, 30_000])
def test_group_norm_in_place(variant: str, groups: int, inner: int) -> None:
    operands = [normal(2, 6, inner) + 2, normal(6, seed=1), normal(6, seed=2)]
    ints = [2, 6, inner, groups]
    expected = over(-1, "group_norm", operands, 1, ints, variant)
    for team in (None, _kernels.Team(3)):
        np.testing.assert_array_equal(over(0, "group_norm", operands, 1, ints, variant, team), expected)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("offset", [0, 7, 100, 1e4])
def test_group_norm(variant: str, offset: float) -> None:
    """Within the rounding of the mean to float32."""
    scale, bias = normal(6, seed=1), normal(6, seed=2)
    for width in WIDTHS:
        x = normal(2, 6, width) + np.float32(offset)
        for groups in (1, 2, 6):
            flat = x.reshape(2, groups, -1).astype(np.float64)
            flat = flat - flat.mean(axis=2, keepdims=True)
            flat /= np.sqrt((flat * flat).mean(axis=2, keepdims=True) + 1e-2)
            expected = flat.reshape(x.shape) * scale[:, None] + bias[:, None]
            found = one("group_norm", [x, scale, bias], [2, 6, width, groups], [1e-2], variant)
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-5 + 2e-6 * offset)


# ---- batch_norm


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 1), (2, 5, 7), (1, 4, 33), (3, 2, 100), (0, 3, 4), (2, 3, 0)])
def test_batch_norm(variant: str, shape: tuple[int, int, int]) -> None:
    x = normal(*shape)
    scale, bias, mean = (normal(shape[1], seed=seed) for seed in (1, 2, 3))
    variance = np.random.default_rng(4).random(shape[1], np.float32) + 0.1

    def column(v: Array) -> Array:
        return v.astype(np.float64)[:, None]

    expected = (x - column(mean)) / np.sqrt(column(variance) + 1e-3) * column(scale) + column(bias)
    found = one("batch_norm", [x, scale, bias, mean, variance], list(shape), [1e-3], variant)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


# ---- lrn


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("beta", [0.75, 0.5, 1.0, 0.6])
@pytest.mark.parametrize(("channels", "size"), [(1, 1), (5, 3), (7, 4), (4, 9), (20, 5), (3, 2)])
def test_lrn(variant: str, beta: float, channels: int, size: int) -> None:
    x = normal(2, channels, 37) * 3
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    squares = np.stack(
        [
            (x[:, max(0, c - before) : c + after + 1].astype(np.float64) ** 2).sum(axis=1)
            for c in range(channels)
        ],
        axis=1,
    )  # fmt: skip
    expected = x / (2.0 + 0.5 / size * squares) ** beta
    found = one("lrn", [x], [2, channels, 37, size], [0.5, beta, 2.0], variant)
    np.testing.assert_allclose(found, expected, rtol=3e-6, atol=1e-6)


def test_rejected() -> None:
    x = normal(4, 6)
    wrong: list[tuple[str, list[Array | None], list[int], list[float]]] = [
        ("softmax", [x], [4, 7, 1, 0], []),
        ("softmax", [x], [-4, -6, 1, 0], []),
        ("softmax", [x[:0]], [-1, 0, 6, 0], []),
        ("softmax", [x.astype(np.int32)], [4, 6, 1, 0], []),
        ("layer_norm", [x, normal(5), None], [4, 6], [1e-5]),
        ("layer_norm", [x, normal(6), None, normal(3, 6)], [4, 6], [1e-5]),
        ("batch_norm", [x, *[normal(5)] * 4], [4, 6, 1], [1e-5]),
        ("lrn", [x], [4, 6, 1, 0], [1, 0.75, 1]),
    ]
    for name, inputs, ints, floats in wrong:
        with pytest.raises(InferenceError):
            one(name, inputs, ints, floats, VARIANTS[0])
