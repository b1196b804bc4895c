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


SCALES = [(1.0, 0.5, 1.0), (0.1, 0.05, 0.1), (0.03, 0.07, 0.011), (3e-5, 2.0, 0.5)]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("kernel", ["quantized_add", "quantized_mul"])
def test_halves_and_limits(kernel: str, dtype: str, variant: str) -> None:
    """Scales that are multiples of each other, so that many results are halves."""
    limits = np.iinfo(dtype)
    a, b = numbers(dtype, 150), numbers(dtype, 150, seed=1)
    a[:2], b[:2] = (limits.min, limits.max), (limits.max, limits.min)
    for numerals in SCALES:
        scales = tuple(map(F, numerals))
        for zeros in ((limits.min, limits.max, 3), (limits.min + 128, limits.min + 1, limits.max)):
            for left, right in ((a, b), (a, b[:1]), (a[:1], b)):
                wanted = naive(kernel, left, right, scales, zeros)
                assert np.array_equal(found(kernel, left, right, scales, zeros, variant), wanted)


def by_definition(kernel: str, a: Array, b: Array, scales: tuple[F, F, F], zeros: tuple[int, int, int]) -> Array:
    """Exactly, by fractions."""
    limits = np.iinfo(a.dtype)
    left, right, to = (Fraction(float(scale)) for scale in scales)
    levels = []
    for x, y in np.broadcast(a.astype(int), b.astype(int)):
        terms = left * int(x - zeros[0]), right * int(y - zeros[1])
        wide = terms[0] + terms[1] if kernel == "quantized_add" else terms[0] * terms[1]
        levels.append(min(max(round(wide / to + zeros[2]), limits.min), limits.max))  # halves to even
    return np.array(levels, a.dtype)


HUGE, SMALL = float(np.finfo(F).max), float(np.finfo(F).smallest_subnormal)
WIDE = [
    *((HUGE, HUGE, SMALL), (HUGE, SMALL, HUGE), (SMALL, SMALL, SMALL), (SMALL, SMALL, HUGE), (HUGE, HUGE, HUGE)),
    *((1e30, 1e30, 1e-30), (1e30, 3e30, 1e-30), (-1e30, 1e30, 1e-30), (1e25, 1e25, 1e38), (1e-20, 1e-25, 1e-44)),
    *((1e-42, 1e-42, 1e-42), (0.5, 0.5, 1e-42), (4097.0, 0.25, 1.0), (1e7, -2e7, 1.0), (0.0, 1e30, 1e-30)),
]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("kernel", ["quantized_add", "quantized_mul"])
def test_scales_beyond_float32(kernel: str, dtype: str, variant: str) -> None:
    """Where quotients or products of scales are not float32, or leave no bits for the steps of the result."""
    limits = np.iinfo(dtype)
    middle = (limits.min + limits.max) // 2
    near = (middle + np.arange(-20, 21)).astype(dtype)  # around the zero points, where results are within the limits
    a, b = (
        np.concatenate((numbers(dtype, 30), near, near)),
        np.concatenate((numbers(dtype, 30, seed=1), near, near[::-1])),
    )
    for scales in (tuple(map(F, numerals)) for numerals in WIDE):
        for zeros in (
            (middle, middle, middle + 3),
            (middle + 2, middle - 1, limits.max),
            (limits.min, limits.max, limits.min),
        ):
            for left, right in ((a, b), (a, b[40:41]), (a[40:41], b)):
                wanted = by_definition(kernel, left, right, scales, zeros)
                assert np.array_equal(found(kernel, left, right, scales, zeros, variant), wanted)


@pytest.mark.parametrize("kernel", ["quantized_add", "quantized_mul"])
@pytest.mark.parametrize("ratio", [4095.0, 4096.0, 4097.0])
def test_largest_ratio_within_float32(kernel: str, ratio: float) -> None:
    """On both sides of the limit, results are those of the definition if none is near a half."""
    a = np.arange(256, dtype=np.uint8)
    scales, zeros = (F(ratio), F(0.0625 + 1 / 256), F(1)), (128, 127, 100)
    made = found(kernel, a, a[::-1].copy(), scales, zeros, VARIANTS[-1])
    assert np.array_equal(made, by_definition(kernel, a, a[::-1], scales, zeros))


@pytest.mark.parametrize("kernel", ["quantized_add", "quantized_mul"])
@pytest.mark.parametrize("scales", [(np.nan, 1, 1), (1, np.inf, 1), (1, 1, 0), (1, 1, np.nan), (1, 1, np.inf)])
def test_scales_that_are_not_finite(kernel: str, scales: tuple[float, float, float]) -> None:
    """Computed scales; constant ones are refused. Infinite results saturate, and NaN gives the smallest integer."""
    a = np.array([9, 5, 4, 5, 0], np.uint8)
    b = np.array([5, 9, 4, 5, 5], np.uint8)
    with np.errstate(all="ignore"):
        x, y = ((levels.astype(float) - 5) * scale for levels, scale in zip((a, b), scales, strict=False))
        levels = np.rint((x + y if kernel == "quantized_add" else x * y) / np.float64(scales[2]) + 7)
    wanted = np.clip(np.nan_to_num(levels, nan=0, posinf=255, neginf=0), 0, 255).astype(np.uint8)
    made = found(kernel, a, b, tuple(map(F, scales)), (5, 5, 7), VARIANTS[-1])
    assert np.array_equal(made, wanted)


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
