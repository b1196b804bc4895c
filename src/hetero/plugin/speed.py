"""Speeds of devices, which convert operations and bytes into seconds."""

from __future__ import annotations

import dataclasses
import enum

import numpy as np
from numpy.typing import NDArray

from ..errors import PropertyError

__all__ = ["CostSource", "DeviceSpeed", "default_speed"]


class CostSource(enum.IntEnum):
    """The source of a cost."""

    NONE = 0
    """No cost: the device does not support the node."""
    MEASURED = 1
    """Counters, or a measured link."""
    PROFILE = 2
    """The device's stated speed (``[cost]`` of a profile, or a measured one) and known shapes."""
    ESTIMATE = 3
    """The default speed for this device name, and known shapes."""
    ASSUMED = 4
    """A shape, or the node's operator, is unknown; see `NodeWork.assumed`."""


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceSpeed:
    """The speed of a device.

    ``flops_per_s``, ``bytes_per_s``: operations and bytes per second. ``node_s``: overhead of each node, in seconds.
    ``launch_s``: overhead of each subgraph, in seconds. ``link_bytes_per_s``: None if the device works in the host's
    memory; otherwise the speed of transfers to and from the device, each of which also takes ``link_latency_s``.
    ``source``: PROFILE or ESTIMATE.
    """

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

    def describe(self) -> str:
        """``100 Gflop/s, 20 GB/s``."""
        flops = f"{self.flops_per_s / 1e12:.3g} T" if self.flops_per_s >= 1e12 else f"{self.flops_per_s / 1e9:.3g} G"
        text = f"{flops}flop/s, {self.bytes_per_s / 1e9:.3g} GB/s"
        return text if self.link_bytes_per_s is None else f"{text}, link {self.link_bytes_per_s / 1e9:.3g} GB/s"

    def seconds(self, flops: NDArray[np.float64], nbytes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Seconds per node, float64 [num_nodes]: the longer of the times for its operations and for its bytes."""
        return np.maximum(flops / self.flops_per_s, nbytes / self.bytes_per_s) + self.node_s


# Measured on one core of a server processor by bench/costs.py. Other machines may differ considerably.
_DEFAULTS = {
    "CPU": DeviceSpeed(1e11, 2e10, 2e-6, 2e-7, source=CostSource.ESTIMATE),
    "ORT": DeviceSpeed(1e11, 2e10, 6e-6, 5e-7, source=CostSource.ESTIMATE),
    "OPENVINO": DeviceSpeed(1e11, 2e10, 3e-5, 5e-7, source=CostSource.ESTIMATE),
    "TEMPLATE": DeviceSpeed(1e9, 1e9, 4e-6, 2e-5, source=CostSource.ESTIMATE),
}


def default_speed(device: str) -> DeviceSpeed:
    """The default speed of a device that states none. ``device``: a name with or without an id."""
    return _DEFAULTS.get(device.partition(".")[0], _DEFAULTS["CPU"])
