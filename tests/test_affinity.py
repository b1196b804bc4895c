"""Stage 2: priority, pins, reasons."""

from __future__ import annotations

import pytest
from onnx import helper

import hetero
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
    with pytest.raises(hetero.UnsupportedModel, match="2 nodes are taken by no device of CPU"):
        core.compile_model(core.read_model(model), "CPU")
