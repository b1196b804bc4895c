"""If, Loop and Scan over HETERO: one vertex each, captures as inputs, the nodes around them on other devices; and the
device CONTROL_FLOW, which cuts their nested graphs."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import hetero
from hetero.assign.costs.measured import Costs
from hetero.devices.control_flow import ControlFlowModel
from hetero.devices.template.plugin import TemplatePlugin
from hetero.model.bodies import BODY_ATTRIBUTES, bodies_of, body_nodes
from hetero.model.model import Model
from hetero.plugin import Plugin, Support
from hetero.plugin.profile import total_us, with_bodies_summed
from hetero.registry import Registry
from hetero.report.data import report_data
from hetero.report.trace import to_trace
from hetero.testing import ContractCase, PluginContract
from hetero.testing.cases import make_model
from sessions import onnxruntime_session
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
    session = onnxruntime_session(proto)
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


def nested_node_tests() -> list[Any]:
    """Those with nested graphs."""
    return [
        test
        for test in node_tests()
        if any(a.type == onnx.AttributeProto.GRAPH for node in test.model.graph.node for a in node.attribute)
    ]


@pytest.mark.slow  # as all that make the node tests
def test_the_node_tests_with_nested_graphs(core: hetero.Core) -> None:
    tests = nested_node_tests()
    assert len(tests) > 20
    for test in tests:
        compiled = core.compile_model(core.read_model(test.model), "HETERO:CPU,TEMPLATE")
        for inputs, outputs in test.data_sets:
            feeds = {port.name: value_of(value) for port, value in zip(compiled.inputs, inputs, strict=True)}
            for result, value in zip(compiled(feeds).values(), outputs, strict=True):
                assert difference(result, value, test.rtol, test.atol) is None, test.name


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


# -- the device CONTROL_FLOW


def inner_keys(model: Model) -> list[str]:
    """The keys of all nodes in nested graphs."""
    return [
        key
        for node in model.nodes
        if node.op_type in BODY_ATTRIBUTES and not node.domain
        for key, _, _ in body_nodes(model, node.index)
    ]


def cut_models(compiled: Any) -> list[ControlFlowModel]:
    """The submodels on CONTROL_FLOW, also those inside bodies."""
    found = []
    for submodel in compiled.submodels:
        if isinstance(submodel, ControlFlowModel):
            found.append(submodel)
            for body in submodel.bodies.values():
                found += cut_models(body)
    return found


@pytest.mark.parametrize("case", CASES)
def test_bodies_cut_in_every_other_node_give_what_onnxruntime_gives(case: str) -> None:
    text, feeds = CASES[case]
    proto = onnx.parser.parse_model(HEAD + text)
    wanted = on_onnxruntime(proto, feeds)
    core = hetero.Core()
    model = core.read_model(proto)
    keys = inner_keys(model)
    if not keys:
        return
    used = set()
    for first, step in ((0, 1), (0, 2), (1, 2), (0, 3)):
        pins = dict.fromkeys(keys[first::step], "TEMPLATE")
        if not pins:
            continue
        compiled = core.compile_model(model, "HETERO:ORT,TEMPLATE", pins=pins)
        cut = cut_models(compiled)
        assert cut
        assert compiled.plan.notes
        for one in cut:
            for body in one.bodies.values():
                used.update(body.plan.affinity.items())
        for _ in range(2):  # results of one run are not written by the next
            for one_feed, expected in zip(feeds, wanted, strict=True):
                found = compiled(one_feed).values()
                for result, value in zip(found, expected, strict=True):
                    assert difference(result, value, 1e-5, 1e-6) is None, pins
    assert {device for _, device in used} >= {"TEMPLATE"}


@pytest.mark.slow
def test_the_node_tests_run_with_cut_bodies(core: hetero.Core) -> None:
    ran = 0
    for test in nested_node_tests():
        model = core.read_model(test.model)
        keys = inner_keys(model)
        if not keys:  # SequenceMap, which is not cut
            continue
        compiled = core.compile_model(model, "HETERO:ORT,TEMPLATE", pins=dict.fromkeys(keys[1::2] or keys, "TEMPLATE"))
        assert cut_models(compiled), test.name
        ran += 1
        for inputs, outputs in test.data_sets:
            feeds = {port.name: value_of(value) for port, value in zip(compiled.inputs, inputs, strict=True)}
            for result, value in zip(compiled(feeds).values(), outputs, strict=True):
                assert difference(result, value, test.rtol, test.atol) is None, test.name
    assert ran > 10


LOOP = """
g (float[2,3] x, int64 n) => (float[2,3] y, float[k,2,3] scan) <float[3,3] w = {1, 0, 0, 0, 2, 0, 0, 0, 3}>
{
    a = Exp (x)
    y, scan = Loop (n, , a) <body = b (int64 i, bool c, float[2,3] s) => (bool c2, float[2,3] s2, float[2,3] r) {
        c2 = Identity (c)
        m = MatMul (s, w)
        s2 = Add (m, a)
        r = Relu (m)
    }>
}"""


def loop_model(core: hetero.Core, text: str = LOOP) -> Model:
    proto = onnx.parser.parse_model(HEAD + text)
    for node in proto.graph.node:
        node.name = f"{node.op_type.lower()}"
    return core.read_model(proto)


def by_numpy(x: np.ndarray, trips: int) -> tuple[np.ndarray, np.ndarray]:
    a = state = np.exp(x)
    rows = []
    for _ in range(trips):
        m = state @ np.diag([1, 2, 3]).astype(np.float32)
        state = m + a
        rows.append(np.maximum(m, 0))
    return state, np.stack(rows) if rows else np.empty((0, 2, 3), np.float32)


def test_what_a_cut_loop_computes_and_counts() -> None:
    core = hetero.Core()
    model = loop_model(core)
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    compiled = core.compile_model(model, "HETERO:CPU,TEMPLATE", {"PERF_COUNT": True}, pins={"loop/m": "TEMPLATE"})
    assert compiled.plan.devices == ("CPU", "TEMPLATE", "CONTROL_FLOW")
    assert compiled.plan.affinity == {"exp": "CPU", "loop": "CONTROL_FLOW"}
    assert compiled.plan.notes == {"loop": "body: 4 nodes (3 on CPU, 1 on TEMPLATE) in 4 subgraphs"}
    assert "loop: body: 4 nodes (3 on CPU" in str(compiled.plan)
    assert "pinned to CONTROL_FLOW by 'loop/m'; body: 4 nodes" in str(compiled.plan.explain("loop"))
    assert not any("no node" in warning.message for warning in compiled.plan.warnings)
    request = compiled.create_infer_request()
    for trips in (3, 0, 1, 50, 0, 2):
        outputs = request.infer({"x": x, "n": np.int64(trips)})
        for found, expected in zip(outputs, by_numpy(x, trips), strict=True):
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=1e-5)
        rows = {row.node: row for row in request.profiling_info}
        assert f"{trips} iteration" in rows["loop"].exec_type
        assert ("loop/m" in rows) == (trips > 0)
        if trips:
            assert rows["loop/m"].exec_type.endswith("on TEMPLATE")
            assert rows["loop/s2"].exec_type.endswith("on CPU")
            assert {row.subgraph for row in request.profiling_info} == {1, 2}
    assert '"loop/m"' in to_trace(request.profiling_info)
    summed = with_bodies_summed(request.profiling_info)
    assert [row.node for row in summed] == ["exp", "loop"]
    assert total_us(summed) == pytest.approx(total_us(request.profiling_info))
    text = json.dumps(report_data(compiled.plan, request.profiling_info))
    assert str(round(1000 * summed[1].real_us)) in text
    (costs,) = [
        one
        for one in Costs.from_profile(model, ["CPU", "CONTROL_FLOW"], [request.profiling_info]).measurements
        if one.device == "CONTROL_FLOW"
    ]
    assert costs.nodes["loop"].mean_us == pytest.approx(summed[1].real_us)


def test_priority_alone_cuts_a_loop_only_if_a_device_gains_nodes() -> None:
    core = hetero.Core()
    model = loop_model(core)
    plan = core.plan(model, "HETERO:CONTROL_FLOW,CPU,TEMPLATE")  # the CPU runs the loop as a whole
    assert plan.affinity == {"exp": "CPU", "loop": "CPU"}
    reasons = plan.explain("loop").asked[0].refusal
    assert reasons == "all nodes of its bodies would run on CPU, which supports the Loop as a whole"
    core.register_plugin("NPU", _OnlyMatMul)
    plan = core.plan(model, "HETERO:NPU,CONTROL_FLOW,CPU")
    assert plan.affinity == {"exp": "CPU", "loop": "CONTROL_FLOW"}
    assert plan.notes == {"loop": "body: 4 nodes (1 on NPU, 3 on CPU) in 4 subgraphs"}
    assert core.plan(model, "HETERO:NPU,CPU").affinity == {"exp": "CPU", "loop": "CPU"}  # nobody asked
    x = np.ones((2, 3), np.float32)
    for found, expected in zip(core.compile_model(model, plan)([x, np.int64(4)]), by_numpy(x, 4), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_costs_decide_whether_a_body_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    core = hetero.Core()

    def planned(size: int | str, pins: dict[str, str] | None = None) -> tuple[str, str]:
        text = f"""
        g (float[{size},{size}] x, int64 n) => (float[{size},{size}] y)
        {{
            y = Loop (n, , x) <body = b (int64 i, bool c, float[{size},{size}] s)
                => (bool c2, float[{size},{size}] t) {{
                c2 = Identity (c)
                m = MatMul (s, x)
                t = Tanh (m)
            }}>
        }}"""
        model = loop_model(core, text)
        plan = core.plan(model, "HETERO:FPGA,CONTROL_FLOW,CPU", {"ASSIGNMENT": "COST"}, pins=pins)
        return plan.affinity["loop"], plan.reasons["loop"]

    assert planned(1024)[0] == "CONTROL_FLOW"
    assert planned(4)[0] == "CPU"
    assert planned("k")[0] == "CPU"  # unknown sizes count as small
    monkeypatch.setattr("hetero.devices.control_flow._RUN_S", 10.0)
    device, reason = planned(1024)
    assert device == "CPU"
    assert re.search(r"CONTROL_FLOW: by cost, an iteration takes 10 s cut and [\d.]+ ms on CPU alone", reason)
    assert planned(1024, {"loop/m": "FPGA"})[0] == "CONTROL_FLOW"


class _OnlyMatMul(TemplatePlugin):
    name = "NPU"

    def query_model(self, model: Model, config: Any) -> Support:
        refused = {node.index: "not a MatMul" for node in model.nodes if node.op_type != "MatMul"}
        return Support.from_reasons(model.num_nodes, refused)


@pytest.mark.parametrize(
    ("pins", "placed"),
    [
        ({"loop/.*": "TEMPLATE"}, "TTTT"),
        ({"op:Relu": "TEMPLATE"}, "CCCT"),
        ({"loop": "TEMPLATE", "loop/m": "CPU"}, "TCTT"),  # all of it, except
        ({"loop": "CONTROL_FLOW", "loop/r": "TEMPLATE"}, "CCCT"),
        ({"loop/m": "TEMPLATE", "loop/.*": "CPU"}, "CTCC"),  # keys override expressions
    ],
)
def test_pins_inside_a_body(pins: dict[str, str], placed: str) -> None:
    core = hetero.Core()
    compiled = core.compile_model(loop_model(core), "HETERO:CPU,TEMPLATE", pins=pins)
    (submodel,) = cut_models(compiled)
    affinity = submodel.bodies["loop.body"].plan.affinity
    assert "".join(affinity[f"loop/{name}"][0] for name in ("c2", "m", "s2", "r")) == placed


WEIGHTS = """
g (float[2,3] x, int64 n) => (float[2,3] y, float[2,3] z) <float[3] w = {1, 2, 3}, float[3] both = {4, 5, 6}>
{
    y = Loop (n, , x) <body = b (int64 i, bool c, float[2,3] s) => (bool c2, float[2,3] s2)
        <float[3] own = {0.5, 0.5, 0.5}, int8[3] packed = {1, 2, 3}, float[3] unread = {1, 1, 1}> {
        c2 = Identity (c)
        m = Mul (s, w)
        a = Add (m, own)
        scale = Constant <value = float {0.25}> ()
        d = DequantizeLinear (packed, scale)
        e = Sub (a, d)
        o = If (c) <then_branch = t () => (float[2,3] o1) { o1 = Add (e, both) },
                    else_branch = f () => (float[2,3] o2) { o2 = Mul (e, own) }>
        s2 = Tanh (o)
    }>
    z = Add (y, both)
}"""


@pytest.mark.parametrize(
    ("pin", "expected"),
    [
        ("weight:w", {"loop/m"}),  # a constant outside
        ("weight:own", {"loop/a", "loop/o/o2"}),  # of the body, read at two depths
        ("weight:pack.*", {"loop/d", "loop/e"}),  # dequantized
        ("weight:scale", {"loop/d", "loop/e"}),  # a Constant node
        ("weight:both", {"add", "loop/o/o1"}),  # read in the graph, too
        ("weight:w|own", {"loop/m", "loop/a", "loop/o/o2"}),
    ],
)
def test_a_pin_by_weight_selects_its_readers_in_bodies(pin: str, expected: set[str]) -> None:
    core = hetero.Core()
    model = loop_model(core, WEIGHTS)
    compiled = core.compile_model(model, "HETERO:CPU,TEMPLATE", pins={pin: "TEMPLATE"})
    placed = dict(compiled.plan.affinity)
    pending = cut_models(compiled)
    while pending:
        for body in pending.pop().bodies.values():
            placed |= body.plan.affinity
            pending += cut_models(body)
    assert {key for key, device in placed.items() if device == "TEMPLATE"} == expected
    feeds = {"x": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3), "n": np.int64(3)}
    for found, whole in zip(compiled(feeds), core.compile_model(model, "CPU")(feeds), strict=True):
        np.testing.assert_allclose(found, whole, rtol=1e-5)


def test_pins_by_weight_that_leave_bodies_whole() -> None:
    core = hetero.Core()
    model = loop_model(core, WEIGHTS)
    for pin, hint in {"weight:unread": "", "weight:owm": r" \(did you mean weight:own\?\)"}.items():
        with pytest.raises(hetero.PropertyError, match=f"pin '{pin}' matches no node{hint}"):
            core.plan(model, "HETERO:CPU,TEMPLATE", pins={pin: "TEMPLATE"})
    read = WEIGHTS.replace("Loop (n, , x)", "Loop (n, , q)").replace("{\n    y", "{\n    q = Add (x, w)\n    y", 1)
    plan = core.plan(loop_model(core, read), "HETERO:CPU,TEMPLATE", pins={"weight:own|unread": "TEMPLATE"})
    assert plan.affinity["loop"] == "CONTROL_FLOW"
    text = """
    g (float[3] x, int64 n) => (float[3] y) <float[3] w = {1, 2, 3}>
    {
        y = Loop (n, , w) <body = b (int64 i, bool c, float[3] s) => (bool c2, float[3] t) {
            c2 = Identity (c)
            t = Add (s, x)
        }>
    }"""  # the Loop itself reads the weight
    plan = core.plan(loop_model(core, text), "HETERO:CPU,TEMPLATE", pins={"weight:w": "TEMPLATE"})
    assert plan.affinity == {"loop": "TEMPLATE"}


@pytest.mark.parametrize(
    ("pin", "hint"),
    [
        ("/conv/Tanh", ": it is inside a graph of '/Loop' \\(Loop\\): write '/Loop/conv/Tanh'"),
        ("/Loop/Tanh", ": it is inside a graph of '/Loop' \\(Loop\\): write '/Loop/conv/Tanh'"),
        ("/Loop/conv/Tan", " \\(did you mean /Loop/conv/Tanh\\?\\)"),
        ("op:Tahn", " \\(did you mean op:Tanh\\?\\)"),
    ],
)
def test_hints_for_nodes_with_names_of_pytorch(core: hetero.Core, pin: str, hint: str) -> None:
    with pytest.raises(hetero.PropertyError, match=f"pin '{pin}' matches no node{hint}"):
        core.plan(pytorch_loop(core), "HETERO:CPU,TEMPLATE", pins={pin: "TEMPLATE"})


def pytorch_loop(core: hetero.Core) -> hetero.Model:
    text = """
    g (float[2] x, int64 n) => (float[2] y) {
        y = Loop (n, , x) <body = b (int64 i, bool c, float[2] s) => (bool c2, float[2] t) {
            c2 = Identity (c)
            t = Tanh (s)
        }>
    }"""
    proto = onnx.parser.parse_model(HEAD + text)
    (loop,) = proto.graph.node
    loop.name = "/Loop"
    for node, name in zip(loop.attribute[0].g.node, ("/Identity", "/conv/Tanh"), strict=True):
        node.name = name
    return core.read_model(proto)


@pytest.mark.parametrize("text", ["/Loop/.*", "op:Tanh"])
def test_explanations_of_nodes_in_bodies_name_the_outer_node(core: hetero.Core, text: str) -> None:
    plan = core.plan(pytorch_loop(core), "HETERO:CPU,TEMPLATE")
    with pytest.raises(
        hetero.PropertyError, match="'/Loop/conv/Tanh' is inside a graph of '/Loop' \\(Loop\\), which is"
    ):
        plan.explain("/Loop/conv/Tanh")
    with pytest.raises(hetero.PropertyError, match="it matches only nodes inside the graphs of '/Loop'"):
        plan.what_if(pins={text: "TEMPLATE"})


GROUPED = """
    g (float[1, 2, 4, 4] x, int64 n) => (float[1, 2, 4, 4] y) <float[2, 2, 1, 1] w = {1, 0, 0, 1}> {
        a = Conv (x, w)
        b = Loop (n, , a) <body = b (int64 i, bool c, float[1, 2, 4, 4] s) => (bool c2, float[1, 2, 4, 4] t) {
            c2 = Identity (c)
            p = Conv (s, w)
            q = Exp (p)
            t = Relu (q)
        }>
        y = Conv (b, w)
    }"""


def devices_in_body(groups: Any) -> str:
    """The devices of the body's nodes p, q and t, also after an export. FPGA has no Exp."""
    core = hetero.Core()
    model = core.read_model(onnx.parser.parse_model(HEAD + GROUPED))
    x = np.full((1, 2, 4, 4), 0.5, np.float32)
    compiled = core.compile_model(model, "HETERO:FPGA,CONTROL_FLOW,CPU", {"STAY_TOGETHER": groups})
    stream = io.BytesIO()
    compiled.export_model(stream)
    stream.seek(0)
    placed = set()
    for each in (compiled, core.import_model(stream)):
        np.testing.assert_allclose(each({"x": x, "n": np.array(2)})["y"], np.exp(np.exp(x)), rtol=1e-5)
        (submodel,) = cut_models(each)
        affinity = submodel.bodies["b.body"].plan.affinity
        placed.add("".join(affinity[f"b/{name}"][0] for name in "pqt"))
    (devices,) = placed
    return devices


