"""pad against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hetero import _kernels
from hetero.errors import InferenceError
from kernel_arrays import numbered

VARIANTS = _kernels.variants("pad")
DTYPES = ["uint8", "float16", "float32", "int64"]


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_pad(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    x = numbered(shape, data.draw(st.sampled_from(DTYPES)))
    mode = data.draw(st.sampled_from(["constant", "reflect", "edge", "wrap"]))
    before, after = ([data.draw(st.integers(-1, 6)) for _ in shape] for _ in range(2))
    before = [max(b, -size) for b, size in zip(before, shape, strict=True)]
    after = [max(a, -(size + min(b, 0))) for a, b, size in zip(after, before, shape, strict=True)]
    grown = [(max(b, 0), max(a, 0)) for b, a in zip(before, after, strict=True)]
    value = np.array(7, x.dtype)
    # NumPy has no negative padding: crop first.
    kept = x[tuple(slice(max(-b, 0), n - max(-a, 0)) for b, a, n in zip(before, after, shape, strict=True))]
    sizes = [b + n + a for b, a, n in zip(before, after, shape, strict=True)]
    assume(mode == "constant" or kept.size or 0 in sizes)
    expected = np.empty(sizes, x.dtype)
    if expected.size:
        expected = np.pad(kept, grown, mode, **({"constant_values": 7} if mode == "constant" else {}))
    ints = [["constant", "reflect", "edge", "wrap"].index(mode), *before]
    variant = data.draw(st.sampled_from(VARIANTS))
    found = _kernels.call("pad", [x, value], [(expected.shape, x.dtype)], ints, variant=variant)[0]
    np.testing.assert_array_equal(found, expected)


def test_pad_of_an_empty_axis() -> None:
    x = np.empty((0, 2), np.float32)
    np.testing.assert_array_equal(_kernels.call("pad", [x], [((2, 2), "float32")], [0, 1, 0])[0], np.zeros((2, 2)))
    with pytest.raises(InferenceError):
        _kernels.call("pad", [x], [((2, 2), "float32")], [2, 1, 0])
