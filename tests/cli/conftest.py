"""Small models as files, and a way to run a command in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper

from command_line import NASTY, Invoke, Json
from hetero.cli import main
from model_zoo import make_model


@pytest.fixture
def hetero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Runs a command in an empty folder; ``code`` is the exit code that is expected."""
    monkeypatch.chdir(tmp_path)

    def invoke(*args: object, code: int = 0) -> Result:
        done = CliRunner().invoke(main, [str(arg) for arg in args])
        assert done.exit_code == code, f"exit code {done.exit_code}, expected {code}: {done.output}{done.exception!r}"
        if code == 1:
            assert any(line.startswith("Error: ") for line in done.stderr.splitlines())  # notes may come before
        assert "Traceback" not in done.output
        assert "\x1b" not in done.output
        return done

    return invoke


@pytest.fixture
def hetero_json(hetero: Invoke) -> Json:
    """Runs a command with ``--json``: stdout is one object and nothing else."""

    def invoke(*args: object, code: int = 0) -> dict[str, Any]:
        parsed = json.loads(hetero(*args, "--json", code=code).stdout)
        assert isinstance(parsed, dict)
        return parsed

    return invoke


@pytest.fixture
def diamond_path(tmp_path: Path) -> Path:
    """Five nodes; FPGA's profile takes all but the LRN: x -> Relu -> (LRN, Clip) -> Add -> Relu -> y."""
    node = helper.make_node
    model = make_model(
        [
            node("Relu", ["x"], ["a"], name="first"),
            node("LRN", ["a"], ["b"], name="norm", size=3),
            node("Clip", ["a"], ["c"], name="gate"),
            node("Add", ["b", "c"], ["d"], name="sum"),
            node("Relu", ["d"], ["y"], name="last"),
        ],
        {"x": [1, 4, 5, 6]},
        name="diamond",
    )
    path = tmp_path / "diamond.onnx"
    onnx.save(model, path)
    return path


@pytest.fixture
def two_inputs_path(tmp_path: Path) -> Path:
    """Tokens [batch, length] of int64 and a mask of float32 of the same shape, looked up in a table and multiplied."""
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "tokens"], ["rows"], name="look up"),
            helper.make_node("Unsqueeze", ["mask", "last"], ["wide"], name="widen"),
            helper.make_node("Mul", ["rows", "wide"], ["out"], name="apply"),
        ],
        "two inputs",
        [
            helper.make_tensor_value_info("tokens", TensorProto.INT64, ["batch", "length"]),
            helper.make_tensor_value_info("mask", TensorProto.FLOAT, ["batch", "length"]),
        ],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["batch", "length", 3])],
        [
            onnx.numpy_helper.from_array(np.arange(30, dtype=np.float32).reshape(10, 3), "table"),
            onnx.numpy_helper.from_array(np.array([-1]), "last"),
        ],
    )
    path = tmp_path / "two.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture
def nasty_path(tmp_path: Path) -> Path:
    """Every name in it is hostile: to terminals, to rich's markup, to paths."""
    model = make_model(
        [
            helper.make_node("Relu", [f"{NASTY}in"], ["mid"], name=f"{NASTY}1"),
            helper.make_node("LRN", ["mid"], [f"{NASTY}out"], name=f"{NASTY}2", size=3),
        ],
        {f"{NASTY}in": [1, 2, 3, 3]},
        (f"{NASTY}out",),
        name=NASTY,
    )
    path = tmp_path / "nasty.onnx"
    onnx.save(model, path)
    return path
