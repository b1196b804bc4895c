"""``hetero devices``."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from typing import Any

import click

from ..completing import complete_device
from ..options import json_option, new_command
from ..planning import Planning, profile_option

__all__ = ["command"]

_LISTS = {
    "HETERO": "one model on a list of devices, by priority: HETERO:FPGA,CPU",
    "MULTI": "requests distributed over a list of devices: MULTI:CPU,ORT",
    "AUTO": "the fastest device or split of a list, found while requests run: AUTO:ORT,CPU",
    "CONTROL_FLOW": "If, Loop and Scan with their bodies cut, in a list: HETERO:ORT.CUDA,CONTROL_FLOW,CPU",
}


@new_command("devices CPU FPGA --measure")
@click.argument("names", metavar="[DEVICE]...", nargs=-1, shell_complete=complete_device)
@profile_option
@click.option("--measure", "measured", is_flag=True, help="Measure the speed of devices, a few seconds for each.")
@json_option
def command(names: tuple[str, ...], profiles: tuple[str, ...], measured: bool, as_json: bool) -> None:
    """List devices, with the reason if one is unavailable.

    With names of devices, lists only these. Devices are provided by hetero, by plugin packages and by profiles. For an
    unavailable device, the reason says what to install. Speeds are those that profiles state, unless they are measured.
    """
    from ...base.device_string import with_list_device
    from ..session import core_with
    from ..text import print_json, print_table

    core = core_with(Planning(profiles=profiles))
    infos = core.devices(*map(with_list_device, names))
    if measured:
        infos = tuple(map(functools.partial(_measured, core), infos))
    devices = [_described(core, info) for info in infos]
    if as_json:
        print_json({"devices": devices})
        return
    rows = []
    for info, entry in zip(infos, devices, strict=True):
        name, memory, threads, speed, _ = info.row()
        reason = (entry["reason"] or "").removeprefix(f"{entry['name']}: ")
        text = entry["description"] if entry["available"] else f"not available: {reason}"
        origin = f"{entry['origin']} {entry['version']}".strip()
        rows.append((name, entry["kind"], origin, memory, threads, speed, text))
    print_table("Devices", ("device (ids)", "kind", "from", "memory", ">threads", "speed", "description"), rows)


def _measured(core: Any, info: Any) -> Any:
    """A `DeviceInfo` with a measured speed. A profile keeps the speed that it states, and a device that cannot be
    measured the speed that it has."""
    from ...errors import HeteroError
    from ...measure import measure_speed

    if info.unavailable or info.name in _LISTS or _kind(core, info) == "simulated":
        return info
    try:
        return dataclasses.replace(info, speed=measure_speed(core, info.name))
    except HeteroError:
        return info


def _kind(core: Any, info: Any) -> str:
    """``DEVICE_TYPE``, or ``list``; ``unknown`` if the device does not say."""
    from ...errors import HeteroError

    if info.name in _LISTS:
        return "list"
    if not info.unavailable:
        with contextlib.suppress(HeteroError):  # optional property
            return str(core.get_property(info.name, "DEVICE_TYPE")) or "unknown"
    return "unknown"


def _described(core: Any, info: Any) -> dict[str, Any]:
    """A `DeviceInfo` for JSON output."""
    from ...base.version import __version__

    origin, _, version = info.origin.rpartition(" ")
    if not origin:
        origin, version = info.origin, __version__ if info.origin == "hetero" else ""
    return {
        "name": info.name,
        "ids": list(info.ids),
        "kind": _kind(core, info),
        "origin": origin,
        "version": version,
        "available": not info.unavailable,
        "description": _LISTS.get(info.name, info.description),
        "reason": info.unavailable or None,
        "memory_bytes": None if info.memory is None else info.memory.total,
        "free_bytes": None if info.memory is None else info.memory.free,
        "threads": info.threads,
        "speed": None if info.speed is None else dataclasses.asdict(info.speed) | {"source": info.speed.source.name},
    }
