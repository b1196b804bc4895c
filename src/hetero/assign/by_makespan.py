"""Stage 2 and 3 for the minimum latency with devices in parallel (``OBJECTIVE=LATENCY``).

Applies `hetero.assign.schedule` to a model and its devices. Pins, affinities and memory limits apply, and a node goes
only to devices that support it. The plan that `by_cost` makes competes, so the prediction is never slower than its.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..partition import Partition, partition_graph
from .affinity import Affinity, Origin, first_supporting
from .assignment import Assignment
from .by_cost import checked_table, least_cost, moved_by_cost, sources_of
from .costs.table import CostTable
from .cuts import AssignmentProblem, predict
from .memory.fit import Fit, fit
from .memory.footprint import Footprint, footprint
from .memory.values import Values, values_of
from .predictions import PredictedLatency
from .request import AssignmentRules, Objective, ProcessorUse
from .schedule import Room, ScheduledPartition, Scheduler, assignments, fewest_of_the_fastest, improved, is_worth
from .within_memory import allowed_devices, fit_affinity, limits_array, moved_for_memory

if TYPE_CHECKING:
    from ..model.model import Model
    from .with_readers import WithReaders

__all__ = ["assign_to_overlap", "predicted_overlap", "predicted_without_pins", "scheduler_of"]

_ALWAYS_BY_COST = 20_000
"""Nodes of models for which the assignment by cost, and with memory limits those that are reduced to them, always
compete. For larger models, the assignment by cost is left out if another plan that fits is faster than any plan with
subgraphs one after the other, because minimum cuts and reducing take most of the time."""

_ROUNDS = 3  # of list scheduling within limits, each with less room for constants

SLOWDOWN = 0.11
"""The share by which each other active device slows down a device on processors of this machine, because they share a
memory bus. `bench/latency.py sharing` measured 1 to 11 % with GoogLeNet on an idle machine; matrix products do not slow
each other down, and nodes that only move memory can take several times as long."""


CUT_SECONDS = 20e-6
"""The overhead of a subgraph on processors of this machine, in seconds, in addition to its launch and the times of its
nodes in the whole model: the values that it reads have left the caches, and a Concat whose operands other subgraphs
made copies them. The 46 subgraphs of GoogLeNet together take up to 8 % more CPU time than the whole model, which is up
to 35 µs each (`bench/latency.py cuts`)."""


def scheduler_of(table: CostTable, problem: AssignmentProblem, processors: ProcessorUse) -> Scheduler:
    """The scheduler for a model. Devices that have more threads than the machine has processors are in one lane."""
    count = len(table.devices)
    threads = np.array(processors.threads or [0] * count)
    lane = np.arange(count + 1)
    if processors.is_crowded:
        lane[:count][threads > 0] = np.flatnonzero(threads > 0)[0]
    shares = np.append(threads > 0, False)
    launches = table.launches + np.where(shares, CUT_SECONDS, 0.0)
    return Scheduler(table.model.graph, problem, launches, lane, shares, SLOWDOWN)


def assign_to_overlap(
    original: Model, model: Model, affinity: Affinity, rules: AssignmentRules, readers: WithReaders
) -> Assignment:
    """The assignment and the cut of minimum predicted latency with devices in parallel.

    ``original``: the model before calls of functions were inlined, for which costs may have been measured.
    ``affinity``: by priority; its pins are kept, and with `Objective.OVERLAP_BY_PRIORITY` all its devices. ``readers``:
    as for `fit_affinity`. Raises `WrongModel` for costs of another model, `PropertyError` for costs that cover none of
    the devices, and `InsufficientMemory` if no assignment is found that fits.
    """
    table = checked_table(original, model, affinity, rules)
    search = _on_their_devices if rules.objective is Objective.OVERLAP_BY_PRIORITY else _on_any_device
    return search(original, table, affinity, rules, readers)


def _on_their_devices(
    original: Model, table: CostTable, affinity: Affinity, rules: AssignmentRules, readers: WithReaders
) -> Assignment:
    model, room = table.model, _Room(table.model, affinity, rules.limits)
    scheduler = scheduler_of(table, table.problem(_supported(affinity)), rules.processors)
    if rules.limits:
        moved, partition = fit_affinity(model, affinity, rules.limits, readers, rules.policy)
    else:
        moved, partition = affinity, partition_graph(model.graph, affinity.device_of, rules.policy)
    first = room.in_turn_unless_fits(scheduler, partition)
    cuts = [first, *scheduler.cuts(moved.device_of, rules.policy)]
    best = fewest_of_the_fastest([cut for cut in cuts if room.fits(cut)], first.latency)
    memory_binds = best.latency > fewest_of_the_fastest(cuts, first.latency).latency
    best = scheduler.numbered_by_start(best)
    latency = _predicted(scheduler, table, best, first.latency, memory_binds)
    return Assignment(original, model, moved, best.partition, latency=latency, costs=table, scheduler=scheduler)


def _on_any_device(
    original: Model, table: CostTable, affinity: Affinity, rules: AssignmentRules, readers: WithReaders
) -> Assignment:
    model, room = table.model, _Room(table.model, affinity, rules.limits)
    allowed = allowed_devices(affinity)
    scheduler = scheduler_of(table, table.problem(allowed), rules.processors)
    by_priority = scheduler.as_numbered(partition_graph(model.graph, affinity.device_of, rules.policy))
    labelings = assignments(scheduler, [affinity.device_of, *_alone(allowed)])
    candidates = [(labeling, scheduler.cuts(labeling, rules.policy)) for labeling in labelings]
    cuts = [by_priority, *(cut for _, its_cuts in candidates for cut in its_cuts)]
    # No plan that runs its subgraphs one after the other takes less than each node on its fastest device.
    sequential = float(scheduler.problem.work[:, : model.num_nodes].min(axis=0).sum())
    fastest = best = fewest_of_the_fastest(cuts, by_priority.latency)
    is_large = model.num_nodes > _ALWAYS_BY_COST
    fitting = room.fastest_fitting(cuts)
    if not room.fits(fastest):
        fitting = room.fastest_fitting([*fitting, *room.scheduled_within(scheduler, cuts, rules.policy)])
        best = fewest_of_the_fastest(fitting) if fitting else best
    if not is_large or not fitting or not is_worth(sequential, min(cut.latency for cut in fitting)):
        known = least_cost(table, affinity, rules, readers, bound=False)
        by_cost = room.in_turn_unless_fits(scheduler, known.best.partition)
        unlimited = scheduler.as_numbered(known.unlimited.partition)
        candidates.append(
            (known.unlimited.device_of, [unlimited, *scheduler.cuts(known.unlimited.device_of, rules.policy)])
        )
        cuts += candidates[-1][1]
        cuts.append(improved(scheduler, cuts))
        fastest = best = fewest_of_the_fastest(cuts, min(by_priority.latency, unlimited.latency))
        if not room.fits(fastest):
            fitting = room.fastest_fitting([*fitting, by_cost, *candidates[-1][1], cuts[-1]])
            if not is_large:
                fitting += room.reduced(fitting, scheduler, candidates, allowed, rules.policy)
            at_most = min(by_cost.latency, by_priority.latency if room.fits(by_priority) else np.inf)
            best = fewest_of_the_fastest(fitting, at_most)
    memory_binds = best is not fastest
    best = _together(scheduler, readers, room, best, rules.policy)
    fastest = fastest if memory_binds else best
    moved = moved_by_cost(affinity, table, _devices(fastest))
    if memory_binds:
        moved = moved_for_memory(moved, room.fit_of(best), room.max_bytes)
    moved = readers.with_reasons(moved)
    best = scheduler.numbered_by_start(best)
    latency = _predicted(scheduler, table, best, by_priority.latency, memory_binds)
    return Assignment(original, model, moved, best.partition, latency=latency, costs=table, scheduler=scheduler)


def _together(
    scheduler: Scheduler, readers: WithReaders, room: _Room, best: ScheduledPartition, policy: str
) -> ScheduledPartition:
    """The best cut with nodes moved to their readers, if it fits and is not slower."""
    devices = _devices(best)
    placed = readers.place(devices)
    if placed is devices:
        return best
    cuts = [cut for cut in scheduler.cuts(placed, policy) if cut.latency <= best.latency and room.fits(cut)]
    return fewest_of_the_fastest(cuts, best.latency) if cuts else best


def predicted_overlap(
    original: Model, model: Model, affinity: Affinity, rules: AssignmentRules, partition: Partition
) -> tuple[float, float]:
    """Seconds: the predicted latency of a plan, and of the best one that a quick search finds within the memory limits,
    or infinity if devices do not run in parallel in that. ``affinity``, ``partition``: of the plan. The search skips
    assignments whose gain would not be worth the change."""
    table = checked_table(original, model, affinity, rules)
    allowed, room = _free(affinity), _Room(table.model, affinity, rules.limits)
    scheduler = scheduler_of(table, table.problem(allowed), rules.processors)
    run = scheduler.in_turn if rules.limits else scheduler.as_numbered  # a plan within limits does not overlap
    before = run(partition).latency
    alone = [cut for labeling in _alone(allowed) for cut in scheduler.cuts(labeling)]
    at_most = min([before, *(cut.latency for cut in room.fastest_fitting(alone))])
    faster = [
        cut
        for labeling in assignments(scheduler, [affinity.device_of])
        if is_worth(at_most, scheduler.busy_bound(labeling))
        for cut in scheduler.cuts(labeling)
    ]
    fitting = room.fastest_fitting([*alone, *faster])
    best = fewest_of_the_fastest(fitting, before) if fitting else None
    return before, best.latency if best is not None and best.timeline.overlaps else np.inf


def predicted_without_pins(original: Model, model: Model, affinity: Affinity, rules: AssignmentRules) -> float:
    """The latency in seconds of the best plan of a quick search without pins and affinities, with the devices that
    ``rules`` allow. Memory limits are ignored."""
    table = checked_table(original, model, affinity, rules)
    supported = _supported(affinity)
    scheduler = scheduler_of(table, table.problem(supported), rules.processors)
    labelings = [first_supporting(model.num_nodes, affinity.supports)]
    if rules.objective is not Objective.OVERLAP_BY_PRIORITY:
        labelings = assignments(scheduler, [*labelings, *_alone(supported)])
    return min(cut.latency for labeling in labelings for cut in scheduler.cuts(labeling))


def _alone(allowed: NDArray[np.bool_]) -> list[NDArray[np.int32]]:
    """The assignments to one device that supports all nodes."""
    return [np.full(allowed.shape[1], device, np.int32) for device in np.flatnonzero(allowed.all(axis=1)).tolist()]


def _free(affinity: Affinity) -> NDArray[np.bool_]:
    """bool [k, num_nodes]: the possible devices of each node, if those that moved are free again."""
    origin = np.where(np.isin(affinity.origin, (Origin.COST, Origin.MEMORY)), Origin.PRIORITY, affinity.origin)
    return allowed_devices(dataclasses.replace(affinity, origin=origin))


def _devices(cut: ScheduledPartition) -> NDArray[np.int32]:
    return np.asarray(cut.partition.device_of[cut.partition.subgraph_of], np.int32)


def _supported(affinity: Affinity) -> NDArray[np.bool_]:
    return np.stack([support.mask for support in affinity.supports])


@dataclasses.dataclass(frozen=True, eq=False)
class _Room:
    """The memory limits of a plan."""

    model: Model
    affinity: Affinity
    limits: Mapping[str, int]
    _needs: dict[ScheduledPartition, Footprint] = dataclasses.field(default_factory=dict)

    @property
    def devices(self) -> Sequence[str]:
        return self.affinity.devices

    @property
    def max_bytes(self) -> NDArray[np.float64]:
        return limits_array(self.devices, self.limits)

    def needs(self, cut: ScheduledPartition) -> Footprint:
        if cut not in self._needs:
            partition, timeline = cut.partition, cut.timeline
            times = (timeline.begin, timeline.end) if timeline.overlaps else None
            count = len(self.devices)
            self._needs[cut] = footprint(self._values, partition.subgraph_of, partition.device_of, count, times)
        return self._needs[cut]

    def fits(self, cut: ScheduledPartition) -> bool:
        return not self.limits or bool((self.needs(cut).total <= self.max_bytes).all())

    def fastest_fitting(self, cuts: Sequence[ScheduledPartition]) -> list[ScheduledPartition]:
        """The fastest cut that fits, and those that fit and are slower by less than the minimum gain."""
        fitting: list[ScheduledPartition] = []
        for cut in sorted(cuts, key=lambda cut: cut.latency):
            if fitting and is_worth(cut.latency, fitting[0].latency):
                break
            if self.fits(cut):
                fitting.append(cut)
        return fitting

    def in_turn_unless_fits(self, scheduler: Scheduler, partition: Partition) -> ScheduledPartition:
        """The run of a partition that fits with subgraphs one after the other, which may not fit if they overlap."""
        cut = scheduler.as_numbered(partition)
        return cut if self.fits(cut) else scheduler.in_turn(partition)

    def fit_of(self, cut: ScheduledPartition) -> Fit:
        needs = self.needs(cut)
        return Fit(_devices(cut), cut.partition, needs, np.maximum(needs.total - self.max_bytes, 0.0))

    def scheduled_within(
        self, scheduler: Scheduler, cuts: Sequence[ScheduledPartition], policy: str
    ) -> list[ScheduledPartition]:
        """The cuts that fit, from list scheduling within the limits, of single nodes and of chains. ``cuts``: those of
        the plans without limits; the activations of the fastest leave so much room for constants at first."""
        values = self._values
        read = np.flatnonzero(values.is_constant[values.read_value])
        constants, number = np.unique(values.read_value[read], return_inverse=True)
        count = len(self.devices)
        left = np.zeros(scheduler.problem.num_devices)  # the host takes no nodes
        left[:count] = self.max_bytes - self.needs(min(cuts, key=lambda cut: cut.latency)).activations
        of_all = Room(values.read_node[read], number.astype(np.int32), values.bytes[constants], values.own, left)
        fitting: list[ScheduledPartition] = []
        for assign in (scheduler.assign, scheduler.assign_chains):
            room = of_all
            for _ in range(_ROUNDS):
                scheduled = scheduler.cuts(assign(room), policy)
                if found := self.fastest_fitting(scheduled):
                    fitting += found
                    break
                excess = min((np.maximum(self.needs(cut).total - self.max_bytes, 0.0) for cut in scheduled), key=np.sum)
                room = room._replace(limits=room.limits - np.pad(excess, (0, len(left) - count)))
        return fitting

    def reduced(
        self,
        known: Sequence[ScheduledPartition],
        scheduler: Scheduler,
        candidates: Sequence[tuple[NDArray[np.int32], Sequence[ScheduledPartition]]],
        allowed: NDArray[np.bool_],
        policy: str,
    ) -> list[ScheduledPartition]:
        """The cuts that fit, of assignments reduced to the limits. ``known``: cuts that fit, at least one.
        ``candidates``: assignments and their cuts. As a reduced assignment is hardly faster than the whole one, the
        fastest come first, and those that are slower than a cut that fits are left out."""
        work = scheduler.problem.work[: len(self.devices), : self.model.num_nodes]
        least = min(cut.latency for cut in known)
        fitting: list[ScheduledPartition] = []
        for whole, labeling in sorted(
            ((min(cut.latency for cut in its_cuts), labeling) for labeling, its_cuts in candidates),
            key=lambda candidate: candidate[0],
        ):
            if whole >= least:
                break
            fitted = fit(
                self._values,
                labeling,
                allowed,
                self.max_bytes,
                lambda device: partition_graph(self.model.graph, device, policy),
                work,
            )
            if fitted.fits:
                fitting += [cut for cut in scheduler.cuts(fitted.device_of, policy) if self.fits(cut)]
                least = min(least, *(cut.latency for cut in fitting)) if fitting else least
        return fitting

    @functools.cached_property
    def _values(self) -> Values:
        return values_of(self.model, units=self.affinity.units)


def _predicted(
    scheduler: Scheduler, table: CostTable, best: ScheduledPartition, by_priority: float, memory_binds: bool
) -> PredictedLatency:
    """``by_priority``: the latency of the plan by priority, in seconds."""
    timeline = best.timeline
    sums = predict(scheduler.problem, best.partition, scheduler.launch)
    return PredictedLatency(
        timeline.latency,
        sums.work,
        sums.launches,
        sums.transfers,
        min(scheduler.lower_bound(), timeline.latency),
        by_priority,
        sources_of(table, _devices(best)),
        memory_binds,
        timeline.overlaps,
        tuple(timeline.begin.tolist()),
        tuple(timeline.end.tolist()),
    )