def test_groups_apply_in_bodies() -> None:
    assert devices_in_body([]) == "FCF"
    assert devices_in_body([["b/p", "b/q"]]) == "CCF"
    assert devices_in_body([["b/q", "b/t"], ["a", "y"]]) == "FCC"
    assert devices_in_body("op:Conv|Exp") == "CCF"  # also the nodes around the body, which are all on FPGA


@pytest.mark.parametrize(
    ("group", "told"),
    [
        (
            ["b/p", "a"],
            r"'b/p' matches only nodes inside the graphs of 'b' \(Loop\), which cannot stay together with 'a'",
        ),
        (["op:Conv", "op:Exp"], r"'op:Exp' matches only nodes inside the graphs of 'b' \(Loop\), which cannot"),
        (["b/x", "b/q"], "STAY_TOGETHER 'b/x' matches no node"),
    ],
)
def test_groups_of_nodes_in_several_graphs_are_refused(core: hetero.Core, group: list[str], told: str) -> None:
    model = onnx.parser.parse_model(HEAD + GROUPED)
    with pytest.raises(hetero.PropertyError, match=told):
        core.plan(model, "HETERO:FPGA,CONTROL_FLOW,CPU", {"STAY_TOGETHER": [group]})


def test_a_group_in_a_body_that_runs_on_one_device_holds(core: hetero.Core) -> None:
    plan = core.plan(onnx.parser.parse_model(HEAD + GROUPED), "HETERO:FPGA,CPU", {"STAY_TOGETHER": [["b/p", "b/q"]]})
    assert plan.affinity["b"] == "CPU"


