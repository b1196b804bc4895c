"""`Core.import_model`: turns a file into a compiled model, with the plugins that exported it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

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
from ..plugin.caller import ConfiguredDevice, adopt, isolates
from ..plugin.contract import CompiledModel

if TYPE_CHECKING:
    from ..plugin.contract import Plugin

__all__ = ["check_device", "check_part", "import_model", "import_part", "plugin_for"]


def import_model(root: PayloadReader, device: ConfiguredDevice) -> CompiledModel:
    """The compiled model of a file. Checks all devices and versions before it reads any payload."""
    check_part(root, device)
    return import_part(root, device)


def check_device(reader: PayloadReader, device: str) -> None:
    """Raise `WrongDevice` unless the file is for ``device``: the same name, any id, and the same list if given."""
    asked, found = parse_device(device), parse_device(reader.device)
    if asked.name != found.name or (asked.devices is not None and asked.devices != found.devices):
        raise WrongDevice(
            f"{reader.label}: was compiled for {reader.device}, so it cannot be imported for {device}: "
            f"import it for {reader.device!r}, or compile the model for {device}"
        )


def plugin_for(reader: PayloadReader, plugin_of: Callable[[str], Plugin]) -> Plugin:
    """The plugin of a part. Raises `DeviceUnavailable`, which names the package to install."""
    name = parse_device(reader.device).name
    try:
        return plugin_of(name)
    except UnknownDevice as error:
        made_by = reader.plugin
        remedy = (
            f"install {made_by.distribution} (pip install {made_by.distribution.split(',')[0]})"
            if made_by.distribution
            else f"register it (Core.register_plugin); {made_by.module} exported the model"
        )
        raise DeviceUnavailable(
            f"{reader.label}: contains a model compiled for {reader.device}, which is not installed: {remedy}"
        ) from error
    except DeviceUnavailable as error:
        raise DeviceUnavailable(
            f"{reader.label}: contains a model compiled for {reader.device}, which is not available: {error}"
        ) from error


def check_part(reader: PayloadReader, device: ConfiguredDevice) -> None:
    """Check the device and version of a part and of its own parts. Does not read the part's files.

    Raises `WrongDevice`, `WrongVersion` and `DeviceUnavailable`.
    """
    plugin = device.plugin
    if parse_device(reader.device).name not in (plugin.name, *plugin.registered_names):
        raise WrongDevice(f"{reader.label}: was compiled for {reader.device}, expected {plugin.name}")
    call = functools.partial(plugin.check_import, reader, device.config)
    guarded(reader.device, "check_import", f"of {reader.name!r}", call, device.timeout_ms)


def import_part(reader: PayloadReader, device: ConfiguredDevice) -> CompiledModel:
    """A part's compiled model, imported by its plugin.

    Raises `Corrupt` if the plugin cannot import files whose digests are correct: another plugin wrote them.
    """
    if isolates(device):
        raise NotSupported(f"{reader.label}: ISOLATION=PROCESS does not support import; set ISOLATION=NONE")
    call = functools.partial(device.plugin.import_payload, reader, device.config)
    subject = f"of {reader.name!r}"
    try:
        timeout_ms = device.timeout_ms
        compiled = call() if timeout_ms == 0 else guarded(reader.device, "import_payload", subject, call, timeout_ms)
        if not isinstance(compiled, CompiledModel):
            raise HeteroError(f"import_payload returned {type(compiled).__name__}, expected a CompiledModel")
        compiled.adopt_ports(reader.inputs, reader.outputs)
        adopt(device, compiled, subject, reader.name, reader.device)
        tell(compiled.settings, reader.device, "INFO", f"imported: {compiled!r} of {reader.name!r}")
        return compiled
    except (ArtifactError, DeviceUnavailable, NotSupported, PluginTimeout, PropertyError):
        raise
    except Exception as error:
        raise_out_of_memory(error)
        detail = str(error) if isinstance(error, HeteroError) else f"{type(error).__name__}: {error}"
        raise Corrupt(f"{reader.label}: {reader.device} cannot import its part: {detail}") from error
