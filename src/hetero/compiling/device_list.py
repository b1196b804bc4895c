"""The base of devices that run over a list of other devices: the list, and the configuration of each device in it."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ..assign.costs.measured import Costs
from ..base.device_string import parse_device, parse_device_list
from ..base.guard import guarded
from ..base.properties import Property, without
from ..base.warn import warn
from ..errors import (
    Corrupt,
    DeviceUnavailable,
    HeteroError,
    PropertyError,
    UnknownDevice,
)
from ..plugin.caller import ConfiguredDevice, configure
from ..plugin.contract import CompiledModel, Plugin

if TYPE_CHECKING:
    from ..artifact.payload import PayloadReader

__all__ = ["COSTS", "DeviceListPlugin", "optimal_requests", "shared_property"]

COSTS = Property(
    "COSTS",
    (str, os.PathLike, Costs),
    "",
    doc="measured costs for predictions: a `Costs`, or the path of a file",
)


class DeviceListPlugin(Plugin):
    """A device that runs over the devices listed in its property ``MULTI_DEVICE_PRIORITIES``."""

    properties = (
        # This device has no kernels, memory or ids of its own. Its devices have the workers.
        *without(
            Plugin.properties,
            *("DEVICE_TYPE", "OPTIMIZATION_CAPABILITIES", "DEVICE_ID"),
            *("ISOLATION", "WORKER_TIMEOUT_MS", "WORKER_RETRIES"),
        ),
        "PERF_COUNT",
        "MULTI_DEVICE_PRIORITIES",
        "DEVICE_PROPERTIES",
        "STRICT",
        "EXCLUSIVE_ASYNC_REQUESTS",
        "MODEL_PRIORITY",
    )

    not_forwarded: ClassVar[frozenset[str]] = frozenset(
        {"MULTI_DEVICE_PRIORITIES", "DEVICE_PROPERTIES", "DEVICE_ID", "OUTPUTS_ON_DEVICE"}
    )
    """Properties of this device only, even if its devices declare them too."""

    can_be_listed: ClassVar[bool] = False
    """Whether the device can be in the list of HETERO."""

    plans: ClassVar[bool] = True
    """Whether hetero plans models for this device. If False, the device decides while it compiles."""

    def available(
        self, config: Mapping[str, Any], settings: Mapping[str, Any]
    ) -> tuple[list[ConfiguredDevice], dict[str, str]]:
        """The available devices of the list, each with its configuration, and the other devices with the reason.

        ``settings``: its own properties, from `full_config`. Warns about each unavailable device. Raises
        `DeviceUnavailable` if ``STRICT`` is set, or if no device is available, and `PropertyError` for a configuration
        that a device does not accept.
        """
        listed = settings["MULTI_DEVICE_PRIORITIES"]
        if not listed:
            raise PropertyError(f"{self.name} requires a device list, for example '{self.name}:TEMPLATE,CPU'")
        names = parse_device_list(listed, f"{self.name}:{listed}")
        self._check_list(names, config)
        devices: list[ConfiguredDevice] = []
        skipped: dict[str, str] = {}
        for name in names:
            try:
                devices.append(self.device_of(name, config))
            except DeviceUnavailable as error:
                if settings["STRICT"]:
                    raise
                warn(f"skipping {name}: {error}")
                skipped[name] = str(error)
        if not devices:
            raise DeviceUnavailable(f"no device of {self.name}:{listed} is available")
        return devices, skipped

    def device_of(self, name: str, config: Mapping[str, Any]) -> ConfiguredDevice:
        """A device of the list with its part of ``config``. Raises `DeviceUnavailable`, and `PropertyError` for a
        configuration that it does not accept."""
        parsed = parse_device(name)
        plugin = self.plugin_of(parsed.name)
        with self._property_lock:
            merged = {**self._table.assigned, **config}
        per_device = merged.get("DEVICE_PROPERTIES", {})
        forwarded = {
            key: value for key, value in merged.items() if key not in self.not_forwarded and plugin.declares(key)
        }
        forwarded.update(per_device.get(parsed.name, {}))
        if name != parsed.name:
            forwarded.update(per_device.get(name, {}))
        if parsed.id:
            plugin.check_device_id(parsed.id)
            forwarded["DEVICE_ID"] = parsed.id
        return configure(plugin, forwarded, name)

    def timeout_ms(self, config: Mapping[str, Any]) -> int:
        """0: no timeout. The devices of the list have their own timeouts."""
        return 0

    def own(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The part of ``config`` for this device itself."""
        return {key: value for key, value in config.items() if self.declares(key)}

    def check_config(self, config: Mapping[str, Any]) -> None:
        """Check its own properties; `device_of` checks those of the listed devices."""
        self.full_config(self.own(config))

    def settings_of(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """The settings of this device, and the settings and version descriptor of each available device of the list."""
        settings = self.full_config(self.own(config))
        devices = {
            device.name: [
                dict(device.plugin.version_descriptor(device.config)),
                dict(device.plugin.settings_of(device.config)),
            ]
            for device in self.available(config, settings)[0]
        }
        return {**settings, "DEVICES": devices}

    def check_parts(self, reader: PayloadReader, config: Mapping[str, Any]) -> None:
        """Check the parts of an exported model, as `check_import` does."""
        from .importing import check_part, plugin_for

        for part in reader.parts:
            plugin = plugin_for(part, self.plugin_of)
            if isinstance(plugin, DeviceListPlugin) and not plugin.can_be_listed:
                raise Corrupt(f"{reader.label}: a part was compiled for a list of devices, expected a single device")
        # The list may have devices without a part, which ``DEVICE_PROPERTIES`` may name.
        listed = self.full_config(self.own(config))["MULTI_DEVICE_PRIORITIES"]
        devices = [*(parse_device_list(listed) if listed else ()), *(part.device for part in reader.parts)]
        self._check_list(list(dict.fromkeys(devices)), config)
        for part in reader.parts:
            check_part(part, self.device_of(part.device, config))

    def import_parts(self, reader: PayloadReader, config: Mapping[str, Any]) -> list[CompiledModel]:
        """The compiled models of the parts of an exported model."""
        from .importing import import_part

        return [import_part(part, self.device_of(part.device, config)) for part in reader.parts]

    def _check_list(self, devices: Sequence[str], config: Mapping[str, Any]) -> None:
        """Raise for an unknown device, and for a key that neither this device nor a listed device declares."""
        plugins: dict[str, Plugin] = {}
        for device in devices:
            name = parse_device(device).name
            try:
                plugins[name] = self.plugin_of(name)
            except UnknownDevice:
                raise
            except DeviceUnavailable:
                continue  # `available` decides whether this is an error
        for device in config.get("DEVICE_PROPERTIES", {}):
            if device not in devices and device not in {parse_device(listed).name for listed in devices}:
                raise PropertyError(
                    f"DEVICE_PROPERTIES names {device!r}, which is not in the list {', '.join(devices)}"
                )
        for key, value in config.items():
            forwarded = key not in self.not_forwarded and any(plugin.declares(key) for plugin in plugins.values())
            if not self.declares(key) and not forwarded:  # otherwise it would be accepted without an effect
                self._table.checked({key: value}, f"{self.name} over {', '.join(devices)}")


def shared_property(submodels: Iterable[CompiledModel], name: str, error: PropertyError) -> Any:
    """The value of a property that was passed on to the devices, if all that have it agree. Raises ``error`` if no
    device has it, and `PropertyError` with the values if they differ."""
    values: dict[str, Any] = {}
    for compiled in submodels:
        with contextlib.suppress(PropertyError):
            values[compiled.device] = compiled.get_property(name)
    if not values:
        raise error
    first, *others = values.values()
    if any(other != first for other in others):
        listed = ", ".join(f"{value!r} on {device}" for device, value in values.items())
        raise PropertyError(f"{name} differs between devices: {listed}") from error
    return first


def optimal_requests(compiled: CompiledModel) -> int:
    """The number of requests that keep the device of ``compiled`` busy."""
    name = "OPTIMAL_NUMBER_OF_INFER_REQUESTS"
    call = functools.partial(compiled.get_property, name)
    found = guarded(compiled.device, f"get_property({name})", compiled.subject, call, compiled.timeout_ms)
    if not isinstance(found, int) or found < 1:
        raise HeteroError(
            f"{compiled.device} returned {found!r} from get_property({name}) {compiled.subject}, expected 1 or more"
        )
    return found