def test_a_pin_of_a_node_with_a_body_without_nodes() -> None:
    core = hetero.Core()
    text = """
    g (float[2] x, int64 n, bool b) => (float[2] y)
    {
        y = Loop (n, , x) <body = b (int64 i, bool c, float[2] s) => (bool c2, float[2] t) {
            c2 = Identity (c)
            t = If (b) <
                then_branch = t () => (float[2] k) { k = Constant <value_floats = [1.0, 2.0]> () },
                else_branch = e () => (float[2] v) { v = Neg (s) }>
        }>
    }"""
    for key in ("loop", "loop/t"):
        compiled = core.compile_model(loop_model(core, text), "HETERO:CPU,TEMPLATE,CONTROL_FLOW", pins={
            "loop/c2": "CPU", key: "TEMPLATE"})  # fmt: skip
        for branch, wanted in ((True, [1, 2]), (False, [-3, -4])):
            found = compiled({"x": np.array([3, 4], np.float32), "n": np.int64(3), "b": np.array(branch)})
            assert found[0].tolist() == wanted


def test_pins_that_match_the_graph_itself_leave_bodies_whole() -> None:
    core = hetero.Core()
    model = loop_model(core)
    assert core.plan(model, "HETERO:CPU,TEMPLATE", pins={"loop.*": "TEMPLATE"}).affinity["loop"] == "TEMPLATE"
    with pytest.raises(hetero.PropertyError, match=r"inside a graph of 'loop' \(Loop\): write 'loop/s2'"):
        core.plan(model, "HETERO:CPU,TEMPLATE", pins={"s2": "TEMPLATE"})
    with pytest.raises(hetero.PropertyError, match="not in the list CPU, TEMPLATE, CONTROL_FLOW"):
        core.plan(model, "HETERO:CPU,TEMPLATE", pins={"loop/m": "FPGA"})


