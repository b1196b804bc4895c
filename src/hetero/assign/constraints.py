"""Constraints on assignments: units, sizes and numbers of subgraphs, and nodes that go to one device.

Each objective has its own solver, and none of them knows these constraints. They hold because they restrict the
devices' answers (`Affinity.supports`), which every solver obeys:

1. What follows from the answers and pins alone is restricted first: all nodes of a group go only to devices that
   support each of them, and a device supports a node of a unit only while one of its units is complete.
2. The model is assigned and cut. Nodes of units that the cut has split move to one of their subgraphs if they can.
   Where the result still breaks a constraint, the device no longer supports the nodes concerned, and 2 is repeated.
   Each round removes at least one device from a node, so this ends.

The reason for each removal takes the place of a device's own reason, so `explain` and errors show it. Step 2 is greedy:
it finds an assignment that satisfies the constraints, not always the best one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..base.formatting import counted
from ..base.names import first_few, short
from ..base.warn import warn
from ..errors import InsufficientMemory, PropertyError, UnsupportedModel
from ..partition import Graph, Partition
from ..partition.check import broken_rule
from .affinity import Affinity, Origin, first_supporting, place
from .assignment import Assignment
from .copies import passing, wide_cuts
from .costs.estimate import estimate_work
from .costs.sizes import ASSUMED_BATCH, ASSUMED_DIM
from .memory.footprint import footprint
from .memory.values import values_of
from .pins import find_nodes, matches_any, matches_outside, outer_nodes
from .pipeline import PipelineError
from .request import AssignmentRules, Objective
from .within_memory import how_to_set_sizes

if TYPE_CHECKING:
    from ..model.model import Model

__all__ = ["assign_within_constraints", "check_constraints", "groups_of_body", "resolve_groups", "with_whole_units"]

_MOST_ROUNDS = 32
"""After this many rounds, a device whose constraints are still broken gets no further nodes by choice, so that it only
loses nodes: within a memory limit, each node that leaves makes room for another. After twice as many, it loses all."""
_MOST_PASSES = 8  # over the units that are in several subgraphs; nodes that would need more leave the device
_TRIAL_NODES = 200_000  # total nodes of all assignments that are tried to choose a device for groups

Solve = Callable[[Affinity], Assignment]
"""Assigns and cuts, without constraints."""


def resolve_groups(
    model: Model, together: Sequence[Sequence[str]], enclosing: Mapping[int, Sequence[str]] | None = None
) -> tuple[NDArray[np.int32], ...]:
    """The nodes of each group, ascending; groups with a common node become one. ``together``: each group as
    expressions like those of pins. An expression that matches nodes of one nested graph only is for `groups_of_body`.

    Raises `PropertyError` for an expression that matches nothing, and for one that would tie nodes of a nested graph
    to others."""
    group_of: dict[int, list[int]] = {}  # the same list for all nodes of a group
    for expressions in together:
        inner: dict[int, str] = {}  # node -> the expression that matches only in its nested graphs
        merged: set[int] = set()
        for text in expressions:
            found = [] if matches_outside(model, text, enclosing) else outer_nodes(model, text)
            inner.update(dict.fromkeys(found, text))
            merged.update(() if found else find_nodes(model, text, "STAY_TOGETHER", enclosing))
        if len(inner) > 1 or (inner and merged):
            (node, text), *others = inner.items()
            other = others[0][0] if others else min(merged)
            where = f"{'nodes inside those of ' if others else ''}{_named(model, other)}"
            raise PropertyError(
                f"STAY_TOGETHER {text!r} matches only nodes inside the graphs of {_named(model, node)}, which cannot "
                f"stay together with {where}: use one group for each graph"
            )
        for node in tuple(merged):
            merged.update(group_of.get(node, ()))
        nodes = sorted(merged)
        group_of.update(dict.fromkeys(nodes, nodes))
    firsts = [node for node, nodes in group_of.items() if node == nodes[0] and len(nodes) > 1]
    return tuple(np.array(group_of[node], np.int32) for node in sorted(firsts))


def groups_of_body(body: Model, together: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """The groups that apply in a nested graph: of each, the expressions that match its nodes."""
    groups = (tuple(text for text in expressions if matches_any(body, text)) for expressions in together)
    return tuple(filter(None, groups))


def assign_within_constraints(model: Model, affinity: Affinity, rules: AssignmentRules, solve: Solve) -> Assignment:
    """The assignment of ``solve`` that satisfies the constraints. ``affinity``: by priority, with its groups.

    Raises the errors of ``solve``; `PropertyError` for a group whose nodes are pinned to several devices, and
    `UnsupportedModel` for a group that no device supports as a whole, and for nodes whose devices are all ruled out.
    """
    has_units = any(support.units for support in affinity.supports)
    if not (affinity.groups or rules.least or rules.most or has_units):
        return solve(affinity)
    answers = _Answers(model, affinity)
    limits = _SubgraphLimits(model, affinity.devices, rules)
    assignment = solve(answers.affinity())
    rounds = 0
    while True:
        assignment = with_whole_units(assignment, rules, answers)
        broken = [*_incomplete(answers, assignment), *limits.broken(assignment)]
        if not broken:
            split = _split(affinity.groups, assignment.affinity.device_of)
            if not split:
                by_priority = rules.objective is Objective.PRIORITY and has_units
                return _with_narrow_cuts(answers, assignment, rules, limits, solve) if by_priority else assignment
            answers, assignment = _with_group_on_one_device(answers, split, assignment, solve)
            continue
        device = min(number for number, _, _ in broken)  # nodes go to later devices, whose subgraphs then grow
        for number, nodes, why in broken:
            if number == device:
                answers.leave(number, nodes, why)
        rounds += 1
        if rounds > _MOST_ROUNDS:
            leaving = affinity.origin == Origin.PRIORITY
            if rounds <= 2 * _MOST_ROUNDS:
                leaving &= assignment.affinity.device_of != device
            answers.remove(
                device, np.flatnonzero(leaving), f"{_MOST_ROUNDS} attempts with it did not satisfy the constraints"
            )
        answers.close()
        assignment = solve(answers.affinity())


def _with_narrow_cuts(
    answers: _Answers, assignment: Assignment, rules: AssignmentRules, limits: _SubgraphLimits, solve: Solve
) -> Assignment:
    """The assignment without the nodes of `wide_cuts`, if it satisfies the constraints and fewer bytes pass."""
    for _ in range(_MOST_PASSES):
        leaving = list(wide_cuts(assignment))
        if not leaving:
            break
        tried = answers.copy()
        for number, node, why in leaving:
            tried.remove(number, np.array([node]), why)
        tried.close()
        try:
            found = with_whole_units(solve(tried.affinity()), rules, tried)
        except (InsufficientMemory, UnsupportedModel):
            return assignment
        is_valid = not any(True for _ in (*_incomplete(tried, found), *limits.broken(found)))
        if not is_valid or _split(found.affinity.groups, found.affinity.device_of):
            return assignment
        if passing(found) >= passing(assignment) or found.partition.num_subgraphs > assignment.partition.num_subgraphs:
            return assignment
        answers, assignment = tried, found
    return assignment


def with_whole_units(assignment: Assignment, rules: AssignmentRules, answers: _Answers | None = None) -> Assignment:
    """The same assignment, in which nodes of units that the cut has split move to another subgraph of their device, so
    that more nodes are in a complete unit, within the memory limits. Predictions are those of the new partition. In a
    pipeline, the cut within a stage splits no unit, because each subgraph is a connected part."""
    if rules.objective is Objective.THROUGHPUT or not any(assignment.affinity.units):
        return assignment
    answers = answers or _Answers(assignment.model, assignment.affinity)
    lost = [(number, nodes) for number, nodes, _ in _incomplete(answers, assignment)]
    if not lost:
        return assignment
    partition, graph = assignment.partition, assignment.model.graph
    subgraph_of, device_of = partition.subgraph_of.copy(), assignment.affinity.device_of
    for number, nodes in lost:
        is_lost = np.zeros(graph.num_nodes, np.bool_)
        is_lost[nodes] = True
        is_movable = is_lost | _members([unit for unit in answers.units[number] if len(unit) == 1], graph.num_nodes)
        units = [unit for unit in answers.units[number] if is_lost[unit].any() and (device_of[unit] == number).all()]
        for unit in sorted(units, key=lambda unit: int(unit.max())):
            for part in np.unique(subgraph_of[unit]).tolist():
                moving = unit[subgraph_of[unit] != part]
                if len(moving) and is_movable[moving].all() and _may_move(graph, subgraph_of, moving, part):
                    subgraph_of[moving] = part
                    break
    kept, numbers = np.unique(subgraph_of, return_inverse=True)
    subgraph_of = numbers.astype(np.int32)
    if np.array_equal(subgraph_of, partition.subgraph_of):
        return assignment
    if broken_rule(graph, device_of, subgraph_of, ordered=True) is not None:
        return assignment
    source = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    cut = int(np.count_nonzero(subgraph_of[source] != subgraph_of[graph.indices]))
    moved = _with_partition(
        assignment, Partition(graph, partition.policy, subgraph_of, partition.device_of[kept], cut, float(cut))
    )
    if sum(len(nodes) for _, nodes, _ in _incomplete(answers, moved)) >= sum(len(nodes) for _, nodes in lost):
        return assignment
    if rules.limits:
        affinity, latency = assignment.affinity, moved.latency
        needs = footprint(
            values_of(assignment.model, units=affinity.units),
            moved.partition.subgraph_of,
            moved.partition.device_of,
            len(affinity.devices),
            (latency.begin_s, latency.end_s) if latency is not None and latency.overlaps else None,
        )
        if (needs.total > [rules.limits.get(device, np.inf) for device in affinity.devices]).any():
            return assignment
    return moved


def check_constraints(assignment: Assignment, rules: AssignmentRules, label: str) -> None:
    """Raise `PropertyError` unless an assignment that is taken as it is satisfies the constraints. ``rules``: of the
    request; the units are those of the assignment's devices."""
    model, affinity = assignment.model, assignment.affinity
    for group in _split(resolve_groups(model, rules.together), affinity.device_of):
        one, other = _on_two_devices(group, affinity.device_of)
        raise PropertyError(
            f"{label} places {_named(model, one)} on {affinity.devices[affinity.device_of[one]]} and "
            f"{_named(model, other)} on {affinity.devices[affinity.device_of[other]]}, and STAY_TOGETHER requires one "
            "device for both"
        )
    answers = _Answers(model, affinity)
    limits = _SubgraphLimits(model, affinity.devices, rules)
    for number, nodes, why in (*_incomplete(answers, assignment), *limits.broken(assignment)):
        keys = first_few([model.key_of(node) for node in nodes.tolist()], 3)
        raise PropertyError(f"{label} places {keys} on {affinity.devices[number]}: {why}")


