"""What stages two and three decide, before it is a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..assign.affinity import Affinity
from ..assign.predictions import PredictedLatency, PredictedPipeline
from ..partition import Partition

if TYPE_CHECKING:
    from ..assign.by_cost import CostAffinity

__all__ = ["Decided"]


class Decided(NamedTuple):
    """Where nodes go and how they are cut; for assignment by cost its prediction and costs, for pipelines theirs."""

    affinity: Affinity
    partition: Partition
    latency: PredictedLatency | None = None
    pipeline: PredictedPipeline | None = None
    by_cost: CostAffinity | None = None
