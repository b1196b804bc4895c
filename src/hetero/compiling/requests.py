"""Resolves a device string and its configuration to a `Request`, once for all stages."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..assign.memory.limits import limits_of, parse_limits
from ..assign.pins import needs_control_flow
from ..assign.request import AssignmentRules, Request
from ..base.device_string import CONTROL_FLOW, DeviceString
from ..errors import PropertyError
from ..plugin.caller import configure
from ..plugin.contract import Plugin
from .device_list import DeviceListPlugin

if TYPE_CHECKING:
    from ..model.model import Model

__all__ = ["CuttingPlugin", "resolve_request", "with_control_flow"]

_MAX_MEMORY = "MAX_MEMORY"


class CuttingPlugin(DeviceListPlugin, abc.ABC):
    """A device that cuts models into subgraphs for the devices of its list."""

    @abc.abstractmethod
    def request(self, config: Mapping[str, Any], pins: Mapping[str, str]) -> Request:
        """The request for its list. Raises `PropertyError` for a wrong configuration, and `DeviceUnavailable`."""


def resolve_request(
    device: DeviceString, plugin: Plugin, config: Mapping[str, Any], pins: Mapping[str, str] | None = None
) -> Request:
    """The request for a device or a list. Raises `PropertyError` for a wrong configuration, and `DeviceUnavailable`.

    ``config``: the properties as given, with the list or id of ``device``. ``MAX_MEMORY`` limits single devices too,
    though it is not a property of theirs.
    """
    if isinstance(plugin, CuttingPlugin):
        return plugin.request(config, pins or {})
    name = str(device)
    if pins:
        listed, what = f"{name},TEMPLATE", "is a single device"
        if isinstance(plugin, DeviceListPlugin):
            listed, what = config.get("MULTI_DEVICE_PRIORITIES") or "FPGA,CPU", "chooses devices itself"
        raise PropertyError(f"pins require a device list, and '{name}' {what}: use a list, such as 'HETERO:{listed}'")
    own = {key: value for key, value in config.items() if key != _MAX_MEMORY}
    whole = configure(plugin, own, name)
    given = parse_limits(config.get(_MAX_MEMORY, {}))
    limits = limits_of([name], given, {name: plugin.memory_bytes(name)}, [name], plugin.available_bytes)
    settings = plugin.full_config({key: value for key, value in own.items() if plugin.declares(key)})
    return Request(whole, settings, (whole,), AssignmentRules(limits=limits), {})


def with_control_flow(request: Request, model: Model) -> Request:
    """The request with the device CONTROL_FLOW at the end of its list if pins name nodes in nested graphs of the model.
    Returns the same object otherwise."""
    plugin = request.whole.plugin
    if not isinstance(plugin, CuttingPlugin) or CONTROL_FLOW in request.names:
        return request
    if not needs_control_flow(model, request.pins):
        return request
    listed = f"{request.settings['MULTI_DEVICE_PRIORITIES']},{CONTROL_FLOW}"
    return plugin.request({**request.whole.config, "MULTI_DEVICE_PRIORITIES": listed}, request.pins)