class _Answers:
    """The devices' answers, restricted."""

    def __init__(self, model: Model, affinity: Affinity) -> None:
        self._model = model
        self._first = affinity
        self._masks = np.stack([support.mask for support in affinity.supports])
        self._reasons: list[dict[int, str]] = [{} for _ in affinity.supports]
        fixed = np.flatnonzero(affinity.origin != Origin.PRIORITY)
        self._free = np.ones(self._masks.shape, np.bool_)
        self._free[:, fixed] = affinity.device_of[fixed] == np.arange(len(self._masks))[:, None]
        self.units = [list(support.units) for support in affinity.supports]
        self._in_unit = [_members(units, model.num_nodes) for units in self.units]
        self._check_pins()
        self.close()

    def copy(self) -> _Answers:
        """An independent copy."""
        other = object.__new__(_Answers)
        other.__dict__.update(self.__dict__)
        other._masks = self._masks.copy()
        other._reasons = [dict(reasons) for reasons in self._reasons]
        other.units = [list(units) for units in self.units]
        return other

    def affinity(self) -> Affinity:
        """The assignment by priority with these answers. Raises `UnsupportedModel`."""
        first = self._first
        supports = tuple(
            dataclasses.replace(support, mask=mask, reasons={**support.reasons, **reasons}, units=tuple(units))
            for support, mask, reasons, units in zip(
                first.supports, self._masks, self._reasons, self.units, strict=True
            )
        )
        device_of = np.where(
            first.origin == Origin.PRIORITY, first_supporting(self._model.num_nodes, supports), first.device_of
        ).astype(np.int32)
        placed = place(self._model, first.devices, supports, device_of, first.origin.copy(), first.pins)
        return dataclasses.replace(placed, groups=first.groups, answers=first.supports)

    def in_unit(self, device: int) -> NDArray[np.bool_]:
        """bool [num_nodes]: the nodes that the device supports only in a unit."""
        return self._in_unit[device]

    def supporting(self, nodes: NDArray[np.int32]) -> list[int]:
        """The devices that may have all of the nodes."""
        return np.flatnonzero((self._masks & self._free)[:, nodes].all(axis=1)).tolist()

    def remove(self, device: int, nodes: NDArray[np.integer], why: str) -> None:
        """The device no longer supports the nodes."""
        nodes = nodes[self._masks[device, nodes]]
        self._masks[device, nodes] = False
        self._reasons[device].update(dict.fromkeys(nodes.tolist(), why))

    def leave(self, device: int, nodes: NDArray[np.integer], why: str) -> None:
        """As `remove`. If no other device may have a node, the other nodes of one of its units come to it instead, as
        long as they could be elsewhere."""
        available = self._masks & self._free
        available[device] = False
        stuck = ~available[:, nodes].any(axis=0)
        comes = np.zeros(self._model.num_nodes, np.bool_)
        for node in nodes[stuck].tolist():
            unit = next((unit for unit in self.units[device] if node in unit and available[:, unit].any()), None)
            if unit is None:
                self.remove(device, np.array([node]), why)
                continue
            comes[unit] = True
            for other in range(len(self._masks)):
                if other != device:
                    name = _named(self._model, node)
                    self.remove(
                        other, unit, f"it runs together with {name}, which only {self._device(device)} may have"
                    )
        self.remove(device, nodes[~stuck & ~comes[nodes]], why)

    def close(self) -> None:
        """Remove what follows: groups that a device does not support whole, and nodes without a complete unit."""
        while self._close_units() | self._close_groups():
            pass
        for group in self._first.groups:
            if not self.supporting(group):
                self._raise_unsupported(group)

    def _close_units(self) -> bool:
        changed = False
        for device, units in enumerate(self.units):
            available = self._masks[device] & self._free[device]
            complete = [unit for unit in units if available[unit].all()]
            if len(complete) < len(units):
                self.units[device] = complete
                left = self._in_unit[device] & self._masks[device]
                left &= ~_members(complete, len(left))
                # A pinned node keeps its device, and the assignment reports why it cannot run there.
                self.remove(device, np.flatnonzero(left), "a part of the operation that it belongs to is elsewhere")
                changed = changed or bool(left.any())
        return changed

    def _close_groups(self) -> bool:
        changed = False
        for group in self._first.groups:
            available = (self._masks & self._free)[:, group]
            for device in np.flatnonzero(~available.all(axis=1) & self._masks[:, group].any(axis=1)).tolist():
                cause = int(group[np.flatnonzero(~available[device])[0]])
                why = f"it stays together with {_named(self._model, cause)}, which cannot be on {self._device(device)}"
                self.remove(device, group, why)
                changed = True
        return changed

    def _device(self, number: int) -> str:
        return self._first.devices[number]

    def _check_pins(self) -> None:
        origin, device_of = self._first.origin, self._first.device_of
        for group in self._first.groups:
            pinned = group[origin[group] != Origin.PRIORITY]
            if len(np.unique(device_of[pinned])) > 1:
                one, other = _on_two_devices(pinned, device_of)
                raise PropertyError(
                    f"STAY_TOGETHER requires one device for {_named(self._model, one)} and "
                    f"{_named(self._model, other)}, but the first is {self._first.reason(one)} and the second "
                    f"{self._first.reason(other)}"
                )

    def _raise_unsupported(self, group: NDArray[np.int32]) -> None:
        """`UnsupportedModel` for a group that no device supports whole: per device, a node that it cannot have."""
        model, first = self._model, self._first
        reasons: dict[str, str] = {}
        for number, support in enumerate(first.supports):
            lacking = group[~(support.mask & self._free[number])[group]]
            if len(lacking):
                node = int(lacking[0])
                refusal = first.refusal(number, node) or first.reason(node)
                reasons[first.devices[number]] = f"{_named(model, node)}: {refusal}"
            else:
                node = next((node for node in group.tolist() if node in self._reasons[number]), int(group[0]))
                reasons[first.devices[number]] = f"{_named(model, node)}: {self._reasons[number].get(node, '')}"
        keys = [model.key_of(node) for node in group.tolist()]
        lines = "".join(f"\n  {device}: {reason}" for device, reason in reasons.items())
        raise UnsupportedModel(
            f"model {model.name!r}: {first_few(keys, 5)} stay together, and no device in the list "
            f"[{', '.join(first.devices)}] can have all of them:{lines}",
            dict.fromkeys(keys, reasons),
        )


