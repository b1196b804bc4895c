"""What the devices that run over a list of others share: the list, and what each of it is configured with."""

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
    """A device over those that its property ``MULTI_DEVICE_PRIORITIES`` lists."""

    properties = (
        # It has no kernels, memory or ids of its own; the devices of its list have workers.
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
    """Properties that are for this device alone, even if others declare them too."""

    def available(self, config: Mapping[str, Any]) -> Iterator[tuple[str, Plugin, dict[str, Any]]]:
        """The devices of the list that can be used here, each with the configuration for it. One warning for each that
        cannot, or `DeviceUnavailable` if ``STRICT`` is set or none is left."""
        settings = self.full_config(self.own(config))
        listed = settings["MULTI_DEVICE_PRIORITIES"]
        if not listed:
            raise PropertyError(f"{self.name} needs a device list, for example '{self.name}:TEMPLATE,CPU'")
        devices = parse_device_list(listed, f"{self.name}:{listed}")
        self._check_list(devices, config)
        found = False
        for device in devices:
            try:
                plugin, device_config = self.device_of(device, config)
            except DeviceUnavailable as error:
                if settings["STRICT"]:
                    raise
                warn(f"{device} is skipped: {error}")
                continue
            found = True
            yield device, plugin, device_config
        if not found:
            raise DeviceUnavailable(f"no device of {self.name}:{listed} can be used here")

    def ask(
        self, model: Model, available: Iterable[tuple[str, Plugin, dict[str, Any]]], config: Mapping[str, Any]
    ) -> list[Support]:
        """Which nodes each of ``available`` takes. One that cannot say takes none, with a warning that names it; with
        ``STRICT`` that is raised."""
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
                tell(settings, self.name, "WARNING", f"goes without {device}: {error}")
                warn(f"{self.name} goes without {device}: {error}")
                answers.append(Support.from_reasons(model.num_nodes, dict.fromkeys(range(model.num_nodes), str(error))))
        return answers

    def device_of(self, device: str, config: Mapping[str, Any]) -> tuple[Plugin, dict[str, Any]]:
        """A device's plugin, and the part of ``config`` that is for it."""
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
        """None: the calls of each device of the list have theirs."""
        return 0

    def own(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The part of ``config`` that is for this device itself."""
        return {key: value for key, value in config.items() if self.declares(key)}

    def check_config(self, config: Mapping[str, Any]) -> None:
        """Checks its own properties; `available` checks those of the listed devices."""
        self.full_config(self.own(config))

    def settings_of(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """Its own, and of each device of the list that is available those, and what its models depend on besides."""
        devices = {
            device: [dict(plugin.version_descriptor(settings)), dict(plugin.settings_of(settings))]
            for device, plugin, settings in self.available(config)
        }
        return {**self.full_config(self.own(config)), "DEVICES": devices}

    def check_parts(self, reader: PayloadReader, config: Mapping[str, Any]) -> None:
        """`check_import` of the parts of an exported model."""
        from .importing import check_part, plugin_for

        for part in reader.parts:
            if isinstance(plugin_for(part, self.plugin_of), DeviceListPlugin):
                raise Corrupt(f"{reader.label}: a part is for a list of devices, which cannot be")
        self._check_list(list(dict.fromkeys(part.device for part in reader.parts)), config)
        for part in reader.parts:
            check_part(part, *self.device_of(part.device, config))

    def import_parts(self, reader: PayloadReader, config: Mapping[str, Any]) -> list[CompiledModel]:
        """The compiled models that an exported one is made of."""
        from .importing import import_part

        return [import_part(part, *self.device_of(part.device, config)) for part in reader.parts]

    def _check_list(self, devices: Sequence[str], config: Mapping[str, Any]) -> None:
        """Raise for a name that nobody registered, and for a key that neither this device nor a listed one declares."""
        plugins: dict[str, Plugin] = {}
        for device in devices:
            name = parse_device(device).name
            try:
                plugins[name] = self.plugin_of(name)
            except UnknownDevice:
                raise
            except DeviceUnavailable:
                continue  # whether that matters is decided when its turn comes
        for device in config.get("DEVICE_PROPERTIES", {}):
            if device not in devices and device not in {parse_device(listed).name for listed in devices}:
                raise PropertyError(
                    f"DEVICE_PROPERTIES names {device!r}, which is not in the list {', '.join(devices)}"
                )
        for key, value in config.items():
            forwarded = key not in self.not_forwarded and any(plugin.declares(key) for plugin in plugins.values())
            if not self.declares(key) and not forwarded:  # or it would be accepted and play no part
                self._table.checked({key: value}, f"{self.name} over {', '.join(devices)}")


def optimal_requests(compiled: CompiledModel) -> int:
    """How many requests keep its device busy."""
    name = "OPTIMAL_NUMBER_OF_INFER_REQUESTS"
    call = functools.partial(compiled.get_property, name)
    found = guarded(compiled.device, f"get_property({name})", compiled.subject, call, compiled.timeout_ms)
    if not isinstance(found, int) or found < 1:
        raise HeteroError(
            f"{compiled.device} gave {found!r} in get_property({name}) {compiled.subject}, expected 1 or more"
        )
    return found
