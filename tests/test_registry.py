"""The plugins behind the names of devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import hetero
from hetero.devices.template import TemplatePlugin
from hetero.registry import Registry
from model_zoo import make_model


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("CPPU", "CPU"), ("cpu", "CPU"), ("FGPA", "FPGA"), ("HETRO", "HETERO"), ("template", "TEMPLATE")],
)
def test_unknown_device_names_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(hetero.DeviceUnavailable, match=f"did you mean {nearest}"):
        Registry().plugin(name)


@pytest.mark.parametrize("device", ["HETERO:FPGA,CPPU", "HETERO:CPPU,FPGA", "CPPU", "HETERO:CPU.x,CPPU"])
def test_unknown_device_at_compile(core: hetero.Core, diamond: hetero.Model, device: str) -> None:
    with pytest.raises(hetero.UnknownDevice, match="CPPU.*did you mean CPU"):
        core.compile_model(diamond, device)


def test_unknown_id(core: hetero.Core, diamond: hetero.Model) -> None:
    with pytest.raises(hetero.DeviceUnavailable, match=r"no device CPU\.9999.*ids here: 0"):
        core.compile_model(diamond, "CPU.9999")
    with pytest.raises(hetero.DeviceUnavailable, match="has no ids"):
        core.compile_model(diamond, "TEMPLATE.0")


def test_a_list_needs_a_device_that_takes_one(core: hetero.Core, diamond: hetero.Model) -> None:
    with pytest.raises(hetero.PropertyError, match="does not accept a device list"):
        core.compile_model(diamond, "CPU:TEMPLATE")
    with pytest.raises(hetero.PropertyError, match="requires a device list"):
        core.compile_model(diamond, "HETERO")


def test_broken_plugins_hurt_nobody(core: hetero.Core, diamond: hetero.Model) -> None:
    core.register_plugin("BROKEN", "no.such.module:create_plugin")
    core.register_plugin("ODD", lambda: "not a plugin")  # type: ignore[arg-type, return-value]
    for name, says in (("BROKEN", "No module named 'no'"), ("ODD", "returned str")):
        with pytest.raises(hetero.DeviceUnavailable, match=says):
            core.compile_model(diamond, name)
        assert name not in core.available_devices
    with pytest.warns(RuntimeWarning, match="skipping BROKEN"):
        plan = core.plan(diamond, "HETERO:BROKEN,CPU")
    assert plan.devices == ("CPU",)
    with pytest.raises(hetero.DeviceUnavailable, match="No module"):
        core.plan(diamond, "HETERO:BROKEN,CPU", {"STRICT": True})
    with pytest.warns(RuntimeWarning), pytest.raises(hetero.DeviceUnavailable, match="no device of"):
        core.plan(diamond, "HETERO:BROKEN")


def test_register_twice(core: hetero.Core) -> None:
    with pytest.raises(hetero.PropertyError, match="already"):
        core.register_plugin("CPU", "a:b")
    with pytest.raises(hetero.PropertyError, match="cannot be a device name"):
        core.register_plugin("A,B", "a:b")


SECOND_NAMES = {
    "CPU": "hetero.devices.cpu:create_plugin",
    "TEMPLATE": "hetero.devices.template:create_plugin",
    "ORT": "hetero.devices.ort:create_plugin",
}


@pytest.fixture(params=[*SECOND_NAMES, "profile", "hardcoded", "shared"])
def renamed(request: pytest.FixtureRequest, core: hetero.Core, tmp_path: Path) -> hetero.Core:
    """A core on which a device has the second name TWO."""
    kind = request.param
    if kind == "ORT":
        pytest.importorskip("onnxruntime")
    if kind == "profile":
        ops = "".join(f"[ops.{op}]\n" for op in ("Relu", "LeakyRelu", "Exp", "Add"))
        (tmp_path / "npu.toml").write_text(f'name = "NPU"\nruns_on = "CPU"\n{ops}')
        core.register_plugin("TWO", tmp_path / "npu.toml")
    elif kind == "hardcoded":
        core.register_plugin("TWO", Hardcoded)
    elif kind == "shared":
        plugin = TemplatePlugin()
        core.register_plugin("ONE", lambda: plugin)
        core.register_plugin("TWO", lambda: plugin)
        core.get_property("ONE", "FULL_DEVICE_NAME")
    else:
        core.register_plugin("TWO", SECOND_NAMES[kind])
    return core


class Hardcoded(TemplatePlugin):
    """Its author has written the device's name into its models."""

    name = "HARD"

    def compile_model(self, model: Any, config: Any, context: Any = None) -> hetero.CompiledModel:
        compiled = super().compile_model(model, config, context)
        compiled.rename("HARD")
        return compiled