class _SubgraphLimits:
    """The minimum sizes and largest numbers of subgraphs, per device."""

    def __init__(self, model: Model, devices: Sequence[str], rules: AssignmentRules) -> None:
        least, most = rules.least, rules.most
        self._model = model
        self._by_number = {
            number: least[device]
            for number, device in enumerate(devices)
            if device in least and not least[device].is_any
        }
        self._most = {number: most[device] for number, device in enumerate(devices) if device in most}
        self._devices = devices
        counts_flops = any(limit.flops > 0 for limit in self._by_number.values())
        self._flops = np.zeros(model.num_nodes)
        self._open_sizes = 0  # values whose operations are counted with assumed sizes, until `_warn` says so
        if counts_flops:
            # Unlike `sized`, always with inner sizes: nodes leave the device if their operations are counted too low.
            work = estimate_work(model.with_inner_sizes())
            self._flops = work.flops
            self._open_sizes = int(np.count_nonzero(work.sizes.assumed))

    def broken(self, assignment: Assignment) -> Iterator[tuple[int, NDArray[np.intp], str]]:
        """Device, nodes and the reason, for each subgraph below the minimum size of its device, and for the subgraphs
        beyond the largest number of its device. Those that are too small do not count, because they leave."""
        subgraph_of, small = assignment.partition.subgraph_of, np.zeros(assignment.partition.num_subgraphs, np.bool_)
        for number, part, why in self._too_small(assignment.partition):
            small[part] = True
            yield number, np.flatnonzero(subgraph_of == part), why
        for number, most in self._most.items():
            late = np.flatnonzero((assignment.partition.device_of == number) & ~small)[most:]  # in running order
            if len(late):
                which = "first subgraph" if most == 1 else f"first {most} subgraphs"
                yield (
                    *(number, np.flatnonzero(np.isin(subgraph_of, late))),
                    f"{self._devices[number]} runs only the {which} of a model",
                )

    def _too_small(self, partition: Partition) -> Iterator[tuple[int, int, str]]:
        """Device, subgraph and the reason."""
        if not self._by_number:
            return
        nodes = np.bincount(partition.subgraph_of, minlength=partition.num_subgraphs)
        flops = np.bincount(partition.subgraph_of, self._flops, partition.num_subgraphs)
        for number, limit in self._by_number.items():
            on_device = partition.device_of == number
            if limit.flops > 0 and on_device.any() and self._open_sizes:
                self._warn()
            for part in np.flatnonzero(on_device & (nodes < limit.nodes)).tolist():
                why = (
                    f"its subgraph would have {counted(int(nodes[part]), 'node')}, and "
                    f"{self._devices[number]} requires at least {limit.nodes}"
                )
                yield number, part, why
            for part in np.flatnonzero(on_device & (nodes >= limit.nodes) & (flops < limit.flops)).tolist():
                why = (
                    f"its subgraph would have {flops[part]:.3g} operations, and {self._devices[number]} requires "
                    f"at least {limit.flops:.3g}"
                )
                yield number, part, why

    def _warn(self) -> None:
        warn(
            f"operations are counted as if the unknown sizes of {counted(self._open_sizes, 'value')} were "
            f"{ASSUMED_BATCH} in the first dimension and {ASSUMED_DIM} in others, so the minimum size of subgraphs is "
            f"only approximate; {how_to_set_sizes(self._model, self._open_sizes)}",
            about="operations of unknown sizes",
        )
        self._open_sizes = 0


