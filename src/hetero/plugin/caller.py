"""The caller's side of the contract: calls of plugin methods, with their arguments and return values checked.

`Core`, HETERO and MULTI use these functions instead of the methods that a device author writes. They name the device in
errors, enforce ``PLUGIN_TIMEOUT_MS``, and reject return values of a wrong type or size. `configure` checks a
configuration once; the result goes through all stages.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.guard import guarded
from ..base.log import is_told, tell
from ..errors import HeteroError, shown
from .compiled_model import CompiledModel
from .contract import Plugin, Support

if TYPE_CHECKING:
    from ..model.model import Model

__all__ = [
    "ConfiguredDevice",
    "adopt",
    "check_compiled",
    "configure",
    "find_dtypes",
    "isolates",
    "log_settings",
    "query",
]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ConfiguredDevice:
    """A plugin with a configuration that it accepts, as `configure` returns it.

    ``name``: the requested name, such as ``CPU.1``. ``config``: the properties that were given, without defaults.
    """

    name: str
    plugin: Plugin
    config: Mapping[str, Any]

    @property
    def timeout_ms(self) -> int:
        """``PLUGIN_TIMEOUT_MS`` of a call, in ms; 0: no limit."""
        return self.plugin.timeout_ms(self.config)


def configure(plugin: Plugin, config: Mapping[str, Any], name: str | None = None) -> ConfiguredDevice:
    """Check a configuration. ``name``: the requested name; defaults to the plugin's name.

    Raises `PropertyError` and `DeviceUnavailable` for a wrong ``config``, and `PluginTimeout`.
    """
    device = ConfiguredDevice(name or plugin.name, plugin, config)
    guarded(device.name, "check_config", "", functools.partial(plugin.check_config, config), device.timeout_ms)
    return device


def query(device: ConfiguredDevice, model: Model) -> Support:
    """`Plugin.query_model`, checked. Raises `HeteroError` for a wrong return value, `PluginTimeout`, and the plugin's
    exceptions."""
    name, plugin, config = device.name, device.plugin, device.config
    subject = model.describe_nodes()
    call = functools.partial(plugin.query_model, model, config)
    support = guarded(name, "query_model", subject, call, device.timeout_ms)
    fault = _fault(support, model.num_nodes)
    if fault:
        raise HeteroError(f"{name} returned {fault} from query_model {subject}")
    if is_told(settings := log_settings(plugin, config), "DEBUG"):
        tell(settings, name, "DEBUG", f"supports {support.mask.sum()} of {model.num_nodes} nodes {subject}")
        for node, reason in support.reasons.items():
            tell(settings, name, "TRACE", f"does not support {model.key_of(node)!r}: {reason}")
    return support


def find_dtypes(device: ConfiguredDevice, model: Model, names: Sequence[str]) -> Mapping[str, np.dtype[Any]]:
    """`Plugin.find_dtypes`, checked. Raises `HeteroError` for a wrong return value, `PluginTimeout`, and the plugin's
    exceptions."""
    name, subject = device.name, model.describe_nodes()
    call = functools.partial(device.plugin.find_dtypes, model, names, device.config)
    dtypes = guarded(name, "find_dtypes", subject, call, device.timeout_ms)
    if not isinstance(dtypes, Mapping) or not dtypes.keys() <= set(names):
        raise HeteroError(f"{name} returned {shown(dtypes)} from find_dtypes {subject}, expected dtypes by name")
    return dtypes


def check_compiled(compiled: object, model: Model, device: str) -> CompiledModel:
    """Return ``compiled``, a return value of `Plugin.compile_model`. Raises `HeteroError` unless it is a compiled model
    with the ports of ``model``."""
    subject = model.describe_nodes()
    if not isinstance(compiled, CompiledModel):
        raise HeteroError(
            f"{device} returned {type(compiled).__name__} from compile_model {subject}, expected a CompiledModel"
        )
    for kind, ports, model_ports in (
        ("inputs", compiled.inputs, model.inputs),
        ("outputs", compiled.outputs, model.outputs),
    ):
        names, expected = [port.name for port in ports], [port.name for port in model_ports]
        if names != expected:
            raise HeteroError(
                f"{device} returned a model with the {kind} {names} from compile_model {subject}, expected {expected}"
            )
    return compiled


def adopt(
    device: ConfiguredDevice, compiled: CompiledModel, subject: str, model_name: str, name: str | None = None
) -> None:
    """Complete a compiled or imported model: set its threads and the properties that its author left out. If the author
    hard-coded the name of the device, replace it with the requested name.

    ``subject``: what it was compiled from, for errors. ``model_name``: the default of ``NETWORK_NAME``. ``name``: the
    requested name, if it is not the name of ``device``."""
    plugin, config = device.plugin, device.config
    compiled.subject = subject
    if not compiled.settings["NETWORK_NAME"]:
        compiled.add_settings({"NETWORK_NAME": model_name})
    built_in, rest = _split_name(compiled.device)
    called, _ = _split_name(name or device.name)
    if built_in != called and built_in in (plugin.name, getattr(type(plugin), "name", plugin.name)):
        compiled.rename(called + rest)
    missing = [name for name in plugin.get_property("SUPPORTED_PROPERTIES") if name not in compiled.settings]
    if any(map(plugin.declares, missing)):
        own = plugin.full_config({key: value for key, value in config.items() if plugin.declares(key)})
        compiled.add_settings({key: own[key] for key in own if key not in compiled.settings})
    compiled.lease_executors(plugin.executors)


def isolates(device: ConfiguredDevice) -> bool:
    """Whether models compiled for this device run in worker processes."""
    return bool(device.plugin.setting("ISOLATION", device.config) == "PROCESS")


def log_settings(plugin: Plugin, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """``LOG_LEVEL`` of a call, for `hetero.base.log`; empty if the device does not declare it."""
    level = plugin.setting("LOG_LEVEL", config)
    return {} if level is None else {"LOG_LEVEL": level}


def _split_name(device: str) -> tuple[str, str]:
    """``CPU.1`` as ``CPU`` and ``.1``, ``HETERO:A,B`` as ``HETERO`` and ``:A,B``."""
    end = next((position for position, character in enumerate(device) if character in ".:"), len(device))
    return device[:end], device[end:]


def _fault(support: object, num_nodes: int) -> str | None:
    """The error in a return value of `Plugin.query_model`; None if it is valid."""
    if not isinstance(support, Support):
        return f"{type(support).__name__}, expected a Support,"
    mask = support.mask
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (num_nodes,):
        mask_type = f"{mask.dtype}{list(mask.shape)}" if isinstance(mask, np.ndarray) else type(mask).__name__
        return f"a Support whose mask is {mask_type}, expected bool[{num_nodes}],"
    if not isinstance(support.reasons, Mapping) or any(node not in support.reasons for node in np.flatnonzero(~mask)):
        return "a Support without a reason for each unsupported node"
    for unit in support.units:
        if not isinstance(unit, np.ndarray) or unit.dtype.kind not in "iu" or unit.ndim != 1 or not len(unit):
            return f"a Support with the unit {shown(unit)}, expected an array of node numbers,"
        if unit.min() < 0 or unit.max() >= num_nodes or not mask[unit].all():
            return f"a Support with the unit {shown(unit.tolist())}, expected numbers of supported nodes,"
    return None
