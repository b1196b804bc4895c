"""concat against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetero import _kernels
from kernel_arrays import numbered

pytestmark = pytest.mark.spread(2)


@given(data=st.data())
def test_concat(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
    axis = data.draw(st.integers(0, len(shape) - 1))
    parts = []
    for _ in range(data.draw(st.integers(1, 4))):
        shape[axis] = data.draw(st.integers(0, 4))
        parts.append(numbered(tuple(shape)) + len(parts))
    expected = np.concatenate(parts, axis)
    np.testing.assert_array_equal(_kernels.call("concat", parts, [(expected.shape, "float32")], [axis])[0], expected)


@pytest.mark.parametrize("variant", _kernels.variants("concat"))
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "int64"])
@pytest.mark.parametrize(("rows", "widths"), [
    (3000, (1, 2, 1, 3, 0, 1)), (40, (1,) * 200), (3, (1,) * 3000), (70, (1, 5000, 1)), (1, (1, 1)), (9, (1,)),
])  # fmt: skip
def test_columns(variant: str, dtype: str, rows: int, widths: tuple[int, ...]) -> None:
    """Short rows, which are copied in blocks, and rows that are too long for that."""
    rng = np.random.default_rng(1)
    parts = [rng.integers(0, 200, (rows, width)).astype(dtype) for width in widths]
    expected = np.concatenate(parts, 1)
    for team in (None, _kernels.Team(3)):
        (found,) = _kernels.call("concat", parts, [(expected.shape, dtype)], [1], variant=variant, team=team)
        np.testing.assert_array_equal(found, expected)
