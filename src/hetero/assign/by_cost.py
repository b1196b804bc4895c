"""Stage 2 by cost: the assignment of least predicted latency, instead of fallback by priority.

Applies `hetero.assign.cuts` to a model and its devices. Pins and affinities apply, and a node goes only to devices that
support it. The assignment by priority is kept unless the predicted gain of another exceeds the error of predictions.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..base.formatting import duration
from ..partition import partition_graph
from ..plugin.speed import CostSource
from .affinity import Affinity, Origin
from .assignment import Assignment
from .by_cost_within_memory import least_latency_within
from .costs.table import CostTable, cost_table
from .cuts import LatencyAssignment, Prediction, least_latency, predict
from .predictions import PredictedLatency
from .within_memory import allowed_devices, limits_array, moved_for_memory

if TYPE_CHECKING:
    from ..model.model import Model
    from .request import AssignmentRules

__all__ = ["CAUTION", "LEAST_GAIN", "assign_for_latency"]

CAUTION = 0.25
"""The share of its work that a node must gain to move; see ``caution`` of `least_latency`. The time of a node depends
on its neighbors, because devices fuse nodes and choose layouts for shared values. Predictions for plans that mix
devices are therefore too low, by a tenth and more with many cuts (docs/costs.md)."""

LEAST_GAIN = 0.02
"""The assignment by priority is kept unless another is predicted to save this share of its latency."""


def assign_for_latency(original: Model, model: Model, affinity: Affinity, rules: AssignmentRules) -> Assignment:
    """The assignment of least predicted latency.

    ``original``: the model before calls of functions were inlined, for which costs may have been measured.
    ``affinity``: by priority; its pins are kept. Raises `WrongModel` for costs of another model, `PropertyError` for
    costs that cover none of the devices, and `InsufficientMemory` if no assignment is found that fits.
    """
    if rules.costs is not None:
        rules.costs.check_model(*dict.fromkeys((model, original)))
        rules.costs.check_devices(affinity.devices)
    table = cost_table(model, affinity.devices, rules.speeds, rules.costs)
    allowed = allowed_devices(affinity)
    problem = table.problem(allowed)
    partition = partition_graph(model.graph, affinity.device_of, rules.policy)
    by_priority = predict(problem, partition, table.launches)
    best = least_latency(model.graph, problem, table.launches, affinity.device_of, rules.policy, caution=CAUTION)
    if best.prediction.total > by_priority.total * (1 - LEAST_GAIN):
        best = dataclasses.replace(best, device_of=affinity.device_of, partition=partition, prediction=by_priority)
    origin = affinity.origin.copy()
    origin[best.device_of != affinity.device_of] = Origin.COST
    origin.setflags(write=False)
    reasons = _CostReasons(table, best.device_of, affinity.device_of)
    moved = dataclasses.replace(affinity, device_of=best.device_of, origin=origin, cost_reasons=reasons)
    memory_binds = False
    if rules.limits:
        limited = least_latency_within(
            model, affinity, problem, table.launches, best, allowed, rules.limits, rules.policy
        )
        by_priority = limited.by_priority or by_priority
        memory_binds = limited.best is not best
        if memory_binds:
            best = limited.best
            moved = moved_for_memory(moved, limited.fitted, limits_array(affinity.devices, rules.limits))
    latency = _predicted(best, by_priority, table, memory_binds)
    return Assignment(original, model, moved, best.partition, latency=latency, costs=table)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _CostReasons:
    """Why nodes moved. ``device_of``, ``first_choice``: int32[num_nodes], the devices by cost and by priority."""

    table: CostTable
    device_of: NDArray[np.int32]
    first_choice: NDArray[np.int32]

    def reason(self, node: int) -> str:
        here, there = (
            f"{duration(float(self.table.work[device, node]))} "
            f"({CostSource(self.table.source[device, node]).name.lower()})"
            for device in (self.device_of[node], self.first_choice[node])
        )
        first_choice = self.table.devices[self.first_choice[node]]
        return f"{here} here, {there} on {first_choice}, without transfers and launches"


def _predicted(
    best: LatencyAssignment, by_priority: Prediction, table: CostTable, memory_binds: bool
) -> PredictedLatency:
    """``by_priority``: the prediction for the assignment by priority."""
    node = np.arange(table.model.num_nodes)
    counts = np.bincount(table.source[best.device_of, node], minlength=len(CostSource))
    return PredictedLatency(
        best.prediction.total,
        best.prediction.work,
        best.prediction.launches,
        best.prediction.transfers,
        best.lower_bound,
        by_priority.total,
        {CostSource(i).name.lower(): count for i, count in enumerate(counts.tolist()) if count},
        memory_binds,
    )
