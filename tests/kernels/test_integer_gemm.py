"""Integer products, convolutions and quantisation: exactly what NumPy computes, in every instruction set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetero import _kernels
from hetero.devices.cpu.operators.quantized import depthwise_scratch, pixel_layout
from hetero.devices.cpu.values import Value
from hetero.errors import InferenceError

VARIANTS = _kernels.variants()
BYTES = [np.int8, np.uint8]
Array = np.ndarray[Any, Any]


def random_bytes(rng: np.random.Generator, dtype: Any, *shape: int) -> Array:
    """All values, the extremes often."""
    limits = np.iinfo(dtype)
    values = rng.integers(limits.min, limits.max + 1, shape)
    ends = rng.choice([limits.min, limits.max], shape)
    return np.where(rng.random(shape) < 0.3, ends, values).astype(dtype)


def requantized(sums: Array, scale: Array, zero: Array) -> Array:
    limits = np.iinfo(zero.dtype)
    return np.clip(np.rint(sums * scale.astype(np.float64)) + zero, limits.min, limits.max).astype(zero.dtype)


def product(
    a: Array,
    b: Array,
    a_zero: Array,
    b_zero: Array,
    variant: str,
    scale: Array | None = None,
    zero: Array | None = None,
) -> Array:
    """Matrices only."""
    (m, k), n = a.shape, b.shape[1]
    quads = -(-k // 4)
    spec = ((-(-n // 16) * 64 * (quads + 2),), np.uint8)
    packed = _kernels.call("pack_quads", [b, b_zero], [spec], [1, k, n], variant=variant)[0]
    operands = [a, a_zero, packed] if zero is None else [a, a_zero, packed, scale, zero]
    made = [((m, n), np.int32 if zero is None else zero.dtype)]
    return _kernels.call("matmul_integer", operands, made, [m, n, k, 0], [], 12 * (8 * quads + 136), variant)[0]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("m", "k", "n"), [(1, 1, 1), (1, 64, 48), (3, 7, 17), (13, 33, 31), (25, 300, 70), (200, 5, 3), (2, 0, 4)]
)
def test_products(m: int, k: int, n: int, variant: str) -> None:
    rng = np.random.default_rng(m * 1000 + k)
    for a_type in BYTES:
        for b_type in BYTES:
            a, b = random_bytes(rng, a_type, m, k), random_bytes(rng, b_type, k, n)
            a_zero, b_zero = random_bytes(rng, a_type, m, 1), random_bytes(rng, b_type, n)
            wanted = (a.astype(np.int32) - a_zero) @ (b.astype(np.int32) - b_zero)
            assert np.array_equal(product(a, b, a_zero, b_zero, variant), wanted)
            for columns in (1, n):
                scale = rng.uniform(0, 0.01, columns).astype(np.float32)
                zero = random_bytes(rng, a_type)
                found = product(a, b, a_zero, b_zero, variant, scale, zero)
                assert np.array_equal(found, requantized(wanted, scale, zero))


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_largest_products_are_exact(variant: str) -> None:
    k = 4097
    a, b = np.full((4, k), 255, np.uint8), np.full((k, 20), -128, np.int8)
    found = product(a, b, np.array(0, np.uint8), np.array(127, np.int8), variant)
    assert (found == -255 * 255 * k).all()


def naive_convolution(
    x: Array, w: Array, zero: int, group: int, strides: tuple[int, int], pad: int, dilations: tuple[int, int]
) -> Array:
    """w with its zero point taken off; pads on both sides."""
    wide = np.pad(x.astype(np.int64) - zero, [(0, 0), (0, 0), (pad, pad), (pad, pad)])
    n, _, height, width = wide.shape
    maps, per_group, kh, kw = w.shape
    out = tuple(
        (size - dilations[i] * (kernel - 1) - 1) // strides[i] + 1
        for i, (size, kernel) in enumerate(zip((height, width), (kh, kw), strict=True))
    )
    y = np.zeros((n, maps, *out), np.int64)
    for m in range(maps):
        first = m // (maps // group) * per_group
        for c, i, j in np.ndindex(per_group, kh, kw):
            rows = slice(i * dilations[0], i * dilations[0] + (out[0] - 1) * strides[0] + 1, strides[0])
            columns = slice(j * dilations[1], j * dilations[1] + (out[1] - 1) * strides[1] + 1, strides[1])
            y[:, m] += wide[:, first + c, rows, columns] * int(w[m, c, i, j])
    return y


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    group=st.integers(1, 3),
    per_group=st.sampled_from([1, 1, 2, 3, 4, 5, 9]),
    maps=st.integers(1, 14),
    size=st.tuples(st.integers(5, 24), st.integers(9, 40)),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 5)),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dilations=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    pad=st.integers(0, 2),
    dtypes=st.tuples(st.sampled_from(BYTES), st.sampled_from(BYTES)),
    bias=st.booleans(),
    zeros=st.sampled_from(["none", "one", "each"]),
    variant=st.sampled_from(VARIANTS),
)
def test_convolutions(
    seed: int,
    group: int,
    per_group: int,
    maps: int,
    size: tuple[int, int],
    kernel: tuple[int, int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    pad: int,
    dtypes: tuple[Any, Any],
    bias: bool,
    zeros: str,
    variant: str,
) -> None:
    rng = np.random.default_rng(seed)
    x = random_bytes(rng, dtypes[0], 2, group * per_group, *size)
    w = random_bytes(rng, dtypes[1], group * maps, per_group, *kernel)
    zero = random_bytes(rng, dtypes[0])
    w_zero = np.zeros(1, dtypes[1])
    if zeros != "none":
        w_zero = random_bytes(rng, dtypes[1], group * maps if zeros == "each" else 1)
    wide = w.astype(np.int64) - w_zero[:, None, None, None]
    wanted = naive_convolution(x, wide, int(zero), group, strides, pad, dilations)
    offsets = rng.integers(-1000, 1000, group * maps).astype(np.int32) if bias else None
    if offsets is not None:
        wanted += offsets[:, None, None]
    sizes = wanted.shape[2:]
    ints = [group, per_group, 1, *kernel, 1, *strides, 0, pad, pad, 1, *dilations, 1, *sizes]
    steps, plane = pixel_layout(per_group, ints[2:14], ints[14:])
    packed = 2 * group * -(-per_group // 4) * plane + 128
    pixels = _kernels.call("pack_pixels", [x, zero], [((packed,), np.uint8)], ints, variant=variant)[0]
    packed = (group * maps + 1) * 4 * (steps + 2)
    filters = _kernels.call("pack_filters", [w, w_zero], [((packed,), np.uint8)], ints, variant=variant)[0]
    operands = [pixels, filters, zero, offsets]
    spec = [(wanted.shape, np.int32)]
    found = _kernels.call("conv_integer", operands, spec, ints, [], 112 * steps, variant)[0]
    assert np.array_equal(found, wanted)
    scale = rng.uniform(0, 0.01, group * maps if zeros == "each" else 1).astype(np.float32)
    y_zero = random_bytes(rng, dtypes[1])
    spec = [(wanted.shape, dtypes[1])]
    found = _kernels.call("conv_integer", [*operands, scale, y_zero], spec, ints, [], 112 * steps, variant)[0]
    assert np.array_equal(found, requantized(wanted, scale[:, None, None], y_zero))


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    channels=st.sampled_from([8, 15, 16, 33, 64, 65, 130]),
    multiplier=st.sampled_from([1, 1, 1, 2, 3]),
    size=st.tuples(st.integers(5, 24), st.integers(9, 40)),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 5)),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dilations=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    pad=st.integers(0, 4),
    dtypes=st.tuples(st.sampled_from(BYTES), st.sampled_from(BYTES)),
    bias=st.booleans(),
    each=st.booleans(),
    variant=st.sampled_from(VARIANTS),
)
def test_depthwise_convolutions(
    seed: int,
    channels: int,
    multiplier: int,
    size: tuple[int, int],
    kernel: tuple[int, int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    pad: int,
    dtypes: tuple[Any, Any],
    bias: bool,
    each: bool,
    variant: str,
) -> None:
    rng = np.random.default_rng(seed)
    maps = channels * multiplier
    x, zero = random_bytes(rng, dtypes[0], 2, channels, *size), random_bytes(rng, dtypes[0])
    w = random_bytes(rng, dtypes[1], maps, 1, *kernel)
    w_zero = np.array(128 if dtypes[1] == np.uint8 else 0, dtypes[1])
    wanted = naive_convolution(x, w.astype(np.int64) - int(w_zero), int(zero), channels, strides, pad, dilations)
    offsets = rng.integers(-1000, 1000, maps).astype(np.int32) if bias else None
    if offsets is not None:
        wanted += offsets[:, None, None]
    ints = [channels, 1, 1, *kernel, 1, *strides, 0, pad, pad, 1, *dilations, 1, *wanted.shape[2:]]
    packed = multiplier * -(-channels // 64) * 256 * (-(-w[0].size // 4) + 1)
    filters = _kernels.call("pack_depthwise", [w], [((packed,), np.uint8)], ints, variant=variant)[0]
    scale = rng.uniform(0, 0.01, maps if each else 1).astype(np.float32)
    y_zero = random_bytes(rng, dtypes[1])
    for operands, expected in [
        ([], wanted.astype(np.int32)),
        ([scale, y_zero], requantized(wanted, scale[:, None, None], y_zero)),
    ]:
        values = [Value(array.dtype, array.shape, array) for array in (x, w, w_zero)]
        scratch = depthwise_scratch(*values, ints[2:14], ints[14:], expected.dtype)
        assert scratch is not None
        spec = [(wanted.shape, expected.dtype)]
        operands = [x, filters, zero, offsets, *operands]
        found = _kernels.call("depthwise_integer", operands, spec, ints, [], scratch, variant)[0]
        assert np.array_equal(found, expected)


@pytest.mark.parametrize("variant", VARIANTS)
def test_sums_in_the_middle_of_two_integers(variant: str) -> None:
    """Where float32 cannot tell which integer is nearer, float64 must: every half, and its neighbours."""
    x = np.arange(-1000, 1000, dtype=np.int32)
    for scale in (0.5, 0.1, 1 / 3, 0.25):
        for nudge in (-1, 0, 1):
            factor = np.nextafter(np.float32(scale), np.float32(nudge * 10), dtype=np.float32) if nudge else scale
            for zero in (np.int8(-128), np.int8(0), np.int8(127), np.uint8(0), np.uint8(255)):
                operands = [x, np.float32(factor), np.array(zero)]
                found = _kernels.call("requantize", operands, [(x.shape, zero.dtype)], variant=variant)[0]
                assert np.array_equal(found, requantized(x, np.array(factor, np.float32), np.array(zero)))


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


def test_operands_that_do_not_fit_are_errors() -> None:
    a, zero, packed = np.zeros((2, 3), np.int8), np.zeros(1, np.int8), np.zeros(192, np.uint8)
    window = [1, 3, *[1] * 3, *[1] * 3, *[0] * 3, *[1] * 3]
    image = np.zeros((1, 3, 4), np.int8)
    for name, inputs, spec, ints in (
        ("matmul_integer", [a, zero, packed], ((2, 5), np.int32), [2, 5, 4, 0]),
        ("matmul_integer", [a, zero, packed[:191]], ((2, 5), np.int32), [2, 5, 3, 0]),
        ("matmul_integer", [a, zero, packed], ((2, 5), np.int32), [2, 5, 3, 0]),  # no scratch
        ("matmul_integer", [a, np.zeros(3, np.int8), packed], ((2, 5), np.int32), [2, 5, 3, 0]),
        ("pack_quads", [a, zero], ((191,), np.uint8), [1, 2, 3]),
        ("pack_pixels", [image, zero], ((143,), np.uint8), [*window, 1, 1, 4]),
        ("pack_pixels", [image, zero], ((144,), np.uint8), [2, *window[1:], 1, 1, 4]),
        ("pack_filters", [np.zeros((1, 3, 1), np.int8), zero], ((23,), np.uint8), [*window, 1, 1, 4]),
        (
            "conv_integer",
            [np.zeros(144, np.uint8), np.zeros(24, np.uint8), zero, None],
            ((1, 1, 4), np.int32),
            [*window, 1, 1, 4],
        ),  # no scratch
        ("quantize", [np.zeros(3, np.float32), np.zeros(2, np.float32), None], ((3,), np.int8), [1, 3, 1, 0]),
    ):
        with pytest.raises(InferenceError, match="do not fit"):
            _kernels.call(name, inputs, [spec], ints)
