"""conv against a plain NumPy convolution in float64: 1 to 3 dims, every way of computing it, every instruction set."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import packed_convolution
from hetero import _kernels
from hetero.errors import InferenceError
from kernel_arrays import normal
from plain_convolution import ACTIVATIONS, naive

pytestmark = pytest.mark.spread(2)

VARIANTS = _kernels.variants("conv", "pack_b")
Array = np.ndarray[Any, Any]


def conv(
    x: Array,
    w: Array,
    out: Sequence[int],
    group: int,
    strides: Sequence[int],
    dilations: Sequence[int],
    begin: Sequence[int],
    *,
    variant: str,
    packed: bool,
    bias: Array | None = None,
    addend: Array | None = None,
    activation: int = 0,
    parameters: tuple[float, float] = (-1, 2),
    after: Sequence[Array | None] = (),
) -> Array:
    maps, k = w.shape[0], int(np.prod(w.shape[1:]))
    packed_floats = group * (-(-(maps // group) // 16)) * 16 * k
    scratch = (1 << 20) + (0 if packed else 4 * packed_floats)
    weights = w
    if packed:
        spec = [((packed_floats,), np.float32)]
        weights = _kernels.call("pack_b", [w], spec, [group, k, maps // group, 1], variant=variant)[0]
    ints = [group, packed, activation]
    for values, filler in [(w.shape[2:], 1), (strides, 1), (begin, 0), (dilations, 1)]:
        ints += [filler] * (3 - len(values)) + list(values)
    spec4 = [((x.shape[0], maps, *out), np.float32)]
    operands = [x, weights, bias, addend, None, None, *after]
    return _kernels.call("conv", operands, spec4, ints, parameters, scratch, variant)[0]


def check(
    x: Array,
    w: Array,
    group: int,
    strides: Sequence[int],
    dilations: Sequence[int],
    begin: Sequence[int],
    end: Sequence[int],
    *,
    packed: bool,
    variant: str,
    bias: Array | None = None,
    with_addend: bool = False,
    activation: int = 0,
) -> None:
    """``with_addend``: with one before the activation, and with all that may follow it."""
    expected = naive(x, w, group, strides, dilations, begin, end)
    addend, after = None, packed_convolution.after_activation(expected.shape) if with_addend else []
    if bias is not None:
        expected = expected + bias.reshape(-1, *[1] * (x.ndim - 2))
    if with_addend:
        addend = np.random.default_rng(5).standard_normal(expected.shape, np.float32)
        expected = expected + addend
    found = conv(
        x, w, expected.shape[2:], group, strides, dilations, begin, variant=variant, packed=packed, bias=bias,
        addend=addend, activation=activation, after=after,
    )  # fmt: skip
    k = int(np.prod(w.shape[1:]))
    expected = packed_convolution.followed(ACTIVATIONS[activation](expected), after)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=3e-6 * (1 + k))


@pytest.mark.parametrize("variant", VARIANTS)
@given(data=st.data())
def test_random_geometry(variant: str, data: st.DataObject) -> None:
    draw = data.draw
    rank = draw(st.sampled_from([1, 2, 2, 2, 3]))

    def per_dim(values: list[int]) -> list[int]:
        return [draw(st.sampled_from(values)) for _ in range(rank)]

    group = draw(st.sampled_from([1, 1, 2, 3]))
    channels, maps = draw(st.sampled_from([1, 2, 5, 17, 40])), draw(st.sampled_from([1, 2, 7, 16, 33, 50]))
    kernel, strides, dilations = per_dim([1, 2, 3, 5]), per_dim([1, 1, 2, 3]), per_dim([1, 1, 2])
    begin, end = per_dim([0, 0, 1, 2]), per_dim([0, 0, 1, 2])
    sizes = per_dim([1, 3, 7, 14, 20, 33] if rank < 3 else [1, 4, 7])
    geometry = zip(sizes, kernel, dilations, begin, end, strict=True)
    size = [max(n, (k - 1) * d + 1 - b - e) for n, k, d, b, e in geometry]
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    x = rng.standard_normal((draw(st.sampled_from([1, 2])), group * channels, *size), np.float32)
    w = rng.standard_normal((group * maps, channels, *kernel), np.float32)
    bias = rng.standard_normal(group * maps, np.float32) if draw(st.booleans()) else None
    check(
        x, w, group, strides, dilations, begin, end, packed=draw(st.booleans()), variant=variant, bias=bias,
        with_addend=draw(st.booleans()), activation=draw(st.sampled_from(sorted(ACTIVATIONS))),
    )  # fmt: skip


CASES = {  # x, w, group, stride, dilation, pad
    "7x7, stride 2": ((1, 3, 56, 56), (20, 3, 7, 7), 1, 2, 1, 3),
    "3x3 over many channels": ((1, 130, 9, 9), (33, 130, 3, 3), 1, 1, 1, 1),
    "1x1 narrowing": ((1, 300, 14, 14), (24, 300, 1, 1), 1, 1, 1, 0),
    "1x1 widening": ((1, 24, 20, 20), (100, 24, 1, 1), 1, 1, 1, 0),
    "1x1, stride 2": ((1, 40, 15, 15), (33, 40, 1, 1), 1, 2, 1, 0),
    "1x1 with pads": ((1, 16, 6, 6), (16, 16, 1, 1), 1, 1, 1, 1),
    "long rows": ((1, 3, 2, 1200), (17, 3, 3, 3), 1, 1, 1, 1),
    "one output pixel": ((1, 64, 7, 7), (40, 64, 7, 7), 1, 1, 1, 0),
    "one output pixel of a larger input": ((1, 9, 8, 8), (40, 9, 7, 7), 1, 2, 1, 0),
    "one output pixel, padded": ((1, 9, 1, 1), (40, 9, 3, 3), 1, 1, 1, 1),
    "one output pixel, dilated": ((1, 9, 5, 5), (40, 9, 3, 3), 1, 1, 2, 0),
    "two columns": ((1, 40, 30, 2), (32, 40, 3, 3), 1, 1, 1, 1),
    "copy too large for a block": ((1, 600, 12, 60), (16, 600, 5, 5), 1, 1, 2, 4),
    "kernel of 1089 taps": ((1, 1, 40, 40), (2, 1, 33, 33), 1, 1, 1, 0),
    "depthwise": ((2, 19, 37, 37), (19, 1, 3, 3), 19, 1, 1, 1),
    "depthwise, stride 2": ((1, 19, 37, 38), (19, 1, 3, 3), 19, 2, 1, 1),
    "depthwise 5x5, stride 3, dilated": ((1, 6, 40, 41), (6, 1, 5, 5), 6, 3, 2, 4),
    "depthwise with multiplier": ((1, 5, 20, 20), (15, 1, 3, 3), 5, 1, 1, 1),
    "depthwise, plane larger than scratch": ((1, 2, 600, 700), (2, 1, 3, 3), 2, 1, 1, 1),
    "depthwise 3x3 of small planes": ((2, 37, 7, 7), (37, 1, 3, 3), 37, 1, 1, 1),
    "depthwise 5x5 of small planes": ((1, 40, 7, 9), (40, 1, 5, 5), 40, 1, 1, 2),
    "depthwise 5x5 of small planes, stride 2": ((1, 33, 14, 13), (33, 1, 5, 5), 33, 2, 1, 2),
    "depthwise of small planes, dilated": ((1, 20, 8, 8), (20, 1, 3, 3), 20, 1, 3, 3),
    "depthwise, one pixel each": ((1, 50, 3, 3), (50, 1, 3, 3), 50, 1, 1, 0),
    "depthwise 7x7": ((1, 5, 30, 40), (5, 1, 7, 7), 5, 1, 1, 3),
    "depthwise 9x9, stride 2": ((1, 5, 31, 45), (5, 1, 9, 9), 5, 2, 1, 4),
    "depthwise with 4 outputs": ((1, 3, 20, 20), (12, 1, 3, 3), 3, 1, 1, 1),
    "one channel in groups, 6 outputs": ((1, 3, 20, 20), (18, 1, 3, 3), 3, 1, 1, 1),
    "depthwise, rows longer than a block": ((1, 2, 9, 3000), (2, 1, 5, 5), 2, 2, 1, 2),
    "depthwise 3x3, stride 2, wide": ((2, 3, 41, 131), (3, 1, 3, 3), 3, 2, 1, 1),
    "depthwise 3x3, stride 2, 2 outputs": ((1, 3, 20, 61), (6, 1, 3, 3), 3, 2, 1, 1),
    "depthwise 1x1, stride 2": ((1, 19, 37, 70), (19, 1, 1, 1), 19, 2, 1, 0),
    "depthwise 1x1, stride 2, pads": ((1, 3, 6, 33), (3, 1, 1, 1), 3, 2, 1, 1),
    "rows, stride 2": ((2, 3, 33, 70), (12, 3, 3, 3), 1, 2, 1, 1),
    "rows, stride 3, dilated": ((1, 5, 40, 100), (24, 5, 3, 2), 1, 3, 2, 2),
    "rows, channels summed in parts": ((1, 130, 9, 48), (9, 130, 3, 3), 1, 1, 1, 1),
    "rows, few groups' channels": ((1, 32, 28, 28), (32, 4, 3, 3), 8, 1, 1, 1),
    "grouped": ((1, 32, 14, 14), (64, 4, 3, 3), 8, 1, 1, 1),
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("case", CASES)
def test_cases(variant: str, case: str) -> None:
    x_shape, w_shape, group, stride, dilation, pad = CASES[case]
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal(x_shape, np.float32), rng.standard_normal(w_shape, np.float32)
    bias = rng.standard_normal(w_shape[0], np.float32)
    for packed in (False, True):
        check(
            x, w, group, [stride] * 2, [dilation] * 2, [pad] * 2, [pad] * 2, packed=packed, variant=variant, bias=bias
        )


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
@pytest.mark.parametrize(("channels", "maps", "group", "kernel"), [(48, 40, 1, 1), (6, 50, 2, 5), (1, 17, 1, 1)])
def test_windows_as_large_as_the_input(
    variant: str, activation: int, channels: int, maps: int, group: int, kernel: int
) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, group * channels, kernel, kernel), np.float32)
    w = rng.standard_normal((group * maps, channels, kernel, kernel), np.float32)
    geometry: list[list[int]] = [[2, 2], [1, 1], [0, 0], [0, 0]]
    for packed, with_addend in itertools.product((False, True), repeat=2):
        check(
            x, w, group, *geometry, packed=packed, variant=variant, activation=activation, with_addend=with_addend,
            bias=rng.standard_normal(group * maps, np.float32),
        )  # fmt: skip
    x[1, 0, 0, 0], w[group * maps - 1] = np.inf, np.nan  # the other images and output channels do not see them
    found = conv(x, w, (1, 1), group, *geometry[:3], variant=variant, packed=True, activation=0)
    assert np.isfinite(found[[0, 2], :-1]).all()
    assert np.isnan(found[:, -1]).all()
    assert not np.isfinite(found[1, : maps - (group == 1)]).any()


@pytest.mark.parametrize("variant", VARIANTS)
def test_asymmetric_and_excessive_pads(variant: str) -> None:
    """Whole rows, columns and windows may lie in the padding."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 3, 4, 5), np.float32)
    for maps, channels, group in [(18, 3, 1), (3, 1, 3)]:
        w = rng.standard_normal((maps, channels, 3, 2), np.float32)
        for begin, end in [((7, 0), (0, 9)), ((0, 6), (5, 0)), ((4, 4), (4, 4))]:
            check(x, w, group, [2, 1], [1, 3], begin, end, packed=False, variant=variant)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("shape", [(0, 3, 5, 5), (1, 3, 5, 0)])
