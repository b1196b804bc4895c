"""Programs and their memory; repeated programs: what is bound where, and bindings that do not fit."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetero import _program, _workspace

F = np.dtype(np.float32)


def adder() -> _workspace.Workspace:
    """out = a + b, of three elements each."""
    tensors = [(F, (3,), 2, 0), (F, (3,), 2, 1), (F, (3,), 3, 0)]
    calls = [("add", [0, 1], [2], (), (), "sum")]
    program = _program.Program(tensors, calls, (), [((3,), F), ((3,), F)], [((3,), F)], 0)
    return _workspace.Workspace(program)


class Rows:
    """A stack of one array; see `Iterations.run`."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def room(self, shape: tuple[int, ...], dtype: Any, iteration: int) -> Any:
        return self.array[iteration:]


def summing(**changed: Any) -> _workspace.Iterations:
    """A Scan: carries a sum, adds one slice to it, and writes it to rows."""
    arguments: dict[str, Any] = {
        "reads": [0, 1],
        "results": [(0, None), (0, (3,))],
        "dtypes": [F, F],
        "is_loop": False,
        "num_carried": 1,
        "num_slices": 1,
        "num_values": 2,
    }
    return _workspace.Iterations(adder(), **{**arguments, **changed})


@pytest.mark.parametrize("step", [1, -1])
def test_carried_values_slices_and_rows(step: int) -> None:
    start = np.zeros(3, np.float32)
    slices, sums = np.arange(15, dtype=np.float32).reshape(5, 3), np.empty((5, 3), np.float32)
    values = [start, slices]
    iterations = summing()
    assert iterations.run(values, [step], [Rows(sums)], 0, 5)
    assert iterations.iteration == 5
    np.testing.assert_array_equal(sums, np.cumsum(slices[::step], axis=0))
    np.testing.assert_array_equal(values[0], sums[-1])
    assert not start.any(), "the first value is the caller's"


def test_iterations_begin_anywhere_and_end_where_the_program_does_not_fit() -> None:
    sums = np.empty((5, 3), np.float32)
    iterations = summing()
    values = [np.zeros(3, np.float32), np.ones((5, 3), np.float32)]
    iterations.run(values, [1], [Rows(sums)], 3, 5)
    np.testing.assert_array_equal(sums[3:], [[1] * 3, [2] * 3])
    for other in (np.zeros(2, np.float32), np.zeros(3), np.zeros((1, 3), np.float32), np.array(["a"], object), None):
        iterations.run([other, values[1]], [1], [Rows(sums)], 0, 5)
        assert iterations.iteration == 0, "nothing has run"


def test_a_condition_ends_the_iterations() -> None:
    """A Loop: a slice is the condition of the next iteration, the carried value is the number of the iteration."""
    boolean, int64 = np.dtype(bool), np.dtype(np.int64)
    program = _program.Program([], [], (), [((), int64), ((), boolean), ((), int64), ((), boolean)], [], 0)
    iterations = _workspace.Iterations(
        _workspace.Workspace(program), range(4), [(-4, ()), (-1, ())], [boolean, int64], True, 2, 1, 4
    )
    flags = np.array([True, True, False, True])
    values = [np.array(0), np.array(True), np.array(-1), flags]
    assert not iterations.run(values, [1], [], 0, 4)
    assert (iterations.iteration, values[1], values[2]) == (3, False, 2)
    assert iterations.run(values, [1], [], 3, 4)
    assert (iterations.iteration, values[1], values[2]) == (4, True, 3)


