"""Integer convolutions, depthwise ones included: exactly what NumPy computes, in every instruction set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetero import _kernels
from hetero._sizes import ask
from hetero.errors import InferenceError
from kernel_arrays import exact_offsets, random_bytes, requantized

pytestmark = pytest.mark.spread(2)

VARIANTS = _kernels.variants("conv_integer", "depthwise_integer", "pack_depthwise", "pack_filters", "pack_pixels")
BYTES = [np.int8, np.uint8]
Array = np.ndarray[Any, Any]


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
    without = wanted.copy()
    if offsets is not None:
        wanted += offsets[:, None, None]
    sizes = wanted.shape[2:]
    ints = [group, per_group, 1, *kernel, 1, *strides, 0, pad, pad, 1, *dilations, 1, *sizes]
    packed = ask("pixel_bytes", 2, *ints)
    pixels = _kernels.call("pack_pixels", [x, zero], [((packed,), np.uint8)], ints, variant=variant)[0]
    packed = ask("filter_bytes", group * maps, *ints)
    filters = _kernels.call("pack_filters", [w, w_zero], [((packed,), np.uint8)], ints, variant=variant)[0]
    operands = [pixels, filters, zero, offsets]
    spec = [(wanted.shape, np.int32)]
    found = _kernels.call("conv_integer", operands, spec, ints, variant=variant)[0]
    assert np.array_equal(found, wanted)
    scale = rng.uniform(0, 0.01, group * maps if zeros == "each" else 1).astype(np.float32)
    y_zero = random_bytes(rng, dtypes[1])
    spec = [(wanted.shape, dtypes[1])]
    found = _kernels.call("conv_integer", [*operands, scale, y_zero], spec, ints, variant=variant)[0]
    assert np.array_equal(found, requantized(wanted, scale[:, None, None], y_zero))
    scale, floats = exact_offsets(rng, group * maps, zeros == "each")
    operands = [*operands[:3], floats, scale, y_zero]
    found = _kernels.call("conv_integer", operands, spec, ints, variant=variant)[0]
    assert np.array_equal(found, requantized(without, scale[:, None, None], y_zero, floats[:, None, None]))


def convolved(x: Array, w: Array, zeros: tuple[Array, Array], ints: list[int], shape: Any, variant: str) -> Array:
    """conv_integer with packed operands. ``zeros``: of x and w."""
    spec = [((ask("pixel_bytes", len(x), *ints),), np.uint8)]
    pixels = _kernels.call("pack_pixels", [x, zeros[0]], spec, ints, variant=variant)[0]
    spec = [((ask("filter_bytes", len(w), *ints),), np.uint8)]
    filters = _kernels.call("pack_filters", [w, zeros[1]], spec, ints, variant=variant)[0]
    return _kernels.call("conv_integer", [pixels, filters, zeros[0], None], [(shape, np.int32)], ints, variant=variant)[
        0
    ]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("channels", [1, 2, 5])
@pytest.mark.parametrize("width", [40, 60])
@pytest.mark.parametrize("pair", [(64, 64), (127, 1), (127, 2), (-128, 0), (-128, -1), (-65, -64)])
def test_pairs_around_the_range_of_16_bits(pair: tuple[int, int], channels: int, width: int, variant: str) -> None:
    """Weights whose products with 255 add up to the limits of int16, and beyond; alone, and with a zero point that is
    taken off, or not, when the filters are packed."""
    w = np.zeros((7, channels, 1, 3), np.int8)
    w[5].reshape(-1)[-2:] = pair
    if channels > 1:
        w[6, :2, 0, 1] = pair
    x = np.full((1, channels, 1, width), 255, np.uint8)
    ints = [1, channels, *(1, 1, 3), *(1, 1, 1), *(0, 0, 1), *(1, 1, 1), *(1, 1, width)]
    for zero, w_zero in ((0, 0), (100, 0), (100, 3), (100, -100)):
        wide = w.astype(np.int64) - w_zero
        wanted = naive_convolution(x, wide, zero, 1, (1, 1), 1, (1, 1))[:, :, 1:2]
        zeros = np.array([zero], np.uint8), np.array([w_zero], np.int8)
        assert np.array_equal(convolved(x, w, zeros, ints, wanted.shape, variant), wanted)


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_pixels_of_every_width(variant: str, dtype: Any) -> None:
    """Rows are packed by blocks of several lengths."""
    rng = np.random.default_rng(0)
    for width in range(1, 140):
        x = random_bytes(rng, dtype, 1, 8, 1, width)
        ints = [1, 8, 1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1, width]
        spec = [((ask("pixel_bytes", 1, *ints),), np.uint8)]
        packed = _kernels.call("pack_pixels", [x, np.zeros((), dtype)], spec, ints, variant=variant)[0]
        quads = packed[: 8 * width].reshape(2, width, 4).transpose(0, 2, 1)
        assert np.array_equal(quads.reshape(8, width), x[0, :, 0].view(np.uint8) ^ (0x80 if dtype == np.int8 else 0))


def naive_windows(x: Array, w: Array, zero: int, group: int, stride: int, pad: int) -> Array:
    """The same, faster for many channels. w with its zero point taken off."""
    wide = np.pad(x.astype(np.int64) - zero, [(0, 0), (0, 0), (pad, pad), (pad, pad)])
    windows = np.lib.stride_tricks.sliding_window_view(wide, w.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
    parts = zip(np.split(windows, group, 1), np.split(w, group), strict=True)
    sums = [np.tensordot(part, of_group, ([1, 4, 5], [1, 2, 3])) for part, of_group in parts]
    return np.concatenate(sums, 3).transpose(0, 3, 1, 2)


@settings(max_examples=len(VARIANTS) * settings().max_examples // 2)
@given(
    seed=st.integers(0, 2**32),
    group=st.sampled_from([1, 1, 2]),
    per_group=st.sampled_from([1, 3, 4, 15, 16, 17, 60, 64, 65, 68, 128]),
    maps=st.sampled_from([1, 3, 4, 5, 12, 15, 16, 17, 31, 32, 33, 47, 48, 49, 65]),
    size=st.sampled_from([(1, 1), (1, 15), (4, 4), (1, 17), (5, 6), (1, 31), (4, 8), (3, 11), (5, 13), (20, 21)]),
    kernel=st.sampled_from([(1, 1), (1, 1), (3, 3), (1, 5), (2, 1)]),
    stride=st.integers(1, 2),
    pad=st.integers(0, 2),
    dtypes=st.tuples(st.sampled_from(BYTES), st.sampled_from(BYTES)),
    bias=st.booleans(),
    zeros=st.sampled_from(["none", "one", "each"]),
    same=st.booleans(),
    threads=st.sampled_from([1, 3]),
    variant=st.sampled_from(VARIANTS),
)
def test_convolutions_around_the_sizes_of_tiles(
    seed: int,
    group: int,
    per_group: int,
    maps: int,
    size: tuple[int, int],
    kernel: tuple[int, int],
    stride: int,
    pad: int,
    dtypes: tuple[Any, Any],
    bias: bool,
    zeros: str,
    same: bool,
    threads: int,
    variant: str,
) -> None:
    """``size``: of the result. ``same``: the largest unsigned image, or the least signed one, and the least weights."""
    rng = np.random.default_rng(seed)
    image = [max(1, (size[d] - 1) * stride + kernel[d] - 2 * pad) for d in (0, 1)]
    x = random_bytes(rng, dtypes[0], 2, group * per_group, *image)
    w = random_bytes(rng, dtypes[1], group * maps, per_group, *kernel)
    if same:
        x[:], w[:] = 255 if dtypes[0] is np.uint8 else -128, np.iinfo(dtypes[1]).min
    zero, w_zero = random_bytes(rng, dtypes[0]), np.zeros(1, dtypes[1])
    if zeros != "none":
        w_zero = random_bytes(rng, dtypes[1], group * maps if zeros == "each" else 1)
    wanted = naive_windows(x, w.astype(np.int64) - w_zero[:, None, None, None], int(zero), group, stride, pad)
    offsets = rng.integers(-1000, 1000, group * maps).astype(np.int32) if bias else None
    without = wanted.copy()
    if offsets is not None:
        wanted += offsets[:, None, None]
    ints = [group, per_group, 1, *kernel, 1, stride, stride, 0, pad, pad, 1, 1, 1, 1, *wanted.shape[2:]]
    team = _kernels.Team(threads) if threads > 1 else None
    spec = [((ask("pixel_bytes", 2, *ints),), np.uint8)]
    pixels = _kernels.call("pack_pixels", [x, zero], spec, ints, variant=variant, team=team)[0]
    spec = [((ask("filter_bytes", group * maps, *ints),), np.uint8)]
    filters = _kernels.call("pack_filters", [w, w_zero], spec, ints, variant=variant, team=team)[0]
    operands = [pixels, filters, zero, offsets]
    spec = [(wanted.shape, np.int32)]
    found = _kernels.call("conv_integer", operands, spec, ints, variant=variant, team=team)[0]
    assert np.array_equal(found, wanted)
    scale = rng.uniform(0, 0.01, group * maps if zeros == "each" else 1).astype(np.float32)
    y_zero = random_bytes(rng, dtypes[1])
    spec = [(wanted.shape, dtypes[1])]
    found = _kernels.call("conv_integer", [*operands, scale, y_zero], spec, ints, variant=variant, team=team)[0]
    assert np.array_equal(found, requantized(wanted, scale[:, None, None], y_zero))
    scale, floats = exact_offsets(rng, group * maps, zeros == "each")
    operands = [*operands[:3], floats, scale, y_zero]
    found = _kernels.call("conv_integer", operands, spec, ints, variant=variant, team=team)[0]
    assert np.array_equal(found, requantized(without, scale[:, None, None], y_zero, floats[:, None, None]))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("width", [47, 48, 49, 100])
@pytest.mark.parametrize("steps", [2, 3, 4, 33])
@pytest.mark.parametrize(
    "four", [(64, 64, 0, 0), (64, 0, 64, 1), (-64, 0, -64, 0), (-64, -1, 0, -64), (64, 64, 64, 64)]
)
def test_quads_around_the_range_of_16_bits(four: tuple[int, ...], steps: int, width: int, variant: str) -> None:
    """Weights of two quads, the first or the last ones of some filters, whose products with 255 add up to the limits of
    int16, and beyond."""
    w = np.random.default_rng(0).integers(-3, 4, (11, 4 * steps, 1, 1)).astype(np.int8)
    for filter_, first in ((1, 0), (4, 0), (4, steps // 2 * 2 - 2), (10, steps - 2)):
        w[filter_, 4 * first : 4 * first + 8] = 0
        w[filter_, [4 * first, 4 * first + 1, 4 * first + 4, 4 * first + 5], 0, 0] = four
    x = np.full((1, 4 * steps, 1, width), 255, np.uint8)
    ints = [1, 4 * steps, *(1, 1, 1), *(1, 1, 1), *(0, 0, 0), *(1, 1, 1), *(1, 1, width)]
    for zero in (0, 100):
        wanted = naive_windows(x, w.astype(np.int64), zero, 1, 1, 0)
        zeros = np.array([zero], np.uint8), np.zeros(1, np.int8)
        assert np.array_equal(convolved(x, w, zeros, ints, wanted.shape, variant), wanted)


@given(
    seed=st.integers(0, 2**32),
    group=st.integers(1, 2),
    per_group=st.sampled_from([1, 3, 4, 5, 8, 12, 33, 64]),
    maps=st.sampled_from([1, 4, 5, 6, 9, 11, 16]),
    size=st.sampled_from([(1, 47), (1, 48), (3, 17), (6, 8), (13, 13)]),
    kernel=st.sampled_from([(1, 1), (3, 3), (1, 5), (2, 2)]),
    large=st.sampled_from([0, 0.01, 0.04, 0.5]),
    top=st.sampled_from([64, 127]),
    dtypes=st.tuples(st.sampled_from(BYTES), st.sampled_from(BYTES)),
    shift=st.sampled_from([0, 0, 0, 3]),
    variant=st.sampled_from(VARIANTS),
)
def test_weights_of_which_some_are_large(
    seed: int,
    group: int,
    per_group: int,
    maps: int,
    size: tuple[int, int],
    kernel: tuple[int, int],
    large: float,
    top: int,
    dtypes: tuple[Any, Any],
    shift: int,
    variant: str,
) -> None:
    """None, some or many are too large for sums of four products in 16 bits, and with 127 also for sums of two.
    ``size``: of the result. ``shift``: of the zero point of the weights of some filters."""
    rng = np.random.default_rng(seed)
    image = size[0] + kernel[0] - 1, size[1] + kernel[1] - 1
    x = random_bytes(rng, dtypes[0], 1, group * per_group, *image)
    x[:, ::2] = np.iinfo(dtypes[0]).max  # the largest products
    wide = rng.integers(-8, 9, (group * maps, per_group, *kernel))
    wide = np.where(rng.random(wide.shape) < large, np.where(rng.random(wide.shape) < 0.5, top, -top), wide)
    middle = 128 if dtypes[1] is np.uint8 else 0
    w_zero = middle + shift * rng.integers(0, 2, group * maps)
    w, zero = (wide + middle).astype(dtypes[1]), random_bytes(rng, dtypes[0])
    wanted = naive_windows(x, w.astype(np.int64) - w_zero[:, None, None, None], int(zero), group, 1, 0)
    ints = [group, per_group, 1, *kernel, *[1] * 3, *[0] * 3, *[1] * 4, *size]
    zeros = zero.reshape(1), w_zero.astype(dtypes[1])
    assert np.array_equal(convolved(x, w, zeros, ints, wanted.shape, variant), wanted)


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_image_larger_than_the_scratch_memory(variant: str) -> None:
    """Its windows are gathered in several parts."""
    rng = np.random.default_rng(0)
    x, w = random_bytes(rng, np.uint8, 1, 16, 65, 65), random_bytes(rng, np.int8, 20, 16, 3, 3)
    wanted = naive_windows(x, w, 7, 1, 1, 1)
    ints = [1, 16, 1, 3, 3, *[1] * 3, 0, 1, 1, *[1] * 4, *wanted.shape[2:]]
    zero = np.array(7, np.uint8)
    spec = [((ask("pixel_bytes", 1, *ints),), np.uint8)]
    pixels = _kernels.call("pack_pixels", [x, zero], spec, ints, variant=variant)[0]
    spec = [((ask("filter_bytes", 20, *ints),), np.uint8)]
    filters = _kernels.call("pack_filters", [w, np.zeros(1, np.int8)], spec, ints, variant=variant)[0]
    spec = [(wanted.shape, np.int32)]
    assert np.array_equal(
        _kernels.call("conv_integer", [pixels, filters, zero, None], spec, ints, variant=variant)[0], wanted
    )


@given(
    seed=st.integers(0, 2**32),
    channels=st.sampled_from([8, 15, 16, 17, 32, 33, 64, 65, 96, 130]),
    multiplier=st.sampled_from([1, 1, 1, 2, 3]),
    out=st.tuples(st.integers(1, 24), st.sampled_from([1, 2, 3, 4, 5, 7, 8, *range(20, 28), 40])),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 5)),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dilations=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    pad=st.integers(0, 4),
    dtypes=st.tuples(st.sampled_from(BYTES), st.sampled_from(BYTES)),
    bias=st.booleans(),
    each=st.booleans(),
    middle=st.sampled_from([None, None, 128, 128, 0, 255, 100]),
    variant=st.sampled_from(VARIANTS),
)
def test_depthwise_convolutions(
    seed: int,
    channels: int,
    multiplier: int,
    out: tuple[int, int],
    kernel: tuple[int, int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    pad: int,
    dtypes: tuple[Any, Any],
    bias: bool,
    each: bool,
    middle: int | None,
    variant: str,
) -> None:
    """Rows of one to three outputs too, which fill no vector of several pixels. ``out``: sizes of the result, about.
    ``middle``: the distance of the weights' zero point from their smallest number; None: one per map."""
    rng = np.random.default_rng(seed)
    size = tuple(
        max(1, (out[axis] - 1) * strides[axis] + (kernel[axis] - 1) * dilations[axis] + 1 - 2 * pad) for axis in (0, 1)
    )
    maps = channels * multiplier
    x, zero = random_bytes(rng, dtypes[0], 2, channels, *size), random_bytes(rng, dtypes[0])
    w = random_bytes(rng, dtypes[1], maps, 1, *kernel)
    w_zero = random_bytes(rng, dtypes[1], maps)
    if middle is not None:
        w_zero = np.array(middle + np.iinfo(dtypes[1]).min, dtypes[1])
    from_zero = w.astype(np.int64) - w_zero.astype(np.int64).reshape(-1, *[1] * (w.ndim - 1))
    wanted = naive_convolution(x, from_zero, int(zero), channels, strides, pad, dilations)
    offsets = rng.integers(-1000, 1000, maps).astype(np.int32) if bias else None
    without = wanted.copy()
    if offsets is not None:
        wanted += offsets[:, None, None]
    ints = [channels, 1, 1, *kernel, 1, *strides, 0, pad, pad, 1, *dilations, 1, *wanted.shape[2:]]
    packed = multiplier * -(-channels // 64) * 256 * (2 * -(-w[0].size // 4) + 1)
    filters = _kernels.call("pack_depthwise", [w, w_zero], [((packed,), np.uint8)], ints, variant=variant)[0]
    scale = rng.uniform(0, 0.01, maps if each else 1).astype(np.float32)
    y_zero = random_bytes(rng, dtypes[1])
    exact, floats = exact_offsets(rng, maps, each)
    for operands, expected in [
        ([offsets], wanted.astype(np.int32)),
        ([offsets, scale, y_zero], requantized(wanted, scale[:, None, None], y_zero)),
        ([floats, exact, y_zero], requantized(without, exact[:, None, None], y_zero, floats[:, None, None])),
    ]:
        spec = [(wanted.shape, expected.dtype)]
        operands = [x, filters, zero, *operands]
        found = _kernels.call("depthwise_integer", operands, spec, ints, variant=variant)[0]
        assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    ("changed", "operand"),
    [
        (2, np.zeros(2, np.uint8)),
        (3, np.zeros(3, np.float32)),
        (3, np.zeros(2, np.float64)),
        (4, np.ones(3, np.float32)),
        (4, np.ones(1, np.float64)),
        (5, np.zeros(2, np.int8)),
    ],
)
def test_wrong_operands_are_refused(changed: int, operand: Array) -> None:
    """The zero points of x and y are one number each, and scales are float32: one, or one for each channel."""
    ints = [1, 4, 1, 1, 1, *[1] * 3, *[0] * 3, *[1] * 4, 2, 2]
    pixels = np.zeros(ask("pixel_bytes", 1, *ints), np.uint8)
    filters = np.zeros(ask("filter_bytes", 2, *ints), np.uint8)
    operands = [pixels, filters, np.zeros(1, np.uint8), None, np.ones(1, np.float32), np.zeros(1, np.int8)]
    spec = [((1, 2, 2, 2), np.int8)]
    _kernels.call("conv_integer", operands, spec, ints)
    operands[changed] = operand
    with pytest.raises(InferenceError):
        _kernels.call("conv_integer", operands, spec, ints)


@pytest.mark.parametrize(
    "shape", [(1, 3, 2, 2), (1, 2, 3, 2), (1, 2, 2, 3), (1, 2, 2, 2, 1), (2,), (1, 2), (1, 2, 1, 1, 2, 2)]
)
def test_wrong_results_are_refused(shape: tuple[int, ...]) -> None:
    """A result has the size that the layout gives, and as many channels for each of two groups."""
    ints = [2, 4, 1, 1, 1, *[1] * 3, *[0] * 3, *[1] * 4, 2, 2]
    pixels, filters, of_shape = (
        np.zeros(ask("pixel_bytes", 1, *ints), np.uint8),
        np.zeros(ask("filter_bytes", 2, *ints), np.uint8),
        np.zeros(ask("filter_bytes", shape[min(1, len(shape) - 1)], *ints), np.uint8),
    )
    operands = [pixels, filters, np.zeros(1, np.uint8), None]
    _kernels.call("conv_integer", operands, [((1, 2, 2, 2), np.int32)], ints)
    for operands[1] in (filters, of_shape):
        with pytest.raises(InferenceError):
            _kernels.call("conv_integer", operands, [(shape, np.int32)], ints)
