"""Quantization and requantization: exactly what NumPy computes, in every instruction set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hetero import _kernels
from kernel_arrays import random_bytes, requantized

pytestmark = pytest.mark.spread(2)

VARIANTS = _kernels.variants("quantize", "dequantize", "dynamic_quantize", "requantize")
BYTES = [np.int8, np.uint8]
Array = np.ndarray[Any, Any]


@pytest.mark.parametrize("variant", VARIANTS)
def test_sums_in_the_middle_of_two_integers(variant: str) -> None:
    """Every half, and its neighbors, go where float32 puts them."""
    x = np.arange(-1000, 1000, dtype=np.int32)
    for scale in (0.5, 0.1, 1 / 3, 0.25):
        for nudge in (-1, 0, 1):
            factor = np.nextafter(np.float32(scale), np.float32(nudge * 10), dtype=np.float32) if nudge else scale
            for zero in (np.int8(-128), np.int8(0), np.int8(127), np.uint8(0), np.uint8(255)):
                operands = [x, np.float32(factor), np.array(zero)]
                found = _kernels.call("requantize", operands, [(x.shape, zero.dtype)], variant=variant)[0]
                assert np.array_equal(found, requantized(x, np.array(factor, np.float32), np.array(zero)))


@pytest.mark.spread(1)  # each is a kernel
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
def test_quantize_rounds_halves_to_even_and_saturates(dtype: Any, variant: str) -> None:
    limits = np.iinfo(dtype)
    halves = np.arange(-300, 300, dtype=np.float32) / 2
    x = np.concatenate([halves, np.array([1e9, -1e9, np.inf, -np.inf, 1e38, 65534.5, 65535.5], np.float32)])
    for zero in (limits.min, 3, limits.max):
        for scale in (1.0, 0.5, 3.0):
            # In float64, which holds every sum of the two exactly.
            wanted = np.clip(np.rint(x / np.float32(scale)).astype(np.float64) + zero, limits.min, limits.max)
            operands = [x, np.float32(scale), np.array(zero, dtype)]
            ints = [1, 1, x.size, 0]
            found = _kernels.call("quantize", operands, [(x.shape, dtype)], ints, variant=variant)[0]
            assert np.array_equal(found, wanted.astype(dtype))
    nan = _kernels.call("quantize", [np.float32([np.nan]), np.float32(1), None], [((1,), dtype)], [1, 1, 1, 0])[0]
    assert nan[0] == limits.min


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", BYTES)
def test_quotients_beside_the_middle_of_two_integers(dtype: Any, variant: str) -> None:
    """A quotient that float32 puts on, before or behind a half rounds as the quotient, not as x times 1 / scale."""
    rng = np.random.default_rng(0)
    scales = [0.1, 1 / 3, 3.0, 7e-3, 1e-30, 2.0**-100, 2.0**-101, 1e-40, 1e30, 2.0**100, 2.0**101, *rng.random(20)]
    limits, halves = np.iinfo(dtype), np.float32(np.arange(-520, 520) + 0.5)
    for scale in np.float32(scales):
        middle = halves * scale
        ends = [np.nextafter(middle, np.float32(end)) for end in (-np.inf, np.inf)]
        far = [np.nextafter(end, np.float32(sign * np.inf)) for end, sign in zip(ends, (-1, 1), strict=True)]
        x = np.concatenate([middle, *ends, *far, np.float32(rng.normal(size=4000)) * scale * 100])
        x = rng.permutation(x)
        for zero in (limits.min, 1, limits.max):
            wanted = np.clip(np.rint(x / scale).astype(np.float64) + zero, limits.min, limits.max)
            operands = [x, scale, np.array(zero, dtype)]
            found = _kernels.call("quantize", operands, [(x.shape, dtype)], variant=variant)[0]
            assert np.array_equal(found, wanted.astype(dtype)), scale


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("zero", [-128, -1, 0, 100, 127, 255])
def test_special_values_in_every_lane(dtype: Any, zero: int, variant: str) -> None:
    limits = np.iinfo(dtype)
    if not limits.min <= zero <= limits.max:
        return
    special = [np.nan, np.inf, -np.inf, 3e38, -3e38, 65536.5, -65537.0, 32767.5, -32768.5, 2.0**31, -0.0, 1e-40]
    rng = np.random.default_rng(0)
    x = np.where(rng.random(1000) < 0.5, rng.choice(np.float32(special), 1000), rng.integers(-300, 300, 1000) / 2)
    x = x.astype(np.float32)
    wanted = np.clip(np.rint(x.astype(np.float64)) + zero, limits.min, limits.max)
    wanted[np.isnan(wanted)] = limits.min
    operands = [x, np.float32(1), np.array(zero, dtype)]
    found = _kernels.call("quantize", operands, [(x.shape, dtype)], [], variant=variant)[0]
    np.testing.assert_array_equal(found, wanted.astype(dtype))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("size", [1, 5, 16, 31, 64, 200])
def test_a_range_with_special_values(size: int, variant: str) -> None:
    for place in {0, size // 2, size - 1}:
        for special in (None, np.inf, -np.inf, np.nan):
            x = np.random.default_rng(size).standard_normal(size).astype(np.float32) + 1
            if special is not None:
                x[place] = special
            results = [((size,), np.uint8), ((), np.float32), ((), np.uint8)]
            scale = _kernels.call("dynamic_quantize", [x], results, variant=variant)[1]
            with np.errstate(all="ignore"):
                width = np.maximum(x.max(), np.float32(0)) - np.minimum(x.min(), np.float32(0))
            np.testing.assert_array_equal(scale, width / np.float32(255))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("block", [0, 1, 3, 7, 100])
@pytest.mark.parametrize("shape", [(4, 7, 1), (3, 70, 5), (1, 5, 100), (2, 1, 1), (0, 3, 2)])
def test_schemes_of_scales(shape: tuple[int, int, int], block: int, variant: str) -> None:
    rng = np.random.default_rng(block)
    outer, axis, inner = shape
    x = (rng.standard_normal(shape) * 20).astype(np.float32)
    scales = (outer, -(-axis // block), inner) if block else (axis,)
    scale = rng.uniform(0.1, 2, scales).astype(np.float32)
    zero = rng.integers(-20, 20, scales).astype(np.int8)
    if block:
        at = np.arange(axis) // block
        each_scale, each_zero = scale[:, at], zero[:, at]
    else:
        each_scale, each_zero = scale[:, None], zero[:, None]
    ints = [outer, axis, inner, block]
    q = np.clip(np.rint(x / each_scale) + each_zero, -128, 127).astype(np.int8)
    found = _kernels.call("quantize", [x, scale, zero], [(shape, np.int8)], ints, variant=variant)[0]
    assert np.array_equal(found, q)
    back = _kernels.call("dequantize", [q, scale, zero], [(shape, np.float32)], ints, variant=variant)[0]
    assert np.array_equal(back, (q.astype(np.float32) - each_zero) * each_scale)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", BYTES)
def test_requantize(dtype: Any, variant: str) -> None:
    rng = np.random.default_rng(1)
    limits = np.iinfo(dtype)
    x = rng.integers(-(2**31), 2**31, (3, 4, 50)).astype(np.int32)
    x[:, :2] //= 2**22
    for scale_shape, zero_shape in (((), ()), ((4, 1), ()), ((50,), ()), ((3, 1, 1), (4, 1))):
        scale = rng.choice(np.float32([0.5, 1.0, 0.013, 1e-7, 1e30, np.nan, np.inf]), scale_shape)
        zero = random_bytes(rng, dtype, *zero_shape)
        with np.errstate(invalid="ignore"):
            wanted = np.rint(x * scale.astype(np.float64)) + zero
        wanted = np.where(np.isnan(wanted), limits.min, np.clip(wanted, limits.min, limits.max))
        found = _kernels.call("requantize", [x, scale, zero], [(x.shape, dtype)], variant=variant)[0]
        assert np.array_equal(found, wanted)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("x", [[-3.0, 0.5, 9.0], [2.0, 5.0], [-2.0, -5.0], [0.0, 0.0], [1e-30], [3e38, -3e38]])
def test_dynamic_quantize(x: list[float], variant: str) -> None:
    values = np.array(x, np.float32)
    specs = [(values.shape, np.uint8), ((), np.float32), ((), np.uint8)]
    y, scale, zero = _kernels.call("dynamic_quantize", [values], specs, variant=variant)
    with np.errstate(over="ignore"):
        high, low = np.maximum(values.max(), np.float32(0)), np.minimum(values.min(), np.float32(0))
        wanted_scale = np.float32(1) if high == low else (high - low) / np.float32(255)
        wanted_zero = np.rint(np.clip(-low / wanted_scale, 0, 255))
    assert scale == wanted_scale
    assert zero == wanted_zero
    assert np.array_equal(y, np.clip(np.rint(values / scale) + zero, 0, 255))
