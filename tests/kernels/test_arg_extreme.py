"""arg_extreme and hardmax against NumPy: all axes, equal entries, NaN."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetero import _kernels

pytestmark = pytest.mark.spread(2)

VARIANTS = _kernels.variants("arg_extreme")


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "int8", "uint8"])
@pytest.mark.parametrize("minimum", [False, True])
@pytest.mark.parametrize("last", [False, True])
def test_arg_extreme(variant: str, dtype: str, minimum: bool, last: bool) -> None:
    x = np.random.default_rng(0).integers(0, 5, (3, 11, 4)).astype(dtype)
    for axis in range(3):
        outer, inner = int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis + 1 :]))
        shape = x.shape[:axis] + x.shape[axis + 1 :]
        ints = [outer, x.shape[axis], inner, minimum, last]
        found = _kernels.call("arg_extreme", [x], [(shape, np.int64)], ints, variant=variant)[0]
        function = np.argmin if minimum else np.argmax
        expected = function(x, axis=axis)
        if last:
            expected = x.shape[axis] - 1 - function(np.flip(x, axis), axis=axis)
        np.testing.assert_array_equal(found, expected)


@given(data=st.data())
def test_arg_extreme_of_any_length(data: st.DataObject) -> None:
    """With equal entries, and NaN, of which the first (or last) counts as extreme, as in NumPy."""
    outer, inner = data.draw(st.integers(0, 40)), data.draw(st.sampled_from([1, 2, 130]))
    n = data.draw(st.integers(1, 40) | st.integers(41, 300))
    dtype = np.dtype(data.draw(st.sampled_from(["float32", "float64", "int32", "int64", "int8", "uint8"])))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x = rng.integers(0, data.draw(st.sampled_from([2, 100])), (outer, n, inner)).astype(dtype)
    if dtype.kind == "f" and data.draw(st.booleans()):
        x[rng.random(x.shape) < 0.02] = np.nan
    minimum, last = data.draw(st.booleans()), data.draw(st.booleans())
    variant = data.draw(st.sampled_from(VARIANTS))
    ints = [outer, n, inner, minimum, last]
    found = _kernels.call("arg_extreme", [x], [((outer, inner), np.int64)], ints, variant=variant)[0]
    function = np.argmin if minimum else np.argmax
    expected = n - 1 - function(x[:, ::-1], axis=1) if last else function(x, axis=1)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("n", [1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 127, 128, 129, 200])
def test_rows_of_special_numbers(variant: str, n: int) -> None:
    """Zeros of both signs are equal; infinities, denormal numbers and NaN of both signs."""
    numbers = np.array([0, -0.0, np.inf, -np.inf, 1e-45, -1e-45, 1, -1, 3e38, -3e38, np.nan, -np.nan], np.float32)
    rng = np.random.default_rng(n)
    for choices in (numbers[:2], numbers[2:4], numbers[:6], numbers[:10], numbers[6:], numbers[10:], numbers):
        x = rng.choice(choices, (40, n))
        for minimum in (0, 1):
            function = np.argmin if minimum else np.argmax
            for last in (0, 1):
                ints = [40, n, 1, minimum, last]
                (found,) = _kernels.call("arg_extreme", [x], [((40,), np.int64)], ints, variant=variant)
                expected = n - 1 - function(x[:, ::-1], axis=1) if last else function(x, axis=1)
                np.testing.assert_array_equal(found, expected)


@given(data=st.data())
def test_hardmax(data: st.DataObject) -> None:
    """1 at the first of the largest elements, or the first NaN, and 0 elsewhere, in memory that held other numbers."""
    outer, inner = data.draw(st.integers(0, 40)), data.draw(st.sampled_from([0, 1, 2, 130]))
    n, dtype = (
        data.draw(st.sampled_from([1, 2, 3, 7, 8, 17, 33, 300])),
        data.draw(st.sampled_from(["float32", "float64"])),
    )
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x = rng.choice(np.array([0, -0.0, 1, 2, -3, np.inf, -np.inf], dtype), (outer, n, inner))
    if data.draw(st.booleans()):
        x[rng.random(x.shape) < 0.05] = np.nan
    expected = np.zeros(x.shape, dtype)
    np.put_along_axis(expected, np.argmax(x, axis=1)[:, None], 1, axis=1)
    for variant in VARIANTS:
        (found,) = _kernels.call("hardmax", [x], [(x.shape, dtype)], [outer, n, inner], variant=variant)
        np.testing.assert_array_equal(found, expected)
        assert not np.signbit(found).any()
