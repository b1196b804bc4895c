"""Model-local functions: calls carried whole or inlined, with the same results either way."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper
import onnx.parser
import pytest

import hetero
from hetero.model.functions import FunctionLibrary, inline_calls
from hetero.model.model import Model
from hetero.model.read import read_model
from sessions import onnxruntime_session

LAYERS = """
<ir_version: 10, opset_import: ["": 18, "local": 1]>
g (float[3] x, bool c) => (float[3] y, float[3] z)
{
    [first] a = local.Layer <alpha: float = 0.3> (x)
    [relu] b = Relu (a)
    [second] z = local.Layer (b)
    [choice] y = If (c) <
        then_branch = t () => (float[3] p) { p = local.Layer <alpha: float = 0.7> (z) },
        else_branch = e () => (float[3] q) { q = Neg (a) }>
}
<domain: "local", opset_import: ["": 17, "local": 1]>
Layer <alpha: float = 0.5> (v) => (w)
{
    [leak] u = local.Leak <slope: float = @alpha> (v)
    half = Constant <value_float: float = 0.5> ()
    [shift] w = Add (u, half)
}
<domain: "local", opset_import: ["": 18]>
Leak <slope> (v) => (w)
{
    [lrelu] w = LeakyRelu <alpha: float = @slope> (v)
}
"""
X = np.array([-4, 0.25, 2], np.float32)


def parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


def on_onnxruntime(proto: onnx.ModelProto, feeds: dict[str, Any]) -> Sequence[Any]:
    session = onnxruntime_session(proto)
    return session.run(None, feeds)


def agree(found: Sequence[Any], expected: Sequence[Any]) -> None:
    assert len(found) == len(expected)
    for result, wanted in zip(found, expected, strict=True):
        assert result.dtype == wanted.dtype
        assert result.shape == wanted.shape
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


def inlined(model: Model) -> Model:
    """All calls replaced, whatever devices say."""
    library = FunctionLibrary(model.file)
    while model.functions:
        model = inline_calls(model, range(model.num_nodes), library).model
    return model


def run(model: Model | onnx.ModelProto, device: str, feeds: dict[str, Any], **kwargs: Any) -> list[Any]:
    core = hetero.Core()
    if isinstance(model, onnx.ModelProto):
        model = core.read_model(model)
    return list(core.compile_model(model, device, **kwargs)(feeds).values())


@pytest.mark.parametrize("device", ["TEMPLATE", "HETERO:CPU,TEMPLATE", "HETERO:TEMPLATE,CPU"])
@pytest.mark.parametrize("condition", [True, False])
def test_every_device_list_gives_what_onnxruntime_gives(device: str, condition: bool) -> None:
    proto = parse(LAYERS)
    feeds = {"x": X, "c": np.array(condition)}
    agree(run(proto, device, feeds), on_onnxruntime(proto, feeds))


def test_the_inlined_model_is_an_ordinary_one() -> None:
    proto = parse(LAYERS)
    model = inlined(read_model(proto))
    onnx.checker.check_model(model.to_proto(), full_check=True)
    assert model.functions == ()
    feeds = {"x": X, "c": np.array(True)}
    agree(on_onnxruntime(model.to_proto(), feeds), on_onnxruntime(proto, feeds))
    assert model.keys == (*("first/leak/lrelu", "first/shift", "relu", "second/leak/lrelu", "second/shift", "choice"),)


def test_a_call_stays_whole_where_the_first_device_takes_it() -> None:
    core = hetero.Core()
    model = core.read_model(parse(LAYERS))
    assert set(core.plan(model, "HETERO:TEMPLATE,CPU").affinity) == {"first", "relu", "second", "choice"}
    assert core.plan(model, "TEMPLATE").assignment.model.num_nodes == 4


def test_a_call_is_inlined_where_a_better_device_takes_its_nodes() -> None:
    core = hetero.Core()
    model = core.read_model(parse(LAYERS))
    plan = core.plan(model, "HETERO:CPU,TEMPLATE")
    assert plan.affinity == {
        "first/leak/lrelu": "CPU",
        "first/shift": "CPU",
        "relu": "CPU",
        "second/leak/lrelu": "CPU",
        "second/shift": "CPU",
        "choice": "CPU",
    }
    assert dict(core.query_model(model, "CPU")) == dict.fromkeys(("first", "relu", "second", "choice"), "CPU")


# -- what a call binds -------------------------------------------------------------------------------------------------

HEAD = '<ir_version: 10, opset_import: ["": 18, "l": 1]>\n'
BINDINGS = {
    "an input left out at the end": """
        g (float[3] x) => (float[3] y) { y = l.Limit (x) }
        <domain: "l", opset_import: ["": 18]> Limit (a, low, high) => (b) { b = Clip (a, low, high) }""",
    "an input left out in the middle": """
        g (float[3] x, float h) => (float[3] y) { y = l.Limit (x, , h) }
        <domain: "l", opset_import: ["": 18]> Limit (a, low, high) => (b) { b = Clip (a, low, high) }""",
    "outputs left out, which the body still uses": """
        g (float[3] x) => (float[3] y) { , y = l.Two (x) }
        <domain: "l", opset_import: ["": 18]> Two (a) => (b, c, d) { b = Neg (a)  c = Exp (b)  d = Abs (c) }""",
    "an output that is an input": """
        g (float[3] x) => (float[3] y, float[3] z) { y, z = l.Same (x) }
        <domain: "l", opset_import: ["": 18]> Same (a) => (a, b) { b = Neg (a) }""",
    "an output given twice": """
        g (float[3] x) => (float[3] y, float[3] z) { y, z = l.Twice (x) }
        <domain: "l", opset_import: ["": 18]> Twice (a) => (b, b) { b = Neg (a) }""",
    "one value for two inputs": """
        g (float[3] x) => (float[3] y) { y = l.Sum (x, x) }
        <domain: "l", opset_import: ["": 18]> Sum (a, b) => (c) { c = Add (a, b) }""",
    "names of the model used in the function for something else": """
        g (float[3] x) => (float[3] y) { t = Neg (x)  y = l.F (t)  }
        <domain: "l", opset_import: ["": 18]> F (x) => (z) { y = Exp (x)  t = Abs (y)  z = Add (t, y) }""",
    "a name that inlining would make": """
        g (float[3] x) => (float[3] y, float[3] z) {
            ["call/n"] t = Neg (x)  ["call/n_2"] z = Exp (t)  [call] u = l.F (t)
            "call/t" = Abs (u)  y = Add ("call/t", z) }
        <domain: "l", opset_import: ["": 18]> F (x) => (z) { [n] t = Exp (x)  z = Add (t, t) }""",
    "a constant result": """
        g (float[3] x) => (float[3] y) { c = l.One ()  y = Mul (x, c) }
        <domain: "l", opset_import: ["": 18]> One <v: float = 3.0> () => (c)
        { c = Constant <value_float: float = @v> () }""",
    "nodes without names, and with one name for all": """
        g (float[3] x) => (float[3] y) { [n] t = Neg (x)  [n] u = l.F (t)  [n] y = Abs (u) }
        <domain: "l", opset_import: ["": 18]> F (x) => (z) { [n] t = Exp (x)  [n] z = Add (t, t) }""",
    "nested graphs that capture what is renamed": """
        g (float[3] x, bool c) => (float[3] y) { [k] y = l.F (x, c) }
        <domain: "l", opset_import: ["": 18]> F (x, c) => (z) {
            t = Exp (x)
            z = If (c) <
                then_branch = a () => (float[3] p) {
                    q = Add (t, x)
                    p = If (c) <
                        then_branch = a2 () => (float[3] r) { s = Neg (q)  r = Add (s, t) },
                        else_branch = b2 () => (float[3] r) { r = Identity (t) }> },
                else_branch = b () => (float[3] p) { p = Identity (x) }> }""",
    "an attribute in a nested graph": """
        g (float[3] x, bool c) => (float[3] y) { y = l.F <slope = 0.25> (x, c) }
        <domain: "l", opset_import: ["": 18]> F <slope> (x, c) => (z) {
            z = If (c) <
                then_branch = a () => (float[3] p) { p = LeakyRelu <alpha: float = @slope> (x) },
                else_branch = b () => (float[3] p) { p = Identity (x) }> }""",
    "a value of the model in a nested graph that has that name for its own": """
        g (float[3] x, bool c) => (float[3] y) { p = Neg (x)  y = l.F (p, c) }
        <domain: "l", opset_import: ["": 18]> F (v, c) => (z) {
            z = If (c) <
                then_branch = a () => (float[3] w) { p = Exp (v)  w = Add (p, v) },
                else_branch = b () => (float[3] w) { w = Identity (v) }> }""",
    "calls in a Loop": """
        g (float[3] x, int64 n) => (float[3] y, float[K, 3] s) {
            true = Constant <value = bool {1}> ()
            y, s = Loop (n, true, x) <body = b (int64 i, bool go, float[3] v) => (bool more, float[3] w, float[3] u) {
                more = Identity (go)
                w = l.F (v)
                u = l.F (w) }> }
        <domain: "l", opset_import: ["": 18, "l": 1]> F (x) => (z) { t = l.G (x)  z = Add (t, x) }
        <domain: "l", opset_import: ["": 18]> G (x) => (z) { h = Constant <value_float = 0.5> ()  z = Mul (x, h) }""",
    "another opset, in which the operators are the same": """
        g (float[3] x) => (float[3] y) { y = l.F (x) }
        <domain: "l", opset_import: ["": 13]> F (x) => (z) { t = Relu (x)  one = Constant <value_float = 1.0> ()
            z = Add (t, one) }""",
}
ONNXRUNTIME_REFUSES = {
    "outputs left out, which the body still uses",
    "an output that is an input",
    "an output given twice",
    "nodes without names, and with one name for all",
}
FEEDS = {"x": X, "h": np.array(1, np.float32), "c": np.array(True), "n": np.array(3, np.int64)}


@pytest.mark.parametrize("case", BINDINGS)
def test_inlined_calls_give_what_whole_ones_give(case: str) -> None:
    proto = parse(HEAD + BINDINGS[case])
    feeds = {value.name: FEEDS[value.name] for value in proto.graph.input}
    expected = run(proto, "TEMPLATE", feeds) if case in ONNXRUNTIME_REFUSES else on_onnxruntime(proto, feeds)
    model = read_model(proto)
    flat = inlined(model)
    onnx.checker.check_model(flat.to_proto(), full_check=True)
    agree(on_onnxruntime(flat.to_proto(), feeds), expected)
    agree(run(model, "TEMPLATE", feeds), expected)
    agree(run(flat, "TEMPLATE", feeds), expected)
    agree(run(model, "HETERO:CPU,TEMPLATE", feeds), expected)


def test_names_follow_from_the_key_of_the_call() -> None:
    model = read_model(parse(HEAD + BINDINGS["a name that inlining would make"]))
    assert inlined(model).keys == ("call/n", "call/n_2", "call/n_3", "call/z", "call/t", "y")
    same_names = read_model(parse(HEAD + BINDINGS["nodes without names, and with one name for all"]))
    assert same_names.keys == ("t", "u", "y")
    assert inlined(same_names).keys == ("t", "u/t", "u/z", "y")


def test_a_call_that_cannot_be_inlined_stays_where_it_is_taken_whole() -> None:
    text = (
        HEAD
        + """
        g (float[2, 3] x) => (float[2, 3] y) { y = l.F (x) }
        <domain: "l", opset_import: ["": 11]> F (x) => (z) { z = Softmax (x) }"""
    )
    feeds = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}
    agree(run(parse(text), "HETERO:CPU,TEMPLATE", feeds), on_onnxruntime(parse(text), feeds))
    core = hetero.Core()
    with pytest.raises(
        hetero.UnsupportedModel, match="Softmax of opset 11 of ai.onnx; the model imports opset 18"
    ) as caught:
        core.compile_model(core.read_model(parse(text)), "CPU")
    assert set(caught.value.unsupported) == {"y"}


def test_an_absent_input_that_is_handed_on_keeps_the_call_whole() -> None:
    text = (
        HEAD
        + """
        g (float[3] x) => (float[3] y) { y, z = l.F (x) }
        <domain: "l", opset_import: ["": 18]> F (x, o) => (z, o) { z = Neg (x) }"""
    )
    core = hetero.Core()
    with pytest.raises(hetero.UnsupportedModel, match="returns its input 'o', which the call omits"):
        core.compile_model(core.read_model(parse(text)), "CPU")


def test_domains_that_only_functions_use_are_imported() -> None:
    proto = parse(
        HEAD
        + """
        g (float[2, 3] x) => (float[2, 3] y) { y = l.F (x) }
        <domain: "l", opset_import: ["": 18, "ai.onnx.ml": 3]> F (x) => (z)
        { z = ai.onnx.ml.Normalizer <norm = "L1"> (x) }"""
    )
    feeds = {"x": np.arange(6, dtype=np.float32).reshape(2, 3) + 1}
    flat = inlined(read_model(proto))
    assert flat.opsets["ai.onnx.ml"] == 3
    agree(run(flat, "TEMPLATE", feeds), on_onnxruntime(proto, feeds))


def test_overloads_are_different_functions() -> None:
    proto = parse(
        HEAD
        + """
        g (float[3] x) => (float[3] y) { t = l.F (x)  y = l.F (t) }
        <domain: "l", opset_import: ["": 18]> F (x) => (z) { z = Neg (x) }
        <domain: "l", opset_import: ["": 18]> F (x) => (z) { z = Exp (x) }"""
    )
    proto.functions[1].overload = proto.graph.node[1].overload = "exp"
    (found,) = run(proto, "CPU", {"x": X})
    np.testing.assert_allclose(found, np.exp(-X), rtol=1e-6)
    np.testing.assert_array_equal(run(proto, "TEMPLATE", {"x": X})[0], np.exp(-X))


def test_types_that_a_function_states_of_its_values_are_kept() -> None:
    proto = parse(
        HEAD
        + """
        g (float[n] x) => (float[n] y) { y = l.F (x) }
        <domain: "l", opset_import: ["": 18]> F (x) => (z) { t = Neg (x)  z = Exp (t) }"""
    )
    proto.functions[0].value_info.append(oh.make_tensor_value_info("t", onnx.TensorProto.FLOAT, ["three"]))
    flat = inlined(read_model(proto))
    assert flat.type_of(flat.value_id("y/t")).shape == ("three",)


def test_weights_and_supplied_types_stay_with_the_model(tmp_path: pathlib.Path) -> None:
    weight = np.arange(4096, dtype=np.float32)
    proto = parse(
        HEAD
        + """
        g (x) => (y) { y = l.F (x, w) }
        <domain: "l", opset_import: ["": 18]> F (x, w) => (z) { z = Add (x, w) }"""
    )
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="w.data", size_threshold=0)
    model = read_model(tmp_path / "m.onnx").with_types({"x": (np.float32, [4096])})
    found = run(model, "CPU", {"x": weight})
    np.testing.assert_array_equal(found[0], 2 * weight)
    flat = inlined(model)
    assert flat.inputs == model.inputs
    assert (flat.path, flat.name) == (model.path, model.name)


@pytest.mark.parametrize("packed", [False, True])
def test_weights_inside_are_borrowed_not_copied(tmp_path: pathlib.Path, packed: bool) -> None:
    weight = np.arange(1 << 16, dtype=np.float32)
    proto = parse(
        HEAD
        + """
        g (float[65536] x) => (float[65536] y) { y = l.F (x, w) }
        <domain: "l", opset_import: ["": 18, "l": 1]> F (x, w) => (z) { z = l.G (x, w) }
        <domain: "l", opset_import: ["": 18]> G (x, w) => (z) { z = Add (x, w) }"""
    )
    tensor = proto.graph.initializer.add(name="w", data_type=onnx.TensorProto.FLOAT, dims=weight.shape)
    if packed:
        tensor.float_data.extend(weight.tolist())
    else:
        tensor.raw_data = weight.tobytes()
    model = read_model(proto)
    flat = inlined(model)  # in two rounds
    assert len(flat.file.data) < 1000
    assert np.shares_memory(flat.constant(flat.value_id("w")), model.constant(model.value_id("w")))
    np.testing.assert_array_equal(run(model, "CPU", {"x": weight})[0], 2 * weight)
    written = flat.to_proto()
    onnx.checker.check_model(written, full_check=True)
    agree(on_onnxruntime(written, {"x": weight}), [2 * weight])
    for above in (None, 0):
        flat.save(tmp_path / "flat.onnx", external_above=above)
        np.testing.assert_array_equal(run(read_model(tmp_path / "flat.onnx"), "CPU", {"x": weight})[0], 2 * weight)
    part = flat.extract([0])
    np.testing.assert_array_equal(run(part, "TEMPLATE", {"x": weight})[0], 2 * weight)
    agree(on_onnxruntime(part.to_proto(), {"x": weight}), [2 * weight])


# -- limits ------------------------------------------------------------------------------------------------------------


def chain(count: int, width: int, last: str = "Relu", payload: int = 0) -> onnx.ModelProto:
    """``count`` functions that call the next one ``width`` times each."""
    opsets = [oh.make_opsetid("", 18), oh.make_opsetid("l", 1)]
    functions = []
    for i in range(count):
        callee, domain = (f"f{i + 1}", "l") if i < count - 1 else (last, "l" if last.startswith("f") else "")
        body = [oh.make_node(callee, [f"v{k}"], [f"v{k + 1}"], domain=domain) for k in range(width)]
        if payload:
            body.append(oh.make_node("Constant", [], ["p"], value_string=b"p" * payload))
        functions.append(oh.make_function("l", f"f{i}", ["v0"], [f"v{width}"], body, opsets))
    value = [oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "xy"]
    graph = oh.make_graph([oh.make_node("f0", ["x"], ["y"], domain="l")], "bomb", value[:1], value[1:])
    return oh.make_model(graph, functions=functions, opset_imports=opsets, ir_version=8)


BOMBS = {
    "doubling": (chain(26, 2), "function l::f0: inlining its call would exceed 1,000,000 nodes .MAX_INLINED_NODES."),
    "by the thousand": (chain(60, 1000), "MAX_INLINED_NODES"),
    "in bytes": (chain(12, 3, payload=1000), "MAX_INLINED_BYTES"),
    "deep": (chain(3000, 1), "MAX_CALL_DEPTH"),
    "recursion": (chain(1, 1, last="f0"), "function l::f0 calls itself"),
    "mutual recursion": (chain(5, 2, last="f2"), "function l::f2 calls itself"),
}


@pytest.mark.spread(2)
@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("device", ["CPU", "HETERO:CPU,TEMPLATE"])
def test_functions_that_expand_without_bound_are_refused_in_little_time(name: str, device: str) -> None:
    proto, message = BOMBS[name]
    core = hetero.Core()
    model = core.read_model(proto)
    start = time.process_time()
    with pytest.raises(hetero.HeteroError, match=message if device == "CPU" else None):
        core.compile_model(model, device)
    assert time.process_time() - start < 30  # less than a second; without a bound it would never end


def test_a_bomb_is_no_trouble_where_it_is_not_called() -> None:
    proto = chain(26, 2)
    del proto.graph.node[:]
    proto.graph.node.append(oh.make_node("Relu", ["x"], ["y"]))
    (found,) = run(proto, "CPU", {"x": np.array([-1, 2], np.float32)})
    np.testing.assert_array_equal(found, [0, 2])


def test_long_names_count() -> None:
    proto = chain(8, 3)
    proto.graph.node[0].name = "n" * 100_000
    with pytest.raises(hetero.ModelError, match="MAX_INLINED_BYTES"):
        hetero.Core().plan(read_model(proto), "CPU")


BAD_BODIES = {
    "makes 't' twice": ("{ t = Neg (x)  t = Exp (x)  z = Neg (t) }", "value 't' is defined twice"),
    "makes its input": ("{ x = Neg (x)  z = Neg (x) }", "value 'x' is defined twice"),
    "reads what nothing makes": ("{ z = Neg (nothing) }", "value 'nothing' is read before it is computed"),
    "reads what comes later": ("{ z = Neg (t)  t = Exp (x) }", "value 't' is read before it is computed"),
    "does not make its output": ("{ t = Neg (x) }", "no node computes its output 'z'"),
    "uses a domain without import": ("{ z = other.Op (x) }", "does not import an opset of domain 'other'"),
}


@pytest.mark.parametrize("name", BAD_BODIES)
def test_functions_that_contradict_themselves(name: str) -> None:
    body, message = BAD_BODIES[name]
    text = (
        HEAD
        + f"""
        g (float[3] x) => (float[3] y) {{ y = l.F (x) }}
        <domain: "l", opset_import: ["": 18]> F (x) => (z) {body}"""
    )
    with pytest.raises(hetero.ModelError, match=message):
        inlined(read_model(parse(text)))


def test_a_call_with_more_inputs_than_the_function_has() -> None:
    text = (
        HEAD
        + """
        g (float[3] x) => (float[3] y) { y = l.F (x, x) }
        <domain: "l", opset_import: ["": 18]> F (x) => (z) { z = Neg (x) }"""
    )
    with pytest.raises(hetero.ModelError, match="'y' calls function l::F with 2 inputs, but the function has 1"):
        inlined(read_model(parse(text)))


# -- affinities, pins, plans -------------------------------------------------------------------------------------------

LIST = "HETERO:CPU,TEMPLATE"


def test_pins_reach_into_calls() -> None:
    core = hetero.Core()
    model = core.read_model(parse(LAYERS))

    def where(device: str, **pins: str) -> dict[str, str]:
        plan = core.plan(model, device, pins={key.replace("__", "/"): to for key, to in pins.items()})
        return {key: to for key, to in plan.affinity.items() if not key.startswith(("relu", "choice", "second"))}

    whole = {"first": "TEMPLATE"}
    parts = {"first/leak/lrelu": "CPU", "first/shift": "CPU"}
    assert where(LIST, first="TEMPLATE") == whole
    assert where("HETERO:TEMPLATE,CPU", first="CPU") == parts
    assert where("HETERO:TEMPLATE,CPU", first__shift="CPU") == {"first/leak": "TEMPLATE", "first/shift": "CPU"}
    assert where("HETERO:TEMPLATE,CPU", first__leak="CPU") == {"first/leak/lrelu": "CPU", "first/shift": "TEMPLATE"}
    assert where("HETERO:TEMPLATE,CPU", first__leak__lrelu="CPU") == parts | {"first/shift": "TEMPLATE"}
    # An inner key wins over the call's, a key over an expression.
    assert where(LIST, first="TEMPLATE", first__shift="CPU") == {"first/leak": "TEMPLATE", "first/shift": "CPU"}
    assert where(LIST, **{"fir.*": "TEMPLATE", "first__shift": "CPU"})["first/shift"] == "CPU"
    assert where("HETERO:TEMPLATE,CPU", **{"fi.*/shift": "CPU"}) == {"first/leak": "TEMPLATE", "first/shift": "CPU"}
    assert where("HETERO:TEMPLATE,CPU", **{"fi.*": "CPU"}) == parts
    for pin in ("first/nothing", "no.*thing", "first/leak/lrelu/deeper"):
        with pytest.raises(hetero.PropertyError, match="matches no node"):
            core.plan(model, LIST, pins={pin: "CPU"})


def test_affinities_of_a_call_are_those_of_its_nodes() -> None:
    core = hetero.Core()
    proto = parse(LAYERS)
    proto.graph.node[0].metadata_props.add(key="affinity", value="CPU")
    proto.graph.node[0].metadata_props.add(key="note", value="mine")
    proto.functions[0].node[2].metadata_props.add(key="affinity", value="TEMPLATE")
    model = core.read_model(proto)
    assert model.affinity == {"first": "CPU"}
    affinity = core.plan(model, "HETERO:TEMPLATE,CPU").affinity
    assert affinity["first/leak/lrelu"] == "CPU"  # the call's
    assert affinity["first/shift"] == "TEMPLATE"  # its own
    flat = inlined(model)
    notes = [{entry.key: entry.value for entry in node.proto().metadata_props} for node in flat.nodes[:2]]
    assert notes == [{"affinity": "CPU", "note": "mine"}, {"affinity": "TEMPLATE", "note": "mine"}]
    stated = model.with_affinity({"first": "CPU", "second/shift": "CPU"})
    affinity = core.plan(stated, "HETERO:TEMPLATE,CPU").affinity
    assert affinity["first/shift"] == "CPU"  # what with_affinity says replaces the file's
    assert (affinity["second/leak"], affinity["second/shift"]) == ("TEMPLATE", "CPU")
    for key in ("first/nothing", "first/leak/nothing", "second/shift/nothing"):
        with pytest.raises(hetero.ModelError, match=f"affinity of '{key}': the called function has no such node"):
            core.plan(model.with_affinity({key: "CPU"}), "HETERO:TEMPLATE,CPU")
    core.plan(model.with_affinity({"first/half": "CPU"}), "HETERO:TEMPLATE,CPU")  # of a Constant node
    with pytest.raises(hetero.ModelError, match="the model has no node 'relu/inside'"):
        model.with_affinity({"relu/inside": "CPU"})


def test_plans_are_saved_and_loaded_with_the_nodes_of_calls(tmp_path: pathlib.Path) -> None:
    core = hetero.Core()
    model = core.read_model(parse(LAYERS))
    for device in (LIST, "HETERO:TEMPLATE,CPU"):
        plan = core.plan(model, device, pins={"second/shift": "TEMPLATE"})
        plan.save(tmp_path / "plan.json")
        loaded = hetero.Plan.load(tmp_path / "plan.json")
        compiled = core.compile_model(model, loaded)
        assert compiled.plan.affinity == plan.affinity
        assert compiled.plan.subgraphs == plan.subgraphs
        feeds = {"x": X, "c": np.array(True)}
        agree(list(compiled(feeds).values()), on_onnxruntime(parse(LAYERS), feeds))
        assert core.compile_model(model, plan).plan is plan


def test_what_query_model_answers_can_be_stated() -> None:
    core = hetero.Core()
    model = core.read_model(
        parse(
            HEAD
            + """
        g (float[3] x) => (float[3] y) { [one] t = l.F (x)  [two] y = l.G (t) }
        <domain: "l", opset_import: ["": 18]> F (x) => (z) { [a] t = Neg (x)  [b] z = Det (t) }
        <domain: "l", opset_import: ["": 18]> G (x) => (z) { [a] t = Neg (x)  [b] z = Exp (t) }"""
        )
    )
    answer = core.query_model(model, LIST)
    assert answer == {"one/a": "CPU", "one/b": "TEMPLATE", "two": "CPU"}
    why = "Det of fewer than two dimensions"
    assert answer.reasons == {"one/b": {"CPU": why}}
    assert core.plan(model.with_affinity(answer), LIST).affinity == core.plan(model, LIST).affinity
    alone = core.query_model(model, "CPU")
    assert alone == {"two": "CPU"}
    assert alone.reasons == {"one": {"CPU": f"its node 'one/b' (Det): {why}"}}
    with pytest.raises(hetero.UnsupportedModel) as caught:
        core.compile_model(model, "CPU")
    assert caught.value.unsupported == {"one/b": {"CPU": why}}


def test_a_part_of_a_model_can_have_calls() -> None:
    core = hetero.Core()
    model = core.read_model(parse(LAYERS))
    part = model.with_affinity({"relu": "TEMPLATE"}).extract([0, 1])
    compiled = core.compile_model(part, LIST)
    assert compiled.plan.affinity == {"first/leak/lrelu": "CPU", "first/shift": "CPU", "relu": "TEMPLATE"}
    agree(list(compiled({"x": X}).values()), run(part, "TEMPLATE", {"x": X}))


def test_a_call_of_which_only_constants_are_left() -> None:
    proto = parse(
        HEAD
        + """
        g (float[3] x) => (float[3] y, float c) { [one] c = l.One ()  y = Mul (x, c) }
        <domain: "l", opset_import: ["": 18]> One () => (c) { c = Constant <value_float = 3.0> () }"""
    )
    core = hetero.Core()
    model = core.read_model(proto)
    assert core.query_model(model, "CPU") == {"one": "CPU", "y": "CPU"}
    assert core.plan(model, LIST).affinity == {"y": "CPU"}
    agree(run(model.with_affinity({"one": "CPU"}), LIST, {"x": X}), on_onnxruntime(proto, {"x": X}))


def test_functions_are_gone_with_their_last_call() -> None:
    core = hetero.Core()
    planned = core.plan(core.read_model(parse(LAYERS)), LIST, pins={"choice": "TEMPLATE"}).assignment.model
    assert len(planned.functions) == 2  # the If still calls one
    planned = core.plan(core.read_model(parse(LAYERS)), LIST).assignment.model
    assert planned.functions == ()
    assert inlined(core.read_model(parse(LAYERS))).functions == ()