def test_a_second_name_stays(renamed: hetero.Core, diamond: hetero.Model, tmp_path: Path) -> None:
    """In models, subgraphs, counters, threads, messages and exported files."""
    core, x = renamed, np.float32([[-1, 2, 3], [4, -5, 6]])
    expected = core.compile_model(diamond, "TEMPLATE")(x)[0]
    alone = core.compile_model(diamond, "TWO", {"PERF_COUNT": True})
    assert alone.device == "TWO"
    assert alone.get_property("EXECUTION_DEVICES") == ("TWO",)
    cut = core.compile_model(diamond, "HETERO:CPU,TWO", {"PERF_COUNT": True}, pins={"one": "TWO"})
    assert cut.device == "HETERO:CPU,TWO"
    assert set(cut.get_property("EXECUTION_DEVICES")) == {"CPU", "TWO"}
    both = core.compile_model(diamond, "MULTI:TWO,CPU")
    assert both.get_property("EXECUTION_DEVICES") == ("TWO", "CPU")
    for compiled in (alone, cut, both):
        np.testing.assert_allclose(compiled(x)[0], expected, 1e-6)
        np.testing.assert_allclose(compiled.submit(x).result()[0], expected, 1e-6)
    request = cut.create_infer_request()
    request.infer(x)
    assert {span.device for span in request.profiling_info.spans} == {"CPU", "TWO"}
    assert core.query_model(diamond, "TWO") == dict.fromkeys(diamond.keys, "TWO")
    for number, compiled in enumerate((alone, cut)):
        path = tmp_path / f"{number}.hetero"
        compiled.export_model(path)
        again = core.import_model(path)
        assert again.device == compiled.device
        assert again.get_property("EXECUTION_DEVICES") == compiled.get_property("EXECUTION_DEVICES")
        np.testing.assert_allclose(again(x)[0], expected, 1e-6)
        with pytest.raises(hetero.DeviceUnavailable, match="TWO"):
            hetero.Core().import_model(path)
    with pytest.raises(hetero.WrongDevice):
        core.import_model(tmp_path / "0.hetero", "TEMPLATE")
    caching = {"CACHE_DIR": str(tmp_path / "cache")}
    for loaded in (False, True):
        compiled = core.compile_model(diamond, "TWO", caching)
        assert (compiled.device, compiled.get_property("LOADED_FROM_CACHE")) == ("TWO", loaded)
    assert core.compile_model(diamond, "TEMPLATE", caching).device == "TEMPLATE"


@pytest.mark.parametrize("kind", [*SECOND_NAMES, "shared"])
def test_two_names_of_one_device_run_beside_each_other(
    core: hetero.Core, diamond: hetero.Model, tmp_path: Path, kind: str
) -> None:
    if kind == "ORT":
        pytest.importorskip("onnxruntime")
    plugin = TemplatePlugin()
    for name in ("ONE", "TWO"):
        core.register_plugin(name, SECOND_NAMES.get(kind, lambda: plugin))
    x = np.float32([[-1, 2, 3], [4, -5, 6]])
    expected = core.compile_model(diamond, "TEMPLATE")(x)[0]
    for device in ("HETERO:ONE,TWO", "HETERO:TWO,ONE", "MULTI:ONE,TWO"):
        pins = {"one": "ONE", "two": "TWO"} if device.startswith("HETERO") else None
        compiled = core.compile_model(diamond, device, {"PERF_COUNT": True}, pins=pins)
        assert set(compiled.get_property("EXECUTION_DEVICES")) == {"ONE", "TWO"}
        np.testing.assert_allclose(compiled(x)[0], expected, 1e-6)
        if pins is None:
            continue
        assert {submodel.device for submodel in compiled.submodels} == {"ONE", "TWO"}  # type: ignore[attr-defined]
        request = compiled.create_infer_request()
        request.infer(x)
        assert {span.device for span in request.profiling_info.spans} == {"ONE", "TWO"}
        compiled.export_model(tmp_path / "m.hetero")
        again = core.import_model(tmp_path / "m.hetero")
        assert set(again.get_property("EXECUTION_DEVICES")) == {"ONE", "TWO"}
        np.testing.assert_allclose(again(x)[0], expected, 1e-6)


def test_messages_have_the_second_name(core: hetero.Core) -> None:
    node = helper.make_node("Mystery", ["x"], ["y"], name="strange", domain="nobody")
    proto = make_model([node], {"x": [2]}, ["y"])
    proto.opset_import.append(helper.make_opsetid("nobody", 1))
    model = core.read_model(proto)
    for name, target in SECOND_NAMES.items():
        core.register_plugin(f"MY_{name}", target)
        with pytest.raises(hetero.UnsupportedModel) as caught:
            core.compile_model(model, f"MY_{name}")
        assert list(caught.value.unsupported["strange"]) == [f"MY_{name}"]
        with pytest.raises(hetero.UnsupportedModel, match=f"^MY_{name} cannot compile"):
            core._registry.plugin(f"MY_{name}").compile_model(model, {})
        with pytest.raises(hetero.PropertyError, match=rf"MY_{name}\b"):
            core.get_property(f"MY_{name}", "NO_SUCH_PROPERTY")


