"""Stage 2 for pipelines: each device of the list, in order, gets a stage, and the slowest stage takes the minimum time.

Applies `hetero.assign.pipeline` to a model and its devices: pins and affinities apply, and a node goes only into the
stage of a device that supports it. Costs are computed as for assignment by cost.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..base.formatting import counted, duration
from ..base.names import short
from ..model.constant_nodes import constant_nodes
from ..partition import Graph, Partition, partition_graph
from ..plugin.speed import CostSource
from .affinity import Affinity, Origin
from .assignment import Assignment
from .by_cost import checked_table
from .costs.table import CostTable
from .memory import values_of
from .pipeline import NoRoom, PipelineError, StageAssignment, TooManyStages, balance_stages
from .pipeline.costs import StageCosts
from .pipeline.orders import stage_ranges
from .predictions import PlannedStage, PredictedPipeline
from .stages_within_memory import StageLimits
from .within_memory import allowed_devices, limits_array, require_fit

if TYPE_CHECKING:
    from ..model.model import Model
    from .cuts import AssignmentProblem
    from .request import AssignmentRules
    from .with_readers import WithReaders

__all__ = ["assign_stages", "stage_partition"]


def assign_stages(
    original: Model, model: Model, affinity: Affinity, rules: AssignmentRules, readers: WithReaders
) -> Assignment:
    """The stages whose slowest one is predicted to take the minimum time.

    ``original``: the model before calls of functions were inlined, for which costs may have been measured.
    ``affinity``: by priority; its pins are kept. ``readers``: as for `fit_affinity`. The partition has the connected
    parts of the stages, stage by stage.

    Raises `TooManyStages` for more devices than nodes, `PipelineError` for a node that does not fit into any stage in
    the order of the devices, `WrongModel` for costs of another model, `PropertyError` for costs that cover none of the
    devices, and `InsufficientMemory` if no stages are found within the limits.
    """
    devices = affinity.devices
    if len(devices) > model.num_nodes:
        raise TooManyStages(
            f"a pipeline over {', '.join(devices)} has {counted(len(devices), 'stage')}, model {model.name!r} only "
            f"{counted(model.num_nodes, 'node')}; list at most as many devices as there are nodes"
        )
    table = checked_table(original, model, affinity, rules)
    allowed = allowed_devices(affinity)
    problem = table.problem(allowed)
    try:
        stages = balance_stages(model.graph, problem, table.launch, len(devices))
    except PipelineError as error:
        raise _in_words(model, affinity, allowed, error) from None
    stages = _together(stages, readers, model.graph, problem, table)
    partition = stage_partition(model.graph, stages.stage_of)
    if rules.limits:
        stages, partition = _within(model, affinity, allowed, table, problem, stages, partition, rules.limits, readers)
    pipeline = _predicted(model, table, allowed, stages, partition)
    origin = affinity.origin.copy()
    origin[affinity.origin == Origin.PRIORITY] = Origin.STAGE
    origin.setflags(write=False)
    number_of = {devices.index(stage.device): number for number, stage in enumerate(pipeline.stages, 1)}
    reasons = _StageReasons(table, stages.stage_of, number_of)
    staged = dataclasses.replace(affinity, device_of=stages.stage_of, origin=origin, cost_reasons=reasons)
    return Assignment(original, model, staged, partition, pipeline=pipeline)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _StageReasons:
    """The stage of each node. ``number_of``: device -> number of its stage, counted from 1."""

    table: CostTable
    stage_of: NDArray[np.int32]
    number_of: Mapping[int, int]

    def reason(self, node: int) -> str:
        device = int(self.stage_of[node])
        source = CostSource(self.table.source[device, node]).name.lower()
        seconds = duration(float(self.table.work[device, node]))
        return f"stage {self.number_of[device]} of {len(self.number_of)} of the pipeline; {seconds} ({source}) here"


def stage_partition(graph: Graph, stage_of: NDArray[np.int32]) -> Partition:
    """The connected parts of stages as subgraphs, those of the first stage first; the device of each is its stage.
    ``stage_of``: int32 [num_nodes], which never decreases along edges."""
    # If stages never decrease along edges, two adjacent parts of a stage can always be merged, and `auto` merges them.
    parts = partition_graph(graph, stage_of)
    order = np.argsort(parts.device_of, kind="stable").astype(np.int32)
    number = np.empty(len(order), np.int32)
    number[order] = np.arange(len(order), dtype=np.int32)
    return Partition(
        graph, parts.policy, number[parts.subgraph_of], parts.device_of[order], parts.cut_edges, parts.cut_weight
    )


def _within(
    model: Model,
    affinity: Affinity,
    allowed: NDArray[np.bool_],
    table: CostTable,
    problem: AssignmentProblem,
    assignment: StageAssignment,
    partition: Partition,
    limits: Mapping[str, int],
    readers: WithReaders,
) -> tuple[StageAssignment, Partition]:
    """The stages if they fit, otherwise the best stages that fit. Raises `InsufficientMemory`."""
    devices, values = affinity.devices, values_of(model, units=affinity.units)
    max_bytes = limits_array(devices, limits)
    stages = StageLimits(values, max_bytes)
    needs = stages.counted(assignment.stage_of, partition)
    if needs.fits:
        return assignment, partition
    try:
        assignment = balance_stages(model.graph, problem, table.launch, len(devices), capacity=stages.capacity)
        partition = stage_partition(model.graph, assignment.stage_of)
        needs = stages.counted(assignment.stage_of, partition)
    except NoRoom:
        pass  # `require_fit` reports the memory of the stages without limits
    require_fit(model, devices, values, allowed, max_bytes, needs)
    together = _together(assignment, readers, model.graph, problem, table)
    parts = stage_partition(model.graph, together.stage_of)
    return (together, parts) if stages.counted(together.stage_of, parts).fits else (assignment, partition)


def _together(
    assignment: StageAssignment, readers: WithReaders, graph: Graph, problem: AssignmentProblem, table: CostTable
) -> StageAssignment:
    """The stages with nodes moved to the first stage that reads them."""
    stage_of = readers.place(assignment.stage_of, in_order=True)
    if stage_of is assignment.stage_of:
        return assignment
    stage_of.setflags(write=False)
    times = StageCosts(graph, problem, table.launch, len(table.devices)).times(stage_of)
    bound = min(assignment.lower_bound, times.slowest)
    return dataclasses.replace(assignment, stage_of=stage_of, times=times, lower_bound=bound)


def _predicted(
    model: Model, table: CostTable, allowed: NDArray[np.bool_], assignment: StageAssignment, partition: Partition
) -> PredictedPipeline:
    times, stage_of = assignment.times, assignment.stage_of
    source = table.source[stage_of, np.arange(len(stage_of))]
    stages = []
    used = np.bincount(stage_of, minlength=len(table.devices)) > 0
    for number in np.flatnonzero(used).tolist():
        counts = np.bincount(source[stage_of == number], minlength=len(CostSource)).tolist()
        stages.append(
            PlannedStage(
                table.devices[number],
                tuple((np.flatnonzero(partition.device_of == number) + 1).tolist()),
                int(np.count_nonzero(stage_of == number)),
                float(times.total[number]),
                float(times.work[number]),
                float(times.launch[number]),
                float(times.transfers[number]),
                int(min(times.received[number], 2**63 - 1)),
                {CostSource(i).name.lower(): count for i, count in enumerate(counts) if count},
            )
        )
    idle = {
        table.devices[number]: _why_idle(model, allowed, number, assignment)
        for number in np.flatnonzero(~used).tolist()
    }
    slowest = float(times.total.max())
    return PredictedPipeline(slowest, float(times.total.sum()), assignment.lower_bound, tuple(stages), idle)


def _why_idle(model: Model, allowed: NDArray[np.bool_], number: int, assignment: StageAssignment) -> str:
    if not allowed[number].any():
        return "it supports only nodes that are pinned to other devices"
    slowest = assignment.times.slowest
    if assignment.with_all is not None and np.isfinite(assignment.with_all):
        with_all = duration(assignment.with_all)
        return f"with all devices in use the slowest stage would take {with_all}, not {duration(slowest)}"
    graph, folded = model.graph, constant_nodes(model)
    here = np.flatnonzero(allowed[number] if folded is None else allowed[number] & ~folded)
    first, last = stage_ranges(graph, allowed)
    if not len(here) or ((first[here] <= number) & (last[here] >= number)).any():
        return "the nodes that it supports cannot form a stage between the stages of the other devices"
    # Of two stages, without and with the other devices: whether the nodes come after, or before, nodes of the others.
    anywhere = np.ones_like(allowed[number])
    first, _ = stage_ranges(graph, np.stack([allowed[number], anywhere]))
    _, last = stage_ranges(graph, np.stack([anywhere, allowed[number]]))
    causes, places = [], []
    if (first[here] == 1).all():
        cause = _named(model, _cause(graph.predecessors, first, int(here[0])))
        causes.append(f"each node that it supports depends on nodes of other devices, such as {cause}")
        places.append("before it")
    if (last[here] == 0).all():
        cause = _named(model, _cause(graph.successors, last, int(here[-1])))
        causes.append(f"nodes of other devices, such as {cause}, depend on each node that it supports")
        places.append("after it")
    if not causes:
        return "the nodes that it supports cannot form a stage between the stages of the other devices"
    return f"{', and '.join(causes)}; list a device for these nodes {' and another one '.join(places)}"


def _in_words(model: Model, affinity: Affinity, allowed: NDArray[np.bool_], error: PipelineError) -> PipelineError:
    """The same error with names: the node, its possible stages, and the node that it depends on."""
    devices = affinity.devices

    def places(node: int) -> str:
        possible = [f"{s + 1} ({devices[s]})" for s in np.flatnonzero(allowed[:, node]).tolist()]
        where = f"only in stage {' or '.join(possible)}"
        if affinity.origin[node] != Origin.PRIORITY:
            return f"{where}: {affinity.reason(node)}"
        refused = (affinity.refusal(s, node) for s in range(len(devices)))
        whys = [f"{device}: {why}" for device, why in zip(devices, refused, strict=True) if why is not None]
        return f"{where}: {'; '.join(whys)}"

    text = (
        f"no pipeline over {', '.join(devices)} in this order: node {_named(model, error.node)} can be "
        f"{places(error.node)}"
    )
    if error.before is not None:
        first, _ = stage_ranges(model.graph, np.vstack([allowed, np.ones_like(allowed[:1])]))
        cause = _cause(model.graph.predecessors, first, error.before)
        text += (
            f"; a node that it depends on is in stage {error.earliest + 1} ({devices[error.earliest]}) or later, "
            f"because node {_named(model, cause)} can be {places(cause)}. List the devices in another order, "
            "or change the pins"
        )
    return PipelineError(text, error.node, error.earliest, error.before)


def _cause(next_nodes: Callable[[int], NDArray[np.int32]], stage_of: NDArray[np.int32], node: int) -> int:
    """The node itself, or the last one found by following ``next_nodes`` within its stage: the one that has to be in
    this stage by itself."""
    while True:
        alike = [other for other in next_nodes(node).tolist() if stage_of[other] == stage_of[node]]
        if not alike:
            return node
        node = alike[0]


def _named(model: Model, node: int) -> str:
    return f"{short(model.key_of(node))!r} ({model.op_types[model.op_type_of[node]]})"
