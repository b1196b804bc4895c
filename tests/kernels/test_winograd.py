"""3x3 convolutions by Winograd's filtering against a plain NumPy convolution in float64, in every instruction set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetero import _kernels
from hetero.devices.cpu.convolution import winograd_tile
from hetero.errors import InferenceError
from plain_convolution import ACTIVATIONS, naive

VARIANTS = _kernels.variants()
Array = np.ndarray[Any, Any]
# Of the largest output, for inputs and weights of one size: rounding of the transforms.
TOLERANCE = {2: 2e-6, 4: 6e-6}


def scratch_bytes(channels: int, tile: int) -> int:
    """What conv_winograd.c takes, rounded up."""
    positions = (tile + 2) ** 2
    columns = 32 if positions * channels * 32 * 4 <= 640 << 10 else 16
    return max(1 << 20, 4 * positions * (channels + 17) * columns + (1 << 16))


def pack(w: Array, group: int, tile: int, variant: str) -> Array:
    maps, channels = w.shape[0] // group, w.shape[1]
    size = group * (tile + 2) ** 2 * -(-maps // 16) * 16 * channels
    packed: Array = _kernels.call(
        "pack_winograd", [w], [((size,), np.float32)], [group, channels, maps, tile], variant=variant
    )[0]
    return packed


def convolve(
    x: Array, packed: Array, shape: tuple[int, ...], group: int, tile: int, begin: Sequence[int], variant: str,
    bias: Array | None = None, addend: Array | None = None, activation: int = 0, dilations: Sequence[int] = (1, 1),
) -> Array:  # fmt: skip
    ints = [group, tile, activation, 1, 3, 3, 1, 1, 1, 0, *begin, 1, *dilations]
    scratch = scratch_bytes(x.shape[1] // group, tile) + 4 * (x.size + int(np.prod(shape)) + 32)
    y: Array = _kernels.call("conv", [x, packed, bias, addend], [(shape, np.float32)], ints, [-1, 2], scratch, variant)[
        0
    ]
    return y


@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_random_geometry(variant: str, data: st.DataObject) -> None:
    draw = data.draw
    tile, group, batch = draw(st.sampled_from([2, 4])), draw(st.sampled_from([1, 1, 2])), draw(st.sampled_from([1, 2]))
    channels, maps = draw(st.sampled_from([1, 2, 5, 17, 40])), draw(st.sampled_from([1, 7, 16, 33, 50]))
    begin, end = ([draw(st.sampled_from([0, 1, 1, 2, 5])) for _ in range(2)] for _ in range(2))
    dilations = draw(st.sampled_from([(1, 1), (1, 1), (2, 2), (1, 3), (4, 2)]))
    size = [
        max(2 * d + 1 - b - e, draw(st.sampled_from([1, 3, 7, 13, 14, 20, 64, 65, 130])))
        for b, e, d in zip(begin, end, dilations, strict=True)
    ]
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    x = rng.standard_normal((batch, group * channels, *size), np.float32)
    w = rng.standard_normal((group * maps, channels, 3, 3), np.float32)
    expected = naive(x, w, group, [1, 1], dilations, begin, end)
    bias = rng.standard_normal(group * maps, np.float32) if draw(st.booleans()) else None
    addend = rng.standard_normal(expected.shape, np.float32) if draw(st.booleans()) else None
    activation = draw(st.sampled_from(sorted(ACTIVATIONS)))
    found = convolve(
        x,
        pack(w, group, tile, variant),
        expected.shape,
        group,
        tile,
        begin,
        variant,
        bias,
        addend,
        activation,
        dilations,
    )
    scale = np.abs(expected).max()
    expected = expected + (0 if bias is None else bias.reshape(-1, 1, 1)) + (0 if addend is None else addend)
    np.testing.assert_allclose(found, ACTIVATIONS[activation](expected), rtol=1e-6, atol=TOLERANCE[tile] * scale + 1e-6)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("tile", [2, 4])
def test_many_channels(variant: str, tile: int) -> None:
    """More than a block of channels, and blocks of 16 tiles."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 530, 9, 14), np.float32), rng.standard_normal((20, 530, 3, 3), np.float32)
    expected = naive(x, w, 1, [1, 1], [1, 1], [1, 1], [1, 1])
    found = convolve(x, pack(w, 1, tile, variant), expected.shape, 1, tile, [1, 1], variant)
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE[tile] * np.abs(expected).max())


@pytest.mark.parametrize("tile", [2, 4])
def test_rounding_is_that_of_a_plain_sum(tile: int) -> None:
    """The points of interpolation are chosen so: with the usual 1 and 2 in place of the roots, the error of tiles of
    4 x 4 is some four times as large."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 64, 32, 32), np.float32), rng.standard_normal((32, 64, 3, 3), np.float32)
    expected = naive(x, w, 1, [1, 1], [1, 1], [1, 1], [1, 1])
    found = convolve(x, pack(w, 1, tile, VARIANTS[-1]), expected.shape, 1, tile, [1, 1], VARIANTS[-1])
    assert np.sqrt(np.mean((found - expected) ** 2)) < {2: 1e-6, 4: 1.5e-6}[tile] * expected.std()


@pytest.mark.parametrize("tile", [2, 4])
def test_packed_alike_by_all_variants(tile: int) -> None:
    w = np.random.default_rng(0).standard_normal((10, 6, 3, 3), np.float32)
    packed = [pack(w, 2, tile, variant) for variant in VARIANTS]
    for other in packed[1:]:
        np.testing.assert_array_equal(other, packed[0])


def test_rejected() -> None:
    x, w = np.ones((1, 4, 5, 5), np.float32), np.ones((4, 4, 3, 3), np.float32)
    packed, spec, good = (
        pack(w, 1, 4, VARIANTS[-1]),
        [((1, 4, 5, 5), np.float32)],
        [1, 4, 0, 1, 3, 3, 1, 1, 1, 0, 1, 1, 1, 1, 1],
    )
    scratch = scratch_bytes(4, 4)
    _kernels.call("conv", [x, packed], spec, good, [0, 0], scratch)
    for at, value in [(1, 2), (1, 3), (1, 5), (4, 2), (7, 2), (9, 1), (14, 0)]:
        bad = good.copy()
        bad[at] = value
        with pytest.raises(InferenceError):
            _kernels.call("conv", [x, packed], spec, bad, [0, 0], scratch)
    with pytest.raises(InferenceError):
        _kernels.call("conv", [x, packed[:-1].copy()], spec, good, [0, 0], scratch)
    for ints in ([1, 4, 4, 3], [0, 4, 4, 4], [1, 5, 4, 4]):
        with pytest.raises(InferenceError):
            _kernels.call("pack_winograd", [w], [(packed.shape, np.float32)], ints)


@pytest.mark.parametrize(
    ("channels", "maps", "size", "tile"),
    [
        (64, 64, (56, 56), 4),
        (512, 512, (7, 7), 2),
        (3, 32, (416, 416), 0),
        (1, 1, (1, 1), 0),
        (64, 64, (9000, 9000), 0),
    ],
)
def test_chosen_where_it_pays(channels: int, maps: int, size: tuple[int, int], tile: int) -> None:
    assert winograd_tile(channels, maps, size, size) == tile


def test_chosen_for_phases_of_dilations() -> None:
    assert winograd_tile(256, 256, (28, 28), (28, 28), (4, 4)) == 2
    assert winograd_tile(8, 8, (28, 28), (28, 28), (4, 4)) == 0