def _with_partition(assignment: Assignment, partition: Partition) -> Assignment:
    """The same devices with another partition, and the predictions for it."""
    latency = assignment.latency
    if latency is not None:
        sums = assignment.predict(partition)
        latency = dataclasses.replace(
            latency, total_s=sums.total, work_s=sums.work, launches_s=sums.launches, transfers_s=sums.transfers
        )
        if assignment.scheduler is not None:
            cut = assignment.scheduler.numbered_by_start(assignment.scheduler.as_numbered(partition))
            partition, timeline = cut.partition, cut.timeline
            latency = dataclasses.replace(
                latency,
                total_s=timeline.latency,
                overlaps=timeline.overlaps,
                begin_s=tuple(timeline.begin.tolist()),
                end_s=tuple(timeline.end.tolist()),
            )
        latency = dataclasses.replace(latency, lower_bound_s=min(latency.lower_bound_s, latency.total_s))
    return dataclasses.replace(assignment, partition=partition, latency=latency)


def _may_move(graph: Graph, subgraph_of: NDArray[np.int32], nodes: NDArray[np.int32], part: int) -> bool:
    """Whether subgraphs still run in order if these nodes are in ``part``: what the nodes read is made there or before,
    and their results are read there or later."""
    together = set(nodes.tolist())
    for node in together:
        before = [maker for maker in graph.predecessors(node).tolist() if maker not in together]
        after = [reader for reader in graph.successors(node).tolist() if reader not in together]
        if (subgraph_of[before] > part).any() or (subgraph_of[after] < part).any():
            return False
    return True


