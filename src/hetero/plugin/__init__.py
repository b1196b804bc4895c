"""The interface that a device author implements: `Plugin`, `CompiledModel` and `Runner`; the page "Write a device
plugin" of the documentation shows a complete device.

`contract`, `compiled_model` and the protocols of `request` are the author's part. The other modules are shared by all
devices: requests and their tensors, threads, counters, and the checks of what plugins return (`caller`, `checked`).
"""

from __future__ import annotations

from ..base import properties as _properties
from ..base.properties import Property
from .cancellation import Cancellation
from .compiled_model import CompiledModel
from .contract import LeastSubgraph, Plugin, Port, ProfileRow, RemoteContext, RemoteTensor, Support
from .request import InferRequest, PlacingRunner, RepeatingRunner, Runner
from .speed import CostSource, DeviceSpeed, default_speed

__all__ = [
    "PROPERTIES",
    "Cancellation",
    "CompiledModel",
    "CostSource",
    "DeviceSpeed",
    "InferRequest",
    "LeastSubgraph",
    "PlacingRunner",
    "Plugin",
    "Port",
    "ProfileRow",
    "Property",
    "RemoteContext",
    "RemoteTensor",
    "RepeatingRunner",
    "Runner",
    "Support",
    "default_speed",
]

PROPERTIES = _properties.PROPERTIES
"""Name -> property: every property that hetero itself knows. Plugins may declare more."""
