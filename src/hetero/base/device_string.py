"""Device strings: a name, an optional id after a dot, and for HETERO, MULTI and AUTO a list after a
colon.

``CPU``, ``CPU.1``, ``HETERO:FPGA,CPU``.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import PropertyError, did_you_mean, shown
from .plain import plain

__all__ = [
    "CONTROL_FLOW",
    "LIST_DEVICES",
    "DeviceString",
    "check_listed",
    "is_device_name",
    "name_of_provider",
    "parse_device",
    "parse_device_list",
    "string_of_list",
    "with_list_device",
]

LIST_DEVICES = ("HETERO", "MULTI", "AUTO")
"""The devices that run over a list of other devices. The first cuts models for them."""

CONTROL_FLOW = "CONTROL_FLOW"
"""The device that cuts nested graphs for the other devices of a list. Unlike `LIST_DEVICES`, it can be in one."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ID = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*")
_COUNTED = re.compile(r"([A-Za-z_][A-Za-z0-9_.]*)\((\d+)\)")  # OpenVINO's "MULTI:CPU(2)"
_IN_PARENTHESES = re.compile(r"(\w+)\((.*)\)")
_PROVIDER = re.compile(r"(\w+)ExecutionProvider", re.IGNORECASE)
_BATCH = "BATCH"  # OpenVINO's "BATCH:CPU(4)"
_PLAN_END = ".json"


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceString:
    """A parsed device string. ``id``: empty if not given. ``devices``: None without a colon."""

    name: str
    id: str = ""
    devices: tuple[str, ...] | None = None

    def __str__(self) -> str:
        text = f"{self.name}.{self.id}" if self.id else self.name
        return text if self.devices is None else f"{text}:{','.join(self.devices)}"


def is_device_name(text: str) -> bool:
    """Whether ``text`` is a valid device name without id and list."""
    return _NAME.fullmatch(text) is not None


def with_list_device(text: str) -> str:
    """A device string of the command line: a list without the device that takes it is HETERO's."""
    return f"HETERO:{text}" if "," in text and ":" not in text else text


def parse_device(text: str) -> DeviceString:
    """Parse ``NAME``, ``NAME.ID`` or ``NAME:LIST``. Raises `PropertyError` for a malformed string."""
    text = _text_of(text)
    if isinstance(text, (str, os.PathLike)) and os.fsdecode(text).lower().endswith(_PLAN_END):
        path = os.fsdecode(text)
        raise PropertyError(f"device {path!r}: to use a plan, pass hetero.Plan.load({path!r}) as the device")
    if not isinstance(text, str):
        raise PropertyError(
            f"a device is named by a string such as 'CPU' or 'HETERO:FPGA,CPU', found {shown(text)}"
            f"{'; pass properties as config={…}' if isinstance(text, Mapping) else ''}"
        )
    head, colon, tail = text.partition(":")
    name, dot, id_ = head.strip().partition(".")
    in_parentheses = _IN_PARENTHESES.fullmatch(head.strip())
    if in_parentheses and in_parentheses[1] in LIST_DEVICES:
        written = f"{in_parentheses[1]}:{in_parentheses[2]}"
        raise PropertyError(f"device {text!r}: a colon precedes the devices of a list: write {written!r}")
    if "," in head:
        raise PropertyError(f"device {text!r}: a device list requires a prefix, such as 'HETERO:{text}'")
    if ";" in text:
        raise PropertyError(f"device {text!r}: devices of a list are separated by commas, as in 'HETERO:FPGA,CPU'")
    if name == _BATCH and colon:
        raise PropertyError(f"device {text!r}: hetero does not merge requests into batches: concatenate their inputs")
    counted = _COUNTED.fullmatch(head.strip())
    if counted:
        device, number = counted.groups()
        raise PropertyError(
            f"device {text!r}: set the number of requests as a property: "
            f"DEVICE_PROPERTIES={{{device!r}: {{'NUM_STREAMS': {number}}}}}"
        )
    if name.startswith("-") and is_device_name(name[1:]):  # OpenVINO's "AUTO:-CPU"
        raise PropertyError(f"device {text!r}: a list cannot exclude devices; list the devices to use")
    if not is_device_name(name):
        raise PropertyError(f"device {text!r}: expected a name such as 'CPU' or 'HETERO:FPGA,CPU'")
    if dot and not _ID.fullmatch(id_):
        raise PropertyError(f"device {text!r}: expected an id after the dot, as in '{name}.0'")
    if colon and name not in LIST_DEVICES and _ID.fullmatch(tail.strip()) and tail.strip().isdecimal():
        raise PropertyError(f"device {text!r}: an id follows a dot, as in '{name}.{tail.strip()}'")
    return DeviceString(name, id_, parse_device_list(tail, text) if colon else None)


def _text_of(device: Any) -> Any:
    """``device`` as a plain string. Raises `PropertyError` with the string to write for a list of names."""
    if not isinstance(device, (list, tuple)) or not device:
        return plain(device)
    names = [entry[0] if isinstance(entry, tuple) and len(entry) == 2 else entry for entry in device]
    if not all(isinstance(name, str) for name in names):
        return device
    listed = ",".join(name_of_provider(plain(name)) or plain(name) for name in names)
    options = "" if names == list(device) else "; pass options as ORT_PROVIDER_OPTIONS in DEVICE_PROPERTIES"
    raise PropertyError(f"a device list is one string: write {'HETERO:' + listed!r}{options}")


def name_of_provider(text: str) -> str | None:
    """The device for an execution provider of onnxruntime, or None for another text."""
    provider = _PROVIDER.fullmatch(text)
    return None if provider is None else f"ORT.{provider[1].upper()}"


def parse_device_list(text: str, whole: str | None = None) -> tuple[str, ...]:
    """Split ``FPGA,CPU.0``. Raises `PropertyError` for an empty list, an empty entry or a duplicate."""
    whole = text if whole is None else whole
    if not text.strip():
        name = whole.partition(":")[0] if whole.partition(":")[0] in LIST_DEVICES else "HETERO"
        raise PropertyError(f"device {whole!r}: the device list is empty; expected for example '{name}:FPGA,CPU'")
    devices: list[str] = []
    for entry in text.split(","):
        if not entry.strip():
            raise PropertyError(f"device {whole!r}: the list has an empty entry; remove the spare comma")
        if entry.count(":") > 1:  # bounds the recursion
            raise PropertyError(f"device {whole!r}: {entry.strip()!r} cannot be part of a device list")
        device = parse_device(entry)
        if device.devices is not None or device.name in LIST_DEVICES:
            raise PropertyError(f"device {whole!r}: {entry.strip()!r} cannot be part of a device list")
        if str(device) in devices:
            raise PropertyError(f"device {whole!r}: {device} is listed twice")
        devices.append(str(device))
    return tuple(devices)


def check_listed(what: str, named: Iterable[str], listed: Sequence[str]) -> None:
    """Each of ``named`` must be a device of the list, with its id or without. ``what`` names them. Raises
    `PropertyError`."""
    names = list(dict.fromkeys([*listed, *(device.partition(".")[0] for device in listed)]))
    for device in named:
        if device not in names:
            raise PropertyError(
                f"{what} names {device!r}, which is not in the list {', '.join(listed)}{did_you_mean(device, names)}"
            )


def string_of_list(devices: Sequence[str]) -> str:
    """The device string for which a plan over ``devices`` was made. A list such as ``MULTI:CPU,ORT`` in place of a
    single device stands for itself."""
    if len(devices) == 1 and ":" in devices[0]:
        return devices[0]
    return f"{LIST_DEVICES[0]}:{','.join(devices)}"
