"""3x3 convolutions by Winograd's filtering against a plain NumPy convolution in float64, in every instruction set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetero import _kernels
from hetero._sizes import ask
from hetero.errors import InferenceError
from packed_convolution import after_activation, followed
from plain_convolution import ACTIVATIONS, naive

pytestmark = pytest.mark.spread(2)

VARIANTS = _kernels.variants("conv", "pack_winograd")
Array = np.ndarray[Any, Any]
# Rounding of the transforms, as a part of ``size``.
TOLERANCE = {2: 2e-6, 4: 6e-6}


def scratch_bytes(channels: int, tile: int) -> int:
    """What conv_winograd.c takes, rounded up."""
    positions = (tile + 2) ** 2
    return max(1 << 20, 4 * positions * (channels + 70) * (block_of(channels, tile) + 16) + (1 << 16))


def block_of(channels: int, tile: int) -> int:
    """Tiles of a block."""
    panels = (4 << 20) // ((tile + 2) ** 2 * channels * 64)
    return 16 * max(1, min(3, panels))


def blocks_of(tiles: int, columns: int) -> int:
    """At most four tiles more do not make another block."""
    whole, rest = divmod(tiles, columns)
    return whole if whole and rest <= 4 else whole + 1


def pack(w: Array, group: int, tile: int, variant: str) -> Array:
    maps, channels = w.shape[0] // group, w.shape[1]
    size = group * -(-maps // 16) * 16 * ((tile + 2) ** 2 * channels + 1)
    packed: Array = _kernels.call(
        "pack_winograd", [w], [((size,), np.float32)], [group, channels, maps, tile], variant=variant
    )[0]
    return packed


def convolve(
    x: Array, w: Array, shape: tuple[int, ...], group: int, tile: int, begin: Sequence[int], variant: str,
    bias: Array | None = None, addend: Array | None = None, activation: int = 0, scale: Array | None = None,
    after: Sequence[Array] = (),
) -> Array:  # fmt: skip
    ints = [group, tile, activation, 1, 3, 3, 1, 1, 1, 0, *begin, 1, 1, 1]
    scratch = scratch_bytes(x.shape[1] // group, tile) + 4 * (x.size + int(np.prod(shape)) + 32)
    packed = pack(w if scale is None else w * scale.reshape(-1, 1, 1, 1), group, tile, variant)
    operands = [x, packed, bias, addend, as_bytes(w), scale, *after]
    y: Array = _kernels.call("conv", operands, [(shape, np.float32)], ints, [-1, 2], scratch, variant)[0]
    return y


def convolve_phases(
    x: Array, w: Array, shape: tuple[int, ...], group: int, tile: int, begin: Sequence[int], variant: str,
    bias: Array | None, activation: int, dilations: Sequence[int],
) -> Array:  # fmt: skip
    """A convolution with dilations: of the phases of x, and back."""
    lengths = [
        ask("phase_length", *sizes, tile) for sizes in zip(x.shape[2:], shape[2:], dilations, begin, strict=True)
    ]
    sizes = [int(length * dilation) for length, dilation in zip(lengths, dilations, strict=True)]
    ints = [*dilations, *lengths, *begin]
    (split,) = _kernels.call("phases", [x], [((*x.shape[:2], *sizes), x.dtype)], [0, *ints], variant=variant)
    found = convolve(split, w, (*shape[:2], *sizes), group, tile, [0, 0], variant, bias, None, activation)
    y: Array = _kernels.call("phases", [found], [(shape, x.dtype)], [1, *ints], variant=variant)[0]
    return y


def size_of(x: Array, w: Array, group: int, dilations: Sequence[int]) -> float:
    """The largest output that random signs let expect, for the kernel at any place. The outputs themselves may be much
    smaller, even 0, where terms cancel or the kernel lies on padding: the transforms mix all that a tile holds."""
    largest = np.broadcast_to((w**2).max((2, 3), keepdims=True), w.shape)
    around = [2 * dilation for dilation in dilations]
    return float(np.sqrt(naive(x**2, largest, group, [1, 1], dilations, around, around).max()))


def as_bytes(w: Array) -> Array:
    """The weights' bytes, at an odd address."""
    room = np.empty(w.nbytes + 1, np.uint8)
    room[1:] = w.reshape(-1).view(np.uint8)
    return room[1:]


