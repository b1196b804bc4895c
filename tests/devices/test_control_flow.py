"""If, Loop and Scan over HETERO: one vertex each, captures as inputs, the nodes around them on other devices."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

import hetero
from hetero.model.model import Model
from template_runs import difference, node_tests, value_of

HEAD = '<ir_version: 8, opset_import: ["": 17]>\n'
X = np.array([-1.5, 0.5, 2], np.float32)
M = np.arange(12, dtype=np.float32).reshape(4, 3) / 4 - 1
YES, NO = np.array(True), np.array(False)

CASES: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "captures of a graph input, an initializer, a computed value and a constant": (
        """
        g (float[3] x, bool c) => (float[3] y) <float[3] w = {1, 2, 3}>
        {
            k = Constant <value_floats = [0.5, -1.0, 4.0]> ()
            a = Exp (x)
            t = If (c) <
                then_branch = t () => (float[3] p) { q = Add (x, w)  p = Mul (q, a) },
                else_branch = e () => (float[3] p) { p = Sub (k, a) }>
            y = Neg (t)
        }""",
        [{"x": X, "c": YES}, {"x": X, "c": NO}],
    ),
    "captures from the scope around the scope, only two levels down": (
        """
        g (float[3] x, bool c, bool d) => (float[3] y) <float[3] w = {1, 2, 3}>
        {
            a = Exp (x)
            b = Tanh (a)
            t = If (c) <
                then_branch = t1 () => (float[3] p) {
                    p = If (d) <
                        then_branch = t2 () => (float[3] q) { r = Add (a, w)  q = Mul (r, b) },
                        else_branch = e2 () => (float[3] q) { q = Identity (x) }> },
                else_branch = e1 () => (float[3] p) { p = Identity (w) }>
            y = Add (t, b)
        }""",
        [{"x": X, "c": c, "d": d} for c in (YES, NO) for d in (YES, NO)],
    ),
    "a capture made in another subgraph, and one that is an output": (
        """
        g (float[3] x, bool c) => (float[3] y, float[3] a)
        {
            a = Exp (x)
            b = Det_free (a)
            y = If (c) <
                then_branch = t () => (float[3] p) { p = Add (a, b) },
                else_branch = e () => (float[3] p) { p = Sub (a, x) }>
        }""".replace("Det_free", "Sigmoid"),
        [{"x": X, "c": YES}],
    ),
    "nested graphs with names of their own that others have, too": (
        """
        g (float[3] x, bool c) => (float[3] y)
        {
            t = Exp (x)
            y1 = If (c) <
                then_branch = a () => (float[3] p) { q = Neg (x)  p = Abs (q) },
                else_branch = b () => (float[3] p) { q = Abs (t)  p = Neg (q) }>
            y2 = If (c) <
                then_branch = a () => (float[3] p) { q = Neg (t)  p = Exp (q) },
                else_branch = b () => (float[3] p) { q = Exp (x)  p = Neg (q) }>
            y = Add (y1, y2)
        }""",
        [{"x": X, "c": YES}, {"x": X, "c": NO}],
    ),
    "branches of different shapes": (
        """
        g (float[3] x, bool c) => (float[n] y)
        {
            two = Constant <value = int64[1] {2}> ()
            a = Neg (x)
            t = If (c) <
                then_branch = a () => (float[k] p) { p = Concat <axis = 0> (a, a) },
                else_branch = b () => (float[m] p) { z = Constant <value = int64[1] {0}> ()  p = Slice (a, z, two) }>
            y = Exp (t)
        }""",
        [{"x": X, "c": YES}, {"x": X, "c": NO}, {"x": X, "c": YES}],
    ),
    "an If with several outputs, some of which nobody reads": (
        """
        g (float[3] x, bool c) => (float[3] y)
        {
            s, t, u = If (c) <
                then_branch = a () => (float[3] p, float[3] q, float[3] r)
                    { p = Neg (x)  q = Exp (x)  r = Identity (x) },
                else_branch = b () => (float[3] p, float[3] q, float[3] r)
                    { p = Exp (x)  q = Neg (x)  r = Identity (x) }>
            y = Add (s, u)
        }""",
        [{"x": X, "c": YES}, {"x": X, "c": NO}],
    ),
    "a Loop that ends early, runs to its end, or not at all": (
        """
        g (int64 n, bool c, float[3] x) => (float[3] y, float[k, 3] all)
        {
            half = Constant <value_float = 0.5> ()
            start = Mul (x, half)
            step = Exp (x)
            last, all = Loop (n, c, start) <body = b (int64 i, bool go, float[3] v)
                => (bool more, float[3] w, float[3] seen)
            {
                w = Add (v, step)
                seen = Mul (w, x)
                top = ReduceMax <keepdims = 0> (w)
                limit = Constant <value_float = 20.0> ()
                more = Less (top, limit)
            }>
            y = Neg (last)
        }""",
        [{"n": np.array(n), "c": c, "x": X} for n, c in ((0, YES), (3, YES), (9, YES), (3, NO))],
    ),
    "a Loop without a condition, that counts, over a Loop": (
        """
        g (int64 n, float[3] x) => (float[3] y, int64[k] numbers)
        {
            a = Sigmoid (x)
            y, numbers = Loop (n, , a) <body = b (int64 i, bool go, float[3] v)
                => (bool more, float[3] w, int64 number)
            {
                more = Identity (go)
                number = Mul (i, i)
                w = Loop (i, go, v) <body = b2 (int64 j, bool go2, float[3] v2) => (bool more2, float[3] w2)
                {
                    more2 = Identity (go2)
                    scale = Cast <to = 1> (i)
                    u2 = Mul (v2, scale)
                    w2 = Add (u2, a)
                }>
            }>
        }""",
        [{"n": np.array(n), "x": X} for n in (0, 1, 4)],
    ),
    "a Loop whose carried value grows": (
        """
        g (int64 n, float[3] x) => (float[k] y)
        {
            true = Constant <value = bool {1}> ()
            a = Neg (x)
            t = Loop (n, true, a) <body = b (int64 i, bool go, float[m] v) => (bool more, float[o] w)
            { more = Identity (go)  w = Concat <axis = 0> (v, a) }>
            y = Exp (t)
        }""",
        [{"n": np.array(n), "x": X} for n in (0, 1, 3)],
    ),
    "a Scan with several states, directions and axes": (
        """
        g (float[4, 3] m) => (float[3] s, float[3] p, float[3, 4] rows, float[4, 3] back)
        {
            zero = Constant <value_floats = [0.0, 0.0, 0.0]> ()
            one = Constant <value_floats = [1.0, 1.0, 1.0]> ()
            turned = Transpose (m)
            bias = ReduceMean <axes = [0], keepdims = 0> (m)
            s0, p0, rows, back = Scan (zero, one, m, turned) <
                num_scan_inputs = 2, scan_input_axes = [0, 1], scan_input_directions = [0, 1],
                scan_output_axes = [1, 0], scan_output_directions = [0, 1],
                body = b (float[3] v, float[3] w, float[3] row, float[3] column)
                    => (float[3] v2, float[3] w2, float[3] out, float[3] out2)
                {
                    v2 = Add (v, row)
                    shifted = Add (column, bias)
                    w2 = Mul (w, shifted)
                    out = Sub (v2, w2)
                    out2 = Identity (v)
                }>
            s = Neg (s0)
            p = Abs (p0)
        }""",
        [{"m": M}],
    ),
    "a Scan in an If in a Loop, which capture from everywhere": (
        """
        g (int64 n, float[4, 3] m, float[3] x) => (float[3] y) <float[3] w = {1, 2, 3}>
        {
            a = Exp (x)
            t = Loop (n, , a) <body = b (int64 i, bool go, float[3] v) => (bool more, float[3] u)
            {
                more = Identity (go)
                two = Constant <value = int64 {2}> ()
                odd = Mod (i, two)
                c = Cast <to = 9> (odd)
                u = If (c) <
                    then_branch = yes () => (float[3] p)
                    {
                        p, all = Scan (v, m) <num_scan_inputs = 1, body = s (float[3] state, float[3] row)
                            => (float[3] next, float[3] seen)
                        {
                            k = Mul (row, w)
                            l = Add (k, a)
                            next = Add (state, l)
                            seen = Identity (row)
                        }>
                    },
                    else_branch = no () => (float[3] p) { p = Add (v, x) }>
            }>
            y = Tanh (t)
        }""",
        [{"n": np.array(n), "m": M / 8, "x": X} for n in (0, 1, 4)],
    ),
    "sequences made by one node and read by another, with others between": (
        """
        g (int64 n, float[3] x, bool c) => (float[3] y, float[k] z)
        {
            a = Neg (x)
            s0 = SequenceConstruct (x, a)
            s1 = Loop (n, , s0) <body = b (int64 i, bool go, seq(float[m]) v) => (bool more, seq(float[o]) w)
                { more = Identity (go)  f = Cast <to = 1> (i)  e = Mul (a, f)  w = SequenceInsert (v, e) }>
            s2 = If (c) <
                then_branch = t () => (seq(float[p]) q) { q = SequenceInsert (s1, x) },
                else_branch = e () => (seq(float[p]) q) { q = Identity (s1) }>
            size = SequenceLength (s2)
            one = Constant <value = int64 {1}> ()
            at = Sub (size, one)
            picked = SequenceAt (s2, at)
            z = ConcatFromSequence <axis = 0> (s1)
            y = Exp (picked)
        }""",
        [{"n": np.array(n), "x": X, "c": c} for n, c in ((0, YES), (2, NO), (3, YES))],
    ),
    "a condition and a trip count computed by other nodes": (
        """
        g (float[3] x) => (float[3] y)
        {
            total = ReduceSum <keepdims = 0> (x)
            zero = Constant <value_float = 0.0> ()
            c = Greater (total, zero)
            shape = Shape (x)
            n = Squeeze (shape)
            t = Loop (n, c, x) <body = b (int64 i, bool go, float[3] v) => (bool more, float[3] w)
                { more = Not (c)  w = Add (v, x) }>
            y = If (c) <
                then_branch = a () => (float[3] p) { p = Identity (t) },
                else_branch = e () => (float[3] p) { p = Neg (t) }>
        }""",
        [{"x": X}, {"x": -X}],
    ),
}


def on_onnxruntime(proto: onnx.ModelProto, feeds: list[dict[str, Any]]) -> list[list[Any]]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
    return [session.run(None, one) for one in feeds]


def placements(core: hetero.Core, model: Model) -> Iterator[tuple[str, dict[str, str]]]:
    """Device lists and pins: as the list says, and every other node that CPU takes on the other device, both ways."""
    yield "TEMPLATE", {}
    yield "ORT", {}
    on_cpu = list(core.query_model(model, "CPU"))
    if not any(node.op_type.startswith("Sequence") for node in model.nodes):
        yield "CPU", {}
    for other in ("TEMPLATE", "ORT"):
        yield f"HETERO:CPU,{other}", {}
        for first in (0, 1):
            yield f"HETERO:CPU,{other}", dict.fromkeys(on_cpu[first::2], other)
            yield f"HETERO:{other},CPU", dict.fromkeys(on_cpu[first::2], "CPU")


@pytest.mark.parametrize("case", CASES)
def test_control_flow_gives_what_onnxruntime_gives_wherever_nodes_are(case: str) -> None:
    text, feeds = CASES[case]
    proto = onnx.parser.parse_model(HEAD + text)
    onnx.checker.check_model(proto)
    wanted = on_onnxruntime(proto, feeds)
    core = hetero.Core()
    model = core.read_model(proto)
    cut = 0
    for device, pins in placements(core, model):
        compiled = core.compile_model(model, device, pins=pins or None)
        cut = max(cut, compiled.plan.num_subgraphs if pins else 0)
        for one, expected in zip(feeds, wanted, strict=True):
            found = compiled(one).values()
            for result, value in zip(found, expected, strict=True):
                assert difference(result, value, 1e-5, 1e-6) is None, (device, pins)
    assert cut > 1


def test_captures_are_inputs_of_the_submodel() -> None:
    core = hetero.Core()
    text, _ = CASES["captures from the scope around the scope, only two levels down"]
    model = core.read_model(onnx.parser.parse_model(HEAD + text))
    (choice,) = (node for node in model.nodes if node.op_type == "If")
    assert set(choice.captures) == {"d", "a", "w", "b", "x"}
    plan = core.plan(model, "HETERO:CPU,TEMPLATE", pins={"t": "TEMPLATE"})
    assert [(part.device, part.nodes) for part in plan.subgraphs] == [
        ("CPU", ("a", "b")),
        ("TEMPLATE", ("t",)),
        ("CPU", ("y",)),
    ]
    compiled = core.compile_model(model, plan)
    assert {port.name for port in compiled.submodels[1].inputs} == {"c", "d", "a", "b", "x"}  # w is a constant


def _backend_tests() -> list[Any]:
    """The node tests of the onnx wheel that have nested graphs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [
            pytest.param(test, id=test.name)
            for test in node_tests()
            if any(a.type == onnx.AttributeProto.GRAPH for node in test.model.graph.node for a in node.attribute)
        ]


