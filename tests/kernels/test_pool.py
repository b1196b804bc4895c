"""max_pool and average_pool against plain NumPy: 1 to 3 dims, pads, dilations, windows past the end, NaN."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetero import _kernels
from hetero.errors import InferenceError

pytestmark = pytest.mark.spread(2)

VARIANTS = _kernels.variants("max_pool", "average_pool", "max_pool_any", "lp_pool")
Array = np.ndarray[Any, Any]


def three(values: Sequence[int], filler: int) -> list[int]:
    return [filler] * (3 - len(values)) + list(values)


def pool(
    x: Array,
    out: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    before: Sequence[int],
    dilations: Sequence[int],
    *,
    variant: str,
    after: Sequence[int] | None = None,
    count_padding: bool = False,
) -> Array:
    """`after` makes it an average."""
    ints = [*three(kernel, 1), *three(strides, 1), *three(before, 0), *three(dilations, 1)]
    if after is not None:
        ints += [*three(after, 0), int(count_padding)]
    name = "max_pool" if after is None else "average_pool"
    spec = [((*x.shape[:2], *out), x.dtype)]
    (found,) = _kernels.call(name, [x], spec, ints, variant=variant)
    room = 64 * (math.prod(x.shape[2:]) + math.prod(out) + x.shape[-1]) + 24 * out[-1]
    (lanes,) = _kernels.call(name, [x], spec, ints, [], room, variant)  # channels in the lanes: the same bits
    if after is None or list(kernel[-2:]) != [3, 3]:
        np.testing.assert_array_equal(lanes, found)
    else:  # strips add columns before rows
        np.testing.assert_allclose(lanes, found, 1e-6, 1e-6)
    return found


def naive(
    x: Array,
    out: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    before: Sequence[int],
    dilations: Sequence[int],
    after: Sequence[int] | None = None,
    count_padding: bool = False,
) -> Array:
    """Window by window."""
    result = np.zeros((*x.shape[:2], *out), np.float64)
    for position in np.ndindex(*out):
        values, count = [], 0
        for tap in itertools.product(*map(range, kernel)):
            at = [p * s - b + t * d for p, s, b, t, d in zip(position, strides, before, tap, dilations, strict=True)]
            inside = all(0 <= i < n for i, n in zip(at, x.shape[2:], strict=True))
            if inside:
                values.append(x[(slice(None), slice(None), *at)].astype(np.float64))
            if after is not None:
                padded = all(-b <= i < n + a for i, n, b, a in zip(at, x.shape[2:], before, after, strict=True))
                count += inside or (count_padding and padded)
        if after is not None:
            result[(..., *position)] = np.sum(values, axis=0) / count if count else 0
        else:
            result[(..., *position)] = np.max(values, axis=0) if values else -np.inf
    return result


@pytest.mark.parametrize("variant", VARIANTS)
@given(data=st.data())
def test_random_windows(variant: str, data: st.DataObject) -> None:
    draw = data.draw
    rank = draw(st.sampled_from([1, 2, 2, 3]))

    def per_dim(values: list[int]) -> list[int]:
        return [draw(st.sampled_from(values)) for _ in range(rank)]

    kernel, strides, dilations = per_dim([1, 2, 3, 5]), per_dim([1, 2, 3, 4, 5]), per_dim([1, 1, 2])
    before, after = per_dim([0, 1, 2]), per_dim([0, 1, 2])
    size = per_dim([1, 4, 7, 18, 35] if rank < 3 else [1, 4, 5])
    extra = draw(st.integers(0, 1))  # a last window that reaches past the padding, as ceil_mode makes them
    out = [
        max(1, (n + b + a - (k - 1) * d - 1) // s + 1 + extra)
        for n, k, s, d, b, a in zip(size, kernel, strides, dilations, before, after, strict=True)
    ]
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    shape = (draw(st.integers(1, 2)), draw(st.integers(1, 3)), *size)
    x = np.random.default_rng(draw(st.integers(0, 99))).standard_normal(shape).astype(dtype)
    geometry = (out, kernel, strides, before, dilations)
    np.testing.assert_array_equal(pool(x, *geometry, variant=variant), naive(x, *geometry).astype(dtype))
    count_padding = draw(st.booleans())
    found = pool(x, *geometry, variant=variant, after=after, count_padding=count_padding)
    expected = naive(x, *geometry, after, count_padding)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("stride", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("shape", [(1, 2, 3, 12000), (1, 1, 300, 200), (3, 5, 7, 7)])
def test_blocks(variant: str, stride: int, shape: tuple[int, ...]) -> None:
    """Planes larger than the buffers, by rows and by columns."""
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::stride, ::stride]
    out = windows.shape[2:4]
    found = pool(x, out, [3, 3], [stride] * 2, [1, 1], [1, 1], variant=variant)
    np.testing.assert_array_equal(found, windows.max(axis=(4, 5)))
    padded[np.isinf(padded)] = 0
    found = pool(x, out, [3, 3], [stride] * 2, [1, 1], [1, 1], variant=variant, after=[1, 1], count_padding=True)
    np.testing.assert_allclose(found, windows.mean(axis=(4, 5)), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_window_larger_than_the_buffers(variant: str) -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 30000), np.float32)
    found = pool(x, [2], [20000], [9000], [0], [1], variant=variant)
    np.testing.assert_array_equal(found[0, :, 1], x[0, :, 9000:29000].max(axis=1))
    found = pool(x, [2], [20000], [9000], [0], [1], variant=variant, after=[0])
    np.testing.assert_allclose(found[0, :, 0], x[0, :, :20000].mean(axis=1, dtype=np.float64), atol=1e-5)


@functools.cache
def pools_of_columns(columns: int, stride: int) -> list[tuple[Array, Any, int, Array, Array]]:
    """Images with their geometry, padding, largest elements and averages, which all variants are compared with."""
    made = []
    for width, pad in itertools.product([1, 2, 3, *range(14, 20), *range(30, 37), 64, 65, 66], [0, 1, 2, 40]):
        out = (width + 2 * pad - columns) // stride + 1
        if out < 1:
            continue
        x = np.random.default_rng(width).standard_normal((1, 2, 4, width)).astype(np.float32)
        x[0, 1].reshape(-1)[::5] = np.nan
        geometry = ([4, out], [3, columns], [1, stride], [1, pad], [1, 1])
        with np.errstate(invalid="ignore"):
            largest, mean = naive(x, *geometry).astype(np.float32), naive(x, *geometry, [1, pad], pad == 2)
        made.append((x, geometry, pad, largest, mean))
    return made


@pytest.mark.spread(1)  # each is code of its own
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("columns", "stride"), [(2, 1), (2, 2), (3, 1), (3, 2), (4, 4), (5, 4), (1, 4)])
def test_two_or_three_columns_of_any_width(variant: str, columns: int, stride: int) -> None:
    """Whole vectors and every remainder, with each padding; NaN at all places."""
    for x, geometry, pad, largest, mean in pools_of_columns(columns, stride):
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(pool(x, *geometry, variant=variant), largest)
            found = pool(x, *geometry, variant=variant, after=[1, pad], count_padding=pad == 2)
        np.testing.assert_allclose(found, mean, rtol=1e-5, atol=1e-6)


@pytest.mark.spread(1)  # each is code of its own
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("stride", [1, 2])
def test_strips(variant: str, stride: int) -> None:
    """Planes of 3 x 3 windows: each padding and width, few lines, several planes; NaN at all places."""

    def windows(x: Array, pads: list[tuple[int, int]], value: float) -> Array:
        padded = np.pad(x, [(0, 0), (0, 0), *pads], constant_values=value)
        return np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::stride, ::stride]

    for width, height, pads in itertools.product(
        [1, 2, 3, 7, 8, 9, *range(14, 20), *range(30, 37), 65],
        [1, 2, 3, 6],
        [[(0, 0), (0, 0)], [(1, 1), (1, 1)], [(2, 0), (0, 3)], [(0, 4), (5, 0)]],
    ):
        if min(height + sum(pads[0]), width + sum(pads[1])) < 3:
            continue
        x = np.random.default_rng(width).standard_normal((2, 2, height, width)).astype(np.float32)
        x[1].reshape(-1)[::7] = np.nan
        largest = windows(x, pads, -np.inf).max((4, 5))
        geometry = (largest.shape[2:], [3, 3], [stride, stride], [pads[0][0], pads[1][0]], [1, 1])
        np.testing.assert_array_equal(pool(x, *geometry, variant=variant), largest)
        total, inside = windows(x, pads, 0).sum((4, 5)), windows(np.ones_like(x), pads, 0).sum((4, 5))
        for count_padding in (False, True):
            found = pool(x, *geometry, variant=variant, after=[pads[0][1], pads[1][1]], count_padding=count_padding)
            expected = total / (9 if count_padding else np.maximum(inside, 1))
            np.testing.assert_allclose(found, expected, 1e-5, 1e-6)


@pytest.mark.spread(1)  # each is code of its own
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("stride", [1, 2, 3, 4, 5])
def test_nan_and_infinity(variant: str, stride: int) -> None:
    x = np.zeros((1, 1, 9, 40), np.float32)
    x[0, 0, 4, 7], x[0, 0, 2, 20], x[0, 0, :, 30:] = np.nan, np.inf, -np.inf
    out = [(9 - 1) // stride + 1, (40 - 1) // stride + 1]
    geometry = (out, [3, 3], [stride] * 2, [1, 1], [1, 1])
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(pool(x, *geometry, variant=variant), naive(x, *geometry))
        found = pool(x, *geometry, variant=variant, after=[1, 1])
        np.testing.assert_array_equal(found, naive(x, *geometry, after=[1, 1]))


@pytest.mark.parametrize("shape", [(0, 3, 5, 5), (2, 0, 5, 5)])
def test_empty(shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, np.float32)
    assert pool(x, [3, 3], [3, 3], [1, 1], [0, 0], [1, 1], variant=VARIANTS[0]).size == 0


def test_rejected() -> None:
    x = np.ones((1, 1, 5, 5), np.float32)
    for wrong in [{"kernel": [0, 3]}, {"strides": [1, 0]}, {"before": [-1, 0]}, {"dilations": [0, 1]}]:
        geometry = {"kernel": [3, 3], "strides": [1, 1], "before": [0, 0], "dilations": [1, 1], **wrong}
        with pytest.raises(InferenceError):
            pool(x, [3, 3], variant=VARIANTS[0], **geometry)
    with pytest.raises(InferenceError):
        pool(x.astype(np.int32), [3, 3], [3, 3], [1, 1], [0, 0], [1, 1], variant=VARIANTS[0])
    for name in ("max_pool_any", "lp_pool"):
        ints = [*three([3, 3], 1), 1, 1, 1, 0, 0, 0, 1, 1, 1, 1]
        for inputs, wrong in (([x, x], ints), ([x], ints[:12]), ([x], [*ints, 0])):
            with pytest.raises(InferenceError):
                _kernels.call(name, inputs, [((1, 1, 3, 3), x.dtype)], wrong)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(
    ("shape", "kernel", "strides", "before", "dilations"),
    [
        ((2, 3, 9, 11), (3, 3), (2, 2), (1, 1), (1, 1)),
        ((1, 2, 7), (4,), (1,), (3,), (1,)),
        ((1, 2, 4, 5, 6), (2, 3, 2), (1, 2, 1), (0, 1, 1), (1, 1, 1)),
        ((1, 1, 2, 9000), (1, 700), (1, 3), (0, 600), (1, 1)),  # more columns than are combined at a time
        ((1, 1, 900, 5), (30, 2), (2, 2), (29, 0), (1, 1)),  # more lines
        ((1, 1, 70, 300), (40, 200), (1, 1), (0, 0), (1, 1)),  # few columns and one line
        ((1, 1, 701, 31), (700, 30), (1, 1), (0, 0), (1, 1)),  # a window that is too large
        ((1, 2, 6, 9000), (1, 8192), (1, 7), (0, 5), (1, 1)),  # the widest kernel
        ((1, 1, 1, 9000), (1, 8193), (1, 1), (0, 0), (1, 1)),  # a kernel that is too wide for that
        ((1, 3, 7, 7), (1, 1), (3, 9), (0, 0), (1, 1)),
        ((1, 2, 5, 5), (5, 5), (1, 1), (4, 4), (1, 1)),
        ((2, 1, 3, 6), (3, 7), (5, 1), (1, 6), (1, 1)),
        ((0, 3, 5, 5), (3, 3), (1, 1), (1, 1), (1, 1)),
        ((1, 1, 3, 3), (2, 2), (4, 4), (2, 2), (1, 1)),  # windows outside the image
        ((1, 2, 9, 9), (2, 2), (1, 1), (0, 0), (3, 1)),
    ],
)
def test_bytes(variant: str, dtype: str, shape: Any, kernel: Any, strides: Any, before: Any, dilations: Any) -> None:
    limits = np.iinfo(dtype)
    x = np.random.default_rng(1).integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
    out = [
        (size + 2 * pad - (k - 1) * dilation - 1) // step + 1
        for size, k, step, pad, dilation in zip(shape[2:], kernel, strides, before, dilations, strict=True)
    ]
    ints = [*three(kernel, 1), *three(strides, 1), *three(before, 0), *three(dilations, 1), 0]
    spec = (*shape[:2], *out)
    (found,) = _kernels.call("max_pool_any", [x], [(spec, x.dtype)], ints, variant=variant)
    wide = x.astype(np.float32)
    (expected,) = _kernels.call("max_pool_any", [wide], [(spec, wide.dtype)], ints, variant=variant)
    assert np.array_equal(found, np.maximum(expected, limits.min).astype(dtype))


@pytest.mark.parametrize("variant", VARIANTS)
@given(data=st.data())
def test_planes_of_bytes_that_share_a_block(variant: str, data: st.DataObject) -> None:
    """Any number of planes, divided over threads, in which rows end beside those of other threads."""
    draw = data.draw
    dtype = draw(st.sampled_from(["int8", "uint8"]))
    planes, depth = draw(st.sampled_from([1, 2, 7, 33, 70])), draw(st.sampled_from([1, 1, 3]))
    sizes = [depth, *(draw(st.sampled_from([1, 2, 5, 7, 14, 28, 31, 65])) for _ in range(2))]
    kernel = [draw(st.integers(1, 2)) if depth > 1 else 1, *(draw(st.integers(1, 5)) for _ in range(2))]
    strides = [1, *(draw(st.integers(1, 4)) for _ in range(2))]
    before = [draw(st.integers(0, k - 1)) for k in kernel]
    after = [draw(st.integers(0, k + 1)) for k in kernel]
    out = [
        max(1, (n + b + a - k) // s + 1) for n, b, a, k, s in zip(sizes, before, after, kernel, strides, strict=True)
    ]
    limits = np.iinfo(dtype)
    x = np.random.default_rng(planes).integers(limits.min, limits.max, (1, planes, *sizes), dtype=dtype, endpoint=True)
    ints, spec = [*kernel, *strides, *before, 1, 1, 1, 0], (1, planes, *out)
    team = _kernels.Team(draw(st.sampled_from([1, 2, 3])))
    (found,) = _kernels.call("max_pool_any", [x], [(spec, x.dtype)], ints, variant=variant, team=team)
    wide = x.astype(np.float64)
    (expected,) = _kernels.call("max_pool_any", [wide], [(spec, wide.dtype)], ints, variant=variant)
    assert np.array_equal(found, np.maximum(expected, limits.min).astype(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
@pytest.mark.parametrize("column_major", [0, 1])
@pytest.mark.parametrize(
    ("shape", "kernel", "strides", "before", "dilations", "out"),
    [
        ((2, 3, 6, 8), (2, 2), (2, 2), (0, 0), (1, 1), (3, 4)),
        ((1, 2, 5, 7), (3, 3), (1, 1), (1, 1), (1, 1), (5, 7)),
        ((1, 2, 4, 5, 6), (2, 3, 2), (1, 2, 3), (1, 1, 1), (1, 1, 2), (5, 3, 3)),
        ((1, 1, 300), (3,), (2,), (2,), (4,), (150,)),  # more than are computed together
        ((1, 1, 2, 9), (1, 40), (1, 5), (0, 30), (1, 1), (2, 8)),  # a kernel wider than the input
        ((1, 1, 3, 3), (2, 2), (4, 4), (2, 2), (1, 1), (2, 2)),  # windows outside
        ((1, 1, 3), (2,), (1,), (0,), (1 << 29,), (1,)),
    ],
)
def test_places_of_the_largest(
    dtype: str, column_major: int, shape: Any, kernel: Any, strides: Any, before: Any, dilations: Any, out: Any
) -> None:
    """Against a loop: of equal elements the first, NaN is the largest, and -1 outside."""
    rng = np.random.default_rng(len(shape))
    x = rng.integers(-2, 3, shape).astype(dtype)
    if dtype != "int8":
        x[rng.random(shape) < 0.1] = np.nan
        x[rng.random(shape) < 0.2] = -np.inf
    places = np.arange(x.size).reshape(shape)
    if column_major:
        places = np.stack([
            np.arange(plane.size).reshape(plane.shape, order="F") + at * plane.size
            for at, plane in enumerate(x.reshape(-1, *shape[2:]))
        ]).reshape(shape)  # fmt: skip
    wanted = np.full((*shape[:2], *out), -np.inf if dtype != "int8" else -128, dtype)
    wanted_places = np.full(wanted.shape, -1, np.int64)
    for at in np.ndindex(*out):
        for plane in np.ndindex(*shape[:2]):
            best = None
            for tap in np.ndindex(*kernel):
                where = tuple(
                    o * s - p + t * d for o, s, p, t, d in zip(at, strides, before, tap, dilations, strict=True)
                )
                if all(0 <= i < size for i, size in zip(where, shape[2:], strict=True)):
                    value = x[(*plane, *where)]
                    if best is None or value > best or (np.isnan(value) and not np.isnan(best)):
                        best, wanted_places[(*plane, *at)] = value, places[(*plane, *where)]
                        wanted[(*plane, *at)] = value
    ints = [*three(kernel, 1), *three(strides, 1), *three(before, 0), *three(dilations, 1), column_major]
    for variant in VARIANTS:
        specs = [(wanted.shape, x.dtype), (wanted.shape, np.int64)]
        found, found_places = _kernels.call("max_pool_any", [x], specs, ints, variant=variant)
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(found_places, wanted_places)
