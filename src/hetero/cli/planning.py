"""The options that determine the devices of a model, and a record of their values."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from .completing import complete_device, complete_pin

__all__ = ["Planning", "link_option", "planning_options", "profile_option"]

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclasses.dataclass(frozen=True, slots=True)
class Planning:
    """The values of `planning_options`, as text. ``devices``: at most one, except for commands with ``several``."""

    devices: tuple[str, ...] = ()
    plan_path: str | None = None
    pins: tuple[str, ...] = ()
    properties: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    follow_links: bool = False
    extensions: tuple[str, ...] = ()
    together: tuple[str, ...] = ()
    least: tuple[str, ...] = ()

    @property
    def device(self) -> str | None:
        """The first device, or None."""
        return self.devices[0] if self.devices else None

    @property
    def label(self) -> str | None:
        """The path of the plan if there is one, otherwise the device."""
        return self.plan_path or self.device

    def on(self, device: str, **changes: Any) -> Planning:
        """A copy with only this device, and without the plan."""
        return dataclasses.replace(self, devices=(device,), plan_path=None, **changes)

    def by_plan(self) -> Planning:
        """A copy with only the plan. Pins are removed, because the plan has its own."""
        return dataclasses.replace(self, devices=(), pins=())

    def require(self) -> None:
        """Raises `click.UsageError` unless there is either a device or a plan."""
        if self.device is None and self.plan_path is None:
            raise click.UsageError("give -d DEVICE or --plan PLAN.json")
        if self.device is not None and self.plan_path is not None:
            raise click.UsageError(f"a plan contains its devices: remove -d {self.device}, or --plan {self.plan_path}")

    def config(self) -> dict[str, Any]:
        """``KEY=VALUE`` and ``DEVICE:KEY=VALUE`` as a configuration, values by the types of the properties; mappings as
        JSON objects."""
        from ..base.properties import PROPERTIES, truth_value

        config: dict[str, Any] = {}
        for entry in self.properties:
            key, equals, text = entry.partition("=")
            device, colon, name = key.rpartition(":")
            if not equals or not name:
                raise click.UsageError(f"--property {entry}: expected KEY=VALUE or DEVICE:KEY=VALUE")
            known = PROPERTIES.get(name)
            value: Any = text
            if known is not None and known.type is int:
                try:
                    value = int(text)
                except ValueError as error:
                    raise click.UsageError(f"--property {entry}: {name} takes a whole number") from error
            elif text.startswith("{") and (known is None or known.type is Mapping):
                try:
                    value = json.loads(text)
                except ValueError as error:
                    raise click.UsageError(f"--property {entry}: the value is not valid JSON: {error}") from error
            elif known is not None and isinstance(known.type, tuple) and bool in known.type:
                value = truth_value(text, text)
            if colon:
                config.setdefault("DEVICE_PROPERTIES", {}).setdefault(device, {})[name] = value
            else:
                config[name] = value
        if self.limits:
            config["MAX_MEMORY"] = _limits(self.limits)
        return config

    def constraints(self) -> dict[str, Any]:
        """The properties of ``--together`` and ``--min-subgraph``, which only lists of devices have."""
        together = {"STAY_TOGETHER": self.together} if self.together else {}
        return {**together, "MIN_SUBGRAPH": ",".join(self.least)} if self.least else together

    def pinned(self) -> dict[str, str] | None:
        """The ``NODES=DEVICE`` entries, or None. The device follows the last equals sign."""
        pins = {}
        for entry in self.pins:
            nodes, equals, device = entry.rpartition("=")
            if not equals or not nodes or not device:
                raise click.UsageError(f"--pin {entry}: expected NODES=DEVICE")
            pins[nodes] = device
        return pins or None


def _limits(entries: Sequence[str]) -> dict[str, str]:
    limits: dict[str, str] = {}
    for entry in entries:
        device, equals, size = entry.partition("=")
        if not equals or not device or not size:
            raise click.UsageError(f"--max-memory {entry}: expected DEVICE=SIZE, such as CPU.0=1GiB")
        if device in limits:
            raise click.UsageError(f"--max-memory {entry}: {device} has a limit already, {limits[device]}")
        limits[device] = size
    return limits


_FIELDS = tuple(field.name for field in dataclasses.fields(Planning) if field.name != "devices")

link_option = click.option("--follow-links", is_flag=True, help="Allow symbolic links in the paths of external data.")
profile_option = click.option(
    "--profile",
    "profiles",
    metavar="PATH.toml",
    multiple=True,
    type=click.Path(),
    help="Profile of a device to simulate. Adds the device under its name.",
)
_extension_option = click.option(
    "--extension",
    "extensions",
    metavar="FILE.py:NAME",
    multiple=True,
    help="Custom operators: a hetero.CustomOp or a list of them in a Python file or module. Its code is executed.",
)
_property_option = click.option(
    "--property",
    "properties",
    metavar="KEY=VALUE",
    multiple=True,
    help="Property for compiling; DEVICE:KEY=VALUE for one device in a list.",
)
_limit_option = click.option(
    "--max-memory",
    "limits",
    metavar="DEVICE=SIZE",
    multiple=True,
    help="Memory limit for weights and activations, such as CPU.0=1GiB. Other nodes go to the next device.",
)
_pin_option = click.option(
    "--pin",
    "pins",
    metavar="NODES=DEVICE",
    multiple=True,
    shell_complete=complete_pin,
    help="Run nodes, by key, regular expression for whole keys, operator (op:Conv) or weight (weight:experts.*), on "
    "this device in the list.",
)
_together_option = click.option(
    "--together",
    "together",
    metavar="NODES",
    multiple=True,
    help="Nodes, written as for --pin, that go to one device.",
)
_least_option = click.option(
    "--min-subgraph",
    "least",
    metavar="DEVICE=SIZE",
    multiple=True,
    help="Least size of a subgraph on a device: nodes, as in FPGA=3, or floating-point operations, as in "
    "FPGA=1e6flops. Nodes of smaller ones go to the next device.",
)
_plan_option = click.option(
    "--plan", "plan_path", metavar="PLAN.json", type=click.Path(), help="Saved plan, instead of -d."
)


def planning_options(
    help_text: str, *, default: str | None = None, several: bool = False, plans: bool = True
) -> Callable[[_F], _F]:
    """``planning``, a `Planning`: ``-d`` (``several`` times, or once), properties and profiles; ``--plan``,
    ``--pin`` and ``--max-memory`` unless ``plans`` is False."""
    device_option = click.option(
        "-d",
        "--device",
        "devices",
        metavar="DEVICE",
        multiple=several,
        shell_complete=complete_device,
        help=help_text
        if several
        else f"{help_text} For example CPU, ORT.CUDA or FPGA,CPU, which is short for HETERO:FPGA,CPU.",
        default=default,
        show_default=default is not None,
    )
    plan_options = (_plan_option, _pin_option, _together_option, _least_option, _limit_option) if plans else ()
    options = (device_option, *plan_options, _property_option, profile_option, _extension_option, link_option)

    def decorate(function: _F) -> _F:
        @functools.wraps(function)
        def chosen(*, devices: Sequence[str] | str | None, **options: Any) -> Any:
            listed = (devices,) if isinstance(devices, str) else tuple(devices or ())
            if not all(name.strip() for name in listed):
                raise click.UsageError("-d: expected a device, found an empty name")
            from ..base.device_string import with_list_device

            listed = tuple(map(with_list_device, listed))
            fields = {name: options.pop(name) for name in _FIELDS if name in options}
            return function(planning=Planning(listed, **fields), **options)

        decorated: Any = chosen
        for option in reversed(options):
            decorated = option(decorated)
        return decorated  # type: ignore[no-any-return]

    return decorate
