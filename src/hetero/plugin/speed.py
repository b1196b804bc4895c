"""How fast devices are: what turns operations and bytes into seconds."""

from __future__ import annotations

import dataclasses
import enum

import numpy as np
from numpy.typing import NDArray

from ..errors import PropertyError

__all__ = ["CostSource", "DeviceSpeed", "default_speed"]


class CostSource(enum.IntEnum):
    """Where a figure comes from."""

    NONE = 0
    """No figure: the device does not take the node."""
    MEASURED = 1
    """Counters, or a measured link."""
    PROFILE = 2
    """A device's stated speed (``[cost]`` of a profile, or one that was measured for the device) and known shapes."""
    ESTIMATE = 3
    """The speed that devices of this name are taken to have, and known shapes."""
    ASSUMED = 4
    """A shape, or what the node does, is not known; see `NodeWork.assumed`."""


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceSpeed:
    """``flops_per_s``, ``bytes_per_s``; ``node_s``: seconds that each node takes besides; ``launch_s``: seconds that
    each subgraph takes besides. ``link_bytes_per_s`` None: the device works in the host's memory; otherwise transfers
    to and from it take ``link_latency_s`` and go over that link. ``source``: PROFILE or ESTIMATE."""

    flops_per_s: float
    bytes_per_s: float
    launch_s: float = 0.0
    node_s: float = 0.0
    link_bytes_per_s: float | None = None
    link_latency_s: float = 0.0
    source: CostSource = CostSource.PROFILE

    def __post_init__(self) -> None:
        for name in ("flops_per_s", "bytes_per_s", "link_bytes_per_s"):
            value = getattr(self, name)
            if value is not None and not 0 < value < np.inf:
                raise PropertyError(f"{name} must be a positive number, found {value!r}")
        for name in ("launch_s", "node_s", "link_latency_s"):
            value = getattr(self, name)
            if not 0 <= value < np.inf:
                raise PropertyError(f"{name} must be a number, zero or more, found {value!r}")

    def seconds(self, flops: NDArray[np.float64], nbytes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Seconds per node, float64 [num_nodes]: of its operations or of its bytes, whichever take longer."""
        return np.maximum(flops / self.flops_per_s, nbytes / self.bytes_per_s) + self.node_s


# One core of a server processor, from bench/costs.py. A guess for other machines: measure where it matters.
_DEFAULTS = {
    "CPU": DeviceSpeed(1e11, 2e10, 2e-6, 2e-7, source=CostSource.ESTIMATE),
    "ORT": DeviceSpeed(1e11, 2e10, 6e-6, 5e-7, source=CostSource.ESTIMATE),
    "OPENVINO": DeviceSpeed(1e11, 2e10, 3e-5, 5e-7, source=CostSource.ESTIMATE),
    "TEMPLATE": DeviceSpeed(1e9, 1e9, 4e-6, 2e-5, source=CostSource.ESTIMATE),
}


def default_speed(device: str) -> DeviceSpeed:
    """What a device is taken for when nothing is known of it; ``device`` with or without an id."""
    return _DEFAULTS.get(device.partition(".")[0], _DEFAULTS["CPU"])
