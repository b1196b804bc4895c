"""`Assignment`, the result of stages 2 and 3: the device of each node, the partition, and the predictions."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..partition import Partition
from ..plugin.speed import CostSource
from .affinity import Affinity
from .cuts import AssignmentProblem, Prediction, predict
from .memory.values import passes_inside, sized, values_of
from .predictions import PredictedLatency, PredictedPipeline

if TYPE_CHECKING:
    from ..model.model import Model
    from .costs.table import CostTable
    from .schedule import Scheduler

__all__ = ["Assignment"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """The device of each node, with the reason, and the partition.

    ``original``: the model as given; ``model``: the model that is compiled, in which calls of functions may be inlined,
    and nodes copied for their readers (`hetero.assign.copies`).
    ``latency``, ``pipeline``: the predictions, if nodes were assigned for latency or throughput. ``costs``: the cost of
    each node on each device, if nodes were assigned for latency. ``scheduler``: if devices may run in parallel.
    """

    original: Model
    model: Model
    affinity: Affinity
    partition: Partition
    latency: PredictedLatency | None = None
    pipeline: PredictedPipeline | None = None
    costs: CostTable | None = None
    scheduler: Scheduler | None = None

    @property
    def sized_model(self) -> Model:
        """``model`` with inferred sizes where the file leaves them open, for counts of bytes."""
        return sized(self.model, self.affinity.units)

    def values_in_units(self) -> NDArray[np.bool_]:
        """bool [num_values]: the values that only pass inside units of the device of their node, which does not store
        them (`Support.units`)."""
        model, affinity = self.model, self.affinity
        inside = np.zeros(model.num_values, np.bool_)
        if not any(affinity.units):
            return inside
        values, made = values_of(model), model.producer >= 0
        device_of = np.where(made, affinity.device_of[model.producer], -1)
        for device, units in enumerate(affinity.units):
            inside |= (device_of == device) & passes_inside(values, units)
        return inside

    def predict(self, partition: Partition) -> Prediction:
        """The predicted latency of another partition of the same nodes over the same devices, with subgraphs one after
        the other. Infinite if a device does not support a node. Pins have no effect. Requires ``costs``."""
        assert self.costs is not None
        return predict(self._problem(), partition, self.costs.launches)

    def least_seconds(self, partition: Partition) -> float:
        """The total of `predict`. With a ``scheduler``, the latency of this partition or of the best cut of the same
        assignment."""
        total = self.predict(partition).total
        if self.scheduler is None or not np.isfinite(total):
            return total
        scheduler = self.scheduler.with_problem(self._problem())
        cuts = scheduler.cuts(partition.device_of[partition.subgraph_of])
        return min(scheduler.run(partition).latency, *(cut.latency for cut in cuts))

    def _problem(self) -> AssignmentProblem:
        assert self.costs is not None
        return self.costs.problem(np.stack([support.mask for support in self.affinity.supports]))

    def cost_of(self, device: int, node: int) -> tuple[float, str]:
        """The seconds of a node on a device, and the source of the figure. Requires ``costs``."""
        assert self.costs is not None
        return float(self.costs.work[device, node]), CostSource(self.costs.source[device, node]).name.lower()
