"""Integer products: exactly what NumPy computes, in every instruction set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetero import _kernels
from hetero.errors import InferenceError
from kernel_arrays import exact_offsets, random_bytes, requantized

pytestmark = pytest.mark.spread(2)

VARIANTS = _kernels.variants("matmul_integer", "pack_quads")
BYTES = [np.int8, np.uint8]
Array = np.ndarray[Any, Any]


def product(
    a: Array,
    b: Array,
    a_zero: Array,
    b_zero: Array,
    variant: str,
    scale: Array | None = None,
    zero: Array | None = None,
    bias: Array | None = None,
    rows: int = 12,
    team: _kernels.Team | None = None,
) -> Array:
    """Matrices only. ``rows``: of the scratch memory, so those that the kernel prepares at a time."""
    (m, k), n = a.shape, b.shape[1]
    quads = -(-k // 4)
    spec = ((-(-n // 16) * 64 * (quads + 2),), np.uint8)
    packed = _kernels.call("pack_quads", [b, b_zero], [spec], [1, k, n], variant=variant)[0]
    operands = [a, a_zero, packed] if zero is None else [a, a_zero, packed, scale, zero]
    operands += [] if bias is None else [bias]
    made = [((m, n), np.int32 if zero is None else zero.dtype)]
    scratch = rows * (8 * quads + 136)
    return _kernels.call("matmul_integer", operands, made, [m, n, k, 0], [], scratch, variant, team)[0]


# The most and the least that two bytes may add up to, so that 255 times each fits into int16, and one more.
PAIRS = [(64, 64), (127, 1), (127, 2), (65, 64), (-128, 0), (-64, -64), (-128, -1), (-128, 127), (-65, -64)]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("pair", PAIRS)
def test_pairs_around_the_range_of_16_bits(pair: tuple[int, int], variant: str) -> None:
    """In each place of a panel, with rows of 255, which give the largest sums."""
    for k, n, column in ((2, 1, 0), (8, 16, 15), (130, 35, 33)):
        b = np.zeros((k, n), np.int8)
        b[k - 2 :, column] = pair
        a = np.full((13, k), 255, np.uint8)
        for zero in (0, 100):
            a_zero = np.array([zero], np.uint8)
            wanted = (a.astype(np.int32) - zero) @ b.astype(np.int32)
            assert np.array_equal(product(a, b, a_zero, np.zeros(1, np.int8), variant), wanted)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("beyond", [0, 1])
def test_differences_from_zero_points_that_are_bytes(beyond: int, dtype: Any, variant: str) -> None:
    """Zero points are taken off when B is packed if all differences fit into int8, for each panel."""
    rng, limits = np.random.default_rng(0), np.iinfo(dtype)
    middle = limits.min + 128
    b_zero = (middle + rng.integers(-60, 60, 20)).astype(dtype)
    b = np.clip(b_zero.astype(int) + rng.integers(-128, 128, (9, 20)), limits.min, limits.max).astype(dtype)
    b[3, 18], b_zero[18] = limits.max, limits.max - 127 - beyond
    b[2, 17], b_zero[17] = limits.min, limits.min + 128 - beyond
    a = rng.integers(0, 256, (7, 9)).astype(np.uint8)
    wanted = (a.astype(np.int32) - 9) @ (b.astype(np.int32) - b_zero.astype(np.int32))
    assert np.array_equal(product(a, b, np.array([9], np.uint8), b_zero, variant), wanted)


EDGES = [1, 3, 4, 15, 16, 17, 31, 32, 33, 63, 64, 65]  # around the tiles of all instruction sets


@settings(max_examples=len(VARIANTS) * settings().max_examples // 2)
@given(
    seed=st.integers(0, 2**32),
    m=st.sampled_from([*EDGES, 47, 48, 49, 132, 133, 150]),
    k=st.sampled_from([0, *EDGES, 127, 128, 129, 256]),
    n=st.sampled_from(EDGES),
    dtypes=st.tuples(st.sampled_from(BYTES), st.sampled_from(BYTES)),
    a_zeros=st.booleans(),
    b_zeros=st.sampled_from(["none", "one", "each", "last"]),
    to_bytes=st.sampled_from([None, np.int8, np.uint8]),
    bias=st.booleans(),
    per_column=st.booleans(),
    same=st.sampled_from([None, None, 0, 255]),
    rows=st.sampled_from([12, 16, 40, 200]),
    variant=st.sampled_from(VARIANTS),
)
def test_products_around_the_sizes_of_tiles(
    seed: int,
    m: int,
    k: int,
    n: int,
    dtypes: tuple[Any, Any],
    a_zeros: bool,
    b_zeros: str,
    to_bytes: Any,
    bias: bool,
    per_column: bool,
    same: int | None,
    rows: int,
    variant: str,
) -> None:
    """``same``: the byte of which all elements consist, from the least one of the type on."""
    rng = np.random.default_rng(seed)
    if same is None:
        a, b = random_bytes(rng, dtypes[0], m, k), random_bytes(rng, dtypes[1], k, n)
    else:
        shapes = ((m, k), (k, n))
        a, b = (np.full(shape, same + np.iinfo(t).min, t) for shape, t in zip(shapes, dtypes, strict=True))
    a_zero = random_bytes(rng, dtypes[0], m if a_zeros else 1, 1)
    b_zero = np.zeros(1, dtypes[1]) if b_zeros == "none" else random_bytes(rng, dtypes[1], 1 if b_zeros == "one" else n)
    if b_zeros == "last":
        b_zero[:-1] = 0 if dtypes[1] is np.int8 else 128
    wanted = (a.astype(np.int32) - a_zero) @ (b.astype(np.int32) - b_zero)
    offsets = rng.integers(-1000, 1000, n).astype(np.int32) if bias and to_bytes else None
    if to_bytes is None:
        assert np.array_equal(product(a, b, a_zero, b_zero, variant, rows=rows), wanted)
        return
    scale = rng.uniform(0, 0.01, n if per_column else 1).astype(np.float32)
    zero = random_bytes(rng, to_bytes)
    found = product(a, b, a_zero, b_zero, variant, scale, zero, offsets, rows)
    assert np.array_equal(found, requantized(wanted if offsets is None else wanted + offsets, scale, zero))
    scale, floats = exact_offsets(rng, n, per_column)
    found = product(a, b, a_zero, b_zero, variant, scale, zero, floats, rows)
    assert np.array_equal(found, requantized(wanted, scale, zero, floats))


@pytest.mark.parametrize("variant", VARIANTS)
def test_sums_wrap(variant: str) -> None:
    """In every part of a sum: more products of 255 and -128 than int32 can hold."""
    k = 70_000
    a, b = np.full((20, k), 255, np.uint8), np.full((k, 17), -128, np.int8)
    for b_zero in (0, 100):
        found = product(a, b, np.array(3, np.uint8), np.array(b_zero, np.int8), variant)
        wanted = 252 * (-128 - b_zero) * k
        assert (found == (wanted + 2**31) % 2**32 - 2**31).all()


@pytest.mark.parametrize("variant", VARIANTS)
def test_products_do_not_depend_on_the_division_among_threads(variant: str) -> None:
    rng = np.random.default_rng(0)
    for m, k, n in ((150, 130, 100), (37, 64, 300), (5, 500, 333)):
        a, b = random_bytes(rng, np.uint8, m, k), random_bytes(rng, np.int8, k, n)
        a_zero, b_zero = random_bytes(rng, np.uint8, m, 1), random_bytes(rng, np.int8, n)
        wanted = (a.astype(np.int32) - a_zero) @ (b.astype(np.int32) - b_zero)
        for threads in (1, 2, 3, 5):
            team = _kernels.Team(threads)
            assert np.array_equal(product(a, b, a_zero, b_zero, variant, rows=132, team=team), wanted)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("k", [7, 64, 100])
def test_batches_of_products(k: int, variant: str) -> None:
    """One matrix of B for each of A, none after the last; zero points per row of all matrices."""
    rng = np.random.default_rng(k)
    batch, m, n = 3, 21, 18
    a, b = random_bytes(rng, np.uint8, batch, m, k), random_bytes(rng, np.int8, batch, k, n)
    a_zero, b_zero = random_bytes(rng, np.uint8, batch, m, 1), random_bytes(rng, np.int8, batch, 1, n)
    size = -(-n // 16) * 64 * (-(-k // 4) + 2)
    packed = _kernels.call("pack_quads", [b, b_zero], [((batch * size,), np.uint8)], [batch, k, n], variant=variant)[0]
    ints = [m, n, k, 1, batch, m * k, size]
    scratch = 40 * (8 * -(-k // 4) + 136)
    found = _kernels.call(
        "matmul_integer", [a, a_zero, packed], [((batch, m, n), np.int32)], ints, [], scratch, variant
    )[0]
    assert np.array_equal(found, (a.astype(np.int32) - a_zero) @ (b.astype(np.int32) - b_zero))


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
            _kernels.call(name, inputs, [spec], ints, scratch_bytes=0)
