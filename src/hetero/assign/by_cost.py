"""Stage 2 by cost: the assignment of least predicted latency, instead of fallback by priority.

Applies `hetero.assign.cuts` to a model and its devices. Pins and affinities apply, and a node goes only to devices that
support it. The assignment by priority is kept unless the predicted gain of another exceeds the error of predictions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..base.formatting import duration
from ..partition import Partition, partition_graph
from ..plugin.speed import CostSource
from .affinity import Affinity, Origin
from .by_cost_within_memory import least_latency_within
from .costs.measured import Costs
from .costs.table import CostTable, cost_table
from .cuts import LatencyAssignment, Prediction, least_latency, predict
from .predictions import PredictedLatency
from .within_memory import allowed_devices, limits_array, moved_for_memory

if TYPE_CHECKING:
    from ..model.model import Model
    from ..plugin.contract import Support
    from ..plugin.speed import DeviceSpeed

__all__ = ["CAUTION", "LEAST_GAIN", "CostAffinity", "assign_by_cost"]

CAUTION = 0.25
"""The share of its work that a node must gain to move; see ``caution`` of `least_latency`. The time of a node depends
on its neighbors, because devices fuse nodes and choose layouts for shared values. Predictions for plans that mix
devices are therefore too low, by a tenth and more with many cuts (docs/costs.md)."""

LEAST_GAIN = 0.02
"""The assignment by priority is kept unless another is predicted to save this share of its latency."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class CostAffinity:
    """``affinity``: the devices by cost. ``found``: their partition, prediction and lower bound. ``by_priority``: the
    prediction for the assignment by priority. ``table``: the costs. ``memory_binds``: whether memory limits exclude a
    better assignment."""

    affinity: Affinity
    found: LatencyAssignment
    by_priority: Prediction
    table: CostTable
    memory_binds: bool = False

    @property
    def partition(self) -> Partition:
        return self.found.partition

    @property
    def pipeline(self) -> None:
        """Always None: this is not a pipeline."""
        return None

    def predict(self, partition: Partition) -> Prediction:
        """The prediction for another partition of the same nodes over the same devices. Infinite if a device does not
        support a node. Pins have no effect."""
        takes = np.stack([support.mask for support in self.affinity.supports])
        return predict(self.table.problem(takes), partition, self.table.launches)

    def cost_of(self, device: int, node: int) -> tuple[float, str]:
        """The seconds of a node on a device, and the source of the figure."""
        return float(self.table.work[device, node]), CostSource(self.table.source[device, node]).name.lower()

    @property
    def latency(self) -> PredictedLatency:
        """The prediction for the plan."""
        prediction = self.found.prediction
        node = np.arange(self.table.model.num_nodes)
        counts = np.bincount(self.table.source[self.affinity.device_of, node], minlength=len(CostSource))
        sources = {CostSource(i).name.lower(): count for i, count in enumerate(counts.tolist()) if count}
        return PredictedLatency(
            prediction.total,
            prediction.work,
            prediction.launches,
            prediction.transfers,
            self.found.lower_bound,
            self.by_priority.total,
            sources,
            self.memory_binds,
        )


def assign_by_cost(
    model: Model,
    affinity: Affinity,
    supports: Sequence[Support],
    speeds: Sequence[DeviceSpeed],
    *,
    costs: Costs | None = None,
    original: Model | None = None,
    policy: str = "auto",
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    limits: Mapping[str, int] | None = None,
) -> CostAffinity:
    """The assignment of least predicted latency.

    ``affinity``: by priority; its pins are kept. ``supports``, ``speeds``: per device. ``costs``: measured on ``model``
    or on ``original``, the model before calls of functions were inlined; ``shapes`` of inputs select among them.
    ``limits``: device -> memory limit in bytes. Raises `WrongModel` for costs of another model, `PropertyError` for
    costs that cover none of the devices, and `InsufficientMemory` if no assignment is found that fits.
    """
    if costs is not None:
        costs.check_model(*dict.fromkeys((model, original or model)))
        costs.check_devices(affinity.devices)
    table = cost_table(model, affinity.devices, speeds, costs, shapes)
    allowed = allowed_devices(affinity, supports)
    problem = table.problem(allowed)
    by_priority = partition_graph(model.graph, affinity.device_of, policy)
    first = predict(problem, by_priority, table.launches)
    found = least_latency(model.graph, problem, table.launches, affinity.device_of, policy, caution=CAUTION)
    if found.prediction.total > first.total * (1 - LEAST_GAIN):
        found = dataclasses.replace(found, device_of=affinity.device_of, partition=by_priority, prediction=first)
    limited = None
    if limits:
        limited = least_latency_within(model, affinity, problem, table.launches, found, allowed, limits, policy)
        first = limited.by_priority or first
    origin = affinity.origin.copy()
    origin[found.device_of != affinity.device_of] = Origin.COST
    origin.setflags(write=False)

    def explain(node: int) -> str:
        number, first_choice = int(found.device_of[node]), int(affinity.device_of[node])
        here, there = (
            f"{duration(float(table.work[device, node]))} ({CostSource(table.source[device, node]).name.lower()})"
            for device in (number, first_choice)
        )
        return f"{here} here, {there} on {affinity.devices[first_choice]}, without transfers and launches"

    moved = dataclasses.replace(affinity, device_of=found.device_of, origin=origin, explain_cost=explain)
    if limited is None or limited.found is found:
        return CostAffinity(moved, found, first, table, False)
    moved = moved_for_memory(moved, limited.fitted, limits_array(affinity.devices, limits or {}))
    return CostAffinity(moved, limited.found, first, table, True)