def test_empty(variant: str, shape: tuple[int, ...]) -> None:
    x, w = np.zeros(shape, np.float32), np.zeros((4, 3, 1, 1), np.float32)
    y = conv(x, w, shape[2:], 1, [1, 1], [1, 1], [0, 0], variant=variant, packed=False)
    assert y.shape == (shape[0], 4, *shape[2:])


@pytest.mark.parametrize("variant", VARIANTS)
def test_sampled_rows_of_every_width(variant: str) -> None:
    """1x1 kernels with strides, whose outputs' rows are shorter than, equal to and longer than vectors. Many output
    channels, so that columns are pixels; `x` ends with the last element that is read, or one or two after it."""
    rng = np.random.default_rng(0)
    for width, strides in itertools.product(
        [1, 2, 5, 7, 8, 9, *range(14, 19), *range(29, 36), 65], [(1, 2), (2, 2), (2, 1), (1, 3)]
    ):
        x, w = rng.standard_normal((1, 34, 3, width), np.float32), rng.standard_normal((80, 34, 1, 1), np.float32)
        check(x, w, 1, strides, (1, 1), (0, 0), (0, 0), packed=True, variant=variant)
    for strides3 in itertools.product([1, 2], [1, 3], [1, 2]):
        x, w = rng.standard_normal((2, 34, 3, 5, 7), np.float32), rng.standard_normal((80, 34, 1, 1, 1), np.float32)
        check(x, w, 1, strides3, (1, 1, 1), (0,) * 3, (0,) * 3, packed=True, variant=variant)


