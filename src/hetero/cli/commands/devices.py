"""``hetero devices``."""

from __future__ import annotations

import contextlib
from typing import Any

from ..options import json_option, new_command
from ..planning import Planning, profile_option

__all__ = ["command"]

_LISTS = {
    "HETERO": "one model on a list of devices, by priority: HETERO:FPGA,CPU",
    "MULTI": "requests distributed over a list of devices: MULTI:CPU,ORT",
    "AUTO": "the fastest device or split of a list, found while requests run: AUTO:ORT,CPU",
}


@new_command()
@profile_option
@json_option
def command(profiles: tuple[str, ...], as_json: bool) -> None:
    """List devices, with the reason if one is unavailable.

    Devices are provided by hetero, by plugin packages and by profiles. For an unavailable device, the reason says what
    to install.
    """
    from ..session import core_with
    from ..text import print_json, print_table

    core = core_with(Planning(profiles=profiles))
    devices = [_described(core, info) for info in core.devices()]
    if as_json:
        print_json({"devices": devices})
        return
    rows = [
        (
            entry["name"] if not entry["ids"] else f"{entry['name']} ({', '.join(entry['ids'])})",
            entry["kind"],
            f"{entry['origin']} {entry['version']}".strip(),
            entry["description"] if entry["available"] else f"not available: {entry['reason']}",
        )
        for entry in devices
    ]
    print_table("Devices", ("device (ids)", "kind", "from", "what it is"), rows)


def _described(core: Any, info: Any) -> dict[str, Any]:
    """A `DeviceInfo` for JSON output."""
    from ...base.version import __version__
    from ...errors import HeteroError

    kind = "list" if info.name in _LISTS else "unknown"
    if not info.unavailable and info.name not in _LISTS:
        with contextlib.suppress(HeteroError):  # optional property
            kind = str(core.get_property(info.name, "DEVICE_TYPE")) or kind
    origin, _, version = info.origin.rpartition(" ")
    if not origin:
        origin, version = info.origin, __version__ if info.origin == "hetero" else ""
    return {
        "name": info.name,
        "ids": list(info.ids),
        "kind": kind,
        "origin": origin,
        "version": version,
        "available": not info.unavailable,
        "description": _LISTS.get(info.name, info.description),
        "reason": info.unavailable or None,
    }
