"""Kernels that move elements, against NumPy, over random shapes and instruction sets."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hetero import _kernels
from hetero.errors import InferenceError

VARIANTS = _kernels.variants()
DTYPES = ["uint8", "float16", "float32", "int64"]


def numbered(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    return (np.arange(np.prod(shape, dtype=int)) % 65_000).reshape(shape).astype(dtype)  # that float16 holds


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


@settings(max_examples=150, deadline=None)
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


@settings(max_examples=200, deadline=None)
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


@settings(max_examples=150, deadline=None)
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
        with pytest.raises(InferenceError, match=f"kernel {name}: an index is outside its axis"):
            _kernels.call(name, ins, [(out, "float32")], ints)


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
    with pytest.raises(InferenceError, match="outside its axis"):
        _kernels.call("scatter_elements", given, spec, [axis, reduction], variant=variant)


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_concat(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
    axis = data.draw(st.integers(0, len(shape) - 1))
    parts = []
    for _ in range(data.draw(st.integers(1, 4))):
        shape[axis] = data.draw(st.integers(0, 4))
        parts.append(numbered(tuple(shape)) + len(parts))
    expected = np.concatenate(parts, axis)
    np.testing.assert_array_equal(_kernels.call("concat", parts, [(expected.shape, "float32")], [axis])[0], expected)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_pad(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    x = numbered(shape, data.draw(st.sampled_from(DTYPES)))
    mode = data.draw(st.sampled_from(["constant", "reflect", "edge", "wrap"]))
    before, after = ([data.draw(st.integers(-1, 6)) for _ in shape] for _ in range(2))
    before = [max(b, -size) for b, size in zip(before, shape, strict=True)]
    after = [max(a, -(size + min(b, 0))) for a, b, size in zip(after, before, shape, strict=True)]
    grown = [(max(b, 0), max(a, 0)) for b, a in zip(before, after, strict=True)]
    value = np.array(7, x.dtype)
    # NumPy has no negative padding: crop first.
    kept = x[tuple(slice(max(-b, 0), n - max(-a, 0)) for b, a, n in zip(before, after, shape, strict=True))]
    sizes = [b + n + a for b, a, n in zip(before, after, shape, strict=True)]
    assume(mode == "constant" or kept.size or 0 in sizes)
    expected = np.empty(sizes, x.dtype)
    if expected.size:
        expected = np.pad(kept, grown, mode, **({"constant_values": 7} if mode == "constant" else {}))
    ints = [["constant", "reflect", "edge", "wrap"].index(mode), *before]
    variant = data.draw(st.sampled_from(VARIANTS))
    found = _kernels.call("pad", [x, value], [(expected.shape, x.dtype)], ints, variant=variant)[0]
    np.testing.assert_array_equal(found, expected)


def test_pad_of_an_empty_axis() -> None:
    x = np.empty((0, 2), np.float32)
    np.testing.assert_array_equal(_kernels.call("pad", [x], [((2, 2), "float32")], [0, 1, 0])[0], np.zeros((2, 2)))
    with pytest.raises(InferenceError):
        _kernels.call("pad", [x], [((2, 2), "float32")], [2, 1, 0])


@pytest.mark.parametrize("dtype", ["float32", "int32", "int64", "float64", "uint8"])
def test_fill_and_range(dtype: str) -> None:
    assert _kernels.call("fill", [np.array([3], dtype)], [((2, 2), dtype)])[0].tolist() == [[3, 3], [3, 3]]
    start, delta = np.array(5, dtype), np.array(2, dtype)
    np.testing.assert_array_equal(
        _kernels.call("range", [start, delta], [((10,), dtype)])[0], np.arange(5, 25, 2).astype(dtype)
    )


@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_cumsum(axis: int, exclusive: int, reverse: int) -> None:
    x = np.random.default_rng(5).integers(-9, 9, (3, 4, 5)).astype(np.int32)
    walked = np.flip(x, axis) if reverse else x
    expected = np.cumsum(walked, axis, dtype=np.int32)
    if exclusive:
        expected = expected - walked
    expected = np.flip(expected, axis) if reverse else expected
    for variant in VARIANTS:
        found = _kernels.call("cumsum", [x], [(x.shape, "int32")], [axis, exclusive, reverse], variant=variant)[0]
        np.testing.assert_array_equal(found, expected)
