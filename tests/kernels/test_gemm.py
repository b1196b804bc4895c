"""pack_b, gemm and matmul against NumPy in float64, over odd shapes, layouts, epilogues and instruction sets."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetero import _kernels
from hetero.errors import InferenceError

pytestmark = pytest.mark.spread(2)

VARIANTS = _kernels.variants("gemm", "matmul", "pack_b")
CLIP, RELU, SIGMOID = 2, 1, 8
Array = np.ndarray[Any, Any]


@pytest.fixture
def l1_ways() -> Iterator[Callable[[int], None]]:
    yield _kernels.assume_l1_ways
    _kernels.assume_l1_ways(0)


def scratch_bytes(n: int, k: int) -> int:
    return 4 * 16 * min(k * -(-n // 16), 6144)


def packed_size(k: int, n: int) -> int:
    return -(-n // 16) * 16 * k


def pack(b: Array, variant: str, trans: bool = False) -> Array:
    """Pack the last two dims; leading dims are the batch."""
    batch = int(np.prod(b.shape[:-2]))
    k, n = b.shape[-2:] if not trans else b.shape[:-3:-1]
    spec = [((batch, packed_size(k, n)), np.float32)]
    return _kernels.call("pack_b", [b], spec, [batch, k, n, trans], variant=variant)[0]


def gemm(
    a: Array,
    b: Array,
    m: int,
    n: int,
    k: int,
    *,
    variant: str,
    trans_a: bool = False,
    trans_b: bool = False,
    packed: bool = False,
    bias: Array | None = None,
    bias_strides: tuple[int, int] = (0, 0),
    addend: Array | None = None,
    activation: int = 0,
    floats: tuple[float, float, float, float] = (1, 1, 0, 0),
) -> Array:
    ints = [m, n, k, trans_a, trans_b, packed, *bias_strides, activation]
    scratch = 0 if packed or a.dtype != np.float32 else scratch_bytes(n, k)
    inputs = [a, pack(b, variant, trans_b) if packed else b, bias, addend]
    return _kernels.call("gemm", inputs, [((m, n), a.dtype)], ints, floats, scratch, variant)[0]


def assert_close(found: Array, expected: Array, k: int) -> None:
    """The rounding errors of a sum of k products of standard normals."""
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6 * (1 + k))


@pytest.mark.parametrize("variant", VARIANTS)
def test_pack_layout(variant: str) -> None:
    b = np.arange(3 * 18, dtype=np.float32).reshape(3, 18) + 1
    expected = np.zeros((2, 3, 16), np.float32)
    expected[0] = b[:, :16]
    expected[1, :, :2] = b[:, 16:]
    np.testing.assert_array_equal(pack(b, variant).ravel(), expected.ravel())
    np.testing.assert_array_equal(pack(np.ascontiguousarray(b.T), variant, trans=True).ravel(), expected.ravel())


SHAPES = [
    (1, 1, 1), (1, 17, 5), (2, 40, 300), (3, 33, 257), (5, 7, 0), (4, 16, 9), (0, 5, 3), (5, 0, 3), (7, 31, 33),
    (12, 32, 64), (13, 50, 600), (25, 530, 20), (200, 70, 270), (49, 100, 40), (8, 1030, 3), (1, 3, 1000),
    (26, 150, 1024), (10, 70, 3071),
]  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_layouts(variant: str, m: int, n: int, k: int) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    for trans_a, trans_b, packed in itertools.product([False, True], repeat=3):
        found = gemm(
            np.ascontiguousarray(a.T) if trans_a else a,
            np.ascontiguousarray(b.T) if trans_b else b,
            m, n, k, trans_a=trans_a, trans_b=trans_b, packed=packed, variant=variant,
        )  # fmt: skip
        assert_close(found, expected, k)


@pytest.mark.parametrize("variant", VARIANTS)
@given(st.data())
def test_epilogue(variant: str, data: st.DataObject) -> None:
    m, n, k = (data.draw(st.integers(1, high)) for high in (30, 70, 40))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    alpha, beta = data.draw(st.sampled_from([(1, 1), (0.5, 2), (-1, 0)]))
    expected = alpha * (a.astype(np.float64) @ b)
    strides = data.draw(st.sampled_from([None, (0, 0), (0, 1), (1, 0), (n, 1)]))
    bias = None
    if strides:
        shape = {(0, 0): (1,), (0, 1): (n,), (1, 0): (m, 1), (n, 1): (m, n)}[strides]
        bias = rng.standard_normal(shape, np.float32)
        expected += beta * bias
    addend = rng.standard_normal((m, n), np.float32) if data.draw(st.booleans()) else None
    if addend is not None:
        expected += addend
    activation = data.draw(st.sampled_from([0, RELU, CLIP, SIGMOID]))
    if activation == RELU:
        expected = np.maximum(expected, 0)
    elif activation == CLIP:
        expected = np.clip(expected, -0.5, 1.5)
    elif activation == SIGMOID:
        expected = 1 / (1 + np.exp(-expected))
    found = gemm(
        a, b, m, n, k, packed=data.draw(st.booleans()), bias=bias, bias_strides=strides or (0, 0), addend=addend,
        activation=activation, floats=(alpha, beta, -0.5, 1.5), variant=variant,
    )  # fmt: skip
    assert_close(found, expected, k)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("low", "high"), [(-0.5, np.inf), (-np.inf, 0.5), (-0.5, 0.5)])
def test_each_limit_applies_alone(variant: str, packed: bool, low: float, high: float) -> None:
    """Some kernels skip the epilogue of products that have none."""
    rng = np.random.default_rng(5)
    for m, n, k in itertools.product((1, 2, 3, 9), (1, 16, 37), (1, 2, 33)):
        a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
        found = gemm(a, b, m, n, k, packed=packed, activation=CLIP, floats=(1, 1, low, high), variant=variant)
        assert_close(found, np.clip(a.astype(np.float64) @ b, low, high), k)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("a_batch", "b_batch"),
    [((), ()), ((3,), (3,)), ((2, 3), (3,)), ((2, 1), (1, 4)), ((5,), ()), ((), (5,)), ((0,), ())],
)
def test_matmul_batches(variant: str, packed: bool, a_batch: tuple[int, ...], b_batch: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    m, n, k = 5, 19, 7
    a, b = rng.standard_normal((*a_batch, m, k), np.float32), rng.standard_normal((*b_batch, k, n), np.float32)
    expected = a.astype(np.float64) @ b
    batch = expected.shape[:-2]

    def strides(shape: tuple[int, ...], matrix: int) -> list[int]:
        full = (1,) * (len(batch) - len(shape)) + shape
        dense = [int(np.prod(full[d + 1 :])) * matrix for d in range(len(full))]
        return [0 if size == 1 else stride for size, stride in zip(full, dense, strict=True)]

    b_matrix = packed_size(k, n) if packed else k * n
    ints = [m, n, k, 0, 0, packed, 0, 0, 0, len(batch), *batch, *strides(a_batch, m * k), *strides(b_batch, b_matrix)]
    spec = [(expected.shape, np.float32)]
    operands = [a, pack(b, variant) if packed else b]
    found = _kernels.call("matmul", operands, spec, ints, [1, 1, 0, 0], 0 if packed else scratch_bytes(n, k), variant)[
        0
    ]
    assert_close(found, expected, k)


@pytest.mark.spread(1)  # each is a kernel
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", ["float64", "int32", "uint32", "int64", "uint64"])
def test_other_types(variant: str, dtype: str) -> None:
    rng = np.random.default_rng(2)
    high = np.iinfo(dtype).max if np.dtype(dtype).kind in "iu" else 100
    a, b = (rng.integers(0, high, shape, np.uint64).astype(dtype) for shape in ((4, 6), (6, 9)))
    bias = rng.integers(0, 5, 9).astype(dtype)
    with np.errstate(over="ignore"):
        expected = np.dtype(dtype).type(2) * (a @ b) + np.dtype(dtype).type(3) * bias
    found = gemm(a, b, 4, 9, 6, bias=bias, bias_strides=(0, 1), floats=(2, 3, 0, 0), variant=variant)
    np.testing.assert_array_equal(found, expected)
    found = gemm(a, np.ascontiguousarray(b.T), 4, 9, 6, trans_b=True, variant=variant)
    np.testing.assert_array_equal(found, a @ b)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", ["float64", "int32", "int64"])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 65, 130), (3, 64, 64), (4, 1, 9), (5, 130, 71), (9, 0, 5), (2, 7, 0)])
def test_blocks_of_other_types(variant: str, dtype: str, m: int, n: int, k: int) -> None:
    """Integers wrap; a number that is not finite reaches only the sums that read it."""
    rng = np.random.default_rng(m)
    largest = np.iinfo(dtype).max if dtype[0] == "i" else 9
    a, b = (rng.integers(-largest, largest, shape).astype(dtype) for shape in ((m, k), (k, n)))
    for trans_a, trans_b in itertools.product([False, True], repeat=2):
        with np.errstate(over="ignore"):
            expected = a @ b
        inputs = [np.ascontiguousarray(x.T) if trans else x for x, trans in ((a, trans_a), (b, trans_b))]
        found = gemm(*inputs, m, n, k, variant=variant, trans_a=trans_a, trans_b=trans_b)
        np.testing.assert_array_equal(found, expected)
        if dtype == "float64" and k > 1 and n > 1:
            inputs[1][(-1, 0) if trans_b else (0, -1)] = np.nan
            found = gemm(*inputs, m, n, k, variant=variant, trans_a=trans_a, trans_b=trans_b)
            np.testing.assert_array_equal(found[:, :-1], expected[:, :-1])
            assert np.isnan(found[:, -1]).all()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("m", [1, 20])
def test_nan_and_infinity_pass_through_relu(variant: str, m: int) -> None:
    a, b = np.ones((m, 3), np.float32), np.ones((3, 20), np.float32)
    b[1, 4], b[2, 5], b[0, 18] = np.nan, np.inf, -np.inf
    found = gemm(a, b, m, 20, 3, packed=True, activation=RELU, variant=variant)
    expected = np.full((m, 20), 3.0)
    expected[:, 4], expected[:, 5], expected[:, 18] = np.nan, np.inf, 0
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("m", [1, 3, 20])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bias_is_not_read_where_beta_is_0(variant: str, m: int, dtype: type) -> None:
    a, b = np.ones((m, 5), dtype), np.ones((5, 37), dtype)
    bias = np.array([np.nan, np.inf, -np.inf, 1] * 10, dtype)[:37]
    for trans_b, right in ((0, b), (1, b.T.copy())):
        ints = [m, 37, 5, 0, trans_b, 0, 0, 1, 0]
        spec = [((m, 37), dtype)]
        found = _kernels.call("gemm", [a, right, bias], spec, ints, [2, 0, 0, 0], scratch_bytes(37, 5), variant)[0]
        np.testing.assert_array_equal(found, np.full((m, 37), 10, dtype))


def test_rejected_operands() -> None:
    a, b = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
    wide = np.ones((3, 4), np.int32)
    with pytest.raises(InferenceError):
        gemm(a, b, 2, 4, 4, variant="baseline")  # k larger than the operands
    with pytest.raises(InferenceError):
        gemm(a, wide, 2, 4, 3, variant="baseline")
    with pytest.raises(InferenceError):
        gemm(a, b, 2, 4, 3, bias=np.ones(3, np.float32), bias_strides=(0, 1), variant="baseline")
    with pytest.raises(InferenceError):
        gemm(a.astype(np.int32), wide, 2, 4, 3, floats=(0.5, 1, 0, 0), variant="baseline")
    with pytest.raises(InferenceError):  # no scratch
        _kernels.call("gemm", [a, b], [((2, 4), np.float32)], [2, 4, 3, 0, 0, 0, 0, 0, 0], [1, 1, 0, 0], 0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_do_not_depend_on_their_neighbors(variant: str) -> None:
    """Splitting the rows over threads must not change a bit, as long as every part is tiled."""
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((50, 600), np.float32), rng.standard_normal((600, 40), np.float32)
    whole = gemm(a, b, 50, 40, 600, packed=True, variant=variant)
    for start, stop in [(0, 17), (17, 50), (4, 11)]:
        part = gemm(a[start:stop].copy(), b, stop - start, 40, 600, packed=True, variant=variant)
        np.testing.assert_array_equal(part, whole[start:stop])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("k", [1022, 1023, 1024, 1025, 2048, 3072])
def test_rows_that_share_sets_of_the_l1_cache(variant: str, k: int, l1_ways: Callable[[int], None]) -> None:
    """Rows that lie a multiple of 4096 bytes apart are copied if a set has few lines: the same sums."""
    rng = np.random.default_rng(k)
    for m, packed in itertools.product((6, 7, 13, 24), (False, True)):
        a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, 50), np.float32)
        addend = rng.standard_normal((m, 50), np.float32)
        found = []
        for ways in (8, 12):
            l1_ways(ways)
            found.append(gemm(a, b, m, 50, k, packed=packed, addend=addend, variant=variant))
        np.testing.assert_array_equal(*found)
        assert_close(found[0], a.astype(np.float64) @ b + addend, k)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("k", [0, 1, 7, 8, 9, 16, 17, 33, 64, 65])
def test_few_rows_by_a_matrix_in_place(variant: str, trans_b: bool, k: int) -> None:
    """At any address; a number that is not finite reaches only the sums that read it."""
    rng = np.random.default_rng(k)
    for m, n in itertools.product((1, 2, 3, 5), (1, 15, 16, 17, 70)):
        for offset in (0, 3):
            a = rng.standard_normal((m, k)).astype(np.float32)
            b = np.frombuffer(bytearray(4 * (k * n + offset)), np.float32)[offset:].reshape(
                (n, k) if trans_b else (k, n)
            )
            b[...] = rng.standard_normal(b.shape)
            bias, addend = (rng.standard_normal(shape).astype(np.float32) for shape in ((n,), (m, n)))
            columns = b.T if trans_b else b
            options = {"variant": variant, "trans_b": trans_b, "bias": bias, "bias_strides": (0, 1), "addend": addend}
            found = gemm(a, b, m, n, k, floats=(2, 3, 0, 0), **options)  # type: ignore[arg-type]
            expected = 2 * a.astype(np.float64) @ columns + 3 * bias.astype(np.float64) + addend
            assert_close(found, expected, k)
            if k and n > 1:
                columns[k - 1, n // 2] = np.inf
                columns[0, n - 1] = np.nan
                with_some = gemm(a, b, m, n, k, floats=(2, 3, 0, 0), **options)  # type: ignore[arg-type]
                others = [j for j in range(n) if j not in (n // 2, n - 1)]
                np.testing.assert_array_equal(with_some[:, others], found[:, others])
                assert not np.isfinite(with_some[:, [n // 2, n - 1]]).any()
