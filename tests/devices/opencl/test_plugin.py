"""The device OPENCL: the contract suite, devices, properties and exports."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import hetero
from hetero.devices.opencl import backend
from hetero.plugin import Plugin
from hetero.registry import Registry
from hetero.testing import PluginContract
from opencl import as_gpu, first_device, model_of, unavailable

needs_opencl = pytest.mark.skipif(bool(unavailable()), reason=unavailable())

node = helper.make_node
X = np.float32([[1, -2, 3]])


@needs_opencl
class TestOpencl(PluginContract):
    @pytest.fixture
    def plugin(self) -> Plugin:
        return Registry().plugin("OPENCL")

    def valid_values(self, plugin: Plugin, name: str) -> tuple[object, ...]:
        # CLBlast need not be installed.
        return ("AUTO", "NO") if name == "OPENCL_CLBLAST" else tuple(super().valid_values(plugin, name))


def relu(core: hetero.Core) -> hetero.Model:
    return core.read_model(model_of([node("Relu", ["x"], ["y"])], {"x": X}))


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    monkeypatch.setattr(backend, "load", backend.load.__wrapped__)
    core = hetero.Core()
    assert not [name for name in core.available_devices if name.startswith("OPENCL")]
    (info,) = [info for info in core.devices() if info.name == "OPENCL"]
    assert "pyopencl" in info.unavailable
    with pytest.raises(hetero.DeviceUnavailable, match="pyopencl"):
        core.compile_model(relu(core), "OPENCL")


@needs_opencl
def test_without_a_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    cl = backend.load()

    def no_platforms() -> list[object]:
        raise cl.LogicError("clGetPlatformIDs failed: PLATFORM_NOT_FOUND_KHR")

    for platforms in (no_platforms, list):
        monkeypatch.setattr(cl, "get_platforms", platforms)
        with pytest.raises(hetero.DeviceUnavailable, match=r"OPENCL: .* no .*pocl-opencl-icd"):
            hetero.Core().compile_model(relu(hetero.Core()), "OPENCL")


@needs_opencl
def test_devices_have_ids(core: hetero.Core, monkeypatch: pytest.MonkeyPatch) -> None:
    (device, *others) = backend.find_devices()
    assert core.get_property("OPENCL", "AVAILABLE_DEVICES") == tuple(str(at) for at in range(1 + len(others)))
    monkeypatch.setattr(backend, "find_devices", lambda: [device, device])
    core = hetero.Core()
    assert {"OPENCL.0", "OPENCL.1"} <= {*core.available_devices}
    for name in ("OPENCL", "OPENCL.0", "OPENCL.1"):
        compiled = core.compile_model(relu(core), name)
        assert compiled.get_property("EXECUTION_DEVICES") == (name,)
        np.testing.assert_array_equal(compiled(X)[0], np.maximum(X, 0))
    with pytest.raises(hetero.DeviceUnavailable, match="no device OPENCL.7; ids here: 0, 1"):
        core.compile_model(relu(core), "OPENCL.7")
    assert core.get_property("OPENCL", "FULL_DEVICE_NAME").startswith(device.name.strip())


@needs_opencl
def test_importing_hetero_does_not_import_pyopencl() -> None:
    import subprocess

    code = "import hetero, sys; core = hetero.Core(); core.compile_model; print('pyopencl' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@needs_opencl
def test_caches_and_exports(core: hetero.Core, tmp_path: Path) -> None:
    model = relu(core)
    config = {"CACHE_DIR": str(tmp_path), "OPENCL_CLBLAST": "NO"}
    assert not core.compile_model(model, "OPENCL", config).get_property("LOADED_FROM_CACHE")
    compiled = core.compile_model(model, "OPENCL", config)
    assert compiled.get_property("LOADED_FROM_CACHE")
    np.testing.assert_array_equal(compiled(X)[0], np.maximum(X, 0))
    compiled.export_model(tmp_path / "relu.hetero")
    imported = core.import_model(tmp_path / "relu.hetero", "OPENCL")
    assert imported.get_property("OPENCL_CLBLAST") == "NO"
    np.testing.assert_array_equal(imported(X)[0], np.maximum(X, 0))


@needs_opencl
def test_two_names_for_one_device_share_its_memory(core: hetero.Core) -> None:
    core.register_plugin("SECOND", "hetero.devices.opencl:create_plugin")
    nodes = [node("Relu", ["x"], ["a"], "one"), node("Exp", ["a"], ["b"], "two"), node("Neg", ["b"], ["y"], "three")]
    model = core.read_model(model_of(nodes, {"x": X}, outputs=["y"]))
    compiled = core.compile_model(model, "HETERO:OPENCL,SECOND,CPU", {"PERF_COUNT": True}, pins={"two": "SECOND"})
    assert compiled.get_property("HETERO_NUMBER_OF_SUBMODELS") == 3
    request = compiled.create_infer_request()
    for _ in range(3):
        np.testing.assert_allclose(request.infer(X)[0], -np.exp(np.maximum(X, 0)), 1e-5)
        moves = [(move.value, move.nbytes) for move in request.profiling_info.moves]
        assert moves == [("x", X.nbytes), ("y", X.nbytes)]  # and nothing between the subgraphs
    spaces = {id(core.compile_model(relu(core), name).memory_space) for name in ("OPENCL", "SECOND")}
    assert len(spaces) == 1


@needs_opencl
def test_memory_and_speed(core: hetero.Core) -> None:
    plugin = Registry().plugin("OPENCL")
    speed = plugin.speed("OPENCL")
    memory = plugin.device_memory("OPENCL")
    assert memory is not None
    assert memory.total > 1 << 28
    if first_device().is_gpu:
        assert speed.link_bytes_per_s is not None
        return
    assert speed.link_bytes_per_s is None  # it works in the host's memory
    with as_gpu():
        assert plugin.speed("OPENCL.0").flops_per_s > speed.flops_per_s
