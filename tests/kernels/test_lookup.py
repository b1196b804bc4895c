"""The kernel `lookup`: NumPy's indexing, in every instruction set."""

from __future__ import annotations

import numpy as np
import pytest

from hetero import _kernels

pytestmark = pytest.mark.spread(2)


@pytest.mark.parametrize("variant", _kernels.variants("lookup"))
@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 1000])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("result", ["int8", "uint8"])
def test_lookup(variant: str, size: int, dtype: str, result: str) -> None:
    rng = np.random.default_rng(size)
    limits = np.iinfo(dtype)
    x = rng.integers(limits.min, limits.max, size, dtype=dtype, endpoint=True)
    table = rng.permutation(256).astype(np.uint8).view(result)
    (found,) = _kernels.call("lookup", [x, table], [((size,), np.dtype(result))], variant=variant)
    assert np.array_equal(found, table[x.astype(int) - limits.min])


def test_other_operands_are_refused() -> None:
    x, table = np.zeros(3, np.uint8), np.zeros(256, np.uint8)
    for operands, dtype in [([x, table[:255]], "uint8"), ([x, table], "int8"), ([x.astype(np.int16), table], "uint8")]:
        with pytest.raises(Exception, match="lookup"):
            _kernels.call("lookup", operands, [((3,), np.dtype(dtype))])