def _incomplete(answers: _Answers, assignment: Assignment) -> Iterator[tuple[int, NDArray[np.intp], str]]:
    """Device, nodes and the reason, for the nodes on a device without a complete unit in their subgraph."""
    device_of = assignment.affinity.device_of
    for number, units in enumerate(answers.units):
        here = (device_of == number) & answers.in_unit(number)
        if here.any():
            on_device = [unit for unit in units if (device_of[unit] == number).all()]
            nodes = np.flatnonzero(here & ~_in_complete_unit(on_device, assignment))
            if len(nodes):
                device = assignment.affinity.devices[number]
                yield number, nodes, f"{device} runs it only together with nodes that are in another subgraph"


def _in_complete_unit(units: Sequence[NDArray[np.int32]], assignment: Assignment) -> NDArray[np.bool_]:
    """bool [num_nodes]: the nodes with a complete unit. ``units``: those on one device.

    A unit is complete in the subgraph with all of its nodes. A node whose result is also read outside of the unit, such
    as a DequantizeLinear before a residual connection, may be in another subgraph if a unit is complete there with it:
    its result exists there in any case.
    """
    graph, subgraph_of = assignment.model.graph, assignment.partition.subgraph_of
    found = _members([unit for unit in units if _is_one(subgraph_of[unit])], len(subgraph_of))
    # In running order, so that one pass finds chains of units that read from one another.
    split = sorted((unit for unit in units if not _is_one(subgraph_of[unit])), key=lambda unit: int(unit.max()))
    for _ in range(_MOST_PASSES):
        changed = False
        for unit in split:
            inside = np.ones(len(unit), np.bool_)
            for at in np.flatnonzero(found[unit]).tolist():
                inside[at] = np.isin(graph.successors(int(unit[at])), unit).all()
            rest = unit[inside]
            if len(rest) and _is_one(subgraph_of[rest]) and not found[rest].all():
                found[rest] = changed = True
        if not changed:
            break
    return found


