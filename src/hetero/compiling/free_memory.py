"""The memory that a plan leaves free on its devices. Submodels that their device fails to compile may move there."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..assign.memory.footprint import Footprint, footprint
from ..assign.memory.values import values_of
from ..plan import Plan

__all__ = ["FreeMemory"]


class FreeMemory:
    """Thread-safe. ``devices``, ``nodes``: the device and the nodes of each submodel."""

    def __init__(self, plan: Plan, devices: Sequence[str], nodes: Sequence[NDArray[np.int32]]) -> None:
        self._plan = plan
        self._device_of = np.array([plan.devices.index(device) for device in devices], np.int32)
        self._nodes = nodes
        self._lock = threading.Lock()

    def move(self, submodel: int, device: str) -> bool:
        """Move a submodel to ``device`` if there is room for it. Returns whether there was."""
        number, limit = self._plan.devices.index(device), self._plan.limits.get(device)
        with self._lock:
            moved = self._device_of.copy()
            moved[submodel] = number
            if limit is not None and self._needs(moved).total[number] > limit:
                return False
            self._device_of = moved
            return True

    def _needs(self, device_of: NDArray[np.int32]) -> Footprint:
        assignment = self._plan.assignment
        model = assignment.model
        subgraph_of = np.empty(model.num_nodes, np.int32)
        for i, part in enumerate(self._nodes):
            subgraph_of[part] = i
        values = values_of(model, units=assignment.affinity.units)
        return footprint(values, subgraph_of, device_of, len(self._plan.devices))
