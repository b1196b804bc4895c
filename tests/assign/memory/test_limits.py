"""Memory limits as users write them."""

from __future__ import annotations

import numpy as np
import pytest

import hetero
from hetero.assign.memory.limits import limits_of, parse_bytes, parse_limits
from hetero.base.machine import DeviceMemory
from hetero.errors import PropertyError


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (4096, 4096),
        (4e9, 4_000_000_000),
        ("4096", 4096),
        ("512MiB", 512 * 2**20),
        ("512 mib", 512 * 2**20),
        ("1.5GB", 1_500_000_000),
        ("1.5e3 kB", 1_500_000),
        ("2G", 2_000_000_000),
        ("2Gi", 2**31),
        (".5KiB", 512),
        ("9223372036854775807", 2**63 - 1),
        (np.int64(7).item(), 7),
    ],
)
def test_sizes(given, expected):
    assert parse_bytes(given) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (-1, "-1 is negative"),
        ("-1GB", "'-1GB' is negative"),
        (0, "0 is less than a byte"),
        ("0 MB", "'0 MB' is less than a byte"),
        (0.5, "0.5 is less than a byte"),
        (float("nan"), "nan is not finite"),
        (float("inf"), "inf is not finite"),
        ("1e400", "'1e400' is not finite"),
        ("1e30", "more than 2..63 - 1 bytes"),
        (2**63, "more than 2..63 - 1 bytes"),
        pytest.param(10**5000, "more than 2..63 - 1 bytes", id="huge"),
        pytest.param("9" * 5000, "is not finite", id="huge text"),
        ("12 parsecs", "unknown unit 'parsecs'"),
        ("1 MyB", r"unknown unit 'MyB' \(did you mean MB\?\)"),
        ("much", "'much' is not a size"),
        ("", "'' is not a size"),
        ("1_000", "'1_000' is not a size"),
        (True, "True is not a size"),
        (None, "None is not a size"),
        ([1], "is not a size"),
    ],
)
def test_sizes_that_are_none(given, message):
    with pytest.raises(PropertyError, match=message) as raised:
        parse_bytes(given, "max_memory of CPU")
    assert str(raised.value).startswith("max_memory of CPU: ")


def test_limits_as_text_and_mapping():
    assert parse_limits("CPU.0=1GiB, CPU.1=2MB") == {"CPU.0": 2**30, "CPU.1": 2_000_000}
    assert parse_limits({"CPU.0": 5}) == {"CPU.0": 5}
    assert parse_limits("") == {}
    for wrong, message in (
        ("CPU.0", "expected DEVICE=SIZE"),
        ("CPU=1,CPU=2", "'CPU' is given twice"),
        (7, "must be a mapping such as"),
        ({3: 4}, "must map device names to sizes, found the key 3"),
        ("CPU=auto", "max_memory of CPU: 'auto' is not a size, expected .* or 'available' for the free memory"),
    ):
        with pytest.raises(PropertyError, match=message):
            parse_limits(wrong)


def test_names_without_ids_hold_for_all_of_a_name_and_the_smaller_limit_counts():
    devices = ["CPU.0", "CPU.1", "FPGA"]
    found = limits_of(devices, {"CPU": 5, "CPU.1": 9, "FPGA": 100}, {"FPGA": 40.0}, devices)
    assert found == {"CPU.0": 5, "CPU.1": 9, "FPGA": 40}
    assert limits_of(devices, {}, {"FPGA": 40.0}) == {"FPGA": 40}
    with pytest.raises(
        PropertyError, match=r"names 'CPU\.2', which is not in the list CPU\.0, CPU\.1, FPGA .did you mean"
    ):
        limits_of(devices, {"CPU.2": 5}, {}, devices)


def test_available() -> None:
    given = parse_limits({"CPU": "available", "NPU": 5})
    assert parse_limits(given) == given == parse_limits("CPU=available,NPU=5")
    found = limits_of(["CPU.0", "CPU.1", "NPU"], given, {"CPU.1": 7.0}, None, lambda device: 40)
    assert found == {"CPU.0": 40, "CPU.1": 7, "NPU": 5}
    with pytest.raises(PropertyError, match="max_memory of CPU: the device does not say what is available; give a"):
        limits_of(["CPU"], given, {})
    assert limits_of(["CPU"], given, {}, None, lambda device: 0) == {"CPU": 0}


def test_available_memory_of_devices(core: hetero.Core, diamond: hetero.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = core._registry.plugin("CPU")
    monkeypatch.setattr(cpu, "device_memory", lambda device: DeviceMemory(2**40, 10**9))
    limits = {"CPU": "available"}
    for device in ("CPU", "HETERO:CPU,TEMPLATE"):
        assert core.plan(diamond, device, max_memory=limits).limits["CPU"] == 10**9
        assert core.compile_model(diamond, device, max_memory=limits).inputs
    monkeypatch.setattr(cpu, "device_memory", lambda device: DeviceMemory(1))  # less than any model needs
    with pytest.raises(hetero.InsufficientMemory):
        core.plan(diamond, "CPU", max_memory=limits)
    moved = core.plan(diamond, "HETERO:CPU,TEMPLATE", max_memory=limits)
    assert set(moved.affinity.values()) == {"TEMPLATE"}
    monkeypatch.setattr(cpu, "device_memory", lambda device: None)
    with pytest.raises(hetero.PropertyError, match="does not say what is available"):
        core.plan(diamond, "CPU", max_memory=limits)
    assert not core.plan(diamond, "CPU").limits  # only if asked for
