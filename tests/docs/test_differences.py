"""The behaviors that the migration pages list as different: of the other library, and of hetero."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import hetero
from model_zoo import make_model

HOWTO = Path(__file__).resolve().parents[2] / "docs" / "howto"
X = np.float32([[1, -2, 3], [-4, 5, 6]])
SIZES = {"a": np.ones((2, 3), np.float32), "b": np.ones((5, 3), np.float32)}


@pytest.fixture
def relu() -> onnx.ModelProto:
    return make_model([helper.make_node("Relu", ["x"], ["y"])])


@pytest.fixture
def same_symbol() -> onnx.ModelProto:
    """Both inputs are [n, 3]; the result is their shapes."""
    nodes = [
        helper.make_node("Shape", ["a"], ["s"]),
        helper.make_node("Shape", ["b"], ["t"]),
        helper.make_node("Concat", ["s", "t"], ["c"], axis=0),
        helper.make_node("Cast", ["c"], ["y"], to=1),
    ]
    return make_model(nodes, {"a": ["n", 3], "b": ["n", 3]})


@pytest.fixture
def out_of_range() -> onnx.ModelProto:
    return make_model([helper.make_node("Gather", ["x", "i"], ["y"])], weights={"i": np.array([9])})


def listed(page: str) -> list[str]:
    """The first cell of each row in the page's table of behaviors."""
    text = (HOWTO / page).read_text(encoding="utf-8").partition("## Behaviors that differ")[2]
    rows = re.findall(r"^\| (.*?) \|", text.partition("\n## ")[0], re.MULTILINE)
    return [row for row in rows if row != "behavior"]


OPENVINO = (
    "an unknown property of a list",
    "an unavailable device of `HETERO`",
    "an unknown device of `AUTO`",
    "a float64 array for a float32 input",
    "a list of arrays as inputs",
    "iterating over results",
    "results with `share_outputs=True`",
    "inputs whose sizes differ, with one symbol",
    "an index out of range",
)
ONNXRUNTIME = (
    "an execution provider that is not installed",
    "inputs whose sizes differ, with one symbol",
    "an output whose shape differs from the declared one",
    "results",
)


def test_every_row_is_tested() -> None:
    assert listed("from-openvino.md") == list(OPENVINO)
    assert listed("from-onnxruntime.md") == list(ONNXRUNTIME)


@pytest.mark.parametrize("behavior", ONNXRUNTIME)
def test_onnxruntime(core: hetero.Core, relu: onnx.ModelProto, same_symbol: onnx.ModelProto, behavior: str) -> None:
    ort = pytest.importorskip("onnxruntime")

    def session(model: onnx.ModelProto, provider: str = "CPUExecutionProvider") -> Any:
        return ort.InferenceSession(model.SerializeToString(), providers=[provider])

    match behavior:
        case "an execution provider that is not installed":
            if "ROCMExecutionProvider" in ort.get_available_providers():
                pytest.skip("this onnxruntime has ROCm")
            with pytest.warns(UserWarning, match="not in available provider names"):
                assert session(relu, "ROCMExecutionProvider").get_providers() == ["CPUExecutionProvider"]
            with pytest.raises(hetero.DeviceUnavailable, match="there is no device ORT.ROCM"):
                core.compile_model(relu, "ORT.ROCM")
        case "inputs whose sizes differ, with one symbol":
            assert session(same_symbol).run(None, SIZES)[0].tolist() == [2, 3, 5, 3]
            for device in ("CPU", "ORT"):
                with pytest.raises(hetero.InferenceError, match="expected float32 .n, 3. with n = 2 as in input 'a'"):
                    core.compile_model(same_symbol, device)(SIZES)
        case "an output whose shape differs from the declared one":
            relu.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, [7, 7]))
            assert session(relu).run(None, {"x": X})[0].shape == (2, 3)
            for device in ("CPU", "ORT"):
                with pytest.warns(RuntimeWarning, match="output 'y' is declared"):
                    assert core.compile_model(relu, device)(X)["y"].shape == (2, 3)
        case "results":
            assert isinstance(session(relu).run(None, {"x": X}), list)
            outputs = core.compile_model(relu, "ORT")({"x": X})
            assert list(outputs.keys()) == ["y"]
            assert outputs["y"] is outputs[0]


