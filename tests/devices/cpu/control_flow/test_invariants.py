"""Carried values that the body of a Loop passes on as they are (devices/cpu/control_flow/invariants.py), against
onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import hetero
from sessions import onnxruntime_session

HEAD = '<ir_version: 8, opset_import: ["": 17]>\n'
W = np.arange(9, dtype=np.float32).reshape(3, 3) - 3


def carried_by(model: hetero.CompiledModel) -> int:
    """How many carried values the body of the model's Loop still has."""
    nodes = model._plans.planner.nodes  # type: ignore[attr-defined]
    return next(len(plan.nested.graphs[0].inputs) - 2 for plan in nodes if plan.nested is not None)


def check(proto: onnx.ModelProto, feeds: dict[str, Any]) -> hetero.CompiledModel:
    """Compare results with those of onnxruntime, in two inferences, and that they share no memory with inputs."""
    session = onnxruntime_session(proto)
    model = hetero.compile(proto, "CPU")
    for _ in range(2):
        found = model(feeds)
        for result, wanted in zip(found.values(), session.run(None, feeds), strict=True):
            np.testing.assert_array_equal(result, wanted)
            assert result.dtype == wanted.dtype
            assert not any(np.shares_memory(result, array) for array in feeds.values())
        feeds = {name: -array if array.ndim else array for name, array in feeds.items()}
    return model


def loop(body: str) -> onnx.ModelProto:
    """A Loop that carries ``a`` (from x), ``b`` (from z) and ``w`` (a weight), and scans one value."""
    weight = ", ".join(f"{x:g}" for x in W.ravel())
    return onnx.parser.parse_model(f"""{HEAD}
    g (int64 n, float[k] x, float[j] z) => (float[t] p, float[l] q, float[3, 3] r, float[m, o] s)
        <float[3, 3] weight = {{{weight}}}> {{
        p, q, r, s = Loop (n, , x, z, weight) <body = body (int64 i, bool go, float[c] a, float[d] b, float[3, 3] w)
            => (bool more, float[e] a2, float[f] b2, float[3, 3] w2, float[h] row) {{
            more = Identity (go)
            {body}
        }}>
    }}""")


X = {"x": np.array([1, -2, 3], np.float32), "z": np.array([0.5, 0, 2], np.float32)}
BODIES = {
    "one value, as it is": ("a2 = MatMul (w, a)  b2 = Neg (b)  w2 = Identity (w)  row = Identity (b)", 2),
    "by way of two nodes": ("a2 = MatMul (w, a)  b2 = Neg (b)  v = Identity (w)  w2 = Identity (v)  row = Neg (b)", 2),
    "also scanned": ("a2 = Identity (a)  b2 = MatMul (w, b)  w2 = Identity (w)  row = Identity (a2)", 1),
    "all": ("a2 = Identity (a)  b2 = Identity (b)  w2 = Identity (w)  row = Add (b, b)", 0),
    "exchanged": ("a2 = Identity (b)  b2 = Identity (a)  w2 = Identity (w)  row = Neg (a)", 2),
    "one value twice": ("a2 = Identity (a)  b2 = Identity (a)  w2 = Identity (w)  row = Neg (b)", 1),
    "beside one that grows": ("a2 = Identity (a)  b2 = Concat <axis = 0> (b, a)  w2 = Identity (w)  row = Neg (a)", 0),
    "before one that grows": ("a2 = Concat <axis = 0> (a, b)  b2 = Identity (b)  w2 = Neg (w)  row = Neg (b)", 1),
}


@pytest.mark.parametrize("count", [0, 1, 4])
@pytest.mark.parametrize("name", BODIES)
def test_same_as_onnxruntime(name: str, count: int) -> None:
    body, carried = BODIES[name]
    proto = loop(body)
    for result in proto.graph.output:  # 'a' and 'b' may grow
        if result.name in "pqs":
            result.type.tensor_type.ClearField("shape")
    assert carried_by(check(proto, {"n": np.array(count), **X})) == carried


