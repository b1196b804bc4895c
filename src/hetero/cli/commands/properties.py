"""``hetero properties``."""

from __future__ import annotations

from typing import Any

import click

from ..completing import complete_device
from ..options import json_option, new_command
from ..planning import Planning, profile_option

__all__ = ["command"]

_ALL = "SUPPORTED_PROPERTIES"
"""The property whose value, the names in the tables, would make all lines of a table hundreds of characters wide."""


@new_command("properties CPU")
@click.argument("device", shell_complete=complete_device)
@profile_option
@json_option
def command(device: str, profiles: tuple[str, ...], as_json: bool) -> None:
    """Show the properties of a device, with values and descriptions.

    DEVICE is a name such as CPU, ORT.CUDA or HETERO. The value of a writable property is its default. Set it
    with --property KEY=VALUE, or in Python with the configuration of compile_model or Core.set_property.
    """
    from ..session import core_with
    from ..text import print_json, print_line, print_table

    core = core_with(Planning(profiles=profiles))
    found = core.properties(device)
    if as_json:
        entries = [
            {
                "name": entry.name,
                "type": _type_of(entry),
                "writable": entry.writable,
                "value": _plain(value),
                "choices": None if entry.choices is None else list(entry.choices),
                "description": entry.doc,
            }
            for entry, value in found
        ]
        print_json({"device": device, "properties": entries})
        return
    for title, writable in (("writable", True), ("read-only", False)):
        rows = [
            (
                entry.name,
                f"{len(value)} names" if entry.name == _ALL else _text(value),
                ", ".join(str(choice) or "''" for choice in entry.choices or ()),
                entry.doc,
            )
            for entry, value in found
            if entry.writable == writable
        ]
        columns = ("property", "default" if writable else "value", "choices", "description")
        print_table(f"Properties of {device}, {title}", columns, rows, max_rows=None)
    print_line("--property KEY=VALUE sets a property; --property DEVICE:KEY=VALUE sets it for one device in a list")


def _type_of(entry: Any) -> str:
    kinds = entry.type if isinstance(entry.type, tuple) else (entry.type,)
    return " or ".join(kind.__name__ for kind in kinds)


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return "''" if value == "" else str(value)


def _plain(value: Any) -> Any:
    """A value for JSON."""
    if isinstance(value, (tuple, list)):
        return list(map(_plain, value))
    return value if isinstance(value, (bool, int, float, str, dict)) or value is None else str(value)
