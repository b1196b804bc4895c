"""sum_filters against NumPy's sums in float64, bit for bit, in every instruction set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetero import InferenceError, _kernels

pytestmark = pytest.mark.spread(2)

Branch = tuple[np.ndarray | None, np.ndarray, tuple[int, ...]]  # weights, scale, position


def summed(branches: list[Branch], shape: tuple[int, ...]) -> np.ndarray:
    """As the kernel's header defines it."""
    total = np.zeros(shape)
    with np.errstate(all="ignore"):
        for number, (weights, scale, position) in enumerate(branches):
            if weights is None:
                for m in range(shape[0]):
                    total[(m, m % shape[1], *position)] += scale[m]
                continue
            scaled = weights.astype(np.float64) * scale.reshape(-1, *[1] * (weights.ndim - 1))
            taps: list[Any] = [slice(at, at + size) for at, size in zip(position, weights.shape[2:], strict=True)]
            total[(..., *taps)] = scaled if number == 0 else total[(..., *taps)] + scaled
        return total.astype(np.float32)


def call(branches: list[Branch], shape: tuple[int, ...], variant: str | None = None) -> tuple[np.ndarray, bool]:
    operands: list[np.ndarray | None] = []
    ints: list[int] = []
    for weights, scale, position in branches:
        kernel = (1,) * len(position) if weights is None else weights.shape[2:]
        missing = 3 - len(position)
        ints += [*[1] * missing, *kernel, *[0] * missing, *position]
        if weights is not None:
            anywhere = np.zeros(weights.nbytes + 1, np.uint8)[1:]  # as in a file: at an odd address
            anywhere[:] = weights.reshape(-1).view(np.uint8)
            operands += [anywhere, scale]
        else:
            operands += [None, scale]
    specs = [(shape, np.dtype(np.float32)), ((1,), np.dtype(bool))]
    array, finite = _kernels.call("sum_filters", operands, specs, ints, variant=variant)
    return array, bool(finite[0])


@given(data=st.data())
def test_sums(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    rank = data.draw(st.integers(1, 3))
    maps, channels = data.draw(st.integers(0, 5)), data.draw(st.sampled_from([0, 1, 2, 3, 150, 1100]))
    kernel = tuple(data.draw(st.integers(1, 5)) for _ in range(rank))
    if data.draw(st.integers(0, 9)) == 0:
        kernel = (*kernel[:-1], 2500)  # longer than a block
        channels = min(channels, 3)
    shape = (maps, channels, *kernel)
    branches: list[Branch] = []
    for number in range(data.draw(st.integers(1, 4))):
        whole = number == 0 or data.draw(st.booleans())
        size = kernel if whole else tuple(data.draw(st.integers(1, each)) for each in kernel)
        position = tuple(data.draw(st.integers(0, all_ - own)) for all_, own in zip(kernel, size, strict=True))
        scale = rng.standard_normal(maps) * 2.0 ** rng.integers(-60, 60, maps)
        weights = rng.standard_normal((maps, channels, *size)).astype(np.float32)
        for odd in (np.inf, -np.inf, np.nan, 3e38, 1e-45, -0.0):
            if weights.size and data.draw(st.integers(0, 9)) == 0:
                weights.reshape(-1)[rng.integers(weights.size)] = odd
        is_identity = number > 0 and channels > 0 and set(size) == {1} and data.draw(st.booleans())
        branches.append((None if is_identity else weights, scale, position))
    expected = summed(branches, shape)
    for variant in _kernels.variants():
        array, finite = call(branches, shape, variant)
        np.testing.assert_array_equal(array, expected)
        np.testing.assert_array_equal(np.signbit(array[array == 0]), np.signbit(expected[expected == 0]))
        assert finite == bool(np.isfinite(expected).all())


def test_refused() -> None:
    whole, scale = np.ones((2, 3, 3, 3), np.float32), np.ones(2)
    good = [1, 3, 3, 0, 0, 0, 1, 1, 1, 0, 2, 2]
    small = np.ones(2 * 3 * 4, np.uint8)
    operands: list[np.ndarray | None] = [whole.reshape(-1).view(np.uint8), scale, small, scale]
    specs = [(whole.shape, np.dtype(np.float32)), ((1,), np.dtype(bool))]
    _kernels.call("sum_filters", operands, specs, good)
    for at, number in [(0, 2), (1, 2), (2, 0), (3, 1), (6, 0), (7, 2), (8, 1 << 31), (9, 1), (10, 3), (11, -1)]:
        with pytest.raises(InferenceError):
            _kernels.call("sum_filters", operands, specs, [*good[:at], number, *good[at + 1 :]])
    for at, operand in [(0, None), (0, small), (1, None), (1, np.ones(3)), (2, np.ones(23, np.uint8)), (3, np.ones(0))]:
        with pytest.raises(InferenceError):
            _kernels.call("sum_filters", [*operands[:at], operand, *operands[at + 1 :]], specs, good)
    for changed in [operands[:2], operands[:3], operands * 2]:
        with pytest.raises(InferenceError):
            _kernels.call("sum_filters", changed, specs, good)
    for shape in [(2, 3, 9), (2, 3, 1, 1, 3, 3), (3, 2, 3, 3)]:
        with pytest.raises(InferenceError):
            _kernels.call("sum_filters", operands, [(shape, np.dtype(np.float32)), specs[1]], good)
    no_channels = [np.ones(0, np.uint8), scale, None, scale]
    with pytest.raises(InferenceError):
        _kernels.call("sum_filters", no_channels, [((2, 0, 3, 3), np.dtype(np.float32)), specs[1]], good)
    with pytest.raises(InferenceError, match="element types"):
        _kernels.call("sum_filters", operands, [(whole.shape, np.dtype(np.float64)), specs[1]], good)
