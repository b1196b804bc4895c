"""The contract suite on every device that ships."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from hetero.devices.profile import ProfilePlugin, load_profile
from hetero.devices.template import create_plugin as create_template
from hetero.errors import DeviceUnavailable
from hetero.plugin import Plugin
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
