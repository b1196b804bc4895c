"""``--extension``: custom operators from a file or a module that the user names."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser
import pytest

from command_line import Invoke, Json

SOURCE = """
import numpy as np

import hetero

double = hetero.CustomOp(
    "Double", "com.acme", function=lambda x: 2 * x, shape_rule=lambda x: x, num_inputs=1, input_dtypes=[np.float32]
)
several = [double]
number = 3
"""


@pytest.fixture
def custom_path(tmp_path: Path) -> Path:
    (tmp_path / "ops.py").write_text(SOURCE)
    path = tmp_path / "custom.onnx"
    text = (
        '<ir_version: 8, opset_import: ["": 17, "com.acme": 1]> '
        "g (float[2] x) => (float[2] y) { a = Relu(x) y = com.acme.Double(a) }"
    )
    onnx.save(onnx.parser.parse_model(text), path)
    return path


@pytest.mark.parametrize("name", ["double", "several"])
def test_models_with_custom_operators(hetero: Invoke, hetero_json: Json, custom_path: Path, name: str) -> None:
    assert "--extension" in hetero("run", custom_path, code=1).stderr
    extension = ("--extension", f"ops.py:{name}")
    (output,) = hetero_json("run", custom_path, *extension, "--range", "1:1.0001")["outputs"]
    assert output["mean"] == pytest.approx(2, abs=1e-3)
    assert hetero_json("plan", custom_path, "-d", "HETERO:FPGA,CPU", *extension)["affinity"] == {
        "a": "FPGA",
        "y": "CPU",
    }
    assert "passes" in hetero("compare", custom_path, "-d", "CPU", "-d", "TEMPLATE", *extension).stdout


def test_of_a_module(hetero: Invoke, custom_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hetero_test_ops.py").write_text(SOURCE)
    # The folder that a command is run in is none of those that modules come from.
    assert "ModuleNotFoundError" in hetero("run", custom_path, "--extension", "hetero_test_ops:double", code=1).stderr
    monkeypatch.syspath_prepend(tmp_path)
    hetero("run", custom_path, "--extension", "hetero_test_ops:double")


@pytest.mark.parametrize(
    ("given", "code", "told"),
    [
        ("ops.py", 2, "FILE.py:NAME"),
        (":double", 2, "FILE.py:NAME"),
        ("ops.py:a b", 2, "FILE.py:NAME"),
        ("ops.py:doubl", 1, "did you mean double?"),
        ("ops.py:number", 1, "found int"),
        ("gone.py:double", 1, "gone.py"),
        ("broken.py:double", 1, "SyntaxError"),
        ("raises.py:double", 1, "KeyError"),
    ],
)
def test_what_is_no_extension(hetero: Invoke, custom_path: Path, given: str, code: int, told: str) -> None:
    Path("broken.py").write_text("def")
    Path("raises.py").write_text("{}[1]")
    error = hetero("run", custom_path, "--extension", given, code=code).stderr
    assert told in error
    assert f"--extension {given}" in error
