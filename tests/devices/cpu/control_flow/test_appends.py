"""Loops that append to carried values (devices/cpu/appends.py), against onnxruntime and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest

import hetero
from hetero import InferenceError
from sessions import onnxruntime_session

HEAD = '<ir_version: 8, opset_import: ["": 17]>\n'
X = np.array([[1.5, -2, 3], [0.25, 4, -1]], np.float32)

BODIES = {
    "behind": "w = Concat <axis = 0> (v, item)",
    "in front": "w = Concat <axis = 0> (item, v)",
    "along the last axis": "w = Concat <axis = -1> (v, item)",
    "along the last axis, in front": "w = Concat <axis = 1> (item, v)",
}


def model_of(concat: str, item: str) -> str:
    return f"""g (int64 n, float[a, b] x, float[2, 3] z) => (float s, float[k, l] y, float[m] all) {{
        one = Constant <value_float = 1.0> ()
        s, y, all = Loop (n, , one, x) <body = body (int64 i, bool go, float t, float[c, d] v)
            => (bool more, float u, float[e, f] w, float seen) {{
            limit = Constant <value_float = 60.0> ()
            two = Constant <value_float = 2.0> ()
            u = Mul (t, two)
            more = Less (u, limit)
            seen = Neg (t)
            {item}
            {concat}
        }}>
    }}"""


ITEMS = {
    "in C": "item = Mul (z, t)",
    "a capture": "item = Identity (z)",
    "cut": """all_places = NonZero (z)
            picked = Slice (all_places, begin, end, axes)
            begin = Constant <value = int64[1] {0}> ()
            end = Constant <value = int64[1] {3}> ()
            axes = Constant <value = int64[1] {1}> ()
            number = Cast <to = 1> (picked)
            item = Mul (number, t)""",
}
# The parser keeps the order of nodes: constants come first.
ITEMS["cut"] = "\n".join(sorted(ITEMS["cut"].split("\n"), key=lambda line: "Constant" not in line))


@pytest.mark.spread(2)
@pytest.mark.parametrize("concat", BODIES)
@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("iterations", [0, 1, 2, 4, 20])
def test_same_as_onnxruntime(concat: str, item: str, iterations: int) -> None:
    proto = onnx.parser.parse_model(HEAD + model_of(BODIES[concat], ITEMS[item]))
    session = onnxruntime_session(proto)
    model = hetero.compile(proto, "CPU")
    feeds = {"n": np.array(iterations), "x": X, "z": X[::-1].copy()}
    for found, wanted in zip(model(feeds).values(), session.run(None, feeds), strict=True):
        np.testing.assert_array_equal(found, wanted)
    body = model._plans.planner.nodes[-1].nested.graphs[0]  # type: ignore[attr-defined]
    assert len(body.inputs) == 3, "the value that grows is no input of the body"


def run(body: str, feeds: dict[str, Any]) -> dict[str, np.ndarray]:
    text = f"""g (int64 n, float[a] x) => (float[k] y) {{
        y = Loop (n, , x) <body = body (int64 i, bool go, float[m] v) => (bool more, float[o] w) {{
            more = Identity (go)
            {body}
        }}>
    }}"""
    return dict(hetero.compile(onnx.parser.parse_model(HEAD + text), "CPU")(feeds).items())


def test_items_of_several_sizes() -> None:
    """The iteration number once, twice, three times, ...: no scanned output, as a row is of another size each
    iteration."""
    body = """one = Constant <value = int64[1] {1}> ()
            row = Reshape (i, one)
            count = Add (row, one)
            f = Cast <to = 1> (row)
            item = Expand (f, count)
            w = Concat <axis = 0> (v, item)"""
    found = run(body, {"n": np.array(4), "x": X[0]})["y"]
    np.testing.assert_array_equal(found, [*X[0], 0, 1, 1, 2, 2, 2, 3, 3, 3, 3])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("w = Concat <axis = 0> (v, v)", np.tile(X[0], 8)),
        ("w = Concat <axis = 0> (v, x, x)", np.tile(X[0], 7)),
        ("n1 = Neg (v)  w = Concat <axis = 0> (v, n1)", np.array([*X[0], *-X[0], *-X[0], *X[0]] * 2)),
    ],
)
def test_bodies_that_use_the_value_otherwise(body: str, expected: np.ndarray) -> None:
    found = run(body, {"n": np.array(3), "x": X[0]})["y"]
    np.testing.assert_array_equal(np.sort(found), np.sort(expected))
    assert found.shape == expected.shape


@pytest.mark.parametrize(
    "body",
    [
        "item = Constant <value = float[1, 2] {1, 2}> ()  w = Concat <axis = 0> (v, item)",
        "item = Constant <value = int64[1] {1}> ()  w = Concat <axis = 0> (v, item)",
        "item = Constant <value = float[1] {1}> ()  w = Concat <axis = 1> (v, item)",
    ],
)
def test_items_that_do_not_fit_are_an_error_of_the_first_iteration(body: str) -> None:
    with pytest.raises(InferenceError, match=r"Loop|refused|Concat"):
        run(body, {"n": np.array(2**62), "x": X[0]})
