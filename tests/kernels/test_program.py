"""Programs and their memory; repeated programs: what is bound where, and bindings that do not fit."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetero import _program, _workspace

F = np.dtype(np.float32)


def adder() -> _workspace.Workspace:
    """out = a + b, of three elements each."""
    tensors = [(F, (3,), 2, 0), (F, (3,), 2, 1), (F, (3,), 3, 0)]
    calls = [("add", [0, 1], [2], (), (), "sum")]
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


def test_programs_check_what_they_are_given() -> None:
    f4 = np.dtype(np.float32)
    relu = ("unary", [0], [1], [1], [0.0, 0.0], "label")
    io = [((2,), f4)], [((2,), f4)]
    good = [(f4, (2,), 2, 0), (f4, (2,), 3, 0)]
    program = _program.Program(good, [relu], [], *io, 0)
    workspace = _workspace.Workspace(program)
    results = workspace.run([np.array([-1, 1], np.float32)])
    assert results is not None
    assert results[0].tolist() == [0, 1]
    for other in (np.zeros(3, np.float32), np.zeros((2, 1), np.float32), np.zeros(2, np.float64), np.array(["a", "b"])):
        assert workspace.run([other]) is None
    assert workspace.run([]) is None
    for tensors, call in (
        ([(f4, (3,), 2, 0), good[1]], relu),
        ([(f4, (2,), 2, 1), good[1]], relu),
        ([(f4, (2,), 0, 0), good[1]], relu),
        ([(f4, (2,), 1, 0), good[1]], relu),
        ([(f4, (2,), 4, 0), good[1]], relu),
        ([(f4, (-2,), 2, 0), good[1]], relu),
        ([(f4, (1,) * 9, 2, 0), good[1]], relu),
        (good, ("unary", [0], [2], [1], [], "label")),
        (good, ("nothing", [0], [1], [1], [], "label")),
    ):
        with pytest.raises(ValueError):
            _program.Program(tensors, [call], [], *io, 0)
    with pytest.raises(TypeError):
        _program.Program([(np.dtype("complex64"), (2,), 2, 0), good[1]], [relu], [], *io, 0)


def test_workspaces_of_one_arena_follow_when_it_grows() -> None:
    f4 = np.dtype(np.float32)

    def workspace(n: int, arena: _workspace.Arena) -> _workspace.Workspace:
        tensors = [(f4, (n,), 2, 0), (f4, (n,), 0, 0), (f4, (n,), 3, 0)]
        calls = [("unary", [i], [i + 1], [24], [0.0, 0.0], "neg") for i in range(2)]
        return _workspace.Workspace(
            _program.Program(tensors, calls, [], [((n,), f4)], [((n,), f4)], 4 * n), False, arena
        )

    arena = _workspace.Arena()
    small, large = workspace(8, arena), workspace(100_000, arena)
    for one, n in ((small, 8), (large, 100_000), (small, 8), (large, 100_000)):
        x = np.arange(n, dtype=np.float32)
        results = one.run([x])
        assert results is not None
        np.testing.assert_array_equal(results[0], x)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_arena_layout_never_overlaps_the_living(data: st.DataObject) -> None:
    n = data.draw(st.integers(0, 40))
    first = np.sort(np.array([data.draw(st.integers(0, 30)) for _ in range(n)], np.int64))
    last = first + np.array([data.draw(st.integers(0, 10)) for _ in range(n)], np.int64)
    size = np.array([data.draw(st.sampled_from([0, 1, 64, 65, 200, 1000, 4096])) for _ in range(n)], np.int64)
    offsets, total = _program.arena_layout(first, last, size)
    padded = -(-size // 64) * 64
    assert (offsets % 64 == 0).all()
    assert (offsets + size <= total).all()
    alive = [np.flatnonzero((first <= t) & (t <= last)) for t in range(42)]
    for living in alive:
        spans = sorted((offsets[i], offsets[i] + size[i]) for i in living if size[i])
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    assert total >= max((padded[living].sum() for living in alive), default=0)
    assert total <= padded.sum()


@pytest.mark.parametrize("seed", range(20))
def test_arena_layout_is_best_fit(seed: int) -> None:
    """Each buffer takes the smallest gap that holds it, the first among equals, and what is dead is free by then."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 90))
    first = np.sort(rng.integers(0, 60, count))
    last = first + rng.integers(0, 40, count)
    size = rng.choice([0, 1, 64, 100, 128, 1000, 4096], count)
    offsets, total = _program.arena_layout(first, last, size)
    padded = [-(-int(n) // 64) * 64 for n in size]
    assert total == max((offset + n for offset, n in zip(offsets, padded, strict=True) if n), default=0)
    for b in range(count):
        taken = sorted((int(offsets[a]), padded[a]) for a in range(b) if last[a] >= first[b] and padded[a])
        end, gaps = 0, []
        for offset, n in taken:
            if offset - end >= padded[b] > 0:
                gaps.append((offset - end, end))
            end = offset + n
        assert offsets[b] == (min(gaps)[1] if gaps else end)


def test_arena_layout_refuses_what_it_cannot_place() -> None:
    def layout(first: list[int], last: list[int], size: list[int]) -> None:
        _program.arena_layout(np.array(first, np.int64), np.array(last, np.int64), np.array(size, np.int64))

    for arguments in (
        ([0, 1], [0, 1], [1]),
        ([1, 0], [1, 1], [1, 1]),
        ([1], [0], [1]),
        ([0], [0], [-1]),
        ([0], [0], [2**63 - 1]),
        ([0, 0], [0, 0], [2**62, 2**62]),
    ):
        with pytest.raises(ValueError):
            layout(*arguments)


def test_constants_that_are_not_aligned() -> None:
    """Only kernels that read an operand bytewise take them."""
    rows = np.zeros(4 * 12 + 1, np.uint8)[1:].view(np.float32).reshape(4, 3)
    rows[:] = np.arange(12).reshape(4, 3)
    assert not rows.flags.aligned
    index = np.dtype(np.int64)
    tensors = [(F, (4, 3), 1, 0), (index, (2,), 2, 0), (F, (2, 3), 3, 0)]
    specs = [((2,), index)], [((2, 3), F)]
    program = _program.Program(tensors, [("gather", [0, 1], [2], (0,), (), "")], (rows,), *specs, 0)
    (found,) = _workspace.Workspace(program).run([np.array([3, -4])])
    np.testing.assert_array_equal(found, rows[[3, 0]])
    tensors = [(F, (4, 3), 1, 0), (F, (4, 3), 2, 0), (F, (4, 3), 3, 0)]
    specs = [((4, 3), F)], [((4, 3), F)]
    with pytest.raises(ValueError, match="operand 0 is not aligned"):
        _program.Program(tensors, [("add", [0, 1], [2], (), (), "")], (rows,), *specs, 0)
