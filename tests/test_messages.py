"""What people get wrong when they name devices, and whether the message tells them what to do instead."""

from __future__ import annotations

import builtins
import errno
import importlib
import os
import pickle
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import hetero
from hetero.compiling.splitting import read_manifest
from hetero.devices.profile import load_profile

CASES = {
    "": "device '': expected a name such as 'CPU' or 'HETERO:FPGA,CPU'",
    "HETERO": "HETERO requires a device list, for example 'HETERO:TEMPLATE,CPU'",
    "HETERO:": "the device list is empty; expected for example 'HETERO:FPGA,CPU'",
    "cpu": "unknown device 'cpu' (did you mean CPU?); known devices: CPU, ",
    "hetero:CPU": "unknown device 'hetero' (did you mean HETERO?)",
    "HETERO:fpga,CPU": "unknown device 'fpga' (did you mean FPGA?)",
    "HETERO:FPGA,CPPU": "unknown device 'CPPU' (did you mean CPU?)",
    "CUDAExecutionProvider": "unknown device 'CUDAExecutionProvider': onnxruntime's CUDAExecutionProvider is ORT.CUDA;",
    "BATCH": "unknown device 'BATCH': hetero does not merge requests into batches; concatenate the inputs;",
    "TEMPLTE": "unknown device 'TEMPLTE' (did you mean TEMPLATE?)",
    "HETERO:CPU,FPGA,CPU": "CPU is listed twice",
    "HETERO:FPGA,CPU,": "the list has an empty entry; remove the spare comma",
    "FPGA,CPU": "a device list requires a prefix, such as 'HETERO:FPGA,CPU'",
    "HETERO:FPGA;CPU": "devices of a list are separated by commas",
    "HETERO:HETERO:CPU,CPU": "cannot be part of a device list",
    "GPU": "an Intel GPU is OPENVINO.GPU (pip install 'hetero[openvino]'), an NVIDIA GPU is ORT.CUDA",
    "HETERO:NPU,CPU": "an Intel NPU is OPENVINO.NPU (pip install 'hetero[openvino]')",
    "CPU.4096": "there is no device CPU.4096; ids here: 0",
    "CPU:0": "device 'CPU:0': an id follows a dot, as in 'CPU.0'",
    "HETERO:FPGA,CPU:1": "device 'CPU:1': an id follows a dot, as in 'CPU.1'",
    "cuda:0": "an id follows a dot, as in 'cuda.0'",
    "plan.json": "device 'plan.json': to use a plan, pass hetero.Plan.load('plan.json') as the device",
    "/a/My.JSON": "pass hetero.Plan.load('/a/My.JSON') as the device",
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
    for device, message in {
        "CPU": "'CPU' is a single device: use a list, such as 'HETERO:CPU,TEMPLATE'",
        "MULTI:FPGA,CPU": "'MULTI:FPGA,CPU' chooses devices itself: use a list, such as 'HETERO:FPGA,CPU'",
        "AUTO": "'AUTO' chooses devices itself: use a list, such as 'HETERO:FPGA,CPU'",
    }.items():
        for use in (core.compile_model, core.plan):
            with pytest.raises(hetero.PropertyError, match=f"pins require a device list, and {message}"):
                use(diamond, device, pins={"one": "CPU"})
    with pytest.raises(hetero.PropertyError, match="a plan already contains its pins"):
        core.compile_model(diamond, core.plan(diamond, "HETERO:CPU"), pins={"one": "CPU"})


@pytest.mark.parametrize(
    ("pin", "message"),
    [
        ("seve", "pin 'seve' matches no node (did you mean seven?)"),
        ("op:relu", "pin 'op:relu' matches no node (did you mean op:Relu?)"),
        ("u", "pin 'u' matches no node: expressions match whole keys; '.*u.*' matches 'four'"),
        ("?:xyz", "pin '?:xyz' is neither a node key nor a regular expression: "),
        (
            "/head/.*",
            "pin '/head/.*' matches no node: expected a node key such as 'one', a regular expression for whole keys, "
            "op: and an operator, or weight: and a constant",
        ),
    ],
)
def test_a_pin_without_a_match(core: hetero.Core, diamond: hetero.Model, pin: str, message: str) -> None:
    with pytest.raises(hetero.PropertyError) as caught:
        core.plan(diamond, "HETERO:FPGA,CPU", pins={pin: "CPU"})
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("device", ["HETERO:CPU,CPU.0", "HETERO:CPU.0,CPU", "HETERO:FPGA,CPU,CPU.0"])
def test_one_device_twice(core: hetero.Core, diamond: hetero.Model, device: str) -> None:
    second = device.rpartition(",")[2]
    with pytest.warns(RuntimeWarning, match=f"{second} has no node: the list also has CPU.*, the same device") as told:
        core.compile_model(diamond, device)
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        core.compile_model(diamond, device, pins={"one": second})
        core.compile_model(diamond, "HETERO:FPGA,CPU")


def test_each_reason_has_its_own_line(core: hetero.Core) -> None:
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Frob", ["x"], ["y"], "f", domain="mine")],
        "g",
        *([onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2])] for name in "xy"),
    )
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("mine", 1)]
    model = core.read_model(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8))
    with pytest.raises(hetero.UnsupportedModel) as caught:
        core.compile_model(model, "HETERO:FPGA,CPU")
    lines = str(caught.value).splitlines()
    assert lines[1] == "  'f' (Frob):" or lines[1] == "  'f' (mine::Frob):"
    assert [line.partition(":")[0] for line in lines[2:]] == ["    FPGA", "    CPU"]
    with pytest.raises(hetero.UnsupportedModel, match=r"Frob\): CPU: "):
        core.compile_model(model, "CPU")


