"""reduce against NumPy: every set of axes, every operation, NaN, wrapping integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetero import _kernels
from hetero.errors import InferenceError

pytestmark = pytest.mark.spread(2)

VARIANTS = _kernels.variants("reduce")
Array = np.ndarray[Any, Any]

OPERATIONS: list[tuple[str, Callable[..., Array]]] = [
    ("sum", np.sum),
    ("mean", np.mean),
    ("max", np.max),
    ("min", np.min),
    ("product", np.prod),
    ("squares", lambda x, axis: np.sum(x * x, axis=axis)),
    ("magnitudes", lambda x, axis: np.sum(np.abs(x), axis=axis)),
    ("root", lambda x, axis: np.sqrt(np.sum(x * x, axis=axis))),
    ("logarithm", lambda x, axis: np.log(np.sum(x, axis=axis))),
]


def reduce(x: Array, operation: int, axes: tuple[int, ...], variant: str) -> Array:
    shape = tuple(size for axis, size in enumerate(x.shape) if axis not in axes)
    marks = [int(axis in axes) for axis in range(x.ndim)]
    return _kernels.call("reduce", [x], [(shape, x.dtype)], [operation, x.ndim, *marks], variant=variant)[0]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("code", range(len(OPERATIONS)), ids=[name for name, _ in OPERATIONS])
@given(data=st.data())
def test_floats(variant: str, code: int, data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 40), max_size=4).filter(lambda s: np.prod(s) < 20000)))
    axes = tuple(axis for axis in range(len(shape)) if data.draw(st.booleans()))
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    x = (np.random.default_rng(data.draw(st.integers(0, 99))).random(shape) + 0.5).astype(dtype)
    name, function = OPERATIONS[code]
    if name == "product":
        x = x ** (1 / 64)
    expected = function(x.astype(np.float64), axis=axes)
    np.testing.assert_allclose(reduce(x, code, axes, variant), expected, rtol=2e-5 if dtype == np.float32 else 1e-12)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("code", range(len(OPERATIONS)), ids=[name for name, _ in OPERATIONS])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers(variant: str, code: int, dtype: str) -> None:
    name, function = OPERATIONS[code]
    x = np.random.default_rng(0).integers(-9, 9, (5, 3, 20)).astype(dtype)
    for axes in [(0,), (2,), (0, 2), (0, 1, 2)]:
        if name in {"root", "logarithm"}:
            with pytest.raises(InferenceError):
                reduce(x, code, axes, variant)
        elif name == "mean":
            expected = np.trunc(x.sum(axis=axes) / np.prod([x.shape[a] for a in axes])).astype(dtype)
            np.testing.assert_array_equal(reduce(x, code, axes, variant), expected)
        else:
            expected = function(x, axis=axes).astype(dtype)
            np.testing.assert_array_equal(reduce(x, code, axes, variant), expected)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integer_sums_wrap(variant: str, dtype: str) -> None:
    info = np.iinfo(dtype)
    x = np.array([info.max, 1, info.max], dtype)
    with np.errstate(over="ignore"):
        assert reduce(x, 0, (0,), variant) == np.sum(x, dtype=dtype)
    assert reduce(np.array([info.min], dtype), 6, (0,), variant) == info.min  # |least| wraps


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("size", [1, 7, 16, 17, 64, 65, 200, 9000])
def test_nan_and_infinity(variant: str, size: int) -> None:
    for place in {0, size // 2, size - 1}:
        x = np.random.default_rng(0).standard_normal((2, size), np.float32)
        x[0, place] = np.nan
        x[1, place] = np.inf
        for code, expected in [(0, np.inf), (2, np.inf), (6, np.inf)]:
            found = reduce(x, code, (1,), variant)
            assert np.isnan(found[0])
            assert found[1] == expected
            found = reduce(np.ascontiguousarray(x.T), code, (0,), variant)
            assert np.isnan(found[0])
            assert found[1] == expected
        assert np.isnan(reduce(x, 3, (1,), variant)[0])


@pytest.mark.parametrize("variant", VARIANTS)
def test_long_sums_keep_their_digits(variant: str) -> None:
    x = np.full(1_000_000, 0.1, np.float32)
    np.testing.assert_allclose(reduce(x, 0, (0,), variant), x.sum(dtype=np.float64), rtol=5e-6)


def test_empty() -> None:
    x = np.zeros((0, 3), np.float32)
    for code, expected in [(0, 0), (2, -np.inf), (3, np.inf), (4, 1)]:
        np.testing.assert_array_equal(reduce(x, code, (0,), VARIANTS[0]), np.full(3, expected))
    assert reduce(x, 0, (1,), VARIANTS[0]).shape == (0,)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("code", range(len(OPERATIONS)), ids=[name for name, _ in OPERATIONS])
@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 16, 27, 64])
def test_short_rows(variant: str, code: int, length: int) -> None:
    name, function = OPERATIONS[code]
    rng = np.random.default_rng(3)
    for dtype in ("float32", "float64", "int32", "int64", "int8", "uint8"):
        kind = np.dtype(dtype).kind
        if (kind != "f" and name in ("root", "logarithm")) or (dtype.endswith("t8") and name not in ("max", "min")):
            continue
        if kind == "f":
            x = rng.normal(0, 1, (3001, length)).astype(dtype)
            x = np.abs(x) if name == "logarithm" else x  # near 1 it cancels
            x[::7, -1], x[::5, 0], x[::11] = np.nan, -0.0, np.inf
        else:
            limits = np.iinfo(dtype)
            x = rng.integers(limits.min, limits.max, (3001, length), dtype, endpoint=True)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            if kind == "f":
                expected = function(x.astype(np.float64), axis=1)
                tolerance = 1e-5 if dtype == "float32" else 1e-14
                np.testing.assert_allclose(reduce(x, code, (1,), variant), expected, rtol=tolerance, atol=tolerance)
            elif name != "mean":  # numpy's is not of integers
                np.testing.assert_array_equal(reduce(x, code, (1,), variant), function(x, axis=1).astype(dtype))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("shape", [(70001, 3), (20001, 7), (9001, 33), (30, 9, 300), (40, 4000)])
def test_results_do_not_depend_on_threads(variant: str, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(5).normal(0, 1, shape).astype(np.float32)
    axis = 1 if shape[0] != 40 else 0
    for code in range(8):
        marks, result = [int(a == axis) for a in range(len(shape))], (shape[:axis] + shape[axis + 1 :], x.dtype)
        one, many = (
            _kernels.call("reduce", [x], [result], [code, len(shape), *marks], variant=variant, team=team)[0]
            for team in (None, _kernels.Team(3))
        )
        assert one.tobytes() == many.tobytes()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_rows_together(variant: str, dtype: str) -> None:
    """Four rows are added at a time, in their order."""
    rng = np.random.default_rng(6)
    for rows in (3, 4, 5, 8, 13):
        for columns in (2, 7, 33):
            x = rng.normal(0, 9, (3, rows, columns)).astype(dtype)
            for code in (0, 2, 3, 4, 6):
                combine = {2: np.maximum, 3: np.minimum, 4: np.multiply}.get(code, np.add)
                expected = np.abs(x[:, 0]) if code == 6 else x[:, 0]
                for row in range(1, rows):
                    expected = combine(expected, np.abs(x[:, row]) if code == 6 else x[:, row])
                np.testing.assert_array_equal(reduce(x, code, (1,), variant), expected)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("code", [2, 3], ids=["max", "min"])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_rows_of_bytes(variant: str, code: int, dtype: str) -> None:
    """Four rows are reduced at a time: fewer, a rest, each width beside a vector's, and other axes around them."""
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(4)
    function = OPERATIONS[code][1]
    for rows in (1, 3, 4, 5, 7, 8, 13):
        for columns in (1, 2, 15, 16, 33, 100):
            for shape, axes in [
                ((rows, columns), (0,)),
                ((3, rows, columns), (1,)),
                ((rows, 2, rows, columns), (0, 2)),
            ]:
                x = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
                np.testing.assert_array_equal(reduce(x, code, axes, variant), function(x, axis=axes))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("length", [3, 4])
def test_extremes_of_any_number_of_short_rows(variant: str, length: int) -> None:
    for rows in (1, 2, 7, 8, 9, 15, 16, 17, 18, 31, 32, 33, 34, 47, 48, 49, 50):
        x = np.random.default_rng(rows).standard_normal((rows, length)).astype(np.float32)
        for name, function in OPERATIONS:
            if name in ("max", "min"):
                code = [each for each, _ in OPERATIONS].index(name)
                np.testing.assert_array_equal(reduce(x, code, (1,), variant), function(x, axis=1))
                marked = x.copy()
                marked.reshape(-1)[rows // 2 :: 5] = np.nan
                np.testing.assert_array_equal(reduce(marked, code, (1,), variant), function(marked, axis=1))
