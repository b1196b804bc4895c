"""Device strings."""

from __future__ import annotations

import pytest

import hetero
from hetero.base.device_string import DeviceString, parse_device


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("CPU", DeviceString("CPU")),
        ("CPU.1", DeviceString("CPU", "1")),
        ("OPENVINO.GPU", DeviceString("OPENVINO", "GPU")),
        ("HETERO:FPGA,CPU", DeviceString("HETERO", "", ("FPGA", "CPU"))),
        ("HETERO: FPGA , CPU.0,CPU.1", DeviceString("HETERO", "", ("FPGA", "CPU.0", "CPU.1"))),
    ],
)
def test_parse(text: str, parsed: DeviceString) -> None:
    assert parse_device(text) == parsed
    assert parse_device(str(parsed)) == parsed


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected a name"),
        ("HETERO:", "list is empty"),
        ("HETERO: ", "list is empty"),
        ("HETERO:CPU,", "empty entry"),
        ("HETERO:CPU,,FPGA", "empty entry"),
        ("HETERO:CPU,CPU", "CPU is listed twice"),
        ("HETERO(FPGA,CPU)", "write 'HETERO:FPGA,CPU'"),
        ("AUTO(CPU)", "write 'AUTO:CPU'"),
        ("HETERO:CPU.0,FPGA,CPU.0", "CPU.0 is listed twice"),
        ("HETERO:HETERO,CPU", "cannot be part of"),
        ("HETERO:HETERO:CPU", "cannot be part of"),
        ("A:" * 10_000 + "CPU", "cannot be part of"),
        ("CPU.", "id after the dot"),
        ("CPU.a/b", "id after the dot"),
        ("../x", "expected a name"),
        (7, "named by a string"),
        (["CUDAExecutionProvider", "CPUExecutionProvider"], "write 'HETERO:ORT.CUDA,ORT.CPU'$"),
        (
            [("CUDAExecutionProvider", {"device_id": 0}), "CPUExecutionProvider"],
            "write 'HETERO:ORT.CUDA,ORT.CPU'; pass options as ORT_PROVIDER_OPTIONS in DEVICE_PROPERTIES",
        ),
        (["FPGA", "CPU"], "a device list is one string: write 'HETERO:FPGA,CPU'"),
        (("CPU",), "write 'HETERO:CPU'"),
        ([], "named by a string"),
        (["CPU", 1], "named by a string"),
    ],
)
def test_malformed(text: str, says: str) -> None:
    with pytest.raises(hetero.PropertyError, match=says):
        parse_device(text)
