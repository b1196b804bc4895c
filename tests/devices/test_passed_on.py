"""Properties that HETERO and MULTI pass on to their devices, as their compiled models report them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import hetero
from model_zoo import make_model

X = np.ones((2, 3), np.float32)


@pytest.fixture
def model() -> onnx.ModelProto:
    return make_model(
        [helper.make_node("Relu", ["x"], ["a"], name="a"), helper.make_node("Exp", ["a"], ["y"], name="b")]
    )


@pytest.mark.parametrize("device", ["HETERO:CPU,TEMPLATE", "MULTI:CPU,TEMPLATE", "HETERO:CPU"])
def test_a_property_of_one_device(core: hetero.Core, model: onnx.ModelProto, device: str) -> None:
    pins = {"a": "TEMPLATE"} if device == "HETERO:CPU,TEMPLATE" else None
    compiled = core.compile_model(model, device, {"INFERENCE_NUM_THREADS": 1}, pins=pins)
    assert compiled.get_property("INFERENCE_NUM_THREADS") == 1
    with pytest.raises(hetero.PropertyError, match="no property 'INFERENCE_NUM_THREAD' .did you mean"):
        compiled.get_property("INFERENCE_NUM_THREAD")
    wrong: Any = 3
    with pytest.raises(hetero.PropertyError, match="no property 3"):
        compiled.get_property(wrong)


@pytest.mark.parametrize("device", ["HETERO:CPU.0,CPU.1", "MULTI:CPU.0,CPU.1"])
def test_devices_that_differ(core: hetero.Core, model: onnx.ModelProto, device: str) -> None:
    pins = {"a": "CPU.1", "b": "CPU.0"} if device.startswith("HETERO") else None
    each = {"CPU.0": {"INFERENCE_NUM_THREADS": 1}, "CPU.1": {"INFERENCE_NUM_THREADS": 2}}
    compiled = core.compile_model(model, device, {"DEVICE_PROPERTIES": each}, pins=pins)
    with pytest.raises(
        hetero.PropertyError, match=r"INFERENCE_NUM_THREADS differs between devices: \d on CPU\.\d, \d on CPU"
    ):
        compiled.get_property("INFERENCE_NUM_THREADS")
    assert compiled.get_property("INFERENCE_PRECISION_HINT") == "f32"  # the same on both


def test_strings_as_numbers(core: hetero.Core, model: onnx.ModelProto) -> None:
    compiled = core.compile_model(model, "CPU", {"NUM_STREAMS": "2", "PERF_COUNT": "YES"})
    assert compiled.get_property("NUM_STREAMS") == 2
    for wrong in ("-1", "2.0", "", "two", "٣", "9" * 30):
        with pytest.raises(hetero.PropertyError, match="NUM_STREAMS"):
            core.compile_model(model, "CPU", {"NUM_STREAMS": wrong})


@pytest.mark.parametrize("text", ["MULTI:CPU(2)", "MULTI:ORT,CPU(2)", "AUTO:CPU(2),ORT", "CPU(2)"])
def test_openvinos_number_of_requests(core: hetero.Core, model: onnx.ModelProto, text: str) -> None:
    with pytest.raises(hetero.PropertyError, match=r"DEVICE_PROPERTIES={'CPU': {'NUM_STREAMS': 2}}"):
        core.compile_model(model, text)
    compiled = core.compile_model(model, "MULTI:CPU", {"DEVICE_PROPERTIES": {"CPU": {"NUM_STREAMS": 2}}})
    assert compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS") == 2
