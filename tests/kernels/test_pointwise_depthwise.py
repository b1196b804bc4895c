"""pointwise_depthwise against two plain convolutions in float64, in every instruction set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetero import _kernels
from hetero.errors import InferenceError
from kernel_arrays import normal
from packed_convolution import Array
from plain_convolution import ACTIVATIONS, naive

pytestmark = pytest.mark.spread(2)

VARIANTS = _kernels.variants("pointwise_depthwise")
SCRATCH = (1 << 20) + (512 << 10)


def least_scratch(channels: int, maps: int, size: list[int], height: int, stride: int, rows: int) -> int:
    """For bands of at most four rows of the result."""
    read = min((min(rows, 4) - 1) * stride + height, size[0]) * size[1]
    band = channels * -(-read // 16) * 16 + 16 * (-(-read // 16) | 1) * 16
    kept = maps * -(-max(0, height - stride) * size[1] // 16) * 16
    return (1 << 20) + 4 * (band + kept)


def packed(w: Array, variant: str | None) -> Array:
    maps, k = w.shape[0], w.shape[1]
    return _kernels.call(
        "pack_b", [w], [((-(-maps // 16) * 16 * k,), np.float32)], [1, k, maps, 1], variant=variant or VARIANTS[-1]
    )[0]


def joined(
    x: Array,
    w1: Array,
    w2: Array,
    strides: tuple[int, int],
    begin: tuple[int, int],
    out: tuple[int, int],
    *,
    bias1: Array | None = None,
    bias2: Array | None = None,
    activations: tuple[int, int] = (0, 0),
    variant: str | None = None,
    scratch: int = SCRATCH,
    maps: int | None = None,
    **options: Any,
) -> Array:
    variant = variant or VARIANTS[-1]
    ints = [*activations, *w2.shape[2:], *strides, *begin]
    return _kernels.call(
        "pointwise_depthwise",
        [x, packed(w1, variant), bias1, w2, bias2],
        [((x.shape[0], w1.shape[0] if maps is None else maps, *out), np.float32)],
        ints,
        [-1, 2, -1, 2],
        scratch,
        variant,
        **options,
    )[0]


def expected(
    x: Array, w1: Array, w2: Array, strides: Any, begin: Any, end: Any, bias1: Any, bias2: Any, activations: Any
) -> Array:
    maps = w1.shape[0]
    middle = naive(x, w1, 1, (1, 1), (1, 1), (0, 0), (0, 0))
    if bias1 is not None:
        middle = middle + bias1.reshape(-1, 1, 1)
    y = naive(ACTIVATIONS[activations[0]](middle), w2, maps, strides, (1, 1), begin, end)
    if bias2 is not None:
        y = y + bias2.reshape(-1, 1, 1)
    return ACTIVATIONS[activations[1]](y)


@pytest.mark.parametrize("variant", VARIANTS)
@given(data=st.data())
def test_random_geometry(variant: str, data: st.DataObject) -> None:
    draw = data.draw
    channels, maps = draw(st.sampled_from([1, 5, 24, 130, 300])), draw(st.sampled_from([1, 15, 16, 17, 40]))
    kernel = [draw(st.sampled_from([1, 2, 3, 5, 7])) for _ in range(2)]
    strides = tuple(draw(st.sampled_from([1, 1, 2, 3])) for _ in range(2))
    sizes = [draw(st.sampled_from([1, 2, 7, 12, 16, 33, 56])) for _ in range(2)]
    begin = (draw(st.integers(0, kernel[0] - 1)), draw(st.integers(0, kernel[1] + 1)))
    end = [
        max(draw(st.integers(0, k - 1)), k - n - b) for k, n, b in zip(kernel, sizes, begin, strict=True)
    ]  # fmt: skip
    out = tuple((n + b + e - k) // s + 1 for n, b, e, k, s in zip(sizes, begin, end, kernel, strides, strict=True))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    x = rng.standard_normal((draw(st.sampled_from([0, 1, 1, 2])), channels, *sizes), np.float32)
    w1 = rng.standard_normal((maps, channels, 1, 1), np.float32) / np.float32(channels**0.5)
    w2 = rng.standard_normal((maps, 1, *kernel), np.float32)
    bias1, bias2 = (normal(maps, seed=i) if draw(st.booleans()) else None for i in range(2))
    activations = tuple(draw(st.sampled_from(sorted(ACTIVATIONS))) for _ in range(2))
    if (out[0] - 1) * strides[0] - begin[0] >= sizes[0]:
        return  # a row of windows within the padding: refused
    wanted = expected(x, w1, w2, strides, begin, end, bias1, bias2, activations)
    least = least_scratch(channels, maps, sizes, kernel[0], strides[0], out[0])
    scratch = draw(st.sampled_from([least, least, least + (least - (1 << 20)) // 2, 16 << 20]))
    found = joined(
        x, w1, w2, strides, begin, out, bias1=bias1, bias2=bias2, activations=activations, variant=variant,
        scratch=scratch, team=_kernels.Team(draw(st.sampled_from([1, 1, 3]))),
    )  # fmt: skip
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("strides", [(1, 1), (2, 2)])
@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("image", [(2, 24, 50, 33), (1, 24, 14, 14), (1, 40, 3, 12)])
def test_same_for_every_division(variant: str, strides: tuple[int, int], size: int, image: tuple[int, ...]) -> None:
    """Less scratch memory makes more bands, more threads make more bands or chunks of channels; all have the same
    bits. Images of few rows are divided by channels."""
    maps = 40 if image[0] > 1 else 169
    w1, w2 = normal(maps, image[1], 1, 1, seed=1), normal(maps, 1, size, size, seed=2)
    x = normal(*image)
    out = tuple((n - 1) // s + 1 for n, s in zip(x.shape[2:], strides, strict=True))
    arguments = (x, w1, w2, strides, (size // 2, size // 2), out)
    options: dict[str, Any] = {"bias2": normal(maps, seed=5), "activations": (8, 1), "variant": variant}
    alone = joined(*arguments, **options, scratch=8 << 20)
    for scratch in (SCRATCH, (1 << 20) + (80 << 10)):
        for threads in (1, 2, 3, 7):
            found = joined(*arguments, **options, scratch=scratch, team=_kernels.Team(threads))
            assert np.array_equal(alone, found)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("stride", [1, 2])
def test_bad_inputs_stay_in_their_windows(variant: str, stride: int) -> None:
    x, w1, w2 = normal(1, 8, 20, 24), normal(16, 8, 1, 1, seed=1), normal(16, 1, 3, 3, seed=2)
    x[0, 0, 0, 0], x[0, 3, 9, 11], x[0, 7, 19, 23] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        wanted = expected(x, w1, w2, (stride, stride), (1, 1), (1, 1), None, None, (0, 0))
    found = joined(x, w1, w2, (stride, stride), (1, 1), wanted.shape[2:], variant=variant)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    np.testing.assert_array_equal(found[np.isinf(wanted)], wanted[np.isinf(wanted)])
    finite = np.isfinite(wanted)
    assert not finite.all()
    np.testing.assert_allclose(found[finite], wanted[finite], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    "bad",
    [
        {"scratch": 1 << 20},
        {"begin": (3, 1)},
        {"out": (10, 20)},
        {"w2": normal(15, 1, 3, 3)},
        {"w1": normal(40, 4, 1, 1)},
        {"bias1": normal(15)},
        {"bias2": normal(17)},
        {"strides": (0, 1)},
        {"x": normal(1, 4, 0, 20), "out": (1, 20)},
        {"x": normal(1, 0, 8, 20), "w1": normal(16, 0, 1, 1)},
    ],
)
def test_rejected(bad: dict[str, Any]) -> None:
    good: dict[str, Any] = {
        "x": normal(1, 4, 8, 20), "w1": normal(16, 4, 1, 1), "w2": normal(16, 1, 3, 3), "strides": (1, 1),
        "begin": (1, 1), "out": (8, 20), "maps": 16,
    }  # fmt: skip
    joined(**good)
    with pytest.raises(InferenceError):
        joined(**{**good, **bad})


@pytest.mark.parametrize("stride", [1, 2, 4])
def test_minimum_scratch_memory(stride: int) -> None:
    x, w1, w2 = normal(1, 4, 32, 20), normal(24, 4, 1, 1, seed=1), normal(24, 1, 3, 3, seed=2)
    out = ((32 - 1) // stride + 1, (20 - 1) // stride + 1)
    least = least_scratch(4, 24, [32, 20], 3, stride, out[0])
    arguments = (x, w1, w2, (stride, stride), (1, 1), out)
    np.testing.assert_array_equal(joined(*arguments, scratch=least), joined(*arguments))
    with pytest.raises(InferenceError):
        joined(*arguments, scratch=least - 1)
