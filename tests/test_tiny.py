"""From a file to a number, and nothing else. Debugging starts here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import hetero
from model_zoo import make_model


def test_load_and_run(tmp_path: Path) -> None:
    path = tmp_path / "tiny.onnx"
    onnx.save(make_model([helper.make_node("Add", ["x", "w"], ["y"])], weights={"w": np.float32([1, 2, 3])}), path)
    out = hetero.compile(path, "CPU")(np.zeros((2, 3), np.float32))
    np.testing.assert_array_equal(out["y"], [[1, 2, 3], [1, 2, 3]])


@pytest.mark.parametrize("device", ["CPU", "TEMPLATE", "FPGA", "HETERO:TEMPLATE,CPU", "CPU.0"])
def test_every_device_runs_it(core: hetero.Core, device: str) -> None:
    model = core.read_model(make_model([helper.make_node("Relu", ["x"], ["y"])]))
    x = np.float32([[-1, 2, -3], [4, -5, 6]])
    out = core.compile_model(model, device)({"x": x})
    np.testing.assert_array_equal(out[0], np.maximum(x, 0))
