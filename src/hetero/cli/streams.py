"""``-nstreams`` as in OpenVINO's benchmark_app: a number, or a number per device in a list."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import click

__all__ = ["StreamCounts", "stream_counts"]


@dataclasses.dataclass(frozen=True, slots=True)
class StreamCounts:
    """``every``: for all devices, or None. ``by_device``: for the named devices."""

    every: int | None
    by_device: Mapping[str, int]

    def put_into(self, config: dict[str, Any]) -> None:
        """Sets ``NUM_STREAMS`` in a configuration."""
        if self.every is not None:
            config["NUM_STREAMS"] = self.every
        for device, count in self.by_device.items():
            config.setdefault("DEVICE_PROPERTIES", {}).setdefault(device, {})["NUM_STREAMS"] = count


def stream_counts(ctx: click.Context, param: click.Parameter, value: str | None) -> StreamCounts | None:
    """Parses the option; a callback of click."""
    if value is None:
        return None
    by_device: dict[str, int] = {}
    every = None
    for entry in value.split(","):
        device, colon, text = entry.rpartition(":")
        if not text.isdecimal() or int(text) < 1 or bool(colon) != bool(device) or (not colon and "," in value):
            raise click.BadParameter(
                f"{value!r}: expected a number from 1 on, or DEVICE:NUMBER,DEVICE:NUMBER", ctx=ctx, param=param
            )
        if colon:
            by_device[device] = int(text)
        else:
            every = int(text)
    return StreamCounts(every, by_device)
