"""``-nstreams`` as OpenVINO's benchmark_app has it: a number, or numbers of the devices of a list."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import click

__all__ = ["StreamCounts", "stream_counts"]


@dataclasses.dataclass(frozen=True, slots=True)
class StreamCounts:
    """``every``: of all devices, None if that is not said. ``by_device``: of those that are named."""

    every: int | None
    by_device: Mapping[str, int]

    def put_into(self, config: dict[str, Any]) -> None:
        """Sets ``NUM_STREAMS`` in a configuration."""
        if self.every is not None:
            config["NUM_STREAMS"] = self.every
        for device, count in self.by_device.items():
            config.setdefault("DEVICE_PROPERTIES", {}).setdefault(device, {})["NUM_STREAMS"] = count


def stream_counts(ctx: click.Context, param: click.Parameter, value: str | None) -> StreamCounts | None:
    """What the option's text says; the callback of a click option."""
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