def test_its_results_need_not_be_read_and_sizes_may_change() -> None:
    proto = loop(BODIES["also scanned"][0])
    del proto.graph.output[0], proto.graph.output[1]
    session, model = onnxruntime_session(proto), hetero.compile(proto, "CPU")
    for size in (3, 1, 3):
        feeds = {"n": np.array(2), "x": np.arange(size, dtype=np.float32), "z": X["z"]}
        for found, wanted in zip(model(feeds).values(), session.run(None, feeds), strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_a_body_that_states_another_type_keeps_the_value() -> None:
    proto = loop(BODIES["one value, as it is"][0])
    body = proto.graph.node[0].attribute[0].g
    body.input[4].type.tensor_type.elem_type = TensorProto.DOUBLE
    assert carried_by(hetero.compile(proto, "CPU")) == 3


def test_captured_by_a_loop_inside() -> None:
    body = """one = Constant <value = int64 {2}> ()
            a2 = Loop (one, , a, w) <body = inner (int64 j, bool on, float[t] u, float[3, 3] v)
                => (bool still, float[y] u2, float[3, 3] v2) {
                still = Identity (on)
                u2 = MatMul (v, u)
                v2 = Identity (v)
            }>
            b2 = Identity (b)
            w2 = Identity (w)
            row = Add (a2, b)"""
    proto = loop(body)
    proto.graph.node[0].attribute[0].g.node[2].output.append("unread")
    assert carried_by(check(proto, {"n": np.array(3), **X})) == 1


@given(st.data())
def test_random_bodies(data: st.DataObject) -> None:
    """Each carried value becomes one of them, the sum of two, or the product of one with a weight that is carried."""
    number = data.draw(st.integers(1, 4))
    names = [f"v{at}" for at in range(number)]
    nodes = [helper.make_node("Identity", ["go"], ["more"])]

    def result(name: str) -> str:
        """A new value."""
        kind, first, second = data.draw(st.tuples(st.integers(0, 4), st.sampled_from(names), st.sampled_from(names)))
        if kind == 0:
            return first
        own = f"v{name[1:]}"
        made = [("Identity", [own]), ("Identity", [first]), ("Add", [first, second]), ("MatMul", ["w", first])]
        op, inputs = made[kind - 1]
        nodes.append(helper.make_node(op, inputs, [name]))
        return name

    outputs: list[str] = []
    for name in [*(result(f"u{at}") for at in range(number)), result("s0")]:
        if name in outputs:  # onnxruntime rejects a value that is an output twice
            nodes.append(helper.make_node("Identity", [name], [f"o{len(outputs)}"]))
            name = f"o{len(outputs)}"
        outputs.append(name)
    *outputs, scanned = outputs
    vector = [3]
    body = helper.make_graph(
        nodes,
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            *(helper.make_tensor_value_info(name, TensorProto.FLOAT, vector) for name in names),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, [3, 3]),
        ],
        [
            helper.make_tensor_value_info("more", TensorProto.BOOL, []),
            *(helper.make_tensor_value_info(name, TensorProto.FLOAT, vector) for name in outputs),
            helper.make_tensor_value_info("w_out", TensorProto.FLOAT, [3, 3]),
            *(helper.make_tensor_value_info(name, TensorProto.FLOAT, vector) for name in [scanned]),
        ],
    )
    body.node.add(op_type="Identity", input=["w"], output=["w_out"])
    initial = [data.draw(st.sampled_from(["x", "z", "c"])) for _ in names]
    weight = data.draw(st.sampled_from(["weight", "y"]))
    results = [*(f"r{at}" for at in range(number)), "r_w", "rows"]
    graph = helper.make_graph(
        [helper.make_node("Loop", ["n", "", *initial, weight], results, body=body)],
        "g",
        [
            helper.make_tensor_value_info("n", TensorProto.INT64, []),
            *(helper.make_tensor_value_info(name, TensorProto.FLOAT, vector) for name in "xz"),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 3]),
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results],
        [numpy_helper.from_array(W[0], "c"), numpy_helper.from_array(W, "weight")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    check(proto, {"n": np.array(data.draw(st.integers(0, 3))), **X, "y": W.T.copy()})
