"""``hetero properties``."""

from __future__ import annotations

from pathlib import Path

import hetero as library
from command_line import Invoke, Json


def test_all_properties(hetero: Invoke, hetero_json: Json) -> None:
    core = library.Core()
    for device in ("CPU", "TEMPLATE", "HETERO", "MULTI", "AUTO", "FPGA", "HETERO:FPGA,CPU"):
        found = hetero_json("properties", device)["properties"]
        names = [entry["name"] for entry in found]
        assert names == list(core.get_property(device, "SUPPORTED_PROPERTIES"))
        assert all(entry["description"] for entry in found)
        text = hetero("properties", device).stdout
        assert all(name in text for name in names)
    cpu = {entry["name"]: entry for entry in hetero_json("properties", "CPU")["properties"]}
    assert cpu["PERFORMANCE_HINT"]["choices"] == ["LATENCY", "THROUGHPUT"]
    assert cpu["NUM_STREAMS"]["value"] == 0
    assert cpu["NUM_STREAMS"]["writable"]
    assert not cpu["FULL_DEVICE_NAME"]["writable"]
    assert cpu["FULL_DEVICE_NAME"]["value"]


def test_profiles_and_errors(hetero: Invoke, hetero_json: Json) -> None:
    Path("npu.toml").write_text('name = "NPU"\nruns_on = "CPU"\n[ops]\nRelu = {}\n[cost]\nmemory_bytes = 4096\n')
    found = {entry["name"]: entry for entry in hetero_json("properties", "NPU", "--profile", "npu.toml")["properties"]}
    assert found["DEVICE_TYPE"]["value"] == "simulated"
    listed = {entry["name"]: entry for entry in hetero_json("devices", "--profile", "npu.toml")["devices"]}
    assert listed["NPU"]["memory_bytes"] == 4096
    assert listed["NPU"]["threads"] is None
    assert "did you mean CPU?" in hetero("properties", "CPUU", code=1).stderr
    hetero("properties", code=2)
