"""Ifs that are one call of a program (devices/cpu/branches.py), against onnxruntime: alone, and in a Loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import hetero
from hetero import InferenceError, _program, _workspace
from hetero.devices.cpu import runner
from hetero.devices.cpu.operators.elementwise import unary_code
from sessions import onnxruntime_session

HEAD = '<ir_version: 8, opset_import: ["": 17]>\n'
X = np.array([1.5, -2, 3, 0.25], np.float32)

# The two branches of an If whose operands are x, float[4], and i, int64: -> (p, q).
BRANCHES = {
    "calls": (
        "t () => (float[4] p, float[4] q) { p = Add (v, x)  q = Mul (p, x) }",
        "e () => (float[4] p, float[4] q) { p = Sub (v, x)  q = Div (p, x) }",
    ),
    "captures and constants": (
        "t () => (float[4] p, float[4] q) { p = Identity (v)  q = Constant <value = float[4] {1, 2, 3, 4}> () }",
        "e () => (float[4] p, float[4] q) { q = Identity (x)  p = Constant <value = float[4] {4, 3, 2, 1}> () }",
    ),
    "one value twice": (
        "t () => (float[4] p, float[4] q) { p = Neg (v)  q = Identity (p) }",
        "e () => (float[4] p, float[4] q) { q = Abs (v)  p = Identity (q) }",
    ),
    "a branch within": (
        """t () => (float[4] p, float[4] q) {
            nought = Constant <value = float {0}> ()  sum = ReduceSum <keepdims = 0> (v)
            positive = Greater (sum, nought)
            p = If (positive) <then_branch = tt () => (float[4] r) { r = Sqrt (a)  a = Abs (v) },
                               else_branch = te () => (float[4] r) { r = Neg (x) }>
            q = Add (p, v)
        }""".replace("r = Sqrt (a)  a = Abs (v)", "a = Abs (v)  r = Sqrt (a)"),
        "e () => (float[4] p, float[4] q) { p = Exp (x)  q = Sub (v, p) }",
    ),
    "reshaped": (
        "t () => (float[4] p, float[4] q) { s = Constant <value = int64[2] {2, 2}> ()  m = Reshape (v, s) "
        "f = Constant <value = int64[1] {-1}> ()  k = Transpose (m)  p = Reshape (k, f)  q = Reshape (m, f) }",
        "e () => (float[4] p, float[4] q) { p = Floor (v)  q = Ceil (v) }",
    ),
}


def alone(then: str, other: str) -> str:
    return f"""g (bool c, float[4] v, float[4] x) => (float[4] a, float[4] b) {{
        w = Mul (v, x)
        p, q = If (c) <then_branch = {then}, else_branch = {other}>
        a = Add (p, w)
        b = Mul (q, v)
    }}"""


def looped(then: str, other: str) -> str:
    return f"""g (int64 n, float[4] v0, float[4] x) => (float[4] y, float[k, 4] all) {{
        y, all = Loop (n, , v0) <body = body (int64 i, bool go, float[4] v) => (bool more, float[4] w, float[4] q) {{
            more = Identity (go)
            three = Constant <value = int64 {{3}}> ()
            zero = Constant <value = int64 {{0}}> ()
            rest = Mod (i, three)
            c = Equal (rest, zero)
            p, q = If (c) <then_branch = {then}, else_branch = {other}>
            half = Constant <value = float {{0.5}}> ()
            w = Mul (p, half)
        }}>
    }}"""


def compiled(text: str) -> tuple[hetero.CompiledModel, Any]:
    proto = onnx.parser.parse_model(HEAD + text)
    session = onnxruntime_session(proto)
    return hetero.compile(proto, "CPU"), session


def compare(model: hetero.CompiledModel, session: Any, feeds: dict[str, np.ndarray]) -> None:
    for found, wanted in zip(model(feeds).values(), session.run(None, feeds), strict=True):
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def is_one_program(model: hetero.CompiledModel) -> bool:
    """Whether the last planned segments hold no node that runs between two of them."""
    return all(segment.host < 0 for segment in model._plans.segments())  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", BRANCHES)
@pytest.mark.parametrize("condition", [False, True])
def test_an_if_is_a_call(name: str, condition: bool) -> None:
    model, session = compiled(alone(*BRANCHES[name]))
    for x in (X, X[::-1].copy()):
        feeds = {"c": np.array(condition), "v": x, "x": X}
        for found, wanted in zip(model(feeds).values(), session.run(None, feeds), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert is_one_program(model)


@pytest.mark.parametrize("name", BRANCHES)
@pytest.mark.parametrize("iterations", [0, 1, 2, 50])
def test_an_if_in_every_iteration(name: str, iterations: int) -> None:
    model, session = compiled(looped(*BRANCHES[name]))
    feeds = {"n": np.array(iterations), "v0": X, "x": X[::-1].copy()}
    for found, wanted in zip(model(feeds).values(), session.run(None, feeds), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


# The two branches of an If whose operand is v, float[d]: -> p, float[d].
OF_ANY_SIZE = {
    "calls": ("a = Exp (v)  b = Mul (a, v)  p = Sub (a, b)", "a = Abs (v)  b = Sqrt (a)  p = Div (b, v)"),
    "captures": ("p = Identity (v)", "p = Identity (u)"),
    "a value that follows from the size": (
        "s = Shape (v)  f = Squeeze (s)  r = Range (nought, f, step)  q = Cast <to = 1> (r)  p = Mul (v, q)",
        "s = Shape (v)  p = Expand (half, s)",
    ),
    "parts of a whole": (
        "a = Exp (v)  b = Neg (v)  k = Concat <axis = 0> (a, b)  s = Shape (v)  t = Add (s, one)"
        "  p = Slice (k, one, t)",
        "a = Exp (v)  b = Slice (a, zero, one)  k = Slice (a, one, many)  p = Concat <axis = 0> (k, b)",
    ),
    "a branch within": (
        "a = Exp (v)  least = ReduceMin <keepdims = 0> (v)  low = Less (least, half)"
        "  b = If (low) <then_branch = tt () => (float[d1] r) { k = Add (a, v)  r = Mul (k, a) },"
        "                else_branch = te () => (float[d2] r) { k = Neg (v)  r = Add (k, u) }>  p = Sub (b, a)",
        "a = Neg (v)  p = Add (a, u)",
    ),
}


def of_any_size(then: str, other: str, is_looped: bool) -> str:
    graphs = (
        f"u = Neg (v)  p = If (c) <then_branch = t () => (float[e1] p) {{ {then} }}, "
        f"else_branch = e () => (float[e2] p) {{ {other} }}>"
    )
    constants = """zero = Constant <value = int64[1] {0}> ()  one = Constant <value = int64[1] {1}> ()
        many = Constant <value = int64[1] {99}> ()  half = Constant <value = float {0.5}> ()
        nought = Constant <value = int64 {0}> ()  step = Constant <value = int64 {1}> ()"""
    if not is_looped:
        return f"g (bool c, float[d] v) => (float[e] w) {{ {constants} {graphs} w = Mul (p, u) }}"
    return f"""g (int64 n, float[d] x) => (float[e] y, float[k] sums) {{
        {constants}
        three = Constant <value = int64 {{3}}> ()
        y, sums = Loop (n, , x) <body = body (int64 i, bool go, float[f] v) => (bool more, float[h] w, float sum) {{
            more = Identity (go)  rest = Mod (i, three)  c = Equal (rest, nought)
            {graphs}
            w = Concat <axis = 0> (p, x)
            sum = ReduceSum <keepdims = 0> (p)
        }}>
    }}"""


@pytest.mark.parametrize("name", OF_ANY_SIZE)
def test_branches_of_sizes_that_change(name: str) -> None:
    model, session = compiled(of_any_size(*OF_ANY_SIZE[name], is_looped=False))
    for size in (4, 4, 5, 4, 1, 0, 7, 4):
        for condition in (True, False):
            compare(model, session, {"c": np.array(condition), "v": np.resize(X, size)})
    assert is_one_program(model)


@pytest.mark.parametrize("name", OF_ANY_SIZE)
def test_branches_in_a_loop_whose_value_grows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, session = compiled(of_any_size(*OF_ANY_SIZE[name], is_looped=True))
    for size in (4, 1, 3):
        for count in (0, 1, 2, 9):
            compare(model, session, {"n": np.array(count), "x": np.resize(X, size)})
    monkeypatch.setattr(runner, "iterate", None)  # which runs iterations one by one
    compare(model, session, {"n": np.array(9), "x": X})


def test_a_branch_that_follows_from_sizes_computes_from_them() -> None:
    """One plan for all sizes of a branch. The branch has more nodes than the model around it."""
    text = """g (float[d] x) => (float[e] y) {
        three = Constant <value = int64 {3}> ()
        n = Size (x)  big = Greater (n, three)
        y = If (big) <then_branch = t () => (float[e1] p) {
            nought = Constant <value = int64 {0}> ()  step = Constant <value = int64 {1}> ()
            a = Neg (x)  b = Abs (a)  c = Exp (b)  f = Neg (c)
            k = Range (nought, n, step)  q = Cast <to = 1> (k)  p = Mul (f, q)
        }, else_branch = e () => (float[e2] p) { p = Neg (x) }>
    }"""
    model, session = compiled(text)
    for size in (4, 5, 6, 7, 2, 3, 9, 10):
        compare(model, session, {"x": np.resize(X, size)})
    plans = model._plans  # type: ignore[attr-defined]
    assert [segment.program.sizes is not None for segment in plans.segments()].count(False) == 1
    assert not plans.planner.unfit


def test_a_branch_that_fails_for_some_sizes() -> None:
    """Only if it is taken, and the request is usable afterwards."""
    text = """g (int64 n, int64 limit, float[d] x) => (float[e] y) {
        y = Loop (n, , x) <body = body (int64 i, bool go, float[f] v) => (bool more, float[h] w) {
            more = Identity (go)  c = Less (i, limit)
            three = Constant <value = int64[1] {3}> ()  one = Constant <value = int64[1] {1}> ()
            p = If (c) <then_branch = t () => (float[e1] p) { p = Neg (v) },
                        else_branch = e () => (float[e2] p) { at = Sub (three, one)  q = Gather (v, three)
                                                              p = Add (v, q) }>
            s = Constant <value = int64[1] {0}> ()  z = Constant <value = int64[1] {-1}> ()
            w = Slice (p, s, z)
        }>
    }"""
    model, session = compiled(text)
    x = np.arange(6, dtype=np.float32)
    for _ in range(2):
        compare(model, session, {"n": np.array(5), "limit": np.array(9), "x": x})
        compare(model, session, {"n": np.array(3), "limit": np.array(2), "x": x})
        with pytest.raises(InferenceError, match=r"iteration 3.*Gather"):
            model({"n": np.array(5), "limit": np.array(3), "x": x})


@pytest.mark.parametrize("condition", [np.array(True), np.array([True]), np.array([[False]])])
def test_conditions_of_one_element(condition: np.ndarray) -> None:
    dims = ", ".join("1" * condition.ndim)
    text = f"""g (bool{f"[{dims}]" if dims else ""} c, float[4] x) => (float[4] y) {{
        y = If (c) <then_branch = t () => (float[4] p) {{ p = Neg (x) }},
                    else_branch = e () => (float[4] p) {{ p = Abs (x) }}>
    }}"""
    model = hetero.compile(onnx.parser.parse_model(HEAD + text), "CPU")
    np.testing.assert_array_equal(model({"c": condition, "x": X})["y"], -X if condition.item() else abs(X))


DIFFERENT = [
    (
        "t () => (float[k] p) { p = Concat <axis = 0> (x, x) }",
        "e () => (float[m] p) { p = Neg (x) }",
    ),
    (
        "t () => (float[k] p) { s = Constant <value = int64[2] {3, 5}> ()  p = Reshape (x, s) }",  # never fits
        "e () => (float[m] p) { p = Neg (x) }",
    ),
    (
        "t () => (float[k] p) { z = NonZero (x)  a = Constant <value = int64[1] {0}> ()  w = Squeeze (z, a) "
        "p = Cast <to = 1> (w) }",
        "e () => (float[m] p) { p = Neg (x) }",
    ),
]


@pytest.mark.parametrize(("then", "other"), DIFFERENT)
def test_branches_that_are_no_call_run_between_segments(then: str, other: str) -> None:
    """Of other shapes, of a plan that is cut, or that cannot be planned, which matters only where it is taken."""
    text = f"g (bool c, float[4] x) => (float[k] y) {{ y = If (c) <then_branch = {then}, else_branch = {other}> }}"
    model = hetero.compile(onnx.parser.parse_model(HEAD + text), "CPU")
    np.testing.assert_array_equal(model({"c": np.array(False), "x": X})["y"], -X)
    assert not is_one_program(model)
    feeds = {"c": np.array(True), "x": X}
    if "{3, 5}" in then:
        with pytest.raises(InferenceError, match="reshape"):
            model(feeds)
    else:
        expected = np.concatenate([X, X]) if "Concat" in then else np.arange(4)
        np.testing.assert_array_equal(model(feeds)["y"], expected)


def test_an_error_names_the_node_within_the_branch() -> None:
    text = """g (int64 n, float[4] x, int64[1] at) => (float[1] y) {
        start = Constant <value = float[1] {0}> ()
        y = Loop (n, , start) <body = b (int64 i, bool go, float[1] v) => (bool more, float[1] w) {
            more = Identity (go)
            two = Constant <value = int64 {2}> ()
            c = Equal (i, two)
            w = If (c) <then_branch = t () => (float[1] p) { p = Gather (x, at) },
                        else_branch = e () => (float[1] p) { p = Neg (v) }>
        }>
    }"""
    proto = onnx.parser.parse_model(HEAD + text)
    branch = proto.graph.node[1].attribute[0].g.node[3].attribute[0].g
    branch.node[0].name = "fetch"
    model = hetero.compile(proto, "CPU")
    feeds = {"n": np.array(2), "x": X, "at": np.array([9])}
    np.testing.assert_array_equal(model(feeds)["y"], [0])
    with pytest.raises(InferenceError, match=r"iteration 2.*fetch"):
        model({**feeds, "n": np.array(3)})


def test_programs_whose_branches_are_no_calls_behind_them_are_refused() -> None:
    four, flag = ((4,), np.dtype(np.float32)), ((), np.dtype(np.bool_))

    def program(
        ints: tuple[int, int, int], end_call: int = 1, condition: tuple[Any, Any] = flag, operands: Any = (0, 1)
    ) -> _program.Program:
        tensors = [(condition[1], condition[0], 2, 0), (four[1], (4,), 2, 1), (four[1], (4,), 3, 0)]
        calls = [
            ("branch", operands, [2], ints, (), "if"),
            ("identity", [1], [2], (), (), "copy"),
            ("unary", [1], [2], (unary_code("NEG"),), (0.0, 0.0), "neg"),
        ]
        return _program.Program(tensors, calls, [], [condition, four], [four], 0, None, 0, end_call)

    for flag_value, wanted in ((False, X), (True, -X)):
        (found,) = _workspace.Workspace(program((1, 2, 3))).run([np.array(flag_value), X])
        np.testing.assert_array_equal(found, wanted)
    for ints, end_call in (((0, 2, 3), 1), ((1, 2, 4), 1), ((2, 1, 3), 1), ((1, 2, 1), 1), ((1, 2, 3), 2)):
        with pytest.raises(ValueError, match="calls behind it"):
            program(ints, end_call)
    for condition in (((), np.dtype(np.int64)), ((2,), np.dtype(np.bool_))):
        with pytest.raises(ValueError, match="one bool"):
            program((1, 2, 3), condition=condition)
    for operands in ([], [-1]):
        with pytest.raises(ValueError, match="one bool"):
            program((1, 2, 3), operands=operands)
