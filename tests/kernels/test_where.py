"""where against NumPy, over random shapes and types."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hetero import _kernels
from kernel_arrays import NUMERIC, broadcastable, random_array

VARIANTS = _kernels.variants("where")


@given(data=st.data())
def test_where_broadcasts_as_numpy(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from([*NUMERIC, "bool", "float16"]))
    shapes = data.draw(st.composite(broadcastable)(3))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    c = random_array(rng, shapes[0], "bool")
    x, y = (random_array(rng, shape, dtype) for shape in shapes[1:])
    expected = np.where(c, x, y)
    variant = data.draw(st.sampled_from(VARIANTS))
    found = _kernels.call("where", [c, x, y], [(expected.shape, dtype)], variant=variant)[0]
    np.testing.assert_array_equal(found, expected)
