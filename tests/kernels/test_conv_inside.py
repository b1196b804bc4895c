"""conv without products of padding (conv_inside.c) against a plain convolution, in every instruction set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetero import _kernels
from hetero.errors import InferenceError
from kernel_arrays import normal
from packed_convolution import Array, check, conv
from plain_convolution import ACTIVATIONS, naive

pytestmark = pytest.mark.spread(2)

VARIANTS = _kernels.variants("conv")

CASES = {  # x, w, group, strides, dilations, pads before, pads after; each has much padding
    "3x3, dilation 12": ((1, 140, 32, 32), (70, 140, 3, 3), 1, (1, 1), (12, 12), (12, 12), (12, 12)),
    "3x3, dilation 24": ((2, 64, 32, 31), (50, 64, 3, 3), 1, (1, 1), (24, 24), (24, 24), (24, 24)),
    "only the center": ((1, 300, 16, 16), (33, 300, 3, 3), 1, (1, 1), (36, 36), (36, 36), (36, 36)),
    "rectangular": ((1, 40, 20, 40), (48, 40, 3, 5), 1, (1, 1), (15, 11), (15, 22), (15, 22)),
    "asymmetric": ((1, 40, 17, 23), (48, 40, 3, 3), 1, (1, 1), (9, 13), (18, 3), (0, 23)),
    "strides": ((1, 64, 33, 34), (40, 64, 3, 3), 1, (2, 3), (20, 25), (20, 25), (20, 25)),
    "many output channels": ((1, 20, 12, 12), (800, 20, 3, 3), 1, (1, 1), (10, 10), (10, 10), (10, 10)),
    "groups": ((3, 96, 16, 16), (64, 48, 3, 3), 2, (1, 1), (14, 14), (14, 14), (14, 14)),
    "more padding than input": ((1, 32, 4, 5), (32, 32, 3, 3), 1, (1, 1), (9, 9), (12, 12), (10, 11)),
    "kernel larger than the input": ((1, 64, 12, 12), (32, 64, 5, 5), 1, (1, 1), (7, 7), (14, 14), (14, 14)),
    "one channel more than a block": ((1, 257, 8, 8), (17, 257, 3, 3), 1, (1, 1), (7, 7), (7, 7), (7, 7)),
    "1-D": ((2, 64, 100), (48, 64, 3), 1, (1,), (80,), (80,), (80,)),
    "3-D": ((1, 32, 6, 7, 8), (32, 32, 3, 3, 3), 1, (1, 1, 1), (5, 6, 7), (5, 6, 7), (5, 6, 7)),
}


def case_of(name: str) -> tuple[Array, Array, tuple[Any, ...]]:
    x_shape, w_shape, *geometry = CASES[name]
    return normal(*x_shape), normal(*w_shape, seed=1), tuple(geometry)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", CASES)
def test_cases(variant: str, name: str) -> None:
    x, w, geometry = case_of(name)
    for activation in sorted(ACTIVATIONS):
        check(x, w, *geometry, variant=variant, activation=activation, extras=activation != 1)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", CASES)
def test_skips_products_of_padding(variant: str, name: str) -> None:
    """Infinite weights that always lie in the padding, although the call says that they are finite: a product with 0
    would be NaN. Without the promise it is."""
    x, w, geometry = case_of(name)
    outside = naive(np.ones_like(x[:, :1]), np.ones((1, 1, *w.shape[2:]), np.float32), 1, *geometry[1:]) == 0
    expected = naive(x, w, *geometry)
    w[:, :, *[0] * (w.ndim - 2)] = np.inf
    touched = naive(np.ones_like(x[:, :1]), np.isinf(w[:1, :1]).astype(np.float32), 1, *geometry[1:]) > 0
    found = conv(x, w, *geometry, variant=variant)
    same = np.broadcast_to(~touched, found.shape)
    assert same.any()
    np.testing.assert_allclose(found[same], expected[same], rtol=1e-5, atol=1e-5 * w[0].size)
    assert not np.isfinite(found[~same]).any()
    assert (found[np.broadcast_to(outside, found.shape)] == 0).all()
    assert np.isnan(conv(x, w, *geometry, variant=variant, finite=0)[same]).all()


@pytest.mark.parametrize("variant", VARIANTS)
@given(data=st.data())
def test_random_geometry(variant: str, data: st.DataObject) -> None:
    draw = data.draw
    rank = draw(st.sampled_from([1, 2, 2, 2, 3]))

    def per_dim(values: list[int]) -> list[int]:
        return [draw(st.sampled_from(values)) for _ in range(rank)]

    group, channels = draw(st.sampled_from([1, 1, 2, 3])), draw(st.sampled_from([1, 5, 40, 130]))
    maps = draw(st.sampled_from([1, 7, 16, 33, 50]))
    kernel, strides = per_dim([1, 2, 3, 5]), per_dim([1, 1, 2, 3])
    dilations = per_dim([1, 3, 6, 9, 30])
    sizes = per_dim([1, 3, 7, 14, 20] if rank < 3 else [1, 4, 7])
    begin = [draw(st.integers(0, (k - 1) * d + 2)) for k, d in zip(kernel, dilations, strict=True)]
    end = [
        max(draw(st.integers(0, (k - 1) * d + 2)), (k - 1) * d + 1 - n - b)
        for k, d, n, b in zip(kernel, dilations, sizes, begin, strict=True)
    ]
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    x = rng.standard_normal((draw(st.sampled_from([0, 1, 1, 3])), group * channels, *sizes), np.float32)
    w = rng.standard_normal((group * maps, channels, *kernel), np.float32)
    check(
        x, w, group, strides, dilations, begin, end, variant=variant, extras=draw(st.booleans()),
        activation=draw(st.sampled_from(sorted(ACTIVATIONS))),
    )  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", CASES)
def test_bad_inputs_stay_in_their_windows(variant: str, name: str) -> None:
    x, w, geometry = case_of(name)
    flat = x.reshape(-1)
    flat[[0, flat.size // 2, -1]] = [np.nan, np.inf, -np.inf]
    with np.errstate(invalid="ignore"):
        expected = naive(x, w, *geometry)
    found = conv(x, w, *geometry, variant=variant)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    infinite, finite = np.isinf(expected), np.isfinite(expected)
    np.testing.assert_array_equal(found[infinite], expected[infinite])
    np.testing.assert_allclose(found[finite], expected[finite], rtol=1e-5, atol=1e-5 * w[0].size)


@pytest.mark.parametrize("name", CASES)
def test_threads_give_the_same_bits(name: str) -> None:
    x, w, geometry = case_of(name)
    options = {"bias": normal(w.shape[0], seed=5), "activation": 8}
    alone = conv(x, w, *geometry, **options)
    for threads in (1, 2, 3, 7):
        assert np.array_equal(alone, conv(x, w, *geometry, team=_kernels.Team(threads), **options))


def test_rejected() -> None:
    x, w = normal(1, 4, 5, 5), normal(16, 4, 3, 3)
    packed = _kernels.call("pack_b", [w], [((16 * 36,), np.float32)], [1, 36, 16, 1])[0]
    ints, spec = [1, 1, 0, 1, 3, 3, 1, 1, 1, 0, 4, 4, 1, 4, 4], [((1, 16, 5, 5), np.float32)]
    for good in (ints, [*ints, 0], [*ints, 1]):
        _kernels.call("conv", [x, packed], spec, good, [0, 0], 1 << 20)
    for bad in (ints[:-1], [*ints, 1, 1]):
        with pytest.raises(InferenceError):
            _kernels.call("conv", [x, packed], spec, bad, [0, 0], 1 << 20)
    with pytest.raises(InferenceError):
        _kernels.call("conv", [x, packed], spec, [*ints, 1], [0, 0], (1 << 20) - 1)