@pytest.mark.spread(1)  # each is code of its own
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("channels", [3, 35])
def test_depthwise_rows_of_every_width(variant: str, channels: int) -> None:
    """Rows shorter than, equal to and longer than vectors; 3 channels never fill a vector."""
    rng = np.random.default_rng(0)
    for width, stride, pad in itertools.product(
        [1, 2, 5, 7, 8, 9, *range(14, 19), *range(30, 36), 47, 64, 65], (1, 2), (0, 1, 2)
    ):
        if width + 2 * pad >= 3:
            x = rng.standard_normal((1, channels, 3, width), np.float32)
            w = rng.standard_normal((channels, 1, 3, 3), np.float32)
            check(x, w, channels, (1, stride), (1, 1), (1, pad), (1, pad), packed=False, variant=variant)


@pytest.mark.spread(1)  # each is code of its own
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (1, 3), (3, 1), (3, 2)])
def test_depthwise_in_place(variant: str, kernel: tuple[int, int]) -> None:
    """Every parity of sizes and pads, with an addend, and neighbors of what is computed in place: other strides,
    dilations and kernels."""
    rng = np.random.default_rng(0)
    few, more = [1, 33, 64, 130], [6, 15, 31, 32, 34, 63, 65, 67, 97]
    sizes = [*itertools.product(few, [(0, 0), (1, 1), (2, 70)]), *itertools.product(more, [(1, 1)])]
    for height, (width, begin), end, stride in itertools.product([1, 2, 4, 9], sizes, [0, 1], [1, 2]):
        if all(n + pad + end >= k for n, k, pad in zip((height, width), kernel, begin, strict=True)):
            x = rng.standard_normal((1, 3, height, width), np.float32)
            w = rng.standard_normal((6, 1, *kernel), np.float32)
            bias = rng.standard_normal(6, np.float32)
            check(
                x, w, 3, (stride, stride), (1, 1), begin, (end, end), packed=False, variant=variant, bias=bias,
                with_addend=True, activation=1 + width % 2,
            )  # fmt: skip
    for strides, dilation in [((1, 2), 1), ((2, 1), 1), ((1, 1), 2), ((2, 2), 2), ((4, 2), 1), ((2, 3), 1)]:
        x, w = rng.standard_normal((2, 3, 11, 50), np.float32), rng.standard_normal((3, 1, *kernel), np.float32)
        check(x, w, 3, strides, (dilation, dilation), (1, 1), (1, 1), packed=False, variant=variant)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("width", [34, 66, 68, 100])
