"""The compiled model of HETERO: submodels on their devices, and the schedule that runs them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from ..errors import PropertyError
from ..model.types import Port
from ..plan import PlanRecord
from ..plugin.compiled_model import AnyRequest, CompiledModel
from ..plugin.executor import DeviceExecutors, ExecutorManager
from ..plugin.remote import PortMemories
from ..plugin.request import Runner
from ..runtime.pipelined import Pipeline, PipelineRunner, requests_to_fill
from ..runtime.schedule import Schedule, ScheduleRunner, Step
from .device_list import optimal_requests, shared_property

if TYPE_CHECKING:
    from ..artifact.payload import PayloadWriter
    from ..model.model import Model

__all__ = ["PAYLOAD_VERSION", "Fallback", "HeteroCompiledModel", "schedule_of", "wired_schedule"]

PAYLOAD_VERSION = "1"
"""The version of the payload that `HeteroCompiledModel.export_payload` writes."""


@dataclasses.dataclass(frozen=True, slots=True)
class Fallback:
    """A subgraph (counted from 1) that its planned device failed to compile, its new device, and the reason."""

    subgraph: int
    planned: str
    device: str
    reason: str

    def __str__(self) -> str:
        return f"subgraph {self.subgraph} moves to {self.device}, because {self.planned} failed: {self.reason}"


class HeteroCompiledModel(CompiledModel):
    """Submodels on their devices, and the schedule that runs them.

    ``fallbacks``: the subgraphs that run on another device than ``plan`` names.
    """

    checks_results = False  # the submodels check theirs
    _pipeline: Pipeline | None = None

    def __init__(
        self,
        plan: PlanRecord,
        ports: tuple[Sequence[Port], Sequence[Port]],
        name: str,
        submodels: Sequence[CompiledModel],
        schedule: Schedule,
        settings: Mapping[str, Any],
        executors: ExecutorManager,
        fallbacks: Iterable[Fallback] = (),
    ) -> None:
        schedule = dataclasses.replace(schedule, devices=tuple(plan.devices))
        by_device = {compiled.device: compiled for compiled in submodels}
        # The sum of the devices' optimal numbers of requests keeps all devices busy.
        per_device = {device: optimal_requests(compiled) for device, compiled in by_device.items()}
        streams = sum(per_device.values())
        stated = {}
        if plan.pipeline is not None and submodels:
            per_stage = [per_device[compiled.device] for compiled in submodels]
            timed, limit = bool(settings.get("PERF_COUNT")), int(settings.get("QUEUE_LIMIT", 0))
            self._pipeline = Pipeline(schedule, executors, per_stage, limit, timed)
            stated["OPTIMAL_NUMBER_OF_INFER_REQUESTS"] = requests_to_fill(per_stage)
        super().__init__(
            f"HETERO:{','.join(plan.devices)}",
            *ports,
            {
                **settings,
                "EXECUTION_DEVICES": tuple(by_device),
                "NUM_STREAMS": max(1, streams),
                "HETERO_NUMBER_OF_SUBMODELS": len(submodels),
                "NETWORK_NAME": name,
                **stated,
            },
        )
        self.plan = plan
        self.fallbacks = tuple(fallbacks)
        self.submodels = tuple(submodels)
        self.lease_executors(executors)
        self._schedule = schedule

    def get_property(self, name: str) -> Any:
        """Also the properties that were passed on to the devices, if the submodels agree."""
        try:
            return super().get_property(name)
        except PropertyError as error:
            return shared_property(self.submodels, name, error)

    def export_payload(self, writer: PayloadWriter) -> None:
        from ..artifact.manifest import ScheduleRecord, StepRecord

        schedule = self._schedule
        writer.version["payload"] = PAYLOAD_VERSION
        writer.add("plan.json", self.plan.to_json())
        writer.add_json("constants.json", [writer.add_array(constant) for constant in schedule.constants])
        for compiled in self.submodels:
            writer.add_part(compiled)
        steps = [
            StepRecord(part, list(step.inputs), list(step.outputs), 0 if step.number == part + 1 else step.number)
            for part, step in enumerate(schedule.steps)
        ]
        writer.set_schedule(ScheduleRecord(schedule.num_slots, len(schedule.constants), steps, list(schedule.outputs)))

    def new_request(self, make: Callable[..., AnyRequest]) -> AnyRequest:
        pipeline = self._pipeline
        if pipeline is None or self._properties["EXCLUSIVE_ASYNC_REQUESTS"]:  # exclusive requests do not overlap
            return super().new_request(make)
        return make(
            self._device,
            self._inputs,
            self._outputs,
            self.new_runner(),
            lambda: pipeline,
            pipeline.timed,
            self.port_memories(),
            self.outputs_on_device(),
        )

    def port_memories(self) -> PortMemories:
        return self._schedule.placement.ports

    def create_runner(self) -> Runner:
        if self._pipeline is not None:
            return PipelineRunner(self._pipeline)
        overlaps = True if self.plan.latency is not None and self.plan.latency.overlaps else None
        if self.plan.limits and (overlaps is None or self.fallbacks):
            overlaps = False  # the limits were checked for subgraphs one after the other
        if self._properties.get("PERFORMANCE_HINT") == "THROUGHPUT":
            overlaps = False  # independent requests use the devices, for which steps of one request would contend
        return ScheduleRunner(self._schedule, bool(self._properties["PERF_COUNT"]), overlaps)


def schedule_of(
    model: Model,
    submodels: Sequence[tuple[Model, CompiledModel]],
    executor_of: DeviceExecutors,
    numbers: Sequence[int] | None = None,
) -> Schedule:
    """Slots for the model's inputs, the constants among its outputs, and every boundary value; then the steps.
    ``numbers``: as in `wired_schedule`."""
    slot_of: dict[int, int] = {}
    for value in model.input_ids:
        slot_of.setdefault(value, len(slot_of))
    constants = []
    for value in model.output_ids:
        if value not in slot_of and model.is_constant[value]:
            slot_of[value] = len(slot_of)
            constants.append(model.constant(value))
    reads: list[tuple[int, ...]] = []
    fills: list[tuple[int, ...]] = []
    for submodel, _ in submodels:
        reads.append(tuple(slot_of[model.value_id(port.name)] for port in submodel.inputs))
        for port in submodel.outputs:
            slot_of[model.value_id(port.name)] = len(slot_of)
        fills.append(tuple(slot_of[model.value_id(port.name)] for port in submodel.outputs))
    outputs = [slot_of[value] for value in model.output_ids]
    compiled = [entry for _, entry in submodels]
    return wired_schedule(
        len(slot_of), tuple(constants), compiled, list(zip(reads, fills, strict=True)), outputs, executor_of, numbers
    )


def wired_schedule(
    num_slots: int,
    constants: tuple[NDArray[Any], ...],
    submodels: Sequence[CompiledModel],
    wirings: Sequence[tuple[Sequence[int], Sequence[int]]],
    outputs: Sequence[int],
    executor_of: DeviceExecutors,
    numbers: Sequence[int] | None = None,
) -> Schedule:
    """The schedule of submodels that run one after the other. ``wirings``: the slots that each reads and writes.
    ``numbers``: the number of each submodel's subgraph; None: its position, from 1."""
    free_after: list[tuple[int, ...]] = []
    read_later = set(outputs)
    for reads, _ in reversed(wirings):
        free_after.append(tuple(slot for slot in dict.fromkeys(reads) if slot not in read_later))
        read_later.update(reads)
    steps = tuple(
        Step(compiled, tuple(reads), tuple(fills), free, number)
        for compiled, (reads, fills), free, number in zip(
            submodels, wirings, reversed(free_after), numbers or range(1, len(submodels) + 1), strict=True
        )
    )
    return Schedule(num_slots, constants, steps, tuple(outputs), executor_of)
