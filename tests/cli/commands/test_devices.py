"""``hetero devices``."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

import hetero as library
from command_line import NASTY, Invoke, Json
from hetero.plugin.speed import DeviceSpeed


def test_devices(hetero: Invoke, hetero_json: Json) -> None:
    found = {entry["name"]: entry for entry in hetero_json("devices")["devices"]}
    assert [info.name for info in library.Core().devices()] == list(found)
    assert found["CPU"]["available"]
    assert found["CPU"]["version"] == library.__version__
    assert found["FPGA"]["kind"] == "simulated"
    assert found["HETERO"]["kind"] == "list"
    text = hetero("devices").stdout
    assert "simulated on CPU" in text
    cpu = found["CPU"]
    assert cpu["threads"] >= 1
    assert cpu["memory_bytes"] >= (cpu["free_bytes"] or 0) > 0
    assert cpu["speed"]["source"] == "ESTIMATE"  # which the table does not show
    assert found["FPGA"]["memory_bytes"] == 4e9
    assert found["FPGA"]["speed"]["source"] == "PROFILE"
    assert found["HETERO"]["memory_bytes"] is None
    assert found["HETERO"]["speed"] is None
    (line,) = [line for line in text.splitlines() if line.startswith("FPGA")]
    assert "4.00 GB" in line
    assert "2 Tflop/s, 50 GB/s, link 8 GB/s" in line


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["FPGA"], ["FPGA"]),
        (["TEMPLATE", "CPU.0"], ["TEMPLATE", "CPU"]),
        (["HETERO:FPGA,CPU", "CPU"], ["FPGA", "CPU"]),
        (["FPGA,CPU"], ["FPGA", "CPU"]),
        (["HETERO"], ["HETERO"]),
    ],
)
def test_some_devices(hetero_json: Json, given: list[str], expected: list[str]) -> None:
    assert [entry["name"] for entry in hetero_json("devices", *given)["devices"]] == expected


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("FPGB", "unknown device 'FPGB' (did you mean FPGA?)"),
        ("GPU", "unknown device 'GPU'"),
        ("HETERO:FPGB,CPU", "unknown device 'FPGB' (did you mean FPGA?)"),
        ("CPU:0", "an id follows a dot, as in 'CPU.0'"),
    ],
)
def test_unknown_names(hetero: Invoke, given: str, says: str) -> None:
    assert says in hetero("devices", given, code=1).stderr


def test_speeds_are_measured(hetero_json: Json, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of devices that are neither simulated nor lists; one that cannot be measured keeps its speed."""
    measured = []

    def measure(core: library.Core, device: str) -> DeviceSpeed:
        measured.append(device)
        if device == "TEMPLATE":
            raise library.HeteroError("no")
        return DeviceSpeed(1e9, 2e9)

    monkeypatch.setattr("hetero.measure.measure_speed", measure)
    found = {entry["name"]: entry for entry in hetero_json("devices", "--measure")["devices"]}
    assert {"CPU", "TEMPLATE"} <= set(measured)
    assert not {"FPGA", "HETERO", "MULTI", "AUTO"} & set(measured)
    assert found["CPU"]["speed"]["flops_per_s"] == 1e9
    assert found["CPU"]["speed"]["source"] == "PROFILE"
    assert found["TEMPLATE"]["speed"]["source"] == "ESTIMATE"


class _Point:
    """An entry point as importlib.metadata gives it."""

    group = library.registry.ENTRY_POINT_GROUP
    name, value = "BROKEN", "package_that_is_not_there:create_plugin"

    class dist:
        name, version = "broken-package", "3.2"


def test_a_plugin_that_fails_is_told(hetero: Invoke, hetero_json: Json, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [_Point])
    entry = next(entry for entry in hetero_json("devices")["devices"] if entry["name"] == "BROKEN")
    assert not entry["available"]
    assert "package_that_is_not_there" in entry["reason"]
    assert (entry["origin"], entry["version"]) == ("broken-package", "3.2")
    printed = hetero("devices").stdout
    assert "not available" in printed
    assert "not available: RAY:" not in printed  # the row has the name


def test_a_profile_is_added(hetero_json: Json, hetero: Invoke, diamond_path: Path) -> None:
    Path("npu.toml").write_text('name = "NPU"\nruns_on = "CPU"\n[ops]\nRelu = {}\n')
    assert any(entry["name"] == "NPU" for entry in hetero_json("devices", "--profile", "npu.toml")["devices"])
    found = hetero_json("query", diamond_path, "-d", "HETERO:NPU,CPU", "--profile", "npu.toml")
    assert found["devices"][0]["operators"] == {"Relu": 2}
    assert "cannot be read" in hetero("devices", "--profile", "gone.toml", code=1).stderr


def test_errors_of_device_strings(hetero: Invoke, diamond_path: Path) -> None:
    for device, told in (
        ("HETERO:", "empty"),
        ("HETERO:FPGA,CPU,", "spare comma"),
        ("HETERO:CPU,CPU", "twice"),
        ("CPPU", "did you mean CPU?"),
        ("cpu", "did you mean CPU?"),
    ):
        error = hetero("query", diamond_path, "-d", device, code=1).stderr
        assert told in error
        assert error.count("\n") == 1


def test_hostile_names(hetero: Invoke, hetero_json: Json, nasty_path: Path) -> None:
    text = hetero("query", nasty_path, "-d", "HETERO:FPGA,CPU", "--nodes").stdout
    assert "\\x1b[31m" in text
    assert "[red]" in text
    assert NASTY + "2" in hetero_json("query", nasty_path, "-d", "HETERO:FPGA,CPU")["nodes"]
