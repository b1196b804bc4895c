"""The kernels `quantized_add` and `quantized_mul`: exactly their formulas in NumPy, in every instruction set."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from hetero import _kernels

VARIANTS = _kernels.variants("quantized_add", "quantized_mul")
BYTES = ["int8", "uint8"]
Array = np.ndarray[Any, Any]
F = np.float32


def fma(x: Array, factor: F, added: Array) -> Array:
    """x * factor + added, rounded once: exactly, by fractions, for each pair of different operands."""
    x, added = np.broadcast_arrays(np.asarray(x, F), np.asarray(added, F))
    made = np.empty(x.shape, F)
    for i in np.ndindex(x.shape):
        terms = np.array([x[i], factor, added[i]], np.float64)
        if not np.isfinite(terms).all():
            made[i] = terms[0] * terms[1] + terms[2]
            continue
        exact = Fraction(terms[0]) * Fraction(terms[1]) + Fraction(terms[2])
        near = F(float(exact))  # rounded twice: one of its neighbors may be nearer
        candidates = [near, np.nextafter(near, F(np.inf)), np.nextafter(near, F(-np.inf))]
        finite = [c for c in candidates if np.isfinite(c)]
        made[i] = min(finite, key=lambda c: (abs(Fraction(float(c)) - exact), int(c.view(np.int32)) & 1))
    return made


def naive(kernel: str, a: Array, b: Array, scales: tuple[F, F, F], zeros: tuple[int, int, int]) -> Array:
    limits = np.iinfo(a.dtype)
    with np.errstate(all="ignore"):
        if kernel == "quantized_mul":
            products = ((a.astype(np.int32) - zeros[0]) * (b.astype(np.int32) - zeros[1])).astype(F)
            sums = products * (scales[0] * scales[1] / scales[2]) + F(zeros[2])
        else:
            left, right = scales[0] / scales[2], scales[1] / scales[2]
            fixed = F(zeros[2]) - fma(np.array(zeros[0], F), left, np.array(right * F(zeros[1])))
            first, second = (a, left), (b, right)
            if not (a.size == 1 and b.size > 1):
                first, second = second, first
            sums = fma(second[0], second[1], fma(first[0], first[1], fixed))
        whole = np.nan_to_num(np.rint(sums), nan=limits.min, posinf=limits.max, neginf=limits.min)
    return np.clip(whole, limits.min, limits.max).astype(a.dtype)


def found(kernel: str, a: Array, b: Array, scales: tuple[F, F, F], zeros: Any, variant: str, team: Any = None) -> Array:
    z = [None if zero is None else np.array(zero, a.dtype) for zero in zeros]
    operands = [a, np.array(scales[0]), z[0], b, np.array(scales[1]), z[1], np.array(scales[2]), z[2]]
    shape = np.broadcast_shapes(a.shape, b.shape)
    (made,) = _kernels.call(kernel, operands, [(shape, a.dtype)], variant=variant, team=team)
    return made


def numbers(dtype: str, *shape: int, seed: int = 0) -> Array:
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed + sum(shape)).integers(limits.min, limits.max + 1, shape).astype(dtype)


SCALES = [
    *((1.0, 0.5, 1.0), (0.1, 0.05, 0.1), (0.03, 0.07, 0.011), (3e-5, 2.0, 0.5)),
    *((1e30, 1e30, 1e-30), (1e-40, 1.0, 1.0)),
]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("kernel", ["quantized_add", "quantized_mul"])
def test_halves_and_limits(kernel: str, dtype: str, variant: str) -> None:
    """Scales that are multiples of each other, so that many results are halves; huge and subnormal ones."""
    limits = np.iinfo(dtype)
    a, b = numbers(dtype, 150), numbers(dtype, 150, seed=1)
    a[:2], b[:2] = (limits.min, limits.max), (limits.max, limits.min)
    for numerals in SCALES:
        scales = tuple(map(F, numerals))
        for zeros in ((limits.min, limits.max, 3), (limits.min + 128, limits.min + 1, limits.max)):
            for left, right in ((a, b), (a, b[:1]), (a[:1], b)):
                wanted = naive(kernel, left, right, scales, zeros)
                assert np.array_equal(found(kernel, left, right, scales, zeros, variant), wanted)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kernel", ["quantized_add", "quantized_mul"])
@pytest.mark.parametrize("size", [0, 1, 2, 63, 64, 65, 129])
def test_sizes(kernel: str, size: int, variant: str) -> None:
    a, b, scales = numbers("uint8", size), numbers("uint8", size, seed=1), (F(0.03), F(0.05), F(0.07))
    assert np.array_equal(found(kernel, a, b, scales, (None,) * 3, variant), naive(kernel, a, b, scales, (0, 0, 0)))
    assert np.array_equal(found(kernel, a, a, scales, (7, 9, 1), variant), naive(kernel, a, a, scales, (7, 9, 1)))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kernel", ["quantized_add", "quantized_mul"])
def test_broadcast_operands(kernel: str, variant: str) -> None:
    """Rows and columns; row by row, as the order of the two products depends on which operand is the same in a row."""
    scales, zeros = (F(0.1), F(0.05), F(0.1)), (-3, 5, 1)
    for shapes in (((4, 70), (70,)), ((4, 70), (4, 1)), ((4, 1), (1, 70)), ((2, 1, 5), (1, 3, 1)), ((0, 4), (1, 4))):
        a, b = numbers("int8", *shapes[0]), numbers("int8", *shapes[1], seed=1)
        made = found(kernel, a, b, scales, zeros, variant)
        wide = np.broadcast_shapes(*shapes)
        left = np.broadcast_to(a, (*wide[:-1], a.shape[-1])).reshape(-1, a.shape[-1])
        right = np.broadcast_to(b, (*wide[:-1], b.shape[-1])).reshape(-1, b.shape[-1])
        for row, x, y in zip(made.reshape(-1, wide[-1]), left, right, strict=True):
            assert np.array_equal(row, naive(kernel, x, y, scales, zeros))


@pytest.mark.parametrize("kernel", ["quantized_add", "quantized_mul"])
def test_threads(kernel: str) -> None:
    scales = (F(0.1), F(0.05), F(0.1))
    for shapes in (((70_000,), (70_000,)), ((300, 500), (300, 1))):
        a, b = numbers("uint8", *shapes[0]), numbers("uint8", *shapes[1], seed=1)
        alone = found(kernel, a, b, scales, (1, 2, 3), VARIANTS[-1])
        assert np.array_equal(found(kernel, a, b, scales, (1, 2, 3), VARIANTS[-1], team=_kernels.Team(3)), alone)


@pytest.mark.parametrize("variant", VARIANTS)
def test_infinite_scales_and_nan(variant: str) -> None:
    """Sums of NaN are the smallest integer. Quantizers write scales of infinity for masks of the least float32."""
    a, b = numbers("uint8", 100), numbers("uint8", 100, seed=1)
    with np.errstate(all="ignore"):
        for scales in ((F(np.inf), F(1), F(1)), (F(1), F(1), F(np.inf)), (F(np.nan), F(1), F(1))):
            for kernel in ("quantized_add", "quantized_mul"):
                made = found(kernel, a, b, scales, (255, 0, 9), variant)
                assert np.array_equal(made, naive(kernel, a, b, scales, (255, 0, 9)))


def test_other_operands_are_refused() -> None:
    x, one, zero = np.zeros(3, np.uint8), np.array(1, F), np.array(0, np.uint8)
    good: list[Any] = [x, one, zero, x, one, zero, one, zero]
    for position, bad in [(0, x.astype(np.int8)), (3, x.astype(np.int16)), (3, x[:2]), (1, np.ones(2, F)),
                          (4, np.array(1.0)), (2, np.zeros(2, np.uint8)), (7, np.array(0, np.int8))]:  # fmt: skip
        operands = [*good[:position], bad, *good[position + 1 :]]
        with pytest.raises(Exception, match="quantized_add"):
            _kernels.call("quantized_add", operands, [((3,), np.dtype(np.uint8))])
