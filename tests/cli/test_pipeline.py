"""Pipelines on the command line."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import helper

from command_line import Invoke
from model_zoo import make_model

PIPELINE = ("--property", "MODEL_DISTRIBUTION_POLICY=PIPELINE_PARALLEL")


def chain(folder: Path, count: int) -> Path:
    nodes = [helper.make_node("Exp", ["x" if i == 0 else f"v{i}"], [f"v{i + 1}"], f"n{i}") for i in range(count)]
    nodes[-1].output[0] = "y"
    onnx.save(make_model(nodes, {"x": [64, 64]}), folder / "chain.onnx")
    return folder / "chain.onnx"


def test_plans_draw_the_timeline_and_run(hetero: Invoke, tmp_path: Path) -> None:
    path = chain(tmp_path, 6)
    text = hetero("plan", path, "-d", "HETERO:CPU.0,CPU.1", *PIPELINE, "--save", "plan.json").stdout
    assert "pipeline of 2 stages: a result every" in text
    assert "2 CPU.1  |......" in text
    again = hetero("plan", path, "--plan", "plan.json").stdout
    assert again.splitlines()[:12] == text.splitlines()[:12]
    hetero("run", path, "--plan", "plan.json")
    hetero("run", path, "-d", "HETERO:CPU.0,CPU.1", *PIPELINE)


def test_what_cannot_be_is_one_line(hetero: Invoke, tmp_path: Path) -> None:
    path = chain(tmp_path, 1)
    told = hetero("plan", path, "-d", "HETERO:CPU.0,CPU.1", *PIPELINE, code=1).stderr
    assert "has 2 stages, model 'graph' only 1 node" in told
    wrong = ("--property", "MODEL_DISTRIBUTION_POLICY=TENSOR_PARALLEL")
    told = hetero("plan", path, "-d", "HETERO:CPU.0,CPU.1", *wrong, code=1).stderr
    assert "expected one of '', PIPELINE_PARALLEL, found 'TENSOR_PARALLEL'" in told