def _with_group_on_one_device(
    answers: _Answers, split: Sequence[NDArray[np.int32]], assignment: Assignment, solve: Solve
) -> tuple[_Answers, Assignment]:
    """The answers with the first of the ``split`` groups on one device only, that of the least predicted time; all of
    them by the majority of their nodes, if trying each device would take too long. And the assignment with these."""
    model, devices = assignment.model, assignment.affinity.devices
    device_of = assignment.affinity.device_of
    tries = sum(len(answers.supporting(group)) for group in split)
    if tries * model.num_nodes > _TRIAL_NODES:
        for group in split:
            chosen = answers.copy()
            counts = np.bincount(device_of[group], minlength=len(devices))
            possible = answers.supporting(group)
            _keep_on(chosen, model, devices, group, max(possible, key=lambda number: int(counts[number])))
            answers = chosen
        return answers, solve(answers.affinity())
    group = split[0]
    best: tuple[tuple[float, int], _Answers, Assignment] | None = None
    failure: Exception | None = None
    for number in answers.supporting(group):
        tried = answers.copy()
        try:
            _keep_on(tried, model, devices, group, number)
            found = solve(tried.affinity())
        except (InsufficientMemory, UnsupportedModel, PipelineError) as error:
            failure = error
            continue
        seconds = _seconds(found)
        # Without a prediction, the device of most of the group's nodes.
        rank = (seconds, -int(np.count_nonzero(device_of[group] == number)))
        if best is None or rank < best[0]:
            best = rank, tried, found
    if best is None:
        assert failure is not None
        raise failure
    return best[1:]


