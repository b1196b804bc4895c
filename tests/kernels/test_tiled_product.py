"""Products of float32 as sums of bfloat16 products (tiled_product.c), against NumPy in float64.

With other instruction sets than AMX, the same calls run the plain products. A machine without AMX tries one of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetero import _kernels
from hetero._sizes import ask

pytestmark = pytest.mark.spread(2)

TILES = [variant for variant in _kernels.variants("gemm", "matmul", "conv") if variant.endswith("amx")]
VARIANTS = _kernels.variants("gemm", "matmul", "conv")[-2 if TILES else -1 :]
RELU = 1
EPSILON = 2.0**-24
Array = np.ndarray[Any, Any]


def pack(b: Array) -> Array:
    k, n = b.shape
    return _kernels.call("pack_b", [b], [((-(-n // 16) * 16 * k,), np.float32)], [1, k, n, 0])[0]


def gemm(
    a: Array, b: Array, variant: str, *, trans_a: bool = False, form: str = "packed", bias: Array | None = None,
    strides: tuple[int, int] = (0, 0), addend: Array | None = None, activation: int = 0,
    floats: tuple[float, float, float, float] = (1, 1, 0, 0), threads: int = 1,
) -> Array:  # fmt: skip
    """a[m][k] times b[k][n]; ``form``: how B is given."""
    (m, k), n = a.shape, b.shape[1]
    left = np.ascontiguousarray(a.T) if trans_a else a
    right = {
        "plain": lambda: b,
        "transposed": lambda: np.ascontiguousarray(b.T),
        "packed": lambda: pack(b),
        "halves": lambda: _kernels.call("cast", [pack(b)], [((pack(b).size,), "float16")])[0],
    }[form]()
    packed = form in ("packed", "halves")
    ints = [m, n, k, trans_a, form == "transposed", packed, *strides, activation]
    team = _kernels.Team(threads) if threads > 1 else None
    return _kernels.call(
        "gemm", [left, right, bias, addend], [((m, n), np.float32)], ints, floats, None, variant, team
    )[0]


def bound(a: Array, b: Array, terms: int = 0) -> Array:
    """The error of a sum in any order, twice over: k + terms roundings of sums of magnitudes; and what tiles lose of
    denormal parts."""
    k = a.shape[1]
    magnitudes = [np.abs(operand).astype(float) for operand in (a, b)]
    largest = max(np.max(each, initial=1, where=each <= 2.0**50) for each in magnitudes)
    with np.errstate(over="ignore", invalid="ignore"):
        return 2 * (k + terms) * EPSILON * (magnitudes[0] @ magnitudes[1]) + k * 2.0**-122 * largest


def assert_right(found: Array, a: Array, b: Array) -> None:
    expected = a.astype(float) @ b.astype(float)
    difference = np.abs(found - expected)
    assert (difference <= bound(a, b)).all(), (difference - bound(a, b)).max()


LARGE = [
    (192, 192, 128), (193, 192, 128), (192, 193, 130), (224, 224, 97), (207, 208, 145), (158, 160, 300),
    (160, 158, 257), (128, 512, 129), (140, 530, 200), (530, 140, 200), (600, 544, 65), (200, 1100, 64),
    (330, 400, 70), (150, 1000, 128), (128, 2080, 98), (150, 150, 768), (160, 300, 1000),
]  # fmt: skip
"""Shapes that are multiplied with tiles where B is not converted already."""
SHAPES = [
    *LARGE, (32, 32, 32), (33, 32, 32), (32, 33, 32), (32, 32, 33), (47, 48, 49), (64, 96, 31), (31, 96, 64),
    (96, 31, 64), (63, 65, 257), (33, 1100, 64), (1, 64, 64), (64, 1, 64), (64, 64, 1), (0, 64, 64), (64, 0, 64),
    (64, 64, 0), (48, 2080, 34), (49, 50, 768),
]  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("form", ["plain", "transposed", "packed"])
@pytest.mark.parametrize("trans_a", [False, True])
def test_shapes_and_layouts(variant: str, form: str, trans_a: bool) -> None:
    rng = np.random.default_rng(1)
    for m, n, k in SHAPES:
        a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
        found = gemm(a, b, variant, trans_a=trans_a, form=form)
        assert_right(found, a, b)
        if variant in TILES and (m, n, k) in LARGE:
            assert (found != gemm(a, b, VARIANTS[0], trans_a=trans_a, form=form)).any(), "products are not of tiles"


@pytest.mark.parametrize("variant", VARIANTS)
def test_weights_of_16_bits_are_widened(variant: str) -> None:
    rng = np.random.default_rng(2)
    for m, n, k in [(33, 40, 34), (200, 400, 300), (160, 1000, 260), (400, 200, 100)]:
        a = rng.standard_normal((m, k), np.float32)
        b = rng.standard_normal((k, n)).astype(np.float16).astype(np.float32)
        assert_right(gemm(a, b, variant, form="halves"), a, b)


@pytest.mark.parametrize("variant", TILES)
def test_errors_are_no_larger_than_those_of_float32(variant: str) -> None:
    """Against the sum in order, with all products of one sign and with cancellation."""
    rng = np.random.default_rng(3)
    for k in (96, 256, 1000, 4096):
        for signed in (False, True):
            a, b = rng.random((224, k), np.float32) - signed * 0.5, rng.random((k, 224), np.float32) - signed * 0.5
            found, exact = gemm(a, b, variant), a.astype(float) @ b.astype(float)
            ordered = np.zeros((224, 224), np.float32)
            for i in range(k):
                ordered += a[:, i : i + 1] * b[i : i + 1]
            assert np.abs(found - exact).max() <= 1.1 * np.abs(ordered - exact).max()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("m", "n"), [(210, 230), (1100, 170), (170, 1100)])
@pytest.mark.parametrize("strides", [(0, 0), (0, 1), (1, 0), (-1, 1)])
@pytest.mark.parametrize("k", [100, 300])
@pytest.mark.parametrize("special", [1, 2.0**60])
def test_epilogues(variant: str, m: int, n: int, strides: tuple[int, int], k: int, special: float) -> None:
    """Over one or several blocks of rows and of columns, also where a row cannot be multiplied with tiles."""
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    a[m - 40, k // 2] = special
    if strides[0] < 0:
        strides = n, 1
    bias = rng.standard_normal(((m if strides[0] else 1), (n if strides[1] else 1)), np.float32)
    addend = rng.standard_normal((m, n), np.float32)
    for activation in (0, RELU):
        found = gemm(
            a, b, variant, bias=bias, strides=strides, addend=addend, activation=activation, floats=(0.5, -2, 0, 0)
        )
        expected = 0.5 * (a.astype(float) @ b) - 2 * bias + addend
        expected = np.maximum(expected, 0) if activation else expected
        assert (np.abs(found - expected) <= bound(a, b) + 1e-6).all()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("form", ["plain", "transposed", "packed", "halves"])
@pytest.mark.parametrize("k", [768, 1024, 2048])
def test_plain_rows_of_long_sums(variant: str, form: str, k: int) -> None:
    """Rows that tiles cannot multiply, 4096 bytes apart or not, where a block of k is as long as it gets."""
    rng = np.random.default_rng(13)
    a, b = rng.standard_normal((160, k), np.float32), rng.standard_normal((k, 150), np.float32)
    b = b.astype(np.float16).astype(np.float32)
    a[3] *= np.float32(2.0**60)
    a[40] *= np.float32(2.0**-60)
    assert_right(gemm(a, b, variant, form=form), a, b)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("form", ["plain", "transposed"])
@pytest.mark.parametrize("trans_a", [False, True])
def test_what_lies_around_an_operand_does_not_matter(variant: str, form: str, trans_a: bool) -> None:
    """NaN before and behind it: if it were read, its group would not be multiplied with tiles."""
    rng = np.random.default_rng(14)
    for m, n, k in [(193, 207, 130), (161, 300, 97), (330, 177, 65), (170, 1090, 145)]:
        a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
        left, right = (a.T if trans_a else a), (b.T if form == "transposed" else b)
        operands = [np.ascontiguousarray(left), np.ascontiguousarray(right)]
        amid = []
        for operand in operands:
            memory = np.full(operand.size + 4096, np.nan, np.float32)
            view = memory[2048 : 2048 + operand.size].reshape(operand.shape)
            view[...] = operand
            amid.append(view)
        ints, floats = [m, n, k, trans_a, form == "transposed", 0, 0, 0, 0], (1, 1, 0, 0)
        one, other = (
            _kernels.call("gemm", [*each, None, None], [((m, n), np.float32)], ints, floats, None, variant)[0]
            for each in (operands, amid)
        )
        np.testing.assert_array_equal(one, other)


SPECIAL = [np.nan, np.inf, -np.inf, 3e38, -3e38, 2.0**51, 2.0**50, 2.0**20, 1e-38, 1e-45, 2.0**-41, -0.0]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("form", ["plain", "transposed", "packed"])
@pytest.mark.parametrize("value", SPECIAL)
def test_special_values_stay_in_their_row_and_column(variant: str, form: str, value: float) -> None:
    """They force plain products in one group of rows or columns; all others are as without them."""
    rng = np.random.default_rng(5)
    for m, n, k in [(160, 200, 100), (170, 150, 300), (340, 400, 70)]:
        a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
        before = gemm(a, b, variant, form=form)
        for at_a, at_b in [((m - 1, k - 1), None), (None, (0, n - 1)), ((40, 3), (3, 40))]:
            x, y = a.copy(), b.copy()
            rows, columns = np.ones(m, bool), np.ones(n, bool)
            if at_a:
                x[at_a], rows[at_a[0]] = value, False
            if at_b:
                y[at_b], columns[at_b[1]] = value, False
            found = gemm(x, y, variant, form=form)
            with np.errstate(all="ignore"):
                expected = x.astype(float) @ y.astype(float)
                narrow = expected.astype(np.float32)
                limits = bound(x, y)
            finite = np.isfinite(narrow)
            np.testing.assert_array_equal(np.isnan(found), np.isnan(narrow))
            np.testing.assert_array_equal(found[~finite], narrow[~finite])
            assert (np.abs(found[finite] - expected[finite]) <= limits[finite]).all()
            np.testing.assert_allclose(found[np.ix_(rows, columns)], before[np.ix_(rows, columns)], rtol=0, atol=1e-4)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    "scale", [2.0**-140, 2.0**-126, 2.0**-103, 2.0**-60, 2.0**-41, 2.0**-39, 2.0**20, 2.0**49, 2.0**51, 2.0**60]
)
def test_scales(variant: str, scale: float) -> None:
    """Whole operands, single rows and single columns of one magnitude, times the opposite magnitude."""
    rng = np.random.default_rng(6)
    a, b = rng.standard_normal((192, 128), np.float32), rng.standard_normal((128, 224), np.float32)
    inverse = min(1 / scale, 2.0**60)
    for rows, columns in [(slice(None), slice(None)), (slice(3, 4), slice(40, 41)), (slice(32, 64), slice(32, 64))]:
        x, y = a.copy(), b.copy()
        x[rows] *= np.float32(scale)
        y[:, columns] *= np.float32(inverse)
        assert_right(gemm(x, y, variant), x, y)
        assert_right(gemm(np.ascontiguousarray(y.T), np.ascontiguousarray(x.T), variant), y.T, x.T)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_term_that_is_tiny_beside_others_of_its_row_counts(variant: str) -> None:
    """Row 0 holds 1 and a tiny number; column 0 holds 0 and a huge one, so only the product of these two remains."""
    for exponent in (20, 30, 49, 60, 100, 120):
        a, b = np.zeros((192, 128), np.float32), np.zeros((128, 192), np.float32)
        a[0, :2], b[:2, 0] = (1, 1.5 * 2.0**-exponent), (0, 1.25 * 2.0**exponent)
        assert gemm(a, b, variant)[0, 0] == np.float32(1.875)


@pytest.mark.parametrize("variant", VARIANTS)
def test_zeros_and_signs(variant: str) -> None:
    a, b = np.zeros((192, 128), np.float32), -np.zeros((128, 192), np.float32)
    assert not gemm(a, b, variant).any()
    a[:, 0] = b[0] = -1
    np.testing.assert_array_equal(gemm(a, b, variant), np.ones((192, 192), np.float32))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    "shape",
    [
        (170, 300, 400),
        (300, 170, 400),
        (330, 360, 70),
        (1000, 133, 128),
        (133, 1000, 128),
        (45, 45, 40),
    ],
)
def test_threads_do_not_change_a_bit(variant: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    rng = np.random.default_rng(7)
    a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    a[m // 2, 1], b[2, n // 2] = np.inf, 2.0**60
    for form in ("packed", "plain", "transposed"):
        one = gemm(a, b, variant, form=form)
        for threads in (2, 3):
            np.testing.assert_array_equal(gemm(a, b, variant, form=form, threads=threads), one)


@given(
    m=st.integers(1, 260), n=st.integers(1, 260), k=st.integers(1, 300), seed=st.integers(0, 2**31),
    form=st.sampled_from(["plain", "transposed", "packed"]), trans_a=st.booleans(),
)  # fmt: skip
def test_wide_ranges_of_magnitudes(m: int, n: int, k: int, seed: int, form: str, trans_a: bool) -> None:
    rng = np.random.default_rng(seed)
    low, high = sorted(rng.integers(-130, 60, 2))
    a, b = (
        (rng.standard_normal(shape) * 2.0 ** rng.uniform(low, high + 1, shape)).astype(np.float32)
        for shape in ((m, k), (k, n))
    )
    for variant in VARIANTS[-2:]:
        assert_right(gemm(a, b, variant, form=form, trans_a=trans_a), a, b)


@pytest.mark.parametrize("variant", VARIANTS)
def test_batches(variant: str) -> None:
    """matmul over a batch, where one matrix of B serves all of A's, and where it is the other way round."""
    rng = np.random.default_rng(8)
    m, n, k = 200, 210, 100
    a, b = rng.standard_normal((3, m, k), np.float32), rng.standard_normal((3, k, n), np.float32)
    for strides in ((m * k, k * n), (m * k, 0), (0, k * n)):
        ints = [m, n, k, 0, 0, 0, 0, 0, 0, 1, 3, *strides]
        inputs = [a if strides[0] else a[0], b if strides[1] else b[0]]
        found = _kernels.call("matmul", inputs, [((3, m, n), np.float32)], ints, (1, 0, 0, 0), variant=variant)[0]
        for i in range(3):
            assert_right(found[i], a[i if strides[0] else 0], b[i if strides[1] else 0])