def test_values_outside_of_windows_are_ignored(variant: str, width: int) -> None:
    """NaN in the last row and column, which no window holds, and in the channels before and after."""
    rng = np.random.default_rng(0)
    for size in (1, 3):
        x = rng.standard_normal((1, 3, 12, width), np.float32)
        w = rng.standard_normal((3, 1, size, size), np.float32)
        x[:, 0] = x[:, 2] = x[:, :, -1] = x[:, :, :, -1] = np.nan
        clean = np.nan_to_num(x)
        found, expected = (
            conv(v, w, ((12 - size) // 2 + 1, (width - size) // 2 + 1), 3, (2, 2), (1, 1), (0, 0), variant=variant,
                 packed=False)[0, 1]
            for v in (x, clean)
        )  # fmt: skip
        np.testing.assert_array_equal(found, expected)
        assert np.isfinite(found).all()


@pytest.mark.spread(1)  # each is code of its own
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("size", "dilation"), [(3, 1), (5, 1), (7, 1), (3, 2)])
def test_depthwise_small_planes(variant: str, size: int, dilation: int) -> None:
    """Every number of pixels after whole vectors, for inputs and outputs; rows and columns that no window reads; NaN,
    which clipping keeps."""
    rng = np.random.default_rng(0)
    strides = itertools.cycle([(1, 1), (2, 2), (1, 3), (3, 1), (2, 1)])
    pads = itertools.cycle(itertools.product(range(4), repeat=2))
    for at, (height, width) in enumerate(itertools.product([1, 3, 7, 8], [*range(1, 12), 14, 17])):
        channels, stride, (begin, end) = (16, 19, 35)[at % 3], next(strides), next(pads)
        if min(height, width) + begin + end <= (size - 1) * dilation:
            continue
        x = rng.standard_normal((1 + at % 2, channels, height, width), np.float32)
        x[0, at % channels, -1, -1] = np.nan
        x[0, (at + 1) % channels, 0, 0] = np.inf
        w = rng.standard_normal((channels, 1, size, size), np.float32)
        check(
            x, w, channels, stride, (dilation, dilation), (begin, begin), (end, end), packed=False, variant=variant,
            bias=rng.standard_normal(channels, np.float32) if at % 2 else None, with_addend=at % 3 == 0,
            activation=sorted(ACTIVATIONS)[at % len(ACTIVATIONS)],
        )  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_square(variant: str, size: int, stride: int) -> None:
    """Every width of up to three vectors and height of bands, with every pad on each side."""
    rng = np.random.default_rng(0)
    heights = itertools.cycle(range(1, 20))
    pads = itertools.cycle(itertools.product(range(size + 1), repeat=2))
    for width in [*range(1, 28), 57, 112]:
        for _ in range(4):
            height, columns, rows = next(heights), next(pads), next(pads)
            if width + sum(columns) < size or height + sum(rows) < size:
                continue
            x = rng.standard_normal((2, 3, height, width), np.float32)
            w = rng.standard_normal((6, 1, size, size), np.float32)
            begin, end = (rows[0], columns[0]), (rows[1], columns[1])
            check(
                x, w, 3, (stride, stride), (1, 1), begin, end, packed=False, variant=variant,
                bias=rng.standard_normal(6, np.float32) if width % 2 else None, with_addend=width % 3 == 0,
                activation=sorted(ACTIVATIONS)[(width + height) % len(ACTIVATIONS)],
            )  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_square_reads_its_own_plane_only(variant: str, size: int, stride: int) -> None:
    """NaN in the planes before and after, and in every weight but one channel's, reach no other channel's outputs."""
    rng = np.random.default_rng(0)
    for width in (7, 8, 13, 24, 31):
        x = rng.standard_normal((1, 3, 9, width), np.float32)
        w = rng.standard_normal((3, 1, size, size), np.float32)
        geometry = (3, (stride, stride), (1, 1), (size // 2, size // 2))
        expected = naive(x, w, *geometry, (size // 2, size // 2))
        x[:, ::2] = w[::2] = np.nan
        found = conv(x, w, expected.shape[2:], *geometry, variant=variant, packed=False)
        np.testing.assert_allclose(found[:, 1], expected[:, 1], rtol=1e-5, atol=1e-4)
        assert np.isnan(found[:, ::2]).all()


SKIPPING = {  # x, w, strides, dilations, pads before, pads after: kernels with positions in the padding of whole lines
    "7x1": ((1, 20, 17, 17), (50, 20, 7, 1), (1, 1), (1, 1), (3, 0), (3, 0)),
    "1x7": ((1, 20, 17, 17), (50, 20, 1, 7), (1, 1), (1, 1), (0, 3), (0, 3)),
    "7x1 above only, stride 2": ((1, 20, 17, 17), (33, 20, 7, 1), (2, 2), (1, 1), (5, 0), (0, 0)),
    "1x7 right only, stride 2": ((1, 20, 17, 18), (33, 20, 1, 7), (2, 2), (1, 1), (0, 0), (0, 6)),
    "7x1 over 2 rows": ((1, 9, 2, 9), (20, 9, 7, 1), (1, 1), (1, 1), (3, 0), (3, 0)),
    "1x7 over 2 columns": ((1, 9, 9, 2), (20, 9, 1, 7), (1, 1), (1, 1), (0, 3), (0, 3)),
    "1x7 over 12 rows, 1 column": ((1, 9, 12, 1), (20, 9, 1, 7), (1, 1), (1, 1), (0, 3), (0, 3)),
    "3x3, 1 column": ((1, 9, 30, 1), (20, 9, 3, 3), (1, 1), (1, 1), (1, 1), (1, 1)),
    "5x5, 3 columns": ((1, 9, 30, 3), (20, 9, 5, 5), (1, 1), (1, 1), (2, 2), (2, 2)),
    "5x5, 3x3 outputs": ((2, 40, 7, 7), (50, 40, 5, 5), (1, 1), (1, 1), (0, 0), (0, 0)),
    "3x3, 2x2 outputs": ((2, 40, 4, 4), (50, 40, 3, 3), (2, 2), (1, 1), (1, 1), (1, 1)),
    "3x1, 900 rows": ((1, 9, 900, 1), (20, 9, 3, 1), (1, 1), (1, 1), (1, 0), (1, 0)),
    "3x2, 900 rows": ((1, 9, 900, 2), (20, 9, 3, 2), (1, 1), (1, 1), (1, 1), (1, 0)),
    "9x1, lines outside": ((1, 9, 5, 9), (20, 9, 9, 1), (1, 1), (1, 1), (12, 0), (12, 0)),
    "1x9, lines outside": ((1, 9, 9, 5), (20, 9, 1, 9), (1, 1), (1, 1), (0, 12), (0, 12)),
    "3x1, dilation 6": ((1, 20, 12, 12), (33, 20, 3, 1), (1, 1), (6, 1), (6, 0), (6, 0)),
    "1x3, dilation 6": ((1, 20, 12, 12), (33, 20, 1, 3), (1, 1), (1, 6), (0, 6), (0, 6)),
    "3x3, both padded": ((1, 20, 14, 14), (33, 20, 3, 3), (2, 2), (1, 1), (1, 1), (1, 1)),
    "5x5, dilation 3": ((1, 20, 9, 9), (33, 20, 5, 5), (1, 1), (3, 3), (6, 6), (6, 6)),
    "3x3 padded in y": ((1, 20, 14, 14), (33, 20, 3, 3), (1, 1), (1, 1), (1, 0), (1, 0)),
    "3x3 padded in x": ((1, 20, 14, 14), (33, 20, 3, 3), (1, 1), (1, 1), (0, 1), (0, 1)),
    "7x1, several blocks": ((2, 40, 40, 31), (50, 40, 7, 1), (1, 1), (1, 1), (3, 0), (3, 0)),
    "3x3x3": ((1, 20, 4, 6, 7), (33, 20, 3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), (1, 1, 1)),
    "3x1x1": ((1, 20, 4, 6, 7), (33, 20, 3, 1, 1), (1, 1, 1), (1, 1, 1), (1, 0, 0), (1, 0, 0)),
    "1x1x3, planes outside": ((1, 20, 4, 9, 7), (33, 20, 1, 1, 3), (1, 1, 1), (1, 1, 1), (1, 0, 1), (2, 0, 1)),
    "3 along one axis": ((2, 20, 30), (33, 20, 3), (1,), (1,), (1,), (1,)),
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("case", SKIPPING)
@pytest.mark.parametrize("group", [1, 2])
def test_skipped_kernel_positions(variant: str, case: str, group: int) -> None:
    """An infinite weight times the padding is NaN, whatever else is skipped."""
    x_shape, w_shape, strides, dilations, begin, end = SKIPPING[case]
    rng = np.random.default_rng(0)
    x = rng.standard_normal((x_shape[0], group * x_shape[1], *x_shape[2:]), np.float32)
    w = rng.standard_normal((group * w_shape[0], *w_shape[1:]), np.float32)
    geometry = (group, strides, dilations, begin, end)
    check(x, w, *geometry, packed=True, variant=variant, bias=rng.standard_normal(len(w), np.float32))
    check(x, w, *geometry, packed=False, variant=variant, with_addend=True, activation=1)
    kernel = list(itertools.product(*map(range, w_shape[2:])))
    for value, position in itertools.product(
        [np.nan, np.inf, -np.inf], [kernel[0], kernel[len(kernel) // 2], kernel[-1]]
    ):
        bad = w.copy()
        bad[(int(rng.integers(len(w))), int(rng.integers(w_shape[1])), *position)] = value
        with np.errstate(invalid="ignore"):
            expected = naive(x, bad, *geometry)
        found = conv(x, bad, expected.shape[2:], *geometry[:4], variant=variant, packed=True)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-6 * (1 + w[0].size))


@pytest.mark.parametrize("variant", VARIANTS)
def test_skipping_changes_no_bit(variant: str) -> None:
    """An infinite weight of one output channel lets nothing be skipped for the others of its block, of 16 at least."""
    rng = np.random.default_rng(0)
    for case in ("7x1", "1x7", "3x3, both padded", "3x1, dilation 6", "3x1x1"):
        x_shape, w_shape, strides, dilations, begin, end = SKIPPING[case]
        x, w = rng.standard_normal(x_shape, np.float32), rng.standard_normal(w_shape, np.float32)
        out = naive(x, w, 1, strides, dilations, begin, end).shape[2:]
        skipping = conv(x, w, out, 1, strides, dilations, begin, variant=variant, packed=True)
        w[0] = np.inf
        whole = conv(x, w, out, 1, strides, dilations, begin, variant=variant, packed=True)
        assert not np.isfinite(whole[:, 0]).all()
        np.testing.assert_array_equal(skipping[:, 1:16], whole[:, 1:16])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("finite", [0, 1])
@pytest.mark.parametrize("stride", [1, 2])
def test_few_pixels_of_many_channels(variant: str, finite: int, stride: int) -> None:
    """Lines of one to five pixels, whose steps are kept from one block of weights to the next."""
    for size, taps, pad in [(1, 3, 1), (2, 3, 1), (4, 3, 1), (5, 3, 1), (7, 5, 0), (7, 5, 2), (3, 3, 0), (5, 2, 1)]:
        x, w = normal(2, 150, size, size), normal(70, 150, taps, taps, seed=1)
        w /= np.float32(taps * 12)
        x[0, 3, 0, 0] = np.nan
        geometry = (1, (stride,) * 2, (1, 1), (pad,) * 2, (pad,) * 2)
        packed_convolution.check(x, w, *geometry, variant=variant, finite=finite, activation=1)


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_column_of_many_rows(variant: str) -> None:
    """More pixels than a block has, and a stride along the axis of length 1."""
    rng = np.random.default_rng(0)
    for shape in [(1, 20, 900, 1), (1, 20, 1, 900), (1, 20, 1, 1)]:
        x, w = rng.standard_normal(shape, np.float32), rng.standard_normal((33, 20, 1, 1), np.float32)
        strides = (1 if shape[2] > 1 else 3, 1 if shape[3] > 1 else 3)
        check(x, w, 1, strides, (1, 1), (0, 0), (0, 0), packed=True, variant=variant)


COLUMNS = {  # channels, maps, group, size, kernel, strides, dilations, pads before, pads after
    "dilated": (12, 12, 1, (60, 31), (7, 1), (1, 1), (9, 1), (27, 0), (27, 0)),
    "far outside": (12, 20, 1, (8, 30), (3, 1), (1, 1), (50, 1), (50, 0), (50, 0)),
    "uneven": (16, 16, 1, (40, 21), (4, 1), (1, 1), (2, 1), (5, 0), (0, 0)),
    "many channels": (130, 150, 1, (17, 17), (7, 1), (1, 1), (1, 1), (3, 0), (3, 0)),
    "many pixels": (3, 5, 1, (400, 50), (5, 1), (1, 1), (1, 1), (2, 0), (2, 0)),
    "one column": (40, 33, 1, (130, 1), (5, 1), (1, 1), (1, 1), (0, 0), (0, 0)),
    "one column, strides": (24, 20, 1, (131, 1), (3, 1), (2, 3), (1, 1), (1, 0), (1, 0)),
    "groups": (64, 64, 4, (50, 5), (3, 1), (1, 1), (1, 1), (1, 0), (1, 0)),
    "depthwise": (24, 24, 24, (70, 13), (5, 1), (1, 1), (3, 1), (6, 0), (6, 0)),
    "depthwise, one column": (20, 20, 20, (700, 1), (5, 1), (2, 1), (2, 1), (4, 0), (4, 0)),
    "depthwise, more maps": (6, 12, 6, (90, 3), (3, 1), (1, 1), (1, 1), (1, 0), (1, 0)),
    "depthwise, large": (1, 1, 1, (600, 600), (9, 1), (1, 1), (40, 1), (160, 0), (160, 0)),
    "two rows of three": (5, 7, 1, (6, 9, 11), (2, 3, 1), (1, 1, 1), (2, 1, 1), (1, 1, 0), (1, 1, 0)),
    "depth alone": (5, 17, 1, (20, 5, 7), (3, 1, 1), (1, 1, 1), (4, 1, 1), (4, 0, 0), (4, 0, 0)),
    "depth, one pixel each": (9, 17, 1, (60, 1, 1), (3, 1, 1), (2, 5, 7), (1, 1, 1), (1, 0, 0), (1, 0, 0)),
    "strides between columns": (8, 9, 1, (40, 19), (3, 1), (1, 2), (1, 1), (1, 0), (1, 0)),
    "strides along columns": (8, 9, 1, (40, 19), (3, 1), (2, 1), (1, 1), (1, 0), (1, 0)),
    "columns of padding": (8, 9, 1, (40, 19), (3, 1), (1, 1), (1, 1), (1, 1), (1, 0)),
    "columns of padding after": (8, 9, 1, (40, 19), (3, 1), (1, 1), (1, 1), (1, 0), (1, 2)),
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("case", COLUMNS)
def test_kernels_of_one_column(variant: str, case: str) -> None:
    """Rows are joined where no kernel reaches from one into the next, but not in near misses."""
    channels, maps, group, size, *geometry = COLUMNS[case]
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, channels, *size), np.float32)
    w = rng.standard_normal((maps, channels // group, *geometry[0]), np.float32)
    x[1, channels // 2].reshape(-1)[-1] = np.nan
    x[1, 0].reshape(-1)[0] = np.inf
    expected = naive(x, w, group, *geometry[1:])
    bias, after = rng.standard_normal(maps, np.float32), packed_convolution.after_activation(expected.shape)
    addend = rng.standard_normal(expected.shape, np.float32)
    found = [
        packed_convolution.conv(
            x, w, group, *geometry[1:], variant=variant, bias=bias, addend=addend, activation=2, after=after, team=team
        )
        for team in (None, _kernels.Team(2), _kernels.Team(3))
    ]
    expected += bias.reshape(-1, *[1] * len(size)) + addend
    expected = packed_convolution.followed(ACTIVATIONS[2](expected), after)
    np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=3e-6 * (1 + w[0].size))
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)
    check(x, w, group, *geometry[1:], packed=False, variant=variant, bias=bias, with_addend=True, activation=8)


BAD = [np.nan, np.inf, -np.inf, 1e38]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("channels", [3, 16, 40, 130])
def test_planes_of_every_number_of_pixels(variant: str, channels: int) -> None:
    """Whole vectors of pixels, and a rest of every length; sums in one block and in several."""
    rng = np.random.default_rng(0)
    sizes = itertools.product([*range(1, 20), 31, 33, 34, 49, 81, 92], (1, 128, 300))
    for pixels, depth in [*sizes, (97, 33), (112, 420), (145, 128), (530, 40), (613, 390)]:
        x, w = rng.standard_normal((1, depth, 1, pixels), np.float32), rng.standard_normal((channels, depth, 1, 1), "f")
        geometry = (1, (1, 1), (1, 1), (0, 0), (0, 0))
        bias = rng.standard_normal(channels, np.float32) if pixels % 2 else None
        check(
            x, w, *geometry, packed=True, variant=variant, bias=bias, with_addend=pixels % 3 > 0, activation=depth % 2
        )
        x[..., -1] = np.nan
        found = conv(x, w, (1, pixels), *geometry[:4], variant=variant, packed=True, activation=1)
        assert np.isnan(found[..., -1]).all()
        assert np.isfinite(found[..., :-1]).all()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("maps", [5, 16, 33, 49, 64, 65, 97, 112, 160])
@pytest.mark.parametrize("width", [3, 49, 64, 97, 112, 150])
def test_every_number_of_panels(variant: str, maps: int, width: int) -> None:
    """Channels and pixels of a row that leave a tile of one panel, which ht_next_columns avoids."""
    rng = np.random.default_rng(maps)
    x, bias = rng.standard_normal((1, 3, 5, 2 * width), np.float32), rng.standard_normal(maps, np.float32)
    for kernel, stride, pad in [(3, 2, 1), (1, 1, 0), (3, 1, 1), (2, 2, 0)]:
        w = rng.standard_normal((maps, 3, kernel, kernel), np.float32)
        pads, strides = [pad, pad], [stride, stride]
        check(x, w, 1, strides, [1, 1], pads, pads, packed=True, variant=variant, bias=bias, with_addend=True)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("width", [1, 7, 16, 33])
@pytest.mark.parametrize("before", [0, 5, 40])
@pytest.mark.parametrize("after", [0, 5, 40])
def test_padding_wider_than_vectors(variant: str, width: int, before: int, after: int) -> None:
    """Rows copied with zeros on both sides; a NaN reaches only the outputs whose windows hold it."""
    rng = np.random.default_rng(width)
    x, w = rng.standard_normal((1, 20, 3, width), np.float32), rng.standard_normal((96, 20, 3, 3), np.float32)
    x[0, 7, 1, width // 2] = np.nan
    check(x, w, 1, [2, 2], [1, 1], [1, before], [1, after + 2], packed=True, variant=variant)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("pixels", [49, 50, 92, 169, 289])
@pytest.mark.parametrize("stride", [1, 2, 23])
def test_threads_give_the_same_bits(variant: str, stride: int, pixels: int) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 300, 1, pixels), np.float32), rng.standard_normal((400, 300, 1, 1), np.float32)
    geometry = (1, (1, stride), (1, 1), (0, 0), (0, 0))
    alone = packed_convolution.conv(x, w, *geometry, variant=variant)
    for threads in (2, 3, 7):
        team = _kernels.Team(threads)
        np.testing.assert_array_equal(alone, packed_convolution.conv(x, w, *geometry, variant=variant, team=team))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("width", [49, 97, 1000, 10000])
@pytest.mark.parametrize(("channels", "maps", "group"), [(16, 16, 1), (64, 64, 1), (3, 5, 4), (8, 40, 1)])
def test_threads_divide_a_single_row(variant: str, width: int, channels: int, maps: int, group: int) -> None:
    """As in models of audio: strips of the row, also where they begin or end in the padding."""
    rng = np.random.default_rng(width)
    for taps, stride, dilation, before, after in ((7, 1, 1, 3, 3), (3, 2, 1, 60, 0), (5, 1, 9, 0, 70), (3, 3, 1, 1, 1)):
        x = rng.standard_normal((1, group * channels, width), np.float32)
        w = rng.standard_normal((group * maps, channels, taps), np.float32)
        x[0, 0, width // 2] = np.nan
        geometry = (group, (stride,), (dilation,), (before,), (after,))
        expected = naive(x, w, *geometry)
        bias = rng.standard_normal(group * maps, np.float32)
        addend = rng.standard_normal(expected.shape, np.float32)
        after = packed_convolution.after_activation(expected.shape)
        alone, *shared = (
            packed_convolution.conv(
                x, w, *geometry, variant=variant, bias=bias, addend=addend, activation=8, after=after, team=team
            )
            for team in (None, _kernels.Team(2), _kernels.Team(3), _kernels.Team(7))
        )
        for found in shared:
            np.testing.assert_array_equal(alone, found)
        expected = packed_convolution.followed(ACTIVATIONS[8](expected + bias[:, None] + addend), after)
        np.testing.assert_allclose(alone, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("channels", [128, 129, 257, 385, 769, 1153])
def test_threads_that_share_sums_give_the_same_bits(variant: str, channels: int) -> None:
    """Few pixels and many input channels: threads compute terms of all outputs, then add them up."""
    rng = np.random.default_rng(channels)
    for size, kernel, maps, activation in ((7, 1, 96, 2), (14, 1, 33, 8), (5, 3, 17, 1), (1, 1, 40, 8)):
        x = rng.standard_normal((1, channels, size, size), np.float32)
        w = rng.standard_normal((maps, channels, kernel, kernel), np.float32)
        bias = rng.standard_normal(maps, np.float32) if size != 14 else None
        addend = rng.standard_normal((1, maps, size, size), np.float32) if size > 7 else None
        x[0, -1, -1, -1], x[0, 0, 0, 0] = np.nan, np.inf
        pads = (kernel // 2, kernel // 2)
        after = packed_convolution.after_activation((1, maps, size, size)) if size < 10 else []
        alone, *shared = (
            packed_convolution.conv(
                x, w, 1, (1, 1), (1, 1), pads, pads, variant=variant, bias=bias, addend=addend, activation=activation,
                after=after, team=_kernels.Team(threads) if threads > 1 else None,
            )
            for threads in (1, 2, 3, 7, 16)
        )  # fmt: skip
        for found in shared:
            np.testing.assert_array_equal(alone, found)
        expected = naive(x, w, 1, (1, 1), (1, 1), pads, pads)
        expected = expected + (0 if bias is None else bias[:, None, None]) + (0 if addend is None else addend)
        expected = packed_convolution.followed(ACTIVATIONS[activation](expected), after)
        np.testing.assert_allclose(alone, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("given", list(itertools.product((False, True), repeat=3)))
@pytest.mark.parametrize("activation", [0, 1, 8])
def test_each_of_what_follows_the_activation_may_be_absent(
    variant: str, given: tuple[bool, ...], activation: int
) -> None:
    """On one pixel and on several, with results of -0.0, which a sum with 0.0 would change."""
    for size in (1, 5):
        x, w = np.full((1, 3, size, size), -0.0, np.float32), np.ones((20, 3, 1, 1), np.float32)
        x[0, :, 0, 0] = -1
        operands = packed_convolution.after_activation((1, 20, size, size))
        after = [operand if is_given else None for operand, is_given in zip(operands, given, strict=True)]
        geometry = (1, (1, 1), (1, 1), (0, 0), (0, 0))
        plain = packed_convolution.conv(x, w, *geometry, variant=variant, activation=activation)
        found = packed_convolution.conv(x, w, *geometry, variant=variant, activation=activation, after=after)
        expected = packed_convolution.followed(plain, after)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(np.signbit(found[expected == 0]), np.signbit(expected[expected == 0]))


def test_operands_after_the_activation_of_other_sizes_and_types() -> None:
    x, w = np.ones((1, 3, 4, 4), np.float32), np.ones((5, 3, 1, 1), np.float32)
    for at, wrong in enumerate([np.ones(4, np.float32), np.ones(1, np.float32), np.ones((1, 5, 4, 3), np.float32)]):
        right = packed_convolution.after_activation((1, 5, 4, 4))
        for operand in (wrong, right[at].astype(np.float64)):
            after = [*right[:at], operand, *right[at + 1 :]]
            with pytest.raises(InferenceError, match="kernel conv"):
                packed_convolution.conv(x, w, 1, (1, 1), (1, 1), (0, 0), (0, 0), after=after)


SAMPLED = {  # x, w, strides, dilations, pads
    "rows shorter than vectors": ((1, 70, 9, 5), (100, 70, 3, 3), (1, 1), (1, 1), (1, 1)),
    "every second pixel": ((1, 70, 21, 67), (100, 70, 3, 3), (2, 2), (1, 1), (1, 1)),
    "every third pixel": ((1, 70, 21, 50), (100, 70, 3, 3), (3, 3), (1, 1), (1, 1)),
    "wider output than input": ((1, 70, 3, 6), (100, 70, 2, 3), (1, 1), (1, 1), (2, 9)),
    "dilated": ((1, 70, 9, 12), (100, 70, 3, 3), (1, 2), (3, 4), (3, 4)),
    "planes": ((2, 30, 4, 5, 6), (100, 30, 2, 3, 3), (1, 1, 2), (1, 2, 1), (1, 1, 1)),
    "a row": ((1, 90, 37), (100, 90, 7), (1,), (1,), (3,)),
    "32 positions": ((1, 9, 3, 50), (70, 9, 1, 32), (1, 1), (1, 1), (0, 16)),
    "33 positions": ((1, 9, 3, 50), (70, 9, 1, 33), (1, 1), (1, 1), (0, 16)),
    "32 rows of positions": ((1, 9, 50, 3), (70, 9, 32, 1), (1, 1), (1, 1), (16, 0)),
    "33 rows of positions": ((1, 9, 50, 3), (70, 9, 33, 1), (1, 1), (1, 1), (16, 0)),
    "all windows in padding": ((1, 40, 2, 2), (70, 40, 2, 2), (1, 1), (1, 1), (20, 20)),
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("maps", [80, 96, 100])
@pytest.mark.parametrize("case", SAMPLED)
def test_sampling(variant: str, case: str, maps: int) -> None:
    """The im2col matrix, with values around the planes that must not be read. Threads may divide the pixels of a group
    of channels."""
    x_shape, w_shape, strides, dilations, pads = SAMPLED[case]
    rng = np.random.default_rng(maps)
    size = int(np.prod(x_shape))
    memory = np.full(size + 128, np.nan, np.float32)
    x = memory[64 : 64 + size].reshape(x_shape)
    x[:] = rng.standard_normal(x_shape, np.float32)
    w = rng.standard_normal((maps, *w_shape[1:]), np.float32)
    bias = rng.standard_normal(maps, np.float32)
    check(x, w, 1, strides, dilations, pads, pads, packed=True, variant=variant, bias=bias)
    alone = packed_convolution.conv(x, w, 1, strides, dilations, pads, pads, variant=variant)
    for threads in (2, 3, 5):
        team = _kernels.Team(threads)
        found = packed_convolution.conv(x, w, 1, strides, dilations, pads, pads, variant=variant, team=team)
        np.testing.assert_array_equal(alone, found)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("far", [2**30, 2**31, 2**32, 2**33 + 1])
def test_pixels_far_outside_of_the_input(variant: str, far: int) -> None:
    """Whose numbers do not fit 32 bits. Only the second of three pixels lies in the input, also along height."""
    x, w = np.full((1, 40, 5, 5), 2, np.float32), np.full((70, 40, 1, 1), 3, np.float32)
    for strides, pads, out in (((1, far), (0, far), (5, 3)), ((far, 1), (far, 0), (3, 5))):
        found = conv(x, w, out, 1, strides, (1, 1), pads, variant=variant, packed=True)
        expected = np.zeros((1, 70, *out), np.float32)
        expected[:, :, 1 if out[0] == 3 else slice(None), 1 if out[1] == 3 else slice(None)] = 240
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("variant", VARIANTS)
def test_results_do_not_depend_on_the_rest_of_the_plane(variant: str) -> None:
    """The sums of a pixel are the same in a vector of pixels as in the rest of one, and in each algorithm for so few
    input channels."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 120, 1, 56), np.float32), rng.standard_normal((400, 120, 1, 1), np.float32)
    geometry = (1, (1, 1), (1, 1), (0, 0))
    whole = conv(x, w, (1, 56), *geometry, variant=variant, packed=True)
    for pixels in range(49, 56):
        part = np.ascontiguousarray(x[..., :pixels])
        found = conv(part, w, (1, pixels), *geometry, variant=variant, packed=True)
        np.testing.assert_array_equal(found, whole[..., :pixels])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("case", [case for case in CASES if "larger" not in case and "1089" not in case])
def test_bad_inputs_stay_in_their_windows(variant: str, case: str) -> None:
    """Each way of computing a convolution, with a bad value in a corner, in the middle, and in the last pixel."""
    x_shape, w_shape, group, stride, dilation, pad = CASES[case]
    rng = np.random.default_rng(0)
    clean, w = rng.standard_normal(x_shape, np.float32), rng.uniform(-0.1, 0.1, w_shape).astype(np.float32)
    w[w == 0] = 0.1
    geometry = (group, [stride] * 2, [dilation] * 2, [pad] * 2, [pad] * 2)
    for number, value in enumerate(BAD):
        x = clean.copy()
        x[(0,) * 4] = value
        x[(-1,) * 4] = value
        x[-1, number % x_shape[1], x_shape[2] // 2, x_shape[3] // 2] = value
        with np.errstate(invalid="ignore"):
            expected = naive(x, w, *geometry)
            terms = naive(np.abs(x), np.abs(w), *geometry)
        for packed in (False, True):
            if packed and w_shape[1] == 1 and w_shape[0] // group <= 4:
                continue
            found = conv(x, w, expected.shape[2:], *geometry[:4], variant=variant, packed=packed)
            np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
            infinite = np.isinf(expected)
            np.testing.assert_array_equal(found[infinite], expected[infinite])
            finite = np.isfinite(expected)
            assert (np.abs(found[finite] - expected[finite]) <= 1e-5 * terms[finite]).all()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("case", [case for case in CASES if "larger" not in case and "1089" not in case])
def test_bad_weights_reach_outputs_beside_padding(variant: str, case: str) -> None:
    """Their products with the padding are NaN, in every way of computing a convolution."""
    x_shape, w_shape, group, stride, dilation, pad = CASES[case]
    rng = np.random.default_rng(0)
    x, w = rng.uniform(0.5, 1, x_shape).astype(np.float32), rng.uniform(-0.1, 0.1, w_shape).astype(np.float32)
    w.reshape(-1)[[0, w.size // 2, -1]] = [np.inf, np.nan, -np.inf]
    geometry = (group, [stride] * 2, [dilation] * 2, [pad] * 2, [pad] * 2)
    with np.errstate(invalid="ignore"):
        expected = naive(x, w, *geometry)
    for packed in (False, True):
        if packed and w_shape[1] == 1 and w_shape[0] // group <= 4:
            continue
        found = conv(x, w, expected.shape[2:], *geometry[:4], variant=variant, packed=packed)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * w[0].size)


def test_rejected() -> None:
    x, w = np.ones((1, 4, 5, 5), np.float32), np.ones((4, 4, 3, 3), np.float32)
    good = [1, 0, 0, 1, 3, 3, 1, 1, 1, 0, 0, 0, 1, 1, 1]
    spec, scratch = [((1, 4, 3, 3), np.float32)], (1 << 20) + 4 * 16 * 36
    _kernels.call("conv", [x, w], spec, good, [0, 0], scratch)
    for at, value in [(0, 0), (0, 3), (4, 0), (7, 0), (10, -1), (13, 0)]:
        bad = good.copy()
        bad[at] = value
        with pytest.raises(InferenceError):
            _kernels.call("conv", [x, w], spec, bad, [0, 0], scratch)
    with pytest.raises(InferenceError):
        _kernels.call("conv", [x, w], spec, good, [0, 0], scratch - 1)
    with pytest.raises(InferenceError):
        _kernels.call("conv", [x.astype(np.float64), w.astype(np.float64)], spec, good, [0, 0], scratch)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("packed", [False, True])
def test_strides_over_few_pixels(variant: str, packed: bool) -> None:
    """A stride above the size, where all pixels are one and yet the plane may be taken whole."""
    rng = np.random.default_rng(0)
    for height, width, stride_y, stride_x in itertools.product((1, 2, 7), (1, 2, 5), (1, 3), (1, 3)):
        for channels, kernel in ((5, 1), (2, 3)):
            x = rng.standard_normal((1, channels, height + kernel - 1, width + kernel - 1), np.float32)
            w = rng.standard_normal((3, channels, kernel, kernel), np.float32)
            geometry = (1, (stride_y, stride_x), (1, 1), (0, 0), (0, 0))
            check(x, w, *geometry, packed=packed, variant=variant)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("maps", [1, 2, 3])
def test_few_output_channels_of_a_pointwise_kernel(variant: str, maps: int) -> None:
    """The bits that tiles give: of more output channels, and of any division."""
    for channels, size, group in (
        (0, (5,), 1),
        (1, (5,), 1),
        (7, (33,), 2),
        (8, (16, 31), 1),
        (500, (4, 9, 9), 1),
        (19, (600,), 3),
    ):
        x = normal(2, group * channels, *size)
        w = normal(group, 6, channels, *[1] * len(size), seed=1)
        bias, addend = (normal(*shape, seed=2) for shape in ((group, 6), (2, group, 6, *size)))
        zeros, ones = [0] * len(size), [1] * len(size)
        for activation in ACTIVATIONS:
            few, many = (
                packed_convolution.conv(
                    x,
                    w[:, :some].reshape(group * some, channels, *ones),
                    *(group, ones, ones, zeros, zeros),
                    variant=variant,
                    bias=bias[:, :some].ravel(),
                    addend=addend[:, :, :some].reshape(2, -1, *size),
                    activation=activation,
                    team=team,
                ).reshape(2, group, some, *size)
                for some, team in ((maps, None), (6, _kernels.Team(3)))
            )
            np.testing.assert_array_equal(few, many[:, :, :maps])
            exact = np.einsum(
                "bgcp,gmc->bgmp", x.reshape(2, group, channels, math.prod(size)), w.reshape(group, 6, channels)
            )
            exact += bias[:, :, None] + addend.reshape(2, group, 6, math.prod(size))
            expected = ACTIVATIONS[activation](exact[:, :, :maps])
            np.testing.assert_allclose(few.reshape(expected.shape), expected, 1e-5, 2e-6 * (1 + channels))


@pytest.mark.parametrize("variant", VARIANTS)
def test_few_output_channels_keep_infinities_apart(variant: str) -> None:
    x = normal(1, 9, 40)
    w = normal(2, 9, 1, seed=1)
    expected = packed_convolution.conv(x, w, 1, [1], [1], [0], [0], variant=variant)
    x[0, 3, 17], x[0, 4, 39] = np.nan, np.inf
    found = packed_convolution.conv(x, w, 1, [1], [1], [0], [0], variant=variant)
    assert np.isnan(found[0, :, 17]).all()
    assert np.isinf(found[0, :, 39]).all()
    np.testing.assert_array_equal(np.delete(found, [17, 39], 2), np.delete(expected, [17, 39], 2))
