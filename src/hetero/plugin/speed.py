"""Speeds of devices, which convert operations and bytes into seconds."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence

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

    ``flops_per_s``, ``bytes_per_s``: operations and bytes per second. ``flops_per_s_of``: element type, such as
    ``"int8"``, -> operations per second, if they differ; other types take ``flops_per_s``. ``node_s``: overhead of each
    node, in seconds. ``launch_s``: overhead of each subgraph, in seconds. ``link_bytes_per_s``: None if the device
    works in the host's memory; otherwise the speed of transfers to and from the device, each of which also takes
    ``link_latency_s``. ``source``: PROFILE or ESTIMATE. ``memory``: the name of the device's memory. Devices with the
    same name exchange values without a transfer (`CompiledModel.memory_space`); empty if no other device has this
    memory.
    """

    flops_per_s: float
    bytes_per_s: float
    launch_s: float = 0.0
    node_s: float = 0.0
    link_bytes_per_s: float | None = None
    link_latency_s: float = 0.0
    source: CostSource = CostSource.PROFILE
    memory: str = ""
    flops_per_s_of: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("flops_per_s", "bytes_per_s", "link_bytes_per_s"):
            value = getattr(self, name)
            if value is not None and not 0 < value < np.inf:
                raise PropertyError(f"{name} must be a positive number, found {value!r}")
        for name, value in self.flops_per_s_of.items():
            if not 0 < value < np.inf:
                raise PropertyError(f"flops_per_s_of {name} must be a positive number, found {value!r}")
        for name in ("launch_s", "node_s", "link_latency_s"):
            value = getattr(self, name)
            if not 0 <= value < np.inf:
                raise PropertyError(f"{name} must be a number, zero or more, found {value!r}")

    def describe(self) -> str:
        """``100 Gflop/s, 20 GB/s``."""
        flops = f"{self.flops_per_s / 1e12:.3g} T" if self.flops_per_s >= 1e12 else f"{self.flops_per_s / 1e9:.3g} G"
        text = f"{flops}flop/s, {self.bytes_per_s / 1e9:.3g} GB/s"
        return text if self.link_bytes_per_s is None else f"{text}, link {self.link_bytes_per_s / 1e9:.3g} GB/s"

    def seconds(
        self,
        flops: NDArray[np.float64],
        nbytes: NDArray[np.float64],
        dtypes: Sequence[str] = (),
        dtype_of: NDArray[np.integer] | None = None,
    ) -> NDArray[np.float64]:
        """Seconds per node, float64 [num_nodes]: the longer of the times for its operations and for its bytes.

        ``dtype_of``: int [num_nodes], the element type in which each node computes, as an index into ``dtypes``.
        """
        rate: float | NDArray[np.float64] = self.flops_per_s
        if dtype_of is not None and self.flops_per_s_of:
            rate = np.array([self.flops_per_s_of.get(name, self.flops_per_s) for name in dtypes], np.float64)[dtype_of]
        return np.asarray(np.maximum(flops / rate, nbytes / self.bytes_per_s) + self.node_s)


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