@pytest.mark.parametrize("variant", VARIANTS)
def test_without_memory_for_them_products_are_plain(variant: str) -> None:
    rng = np.random.default_rng(9)
    a, b = rng.standard_normal((192, 192), np.float32), rng.standard_normal((192, 192), np.float32)
    ints, floats = [192, 192, 192, 0, 0, 1, 0, 0, 0], (1, 0, 0, 0)
    found = _kernels.call("gemm", [a, pack(b)], [((192, 192), np.float32)], ints, floats, 0, variant)[0]
    assert_right(found, a, b)
    plain = _kernels.call("gemm", [a, pack(b)], [((192, 192), np.float32)], ints, floats, 0, VARIANTS[0])[0]
    np.testing.assert_allclose(found, plain, atol=1e-4)


def conv(
    x: Array, w: Array, variant: str, stride: int, pad: int, *, bias: Array | None = None, addend: Array | None = None,
    activation: int = 0, threads: int = 1, packed: bool = True,
) -> Array:  # fmt: skip
    n, c, h, width = x.shape
    m, _, size, _ = w.shape
    spec = [(n, m, (h + 2 * pad - size) // stride + 1, (width + 2 * pad - size) // stride + 1), np.float32]
    panels = _kernels.call("pack_b", [w], [((-(-m // 16) * 16 * c * size**2,), np.float32)], [1, c * size**2, m, 1])[0]
    operand = panels if packed else w
    ints = [1, packed, activation, 1, size, size, 1, stride, stride, 0, pad, pad, 1, 1, 1]
    team = _kernels.Team(threads) if threads > 1 else None
    return _kernels.call("conv", [x, operand, bias, addend], [tuple(spec)], ints, (0, 0), None, variant, team)[0]


def exact_conv(x: Array, w: Array, stride: int, pad: int) -> tuple[Array, Array]:
    """The result in float64, and the same of all magnitudes."""
    size = w.shape[2]
    padded = np.pad(x.astype(float), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), axis=(2, 3))[:, :, ::stride, ::stride]
    with np.errstate(invalid="ignore", over="ignore"):
        return tuple(
            np.einsum("nchwij,mcij->nmhw", f(windows), f(w.astype(float)), optimize=True) for f in (np.array, np.abs)
        )


CONVOLUTIONS = [  # channels, height and width, output channels, kernel, stride, pad
    (64, 20, 128, 1, 1, 0), (70, 23, 130, 1, 1, 0), (300, 18, 96, 1, 1, 0), (66, 50, 100, 1, 1, 0),
    (64, 20, 530, 1, 1, 0), (96, 40, 190, 1, 2, 0), (32, 40, 190, 3, 2, 1), (64, 20, 190, 5, 1, 2),
    (130, 35, 300, 3, 2, 0), (80, 12, 4200, 1, 1, 0), (1024, 15, 128, 1, 1, 0), (40, 12, 224, 3, 1, 1),
]  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("case", CONVOLUTIONS)
@pytest.mark.parametrize("packed", [True, False])
def test_convolutions(variant: str, case: tuple[int, ...], packed: bool) -> None:
    """With special values in a pixel and a weight, which force plain products around them; on one and two threads."""
    channels, size, maps, kernel, stride, pad = case
    extent = (size + 2 * pad - kernel) // stride + 1
    assert ask("conv_tiled", maps, size**2, extent**2, channels, kernel**2, 1024)
    rng = np.random.default_rng(10)
    x = rng.standard_normal((2, channels, size, size), np.float32)
    w = rng.standard_normal((maps, channels, kernel, kernel), np.float32)
    bias = rng.standard_normal(maps, np.float32)
    for value, place in [(0, ""), (np.nan, "x"), (np.inf, "w"), (2.0**60, "x"), (2.0**60, "w"), (-np.inf, "xw")]:
        if "x" in place:
            x[1, channels - 1, size // 2, size - 1] = value
        if "w" in place:
            w[maps - 1, 0, 0, 0] = w[0, channels - 1, kernel - 1, 0] = value
        exact, magnitudes = exact_conv(x, w, stride, pad)
        addend = rng.standard_normal(exact.shape, np.float32)
        found = conv(x, w, variant, stride, pad, bias=bias, addend=addend, activation=RELU, packed=packed)
        with np.errstate(invalid="ignore", over="ignore"):
            exact = exact + bias[:, None, None] + addend
            expected = np.where(np.isnan(exact), np.nan, np.maximum(exact, 0))
        ordinary = np.isfinite(expected) & np.isfinite(magnitudes)
        limits = 2 * (channels * kernel**2 + 3) * EPSILON * (magnitudes + np.abs(addend) + np.abs(bias)[:, None, None])
        assert (np.abs(found[ordinary] - expected[ordinary]) <= limits[ordinary]).all()
        np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
        np.testing.assert_array_equal(found == np.inf, expected == np.inf)
        two = conv(x, w, variant, stride, pad, bias=bias, addend=addend, activation=RELU, threads=2, packed=packed)
        np.testing.assert_array_equal(two, found)


# ---- constant operands that are converted once


def parts_of(w: Array, batch: int, k: int, n: int, trans: bool, are_rows: bool, scale: Array | None = None) -> Any:
    """The converted operand, and whether all its numbers fit."""
    specs = [((batch * ask("parts_floats", k, n),), np.float32), ((1,), np.bool_)]
    made, fits = _kernels.call("pack_parts", [w, scale], specs, [batch, k, n, trans, are_rows], variant=VARIANTS[-1])
    return made, bool(fits[0])


@pytest.mark.skipif(not TILES, reason="needs AMX")
@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
def test_products_with_a_converted_operand(trans: bool, scaled: bool) -> None:
    """Of any size, also rows of A that tiles cannot multiply, for which the operand is converted back exactly."""
    rng = np.random.default_rng(11)
    for m, n, k in [*SHAPES, (1, 1, 1), (2, 5, 7), (40, 40, 1024), (40, 40, 1100), (600, 600, 300)]:
        if k == 0:
            continue
        a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
        b.flat[::7] = 0
        scale = rng.random(n, np.float32) + 0.5 if scaled else None
        packed, fits = parts_of(np.ascontiguousarray(b.T) if trans else b, 1, k, n, trans, False, scale)
        assert fits
        right = b if scale is None else b * scale
        for factor in (1, 1e30, 1e-30):
            left = a.copy()
            left[m // 2 :] *= np.float32(factor)
            for threads in (1, 2):
                team = _kernels.Team(threads) if threads > 1 else None
                ints = [m, n, k, 0, 0, 2, 0, 0, 0]
                found = _kernels.call(
                    "gemm", [left, packed, None, None], [((m, n), np.float32)], ints, (1, 1, 0, 0), None, TILES[0], team
                )[0]
                assert_right(found, left, right)


@pytest.mark.skipif(not TILES, reason="needs AMX")
@pytest.mark.parametrize(
    "case", [*CONVOLUTIONS, (64, 4, 160, 1, 1, 0), (20, 3, 130, 3, 1, 1)]
)  # few pixels for threads
@pytest.mark.parametrize("group", [1, 2])
def test_convolutions_with_converted_weights(case: tuple[int, ...], group: int) -> None:
    channels, size, maps, kernel, stride, pad = case
    channels, maps = channels // group, maps // group
    depth = channels * kernel**2
    rng = np.random.default_rng(12)
    x = rng.standard_normal((2, group * channels, size, size), np.float32)
    w = rng.standard_normal((group * maps, channels, kernel, kernel), np.float32)
    packed, fits = parts_of(w, group, depth, maps, True, True)
    assert fits
    for value in (0, np.nan, 2.0**60):
        x[1, channels - 1, size // 2, size - 1] = value
        pairs = [
            exact_conv(x[:, g * channels : (g + 1) * channels], w[g * maps : (g + 1) * maps], stride, pad)
            for g in range(group)
        ]
        exact, magnitudes = (np.concatenate(parts, axis=1) for parts in zip(*pairs, strict=True))
        ints = [group, 3, 0, 1, kernel, kernel, 1, stride, stride, 0, pad, pad, 1, 1, 1]
        results = [
            _kernels.call(
                "conv", [x, packed, None, None], [(exact.shape, np.float32)], ints, (0, 0), None, TILES[0], team
            )[0]
            for team in (None, _kernels.Team(2), _kernels.Team(5))
        ]
        np.testing.assert_array_equal(results[0], results[1])
        np.testing.assert_array_equal(results[0], results[2])
        np.testing.assert_array_equal(np.isnan(results[0]), np.isnan(exact))
        ordinary = np.isfinite(exact)
        assert (np.abs(results[0] - exact)[ordinary] <= (2 * (depth + 3) * EPSILON * magnitudes)[ordinary]).all()


@pytest.mark.skipif(not TILES, reason="needs AMX")
@pytest.mark.parametrize(
    ("value", "wanted"),
    [(2.0**50, True), (2.0**50 * (1 + 2.0**-23), False), (2.0**20, True),
     (2.0**-64, True), (2.0**-65, False), (1e-45, False), (-0.0, True),
     (np.nan, False), (np.inf, False), (-(2.0**51), False)],
)  # fmt: skip
def test_which_numbers_can_be_converted_once(value: float, wanted: bool) -> None:
    for trans in (False, True):
        for place in (0, -1):
            w = np.ones((40, 300) if trans else (300, 40), np.float32)
            w.flat[place] = value
            assert parts_of(w, 1, 300, 40, trans, False)[1] == wanted
    assert (
        parts_of(np.full((40, 64), 2.0**-60, np.float32), 1, 64, 40, True, True, np.full(40, 0.01, np.float32))[1]
        is False
    )
