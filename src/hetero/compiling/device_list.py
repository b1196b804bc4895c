"""The base of devices that run over a list of other devices: the list, and the configuration of each device in it."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ..base.device_string import parse_device, parse_device_list
from ..base.guard import guarded
from ..base.log import tell
from ..base.properties import without
from ..base.warn import warn
from ..errors import (
    Corrupt,
    DeviceUnavailable,
    HeteroError,
    ModelError,
    PropertyError,
    UnknownDevice,
    raise_out_of_memory,
)
from ..plugin.caller import query
from ..plugin.contract import CompiledModel, Plugin, Support

if TYPE_CHECKING:
    from ..artifact.payload import PayloadReader
    from ..model.model import Model

__all__ = ["DeviceListPlugin", "optimal_requests"]


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

    not_forwarded: ClassVar[frozenset[str]] = frozenset({"MULTI_DEVICE_PRIORITIES", "DEVICE_PROPERTIES", "DEVICE_ID"})
    """Properties of this device only, even if its devices declare them too."""

    def available(self, config: Mapping[str, Any]) -> Iterator[tuple[str, Plugin, dict[str, Any]]]:
        """The available devices of the list, each with its configuration. Warns about each unavailable device. Raises
        `DeviceUnavailable` if ``STRICT`` is set, or if no device is available."""
        settings = self.full_config(self.own(config))
        listed = settings["MULTI_DEVICE_PRIORITIES"]
        if not listed:
            raise PropertyError(f"{self.name} requires a device list, for example '{self.name}:TEMPLATE,CPU'")
        devices = parse_device_list(listed, f"{self.name}:{listed}")
        self._check_list(devices, config)
        found = False
        for device in devices:
            try:
                plugin, device_config = self.device_of(device, config)
            except DeviceUnavailable as error:
                if settings["STRICT"]:
                    raise
                warn(f"skipping {device}: {error}")
                continue
            found = True
            yield device, plugin, device_config
        if not found:
            raise DeviceUnavailable(f"no device of {self.name}:{listed} is available")

    def ask(
        self, model: Model, available: Iterable[tuple[str, Plugin, dict[str, Any]]], config: Mapping[str, Any]
    ) -> list[Support]:
        """The nodes that each of the ``available`` devices supports. If a device fails, it counts as supporting no
        nodes, with a warning that names it; with ``STRICT``, the error is raised."""
        settings = self.full_config(self.own(config))
        answers = []
        for device, plugin, device_config in available:
            try:
                answers.append(query(plugin, model, device_config, device))
            except (PropertyError, ModelError):
                raise
            except HeteroError as error:
                raise_out_of_memory(error)
                if settings["STRICT"]:
                    raise
                tell(settings, self.name, "WARNING", f"continues without {device}: {error}")
                warn(f"{self.name} continues without {device}: {error}")
                answers.append(Support.from_reasons(model.num_nodes, dict.fromkeys(range(model.num_nodes), str(error))))
        return answers

    def device_of(self, device: str, config: Mapping[str, Any]) -> tuple[Plugin, dict[str, Any]]:
        """A device's plugin, and its part of ``config``."""
        parsed = parse_device(device)
        plugin = self.plugin_of(parsed.name)
        with self._property_lock:
            merged = {**self._table.assigned, **config}
        per_device = merged.get("DEVICE_PROPERTIES", {})
        forwarded = {
            key: value for key, value in merged.items() if key not in self.not_forwarded and plugin.declares(key)
        }
        forwarded.update(per_device.get(parsed.name, {}))
        if device != parsed.name:
            forwarded.update(per_device.get(device, {}))
        if parsed.id:
            plugin.check_device_id(parsed.id)
            forwarded["DEVICE_ID"] = parsed.id
        return plugin, forwarded

    def timeout_ms(self, config: Mapping[str, Any]) -> int:
        """0: no timeout. The devices of the list have their own timeouts."""
        return 0

    def own(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The part of ``config`` for this device itself."""
        return {key: value for key, value in config.items() if self.declares(key)}

    def check_config(self, config: Mapping[str, Any]) -> None:
        """Checks its own properties; `available` checks those of the listed devices."""
        self.full_config(self.own(config))

    def settings_of(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """The settings of this device, and the settings and version descriptor of each available device of the list."""
        devices = {
            device: [dict(plugin.version_descriptor(settings)), dict(plugin.settings_of(settings))]
            for device, plugin, settings in self.available(config)
        }
        return {**self.full_config(self.own(config)), "DEVICES": devices}

    def check_parts(self, reader: PayloadReader, config: Mapping[str, Any]) -> None:
        """Check the parts of an exported model, as `check_import` does."""
        from .importing import check_part, plugin_for

        for part in reader.parts:
            if isinstance(plugin_for(part, self.plugin_of), DeviceListPlugin):
                raise Corrupt(f"{reader.label}: a part was compiled for a list of devices, expected a single device")
        self._check_list(list(dict.fromkeys(part.device for part in reader.parts)), config)
        for part in reader.parts:
            check_part(part, *self.device_of(part.device, config))

    def import_parts(self, reader: PayloadReader, config: Mapping[str, Any]) -> list[CompiledModel]:
        """The compiled models of the parts of an exported model."""
        from .importing import import_part

        return [import_part(part, *self.device_of(part.device, config)) for part in reader.parts]

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