def test_ids_and_workers_of_a_second_name(core: hetero.Core, diamond: hetero.Model) -> None:
    core.register_plugin("TWO", SECOND_NAMES["CPU"])
    x = np.float32([[-1, 2, 3], [4, -5, 6]])
    expected = core.compile_model(diamond, "TEMPLATE")(x)[0]
    assert core.compile_model(diamond, "TWO.0").get_property("EXECUTION_DEVICES") == ("TWO.0",)
    for device in ("TWO", "TWO.0"):
        compiled = core.compile_model(diamond, device, {"ISOLATION": "PROCESS"})
        assert compiled.get_property("EXECUTION_DEVICES") == (device,)
        np.testing.assert_allclose(compiled(x)[0], expected, 1e-6)
    slow, fast = (core._registry.plugin(name).speed(name) for name in ("TEMPLATE", "TWO"))
    assert fast == core._registry.plugin("CPU").speed("CPU")
    assert fast != slow
    core.register_plugin("SLOW", SECOND_NAMES["TEMPLATE"])
    assert core._registry.plugin("SLOW").speed("SLOW") == slow


def test_available_devices(core: hetero.Core) -> None:
    available = core.available_devices
    assert "TEMPLATE" in available
    assert "FPGA" in available
    assert "HETERO" not in available
    assert any(name.partition(".")[0] == "CPU" for name in available)


def test_devices_that_cannot_be_used_are_listed(core: hetero.Core) -> None:
    core.register_plugin("BROKEN", "no.such.module:create_plugin")
    found = {info.name: info for info in core.devices()}
    assert found["CPU"].origin == "hetero"
    assert found["CPU"].ids
    assert found["CPU"].description
    assert not found["CPU"].unavailable
    assert found["FPGA"].origin == "profile"
    assert "No module named 'no'" in found["BROKEN"].unavailable
    assert found["BROKEN"].origin == "registered"
    assert {"ORT", "HETERO", "TEMPLATE"} <= found.keys()


@pytest.fixture
def broken_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installed packages with devices: one that ends the program, one whose property fails, one with an odd name."""
    (tmp_path / "ending.py").write_text("raise SystemExit(3)")
    (tmp_path / "faulty.py").write_text(
        "from hetero.devices.template import TemplatePlugin\n"
        "class Faulty(TemplatePlugin):\n"
        "    def device_ids(self):\n"
        "        raise OSError('no driver')\n"
        "def create_plugin():\n"
        "    return Faulty()\n"
    )
    info = tmp_path / "acme-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text(
        "[hetero.plugins]\nENDING = ending\nFAULTY = faulty\nODD-NAME = faulty\nABSENT = nothing:create\nCPU = ending\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("broken_packages")
def test_packages_that_fail_hurt_nobody(core: hetero.Core, diamond: hetero.Model) -> None:
    found = {info.name: info for info in core.devices()}
    assert found["ENDING"].origin == "acme 1.5"
    assert "of the package acme 1.5): its plugin failed: SystemExit: 3" in found["ENDING"].unavailable
    assert "no driver" in found["FAULTY"].unavailable
    assert "cannot be a device name" in found["ODD-NAME"].unavailable
    assert "No module named 'nothing'" in found["ABSENT"].unavailable
    assert not found["CPU"].unavailable
    assert found["CPU"].origin == "hetero"
    available = core.available_devices
    assert "TEMPLATE" in available
    assert not {"ENDING", "FAULTY", "ODD-NAME", "ABSENT"} & set(available)
    core.compile_model(diamond, "CPU")


def test_a_missing_profile_is_reported_when_it_is_registered(core: hetero.Core, tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", str(tmp_path / "none.toml")):
        with pytest.raises(hetero.PropertyError, match=r"profile .*none.toml: No such file or directory") as raised:
            core.register_plugin("NONE", path)
        assert isinstance(raised.value, FileNotFoundError)
        assert raised.value.filename == str(tmp_path / "none.toml")
    with pytest.raises(hetero.UnknownDevice):
        core.compile_model(b"", "NONE")


def test_profiles_of_another_process_may_be_missing(tmp_path: Path) -> None:
    registry = Registry()
    registry.register("NONE", tmp_path / "none.toml", must_exist=False)
    with pytest.raises(hetero.DeviceUnavailable, match=r"profile .*none.toml: cannot be read: No such file"):
        registry.plugin("NONE")