@pytest.mark.parametrize("variant", VARIANTS)
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
    addend = rng.standard_normal(expected.shape, np.float32) if draw(st.booleans()) and dilations == (1, 1) else None
    activation = draw(st.sampled_from(sorted(ACTIVATIONS)))
    after = [] if addend is None else after_activation(expected.shape)
    if dilations == (1, 1):
        found = convolve(x, w, expected.shape, group, tile, begin, variant, bias, addend, activation, after=after)
    else:
        found = convolve_phases(x, w, expected.shape, group, tile, begin, variant, bias, activation, dilations)
    scale = size_of(x, w, group, dilations)
    expected = expected + (0 if bias is None else bias.reshape(-1, 1, 1)) + (0 if addend is None else addend)
    expected = followed(ACTIVATIONS[activation](expected), after)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=4 * TOLERANCE[tile] * scale + 1e-6)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize("maps", [16, 20, 100])
def test_many_channels(variant: str, tile: int, maps: int) -> None:
    """More than a block of channels, and blocks of 16 tiles or fewer, with one to three panels of weights at a time."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 530, 9, 14), np.float32), rng.standard_normal((maps, 530, 3, 3), np.float32)
    expected = naive(x, w, 1, [1, 1], [1, 1], [1, 1], [1, 1])
    found = convolve(x, w, expected.shape, 1, tile, [1, 1], variant)
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE[tile] * np.abs(expected).max())


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize(
    ("down", "across"),
    [(1, 1), (1, 16), (1, 17), (16, 1), (5, 3), (3, 16), (47, 1), (7, 7), (17, 3), (1, 52), (1, 53), (2, 50), (10, 11)],
)
def test_blocks_of_tiles(variant: str, tile: int, down: int, across: int) -> None:
    """Rows of tiles that share a vector, or that two blocks share; 48 tiles, up to 4 more, and 5 more."""
    rng = np.random.default_rng(down * across)
    for height, width in ((tile * down, tile * across), (tile * down - tile + 1, tile * across - 1)):
        x, w = rng.standard_normal((1, 5, height, width), np.float32), rng.standard_normal((70, 5, 3, 3), np.float32)
        expected = naive(x, w, 1, [1, 1], [1, 1], [1, 1], [1, 1])
        found = convolve(x, w, expected.shape, 1, tile, [1, 1], variant)
        np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE[tile] * np.abs(expected).max())


@pytest.mark.parametrize("tile", [2, 4])
def test_rounding_is_that_of_a_plain_sum(tile: int) -> None:
    """The points of interpolation are chosen so: with the usual 1 and 2 in place of the roots, the error of tiles of
    4 x 4 is some four times as large."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 64, 32, 32), np.float32), rng.standard_normal((32, 64, 3, 3), np.float32)
    expected = naive(x, w, 1, [1, 1], [1, 1], [1, 1], [1, 1])
    found = convolve(x, w, expected.shape, 1, tile, [1, 1], VARIANTS[-1])
    assert np.sqrt(np.mean((found - expected) ** 2)) < {2: 1e-6, 4: 1.5e-6}[tile] * expected.std()


@pytest.mark.parametrize("tile", [2, 4])
def test_packed_alike_by_all_variants(tile: int) -> None:
    w = np.random.default_rng(0).standard_normal((10, 6, 3, 3), np.float32)
    packed = [pack(w, 2, tile, variant) for variant in VARIANTS]
    for other in packed[1:]:
        np.testing.assert_array_equal(other, packed[0])


BAD = [np.nan, np.inf, -np.inf, 1e38, -3e30, 1e20, 1e10, 1e6]