def _keep_on(answers: _Answers, model: Model, devices: Sequence[str], group: NDArray[np.int32], number: int) -> None:
    """Remove the group from all devices but one."""
    for other in range(len(devices)):
        if other != number:
            why = f"it stays together with {_named(model, int(group[0]))} on {devices[number]}"
            answers.remove(other, group, why)
    answers.close()


def _seconds(assignment: Assignment) -> float:
    """The predicted time of the assignment, for comparisons; 0 without a prediction."""
    if assignment.latency is not None:
        return assignment.latency.total_s
    return assignment.pipeline.interval_s if assignment.pipeline is not None else 0.0


def _split(groups: Sequence[NDArray[np.int32]], device_of: NDArray[np.int32]) -> list[NDArray[np.int32]]:
    """The groups that are on several devices."""
    return [group for group in groups if not _is_one(device_of[group])]


def _is_one(numbers: NDArray[np.integer]) -> bool:
    return bool((numbers == numbers[0]).all())


def _on_two_devices(nodes: NDArray[np.int32], device_of: NDArray[np.int32]) -> tuple[int, int]:
    """The first node, and the first on another device."""
    other = nodes[device_of[nodes] != device_of[nodes[0]]][0]
    return int(nodes[0]), int(other)


def _members(units: Sequence[NDArray[np.int32]], num_nodes: int) -> NDArray[np.bool_]:
    mask = np.zeros(num_nodes, np.bool_)
    if units:
        mask[np.concatenate(units)] = True
    return mask


def _named(model: Model, node: int) -> str:
    return f"{short(model.key_of(node))!r} ({model.op_types[model.op_type_of[node]]})"
