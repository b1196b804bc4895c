"""`Plan.what_if`, on graphs small enough to know the answer."""

from __future__ import annotations

import json

import pytest

import hetero
from hetero.plan.what_if import Moved

DEVICES = "HETERO:FPGA,CPU"


def test_what_if_is_what_would_be(core: hetero.Core, diamond: hetero.Model) -> None:
    plan = core.plan(diamond, DEVICES)
    found = plan.what_if(device_supports={"FPGA": ["Exp"]})
    assert (found.subgraphs_before, found.subgraphs_after) == (3, 1)
    assert found.moved == (Moved("four", "CPU", "FPGA"),)
    assert (found.values_before, found.values_after, found.bytes_after) == (3, 0, 0)
    assert found.bytes_before == sum(value.bytes or 0 for value in plan.values) == 3 * 24
    assert "1 node from CPU to FPGA ('four')" in str(found)
    assert repr(found) == "<Difference: 3 -> 1 subgraphs, 3 -> 0 cut values, 1 node moved>"
    assert json.loads(found.to_json())["moved"] == [{"node": "four", "before": "CPU", "after": "FPGA"}]


def test_what_if_with_pins_is_the_plan_with_those_pins(core: hetero.Core, diamond: hetero.Model) -> None:
    plan = core.plan(diamond, DEVICES, pins={"six": "CPU"})
    more = {"one": "CPU", "op:Add": "CPU"}
    found = plan.what_if(pins=more)
    really = core.plan(diamond, DEVICES, pins={"six": "CPU", **more})
    assert found.subgraphs_after == really.num_subgraphs
    assert {move.node for move in found.moved} == {"one", "five"}
    found = plan.what_if(without_pins=["six"])
    assert found.subgraphs_after == core.plan(diamond, DEVICES).num_subgraphs
    assert found.moved == (Moved("six", "CPU", "FPGA"),)
    assert plan.what_if().moved == ()


@pytest.mark.parametrize(
    ("question", "says"),
    [
        ({"device_supports": {"FPGAA": ["Exp"]}}, "device 'FPGAA' is not in the plan's list FPGA, CPU.*mean FPGA"),
        ({"device_supports": {"FPGA": ["exp"]}}, r"no operator 'exp' \(did you mean Exp\?\)"),
        ({"pins": {"fuor": "CPU"}}, "matches no node.*mean four"),
        ({"without_pins": ["one"]}, "the plan has no pin 'one'"),
    ],
)
def test_questions_that_make_no_sense(core: hetero.Core, diamond: hetero.Model, question, says: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(hetero.PropertyError, match=says):
        core.plan(diamond, DEVICES).what_if(**question)


def test_a_pin_to_a_device_that_refuses_is_told(core: hetero.Core, diamond: hetero.Model) -> None:
    with pytest.raises(hetero.UnsupportedModel, match="'four' .Exp. is pinned to FPGA"):
        core.plan(diamond, DEVICES).what_if(pins={"four": "FPGA"})