@pytest.mark.parametrize("test", _backend_tests())
def test_the_backend_tests_with_nested_graphs(test: Any) -> None:
    core = hetero.Core()
    model = core.read_model(test.model)
    compiled = core.compile_model(model, "HETERO:CPU,TEMPLATE")
    for inputs, outputs in test.data_sets:
        feeds = {port.name: value_of(value) for port, value in zip(compiled.inputs, inputs, strict=True)}
        for result, value in zip(compiled(feeds).values(), outputs, strict=True):
            assert difference(result, value, test.rtol, test.atol) is None


def test_sequences_go_in_and_out() -> None:
    core = hetero.Core()
    model = core.read_model(
        onnx.parser.parse_model(
            HEAD
            + """
        g (seq(float[m]) s, float[3] x) => (seq(float[n]) t, float[3] y)
        {
            a = Neg (x)
            t = SequenceInsert (s, a)
            u = Identity (t)
            last = Constant <value = int64 {-1}> ()
            b = SequenceAt (u, last)
            y = Exp (b)
        }"""
        )
    )
    assert [port.is_tensor for port in (*model.inputs, *model.outputs)] == [False, True, False, True]
    compiled = core.compile_model(model, "HETERO:CPU,TEMPLATE")
    assert set(compiled.plan.affinity.values()) == {"CPU"}
    pins = {"t": "TEMPLATE", "b": "TEMPLATE"}
    compiled = core.compile_model(model, "HETERO:CPU,TEMPLATE", pins=pins)
    assert compiled.plan.affinity == {"a": "CPU", "t": "TEMPLATE", "u": "CPU", "b": "TEMPLATE", "y": "CPU"}
    given = [np.ones(2, np.float32)]
    out = compiled({"s": given, "x": X})
    assert difference(out["t"], [given[0], -X], 0, 0) is None
    np.testing.assert_allclose(out["y"], np.exp(-X), rtol=1e-6)
    out["t"][0][:] = 0  # results are the caller's
    assert given[0].tolist() == [1, 1]
    assert "2 arrays" in repr(out)
    with pytest.raises(hetero.InferenceError, match="input 's' is missing; expected a list of float32 arrays"):
        compiled({"x": X})
