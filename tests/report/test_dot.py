"""Graphviz texts."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from onnx import helper

import hetero
from hetero.base.names import clean
from hetero.report.dot import affinity_dot, quotient_dot, subgraphs_dot, write_affinity_dot, write_subgraphs_dot
from hetero.report.explorer import write_overlays
from model_zoo import make_model
from report_cases import HOSTILE_NAMES


def labels(dot: str) -> list[str]:
    """The strings of a Graphviz text, unescaped; fails on what is none."""
    strings = re.findall(r'"((?:[^"\\]|\\.)*)"', dot)
    assert '"' not in re.sub(r'"(?:[^"\\]|\\.)*"', "", dot)
    return [
        re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], string).replace("&amp;", "&") for string in strings
    ]


@pytest.mark.parametrize("draw", [affinity_dot, subgraphs_dot])
def test_hostile_names_in_dot(hostile_plan: hetero.Plan, draw: Callable[[hetero.Plan], str]) -> None:
    text = draw(hostile_plan)
    first_lines = [label.split("\n")[0] for label in labels(text)]
    for name in HOSTILE_NAMES:
        assert clean(name) in first_lines


def test_hostile_names_in_file_names(hostile_plan: hetero.Plan, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    paths = [write_affinity_dot(hostile_plan, folder), write_subgraphs_dot(hostile_plan, folder)]
    paths += write_overlays(hostile_plan, folder=folder)
    assert all(path.parent == folder and re.fullmatch(r"hetero_\w+\.(dot|json)", path.name) for path in paths)
    assert sorted(tmp_path.rglob("*.*")) == sorted(paths)


def test_subgraphs_alone(core: hetero.Core, diamond: hetero.Model) -> None:
    text = quotient_dot(core.plan(diamond, "HETERO:FPGA,CPU", {"PARTITION_POLICY": "documented"}))
    assert "subgraph 1 on FPGA\n2 nodes\none\ntwo" in labels(text)
    assert "subgraph 2 on CPU\n1 node\nfour" in labels(text)
    assert re.findall(r"s\d -> s\d", text) == ["s0 -> s1", "s0 -> s2", "s1 -> s2"]


def test_values_that_pass_between_subgraphs_are_counted(core: hetero.Core) -> None:
    node = helper.make_node
    model = make_model(
        [
            node("Split", ["x"], ["a", "b"], name="split"),
            node("Exp", ["a"], ["c"]),
            node("Add", ["c", "b"], ["y"]),
        ]
    )
    plan = core.plan(core.read_model(model), "HETERO:CPU,TEMPLATE", pins={"split": "TEMPLATE"})
    assert 's0 -> s1 [label="   2 values, 24 B"];' in quotient_dot(plan)


DEVICES = "HETERO:FPGA,CPU"


def test_dot_files(core: hetero.Core, diamond: hetero.Model, tmp_path: Path) -> None:
    core.compile_model(diamond, DEVICES, {"HETERO_DUMP_GRAPH_DOT": str(tmp_path)})
    affinity = (tmp_path / "hetero_affinity_diamond.dot").read_text()
    subgraphs = (tmp_path / "hetero_subgraphs_diamond.dot").read_text()
    for text in (affinity, subgraphs):
        assert text.count(" -> ") == 7 + 2  # edges of the graph, its input and its output
        assert text.startswith("digraph")
        assert all(name in text for name in ("one", "four", "seven"))
    assert "CPU" in affinity
    assert "subgraph 3 on FPGA" in subgraphs


def test_hostile_names_stay_inside_their_quotes(core: hetero.Core, tmp_path: Path) -> None:
    name = '"];evil[label=<<b>x</b>>];//\n\\'
    model = make_model([helper.make_node("Relu", ["x"], [name], name), helper.make_node("Neg", [name], ["y"])])
    model.graph.name = "../../../../PWNED\n"
    plan = core.plan(core.read_model(model), DEVICES)
    for path in (write_affinity_dot(plan, tmp_path), write_subgraphs_dot(plan, tmp_path)):
        assert path.parent == tmp_path
        assert path.name.endswith("_PWNED_.dot")
    text = affinity_dot(plan)
    assert r"\"];evil[label=<<b>x</b>>];//␊\\" in text  # a newline is shown, not made
    for line in text.splitlines():
        unescaped = line.replace("\\\\", "").replace('\\"', "")
        assert unescaped.count('"') % 2 == 0


def test_dot_of_a_loaded_plan(core: hetero.Core, diamond: hetero.Model, tmp_path: Path) -> None:
    core.plan(diamond, DEVICES).save(tmp_path / "plan.json")
    with pytest.raises(hetero.PropertyError, match="without its model"):
        affinity_dot(hetero.Plan.load(tmp_path / "plan.json"))
