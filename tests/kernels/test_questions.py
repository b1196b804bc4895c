"""Answers of the kernels to planners: sizes of packed operands are those that the kernels accept, and no others."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetero import _kernels
from hetero._sizes import SizeTrace, ask, is_symbolic
from hetero.errors import InferenceError

HUGE = (1 << 63) - 1


def accepts(kernel: str, inputs: list[np.ndarray[Any, Any]], size: int, dtype: Any, ints: list[int]) -> bool:
    try:
        _kernels.call(kernel, inputs, [((size,), dtype)], ints)
    except InferenceError:
        return False
    return True


def assert_is_the_size(kernel: str, inputs: list[np.ndarray[Any, Any]], size: int, dtype: Any, ints: list[int]) -> None:
    assert accepts(kernel, inputs, size, dtype, ints)
    assert not accepts(kernel, inputs, size + 1, dtype, ints)
    assert size == 0 or not accepts(kernel, inputs, size - 1, dtype, ints)


@pytest.mark.parametrize("k", [0, 1, 4, 5, 33])
@pytest.mark.parametrize("n", [0, 1, 16, 17, 40])
def test_sizes_of_packed_matrices(k: int, n: int) -> None:
    assert ask("panel_floats", k, n) == -(-n // 16) * 16 * k
    assert_is_the_size("pack_b", [np.ones((k, n), np.float32)], ask("panel_floats", k, n), np.float32, [1, k, n, 0])
    assert ask("quad_bytes", k, n) == -(-n // 16) * 64 * (-(-k // 4) + 2)
    matrix, zero = np.ones((k, n), np.uint8), np.zeros(1, np.uint8)
    assert_is_the_size("pack_quads", [matrix, zero], ask("quad_bytes", k, n), np.uint8, [1, k, n])


@pytest.mark.parametrize(("channels", "maps", "tile"), [(1, 1, 2), (5, 16, 4), (17, 33, 2)])
def test_sizes_of_packed_winograd_filters(channels: int, maps: int, tile: int) -> None:
    size = ask("winograd_floats", channels, maps, tile)
    weights = np.ones((2 * maps, channels, 3, 3), np.float32)
    assert_is_the_size("pack_winograd", [weights], 2 * size, np.float32, [2, channels, maps, tile])


TRIPLE = st.tuples(*[st.integers(1, 4)] * 3)


@given(
    group=st.integers(1, 3), channels=st.sampled_from([1, 2, 4, 5, 9]),
    maps=st.integers(0, 5), images=st.integers(0, 2),
    kernel=TRIPLE, strides=TRIPLE, dilations=TRIPLE, sizes=st.tuples(*[st.integers(0, 5)] * 3),
)  # fmt: skip
def test_sizes_of_packed_images_and_filters(
    group: int,
    channels: int,
    maps: int,
    images: int,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    sizes: tuple[int, ...],
) -> None:
    ints = [group, channels, *kernel, *strides, 0, 0, 0, *dilations, *sizes]
    steps, positions = -(-channels // 4), 1
    for axis in range(3):
        if channels == 1 and axis == 2:
            steps, positions = steps * -(-kernel[2] // 4), positions * -(-kernel[2] // 4) * sizes[2]
            continue
        phases = min(kernel[axis], strides[axis] // math.gcd(strides[axis], dilations[axis]))
        steps *= kernel[axis]
        positions *= phases * (sizes[axis] + (kernel[axis] - 1) * dilations[axis] // strides[axis])
    assert ask("pixel_bytes", images, *ints) == images * group * -(-channels // 4) * 4 * positions + 128
    assert ask("filter_bytes", maps, *ints) == (maps + 1) * 4 * (steps + 2)
    weights, zero = np.ones((maps, channels, *kernel), np.int8), np.zeros(1, np.int8)
    assert_is_the_size("pack_filters", [weights, zero], ask("filter_bytes", maps, *ints), np.uint8, ints)
    image = np.ones((images, group * channels, 3, 2, 4), np.int8)
    assert_is_the_size("pack_pixels", [image, zero], ask("pixel_bytes", images, *ints), np.uint8, ints)
    rows, columns = sizes[1] + (kernel[1] - 1) * dilations[1] // strides[1], sizes[2]
    columns += 0 if channels == 1 else (kernel[2] - 1) * dilations[2] // strides[2]
    pixels = 0 if 0 in sizes else ((sizes[0] - 1) * rows + sizes[1] - 1) * columns + sizes[2]
    if (*kernel, *strides) == (1,) * 6:
        pixels = math.prod(sizes)
    assert ask("integer_columns", *ints) == -(-pixels // 16) * 16


@given(
    sizes=st.tuples(*[st.integers(1, 9)] * 3), outputs=st.tuples(*[st.integers(1, 9)] * 3), kernel=TRIPLE,
    strides=TRIPLE, pads=st.tuples(*[st.integers(0, 9)] * 3), dilations=st.tuples(*[st.integers(1, 9)] * 3),
)  # fmt: skip
def test_products_that_are_not_of_padding(
    sizes: tuple[int, ...], outputs: tuple[int, ...], kernel: tuple[int, ...], strides: tuple[int, ...],
    pads: tuple[int, ...], dilations: tuple[int, ...],
) -> None:  # fmt: skip
    kept = 1024.0
    for size, count, taps, stride, pad, dilation in zip(sizes, outputs, kernel, strides, pads, dilations, strict=True):
        places = np.add.outer(np.arange(count) * stride - pad, np.arange(taps) * dilation)
        kept *= ((places >= 0) & (places < size)).mean()
    found = ask("conv_kept", *sizes, *outputs, *kernel, *strides, *pads, *dilations)
    assert found in (math.floor(kept - 1e-9), math.floor(kept + 1e-9))


@pytest.mark.parametrize(("channels", "multiplier"), [(1, 1), (64, 2), (65, 1)])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (2, 5)])
def test_sizes_of_packed_depthwise_filters(channels: int, multiplier: int, kernel: tuple[int, int]) -> None:
    ints = [channels, 1, 1, *kernel, 1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 9, 9]
    weights = np.ones((channels * multiplier, 1, *kernel), np.int8)
    size = ask("depthwise_bytes", channels * multiplier, *ints)
    assert size == multiplier * -(-channels // 64) * 256 * (2 * -(-math.prod(kernel) // 4) + 1)
    assert_is_the_size("pack_depthwise", [weights, np.int8(3)], size, np.uint8, ints)


def test_depthwise_convolutions_that_do_not_pay() -> None:
    usual = [20, 20, 8, 1, 1, 3, 3, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 20, 20]
    assert ask("depthwise_pays", *usual) == 1
    # fewer channels, no pixels, no outputs, more channels per group, a window along the first axis, rows too long
    for position, number in [(2, 7), (0, 0), (1, 0), (17, 0), (18, 0), (3, 4), (4, 2), (18, 1 << 16), (15, 1 << 20)]:
        changed = usual.copy()
        changed[position] = number
        assert ask("depthwise_pays", *changed) == 0
    width = (1 << 22) // 64 // 3 - 2  # three rows of this width fit in 4 MiB, and three wider ones do not
    assert [ask("depthwise_pays", *usual[:18], columns) for columns in (width, width + 1)] == [1, 0]


def test_points_of_fourier_transforms() -> None:
    def largest_factor(number: int) -> int:
        factors = [factor for factor in range(2, number + 1) if number % factor == 0]
        return max((f for f in factors if all(f % other for other in range(2, f))), default=1)

    for length in range(1, 400):
        chirp = 1 << (2 * length - 2).bit_length()
        assert ask("dft_points", length) == (length if largest_factor(length) <= 61 else chirp)
    assert ask("dft_points", 0) == -1


def test_sizes_that_do_not_fit_64_bits() -> None:
    large = 1 << 40
    assert ask("panel_floats", large, large) == ask("quad_bytes", large, large) == HUGE
    window = [1 << 30] * 3 + [1] * 3 + [0] * 3 + [1 << 30] * 3
    assert ask("pixel_bytes", large, 1, 4, *window, large, large, large) == HUGE
    assert ask("filter_bytes", large, 1, large, *window, 1, 1, 1) == HUGE
    assert ask("depthwise_pays", 1, 1, 64, 1, 1, *window[1:3], *window[3:6], *window[6:9], *window[9:], 1, 1, 1) == 0
    assert ask("pixel_bytes", 1, 0, 4, *window, 1, 1, 1) == -1  # no group


def test_questions_that_do_not_exist() -> None:
    with pytest.raises(ValueError, match="no question 'quad_byte' .did you mean quad_bytes"):
        ask("quad_byte", 1, 2)
    with pytest.raises(ValueError, match="quad_bytes: expected 2 arguments, found 1"):
        ask("quad_bytes", 1)


def test_a_question_is_recorded_once() -> None:
    trace = SizeTrace()
    size = trace.dim(0, 0, 5)
    assert ask("quad_bytes", size, 3) is ask("quad_bytes", size, 3)
    assert is_symbolic(ask("quad_bytes", size, 3))
    assert not is_symbolic(ask("quad_bytes", 5, 3))
    steps, _ = trace.steps()
    assert len(steps) == 4  # the size, two arguments, the question


@pytest.mark.parametrize(
    ("question", "arguments", "answer"),
    [
        ("gemm_parts", (64, 512, 768), 1),
        ("gemm_parts", (8, 512, 768), 0),
        ("gemm_parts", (64, 8, 768), 0),
        ("gemm_parts", (512, 512, 32), 0),
        *[
            (question, arguments, answer)
            for question in ("conv_tiled", "conv_parts")
            for arguments, answer in (
                ((128, 400, 400, 64, 1, 1024), 1),
                ((128, 400, 400, 8, 9, 1024), 1),
                ((1, 400, 400, 64, 1, 1024), 0),
                ((128, 400, 4, 64, 1, 1024), 0),
                ((128, 400, 400, 1, 1, 1024), 0),
                ((128, 400, 400, 64, 1, 100), 0),
            )
        ],
        ("conv_tiled", (512, 63, 63, 64, 1, 1024), 1),
        ("conv_parts", (512, 63, 63, 64, 1, 1024), 0),
        ("conv_parts", (64, 400, 400, 64, 1, 1024), 1),
        ("conv_parts", (64, 1600, 400, 64, 1, 1024), 0),
    ],
)
def test_tiles_where_they_pay(question: str, arguments: tuple[int, ...], answer: int) -> None:
    """Planners ask only on processors with AMX."""
    assert ask(question, *arguments) == answer
