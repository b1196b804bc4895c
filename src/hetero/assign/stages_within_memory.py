"""Stages of pipelines within memory limits: where each stage can end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .memory import RangeMemory, Values, footprint
from .memory.fit import Fit

if TYPE_CHECKING:
    from ..partition import Partition

__all__ = ["StageLimits"]

_MOST_BEGINNINGS = 1_000


class StageLimits:
    """``limits``: float64 [num_stages], memory limits of the stages' devices in bytes, infinite without a limit."""

    def __init__(self, values: Values, limits: NDArray[np.float64]) -> None:
        self._values = values
        self._limits = limits
        self._ranges: tuple[NDArray[np.int32], dict[int, RangeMemory]] | None = None
        self._known: dict[tuple[int, float], NDArray[np.int64]] = {}

    def counted(self, stage_of: NDArray[np.int32], partition: Partition) -> Fit:
        """The memory that stages need, and the excess over the limits."""
        needs = footprint(self._values, partition.subgraph_of, partition.device_of, len(self._limits))
        return Fit(stage_of, partition, needs, np.maximum(needs.total - self._limits, 0.0))

    def capacity(self, stage: int, order: NDArray[np.int32]) -> NDArray[np.int64]:
        """int64 [num_nodes + 1]: for each position of ``order``, the last position where the stage can end if it begins
        there. For a large graph only some beginnings are computed. The others use the nearest computed beginning before
        them, because a later beginning reaches at least as far."""
        n, limit = len(order), float(self._limits[stage])
        if self._ranges is None or self._ranges[0] is not order:
            self._ranges, self._known = (order, {}), {}
        if not np.isfinite(limit):
            return np.full(n + 1, n)
        device = 0 if self._values.bytes_inside is None else stage
        if (device, limit) not in self._known:
            if device not in self._ranges[1]:
                self._ranges[1][device] = RangeMemory(self._values.on(device), order)
            memory = self._ranges[1][device]
            step = max(1, -(-n // _MOST_BEGINNINGS))
            reached = [memory.longest(begin, limit) for begin in range(0, n, step)]
            ends = np.append(np.repeat(reached, step)[:n], n).astype(np.int64)
            self._known[device, limit] = np.maximum(ends, np.arange(n + 1))
        return self._known[device, limit]