def affected(x: Array, wrong: Array, dilations: Sequence[int] = (1, 1)) -> Array:
    """Where windows of a 3x3 kernel with a pad of the dilation hold a true element of ``wrong``, over all channels."""
    marked = np.pad(wrong.any(1, keepdims=True), [(0, 0), (0, 0), (dilations[0],) * 2, (dilations[1],) * 2])
    height, width = x.shape[2:]
    reached: Array = np.zeros((x.shape[0], 1, height, width), bool)
    for dy in range(3):
        for dx in range(3):
            top, left = dy * dilations[0], dx * dilations[1]
            reached |= marked[:, :, top : top + height, left : left + width]
    return reached


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize("dilations", [(1, 1), (2, 3)])
def test_bad_inputs_stay_in_their_windows(variant: str, tile: int, dilations: tuple[int, int]) -> None:
    """A bad value at every place of a tile does not change outputs whose windows do not hold it."""
    rng = np.random.default_rng(0)
    for number, (value, channels, size) in enumerate(
        zip(BAD * 5, [1, 3, 20, 5, 64] * 8, [(9, 11), (23, 70), (6, 6), (14, 33), (5, 140)] * 8, strict=True)
    ):
        x, w = rng.standard_normal((2, channels, *size), np.float32), rng.uniform(-0.5, 0.5, (17, channels, 3, 3))
        w = w.astype(np.float32)
        bias, addend = rng.standard_normal(17, np.float32), rng.standard_normal((2, 17, *size), np.float32)
        clean = naive(x, w, 1, [1, 1], dilations, dilations, dilations) + bias.reshape(-1, 1, 1) + addend
        wrong = np.zeros(x.shape, bool)
        wrong[number % 2, number % channels, number % size[0], number * 3 % size[1]] = True
        x[wrong] = value
        expected = naive(x, w, 1, [1, 1], dilations, dilations, dilations) + bias.reshape(-1, 1, 1) + addend
        size_of_terms = naive(np.abs(x), np.abs(w), 1, [1, 1], dilations, dilations, dilations)
        reached = np.broadcast_to(affected(x, wrong, dilations), clean.shape)
        if dilations == (1, 1):
            after = after_activation(clean.shape)
            found = convolve(x, w, clean.shape, 1, tile, dilations, variant, bias, addend, after=after)
            clean, expected = followed(clean, after), followed(expected, after)
        else:
            found = convolve_phases(x, w, clean.shape, 1, tile, dilations, variant, bias, 0, dilations) + addend
        error = np.abs(found[~reached] - clean[~reached])
        assert error.max() <= TOLERANCE[tile] * np.abs(clean).max() + 1e-6, (value, channels, size)
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(np.isnan(found[reached]), np.isnan(expected[reached]))
            infinite = np.isinf(expected[reached])
            np.testing.assert_array_equal(found[reached][infinite], expected[reached][infinite])
            finite = reached & np.isfinite(expected)
        bound = 1e-5 * size_of_terms[finite] + TOLERANCE[tile] * (abs(value) if abs(value) < np.inf else 1)
        assert (np.abs(found[finite] - expected[finite]) <= bound).all()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("tile", [2, 4])
def test_bad_weights_stay_in_their_outputs(variant: str, tile: int) -> None:
    """A weight that is extreme or not finite does not change other filters, and its own filter equals a plain sum. In
    groups, and with a factor per filter."""
    rng = np.random.default_rng(0)
    for value in BAD:
        x, w = rng.standard_normal((1, 6, 9, 14), np.float32), rng.uniform(-0.5, 0.5, (34, 3, 3, 3)).astype(np.float32)
        x[0, :, 3:7] = 0  # a large weight meets nothing but zeros
        scale = rng.uniform(0.5, 2, 34).astype(np.float32)
        w[20, 1, 2, 0] = w[33, 2, 0, 0] = value
        scaled = w * scale.reshape(-1, 1, 1, 1)
        with np.errstate(invalid="ignore"):
            expected = naive(x, scaled, 2, [1, 1], [1, 1], [1, 1], [1, 1])
            terms = naive(np.abs(x), np.abs(scaled), 2, [1, 1], [1, 1], [1, 1], [1, 1])
        found = convolve(x, w, expected.shape, 2, tile, [1, 1], variant, scale=scale)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
        extreme = np.zeros(expected.shape, bool)
        extreme[:, [20, 33]] = True
        ordinary = np.abs(expected[~extreme])
        assert np.abs(found[~extreme] - expected[~extreme]).max() <= TOLERANCE[tile] * ordinary.max()
        finite = extreme & np.isfinite(expected)
        assert (np.abs(found[finite] - expected[finite]) <= 2e-6 * terms[finite] + 1e-6).all()
        np.testing.assert_array_equal(found[np.isinf(expected)], expected[np.isinf(expected)])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize("largest", [100, 8000, 9000, 1e9])