@pytest.mark.parametrize("rule", [{"ASSIGNMENT": "COST"}, {"OBJECTIVE": "LATENCY"}, {}])
def test_an_export_assigns_bodies_by_the_same_rule(rule: dict[str, str]) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]> g (int64 n, float[32, 32] x) => (float[32, 32] y) {
            y = Loop (n, "", x) <body = b (int64 i, bool go, float[32, 32] v) => (bool more, float[32, 32] w)
                { more = Identity (go)  a = MatMul (v, v)  t = Tanh (a)  w = Neg (t) }>
        }"""
    )
    core = hetero.Core()
    compiled = core.compile_model(model, "HETERO:CONTROL_FLOW,TEMPLATE,CPU", rule, pins={"y/w": "TEMPLATE"})
    file = io.BytesIO()
    compiled.export_model(file)
    again = core.import_model(file.getvalue())
    own, others = (dict(cut_models(each)[0].bodies["y.body"].plan.affinity) for each in (compiled, again))
    assert own == others


def test_a_saved_plan_and_an_export_cut_the_same(tmp_path: Path) -> None:
    core = hetero.Core()
    model = loop_model(core)
    plan = core.plan(model, "HETERO:CPU,TEMPLATE", pins={"loop/m": "TEMPLATE"})
    plan.save(tmp_path / "plan.json")
    x = np.ones((2, 3), np.float32)
    compiled = core.compile_model(model, hetero.Plan.load(tmp_path / "plan.json"))
    compiled.export_model(tmp_path / "loop.hetero")
    for again in (compiled, hetero.Core().import_model(tmp_path / "loop.hetero")):
        (submodel,) = cut_models(again)
        assert submodel.bodies["loop.body"].plan.affinity["loop/m"] == "TEMPLATE"
        for found, expected in zip(again([x, np.int64(3)]), by_numpy(x, 3), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5)
    for _ in range(2):
        cached = core.compile_model(
            model, "HETERO:CPU,TEMPLATE", {"CACHE_DIR": str(tmp_path / "cache")}, pins={"loop/m": "TEMPLATE"}
        )
        assert cached([x, np.int64(2)])[0].tolist() == compiled([x, np.int64(2)])[0].tolist()
    assert cached.get_property("LOADED_FROM_CACHE")


def test_errors_of_a_body_name_the_loop_and_the_node() -> None:
    core = hetero.Core()
    text = """
    g (float[k] x, int64 n) => (float[m] y)
    {
        y = Loop (n, , x) <body = b (int64 i, bool c, float[p] s) => (bool c2, float[q] t) {
            c2 = Identity (c)
            u = Concat <axis = 0> (s, s)
            t = Add (u, x)
        }>
    }"""
    compiled = core.compile_model(loop_model(core, text), "HETERO:CPU,TEMPLATE", pins={"loop/t": "TEMPLATE"})
    with pytest.raises(hetero.InferenceError, match="loop/t") as caught:
        compiled({"x": np.ones(3, np.float32), "n": np.int64(2)})
    notes = "\n".join(caught.value.__notes__)
    assert "in run 1 of 'body' of Loop 'loop'" in notes
    assert compiled({"x": np.ones(1, np.float32), "n": np.int64(0)})[0].tolist() == [1]
    model = loop_model(core, text.replace("Concat <axis = 0> (s, s)", "Mystery (s, s)"))
    with pytest.raises(hetero.UnsupportedModel, match=r"its inner node 'loop/u': CPU: .*Mystery"):
        core.plan(model, "HETERO:CPU,CONTROL_FLOW,TEMPLATE")


def test_scanned_results_of_different_shapes_are_an_error_that_names_the_node() -> None:
    core = hetero.Core()
    text = """
    g (float[k] x, int64 n) => (float[m] y, float[j, o] r)
    {
        y, r = Loop (n, , x) <body = b (int64 i, bool c, float[p] s) => (bool c2, float[q] t, float[z] v) {
            c2 = Identity (c)
            t = Concat <axis = 0> (s, s)
            v = Neg (t)
        }>
    }"""
    compiled = core.compile_model(loop_model(core, text), "HETERO:CPU,TEMPLATE", pins={"loop/v": "TEMPLATE"})
    y, rows = compiled({"x": X, "n": np.int64(1)}).values()
    assert y.tolist() == [*X, *X]
    assert rows.tolist() == [[*-X, *-X]]
    with pytest.raises(hetero.InferenceError, match=r"node 'loop' \(Loop\)"):
        compiled({"x": X, "n": np.int64(2)})


def test_a_cut_loop_without_an_end_is_cancelled() -> None:
    core = hetero.Core()
    text = """
    g (float[2] x) => (float[2] y)
    {
        y = Loop (, , x) <body = b (int64 i, bool c, float[2] s) => (bool c2, float[2] t) {
            c2 = Identity (c)
            t = Cos (s)
        }>
    }"""
    compiled = core.compile_model(loop_model(core, text), "HETERO:CPU,TEMPLATE", pins={"loop/t": "TEMPLATE"})
    request = compiled.create_infer_request()
    request.start_async({"x": np.ones(2, np.float32)})
    assert not request.wait(200)
    request.cancel()
    with pytest.raises(hetero.Cancelled):
        request.wait(10_000)


def test_iteration_and_condition_of_rank_1() -> None:
    core = hetero.Core()
    text = """
    g (float[2] x, int64[1] n) => (float[2] y, int64[m, 1] r)
    {
        y, r = Loop (n, , x) <body = b (int64[1] i, bool[1] c, float[2] s) => (bool[1] c2, float[2] t, int64[1] j) {
            c2 = Identity (c)
            f = CastLike (i, s)
            t = Add (s, f)
            j = Identity (i)
        }>
    }"""
    compiled = core.compile_model(loop_model(core, text), "HETERO:CPU,TEMPLATE", pins={"loop/t": "TEMPLATE"})
    y, counted = compiled({"x": np.zeros(2, np.float32), "n": np.array([4])}).values()
    assert (y.tolist(), counted.tolist()) == ([6, 6], [[0], [1], [2], [3]])


@pytest.mark.parametrize("declared", ["int64 i, bool c, float[2] s", "i, c, s"])
def test_a_body_that_lists_an_output_several_times(declared: str) -> None:
    """Also without the types that follow from the node, which lacks a condition."""
    core = hetero.Core()
    text = """
    g (float[2] x, int64 n, bool b) => (float[2] y, float[2] z, float[m, 2] r, float[2] p, float[2] q)
    {
        y, z, r = Loop (n, , x, x) <body = b (DECLARED, float[2] s2) => (bool c2, float[2] t, float[2] t, float[2] t) {
            c2 = Identity (c)
            f = CastLike (i, s)
            u = Add (s, f)
            t = Sub (u, s2)
        }>
        p, q = If (b) <
            then_branch = t () => (float[2] v, float[2] v) { v = Neg (y) },
            else_branch = e () => (float[2] v, float[2] w) { v = Exp (y)  w = Neg (v) }>
    }""".replace("DECLARED", declared)
    model = loop_model(core, text)
    compiled = core.compile_model(model, "HETERO:CPU,TEMPLATE", pins={"loop/t": "TEMPLATE", "if/v": "TEMPLATE"})
    assert cut_models(compiled)
    x = np.array([3, 4], np.float32)
    for trips in (2, 0, 1, 3):
        for branch in (True, False):
            wanted = [x, x, []] if not trips else [np.full(2, trips - 1)] * 2 + [[[row, row] for row in range(trips)]]
            wanted += [-wanted[0]] * 2 if branch else [np.exp(wanted[0]), -np.exp(wanted[0])]
            found = list(compiled({"x": x, "n": np.int64(trips), "b": np.array(branch)}).values())
            for result, value in zip(found, wanted, strict=True):
                np.testing.assert_allclose(result, np.reshape(value, result.shape), rtol=1e-6)
            assert not any(np.shares_memory(a, b) for at, a in enumerate(found) for b in [x, *found[:at]])


def test_bodies_as_models() -> None:
    core = hetero.Core()
    model = loop_model(core)
    (body,) = bodies_of(model, 1)
    assert (body.attribute, body.captures) == ("body", ("a",))
    assert [port.name for port in body.model.inputs] == ["i", "c", "s", "a"]
    assert [port.name for port in body.model.outputs] == ["c2", "s2", "r"]
    assert body.model.keys == ("loop/c2", "loop/m", "loop/s2", "loop/r")
    w = body.model.value_id("w")  # a constant outside is one inside
    assert np.array_equal(body.model.constant(w), np.diag([1, 2, 3]).astype(np.float32))
    assert body_nodes(model, 1) == [
        ("loop/c2", "Identity", ()), ("loop/m", "MatMul", ("w",)), ("loop/s2", "Add", ()), ("loop/r", "Relu", ())
    ]  # fmt: skip


def test_captured_weights_are_not_copied() -> None:
    core = hetero.Core()
    weights = np.ones((64, 64), np.float32)
    body = onnx.parser.parse_graph("b () => (float[64,64] z) { z = Mul (x, w) }")
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("If", ["c"], ["y"], "if", then_branch=body, else_branch=body)],
        "g",
        [
            onnx.helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, []),
            onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [64, 64]),
        ],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [64, 64])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    opsets = [onnx.helper.make_opsetid("", 17)]
    model = core.read_model(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8))
    for body_of in bodies_of(model, 0):
        inner = body_of.model.constant(body_of.model.value_id("w"), aligned=False)
        outer = model.constant(model.value_id("w"), aligned=False)
        assert np.shares_memory(inner, outer)


def contract_cases() -> tuple[ContractCase, ...]:
    """Models of control flow only, over float32 inputs."""
    power = onnx.parser.parse_graph(
        "b (int64 i, bool c, float[a,d] s) => (bool c2, float[a,d] t, float[a,d] u)"
        "{ c2 = Identity (c)  t = Mul (s, x)  u = Neg (t) }"
    )
    total = onnx.parser.parse_graph(
        "b (float[3] s, float[3] x) => (float[3] t, float[3] u) { t = Add (s, x)  u = Identity (t) }"
    )
    loop = onnx.helper.make_node("Loop", ["n", "", "x"], ["y", "all"], "loop", body=power)
    scan = onnx.helper.make_node("Scan", ["s", "x"], ["last", "sums"], "scan", body=total, num_scan_inputs=1)
    rng = np.random.default_rng(7)

    def feed(**shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
        return {name: rng.random(shape, np.float32) for name, shape in shapes.items()}

    return (
        ContractCase(
            "powers in a Loop",
            make_model([loop], {"x": ["m", 3]}, {"y": ["m", 3], "all": ["k", "m", 3]}, {"n": np.array(3)}),
            [feed(x=(m, 3)) for m in (1, 4, 2)],
            lambda given: {"y": given["x"] ** 4, "all": -np.stack([given["x"] ** power for power in (2, 3, 4)])},
        ),
        ContractCase(
            "running sums in a Scan",
            make_model([scan], {"s": [3], "x": ["m", 3]}, {"last": [3], "sums": ["m", 3]}),
            [feed(s=(3,), x=(m, 3)) for m in (1, 5)],
            lambda given: {
                "last": given["s"] + given["x"].sum(0),
                "sums": given["s"] + given["x"].cumsum(0, np.float32),
            },
        ),
    )


class TestContract(PluginContract):
    """The contract suite on models of control flow."""

    config = {"MULTI_DEVICE_PRIORITIES": "TEMPLATE,CPU", "PINS": {".*/[tu]": "CPU"}}  # noqa: RUF012

    @pytest.fixture
    def plugin(self) -> Iterator[Plugin]:
        registry = Registry()
        yield registry.plugin("CONTROL_FLOW")
        assert registry

    def may_forward(self, plugin: Plugin, name: str) -> bool:
        return any(plugin.plugin_of(device).declares(name) for device in ("TEMPLATE", "CPU", "HETERO"))

    def cases(self) -> tuple[ContractCase, ...]:
        return contract_cases()


def test_memory_limits_count_the_bodies() -> None:
    core = hetero.Core()
    core.register_plugin("NPU", _OnlyMatMul)
    wide = LOOP.replace(
        "float[3,3] w = {1, 0, 0, 0, 2, 0, 0, 0, 3}", "float[3,3] w = {1, 0, 0, 0, 2, 0, 0, 0, 3}"
    ).replace("a = Exp (x)", "h = Exp (x)\n    a = MatMul (h, w)")
    model = loop_model(core, wide)
    devices = "HETERO:NPU,CONTROL_FLOW,CPU"
    free = core.plan(model, devices)
    assert free.affinity == {"exp": "CPU", "matmul": "NPU", "loop": "CONTROL_FLOW"}
    # The matrix product in the graph, and the one in the body: each 24 bytes in and out, and 36 of weights.
    body = graph = 2 * 24 + 36
    for limit, expected in (
        (body + graph, {"exp": "CPU", "matmul": "NPU", "loop": "CONTROL_FLOW"}),
        (body + graph - 1, {"exp": "CPU", "matmul": "CPU", "loop": "CONTROL_FLOW"}),
        (body - 1, {"exp": "CPU", "matmul": "CPU", "loop": "CPU"}),
    ):
        plan = core.plan(model, devices, max_memory={"NPU": limit})
        assert plan.affinity == expected, limit
        compiled = core.compile_model(model, plan)
        x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
        whole = core.compile_model(model, "CPU")([x, np.int64(3)])
        for found, other in zip(compiled([x, np.int64(3)]), whole, strict=True):
            np.testing.assert_allclose(found, other, rtol=1e-5)
    with pytest.raises(hetero.InsufficientMemory, match="NPU would need"):
        core.compile_model(model, free, {"MAX_MEMORY": {"NPU": body + graph - 1}})


def test_memory_limits_that_several_bodies_exceed_together() -> None:
    core = hetero.Core()
    core.register_plugin("NPU", _OnlyMatMul)
    twice = LOOP.replace(
        "}>\n}",
        "}>\n    z, scan2 = Loop (n, , a) <body = b (int64 j, bool d, float[2,3] t) => "
        "(bool d2, float[2,3] t2, float[2,3] q) {\n        d2 = Identity (d)\n        m2 = MatMul (t, w)\n"
        "        t2 = Add (m2, a)\n        q = Relu (m2)\n    }>\n}",
    ).replace("scan)", "scan, float[2,3] z)", 1)
    proto = onnx.parser.parse_model(HEAD + twice)
    for number, node in enumerate(proto.graph.node):
        node.name = f"n{number}"
    model = core.read_model(proto)
    need = 2 * (2 * 24 + 36)
    devices = "HETERO:NPU,CONTROL_FLOW,CPU"
    assert core.plan(model, devices, max_memory={"NPU": need + 1}).affinity["n2"] == "CONTROL_FLOW"
    with pytest.raises(hetero.InsufficientMemory, match="for nested graphs alone, NPU would need 168 B of 100 B"):
        core.plan(model, devices, max_memory={"NPU": 100})


def test_a_device_whose_rules_concern_ranks_gets_nodes_of_a_body_and_after_the_loop(core: hetero.Core) -> None:
    """The file states the rank of no value but the input."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[1, 4, 8, 8] x, int64 m) => (float[] y) <float[4, 4, 3, 3] w> {
            a = Loop (m, , x) <body = b (int64 i, bool k, float[] v) => (bool k2, float[] r) {
                k2 = Identity (k)
                c = Conv <pads = [1, 1, 1, 1]> (v, w)
                r = Tanh (c)
            }>
            y = Conv <pads = [1, 1, 1, 1]> (a, w)
        }"""
    model = onnx.parser.parse_model(text)
    weights = np.random.default_rng(0).standard_normal((4, 4, 3, 3)).astype(np.float32) / 8
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    del model.graph.value_info[:]
    compiled = core.compile_model(model, "HETERO:FPGA,CONTROL_FLOW,CPU")
    plan = core.plan(model, "HETERO:FPGA,CONTROL_FLOW,CPU")
    assert [subgraph.device for subgraph in plan.subgraphs] == ["CONTROL_FLOW", "FPGA"]
    x = np.random.default_rng(1).standard_normal((1, 4, 8, 8)).astype(np.float32)
    expected = core.compile_model(model, "TEMPLATE")
    for trips in (0, 1, 3):
        values = {"x": x, "m": np.array(trips)}
        np.testing.assert_allclose(compiled(values)["y"], expected(values)["y"], rtol=1e-4, atol=1e-5)
