"""concat against NumPy."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hetero import _kernels
from kernel_arrays import numbered


@settings(max_examples=80, deadline=None)
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
