"""copy_strided against NumPy: transposes, slices and broadcasts of random shapes, in every instruction set."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetero import _kernels
from hetero.errors import InferenceError
from kernel_arrays import numbered

pytestmark = pytest.mark.spread(2)

VARIANTS = _kernels.variants("copy_strided")
DTYPES = ["uint8", "float16", "float32", "int64"]


def copy_view(x: np.ndarray, view: np.ndarray, variant: str | None = None) -> np.ndarray:
    """copy_strided of a NumPy view of ``x``."""
    offset = (view.__array_interface__["data"][0] - x.__array_interface__["data"][0]) // x.itemsize
    steps = [step // x.itemsize for step in view.strides]
    ints = [offset if view.size else 0, view.ndim, *view.shape, *steps]
    return _kernels.call("copy_strided", [x], [(view.shape, x.dtype)], ints, variant=variant)[0]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_transposes(dtype: str, variant: str) -> None:
    for shape in [(5,), (3, 70), (2, 33, 17), (2, 3, 20, 18), (2, 1, 3, 2, 3)]:
        x = numbered(shape, dtype)
        for axes in itertools.permutations(range(len(shape))):
            np.testing.assert_array_equal(copy_view(x, x.transpose(axes), variant), x.transpose(axes))


@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_of_each_length(variant: str) -> None:
    """Short rows are copied as two pieces that overlap."""
    x = np.random.default_rng(0).integers(0, 256, (3, 300)).astype(np.uint8)
    for length in range(1, 300):
        view = x[:, 1 : 1 + length]
        np.testing.assert_array_equal(copy_view(x, view, variant), view)


@given(data=st.data())
def test_transposes_of_parts(data: st.DataObject) -> None:
    """Tiles, their edges and sides too short for them; views that begin anywhere and leave gaps."""
    sides = st.integers(0, 5) | st.integers(6, 70)
    shape = data.draw(st.lists(sides, min_size=2, max_size=2))
    shape += data.draw(st.lists(st.integers(1, 4), max_size=2))
    shape = [shape[at] for at in data.draw(st.permutations(range(len(shape))))]
    x = numbered(tuple(size + data.draw(st.integers(0, 3)) for size in shape), data.draw(st.sampled_from(DTYPES)))
    view = x[tuple(slice(whole - size, whole) for size, whole in zip(shape, x.shape, strict=True))]
    view = view.transpose(data.draw(st.permutations(range(view.ndim))))
    np.testing.assert_array_equal(copy_view(x, view, data.draw(st.sampled_from(VARIANTS))), view)


@pytest.mark.parametrize("variant", VARIANTS)
def test_transposes_keep_every_bit_of_nan(variant: str) -> None:
    x = np.random.default_rng(0).integers(0x7F800001, 0x7FFFFFFF, (40, 50)).astype(np.uint32).view(np.float32)
    found = copy_view(x, x.T, variant)
    np.testing.assert_array_equal(found.view(np.uint32), x.T.copy().view(np.uint32))


@given(data=st.data())
def test_slices_flips_and_broadcasts(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=4)))
    x = numbered(shape, data.draw(st.sampled_from(DTYPES)))
    bound = st.none() | st.integers(-8, 8)
    slices = tuple(
        slice(data.draw(bound), data.draw(bound), data.draw(st.sampled_from([None, 1, 2, -1, -3]))) for _ in shape
    )
    view = x[slices]
    view = view.transpose(data.draw(st.permutations(range(view.ndim))))
    view = np.broadcast_to(view, (data.draw(st.integers(1, 3)), *view.shape))
    np.testing.assert_array_equal(copy_view(x, view, data.draw(st.sampled_from(VARIANTS))), view)


def test_copy_of_more_loops_than_dimensions() -> None:
    x = numbered((2, 3, 2, 2, 2))
    found = _kernels.call(
        "copy_strided",
        [x],
        [((4, 6, 4, 4, 4), "float32")],
        [0, 10, 2, 2, 2, 3, 2, 2, 2, 2, 2, 2, 0, 24, 0, 8, 0, 4, 0, 2, 0, 1],
    )[0]
    np.testing.assert_array_equal(found, np.tile(x, (2, 2, 2, 2, 2)))


@pytest.mark.parametrize(
    "ints",
    [
        [],
        [0],
        [0, 17],
        [0, 1, 6],
        [0, 1, 7, 1],
        [1, 1, 6, 1],
        [-1, 1, 6, 1],
        [0, 1, 6, -1],
        [0, 1, -6, 1],
        [0, 2, 2**62, 6, 1, 1],
        [0, 2, 2, 3, 2**62, 2**62],
        [2**63 - 1, 1, 6, 1],
    ],
)
def test_views_that_leave_the_tensor_are_refused(ints: list[int]) -> None:
    with pytest.raises(InferenceError, match="parameters do not fit"):
        _kernels.call("copy_strided", [numbered((6,))], [((6,), "float32")], ints)
