"""Pictures of plans and profiles in notebooks."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import pytest

import hetero
from hetero.plan.picture import plan_svg
from hetero.plugin.profile import Profile, profile_svg
from report_cases import chain

Run = Callable[[hetero.Model, str | hetero.Plan], Profile]


@pytest.mark.parametrize("subgraphs", [1, 3, 30, 3000])
def test_notebook_pictures(core: hetero.Core, profile_of: Run, subgraphs: int) -> None:
    model = core.read_model(chain([f"n{i}" for i in range(2 * subgraphs - 1)], every=2 if subgraphs > 1 else 9))
    plan = core.plan(model, "HETERO:FPGA,CPU")
    for svg in (plan_svg(plan), plan_svg(hetero.Plan.from_json(plan.to_json(), "plan"))):
        root = ElementTree.fromstring(svg)
        assert f"chain: {plan.num_subgraphs:,} subgraph" in root.attrib["aria-label"]
        assert len(svg) < 100_000
    assert plan._repr_svg_() == plan_svg(plan)
    if subgraphs <= 30:
        profile = profile_of(model, plan)
        drawn = ElementTree.fromstring(profile_svg(profile))
        assert len([e for e in drawn.iter() if e.tag.endswith("}title")]) == plan.num_subgraphs
        assert profile._repr_svg_() == profile_svg(profile)


def test_hostile_names_in_notebooks(hostile_plan: hetero.Plan) -> None:
    root = ElementTree.fromstring(plan_svg(hostile_plan))
    assert {element.tag.split("}")[1] for element in root.iter()} <= {"svg", "g", "rect", "text", "title", "path"}
