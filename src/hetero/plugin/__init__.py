"""What a device author implements and gets: `contract` and `compiled_model` first, the rest on need.

The other modules of this room are what every device shares: requests and their tensors, threads, counters, and the
checks around calls into a device.
"""

from __future__ import annotations

from ..base.properties import Property
from .cancellation import Cancellation
from .compiled_model import CompiledModel
from .contract import Plugin, Port, ProfileRow, RemoteContext, RemoteTensor, Support
from .request import InferRequest, PlacingRunner, RepeatingRunner, Runner
from .speed import CostSource, DeviceSpeed, default_speed

__all__ = [
    "Cancellation",
    "CompiledModel",
    "CostSource",
    "DeviceSpeed",
    "InferRequest",
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
