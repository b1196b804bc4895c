"""What stage 2 predicts: the latency of a plan made by cost, and the stages of a pipeline."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

__all__ = ["PlannedStage", "PredictedLatency", "PredictedPipeline", "doc"]


def doc(text: str) -> Mapping[str, str]:
    """Metadata of a field: its description in the published schema of plan files."""
    return {"doc": text}


@dataclasses.dataclass(frozen=True, slots=True)
class PredictedLatency:
    """What one inference is predicted to take, in seconds, its subgraphs run one after the other.

    The total is that of work, launches (one per subgraph) and transfers; ``lower_bound_s``: no plan is predicted to
    take less; ``by_priority_s``: what the plan by priority would take. ``sources``: of how many nodes the costs were
    measured, estimated by a device's stated speed (``profile``), by the speed that devices of its name are taken to
    have (``estimate``), or from sizes that are not known (``assumed``). ``memory_binds``: limits of memory keep it from
    the best plan that was found without; the lower bound is that without limits.
    """

    total_s: float = dataclasses.field(metadata=doc("All of it, in seconds."))
    work_s: float = dataclasses.field(metadata=doc("The nodes, each on its device."))
    launches_s: float = dataclasses.field(metadata=doc("What each subgraph takes beside its nodes."))
    transfers_s: float = dataclasses.field(metadata=doc("Values that go to another device, and to and from the host."))
    lower_bound_s: float = dataclasses.field(metadata=doc("No plan is predicted to take less."))
    by_priority_s: float = dataclasses.field(metadata=doc("What the plan by priority is predicted to take."))
    sources: Mapping[str, int] = dataclasses.field(metadata=doc("Where costs come from -> nodes with such a cost."))
    memory_binds: bool = dataclasses.field(
        default=False,
        metadata=doc("Whether limits of memory keep it from the best plan; the lower bound is that without limits."),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class PlannedStage:
    """One stage of a pipeline: its device, its subgraphs, and what it is predicted to take for a request, in seconds.

    The total is that of work, launch and transfers. ``received_bytes``: values that other stages make and it reads.
    ``sources``: as in `PredictedLatency`.
    """

    device: str = dataclasses.field(metadata=doc("The device that it runs on."))
    subgraphs: tuple[int, ...] = dataclasses.field(metadata=doc("Its subgraphs, counted from 1, one run."))
    nodes: int = dataclasses.field(metadata=doc("Its nodes."))
    total_s: float = dataclasses.field(metadata=doc("What it takes for a request, in seconds."))
    work_s: float = dataclasses.field(metadata=doc("Its nodes."))
    launch_s: float = dataclasses.field(metadata=doc("What a run takes beside its nodes."))
    transfers_s: float = dataclasses.field(metadata=doc("Values from other stages and the host, results for the host."))
    received_bytes: int = dataclasses.field(metadata=doc("Values that other stages make and it reads."))
    sources: Mapping[str, int] = dataclasses.field(metadata=doc("Where costs come from -> nodes with such a cost."))


@dataclasses.dataclass(frozen=True, slots=True)
class PredictedPipeline:
    """The stages of a pipeline in their order, and what is predicted for it, in seconds.

    ``interval_s``: between two results with requests in flight, what the slowest stage takes; ``latency_s``: of one
    request, all stages; ``lower_bound_s``: no stages have a shorter interval. ``idle``: devices without a stage -> why.
    """

    interval_s: float = dataclasses.field(metadata=doc("Between two results: what the slowest stage takes."))
    latency_s: float = dataclasses.field(metadata=doc("What one request takes, through all stages."))
    lower_bound_s: float = dataclasses.field(metadata=doc("No stages are predicted to have a shorter interval."))
    stages: tuple[PlannedStage, ...] = dataclasses.field(metadata=doc("The stages, in their order."))
    idle: Mapping[str, str] = dataclasses.field(default_factory=dict, metadata=doc("Devices without a stage -> why."))
