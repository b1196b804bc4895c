"""MULTI: requests on whichever device is free."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import helper

import hetero
from hetero.devices.multi import MultiCompiledModel
from hetero.errors import Cancelled
from hetero.plugin import CompiledModel, Plugin, Support
from model_zoo import make_model

X = np.float32([[1, -2, 3], [-4, 5, 6]])


class Helper(Plugin):
    """Relu, on ids 0 and 1; counts the runs of each, and fails where it is told to."""

    name = "HELPER"

    def __init__(self) -> None:
        super().__init__()
        self.runs = {"0": 0, "1": 0}
        self.broken: set[str] = set()
        self.slow: set[str] = set()
        self.lock = threading.Lock()

    def device_ids(self) -> tuple[str, ...]:
        return ("0", "1")

    def query_model(self, model: hetero.Model, config: Mapping[str, Any]) -> Support:
        refused = {i: "only Relu" for i in range(model.num_nodes) if model.nodes[i].op_type != "Relu"}
        return Support.from_reasons(model.num_nodes, refused)

    def compile_model(self, model: hetero.Model, config: Mapping[str, Any], context: object = None) -> CompiledModel:
        return HelperModel(self, str(config["DEVICE_ID"]), model)


class HelperModel(CompiledModel):
    def __init__(self, plugin: Helper, id_: str, model: hetero.Model) -> None:
        super().__init__(f"HELPER.{id_}", model.inputs, model.outputs)
        self.plugin = plugin
        self.id = id_

    def create_runner(self) -> HelperModel:
        return self

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        with self.plugin.lock:
            self.plugin.runs[self.id] += 1
        time.sleep(0.05 if self.id in self.plugin.slow else 0.001)
        if self.id in self.plugin.broken or np.isnan(inputs[0]).any():
            raise ValueError("out of order")
        return [np.maximum(inputs[0], 0)]

    def profile(self) -> tuple[()]:
        return ()


@pytest.fixture
def helpers(core: hetero.Core) -> Helper:
    plugin = Helper()
    core.register_plugin("HELPER", lambda: plugin)
    return plugin


@pytest.fixture
def relu(core: hetero.Core) -> hetero.Model:
    return core.read_model(make_model([helper.make_node("Relu", ["x"], ["y"])]))


def test_results_are_those_of_one_device(core: hetero.Core, diamond: hetero.Model) -> None:
    compiled = core.compile_model(diamond, "MULTI:CPU,TEMPLATE", {"NUM_STREAMS": 2})
    assert isinstance(compiled, MultiCompiledModel)
    assert compiled.get_property("EXECUTION_DEVICES") == ("CPU", "TEMPLATE")
    assert compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS") == 3
    expected = core.compile_model(diamond, "CPU")(X)["y"]
    for out in [compiled(X), *compiled.map([X] * 20, in_flight=6)]:
        np.testing.assert_allclose(out["y"], expected, rtol=1e-6)
    assert core.query_model(diamond, "MULTI:CPU,TEMPLATE")["one"] == "MULTI:CPU,TEMPLATE"


def test_requests_go_to_whichever_is_free(core: hetero.Core, helpers: Helper, relu: hetero.Model) -> None:
    compiled = core.compile_model(relu, "MULTI:HELPER.0,HELPER.1")
    compiled(X), compiled(X)
    assert helpers.runs == {"0": 2, "1": 0}  # the first of the list while it is free
    assert compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS") == 2
    helpers.slow.add("0")
    futures = [compiled.submit(X) for _ in range(30)]
    assert all(future.result(30) for future in futures)
    assert helpers.runs["1"] > helpers.runs["0"] > 2


def test_a_failing_device_is_taken_out(core: hetero.Core, helpers: Helper, relu: hetero.Model) -> None:
    compiled = core.compile_model(relu, "MULTI:HELPER.0,HELPER.1")
    helpers.broken.add("0")
    with pytest.warns(RuntimeWarning, match="MULTI no longer uses HELPER.0, .* succeeded on HELPER.1: .*out of order"):
        np.testing.assert_array_equal(compiled(X)[0], np.maximum(X, 0))
    np.testing.assert_array_equal(compiled(X)[0], np.maximum(X, 0))
    assert helpers.runs == {"0": 1, "1": 2}
    helpers.broken.add("1")
    with pytest.raises(hetero.InferenceError, match="HELPER.1 failed in an inference .*out of order"):
        compiled(X)
    helpers.broken.clear()
    assert compiled(X)  # the last one stays


def test_what_fails_everywhere_takes_nobody_out(core: hetero.Core, helpers: Helper, relu: hetero.Model) -> None:
    compiled = core.compile_model(relu, "MULTI:HELPER.0,HELPER.1")
    with pytest.raises(hetero.InferenceError, match="HELPER.0 failed"):
        compiled(X * np.nan)
    assert helpers.runs == {"0": 1, "1": 1}
    compiled(X)
    assert helpers.runs == {"0": 2, "1": 1}


def test_devices_that_do_not_take_the_model(core: hetero.Core, helpers: Helper, diamond: hetero.Model) -> None:
    with pytest.warns(RuntimeWarning, match="MULTI does not use a device: HELPER.0 does not support .* of 'diamond'"):
        compiled = core.compile_model(diamond, "MULTI:HELPER.0,CPU")
    assert compiled.get_property("EXECUTION_DEVICES") == ("CPU",)
    with pytest.raises(hetero.UnsupportedModel, match="HELPER.0 does not support 5 nodes"):
        core.compile_model(diamond, "MULTI:HELPER.0,CPU", {"STRICT": True})
    with pytest.raises(hetero.UnsupportedModel, match="only Relu"):
        core.compile_model(diamond, "MULTI:HELPER.0,HELPER.1")
    with pytest.raises(hetero.PropertyError, match="MULTI requires a device list"):
        core.compile_model(diamond, "MULTI")


def test_cancel(core: hetero.Core) -> None:
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Identity", ["v"], ["w"])],
        "body",
        [value("trip", 7, []), value("go", 9, []), value("v", 1, [2, 3])],
        [value("on", 9, []), value("w", 1, [2, 3])],
    )
    nodes = [helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body)]
    model = core.read_model(make_model(nodes, weights={"trips": np.array(2**62)}))
    request = core.compile_model(model, "MULTI:CPU.0,CPU.1").create_infer_request()
    request.start_async(X)
    assert request.wait(20) is False
    request.cancel()
    with pytest.raises(Cancelled):
        request.wait(30_000)
