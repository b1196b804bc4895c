"""The device that docs/plugins.md prints, run through the contract suite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import hetero
from doc_pages import printed_file
from hetero.plugin import Plugin
from hetero.testing import PluginContract
from model_zoo import make_model

PAGE = Path(__file__).parents[2] / "docs" / "plugins.md"
DEVICE = printed_file(PAGE, "tiny_device.py")
DEVICE_MEMORY = printed_file(PAGE, "device_memory.py")


def create() -> Plugin:
    names: dict[str, Any] = {}
    exec(compile(DEVICE, "tiny_device.py", "exec"), names)
    plugin: Plugin = names["TinyPlugin"]()
    return plugin


class TestPrintedDevice(PluginContract):
    @pytest.fixture
    def plugin(self) -> Plugin:
        return create()

    def test_most_cases_are_supported(self, plugin: Plugin) -> None:
        names = {case.name for case in self.cases()}
        assert names - {case.name for case, _ in self.supported(plugin)} == {"matmul", "convolution"}


class TestPrintedDeviceWithItsOwnMemory(PluginContract):
    """The second example of the page keeps results of the first one on the device."""

    @pytest.fixture
    def plugin(self) -> Plugin:
        names: dict[str, Any] = {}
        exec(compile(DEVICE, "tiny_device.py", "exec"), names)
        exec(compile(DEVICE_MEMORY, "device_memory.py", "exec"), names)

        class KeepingPlugin(names["TinyPlugin"]):
            memory = object()

            def compile_model(self, model: Any, config: Any, context: Any = None) -> hetero.CompiledModel:
                inner = super().compile_model(model, config, context)

                def compute(buffers: list[Any]) -> list[Any]:
                    results = inner.create_runner().run([buffer.array for buffer in buffers])
                    return [names["Buffer"](result) for result in results]

                made: hetero.CompiledModel = names["DeviceModel"](
                    self.name, model.inputs, model.outputs, self.memory, compute
                )
                return made

        plugin: Plugin = KeepingPlugin()
        return plugin


def test_the_printed_device_is_short() -> None:
    assert len(DEVICE.splitlines()) < 40


def test_the_printed_device_rejects_wrong_properties(core: hetero.Core) -> None:
    """Without a line of its own for that."""
    core.register_plugin("TINY", create)
    model = core.read_model(make_model([helper.make_node("Relu", ["x"], ["y"], "relu")]))
    for device in ("TINY", "HETERO:TINY,CPU"):
        with pytest.raises(hetero.PropertyError, match="LOG_LEVEL"):
            core.compile_model(model, device, {"LOG_LEVELS": "NO"})
    compiled = core.compile_model(model, "TINY", {"LOG_LEVEL": "ERR"})
    assert compiled.get_property("LOG_LEVEL") == "ERR"
    assert compiled.get_property("NETWORK_NAME") == model.name


def test_counters_beside_the_printed_device(core: hetero.Core) -> None:
    """A device without PERF_COUNT has no counters, and its neighbors have theirs."""
    core.register_plugin("TINY", create)
    model = core.read_model(
        make_model([helper.make_node("Relu", ["x"], ["a"], "relu"), helper.make_node("Tanh", ["a"], ["y"], "tanh")])
    )
    compiled = core.compile_model(model, "HETERO:TINY,CPU", {"PERF_COUNT": True})
    request = compiled.create_infer_request()
    x = np.float32([[-1, 0, 1], [2, 3, 4]])
    np.testing.assert_allclose(request.infer(x)[0], np.tanh(np.maximum(x, 0)), rtol=1e-5)
    assert [row.node for row in request.profiling_info] == ["tanh"]
    with pytest.raises(hetero.PropertyError, match="TINY has no property 'PERF_COUNT'"):
        core.compile_model(model, "TINY", {"PERF_COUNT": True})
