"""The kernel `split_bytes`: NumPy's division, in every instruction set."""

from __future__ import annotations

import numpy as np
import pytest

from hetero import _kernels

pytestmark = pytest.mark.spread(2)


@pytest.mark.parametrize("variant", _kernels.variants("split_bytes"))
@pytest.mark.parametrize("size", [0, 1, 15, 16, 33, 65536])
@pytest.mark.parametrize("dtype", ["int16", "uint16"])
def test_split_bytes(variant: str, size: int, dtype: str) -> None:
    x = np.arange(size, dtype=np.int64).astype(np.uint16).view(dtype)  # 65536: every integer
    halves = [((size,), np.dtype(np.uint8))] * 2
    high, low = _kernels.call("split_bytes", [x], halves, variant=variant)
    expected = np.divmod(x.astype(np.int64) - np.iinfo(dtype).min, 256)
    assert np.array_equal(high, expected[0])
    assert np.array_equal(low, expected[1])


def test_other_operands_are_refused() -> None:
    x, half = np.zeros(3, np.int16), ((3,), np.dtype(np.uint8))
    for operand, results in [
        (x.astype(np.uint8), [half, half]),
        (x, [half, ((3,), np.dtype(np.int8))]),
        (x, [half, ((2,), np.dtype(np.uint8))]),
        (x, [half]),
    ]:
        with pytest.raises(Exception, match="split_bytes"):
            _kernels.call("split_bytes", [operand], results)
