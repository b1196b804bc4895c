"""conv with few channels in each group (conv_grouped.c) against a plain convolution, in every instruction set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetero import _kernels
from kernel_arrays import normal
from packed_convolution import Array, check, conv
from plain_convolution import ACTIVATIONS, naive

pytestmark = pytest.mark.spread(2)

VARIANTS = _kernels.variants("conv")
CASES = {  # x, w, group, strides, dilations, pads before, pads after
    "16 channels, 14x14": ((2, 48, 14, 14), (48, 16, 3, 3), 3, (1, 1), (1, 1), (1, 1), (1, 1)),
    "32 channels, 7x7": ((1, 64, 7, 7), (64, 32, 3, 3), 2, (1, 1), (1, 1), (1, 1), (1, 1)),
    "64 channels": ((1, 128, 9, 10), (128, 64, 3, 3), 2, (1, 1), (1, 1), (1, 1), (1, 1)),
    "33 output channels": ((3, 26, 15, 9), (66, 13, 3, 3), 2, (1, 1), (1, 1), (1, 1), (1, 1)),
    "8 channels": ((1, 32, 13, 21), (32, 8, 3, 3), 4, (1, 1), (1, 1), (1, 1), (1, 1)),
    "8 channels, stride 2": ((1, 24, 29, 30), (24, 8, 3, 3), 3, (2, 2), (1, 1), (1, 1), (1, 1)),
    "17 output channels": ((1, 16, 9, 19), (34, 8, 5, 3), 2, (1, 2), (2, 1), (4, 1), (4, 1)),
    "stride 2": ((1, 64, 56, 56), (64, 16, 3, 3), 4, (2, 2), (1, 1), (1, 1), (1, 1)),
    "one group": ((1, 24, 20, 33), (24, 24, 3, 3), 1, (1, 1), (1, 1), (1, 1), (1, 1)),
    "asymmetric": ((1, 32, 11, 13), (32, 16, 2, 3), 2, (2, 1), (1, 2), (0, 3), (2, 0)),
    "5x5": ((1, 48, 10, 17), (48, 24, 5, 5), 2, (1, 1), (1, 1), (2, 2), (2, 2)),
    "1x7": ((1, 64, 17, 17), (64, 32, 1, 7), 2, (1, 1), (1, 1), (0, 3), (0, 3)),
    "dilated": ((1, 32, 14, 14), (32, 16, 3, 3), 2, (1, 1), (2, 3), (2, 3), (2, 3)),
    "kernel larger than the input": ((1, 32, 3, 2), (32, 16, 5, 5), 2, (1, 1), (1, 1), (2, 2), (2, 2)),
    "more padding than input": ((1, 32, 4, 5), (32, 16, 3, 3), 2, (1, 1), (1, 1), (5, 6), (7, 3)),
    "no padding": ((1, 32, 9, 9), (32, 16, 3, 3), 2, (1, 1), (1, 1), (0, 0), (0, 0)),
    "long rows": ((1, 32, 3, 700), (32, 16, 3, 3), 2, (1, 1), (1, 1), (1, 1), (1, 1)),
    "1-D": ((2, 64, 100), (64, 32, 3), 2, (1,), (1,), (1,), (1,)),
    "no pixels of the input": ((1, 32, 0, 4), (32, 16, 3, 3), 2, (1, 1), (1, 1), (2, 1), (2, 1)),
}


def case_of(name: str) -> tuple[Array, Array, tuple[Any, ...]]:
    x_shape, w_shape, *geometry = CASES[name]
    return normal(*x_shape), normal(*w_shape, seed=1), tuple(geometry)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("finite", [0, 1])
def test_cases(variant: str, name: str, finite: int) -> None:
    x, w, geometry = case_of(name)
    for activation in sorted(ACTIVATIONS):
        check(x, w, *geometry, variant=variant, activation=activation, extras=activation != 1, finite=finite)


@pytest.mark.parametrize("variant", VARIANTS)
@given(data=st.data())
def test_random_geometry(variant: str, data: st.DataObject) -> None:
    draw = data.draw
    rank = draw(st.sampled_from([1, 2, 2, 2]))

    def per_dim(values: list[int]) -> list[int]:
        return [draw(st.sampled_from(values)) for _ in range(rank)]

    group, channels = draw(st.sampled_from([1, 2, 3])), draw(st.sampled_from([1, 4, 8, 13, 16, 32, 64]))
    maps = draw(st.sampled_from([5, 12, 16, 24, 32, 48, 64, 70]))
    kernel, strides, dilations = per_dim([1, 2, 3, 3, 5]), per_dim([1, 1, 2, 3]), per_dim([1, 1, 2])
    begin, end, sizes = per_dim([0, 1, 2]), per_dim([0, 1, 2]), per_dim([1, 4, 7, 14, 15, 29, 50])
    geometry = zip(sizes, kernel, dilations, begin, end, strict=True)
    size = [max(n, (k - 1) * d + 1 - b - e) for n, k, d, b, e in geometry]
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    x = rng.standard_normal((draw(st.sampled_from([0, 1, 1, 3])), group * channels, *size), np.float32)
    w = rng.standard_normal((group * maps, channels, *kernel), np.float32)
    check(
        x, w, group, strides, dilations, begin, end, variant=variant, extras=draw(st.booleans()),
        activation=draw(st.sampled_from(sorted(ACTIVATIONS))), finite=draw(st.integers(0, 1)),
    )  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("bad", ["inputs", "weights"])
def test_infinities_and_nan(variant: str, name: str, bad: str) -> None:
    """Infinite weights of kernel rows in the padding make NaN, unless the call says that weights are finite."""
    x, w, geometry = case_of(name)
    flat = (x if bad == "inputs" else w).reshape(-1)
    if flat.size:
        flat[[0, flat.size // 2, -1]] = [np.nan, np.inf, -np.inf]
    with np.errstate(invalid="ignore"):
        expected = naive(x, w, *geometry)
    found = conv(x, w, *geometry, variant=variant, finite=int(bad == "inputs"))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    infinite, finite = np.isinf(expected), np.isfinite(expected)
    np.testing.assert_array_equal(found[infinite], expected[infinite])
    np.testing.assert_allclose(found[finite], expected[finite], rtol=1e-5, atol=1e-5 * w[0].size)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", [name for name in CASES if "no pixels" not in name])
def test_padding_holds_nothing_of_the_rows_beside_it(variant: str, name: str) -> None:
    """Pixels next to the padding of another row, which may be read with it."""
    x, w, geometry = case_of(name)
    for column in (0, -1):
        bad = x.copy()
        bad[..., column] = np.nan
        expected = naive(bad, w, *geometry)
        found = conv(bad, w, *geometry, variant=variant)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * w[0].size)


@pytest.mark.parametrize("variant", VARIANTS)
def test_skips_kernel_rows_in_the_padding(variant: str) -> None:
    x, w, geometry = case_of("16 channels, 14x14")
    expected = naive(x, w, *geometry)
    w[:, :, 0] = np.inf
    found = conv(x, w, *geometry, variant=variant)
    np.testing.assert_allclose(found[:, :, 0], expected[:, :, 0], rtol=1e-5, atol=1e-3)
    assert not np.isfinite(found[:, :, 1:]).any()
    assert np.isnan(conv(x, w, *geometry, variant=variant, finite=0)[:, :, 0]).all()


@pytest.mark.parametrize("name", CASES)
def test_threads_give_the_same_bits(name: str) -> None:
    x, w, geometry = case_of(name)
    bias = normal(w.shape[0], seed=5)
    alone = conv(x, w, *geometry, bias=bias, activation=8)
    for threads in (1, 2, 3, 7):
        team = _kernels.Team(threads)
        assert np.array_equal(alone, conv(x, w, *geometry, bias=bias, activation=8, team=team))
