"""cumsum against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from hetero import _kernels

pytestmark = pytest.mark.spread(2)

VARIANTS = _kernels.variants("cumsum", "cumprod")


@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shape", [(3, 4, 5), (5, 7, 1), (1, 1, 9), (2, 0, 3)])
def test_cumsum(shape: tuple[int, ...], axis: int, exclusive: int, reverse: int) -> None:
    x = np.random.default_rng(5).integers(-9, 9, shape).astype(np.int32)
    walked = np.flip(x, axis) if reverse else x
    expected = np.cumsum(walked, axis, dtype=np.int32)
    if exclusive:
        expected = expected - walked
    expected = np.flip(expected, axis) if reverse else expected
    for variant in VARIANTS:
        found = _kernels.call("cumsum", [x], [(x.shape, "int32")], [axis, exclusive, reverse], variant=variant)[0]
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("exclusive", [0, 1])
def test_sums_of_long_rows_have_the_bits_of_sums_in_order(exclusive: int, reverse: int, variant: str) -> None:
    rng = np.random.default_rng(6)
    x = rng.standard_normal((11, 70_000), np.float32)  # longer than the pieces after which a run may stop
    x[:, ::-1][:, :3] = x[:, :3] = -0.0
    x[4, 30_000] = np.inf
    x[9, 60_000] = np.nan
    for dtype in (np.float32, np.float64, np.int8):
        with np.errstate(invalid="ignore"):
            rows = (x * 9).astype(dtype)
        walked = rows[:, ::-1] if reverse else rows
        shifted = np.concatenate([np.zeros((11, 1), dtype), walked[:, :-1]], 1) if exclusive else walked
        wanted = np.add.accumulate(shifted, 1, dtype=dtype)
        wanted = wanted[:, ::-1] if reverse else wanted
        (found,) = _kernels.call("cumsum", [rows], [(x.shape, dtype)], [1, exclusive, reverse], variant=variant)
        np.testing.assert_array_equal(found, wanted)
        if dtype != np.int8:
            numbers = ~np.isnan(wanted)
            np.testing.assert_array_equal(np.signbit(found)[numbers], np.signbit(wanted)[numbers])
