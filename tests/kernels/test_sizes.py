"""Sizes that are symbols: what a trace records holds for other sizes exactly if Python would take the same way."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetero import _program, _workspace
from hetero._sizes import (
    Real,
    Size,
    SizeTrace,
    UnfitForSymbols,
    are_same,
    ask,
    hint,
    is_symbolic,
    single,
    single_bits,
    whole,
)
from hetero.devices.cpu import registry
from hetero.devices.cpu.tracing import is_readable

I64 = np.dtype(np.int64)


def program_of(function: Callable[..., list[Any]], seen: list[int]) -> _program.Program:
    """A program whose outputs have the lengths ``function(*numbers)``, where the numbers are the elements of its input.
    It is made for the numbers ``seen``."""
    trace = SizeTrace()
    numbers = [trace.element(0, position, number) for position, number in enumerate(seen)]
    lengths = function(*numbers)
    tensors: list[tuple[Any, ...]] = [(I64, (len(seen),), _program.INPUT, 0), (I64, (1,), _program.CONSTANT, 0)]
    for position, length in enumerate(lengths):
        trace.store_shape(len(tensors), (length,))
        tensors.append((I64, (hint(length),), _program.OUTPUT, position))
    steps, constants = trace.steps()
    places = range(2, len(tensors))
    sizes = _program.Sizes(
        steps, trace.num_registers, constants, [(False,)], [], [], list(places), [], len(tensors), True
    )
    calls = [("fill", [1], [place], (), (), "fill") for place in places]
    outputs = [((hint(length),), I64) for length in lengths]
    return _program.Program(tensors, calls, [np.array([7])], [((len(seen),), I64)], outputs, 0, sizes)


def lengths_in(program: _program.Program, numbers: list[int]) -> list[int] | None:
    results = _workspace.Workspace(program).run([np.array(numbers, np.int64)])
    if results is None:
        return None
    assert all((array == 7).all() for array in results)
    return [len(array) for array in results]


Expression = tuple[Any, ...]
LEAF = st.integers(0, 2).map(lambda at: ("x", at)) | st.integers(-3, 9).map(lambda number: ("c", number))
OPERATIONS = ("+", "-", "*", "//", "%", "<", "==", "max", "/", "floor", "ceil")
EXPRESSION = st.recursive(LEAF, lambda inner: st.tuples(st.sampled_from(OPERATIONS), inner, inner), max_leaves=8)


def value_of(expression: Expression, numbers: tuple[Any, ...], answers: list[bool]) -> Any:
    """The value of an expression; ``answers`` gets the answers to all its comparisons."""
    kind = expression[0]
    if kind == "x":
        return numbers[expression[1]]
    if kind == "c":
        return expression[1]
    a, b = (value_of(part, numbers, answers) for part in expression[1:])

    def ask(answer: Any) -> bool:
        answers.append(bool(answer))
        return answers[-1]

    match kind:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "//" | "%" | "/":
            if ask(b == 0):
                return a
            return a // b if kind == "//" else a % b if kind == "%" else (1 if ask(a / b * 3.5 < 2) else a)
        case "max":
            return b if ask(b > a) else a
        case "floor":  # in float32
            if any(ask(number > 1 << 60) or ask(number < -(1 << 60)) for number in (a, b)):
                return a
            return math.floor(single(single(a) * single(0.3)) + single(b))
        case "ceil":
            return math.ceil(a * 0.37 - b)
        case _:
            return a if ask(a < b if kind == "<" else a == b) else b


NUMBERS = st.lists(st.integers(0, 12) | st.integers(0, 1 << 40), min_size=3, max_size=3)


@given(st.lists(EXPRESSION, min_size=1, max_size=4), NUMBERS, st.lists(NUMBERS, min_size=1, max_size=4))
def test_a_plan_holds_where_python_takes_the_same_way(
    expressions: list[Expression], seen: list[int], others: list[list[int]]
) -> None:
    def lengths(*numbers: Any) -> tuple[list[Any], list[bool]]:
        answers: list[bool] = []
        values = [value_of(expression, numbers, answers) for expression in expressions]
        return [value % 50 for value in values], answers

    wanted, way = lengths(*seen)
    try:
        program = program_of(lambda *numbers: lengths(*numbers)[0], seen)
    except UnfitForSymbols:
        assert max(seen) > 12, "only numbers beyond 64 bits cannot be recorded"
        return
    fits = lengths_in(program, seen)
    assert fits == wanted or (fits is None and max(seen) > 12)  # None: a number in between has more than 64 bits
    for numbers in others:
        made = lengths_in(program, numbers)
        if made is not None:
            assert (made, way) == lengths(*numbers)
        else:
            assert lengths(*numbers)[1] != way or max(*numbers, *seen) > 12


@pytest.mark.parametrize("less", [lambda a, b: a / 2 < b / 2, lambda a, b: b / 2 > a / 2], ids=["<", ">"])
def test_equal_numbers_are_not_less(less: Callable[[Any, Any], bool]) -> None:
    """Random ones are rarely equal."""
    smaller, other = (program_of(lambda a, b: [a + b if less(a, b) else 1], seen) for seen in ([2, 3], [3, 2]))
    for numbers, lengths in (([2, 3], 5), ([3, 3], 1), ([4, 3], 1)):
        assert lengths_in(smaller, numbers) == ([lengths] if lengths > 1 else None)
        assert lengths_in(other, numbers) == ([1] if lengths == 1 else None)


def test_what_does_not_depend_on_sizes_is_a_number() -> None:
    trace = SizeTrace()
    n, m = trace.dim(0, 0, 6), trace.dim(0, 1, 4)
    assert n is trace.dim(0, 0, 6)
    assert (n - n, type(n - n)) == (0, int)
    assert (n * m * 12) // (n * m) == 12
    assert ((n * 768) % 64, type((n * 768) % 64)) == (0, int)
    assert are_same((n + 1) * m, m + m * n)
    assert not are_same(n, 6)
    steps, _ = trace.steps()
    assert n + 1 > n, "true for all sizes"
    assert len(trace.steps()[0]) == len(steps)
    assert math.prod((n, 2, m)) is 2 * n * m
    assert hint([n, 3][0]) == 6
    assert not is_symbolic(hint(n))


def test_a_plain_number_holds_for_itself_only() -> None:
    noted: list[int] = []

    def lengths(n: Any) -> list[Any]:
        n.trace.on_fixed = lambda: noted.append(1)
        return [whole(n), len(range(n))]

    program = program_of(lengths, [3])
    assert noted
    assert lengths_in(program, [3]) == [3, 3]
    assert lengths_in(program, [4]) is None


def test_numbers_beyond_64_bits_end_the_use_of_a_plan() -> None:
    program = program_of(lambda n: [n * n * n % 7], [3])
    assert lengths_in(program, [11]) == [11**3 % 7]
    assert lengths_in(program, [1 << 30]) is None
    negative = program_of(lambda n: [5 - n], [3])
    assert lengths_in(negative, [5]) == [0]
    assert lengths_in(negative, [6]) is None
    with pytest.raises(UnfitForSymbols):
        program_of(lambda n: [n % (1 << 64)], [3])


def test_divisions_without_a_result_end_the_use_of_a_plan() -> None:
    least = -(1 << 63)
    for divided in (lambda a, b: a // b, lambda a, b: a % b):
        program = program_of(lambda a, b, divided=divided: [divided(a, b) % 50], [9, 4])
        assert lengths_in(program, [-9, -4]) == [divided(-9, -4) % 50]
        assert lengths_in(program, [9, 0]) is None
        assert lengths_in(program, [least, -1]) is None
        assert lengths_in(program, [least + 1, -1]) == [divided(least + 1, -1) % 50]
        assert lengths_in(program, [least, 1]) == [divided(least, 1) % 50]


def test_symbols_are_numbers_to_python() -> None:
    trace = SizeTrace()
    n, x = trace.dim(0, 0, 6), trace.element(1, 0, 2.5)
    assert isinstance(n, Size)
    assert isinstance(x, Real)
    assert [n // 4, n % 4, -n // 4, divmod(n, 4), abs(n - 9), 13 // n, 13 % n, 2 - n] == [1, 2, -2, (1, 2), 3, 2, 1, -4]
    assert (n / 4, n * 0.5, x + n, 5 / x, float(x), int(n), f"{[n, x]}") == (1.5, 3.0, 8.5, 2.0, 2.5, 6, "[6, 2.5]")
    assert np.zeros(n).shape == (6,)
    assert {(n, 2): 1}[n, 2] == 1
    assert max(n, 7) == 7
    assert sum([n, n]) is n + n
    with pytest.raises(ZeroDivisionError):
        n // (n - 6)
    with pytest.raises(TypeError):
        n + "1"  # type: ignore[operator]
    with pytest.raises(UnfitForSymbols):
        assert trace.element(1, 1, float("nan")) < 1


def test_answers_of_the_kernels_follow_the_sizes() -> None:
    def lengths(a: Any, b: Any) -> list[Any]:
        return [ask("quad_bytes", a, b + 1), ask("panel_floats", 3, a * b)]

    program = program_of(lengths, [5, 20])
    for numbers in ([5, 20], [1, 1], [40, 3]):
        assert lengths_in(program, numbers) == lengths(*numbers)


def test_a_plan_holds_while_the_kernels_give_the_same_answer() -> None:
    def lengths(height: Any, width: Any) -> list[Any]:
        sizes = [1, height, width, 1, height, width]
        return [height + int(ask("winograd_tile", 64, 64, *sizes, 1, 3, 3, 1, 1, 1, 0, 1, 1, 1, 1, 1))]

    program = program_of(lengths, [56, 56])
    assert lengths(56, 56) == [60]
    for numbers in ([56, 56], [100, 48], [1, 1], [9, 9000]):
        plain = lengths(*numbers)
        holds = plain[0] - numbers[0] == 4
        assert lengths_in(program, numbers) == (plain if holds else None)
    assert lengths_in(program, [100, 48]) == [104]
    assert lengths_in(program, [9, 9000]) is None


@pytest.mark.parametrize("name", [*registry.NUMBERS, "bool", "float16"])
def test_the_types_whose_elements_planning_reads_are_those_that_c_reads(name: str) -> None:
    data = np.array([1, 0], name)
    trace = SizeTrace()
    element = trace.element(0, 0, data[0].item() if data.dtype.kind == "f" else 1)
    assert int(element) == 1
    steps, constants = trace.steps()
    sizes = _program.Sizes(steps, trace.num_registers, constants, [(False,)], [], [], [1], [], 3, True)
    tensors = [
        (data.dtype, (2,), _program.INPUT, 0),
        (I64, (3,), _program.OUTPUT, 0),
        (I64, (1,), _program.CONSTANT, 0),
    ]
    program = _program.Program(
        tensors, [("fill", [2], [1], (), (), "fill")], [np.array([7])], [((2,), data.dtype)], [((3,), I64)], 0, sizes
    )
    results = _workspace.Workspace(program).run([data])
    assert (results is not None) == is_readable(data)


def test_the_bits_of_a_float32() -> None:
    program = program_of(lambda n, m: [single_bits(n / m) % 997, single_bits(2 * n) % 997], [3, 7])
    for n, m in ((3, 7), (1, 3), (12, 5), (1 << 30, 7), ((1 << 25) + 1, 1)):
        bits = [np.float32(number).view(np.uint32) for number in (n / m, 2 * n)]
        assert lengths_in(program, [n, m]) == [int(number) % 997 for number in bits]
    assert single_bits(1.5) == 0x3FC00000
    assert single(0.1) == float(np.float32(0.1))


def test_numbers_too_large_to_be_rounded_down() -> None:
    program = program_of(lambda n: [math.floor(n * 1e6) % 50], [3])
    assert lengths_in(program, [7]) == [7_000_000 % 50]
    assert lengths_in(program, [1 << 50]) is None
    with pytest.raises(UnfitForSymbols):
        program_of(lambda n: [math.floor(n * 1e6) % 50], [1 << 50])


def program_that_stores(kind: str, values: Callable[[Any, Any], list[Any]]) -> _program.Program:
    """Its output has the type ``kind`` and the elements ``values(n, m)``, computed with the sizes."""
    trace = SizeTrace()
    dtype = np.dtype(kind)
    n, m = trace.element(0, 0, 3), trace.element(0, 1, 5)
    elements = values(n, m)
    trace.allocate(1)
    for at, element in enumerate(elements):
        trace.store_element(1, at, element)
    steps, constants = trace.steps()
    sizes = _program.Sizes(steps, trace.num_registers, constants, [(False,)], [], [], [2], [], 3, True)
    shape = (len(elements),)
    tensors = [(I64, (2,), _program.INPUT, 0), (dtype, shape, _program.LATE, 0), (dtype, shape, _program.OUTPUT, 0)]
    calls = [("identity", [1], [2], (), (), "identity")]
    return _program.Program(tensors, calls, [], [((2,), I64)], [(shape, dtype)], 0, sizes)


@pytest.mark.parametrize("kind", ["int64", "int32"])
def test_elements_that_follow_from_sizes(kind: str) -> None:
    """Each lies at its own place; a number that its type does not hold ends the use of the plan."""
    program = program_that_stores(kind, lambda n, m: [n, m, n - m])
    limits = np.iinfo(kind)
    for n, m in ((3, 5), (0, limits.max), (limits.min, -1), (limits.min, 0), (-7, 7)):
        results = _workspace.Workspace(program).run([np.array([n, m])])
        assert results is not None
        np.testing.assert_array_equal(results[0], np.array([n, m, n - m], kind))
    for n, m in ((limits.max, -1), (limits.min, 1), (limits.max, limits.min)):
        assert _workspace.Workspace(program).run([np.array([n, m])]) is None


@pytest.mark.parametrize("name", ["int64", "int32", "int16", "int8", "uint32", "uint16", "uint8", "bool"])
def test_elements_are_read_where_they_lie(name: str) -> None:
    """With the sign of their type."""
    limits = (0, 1) if name == "bool" else (np.iinfo(name).min, np.iinfo(name).max)
    data = np.array([1, *limits, 0, 1], name)
    trace = SizeTrace()
    trace.allocate(1)
    for at, number in enumerate(data):
        trace.store_element(1, at, trace.element(0, at, int(number)))
    steps, constants = trace.steps()
    sizes = _program.Sizes(steps, trace.num_registers, constants, [(False,)], [], [], [2], [], 3, True)
    tensors = [(data.dtype, (5,), _program.INPUT, 0), (I64, (5,), _program.LATE, 0), (I64, (5,), _program.OUTPUT, 0)]
    calls = [("identity", [1], [2], (), (), "identity")]
    program = _program.Program(tensors, calls, [], [((5,), data.dtype)], [((5,), I64)], 0, sizes)
    for array in (data, data[::-1].copy()):
        results = _workspace.Workspace(program).run([array])
        assert results is not None
        np.testing.assert_array_equal(results[0], array.astype(np.int64))


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_numbers_are_read_where_they_lie(name: str) -> None:
    data = np.array([0.5, 2.25, -7.75, 3.0], name)
    trace = SizeTrace()
    trace.allocate(1)
    for at, number in enumerate(data):
        trace.store_element(1, at, math.floor(trace.element(0, at, float(number)) * 4))
    steps, constants = trace.steps()
    sizes = _program.Sizes(steps, trace.num_registers, constants, [(False,)], [], [], [2], [], 3, True)
    tensors = [(data.dtype, (4,), _program.INPUT, 0), (I64, (4,), _program.LATE, 0), (I64, (4,), _program.OUTPUT, 0)]
    calls = [("identity", [1], [2], (), (), "identity")]
    program = _program.Program(tensors, calls, [], [((4,), data.dtype)], [((4,), I64)], 0, sizes)
    for array in (data, data[::-1].copy()):
        results = _workspace.Workspace(program).run([array])
        assert results is not None
        np.testing.assert_array_equal(results[0], array * 4)


def test_tensors_have_at_most_the_largest_size() -> None:
    """As many bytes as a tensor may have, also where another axis has size 0; one element more ends the use."""
    most = 1 << 40  # HT_MAX_BYTES
    for dtype, least in ((np.dtype(np.uint8), 1), (I64, 8)):
        trace = SizeTrace()
        n, m, k = (trace.element(0, at, number) for at, number in enumerate((3, 0, 2)))
        trace.store_shape(1, (n, m, k))
        steps, constants = trace.steps()
        sizes = _program.Sizes(steps, trace.num_registers, constants, [(False,)], [], [], [1], [], 2, True)
        tensors = [(I64, (3,), _program.INPUT, 0), (dtype, (3, 0, 2), _program.OUTPUT, 0)]
        program = _program.Program(tensors, [], [], [((3,), I64)], [((3, 0, 2), dtype)], 0, sizes)
        half = most // least // 2
        for shape, fits in (
            ((3, 0, 2), True),
            ((half, 0, 2), True),
            ((2, 0, half), True),
            ((half + 1, 0, 2), False),
            ((half, 0, 3), False),
            ((0, most // least, 1), True),
            ((0, most // least + 1, 1), False),
            ((0, 1 << 62, 1 << 62), False),
            ((1 << 62, 1 << 62, 0), False),
            ((-1, 0, 1), False),
            ((0, 0, -1), False),
        ):
            results = _workspace.Workspace(program).run([np.array(shape)])
            assert (results is not None) == fits, (dtype, shape)
            assert results is None or results[0].shape == shape


def test_buffers_whose_bytes_follow_from_sizes() -> None:
    """Buffers of no bytes hold; fewer than none end the use of the plan."""
    trace = SizeTrace()
    n, size, _ = (trace.element(0, at, number) for at, number in enumerate((3, 24, 0)))
    trace.store_shape(1, (n,))
    trace.store_shape(2, (n,))
    trace.store_bytes(0, size)
    steps, constants = trace.steps()
    sizes = _program.Sizes(
        steps, trace.num_registers, constants, [(False,)], [(0, 1, 24)], [(1, 0, 0)], [2], [], 4, True
    )
    tensors = [
        (I64, (3,), _program.INPUT, 0),
        (I64, (3,), _program.ARENA, 0),
        (I64, (3,), _program.OUTPUT, 0),
        (I64, (1,), _program.CONSTANT, 0),
    ]
    calls = [("fill", [3], [1], (), (), "fill"), ("identity", [1], [2], (), (), "identity")]
    program = _program.Program(tensors, calls, [np.array([7])], [((3,), I64)], [((3,), I64)], 64, sizes)
    for length, given_bytes in ((3, 24), (500, 4000), (0, 0), (1, 8)):
        results = _workspace.Workspace(program).run([np.array([length, given_bytes, -9])])
        assert results is not None
        np.testing.assert_array_equal(results[0], np.full(length, 7))
    assert _workspace.Workspace(program).run([np.array([0, -1, 9])]) is None
    assert _workspace.Workspace(program).run([np.array([0, -(1 << 63), 9])]) is None
