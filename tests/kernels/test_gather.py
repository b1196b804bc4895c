"""The gather kernels against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetero import _kernels
from hetero.errors import InferenceError
from kernel_arrays import numbered

pytestmark = pytest.mark.spread(2)

VARIANTS = _kernels.variants("gather", "gather_elements", "gather_nd")
DTYPES = ["uint8", "float16", "float32", "int64"]


@given(data=st.data())
def test_gather_family(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    x = numbered(shape, data.draw(st.sampled_from(DTYPES)))
    axis = data.draw(st.integers(0, len(shape) - 1))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    index_type = data.draw(st.sampled_from(["int32", "int64"]))
    variant = data.draw(st.sampled_from(VARIANTS))
    indices = rng.integers(-shape[axis], shape[axis], data.draw(st.lists(st.integers(0, 3), max_size=3))).astype(
        index_type
    )
    expected = np.take(x, indices, axis)
    np.testing.assert_array_equal(
        _kernels.call("gather", [x, indices], [(expected.shape, x.dtype)], [axis], variant=variant)[0], expected
    )

    smaller = tuple(data.draw(st.integers(0, 6 if d == axis else size)) for d, size in enumerate(shape))
    indices = rng.integers(-shape[axis], shape[axis], smaller).astype(index_type)
    inside = x[tuple(slice(None) if d == axis else slice(size) for d, size in enumerate(smaller))]
    expected = np.take_along_axis(inside, indices.astype("int64"), axis)
    np.testing.assert_array_equal(
        _kernels.call("gather_elements", [x, indices], [(smaller, x.dtype)], [axis], variant=variant)[0], expected
    )

    batch = data.draw(st.integers(0, len(shape) - 1))
    depth = data.draw(st.integers(0, len(shape) - batch))
    tuples = (*shape[:batch], 3)
    indices = np.stack(
        [rng.integers(-size, size, tuples) for size in shape[batch : batch + depth]] or [np.zeros((*tuples, 0))], -1
    )
    indices = indices.reshape(*tuples, depth).astype(index_type)
    expected = np.empty((*tuples, *shape[batch + depth :]), x.dtype)
    for at in np.ndindex(*tuples):
        expected[at] = x[at[:batch]][tuple(indices[at].astype(int))]
    np.testing.assert_array_equal(
        _kernels.call("gather_nd", [x, indices], [(expected.shape, x.dtype)], [batch], variant=variant)[0], expected
    )


@pytest.mark.parametrize("index", [3, -4, 2**40, -(2**40), 2**63 - 1, -(2**63)])
def test_indices_outside_their_axis_are_reported(index: int) -> None:
    x = numbered((3, 2))
    indices = np.array([[index]], np.int64)
    for name, ins, out, ints in [
        ("gather", [x, indices], (1, 1, 2), [0]),
        ("gather_elements", [x, indices], (1, 1), [0]),
        ("gather_nd", [x, indices], (1, 2), [0]),
        ("scatter_elements", [x, indices, numbered((1, 1))], (3, 2), [0, 0]),
        ("scatter_nd", [x, indices, numbered((1, 2))], (3, 2), [0]),
    ]:
        with pytest.raises(
            InferenceError, match=f"kernel {name}: index {index} is out of bounds for axis 0 with size 3"
        ):
            _kernels.call(name, ins, [(out, "float32")], ints)


def test_the_first_index_outside_its_axis_is_reported() -> None:
    """Of several, also if threads find others first."""
    x, team = numbered((4, 3, 5)), _kernels.Team(3)
    indices = np.tile(np.array([0, 1, 2], np.int32), 40_000).reshape(4, 1, -1)
    indices.ravel()[[70_001, 119_999]] = 7, 8
    for name, ins, out, axis in [
        ("gather", [x, indices], (4, *indices.shape, 5), 1),
        ("gather_elements", [x, np.ascontiguousarray(indices.reshape(4, -1, 1))], (4, 30_000, 1), 1),
        ("gather_nd", [x[0], indices.reshape(-1, 2)], (60_000,), 1),
        ("scatter_nd", [x, indices.reshape(-1, 3), np.zeros(40_000, np.float32)], x.shape, 2),
    ]:
        axis_of = {"gather": [1], "gather_elements": [1], "gather_nd": [0], "scatter_nd": [0]}[name]
        size = ins[0].shape[axis]
        with pytest.raises(InferenceError, match=f"index 7 is out of bounds for axis {axis} with size {size}"):
            _kernels.call(name, ins, [(out, "float32")], axis_of, team=team)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "int64"])
@pytest.mark.parametrize("inner", [(), (1,), (2,), (4,)])
@pytest.mark.parametrize("count", [0, 1, 3, 16, 17])
def test_few_of_many_rows(variant: str, dtype: str, inner: tuple[int, ...], count: int) -> None:
    rng = np.random.default_rng(2)
    x = rng.integers(0, 200, (2500, 5, *inner)).astype(dtype)
    for index_type in ("int32", "int64"):
        indices = rng.integers(-5, 5, count).astype(index_type)
        expected = np.take(x, indices, 1)
        (found,) = _kernels.call("gather", [x, indices], [(expected.shape, dtype)], [1], variant=variant)
        np.testing.assert_array_equal(found, expected)
        if count:
            indices[-1] = 5
            with pytest.raises(InferenceError, match="index 5 is out of bounds for axis 1 with size 5"):
                _kernels.call("gather", [x, indices], [(expected.shape, dtype)], [1], variant=variant)
