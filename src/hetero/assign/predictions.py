"""Predictions of stage 2: the latency of a plan by cost, and the stages of a pipeline."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

__all__ = ["PlannedStage", "PredictedLatency", "PredictedPipeline", "doc"]


def doc(text: str) -> Mapping[str, str]:
    """Metadata of a field: its description in the published schema of plan files."""
    return {"doc": text}


@dataclasses.dataclass(frozen=True, slots=True)
class PredictedLatency:
    """The predicted latency of one inference, in seconds.

    ``total_s``: the latency: the sum of work, launches (one per subgraph) and transfers, or less if ``overlaps`` says
    that devices run in parallel. ``lower_bound_s``: a lower bound for the
    prediction of any plan. ``by_priority_s``: the prediction for the plan by priority. ``sources``: the number of nodes
    whose costs were measured, estimated from the speed in a device's profile (``profile``), from the speed assumed for
    devices of that name (``estimate``), or from unknown sizes (``assumed``). ``memory_binds``: whether memory limits
    exclude the best plan found; the lower bound ignores the limits. ``begin_s``, ``end_s``: when each subgraph starts
    and ends, in the order of subgraphs; empty unless the plan was made with ``OBJECTIVE=LATENCY``.
    """

    total_s: float = dataclasses.field(
        metadata=doc("The latency: the sum of work, launches and transfers, or less if devices run in parallel.")
    )
    work_s: float = dataclasses.field(metadata=doc("Time of the nodes, each on its device."))
    launches_s: float = dataclasses.field(metadata=doc("Overhead of starting the subgraphs."))
    transfers_s: float = dataclasses.field(metadata=doc("Time of transfers between devices, and to and from the host."))
    lower_bound_s: float = dataclasses.field(metadata=doc("A lower bound for the prediction of any plan."))
    by_priority_s: float = dataclasses.field(metadata=doc("The prediction for the plan by priority."))
    sources: Mapping[str, int] = dataclasses.field(metadata=doc("Source of costs -> number of nodes with such costs."))
    memory_binds: bool = dataclasses.field(
        default=False,
        metadata=doc("Whether memory limits exclude the best plan found; the lower bound ignores the limits."),
    )
    overlaps: bool = dataclasses.field(default=False, metadata=doc("Whether devices run in parallel."))
    begin_s: tuple[float, ...] = dataclasses.field(
        default=(), metadata=doc("When each subgraph starts, in seconds; empty unless the objective is latency.")
    )
    end_s: tuple[float, ...] = dataclasses.field(default=(), metadata=doc("When each subgraph ends, in seconds."))


@dataclasses.dataclass(frozen=True, slots=True)
class PlannedStage:
    """One stage of a pipeline: its device, its subgraphs, and its predicted time for a request, in seconds.

    ``total_s``: the sum of work, launch and transfers. ``received_bytes``: values that it reads from other stages.
    ``sources``: as in `PredictedLatency`.
    """

    device: str = dataclasses.field(metadata=doc("The device of the stage."))
    subgraphs: tuple[int, ...] = dataclasses.field(metadata=doc("Its subgraphs, counted from 1, consecutive."))
    nodes: int = dataclasses.field(metadata=doc("The number of its nodes."))
    total_s: float = dataclasses.field(metadata=doc("Its time for a request, in seconds."))
    work_s: float = dataclasses.field(metadata=doc("Time of its nodes."))
    launch_s: float = dataclasses.field(metadata=doc("Overhead of starting a run."))
    transfers_s: float = dataclasses.field(metadata=doc("Time of transfers from other stages, to and from the host."))
    received_bytes: int = dataclasses.field(metadata=doc("Bytes that it reads from other stages."))
    sources: Mapping[str, int] = dataclasses.field(metadata=doc("Source of costs -> number of nodes with such costs."))


@dataclasses.dataclass(frozen=True, slots=True)
class PredictedPipeline:
    """The stages of a pipeline in order, and its predicted times, in seconds.

    ``interval_s``: the time between two results with requests in flight, which is the time of the slowest stage.
    ``latency_s``: the time of one request through all stages. ``lower_bound_s``: a lower bound for the interval of any
    stages. ``idle``: devices without a stage -> reason.
    """

    interval_s: float = dataclasses.field(metadata=doc("The time between two results: the time of the slowest stage."))
    latency_s: float = dataclasses.field(metadata=doc("The time of one request through all stages."))
    lower_bound_s: float = dataclasses.field(metadata=doc("A lower bound for the interval of any stages."))
    stages: tuple[PlannedStage, ...] = dataclasses.field(metadata=doc("The stages, in order."))
    idle: Mapping[str, str] = dataclasses.field(default_factory=dict, metadata=doc("Device without a stage -> reason."))
