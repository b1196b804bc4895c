"""The results of stages 2 and 3, from which a plan is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..assign.affinity import Affinity
from ..assign.predictions import PredictedLatency, PredictedPipeline
from ..partition import Partition

if TYPE_CHECKING:
    from ..assign.by_cost import CostAffinity

__all__ = ["Decided"]


class Decided(NamedTuple):
    """Affinity and partition. ``latency``, ``by_cost``: for assignment by cost. ``pipeline``: for pipelines."""

    affinity: Affinity
    partition: Partition
    latency: PredictedLatency | None = None
    pipeline: PredictedPipeline | None = None
    by_cost: CostAffinity | None = None
