"""The contract suite on every device that ships."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hetero
from hetero.devices.profile import ProfilePlugin, load_profile
from hetero.devices.template import create_plugin as create_template
from hetero.devices.template.plugin import TemplatePlugin
from hetero.errors import DeviceUnavailable
from hetero.plugin import CompiledModel, Plugin, Runner
from hetero.plugin.checked import checked_runner
from hetero.registry import Registry
from hetero.testing import PluginContract


def resolve(name: str) -> Plugin:
    """The plugins a profile may run on; TEMPLATE stands in where a device is not there."""
    if name not in ("CPU", "TEMPLATE"):
        raise DeviceUnavailable(f"unknown device {name!r}")
    return create_template()


class TestTemplate(PluginContract):
    @pytest.fixture
    def plugin(self) -> Plugin:
        return create_template()


class TestShippedProfile(PluginContract):
    """The simulated FPGA, executed by the reference implementations."""

    @pytest.fixture
    def plugin(self) -> Plugin:
        with resources.as_file(resources.files("hetero") / "profiles" / "fpga.toml") as path:
            return ProfilePlugin(load_profile(Path(path)), resolve)


class _AtHome:
    """What stands for a result that stays with its device."""

    def __init__(self, value: Any) -> None:
        self.value = value


class _HomeRunner:
    def __init__(self, inner: Runner) -> None:
        self._inner = inner
        self._left: Sequence[int] = ()

    def keep_on_device(self, positions: Sequence[int]) -> None:
        self._left = positions

    def run(self, inputs: Sequence[Any]) -> Sequence[Any]:
        given = [value.value if isinstance(value, _AtHome) else value for value in inputs]
        results = self._inner.run(given)
        return [_AtHome(result) if at in self._left else result for at, result in enumerate(results)]

    def profile(self) -> Sequence[Any]:
        return self._inner.profile()


class _HomeModel(CompiledModel):
    """An ordinary model, whose results are checked, with a memory space."""

    def __init__(self, inner: CompiledModel, memory_space: object) -> None:
        super().__init__(inner.device, inner.inputs, inner.outputs, inner.settings)
        self._inner = inner
        self.memory_space = memory_space

    def create_runner(self) -> Runner:
        return _HomeRunner(self._inner.create_runner())


class HomePlugin(TemplatePlugin):
    def __init__(self) -> None:
        super().__init__()
        self._home = object()

    def compile_model(self, model: Any, config: Any, context: Any = None) -> CompiledModel:
        return _HomeModel(super().compile_model(model, config, context), self._home)


class TestHome(PluginContract):
    """A third-party device that leaves results where they are computed."""

    @pytest.fixture
    def plugin(self) -> Plugin:
        return HomePlugin()


def test_left_results(core: hetero.Core, diamond: hetero.Model) -> None:
    core.register_plugin("HOME", HomePlugin)
    core.register_plugin("OTHER", HomePlugin)
    x = np.float32([[-1, 2, 3], [4, -5, 6]])
    expected = core.compile_model(diamond, "TEMPLATE")({diamond.inputs[0].name: x})[0]
    for pins in ({"one": "OTHER"}, {"one": "CPU"}, {"two": "CPU"}, {"one": "CPU", "two": "OTHER"}):
        compiled = core.compile_model(diamond, "HETERO:HOME,OTHER,CPU", pins=pins)
        for outputs in (compiled(x), compiled(x), compiled.submit(x).result()):
            np.testing.assert_array_equal(outputs[0], expected)


def test_pipelines_pass_arrays_between_stages(core: hetero.Core, diamond: hetero.Model) -> None:
    core.register_plugin("HOME", HomePlugin)
    x = np.float32([[-1, 2, 3], [4, -5, 6]])
    expected = core.compile_model(diamond, "TEMPLATE")({diamond.inputs[0].name: x})[0]
    config = {"MODEL_DISTRIBUTION_POLICY": "PIPELINE_PARALLEL"}
    compiled = core.compile_model(diamond, "HETERO:HOME,CPU", config)
    for outputs in (compiled(x), compiled.submit(x).result()):
        np.testing.assert_allclose(outputs[0], expected, 1e-6)


def test_given_arrays_receive_results_of_a_device_with_a_memory_space(core: hetero.Core, diamond: hetero.Model) -> None:
    core.register_plugin("HOME", HomePlugin)
    x = np.float32([[-1, 2, 3], [4, -5, 6]])
    expected = core.compile_model(diamond, "TEMPLATE")({diamond.inputs[0].name: x})[0]
    for pins in ({}, {"one": "CPU"}, {"two": "CPU"}):
        y = np.full_like(expected, 7)
        assert core.compile_model(diamond, "HETERO:HOME,CPU", pins=pins)(x, out=y)[0] is y
        np.testing.assert_allclose(y, expected, 1e-6)


def test_a_home_needs_runners_that_leave() -> None:
    runner = checked_runner(_Silent(), "HOME", "of 'm'", [])
    with pytest.raises(hetero.InferenceError, match=r"HOME: .* of 'm'.*_Silent.* no method keep_on_device"):
        runner.keep_on_device([0])


class _Silent:
    def run(self, inputs: Sequence[Any]) -> Sequence[Any]:
        return []

    def profile(self) -> Sequence[Any]:
        return ()


@pytest.mark.skipif(importlib.util.find_spec("hetero.devices.cpu") is None, reason="the CPU device is not built yet")
class TestCpu(PluginContract):
    @pytest.fixture
    def plugin(self) -> Plugin:
        create: Callable[[], Plugin] = importlib.import_module("hetero.devices.cpu").create_plugin
        return create()


@pytest.mark.skipif(importlib.util.find_spec("onnxruntime") is None, reason="onnxruntime is not installed")
class TestOrt(PluginContract):
    @pytest.fixture
    def plugin(self) -> Plugin:
        return Registry().plugin("ORT")

    def valid_values(self, plugin: Plugin, name: str) -> Sequence[Any]:
        # Each build has other execution providers, which take other nodes.
        return ("", "CPU") if name == "DEVICE_ID" else super().valid_values(plugin, name)


@pytest.mark.skipif(
    importlib.util.find_spec("openvino") is None, reason="openvino is not installed: pip install 'hetero[openvino]'"
)
class TestOpenvino(PluginContract):
    @pytest.fixture
    def plugin(self) -> Plugin:
        return Registry().plugin("OPENVINO")


class TestHetero(PluginContract):
    """HETERO over a device with three operators and one that takes the rest: most cases are cut."""

    config = {"MULTI_DEVICE_PRIORITIES": "NPU,TEMPLATE"}  # noqa: RUF012 - as the base class declares it

    @pytest.fixture
    def plugin(self, tmp_path: Path) -> Plugin:
        path = tmp_path / "npu.toml"
        path.write_text('name = "NPU"\nruns_on = "TEMPLATE"\n[ops]\nAdd = {}\nMatMul = {}\nConv = {}\n')
        registry = Registry()
        registry.register("NPU", path)
        return registry.plugin("HETERO")

    def may_forward(self, plugin: Plugin, name: str) -> bool:
        return plugin.plugin_of("TEMPLATE").declares(name)


class TestMulti(PluginContract):
    """MULTI over two devices that give the same bits."""

    config = {"MULTI_DEVICE_PRIORITIES": "CPU.0,CPU.1"}  # noqa: RUF012 - as the base class declares it

    @pytest.fixture
    def plugin(self) -> Plugin:
        return Registry().plugin("MULTI")

    def may_forward(self, plugin: Plugin, name: str) -> bool:
        return plugin.plugin_of("CPU").declares(name)


class TestAuto(PluginContract):
    """AUTO over two devices that give the same bits."""

    config = {"MULTI_DEVICE_PRIORITIES": "CPU.0,CPU.1"}  # noqa: RUF012 - as the base class declares it

    @pytest.fixture
    def plugin(self) -> Plugin:
        return Registry().plugin("AUTO")

    def may_forward(self, plugin: Plugin, name: str) -> bool:
        return plugin.plugin_of("CPU").declares(name)

    def test_exported_models_are_imported_with_the_same_results(self, plugin: Plugin) -> None:
        """The file holds the model of the chosen device."""
        core = hetero.Core()
        for case, model in self.supported(plugin):
            compiled = self.compiled(plugin, model)
            expected = [compiled(feed).arrays() for feed in case.feeds]
            stream = io.BytesIO()
            compiled.export_model(stream)
            imported = core.import_model(stream.getvalue())
            assert imported.device == compiled.choice.device
            for feed, arrays in zip(case.feeds, expected, strict=True):
                for found, array in zip(imported(feed).arrays(), arrays, strict=True):
                    np.testing.assert_array_equal(found, array)
