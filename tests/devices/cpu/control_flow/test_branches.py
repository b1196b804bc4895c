"""Ifs that are one call of a program (devices/cpu/branches.py), against onnxruntime: alone, and in a Loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

import hetero
from hetero import InferenceError, _program, _workspace

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
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return hetero.compile(proto, "CPU"), session


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


def test_branches_that_do_not_fit_are_refused() -> None:
    four = ((4,), np.dtype(np.float32))
    inner = _program.Program(
        [(np.dtype(np.float32), (4,), 2, 0), (np.dtype(np.float32), (4,), 3, 0)],
        [("identity", [0], [1], (), (), "copy")],
        [], [four], [four], 0,
    )  # fmt: skip

    def program(branch: _program.Branch, size: int = 4, condition: Any = np.bool_) -> _program.Program:
        tensors = [(np.dtype(condition), (), 2, 0), (np.dtype(np.float32), (size,), 2, 1), (four[1], (4,), 3, 0)]
        entry = ("branch", [0, 1], [2], (), (), "if", (branch, branch))
        inputs = [((), np.dtype(condition)), ((size,), np.dtype(np.float32))]
        return _program.Program(tensors, [entry], [], inputs, [four], 0)

    fits = _program.Branch(inner, [1], [-1], [])
    (found,) = _workspace.Workspace(program(fits)).run([np.array(True), X])
    np.testing.assert_array_equal(found, X)
    for branch in (
        _program.Branch(inner, [2], [-1], []),
        _program.Branch(inner, [1], [0], []),
        _program.Branch(inner, [1], [-2], []),
        _program.Branch(inner, [0], [-1], []),
        _program.Branch(inner, [1], [-1], [(0, -1)]),
        _program.Branch(inner, [1], [-1], [(np.zeros(3, np.float32), -1)]),
        _program.Branch(inner, [1], [-1], [(1, 1)]),
    ):
        with pytest.raises(ValueError, match="operand"):
            program(branch)
    with pytest.raises(ValueError, match="operand"):
        program(fits, size=5)
    with pytest.raises(ValueError, match="condition"):
        program(fits, condition=np.int64)
    with pytest.raises(ValueError, match="per input"):
        _program.Branch(inner, [], [-1], [])
