"""Warnings of a plan: unused devices, tiny islands, pins that cost subgraphs, devices that wait for each other."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..assign import within_memory
from ..assign.affinity import Origin, first_supporting
from ..assign.costs.measured import WrongModel
from ..assign.predictions import PredictedLatency, PredictedPipeline
from ..assign.request import Objective
from ..assign.schedule import is_worth
from ..base.formatting import counted, duration
from ..base.grouped import group_max, group_min
from ..base.names import first_few
from ..errors import PartitionError, PropertyError
from .schema import PlanWarning
from .trial import Trials

if TYPE_CHECKING:
    from ..assign.assignment import Assignment
    from ..partition import Graph, Partition
    from .bound import BoundPlan

__all__ = ["is_for_latency", "plan_warnings", "repeated_devices", "slower_in_turn", "unknown_sizes"]

_VALUE = re.compile(r""" in (['"]).*\1$""", re.DOTALL)
_TINY = 3  # maximum number of nodes of an island
_FEW = 5  # nodes and subgraphs that a warning names
_MOST_PINS = 32  # maximum number of pins to try
_MOST_NODES_TO_OVERLAP = 100_000  # 0.1 to 0.6 s


def plan_warnings(plan: BoundPlan) -> tuple[PlanWarning, ...]:
    """The warnings of a plan. Partitions the model again without each pin and island, within the limit of
    `Trials`."""
    assignment = plan.assignment
    if plan.pipeline is not None:  # the other warnings are about fewer subgraphs
        return (*_unavailable(plan), *_idle(plan.pipeline), *unknown_sizes(plan))
    if is_for_latency(plan):  # has more subgraphs for the sake of time
        return (
            *_unavailable(plan),
            *_unused(assignment),
            *unknown_sizes(plan),
            *_crowded(plan),
            *_in_turn(plan),
            *_slow_pins(plan),
        )
    trials = Trials(plan)
    return (
        *_unavailable(plan),
        *_unused(assignment),
        *unknown_sizes(plan),
        *_pins(plan, trials),
        *_islands(assignment, trials),
        *_waiting(plan),
    )


def is_for_latency(plan: BoundPlan) -> bool:
    """Whether the plan was made with ``OBJECTIVE=LATENCY``, also if it was loaded from a file."""
    objectives = (Objective.OVERLAP, Objective.OVERLAP_BY_PRIORITY)
    return plan.rules.objective in objectives or (plan.latency is not None and bool(plan.latency.begin_s))


def _crowded(plan: BoundPlan) -> Iterator[PlanWarning]:
    """Devices that ``OBJECTIVE=LATENCY`` cannot use in parallel, because they use the same processors."""
    use = plan.rules.processors
    if not use.is_crowded:
        return
    devices = [device for device, count in zip(plan.devices, use.threads, strict=True) if count]
    threads = f"; set INFERENCE_NUM_THREADS={use.processors // len(devices)}" if use.processors >= len(devices) else ""
    yield PlanWarning(
        "overlap",
        f"{', '.join(devices)} have {sum(use.threads)} threads on {counted(use.processors, 'processor')}, so the plan "
        f"does not run them in parallel{threads}",
    )


def _in_turn(plan: BoundPlan) -> Iterator[PlanWarning]:
    """A plan whose subgraphs overlap, for a model that runs them one after the other."""
    if plan.rules.in_turn and plan.latency is not None and plan.latency.overlaps:
        yield PlanWarning("overlap", slower_in_turn(plan.latency))


def slower_in_turn(latency: PredictedLatency) -> str:
    """The text for a plan whose subgraphs overlap, with ``PERFORMANCE_HINT=THROUGHPUT``."""
    in_turn = latency.work_s + latency.launches_s + latency.transfers_s
    return (
        f"PERFORMANCE_HINT=THROUGHPUT runs the subgraphs of an inference one after the other: predicted "
        f"{duration(in_turn)} instead of {duration(latency.total_s)} for one inference; without OBJECTIVE=LATENCY, a "
        "plan has fewer subgraphs"
    )


def _slow_pins(plan: BoundPlan) -> Iterator[PlanWarning]:
    """Pins and affinities that make a plan for the minimum latency slower. Tried as in `_waiting`."""
    rules, assignment, latency = plan.rules, plan.assignment, plan.latency
    model, affinity = assignment.model, assignment.affinity
    pinned = np.flatnonzero(np.isin(affinity.origin, (Origin.PIN, Origin.MODEL)))
    if not len(pinned) or latency is None or not rules.speeds or rules.limits:
        return
    if model.num_nodes > _MOST_NODES_TO_OVERLAP:
        return
    from ..assign.by_cost import CAUTION
    from ..assign.by_makespan import predicted_without_pins

    before, without = latency.total_s, predicted_without_pins(plan.original, model, affinity, rules)
    if is_worth(before, without) and without <= before * (1 - CAUTION / 2):
        what = "affinities in the model" if (affinity.origin[pinned] == Origin.MODEL).all() else "pins"
        yield PlanWarning(
            "pin",
            f"{what} ({counted(len(pinned), 'node')}) cost time: predicted {duration(before)} with, "
            f"{duration(without)} without",
            nodes=tuple(model.key_of(node) for node in pinned[:_FEW].tolist()),
        )


def _waiting(plan: BoundPlan) -> Iterator[PlanWarning]:
    """Devices that wait for each other although they could run in parallel. Tried for models of up to
    `_MOST_NODES_TO_OVERLAP` nodes; plans for throughput are left out."""
    rules, assignment = plan.rules, plan.assignment
    model, affinity = assignment.model, assignment.affinity
    if not rules.speeds or rules.in_turn or len(affinity.devices) < 2:
        return
    if not 1 < model.num_nodes <= _MOST_NODES_TO_OVERLAP or len(rules.speeds) != len(affinity.devices):
        return
    if _is_sequence(model.graph):
        return
    from ..assign.by_cost import CAUTION
    from ..assign.by_makespan import predicted_overlap

    try:
        try:
            before, after = predicted_overlap(plan.original, model, affinity, rules, assignment.partition)
        except (WrongModel, PropertyError):  # costs that are set for other models do not matter to a plan by priority
            rules = dataclasses.replace(rules, costs=None)
            before, after = predicted_overlap(plan.original, model, affinity, rules, assignment.partition)
    except PartitionError:  # costs whose sum overflows say nothing
        return
    if is_worth(before, after) and after <= before * (1 - CAUTION / 2):  # predictions for mixed plans are too low
        costs = "estimated costs" if rules.costs is None else "measured costs"
        yield PlanWarning(
            "overlap",
            f"with OBJECTIVE=LATENCY, devices would run in parallel: predicted {duration(after)} instead of "
            f"{duration(before)} for one inference ({costs})",
        )


def _is_sequence(graph: Graph) -> bool:
    """Whether each node reads a result of the node before it, so no partition has subgraphs that run in parallel."""
    node = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    return int(np.count_nonzero(graph.indices == node + 1)) == graph.num_nodes - 1


def _unavailable(plan: BoundPlan) -> Iterator[PlanWarning]:
    for device, why in plan.skipped.items():
        yield PlanWarning("unavailable", f"{device} is left out: {why}", device)


def _idle(pipeline: PredictedPipeline) -> Iterator[PlanWarning]:
    for device, why in pipeline.idle.items():
        yield PlanWarning("unused", f"{device} has no stage: {why}", device)


def _unused(assignment: Assignment) -> Iterator[PlanWarning]:
    model, affinity = assignment.model, assignment.affinity
    used = np.bincount(affinity.device_of, minlength=len(affinity.devices))
    for number in np.flatnonzero(used == 0).tolist():
        device, support = affinity.devices[number], affinity.supports[number]
        takes = int(np.count_nonzero(support.mask))
        if not model.num_nodes or affinity.notes():  # it may have nodes of a body
            continue
        if takes:
            origins = affinity.origin[support.mask]
            are = "is on a device" if takes == 1 else "are on devices"
            why = f"the {counted(takes, 'node')} that it supports {are} before it, or pinned elsewhere"
            if twin := _twin(device, affinity.devices):
                why = f"the list also has {twin}, the same device; remove one of them, or pin nodes to {device}"
            if moved := int(np.count_nonzero(origins == Origin.MEMORY)):
                why = f"{moved} of the {counted(takes, 'node')} that it supports moved because of memory limits"
            elif moved := int(np.count_nonzero(origins == Origin.COST)):
                why = f"{moved} of the {counted(takes, 'node')} that it supports are predicted to be faster elsewhere"
        else:
            # Nodes that differ only in the value that a reason names count together.
            reasons = Counter(_VALUE.sub("", reason) for reason in support.reasons.values()).most_common(3)
            main_reasons = "; ".join(f"{counted(count, 'node')}: {reason}" for reason, count in reasons)
            own = (affinity.answers or affinity.supports)[number]
            none = "the constraints leave it none of" if own.mask.any() else "it supports none of"
            why = f"{none} the {counted(model.num_nodes, 'node')}" + (f" ({main_reasons})" if main_reasons else "")
        yield PlanWarning("unused", f"{device} has no node: {why}", device)


def repeated_devices(assignment: Assignment, limits: Mapping[str, int]) -> Iterator[PlanWarning]:
    """Devices without nodes that are in the list twice, as ``CPU`` and ``CPU.0``, and do not relieve a limit."""
    devices = assignment.affinity.devices
    twins = {device: _twin(device, devices) for device in devices}
    useless = {device for device, twin in twins.items() if twin is not None and twin not in limits}
    if useless:
        yield from (entry for entry in _unused(assignment) if entry.device in useless)


def _twin(device: str, devices: Sequence[str]) -> str | None:
    """The entry of the list that names the same device without an id, or if ``device`` has none, with an id."""
    name, _, id_ = device.partition(".")
    others = (other for other in devices if other != device and other.partition(".")[0] == name)
    return next((other for other in others if not id_ or other == name), None)


def unknown_sizes(plan: BoundPlan) -> Iterator[PlanWarning]:
    """Devices whose limit may not hold because some values have an unknown size, and how to state the sizes."""
    model, needs = plan.assignment.model, plan.footprint
    for device, message in within_memory.unknown_sizes(model, plan.devices, plan.limits, needs, plan.footprint_of):
        yield PlanWarning("memory", message, device)


def _pins(plan: BoundPlan, trials: Trials) -> Iterator[PlanWarning]:
    """Pins that cost subgraphs, compared with assigning their nodes by priority."""
    assignment = plan.assignment
    model, affinity, partition = assignment.model, assignment.affinity, assignment.partition
    automatic = first_supporting(model.num_nodes, affinity.supports)
    by_pin: dict[str, list[int]] = {}
    for node, placed_by in affinity.pins.items():
        by_pin.setdefault(placed_by, []).append(node)
    groups: list[tuple[str | None, str, NDArray[np.intp]]] = [
        (pin, f"the pin {pin!r} to {plan.pins.get(pin, '?')}", np.array(sorted(nodes), np.intp))
        for pin, nodes in list(by_pin.items())[:_MOST_PINS]
    ]
    groups.append((None, "affinities in the model", np.flatnonzero(affinity.origin == Origin.MODEL)))
    groups.append((None, "devices set in the plan", np.flatnonzero(affinity.origin == Origin.PLAN)))
    for pin, what, nodes in groups:
        nodes = nodes[(automatic[nodes] >= 0) & (automatic[nodes] != affinity.device_of[nodes])]
        if not len(nodes):
            continue
        device_of = affinity.device_of.copy()
        device_of[nodes] = automatic[nodes]
        without = trials.partition(device_of)
        if without is None:
            return
        before, after = partition.num_subgraphs, without.num_subgraphs
        if after >= before:
            continue
        yield PlanWarning(
            "pin",
            f"{what} ({counted(len(nodes), 'node')}) cost{'s' if pin is not None else ''} "
            f"{counted(before - after, 'subgraph')}: {before} with, {after} without",
            None if pin is None else plan.pins.get(pin),
            pin,
            tuple(model.key_of(node) for node in nodes[:_FEW].tolist()),
            tuple((np.unique(partition.subgraph_of[nodes])[:_FEW] + 1).tolist()),
            after,
        )


def _islands(assignment: Assignment, trials: Trials) -> Iterator[PlanWarning]:
    """Subgraphs of few nodes whose neighbors are all on one other device, by device and surrounding device."""
    affinity, partition = assignment.affinity, assignment.partition
    around = _surrounding(partition)
    pinned = np.zeros(partition.num_subgraphs, np.bool_)
    pinned[partition.subgraph_of[affinity.origin != Origin.PRIORITY]] = True
    count = len(affinity.devices)
    for device in range(count):
        for other in range(count):
            islands = np.flatnonzero((around == other) & (partition.device_of == device) & ~pinned)
            if not len(islands):
                continue
            nodes = np.flatnonzero(np.isin(partition.subgraph_of, islands))
            supported = affinity.supports[other].mask[nodes]
            refused = np.unique(partition.subgraph_of[nodes[~supported]])
            for able, group in ((True, np.setdiff1d(islands, refused)), (False, refused)):
                if len(group):
                    yield _island_warning(assignment, trials, device, other, group, able)


def _island_warning(
    assignment: Assignment, trials: Trials, device: int, other: int, group: NDArray[np.int32], able: bool
) -> PlanWarning:
    model, affinity, partition = assignment.model, assignment.affinity, assignment.partition
    nodes = np.flatnonzero(np.isin(partition.subgraph_of, group))
    name, surrounding = affinity.devices[device], affinity.devices[other]
    keys = [model.key_of(node) for node in nodes[:_FEW].tolist()]
    after = None
    if able:
        advice = f"{surrounding} also supports {'it' if len(nodes) == 1 else 'them'}"
        device_of = affinity.device_of.copy()
        device_of[nodes] = other
        merged = trials.partition(device_of)
        if merged is not None:
            after = merged.num_subgraphs
            advice += (
                f": pinned there, the model has {counted(after, 'subgraph')} instead of {partition.num_subgraphs:,}"
            )
    else:
        mask = affinity.supports[other].mask
        supported = (affinity.answers or affinity.supports)[other].mask
        ops = Counter(model.op_type_of[nodes[~supported[nodes]]].tolist())
        parts = []
        if ops:
            common_ops = ", ".join(f"{model.op_types[op]} ({number:,})" for op, number in ops.most_common(3))
            elsewhere = supported[np.isin(model.op_type_of, list(ops))].any()  # as a profile with patterns does
            parts.append(
                f"{surrounding} does not support {common_ops}{', ...' if len(ops) > 3 else ''}"
                f"{' in these places' if elsewhere else ''}"
            )
        if kept_off := int(np.count_nonzero(supported[nodes] & ~mask[nodes])):
            parts.append(f"constraints keep {counted(kept_off, 'node')} off {surrounding}")
        advice = ", and ".join(parts)
    return PlanWarning(
        "islands",
        f"{counted(len(group), 'tiny island')} on {name} next to subgraphs of {surrounding}, "
        f"{counted(len(nodes), 'node')} in total "
        f"({first_few(keys, 3, len(nodes))}); {advice}",
        name,
        None,
        tuple(keys),
        tuple((group[:_FEW] + 1).tolist()),
        after,
    )


def _surrounding(partition: Partition) -> NDArray[np.int32]:
    """int32[num_subgraphs]: for an island, the device of all its neighbors; -1 for other subgraphs. An island is tiny,
    its neighbors are on one other device, and they have more nodes."""
    count = partition.num_subgraphs
    quotient = partition.quotient
    sizes = np.bincount(partition.subgraph_of, minlength=count)
    none = np.iinfo(np.int32).max
    lowest = np.full(count, none, np.int64)
    highest = np.full(count, -1, np.int64)
    nearby = np.zeros(count, np.int64)
    source = np.repeat(np.arange(count), np.diff(quotient.indptr))
    target = quotient.indices
    for here, there in ((source, target), (target, source)):
        np.minimum(lowest, group_min(partition.device_of[there], here, count, none), out=lowest)
        np.maximum(highest, group_max(partition.device_of[there], here, count, -1), out=highest)
        nearby += np.bincount(here, sizes[there], count).astype(np.int64)
    is_island = (lowest == highest) & (highest != partition.device_of) & (sizes <= _TINY) & (nearby > sizes)
    return np.where(is_island, highest, -1).astype(np.int32)
