"""fill and range against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from hetero import _kernels


@pytest.mark.parametrize("dtype", ["float32", "int32", "int64", "float64", "uint8"])
def test_fill_and_range(dtype: str) -> None:
    assert _kernels.call("fill", [np.array([3], dtype)], [((2, 2), dtype)])[0].tolist() == [[3, 3], [3, 3]]
    start, delta = np.array(5, dtype), np.array(2, dtype)
    np.testing.assert_array_equal(
        _kernels.call("range", [start, delta], [((10,), dtype)])[0], np.arange(5, 25, 2).astype(dtype)
    )
