"""cumsum against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from hetero import _kernels

VARIANTS = _kernels.variants()


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