@pytest.mark.parametrize("behavior", OPENVINO)
def test_openvino(
    core: hetero.Core,
    relu: onnx.ModelProto,
    same_symbol: onnx.ModelProto,
    out_of_range: onnx.ModelProto,
    behavior: str,
) -> None:
    openvino = pytest.importorskip("openvino")
    other = openvino.Core()

    def compiled(model: onnx.ModelProto, device: str = "CPU", config: Any = None) -> Any:
        return other.compile_model(other.read_model(model.SerializeToString()), device, config or {})

    if behavior in ("an unavailable device of `HETERO`", "an unknown device of `AUTO`") and "GPU" in str(
        other.available_devices
    ):
        pytest.skip("this machine has a GPU for OpenVINO")
    match behavior:
        case "an unknown property of a list":
            compiled(relu, "HETERO:CPU", {"NO_SUCH": 1})
            with pytest.raises(hetero.PropertyError, match="no property 'NO_SUCH'"):
                core.compile_model(relu, "HETERO:CPU", {"NO_SUCH": 1})
        case "an unavailable device of `HETERO`":
            with pytest.raises(RuntimeError):
                compiled(relu, "HETERO:GPU,CPU")
            with pytest.warns(RuntimeWarning, match="skipping OPENVINO.GPU"):
                core.compile_model(relu, "HETERO:OPENVINO.GPU,CPU")
        case "an unknown device of `AUTO`":
            assert compiled(relu, "AUTO:NOPE,CPU").get_property("EXECUTION_DEVICES") == ["CPU"]
            with pytest.raises(hetero.UnknownDevice, match="unknown device 'NOPE'"):
                core.compile_model(relu, "AUTO:NOPE,CPU")
        case "a float64 array for a float32 input":
            assert compiled(relu)({"x": X.astype(np.float64)})[0].dtype == np.float32
            with pytest.raises(hetero.InferenceError, match="expected float32 .*, found dtype float64"):
                core.compile_model(relu, "CPU")({"x": X.astype(np.float64)})
        case "a list of arrays as inputs":
            np.testing.assert_array_equal(compiled(relu)([X])[0], np.maximum(X, 0))
            with pytest.raises(hetero.InferenceError, match=r"found shape \[1, 2, 3\], a list of 1 array"):
                core.compile_model(relu, "CPU")([X])
        case "iterating over results":
            assert not any(isinstance(key, np.ndarray) for key in compiled(relu)([X]))
            assert all(isinstance(value, np.ndarray) for value in core.compile_model(relu, "CPU")(X))
        case "results with `share_outputs=True`":
            request = compiled(relu).create_infer_request()
            first = request.infer([X], share_outputs=True)[0]
            request.infer([X + 100], share_outputs=True)
            assert not np.array_equal(first, np.maximum(X, 0))
            for device in ("CPU", "OPENVINO"):
                mine = core.compile_model(relu, device).create_infer_request()
                kept = mine.infer(X)[0]
                mine.infer(X + 100)
                np.testing.assert_array_equal(kept, np.maximum(X, 0))
        case "inputs whose sizes differ, with one symbol":
            assert compiled(same_symbol)(SIZES)[0].tolist() == [2, 3, 5, 3]
            with pytest.raises(hetero.InferenceError, match="with n = 2 as in input 'a'"):
                core.compile_model(same_symbol, "CPU")(SIZES)
        case "an index out of range":
            assert not compiled(out_of_range)([X])[0].any()
            with pytest.raises(hetero.InferenceError, match="an index is outside its axis"):
                core.compile_model(out_of_range, "CPU")(X)
