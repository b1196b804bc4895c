"""`Core.import_model`: from a file to a compiled model, by the plugins that made it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..artifact.payload import PayloadReader
from ..base.device_string import parse_device
from ..base.guard import guarded
from ..base.log import tell
from ..errors import (
    ArtifactError,
    Corrupt,
    DeviceUnavailable,
    HeteroError,
    NotSupported,
    PluginTimeout,
    PropertyError,
    UnknownDevice,
    WrongDevice,
    raise_out_of_memory,
)
from ..plugin.caller import adopt, isolates
from ..plugin.contract import CompiledModel

if TYPE_CHECKING:
    from ..plugin.contract import Plugin

__all__ = ["check_device", "check_part", "import_model", "import_part", "plugin_for"]


def import_model(root: PayloadReader, plugin: Plugin, config: Mapping[str, Any]) -> CompiledModel:
    """The compiled model of a file, all devices and versions in it checked before any payload is read."""
    check_part(root, plugin, config)
    return import_part(root, plugin, config)


def check_device(reader: PayloadReader, device: str) -> None:
    """Raise `WrongDevice` unless the file is for ``device``: the same name, any id, the same list if one is given."""
    asked, found = parse_device(device), parse_device(reader.device)
    if asked.name != found.name or (asked.devices is not None and asked.devices != found.devices):
        raise WrongDevice(
            f"{reader.label}: was compiled for {reader.device}, and is to be imported for {device}: "
            f"import it for {reader.device!r}, or compile the model for {device}"
        )


def plugin_for(reader: PayloadReader, plugin_of: Callable[[str], Plugin]) -> Plugin:
    """The plugin of a part. `DeviceUnavailable` says what to install."""
    name = parse_device(reader.device).name
    try:
        return plugin_of(name)
    except UnknownDevice as error:
        made_by = reader.plugin
        remedy = (
            f"install {made_by.distribution} (pip install {made_by.distribution.split(',')[0]})"
            if made_by.distribution
            else f"register it (Core.register_plugin); it was made by {made_by.module}"
        )
        raise DeviceUnavailable(
            f"{reader.label}: holds a model compiled for {reader.device}, and there is no such device here: {remedy}"
        ) from error
    except DeviceUnavailable as error:
        raise DeviceUnavailable(
            f"{reader.label}: holds a model compiled for {reader.device}, which cannot be used here: {error}"
        ) from error


def check_part(reader: PayloadReader, plugin: Plugin, config: Mapping[str, Any]) -> None:
    """Check a part's device and version, and those of its own parts. Nothing of its files is read.

    Raises `WrongDevice`, `WrongVersion` and `DeviceUnavailable`.
    """
    if parse_device(reader.device).name not in (plugin.name, *plugin.registered_names):
        raise WrongDevice(f"{reader.label}: was compiled for {reader.device}, expected {plugin.name}")
    call = functools.partial(plugin.check_import, reader, config)
    guarded(reader.device, "check_import", f"of {reader.name!r}", call, plugin.timeout_ms(config))


def import_part(reader: PayloadReader, plugin: Plugin, config: Mapping[str, Any]) -> CompiledModel:
    """A part's compiled model, by its plugin. ``config``: the plugin's own properties.

    What a plugin cannot make of files whose digests are right is `Corrupt`: they were not written by that plugin.
    """
    if isolates(plugin, config):
        raise NotSupported(f"{reader.label}: what was exported is imported into this process; ISOLATION must be NONE")
    call = functools.partial(plugin.import_payload, reader, config)
    subject = f"of {reader.name!r}"
    try:
        plugin.check_config(config)
        timeout_ms = plugin.timeout_ms(config)
        compiled = call() if timeout_ms == 0 else guarded(reader.device, "import_payload", subject, call, timeout_ms)
        if not isinstance(compiled, CompiledModel):
            raise HeteroError(f"import_payload gave {type(compiled).__name__}, expected a CompiledModel")
        compiled.adopt_ports(reader.inputs, reader.outputs)
        adopt(plugin, compiled, config, subject, reader.name, reader.device)
        tell(compiled.settings, reader.device, "INFO", f"imported: {compiled!r} of {reader.name!r}")
        return compiled
    except (ArtifactError, DeviceUnavailable, NotSupported, PluginTimeout, PropertyError):
        raise
    except Exception as error:
        raise_out_of_memory(error)
        detail = str(error) if isinstance(error, HeteroError) else f"{type(error).__name__}: {error}"
        raise Corrupt(f"{reader.label}: {reader.device} cannot import its part: {detail}") from error
