"""``hetero split``."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import hetero as library
from command_line import Invoke, Json
from hetero.compiling.splitting import read_manifest


def test_split_and_run_with_onnxruntime(hetero: Invoke, hetero_json: Json, diamond_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    found = hetero_json("split", diamond_path, "-d", "HETERO:FPGA,CPU", "-o", "parts")
    assert [part["device"] for part in found["manifest"]["parts"]] == ["FPGA", "CPU", "FPGA"]
    assert [part["subgraph"] for part in found["manifest"]["parts"]] == [1, 2, 3]
    manifest = read_manifest("parts")
    values = {"x": np.random.default_rng(0).random((1, 4, 5, 6), np.float32)}
    for part in manifest.parts:
        session = onnxruntime.InferenceSession(f"parts/{part.file}", providers=["CPUExecutionProvider"])
        fed = {port.name: values[port.name] for port in part.inputs}
        values |= zip((port.name for port in part.outputs), session.run(None, fed), strict=True)
    np.testing.assert_allclose(values["y"], library.compile(diamond_path)({"x": values["x"]})["y"], rtol=1e-5)
    assert "3 parts" in hetero("split", diamond_path, "-d", "HETERO:FPGA,CPU", "-o", "other").stdout


def test_split_replaces_only_a_split(hetero: Invoke, diamond_path: Path) -> None:
    split = ("split", diamond_path, "-d", "HETERO:FPGA,CPU", "-o")
    hetero(*split, "parts")
    Path("parts/subgraph_1.onnx").write_bytes(b"old")
    assert "--force" in hetero(*split, "parts", code=1).stderr
    assert Path("parts/subgraph_1.onnx").read_bytes() == b"old"
    hetero(*split, "parts", "--force")
    assert Path("parts/subgraph_1.onnx").read_bytes() != b"old"
    # A split that fails leaves the old one.
    hetero("split", diamond_path, "-d", "HETERO:FPGA", "-o", "parts", "--force", code=1)
    assert len(read_manifest("parts").parts) == 3
    Path("parts/precious.txt").write_text("")
    assert "not part of an earlier split" in hetero(*split, "parts", "--force", code=1).stderr
    Path("file").write_text("precious")
    assert "not a folder" in hetero(*split, "file", "--force", code=1).stderr
    assert Path("file").read_text() == "precious"
    Path("empty").mkdir()
    hetero(*split, "empty")
    assert sorted(os.listdir()) == ["diamond.onnx", "empty", "file", "parts"]
    assert "--plan" in hetero("split", diamond_path, "-o", "x", code=2).stderr
