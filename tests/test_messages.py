"""What people get wrong when they name devices, and whether the message tells them what to do instead."""

from __future__ import annotations

import builtins
import importlib
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import hetero

CASES = {
    "": "device '': expected a name such as 'CPU' or 'HETERO:FPGA,CPU'",
    "HETERO": "HETERO requires a device list, for example 'HETERO:TEMPLATE,CPU'",
    "HETERO:": "the device list is empty; expected for example 'HETERO:FPGA,CPU'",
    "cpu": "unknown device 'cpu' (did you mean CPU?); known devices: CPU, ",
    "hetero:CPU": "unknown device 'hetero' (did you mean HETERO?)",
    "HETERO:fpga,CPU": "unknown device 'fpga' (did you mean FPGA?)",
    "HETERO:FPGA,CPPU": "unknown device 'CPPU' (did you mean CPU?)",
    "TEMPLTE": "unknown device 'TEMPLTE' (did you mean TEMPLATE?)",
    "HETERO:CPU,FPGA,CPU": "CPU is listed twice",
    "HETERO:FPGA,CPU,": "the list has an empty entry; remove the spare comma",
    "FPGA,CPU": "a list needs the device that runs over it, as in 'HETERO:FPGA,CPU'",
    "HETERO:FPGA;CPU": "devices of a list are separated by commas",
    "HETERO:HETERO:CPU,CPU": "cannot stand inside a device list",
    "GPU": "an Intel GPU is OPENVINO.GPU (pip install 'hetero[openvino]'), one of NVIDIA ORT.CUDA",
    "HETERO:NPU,CPU": "an Intel NPU is OPENVINO.NPU (pip install 'hetero[openvino]')",
    "AUTO": "devices are listed by priority, such as 'HETERO:FPGA,CPU'",
    "CPU.4096": "there is no device CPU.4096; ids here: 0",
}


@pytest.mark.parametrize("device", CASES)
def test_devices_that_are_none(core: hetero.Core, diamond: hetero.Model, device: str) -> None:
    for use in (core.compile_model, core.plan, core.query_model):
        with pytest.raises(hetero.HeteroError) as caught:
            use(diamond, device)
        assert CASES[device] in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("device", "package"), [("ORT", "onnxruntime"), ("OPENVINO", "openvino")])
def test_a_missing_package_is_told_by_the_command_that_installs_it(
    core: hetero.Core, diamond: hetero.Model, monkeypatch: pytest.MonkeyPatch, device: str, package: str
) -> None:
    plain = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        return plain(name, *args, **kwargs)

    backend = importlib.import_module(f"hetero.devices.{device.lower()}.backend")
    monkeypatch.setattr(backend, "load", backend.load.__wrapped__)  # which remembers what it once loaded
    monkeypatch.setattr(builtins, "__import__", without)
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    command = f"pip install 'hetero[{package}]'"
    with pytest.raises(hetero.DeviceUnavailable) as caught:
        core.compile_model(diamond, device)
    assert command in str(caught.value)
    assert command in next(info.unavailable for info in core.devices() if info.name == device)
    with pytest.raises(hetero.DeviceUnavailable) as caught:
        core.plan(diamond, f"HETERO:{device},CPU", {"STRICT": True})
    assert command in str(caught.value)
    with pytest.warns(RuntimeWarning) as told:
        plan = core.plan(diamond, f"HETERO:{device},CPU")
    assert [command in str(warning.message) for warning in told] == [True]
    assert plan.devices == ("CPU",)
    assert [(warning.kind, warning.device) for warning in plan.warnings] == [("unavailable", device)]


def test_an_execution_provider_that_this_onnxruntime_lacks(core: hetero.Core, diamond: hetero.Model) -> None:
    pytest.importorskip("onnxruntime")
    if "CUDA" in core.get_property("ORT", "AVAILABLE_DEVICES"):
        pytest.skip("this onnxruntime has CUDA")
    with pytest.raises(
        hetero.DeviceUnavailable, match=r"no device ORT\.CUDA; ids here: CPU.*pip install onnxruntime-gpu"
    ):
        core.compile_model(diamond, "ORT.CUDA")


@pytest.mark.parametrize("way", ["compile", "plan", "query", "cache", "cached", "MULTI", "load"])
def test_an_absent_device_is_told_once_at_the_users_line(
    core: hetero.Core, diamond: hetero.Model, tmp_path: Path, way: str
) -> None:
    core.register_plugin("ABSENT", "no.such.module:create_plugin")
    device = "HETERO:ABSENT,CPU"
    config = {"CACHE_DIR": str(tmp_path)} if way.startswith("cache") else {}
    if way == "cached":
        with pytest.warns(RuntimeWarning):
            core.compile_model(diamond, device, config)
    plan = hetero.Plan.from_json(
        core.plan(diamond, "HETERO:CPU").to_json().replace(b'["CPU"]', b'["ABSENT","CPU"]'), "p"
    )
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        match way:
            case "plan":
                core.plan(diamond, device)
            case "query":
                core.query_model(diamond, device)
            case "MULTI":
                core.compile_model(diamond, "MULTI:ABSENT,CPU")
            case "load":
                core.compile_model(diamond, plan)
            case _:
                compiled = core.compile_model(diamond, device, config)
                assert compiled.get_property("LOADED_FROM_CACHE") == (way == "cached")
    assert [str(warning.message).partition(":")[0] for warning in told] == ["skipping ABSENT"]
    assert told[0].filename == __file__


@pytest.mark.parametrize("pins", [[("one", "CPU")], {"one": None}, {3: "CPU"}, "one"])
def test_pins_of_another_kind(core: hetero.Core, diamond: hetero.Model, pins: Any) -> None:
    for use in (core.compile_model, core.plan):
        with pytest.raises(hetero.PropertyError, match=r"pins? "):
            use(diamond, "HETERO:FPGA,CPU", pins=pins)


def test_pins_without_a_list(core: hetero.Core, diamond: hetero.Model) -> None:
    message = "pins require a device list, and 'CPU' is a single device: use a list"
    with pytest.raises(hetero.PropertyError, match=message):
        core.compile_model(diamond, "CPU", pins={"one": "CPU"})
    with pytest.raises(hetero.PropertyError, match="a plan already contains its pins"):
        core.compile_model(diamond, core.plan(diamond, "HETERO:CPU"), pins={"one": "CPU"})
