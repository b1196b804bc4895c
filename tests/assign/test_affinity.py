"""Stage 2: priority, pins, reasons."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import hetero
from hetero.errors import PropertyError
from model_zoo import make_model

DEVICES = "HETERO:TEMPLATE,CPU"


def test_priority(core: hetero.Core, diamond: hetero.Model) -> None:
    plan = core.plan(diamond, "HETERO:FPGA,CPU")
    assert plan.affinity["four"] == "CPU"
    assert {plan.affinity[key] for key in ("one", "two", "five", "six")} == {"FPGA"}
    assert "Exp" in plan.reasons["four"]
    assert "FPGA" in plan.reasons["four"]


def test_query_gives_every_reason_and_ignores_affinities(core: hetero.Core, diamond: hetero.Model) -> None:
    plain = core.query_model(diamond, "HETERO:FPGA,CPU")
    pinned = diamond.with_affinity(dict.fromkeys(plain, "CPU"))
    again = core.query_model(pinned, "HETERO:FPGA,CPU")
    assert again == plain
    assert again.reasons == plain.reasons
    assert set(plain) == {"one", "two", "three", "four", "five", "six", "seven"}
    assert plain.reasons["four"].keys() == {"FPGA"}


def test_edited_query_goes_into_the_model(core: hetero.Core, diamond: hetero.Model) -> None:
    support = core.query_model(diamond, DEVICES)
    assert set(support.values()) == {"TEMPLATE"}
    support["four"] = "CPU"
    plan = core.plan(diamond.with_affinity(support), DEVICES)
    assert plan.affinity["four"] == "CPU"
    assert plan.num_subgraphs == 3


def test_partial_affinity_leaves_the_rest_automatic(core: hetero.Core, diamond: hetero.Model) -> None:
    plan = core.plan(diamond.with_affinity({"two": "CPU"}), DEVICES)
    assert plan.affinity == {**dict.fromkeys(plan.affinity, "TEMPLATE"), "two": "CPU"}
    assert "in the model" in plan.reasons["two"]


def test_pins(core: hetero.Core, diamond: hetero.Model) -> None:
    plan = core.plan(diamond, DEVICES, pins={"t.*": "CPU", ".*e": "TEMPLATE", "three": "CPU"})
    # "three" is a key and wins over both expressions; ".*e" comes later than "t.*".
    assert plan.affinity["three"] == "CPU"
    assert plan.affinity["two"] == "CPU"
    assert plan.affinity["one"] == "TEMPLATE"
    assert plan.reasons["two"] == "pinned to CPU by 't.*'"


def test_pins_go_before_the_model(core: hetero.Core, diamond: hetero.Model) -> None:
    plan = core.plan(diamond.with_affinity({"one": "CPU", "two": "CPU"}), DEVICES, pins={"one": "TEMPLATE"})
    assert (plan.affinity["one"], plan.affinity["two"]) == ("TEMPLATE", "CPU")


@pytest.mark.parametrize(
    ("pins", "says"),
    [
        ({"nothing.*": "CPU"}, "matches no node"),
        ({"foru": "CPU"}, "did you mean four"),
        ({"four": "CPUU"}, "not in the list.*did you mean CPU"),
        ({"four": "HETERO"}, "not in the list"),
        ({"(": "CPU"}, "regular expression"),
    ],
)
def test_bad_pins(core: hetero.Core, diamond: hetero.Model, pins: dict[str, str], says: str) -> None:
    with pytest.raises(hetero.PropertyError, match=says):
        core.plan(diamond, DEVICES, pins=pins)


def test_affinity_outside_the_list(core: hetero.Core, diamond: hetero.Model) -> None:
    with pytest.raises(hetero.PropertyError, match="affinity of node 'one'.*'GPU' is not in the list"):
        core.plan(diamond.with_affinity({"one": "GPU"}), DEVICES)


def test_nodes_nobody_takes_are_all_listed(core: hetero.Core, diamond: hetero.Model) -> None:
    with pytest.raises(hetero.UnsupportedModel) as caught:
        core.compile_model(diamond, "HETERO:FPGA")
    assert set(caught.value.unsupported) == {"four"}
    assert "FPGA" in caught.value.unsupported["four"]

    with pytest.raises(hetero.UnsupportedModel) as caught:
        core.plan(diamond, "HETERO:FPGA,CPU", pins={"four": "FPGA"})
    assert "'four' (Exp) is pinned to FPGA" in str(caught.value)


def test_every_refusal_of_every_device_is_named(core: hetero.Core) -> None:
    nodes = [helper.make_node("Frob", ["x"], ["a"], "f"), helper.make_node("Grob", ["a"], ["y"], "g", domain="evil")]
    model = make_model(nodes)
    model.opset_import.append(helper.make_opsetid("evil", 1))
    with pytest.raises(hetero.UnsupportedModel) as caught:
        core.compile_model(core.read_model(model), "HETERO:FPGA,CPU,TEMPLATE")
    assert set(caught.value.unsupported) == {"f", "g"}
    for reasons in caught.value.unsupported.values():
        assert reasons.keys() == {"FPGA", "CPU", "TEMPLATE"}
        assert all(reasons.values())
    assert "'f' (Frob)" in str(caught.value)
    with pytest.raises(hetero.UnsupportedModel, match="2 nodes are not supported by any device in the list .CPU"):
        core.compile_model(core.read_model(model), "CPU")


def test_pins_by_operator(core: hetero.Core, diamond: hetero.Model) -> None:
    plan = core.plan(diamond, DEVICES, pins={"op:LeakyRelu": "CPU", "three": "TEMPLATE"})
    assert {key for key, device in plan.affinity.items() if device == "CPU"} == {"two", "seven"}
    plan = core.plan(diamond, DEVICES, pins={"op:.*Relu|Exp": "CPU", "t.*": "TEMPLATE"})
    assert {key for key, device in plan.affinity.items() if device == "CPU"} == {"one", "four", "six", "seven"}
    assert plan.reasons["one"] == "pinned to CPU by 'op:.*Relu|Exp'"


def test_a_key_that_looks_like_an_operator_pin(core: hetero.Core) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"], "op:Relu"), helper.make_node("Relu", ["a"], ["y"], "other")]
    model = core.read_model(make_model(nodes))
    assert core.plan(model, DEVICES, pins={"op:Relu": "CPU"}).affinity == {"op:Relu": "CPU", "other": "TEMPLATE"}
    assert set(core.plan(model, DEVICES, pins={"[o]p:.*": "CPU"}).affinity.values()) == {"CPU", "TEMPLATE"}


def test_precedence_of_pins(core: hetero.Core, diamond: hetero.Model) -> None:
    """A key, then the later of expressions and operators, then the model, then priority."""
    stated = diamond.with_affinity(dict.fromkeys(diamond.keys, "CPU"))
    plan = core.plan(stated, DEVICES, pins={"op:LeakyRelu": "TEMPLATE", "t.*": "CPU", "three": "TEMPLATE"})
    on_template = {key for key, device in plan.affinity.items() if device == "TEMPLATE"}
    assert on_template == {"three", "seven"}  # "two" is matched later by "t.*"
    plan = core.plan(stated, DEVICES, pins={"t.*": "CPU", "op:LeakyRelu": "TEMPLATE"})
    assert {key for key, device in plan.affinity.items() if device == "TEMPLATE"} == {"two", "three", "seven"}


@pytest.mark.parametrize(
    ("pin", "says"),
    [
        ("op:Leakyrelu", r"matches no node \(did you mean op:LeakyRelu\?\)"),
        ("leakyrelu", r"matches no node \(did you mean op:LeakyRelu, for all nodes of that operator\?\)"),
        ("LeakyRelu", r"matches no node \(did you mean op:LeakyRelu, for all nodes of that operator\?\)"),
        ("two, seven", r"matches no node: to select several, write 'two\|seven'"),
        ("op:Exp,LeakyRelu", r"matches no node: to select several, write 'op:Exp\|LeakyRelu'"),
        ("op:Exp,op:LeakyRelu", r"matches no node: to select several, write 'op:Exp\|LeakyRelu'"),
        ("op:Exp,Frob", r"matches no node \(did you mean op:Exp\?\)"),
        ("op:(", "neither a node key nor a regular expression"),
        ("op:", "matches no node"),
        ("", "matches no node"),
    ],
)
def test_pins_that_match_nothing(core: hetero.Core, diamond: hetero.Model, pin: str, says: str) -> None:
    with pytest.raises(hetero.PropertyError, match=says):
        core.plan(diamond, DEVICES, pins={pin: "CPU"})


def test_pins_by_operator_reach_into_calls(core: hetero.Core) -> None:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    body = [helper.make_node("Neg", ["a"], ["b"], name="neg"), helper.make_node("Exp", ["b"], ["c"], name="exp")]
    function = helper.make_function("mine", "NegExp", ["a"], ["c"], body, opsets[:1])
    proto = make_model([helper.make_node("NegExp", ["x"], ["y"], domain="mine", name="call")])
    proto.opset_import.add(domain="mine", version=1)
    proto.functions.append(function)
    plan = core.plan(core.read_model(proto), DEVICES, pins={"op:Exp": "CPU"})
    assert plan.affinity == {"call/neg": "TEMPLATE", "call/exp": "CPU"}
    with pytest.raises(hetero.PropertyError, match="'call' is a call of a function whose 2 nodes were planned"):
        plan.explain("call")


def test_refusals_of_many_nodes_are_told_together(core: hetero.Core) -> None:
    nodes = [helper.make_node("Exp" if i % 2 else "Neg", [f"v{i}"], [f"v{i + 1}"], f"n{i}") for i in range(400)]
    model = core.read_model(make_model(nodes, inputs={"v0": [2]}, outputs=("v400",)))
    with pytest.raises(hetero.UnsupportedModel) as caught:
        core.plan(model, "HETERO:FPGA")
    assert len(caught.value.unsupported) == 400
    assert all(set(reasons) == {"FPGA"} for reasons in caught.value.unsupported.values())
    message = str(caught.value)
    assert "400 nodes are not supported by any device in the list [FPGA" in message
    assert "'n0', 'n2', 'n4' and 197 more (Neg): FPGA: the profile of FPGA does not list Neg" in message
    assert len(message) < 2000
    with pytest.raises(hetero.UnsupportedModel, match=r"and 197 more \(Neg\) are pinned to FPGA: the profile"):
        core.plan(model, "HETERO:FPGA,CPU", pins={"op:Neg": "FPGA"})
    with pytest.raises(hetero.UnsupportedModel, match=r"'n0' \(Neg\) is pinned to FPGA: the profile"):
        core.plan(model, "HETERO:FPGA,CPU", pins={"n0": "FPGA"})


def test_kinds_of_refusal_are_abridged(core: hetero.Core) -> None:
    nodes = [helper.make_node(f"Op{i}", [f"v{i}"], [f"v{i + 1}"], f"n{i}", domain="mine") for i in range(60)]
    proto = make_model(nodes, inputs={"v0": [2]}, outputs=("v60",))
    proto.opset_import.add(domain="mine", version=1)
    with pytest.raises(
        hetero.UnsupportedModel, match=r"and 40 more nodes; the exception's `unsupported` lists all"
    ) as e:
        core.plan(core.read_model(proto), "HETERO:FPGA,CPU")
    assert len(e.value.unsupported) == 60


def mixture(core: hetero.Core) -> hetero.Model:
    """Two experts with weights, one of them quantized, and a product with a weight that both share."""
    nodes = [
        helper.make_node("DequantizeLinear", ["experts.0.w", "scale"], ["dq"], "dq"),
        helper.make_node("Transpose", ["dq"], ["t"], "t"),
        helper.make_node("MatMul", ["x", "t"], ["a"], "first"),
        helper.make_node("MatMul", ["x", "experts.1.w"], ["b"], "second"),
        helper.make_node("Add", ["a", "b"], ["c"], "sum"),
        helper.make_node("MatMul", ["c", "shared.w"], ["y"], "last"),
        helper.make_node("Constant", [], ["shared.w"], value_floats=[1.0] * 4),
    ]
    weights = {
        "experts.0.w": np.ones((4, 4), np.int8),
        "experts.1.w": np.ones((4, 4), np.float32),
        "scale": np.float32(1),
    }
    return core.read_model(make_model([*nodes[-1:], *nodes[:-1]], {"x": (4, 4)}, weights=weights))


def test_pins_by_weight(core: hetero.Core) -> None:
    model = mixture(core)

    def pinned(pins: dict[str, str]) -> set[str]:
        return {key for key, device in core.plan(model, DEVICES, pins=pins).affinity.items() if device == "CPU"}

    # The nodes that only prepare a weight go along, and so does the node that reads it.
    assert pinned({"weight:experts.0.w": "CPU"}) == {"dq", "t", "first"}
    assert pinned({r"weight:experts\..*": "CPU"}) == {"dq", "t", "first", "second"}
    assert pinned({"weight:shared.w": "CPU"}) == {"last"}  # of a Constant node
    assert pinned({"weight:experts.*": "CPU", "first": "TEMPLATE"}) == {"dq", "t", "second"}
    assert pinned({"weight:experts.*": "CPU", "op:MatMul": "TEMPLATE"}) == {"dq", "t"}  # the later one
    plan = core.plan(model, DEVICES, pins={"weight:experts.*": "CPU"})
    assert plan.reasons["t"] == "pinned to CPU by 'weight:experts.*'"


@pytest.mark.parametrize(
    ("pin", "says"),
    [
        ("weight:expert.1.w", r"matches no node \(did you mean weight:experts.1.w\?\)"),
        ("weight:s.0", r"expressions match whole names; 'weight:\.\*s\\\.0\.\*' matches 'experts\.0\.w'"),
        ("weight:qqqqqqqqqqqq", "expected the name of a constant that a node reads"),
        ("weight:(", "neither a node key nor a regular expression"),
    ],
)
def test_pins_by_weight_that_match_nothing(core: hetero.Core, pin: str, says: str) -> None:
    with pytest.raises(PropertyError, match=says):
        core.plan(mixture(core), DEVICES, pins={pin: "CPU"})


def test_a_pin_inside_a_loop_names_the_loop(core: hetero.Core) -> None:
    value = helper.make_tensor_value_info
    inner = helper.make_graph([helper.make_node("Relu", ["s"], ["deep"], "deep")], "then", [],
                              [value("deep", 1, None)])  # fmt: skip
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["on"], "keep"),
            helper.make_node("If", ["going"], ["out"], "choice", then_branch=inner, else_branch=inner),
        ],
        "body",
        [value("i", 7, []), value("going", 9, []), value("s", 1, None)],
        [value("on", 9, []), value("out", 1, None)],
    )
    nodes = [helper.make_node("Loop", ["", "yes", "x"], ["y"], "loop", body=body)]
    weights = {"yes": np.array(False)}
    model = core.read_model(make_model(nodes, {"x": (4,)}, weights=weights))
    cases = {"keep": "loop/keep", "choice": "loop/choice", "deep": "loop/choice/deep", "loop/body/keep": "loop/keep"}
    for name, key in cases.items():
        with pytest.raises(PropertyError, match=rf"inside a graph of 'loop' \(Loop\): write '{key}'"):
            core.plan(model, DEVICES, pins={name: "CPU"})
