"""softmax against NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetero import _kernels
from kernel_arrays import normal

pytestmark = pytest.mark.spread(2)

VARIANTS = _kernels.variants("softmax")
WIDTHS = [1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 64, 65, 129, 768]
Array = np.ndarray[Any, Any]


def softmax(x: Array, axis: int, logarithm: bool, variant: str) -> Array:
    outer, inner = int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis + 1 :]))
    ints = [outer, x.shape[axis], inner, logarithm]
    return _kernels.call("softmax", [x], [(x.shape, x.dtype)], ints, variant=variant)[0]


def naive_softmax(x: Array, axis: int, logarithm: bool) -> Array:
    with np.errstate(all="ignore"):
        shifted = x.astype(np.float64) - x.max(axis=axis, keepdims=True)
        total = np.exp(shifted).sum(axis=axis, keepdims=True)
        return shifted - np.log(total) if logarithm else np.exp(shifted) / total


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("logarithm", [False, True])
@given(data=st.data())
def test_softmax(variant: str, logarithm: bool, data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 70), min_size=1, max_size=3)))
    axis = data.draw(st.integers(0, len(shape) - 1))
    if shape[axis] == 0:
        shape = (*shape[:axis], 1, *shape[axis + 1 :])
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    x = (normal(*shape, seed=data.draw(st.integers(0, 99))) * data.draw(st.sampled_from([1, 30]))).astype(dtype)
    found = softmax(x, axis, logarithm, variant)
    # Taking off the maximum rounds: up to half a unit in the last place of a difference of about 200.
    expected = naive_softmax(x, axis, logarithm)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 if logarithm else 1e-37)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("axis", [0, 1])
def test_softmax_special_values(variant: str, width: int, axis: int) -> None:
    x = normal(6, width)
    x[0, width // 2] = np.nan
    x[1, width // 2] = np.inf
    x[2, :] = -np.inf
    x[3, width // 2] = -np.inf
    x[4, :] = 3e38
    x[5, :] = -3e38
    x = x if axis else np.ascontiguousarray(x.T)
    for logarithm in (False, True):
        found, expected = softmax(x, axis, logarithm, variant), naive_softmax(x, axis, logarithm)
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-6)
        assert np.all(found[expected == 0] == 0) or logarithm


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("logarithm", [False, True])
@pytest.mark.parametrize("width", [1, 2, 3, 15, 16, 17])
def test_a_row_does_not_depend_on_the_rows_beside_it(variant: str, logarithm: bool, width: int) -> None:
    """Short rows are computed a vector of rows at a time."""
    x = normal(35, width, seed=width)
    x[3, 0], x[4, 0], x[5] = np.nan, np.inf, -np.inf
    together = softmax(x, 1, logarithm, variant)
    for row in range(len(x)):
        np.testing.assert_array_equal(softmax(x[row : row + 1], 1, logarithm, variant)[0], together[row])
    assert np.isnan(together[3:6]).all()
    assert np.isfinite(np.delete(together, [3, 4, 5], axis=0)).all()
