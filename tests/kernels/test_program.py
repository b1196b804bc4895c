"""Repeated programs: what is bound where, and bindings that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hetero import _program, _workspace

F = np.dtype(np.float32)


def adder() -> _workspace.Workspace:
    """out = a + b, of three elements each."""
    tensors = [(F, (3,), 2, 0), (F, (3,), 2, 1), (F, (3,), 3, 0)]
    calls = [("add", [0, 1], [2], (), (), 0, "sum")]
    program = _program.Program(tensors, calls, (), [((3,), F), ((3,), F)], [((3,), F)], 0)
    return _workspace.Workspace(program)


def bind(array: Any, first: int = 0, step: int = 0, odd: Any = None) -> tuple[Any, Any, int, int]:
    return (array, array if odd is None else odd, first, step)


def test_rows_buffers_and_copies() -> None:
    even, odd = np.zeros(3, np.float32), np.full(3, np.nan, np.float32)
    rows, sums = np.arange(15, dtype=np.float32).reshape(5, 3), np.empty((5, 3), np.float32)
    counter = np.zeros(1, np.int64)
    bindings = [bind(even, odd=odd), bind(rows, 4, -1), bind(odd, odd=even), bind(sums, 0, 1)]
    trip, proceed = adder().repeat(bindings, [(2, 3)], counter, -1, 0, 5, 10.0)
    assert (trip, proceed, counter[0]) == (5, True, 4)
    np.testing.assert_array_equal(sums, np.cumsum(rows[::-1], axis=0))
    np.testing.assert_array_equal(odd, sums[-1])


def test_a_flag_and_the_clock_end_the_trips() -> None:
    one, out, counter = np.ones(3, np.float32), np.empty(3, np.float32), np.zeros(1, np.int64)
    flags = np.array([[True], [True], [False], [True]])
    bindings = [bind(one), bind(one), bind(out), bind(flags, 0, 1)]
    assert adder().repeat(bindings, [], counter, 3, 0, 4, 10.0) == (3, False)
    assert adder().repeat(bindings, [], counter, 3, 3, 4, 10.0) == (4, True)
    assert adder().repeat(bindings[:3], [], counter, -1, 7, 1 << 62, 0.0) == (8, True)


def test_bindings_that_do_not_fit() -> None:
    one, out, counter = np.ones(3, np.float32), np.empty(3, np.float32), np.zeros(1, np.int64)
    fixed = out.copy()
    fixed.flags.writeable = False
    good = [bind(one), bind(one), bind(out)]
    wrong: list[tuple[Any, ...]] = [
        (good[:2], [], counter, -1, 0, 1),
        (good, [], counter, 3, 0, 1),
        (good, [], counter, 0, 0, 1),
        (good, [], counter, -1, 1, 1),
        (good, [], counter, -1, -1, 1),
        (good, [(0, 3)], counter, -1, 0, 1),
        (good, [], np.zeros(1, np.int32), -1, 0, 1),
        ([*good[:2], bind(fixed)], [], counter, -1, 0, 1),
        ([*good[:2], bind(out[:2])], [], counter, -1, 0, 1),
        ([*good[:2], bind(out, odd=np.empty(4, np.float32))], [], counter, -1, 0, 1),
        ([*good[:2], bind(np.empty((2, 3), np.float32), 0, 1)], [], counter, -1, 0, 3),
        ([*good[:2], bind(np.empty((2, 3), np.float32), 1, -1)], [], counter, -1, 0, 3),
        ([bind(np.empty((3, 2), np.float32)[:, 0]), *good[1:]], [], counter, -1, 0, 1),
        ([*good, bind(np.empty(4, np.float32))], [(2, 3)], counter, -1, 0, 1),
    ]
    for arguments in wrong:
        with pytest.raises(ValueError, match=r"expected|would need row|another size|two sizes"):
            adder().repeat(*arguments, 1.0)
