"""Stage 2 by cost: the assignment of minimum predicted latency, instead of fallback by priority.

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
from .memory.fit import Fit
from .predictions import PredictedLatency
from .within_memory import allowed_devices, limits_array, moved_for_memory

if TYPE_CHECKING:
    from ..model.model import Model
    from .request import AssignmentRules
    from .with_readers import WithReaders

__all__ = [
    "CAUTION",
    "LEAST_GAIN",
    "LeastCost",
    "assign_for_latency",
    "checked_table",
    "least_cost",
    "moved_by_cost",
    "sources_of",
]

CAUTION = 0.25
"""The share of its work that a node must gain to move; see ``caution`` of `least_latency`. The time of a node depends
on its neighbors, because devices fuse nodes and choose layouts for shared values. Predictions for plans that mix
devices are therefore too low, by a tenth and more with many cuts (docs/costs.md)."""

LEAST_GAIN = 0.02
"""The assignment by priority is kept unless another is predicted to save this share of its latency."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LeastCost:
    """The assignment of minimum predicted latency.

    ``unlimited``: the best without memory limits. ``best``: the best that fits, with its memory needs ``fitted``, None
    if memory limits do not matter. ``by_priority``: the prediction for the assignment by priority.
    """

    unlimited: LatencyAssignment
    best: LatencyAssignment
    by_priority: Prediction
    fitted: Fit | None


def checked_table(original: Model, model: Model, affinity: Affinity, rules: AssignmentRules) -> CostTable:
    """The costs of a model over its devices. Raises `WrongModel` for costs of another model, and `PropertyError` for
    costs that cover none of the devices.

    ``original``: the model before calls of functions were inlined, for which costs may have been measured.
    """
    if rules.costs is not None:
        rules.costs.check_model(*dict.fromkeys((model, original)))
        rules.costs.check_devices(affinity.devices)
    return cost_table(model, affinity.devices, rules.speeds, rules.costs, units=affinity.units)


def least_cost(
    table: CostTable, affinity: Affinity, rules: AssignmentRules, readers: WithReaders, *, bound: bool = True
) -> LeastCost:
    """The assignment of minimum predicted latency, with subgraphs one after the other. ``affinity``: by priority; its
    pins are kept. ``readers``: as for `fit_affinity`. ``bound``: as for `assign_by_cost`. Raises `InsufficientMemory`
    if no assignment is found that fits."""
    model, allowed = table.model, allowed_devices(affinity)
    problem = table.problem(allowed)
    partition = partition_graph(model.graph, affinity.device_of, rules.policy)
    by_priority = predict(problem, partition, table.launches)
    best = least_latency(
        model.graph, problem, table.launches, affinity.device_of, rules.policy, caution=CAUTION, bound=bound
    )
    placed = readers.place(best.device_of)
    if placed is not best.device_of:
        placed.setflags(write=False)
        together = partition_graph(model.graph, placed, rules.policy)
        prediction = predict(problem, together, table.launches)
        least = min(best.lower_bound, prediction.total)
        best = dataclasses.replace(best, device_of=placed, partition=together, prediction=prediction, lower_bound=least)
    if best.prediction.total > by_priority.total * (1 - LEAST_GAIN):
        best = dataclasses.replace(best, device_of=affinity.device_of, partition=partition, prediction=by_priority)
    if not rules.limits:
        return LeastCost(best, best, by_priority, None)
    limited = least_latency_within(
        model, affinity, problem, table.launches, best, allowed, rules.limits, rules.policy, readers
    )
    by_priority = limited.by_priority or by_priority
    fitted = None if limited.best is best else limited.fitted
    return LeastCost(best, limited.best, by_priority, fitted)


def assign_for_latency(
    original: Model, model: Model, affinity: Affinity, rules: AssignmentRules, readers: WithReaders
) -> Assignment:
    """The assignment of minimum predicted latency. Arguments and errors as for `checked_table` and `least_cost`."""
    table = checked_table(original, model, affinity, rules)
    found = least_cost(table, affinity, rules, readers)
    moved = moved_by_cost(affinity, table, found.unlimited.device_of)
    if found.fitted is not None:
        moved = moved_for_memory(moved, found.fitted, limits_array(affinity.devices, rules.limits))
    latency = _predicted(found.best, found.by_priority, table, found.fitted is not None)
    moved = readers.with_reasons(moved)
    return Assignment(original, model, moved, found.best.partition, latency=latency, costs=table)


def moved_by_cost(affinity: Affinity, table: CostTable, device_of: NDArray[np.int32]) -> Affinity:
    """The affinity with these devices, and the costs as the reason for each moved node."""
    origin = affinity.origin.copy()
    origin[device_of != affinity.device_of] = Origin.COST
    origin.setflags(write=False)
    reasons = _CostReasons(table, device_of, affinity.device_of)
    return dataclasses.replace(affinity, device_of=device_of, origin=origin, cost_reasons=reasons)


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
    return PredictedLatency(
        best.prediction.total,
        best.prediction.work,
        best.prediction.launches,
        best.prediction.transfers,
        best.lower_bound,
        by_priority.total,
        sources_of(table, best.device_of),
        memory_binds,
    )


def sources_of(table: CostTable, device_of: NDArray[np.int32]) -> dict[str, int]:
    """Source of costs -> number of nodes with such costs on their device."""
    counts = np.bincount(table.source[device_of, np.arange(table.model.num_nodes)], minlength=len(CostSource))
    return {CostSource(i).name.lower(): count for i, count in enumerate(counts.tolist()) if count}
