"""Pictures of plans and profiles in notebooks."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import pytest

import hetero
from hetero.base.palette import device_color
from hetero.plan.picture import plan_svg
from hetero.plugin.profile import Profile, Span, Transfer, profile_svg
from report_cases import chain

Run = Callable[[hetero.Model, str | hetero.Plan], Profile]


@pytest.mark.parametrize("subgraphs", [1, 3, 30, 3000])
def test_notebook_pictures(core: hetero.Core, profile_of: Run, subgraphs: int) -> None:
    model = core.read_model(chain([f"n{i}" for i in range(2 * subgraphs - 1)], every=2 if subgraphs > 1 else 9))
    plan = core.plan(model, "HETERO:FPGA,CPU")
    loaded = hetero.Plan.from_json(plan.to_json(), "plan")
    for svg in (plan_svg(plan), plan_svg(loaded)):
        root = ElementTree.fromstring(svg)
        assert f"chain: {plan.num_subgraphs:,} subgraph" in root.attrib["aria-label"]
        assert len(svg) < 100_000
    assert plan._repr_svg_() == plan_svg(plan)
    assert loaded._repr_svg_() == plan_svg(loaded)
    if subgraphs <= 30:
        profile = profile_of(model, plan)
        drawn = ElementTree.fromstring(profile_svg(profile))
        assert len([e for e in drawn.iter() if e.tag.endswith("}title")]) == plan.num_subgraphs
        assert profile._repr_svg_() == profile_svg(profile)


def test_hostile_names_in_notebooks(hostile_plan: hetero.Plan) -> None:
    root = ElementTree.fromstring(plan_svg(hostile_plan))
    assert {element.tag.split("}")[1] for element in root.iter()} <= {"svg", "g", "rect", "text", "title", "path"}


def test_picture_of_a_profile() -> None:
    """A lane for each device, in the order and colors of the plan, whatever thread ran a subgraph. Arrows join
    subgraphs by number; subgraph 1 did not run."""
    spans = [
        Span(2, "B", "main", 0, 10),
        Span(3, "A", "other", 0, 10),
        Span(4, "B", "other", 10, 20),
        Span(5, "D", "main", 20, 30),
    ]
    transfers = [Transfer("v", 3, (4,), 8), Transfer("c", 1, (4,), 8)]
    root = ElementTree.fromstring(profile_svg(Profile((), spans, transfers, devices=("A", "B", "C"))))
    texts = [element.text or "" for element in root.iter() if element.tag.endswith("}text")]
    assert [text for text in texts if "·" in text] == ["A · 10 ns", "B · 20 ns", "D · 10 ns"]
    boxes = [group.findall("*")[1] for group in root.iter() if group.tag.endswith("}g")]
    assert [box.get("stroke") for box in boxes] == [device_color(number) for number in (1, 0, 1, 3)]
    (arrows,) = (element.get("d") for element in root.iter() if element.tag.endswith("}path"))
    assert arrows is not None
    assert arrows.count("M") == 1
    third, fourth = (float(box.get("x", 0)) for box in (boxes[1], boxes[2]))
    begin, end = (float(point.split()[0].lstrip("M")) for point in (arrows.split("C")[0], arrows.split()[-2]))
    assert third < begin <= fourth <= end


def test_a_profile_has_the_devices_of_its_plan(core: hetero.Core, profile_of: Run) -> None:
    model = core.read_model(chain(["n0", "n1", "n2"], every=2))
    assert profile_of(model, core.plan(model, "HETERO:FPGA,CPU,TEMPLATE")).devices == ("FPGA", "CPU", "TEMPLATE")
