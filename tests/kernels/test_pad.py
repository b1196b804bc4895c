"""pad against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hetero import _kernels
from hetero.errors import InferenceError
from kernel_arrays import numbered

pytestmark = pytest.mark.spread(2)

VARIANTS = _kernels.variants("pad")
DTYPES = ["uint8", "float16", "float32", "int64"]


@given(data=st.data())
def test_pad(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    x = numbered(shape, data.draw(st.sampled_from(DTYPES)))
    mode = data.draw(st.sampled_from(["constant", "reflect", "edge", "wrap"]))
    pads = st.just((0, 0)) | st.tuples(st.integers(-1, 6), st.integers(-1, 6))
    before, after = map(list, zip(*[data.draw(pads) for _ in shape], strict=True))
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


@pytest.mark.parametrize("before", [2**59, -(2**59)])
def test_pads_beyond_the_result(before: int) -> None:
    x, value = np.ones((2, 3, 5), np.float32), np.array(7, np.float32)
    for axis in range(3):
        ints = [0, *(before if d == axis else 0 for d in range(3))]
        found = _kernels.call("pad", [x, value], [(x.shape, "float32")], ints)[0]
        np.testing.assert_array_equal(found, np.full_like(x, 7))
    with pytest.raises(InferenceError):
        _kernels.call("pad", [x], [(x.shape, "float32")], [1, 0, -(2**59), 0])


@pytest.mark.parametrize("mode", range(4))
def test_results_do_not_depend_on_threads(mode: int) -> None:
    x = numbered((3, 200, 7, 300), "float32")
    for before in ((0, 3, 0, 0), (1, 0, 2, 0), (0, 0, 0, 5), (0, -3, 1, 0)):
        shape = tuple(size + 2 * b for size, b in zip(x.shape, before, strict=True))
        one, many = (
            _kernels.call("pad", [x], [(shape, "float32")], [mode, *before], team=team)[0]
            for team in (None, _kernels.Team(3))
        )
        np.testing.assert_array_equal(one, many)