@pytest.mark.parametrize("kind", ["model", "exported", "plan", "costs", "profile", "split"])
def test_a_missing_file_is_a_file_not_found_error(core: hetero.Core, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "gone"
    uses: dict[str, tuple[type[hetero.HeteroError], Any]] = {
        "model": (hetero.ModelError, lambda: core.read_model(path)),
        "exported": (hetero.ArtifactError, lambda: hetero.load(path)),
        "plan": (hetero.HeteroError, lambda: hetero.Plan.load(path)),
        "costs": (hetero.HeteroError, lambda: hetero.Costs.load(path)),
        "profile": (hetero.PropertyError, lambda: load_profile(path)),
        "split": (hetero.HeteroError, lambda: read_manifest(path)),
    }
    error, use = uses[kind]
    with pytest.raises(FileNotFoundError) as caught:
        use()
    assert isinstance(caught.value, error)
    assert str(path) in str(caught.value)
    assert caught.value.errno == errno.ENOENT
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value)
    assert (str(again), again.errno, again.filename) == (str(caught.value), errno.ENOENT, caught.value.filename)


def test_a_file_that_cannot_be_read_is_a_permission_error(core: hetero.Core, tmp_path: Path) -> None:
    def refuse(*_: object, **__: object) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied", "m.onnx")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(PermissionError, match=r"m\.onnx: cannot be opened: Permission denied") as caught:
            core.read_model(tmp_path / "m.onnx")
    assert isinstance(caught.value, hetero.ModelError)
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value)
    assert (str(again), again.errno) == (str(caught.value), errno.EACCES)


def test_missing_weights_are_a_file_not_found_error(core: hetero.Core, tmp_path: Path) -> None:
    weight = onnx.numpy_helper.from_array(np.zeros(300, np.float32), "w")
    ports = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [300]) for name in "xy"]
    node, x = onnx.helper.make_node("Add", ["x", "w"], ["y"], "add"), np.zeros(300, np.float32)
    graph = onnx.helper.make_graph([node], "g", ports[:1], ports[1:], [weight])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"initializer 'w': external data 'w\.bin' cannot be opened") as caught:
        core.compile_model(tmp_path / "m.onnx", "CPU")(x)
    assert isinstance(caught.value, hetero.ModelError)
    (tmp_path / "w.bin").write_bytes(b"short")
    with pytest.raises(hetero.ModelError) as short:
        core.compile_model(tmp_path / "m.onnx", "CPU")(x)
    assert not isinstance(short.value, FileNotFoundError)


def test_inputs_of_another_name_or_kind(core: hetero.Core, diamond: hetero.Model) -> None:
    port = diamond.inputs[0]
    x = np.zeros([dim if isinstance(dim, int) else 1 for dim in port.shape or ()], port.dtype)
    compiled = core.compile_model(diamond, "CPU")
    for inputs, message in (
        ({f"{port.name}_": x}, f"the model has no input '{port.name}_' (did you mean {port.name}?); its inputs:"),
        ({7: x}, "the model has no input 7; its inputs:"),
        ({port.name: x, "extra": x, "more": x}, "the model has no input 'extra', 'more'; its inputs:"),
        ({f"i{i}": x for i in range(7)}, " and 2 more; its inputs:"),
        ([x, x], f"a list of 2 arrays; write {{'{port.name}': array}}"),
        ((x[None],), f"a tuple of 1 array; write {{'{port.name}': array}}"),
        ({}, f"input '{port.name}' is missing; expected"),
    ):
        with pytest.raises(hetero.InferenceError) as caught:
            compiled(inputs)
        assert message in str(caught.value)


def test_a_list_for_several_inputs(core: hetero.Core) -> None:
    ports = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "aby"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Add", ["a", "b"], ["y"])], "g", ports[:2], ports[2:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    compiled = core.compile_model(model, "CPU")
    x = np.ones(2, np.float32)
    np.testing.assert_array_equal(compiled([x, x])["y"], x + x)
    with pytest.raises(hetero.InferenceError, match="expected up to 2 arrays, one for each input, found 3"):
        compiled([x, x, x])
    with pytest.raises(hetero.InferenceError, match="input 'b' is missing"):
        compiled([x])
    message = r"expected a mapping from input name to array \(inputs: a, b\), found one array; write {'a': array, …}"
    with pytest.raises(hetero.InferenceError, match=message):
        compiled(x)
    with pytest.raises(
        hetero.InferenceError, match=r"the model has no input 'B' \(did you mean b\?\); its inputs: a, b"
    ):
        compiled({"a": x, "B": x})


def test_an_opset_of_the_future(core: hetero.Core) -> None:
    graph = onnx.helper.make_graph([], "g", [], [])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 99)], ir_version=8)
    newest = onnx.defs.onnx_opset_version()
    with pytest.raises(
        hetero.ModelError, match=rf"opset 99 .* supports 1 to {newest}; install a newer onnx, or export"
    ):
        core.read_model(model)