def test_iterations_check_what_they_are_given() -> None:
    wrong: list[dict[str, Any]] = [
        {"reads": [0]},
        {"reads": [0, 2]},
        {"results": [(1, None), (0, (3,))]},
        {"results": [(-3, (3,)), (0, (3,))]},
        {"results": [(-1, None), (0, (3,))]},
        {"results": [(0, 3), (0, (3,))]},
        {"dtypes": [F]},
        {"dtypes": [F, np.dtype(object)]},
        {"num_carried": 3},
        {"num_slices": 2},
    ]
    for changed in wrong:
        with pytest.raises(ValueError, match="expected|has no"):
            summing(**changed)
    values, sums = [np.zeros(3, np.float32), np.ones((5, 3), np.float32)], np.empty((5, 3), np.float32)
    fixed = sums.copy()
    fixed.flags.writeable = False
    calls: list[tuple[Any, ...]] = [
        (values[:1], [1], [Rows(sums)], 0, 5),
        (values, [], [Rows(sums)], 0, 5),
        (values, [1], [], 0, 5),
        (values, [1], [Rows(sums)], 0, 6),
        (values, [1], [Rows(sums)], 5, 5),
        (values, [1], [Rows(sums)], -1, 5),
        (values, [1], [Rows(fixed)], 0, 5),
        (values, [1], [Rows(sums[:, :2])], 0, 5),
        (values, [1], [Rows(sums.astype(np.float64))], 0, 5),
        (values, [1], [Rows(sums[:3])], 0, 5),
    ]
    for arguments in calls:
        with pytest.raises(ValueError, match="expected|rows"):
            summing().run(*arguments)


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


def test_arena_layout_reuses_memory_of_the_dead() -> None:
    """Also if only one buffer is alive, and of several free blocks the smallest that fits."""
    first, last, size = (np.array(column, np.int64) for column in ([0, 1, 2], [0, 1, 2], [64, 64, 64]))
    offsets, total = _program.arena_layout(first, last, size)
    assert (offsets.tolist(), total) == ([0, 0, 0], 64)
    # 0: 192 bytes, 1: 64 bytes that stay, 2: 128 bytes, 3: 64 bytes that stay; then 4: 100 bytes, for the 128 of 2.
    first, last, size = (
        np.array(column, np.int64) for column in ([0, 0, 0, 0, 2], [1, 9, 1, 9, 2], [192, 64, 128, 64, 100])
    )
    offsets, total = _program.arena_layout(first, last, size)
    assert (offsets.tolist(), total) == ([0, 192, 256, 384, 256], 448)


@pytest.mark.parametrize(("begin", "is_right"), [(0, True), (4, False), (8, False), (12, True)])
@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_results_in_the_arena_overlap_no_other_elements(order: tuple[int, ...], begin: int, is_right: bool) -> None:
    """x: the input; a: arena bytes 0 to 12; b: three elements from ``begin`` on; y: the result. In any order."""
    tensors = [(F, (3,), 2, 0), (F, (3,), 0, 0), (F, (3,), 0, begin), (F, (3,), 3, 0)]
    place = [order.index(number) for number in range(4)]
    calls = [("unary", [place[i]], [place[i + 1]], [24], [0.0, 0.0], "neg") for i in range(3)]
    arguments: tuple[Any, ...] = ([tensors[i] for i in order], calls, [], [((3,), F)], [((3,), F)], 64)
    if not is_right:
        with pytest.raises(ValueError, match="overlaps other elements"):
            _program.Program(*arguments)
        return
    (found,) = _workspace.Workspace(_program.Program(*arguments)).run([np.float32([1, 2, 3])]) or [None]
    np.testing.assert_array_equal(found, [-1, -2, -3])


def test_a_tensor_without_elements_overlaps_nothing() -> None:
    """Also between the first and the last byte of another."""
    for empty_is_result in (False, True):
        # x: the input; a: arena bytes 0 to 12; e: none, at byte 4; y: the result.
        tensors = [(F, (3,), 2, 0), (F, (3,), 0, 0), (F, (0,), 0, 4), (F, (3,), 3, 0)]
        negate = ("unary", [0], [1], [24], [0.0, 0.0], "neg")
        if empty_is_result:
            calls = [negate, ("gather", [1, 4], [2], (0,), (), "take none"), ("concat", [1, 2], [3], (0,), (), "join")]
            tensors.append((np.dtype(np.int64), (0,), 1, 0))
        else:
            calls = [("concat", [0, 2], [1], (0,), (), "join"), ("unary", [1], [3], [24], [0.0, 0.0], "neg")]
        constants = [np.zeros(0, np.int64)] if empty_is_result else []
        program = _program.Program(tensors, calls, constants, [((3,), F)], [((3,), F)], 64)
        (found,) = _workspace.Workspace(program).run([np.float32([1, 2, 3])]) or [None]
        np.testing.assert_array_equal(found, [-1, -2, -3])


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