def test_large_inputs_leave_little_behind(variant: str, tile: int, largest: float) -> None:
    """As docs/cpu.md states, outside its windows an input leaves at most the rounding error of an input of 8,192, or of
    1,024 times the largest input there. With all inputs large, and with one large input."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 16, 30, 30), np.float32), rng.uniform(-0.5, 0.5, (16, 16, 3, 3)).astype(np.float32)
    alone = x.copy()
    alone[0, 3, 13, 14] = largest
    for inputs in (alone, x * np.float32(largest)):
        expected = naive(inputs, w, 1, [1, 1], [1, 1], [1, 1], [1, 1])
        found = convolve(inputs, w, expected.shape, 1, tile, [1, 1], variant)
        window = naive(np.abs(inputs), np.ones((1, 16, 3, 3), np.float32), 1, [1, 1], [1, 1], [1, 1], [1, 1])
        bound = TOLERANCE[tile] * np.maximum(min(largest, 8192), window)
        assert (np.abs(found - expected) <= bound).all()


def test_everything_bad() -> None:
    """All inputs are NaN, infinite, or so large that the transforms would overflow."""
    w = np.full((20, 8, 3, 3), 0.01, np.float32)
    for value in (np.nan, np.inf, 1e37):
        x = np.full((1, 8, 13, 13), value, np.float32)
        found = convolve(x, w, (1, 20, 13, 13), 1, 4, [1, 1], VARIANTS[-1])
        with np.errstate(invalid="ignore"):
            expected = naive(x, w, 1, [1, 1], [1, 1], [1, 1], [1, 1])
        if np.isinf(value):
            np.testing.assert_array_equal(np.isinf(found[..., 1:-1, 1:-1]), True)
        else:
            np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_rejected() -> None:
    x, w = np.ones((1, 4, 5, 5), np.float32), np.ones((4, 4, 3, 3), np.float32)
    packed, spec, good = (
        pack(w, 1, 4, VARIANTS[-1]),
        [((1, 4, 5, 5), np.float32)],
        [1, 4, 0, 1, 3, 3, 1, 1, 1, 0, 1, 1, 1, 1, 1],
    )
    scratch = scratch_bytes(4, 4)
    operands = [x, packed, None, None, as_bytes(w)]
    _kernels.call("conv", operands, spec, good, [0, 0], scratch)
    for at, value in [(1, 2), (1, 3), (1, 5), (4, 2), (7, 2), (9, 1), (14, 0)]:
        bad = good.copy()
        bad[at] = value
        with pytest.raises(InferenceError):
            _kernels.call("conv", operands, spec, bad, [0, 0], scratch)
    bad_operands: list[list[Array | None]] = [
        [x, packed],
        [x, packed[:-1].copy(), None, None, as_bytes(w)],
        [x, packed, None, None, as_bytes(w)[:-1]],
        [x, packed, None, None, w],
        [x, packed, None, None, as_bytes(w), np.ones(3, np.float32)],
    ]
    for wrong in bad_operands:
        with pytest.raises(InferenceError):
            _kernels.call("conv", wrong, spec, good, [0, 0], scratch)
    for ints in ([1, 4, 4, 3], [0, 4, 4, 4], [1, 5, 4, 4]):
        with pytest.raises(InferenceError):
            _kernels.call("pack_winograd", [w], [(packed.shape, np.float32)], ints)


@pytest.mark.parametrize(
    ("channels", "maps", "size", "tile"),
    [
        (64, 64, (56, 56), 4),
        (256, 256, (16, 16), 4),
        (256, 256, (10, 10), 2),
        (512, 512, (7, 7), 2),
        (3, 32, (416, 416), 0),
        (1, 1, (1, 1), 0),
        (64, 64, (9000, 9000), 0),
    ],
)
def test_chosen_where_it_pays(channels: int, maps: int, size: tuple[int, int], tile: int) -> None:
    assert chosen_tile(channels, maps, size) == tile


def chosen_tile(channels: int, maps: int, size: tuple[int, int], dilations: tuple[int, int] = (1, 1)) -> int:
    return ask("winograd_tile", channels, maps, 1, *size, 1, *size, 1, 3, 3, 1, 1, 1, 0, *dilations, 1, *dilations)


def test_chosen_for_phases_of_dilations() -> None:
    assert chosen_tile(256, 256, (28, 28), (4, 4)) == 4
    assert chosen_tile(8, 8, (28, 28), (4, 4)) == 0
    assert chosen_tile(256, 256, (28, 28), (4, 29)) == 0  # most phases would have no outputs


@pytest.mark.parametrize(
    ("position", "number"),
    [
        (0, 0), (0, 8193), (1, 0),  # channels
        (2, 2), (4, 8193), (5, 2), (6, 0), (7, 0), (7, 8193),  # sizes of x and y
        (8, 2), (9, 1), (10, 5),  # kernel
        (12, 2), (13, 2),  # strides
        (14, 1), (15, (1 << 20) + 1), (16, (1 << 20) + 1),  # pads
        (18, 57), (19, 1 << 40),  # dilations
    ],
)  # fmt: skip
def test_not_chosen_for_convolutions_that_the_kernel_refuses(position: int, number: int) -> None:
    arguments = [64, 64, 1, 56, 56, 1, 56, 56, 1, 3, 3, 1, 1, 1, 0, 1, 1, 1, 1, 1]
    assert ask("winograd_tile", *arguments) == 4
    arguments[position] = number
    assert ask("winograd_tile", *arguments) == 0


def test_the_estimate_is_the_one_that_was_fitted() -> None:
    """The formula in Python, for many shapes."""
    rng = np.random.default_rng(0)
    for number in range(3000):
        channels, maps = (int(2 ** rng.uniform(0, 11)) for _ in range(2))
        size = int(2 ** rng.uniform(0, 9)), int(2 ** rng.uniform(0, 9))
        dilations = (1, 1) if number % 3 else (int(2 ** rng.uniform(0, 5)), int(2 ** rng.uniform(0, 5)))
        assert chosen_tile(channels, maps, size, dilations) == fitted_tile(channels, maps, size, dilations)


def fitted_tile(channels: int, maps: int, size: tuple[int, int], dilations: tuple[int, int]) -> int:
    taps = 9.0
    if max(dilations) > 1:
        taps = 1.0
        for n, dilation in zip(size, dilations, strict=True):
            inside = [0 <= at + tap * dilation < n for at in range(n) for tap in (-1, 0, 1)]
            taps *= sum(inside) / n
    height, width = size
    vectors = min(width * -(-maps // 16), -(-width // 16) * maps)
    costs = {0: 0.9 * height * (channels * taps / 0.8 * vectors + width * maps / 2)}
    for tile, transform, move in ((4, 330, 150), (2, 130, 60)):
        if max(dilations) > 1:  # each phase begins with a row of padding, and at a tile
            height, width = (d * tile * -(-(-(-n // d) + 1) // tile) for n, d in zip(size, dilations, strict=True))
        positions = (tile + 2) ** 2
        together = block_of(channels, tile)
        weights = 4 * positions * channels * maps
        down, across = -(-height // tile), -(-width // tile)
        tiles = down * across
        if tile == 4 and weights > 12 << 20:
            continue
        blocks = blocks_of(tiles, together)
        panels = (blocks - 1) * together / 16 + -(-(tiles - (blocks - 1) * together) // 16)
        read = weights * blocks / (10 if weights < 16 << 20 else 4)
        product = positions * channels * maps * panels / 0.85
        moves = move * down * -(-across // 16)
        calls = positions * -(-maps // 8) * blocks
        copies = 1.5 * height * width if max(dilations) > 1 else 0
        of_channels = transform * max(1.0, tiles / 16) + moves + copies
        costs[tile] = max(product, read) + (channels + maps) * of_channels + 150 * calls
    return min(costs, key=lambda tile: costs[tile])
