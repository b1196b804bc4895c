"""The kernel `append` against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from hetero import _kernels, _program
from hetero._workspace import Workspace
from hetero.errors import InferenceError

pytestmark = pytest.mark.spread(2)


@pytest.mark.parametrize("dtype", ["float32", "int8", "int16", "float64", "bool"])
@pytest.mark.parametrize(
    ("shape", "axis", "count", "begin"),
    [((2, 3, 8, 5), 2, 1, 7), ((2, 3, 8, 5), 2, 8, 0), ((4, 3), 0, 2, 1), ((4, 3), 1, 1, 2), ((9,), 0, 0, 9),
     ((2, 0, 4), 2, 1, 1), ((0, 4, 2), 1, 2, 2), ((3, 100_000), 0, 2, 1)],
)  # fmt: skip
def test_writes_exactly_its_rows(dtype: str, shape: tuple[int, ...], axis: int, count: int, begin: int) -> None:
    random = np.random.default_rng(0)
    x = random.integers(0, 2, (*shape[:axis], count, *shape[axis + 1 :])).astype(dtype)
    expected = random.integers(0, 2, shape).astype(dtype)
    place = expected.copy()
    expected[(*(slice(None),) * axis, slice(begin, begin + count))] = x
    program = _program.Program(
        [(x.dtype, x.shape, _program.INPUT, 0), (x.dtype, shape, _program.OUTPUT, 0)],
        [("append", [0], [1], [axis, begin], [], "append")],
        [],
        [(x.shape, x.dtype)],
        [(shape, x.dtype)],
        0,
    )
    (found,) = Workspace(program).run([x], [place])
    np.testing.assert_array_equal(found, expected)
    assert not place.size or np.shares_memory(found, place)


@pytest.mark.parametrize(
    ("x", "out", "ints"),
    [((2, 3), (2, 4), (1, 2)), ((2, 3), (2, 4), (1, -1)), ((2, 3), (3, 4), (1, 0)), ((2, 3), (2, 4), (2, 0)),
     ((2, 3), (2, 4), (-1, 0)), ((2, 3), (2, 3, 1), (1, 0)), ((2, 5), (2, 4), (1, 0)), ((2, 3), (2, 4), (1,))],
)  # fmt: skip
def test_refuses_operands_that_do_not_fit(x: tuple[int, ...], out: tuple[int, ...], ints: tuple[int, ...]) -> None:
    with pytest.raises(InferenceError, match="append"):
        _kernels.call("append", [np.zeros(x, np.float32)], [(out, "float32")], list(ints))
