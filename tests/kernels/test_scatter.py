"""The scatter kernels against NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hetero import _kernels
from hetero.errors import InferenceError

pytestmark = pytest.mark.spread(2)

VARIANTS = _kernels.variants("scatter_elements", "scatter_nd")


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8"])
@pytest.mark.parametrize("reduction", [0, 1, 2, 3, 4])
def test_scatter_applies_duplicates_in_order(reduction: int, dtype: str, variant: str) -> None:
    rng = np.random.default_rng(4)
    combine = [lambda old, new: new, np.add, np.multiply, np.maximum, np.minimum][reduction]
    x, updates = (rng.integers(0, 9, shape).astype(dtype) for shape in [(4, 5, 3), (3, 7, 2)])
    indices = rng.integers(-5, 5, updates.shape)
    expected = x.copy()
    for at in np.ndindex(*indices.shape):
        place = (at[0], indices[at], at[2])
        expected[place] = combine(expected[place], updates[at])
    spec = [(x.shape, dtype)]
    found = _kernels.call("scatter_elements", [x, indices, updates], spec, [1, reduction], variant=variant)[0]
    np.testing.assert_array_equal(found, expected)

    tuples = np.stack([rng.integers(-4, 4, 9), rng.integers(-5, 5, 9)], -1).astype(np.int32)
    updates = rng.integers(0, 9, (9, 3)).astype(dtype)
    expected = x.copy()
    for (i, j), update in zip(tuples, updates, strict=True):
        expected[i, j] = combine(expected[i, j], update)
    found = _kernels.call("scatter_nd", [x, tuples, updates], spec, [reduction], variant=variant)[0]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("index_dtype", [np.int32, np.int64])
@pytest.mark.parametrize(("shape", "axis"), [((5, 37), 0), ((4, 3, 20), 0), ((4, 3, 20), 1), ((6, 1), 0)])
@pytest.mark.parametrize("reduction", [0, 1, 3])
def test_scatter_of_rows(reduction: int, shape: tuple[int, ...], axis: int, index_dtype: type, variant: str) -> None:
    """Indices that are equal along some rows, negative ones among them, and of which some rows differ in one place."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape, np.float32)
    count = list(shape)
    count[axis], count[-1] = 9, max(1, shape[-1] - 2)
    row = rng.integers(-shape[axis], shape[axis], (*count[:-1], 1))
    indices = np.broadcast_to(row, count).astype(index_dtype)
    indices[1, ..., -1] = 0
    updates = rng.standard_normal(count, np.float32)
    expected = x.copy()
    for at in np.ndindex(*count):
        to = (*at[:axis], indices[at], *at[axis + 1 :])
        if reduction == 0:
            expected[to] = updates[at]
        elif reduction == 1:
            expected[to] += updates[at]
        else:
            expected[to] = max(expected[to], updates[at])
    given, spec = [x, indices, updates], [(shape, x.dtype)]
    (found,) = _kernels.call("scatter_elements", given, spec, [axis, reduction], variant=variant)
    np.testing.assert_array_equal(found, expected)
    indices[2, ..., 0] = shape[axis]
    with pytest.raises(InferenceError, match="is out of bounds for axis"):
        _kernels.call("scatter_elements", given, spec, [axis, reduction], variant=variant)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "int32", "float64"])
@pytest.mark.parametrize("shape", [(200,), (30, 40), (5, 6, 70)])
def test_scattered_elements_of_each_size(shape: tuple[int, ...], dtype: str, variant: str) -> None:
    """Along each axis, with duplicates and negative indices, by one thread and by several."""
    rng = np.random.default_rng(1)
    for axis, reduction in itertools.product(range(len(shape)), (0, 1)):
        if reduction and dtype == "float16":
            continue
        count = [size + 3 if d == axis else size - 1 for d, size in enumerate(shape)]
        x, updates = rng.integers(0, 9, shape).astype(dtype), rng.integers(0, 9, count).astype(dtype)
        indices = rng.integers(-shape[axis], shape[axis], count).astype(rng.choice(["int32", "int64"]))
        expected = x.copy()
        for at in np.ndindex(*count):
            to = (*at[:axis], indices[at], *at[axis + 1 :])
            expected[to] = expected[to] + updates[at] if reduction else updates[at]
        for team in (None, _kernels.Team(3)):
            found = _kernels.call(
                "scatter_elements",
                [x, indices, updates],
                [(shape, dtype)],
                [axis, reduction],
                variant=variant,
                team=team,
            )[0]
            np.testing.assert_array_equal(found, expected)
        for bad in (shape[axis], -shape[axis] - 1):
            indices.flat[-1] = bad
            with pytest.raises(InferenceError, match=f"axis {axis}"):
                _kernels.call("scatter_elements", [x, indices, updates], [(shape, dtype)], [axis, reduction])
