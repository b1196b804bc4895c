"""`Plan.explain` and `Plan.missing_ops`: why a node is on its device, and what one more operator would change."""

from __future__ import annotations

import dataclasses
import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..assign.affinity import Affinity, Origin
from ..assign.pins import enclosing_node
from ..base.formatting import counted, duration
from ..base.plain import plain
from ..errors import PropertyError
from .trial import Trials

if TYPE_CHECKING:
    from ..assign.assignment import Assignment
    from ..model.model import Model
    from ..partition import Partition
    from .bound import BoundPlan

__all__ = ["Asked", "Cut", "DeviceCost", "Explanation", "MissingOp", "PathStep", "explain", "missing_ops"]

_MOST_TRIED = 8  # operators tried for one node
_MOST_CUTS = 20  # boundaries in the text


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """A device of the list, and why it does not support a node. ``refusal``: None if it does."""

    device: str
    refusal: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceCost:
    """The time of a node on a device, in seconds, and the source of the figure (see `PredictedLatency`).
    ``total_s``: the latency of an inference with this node on the device and all others unchanged, with transfers and
    launches; None if the model is too large to try."""

    device: str
    work_s: float
    source: str
    total_s: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class PathStep:
    """A node on a path, with its device and subgraph; subgraphs are counted from 1."""

    node: str
    device: str
    subgraph: int


@dataclasses.dataclass(frozen=True, slots=True)
class Cut:
    """A boundary at a node. ``value``: the value that passes; ``reads``: whether the node reads the value or makes it.

    ``neighbor``: the node at the other end, with its ``device``, ``subgraph`` and ``reason``. ``path``: if both nodes
    are on the same device, a path through other subgraphs that prevents merging, from the earlier subgraph to the
    later. Empty if the two could be merged and the policy kept them apart.
    """

    value: str
    reads: bool
    neighbor: str
    op_type: str
    device: str
    subgraph: int
    reason: str
    path: tuple[PathStep, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class MissingOp:
    """An operator that a device does not support: the number of its nodes that could move there, and the effect.
    ``supported_elsewhere``: whether the device supports other nodes of this operator, as a profile with constraints or
    patterns may."""

    device: str
    op_type: str
    nodes: int
    subgraphs_before: int
    subgraphs_after: int
    supported_elsewhere: bool = False

    def __str__(self) -> str:
        what = f"supported {self.op_type} ({counted(self.nodes, 'node')})"
        if self.supported_elsewhere:
            what = f"also supported {self.op_type} in {counted(self.nodes, 'more place')}"
        after = counted(self.subgraphs_after, "subgraph")
        has_effect = self.subgraphs_after != self.subgraphs_before
        effect = f"{after} instead of {self.subgraphs_before:,}" if has_effect else f"still {after}"
        return f"if {self.device} {what}: {effect}"


@dataclasses.dataclass(frozen=True, slots=True)
class Explanation:
    """Why a node is on its device. ``origin``: what placed it: ``priority``, ``model`` (an affinity in the model),
    ``pin``, ``cost``, ``memory`` (it did not fit elsewhere), ``stage`` (of a pipeline), or ``plan`` (set in a loaded
    plan). ``costs``: its time on each device that supports it, if nodes are assigned by cost. ``asked``: every device
    of the list, by priority. ``missing_ops``: operators around it that an earlier device does not support, the most
    useful first.
    """

    node: str
    op_type: str
    device: str
    subgraph: int
    num_subgraphs: int
    origin: str
    reason: str
    asked: tuple[Asked, ...]
    cuts: tuple[Cut, ...]
    missing_ops: tuple[MissingOp, ...]
    costs: tuple[DeviceCost, ...] = ()

    def to_json(self) -> bytes:
        """The fields, as JSON."""
        import msgspec

        return msgspec.json.encode(self)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield (
            f"{self.node!r} ({self.op_type}) is on {self.device}, in subgraph {self.subgraph} of "
            f"{self.num_subgraphs:,}: {self.reason}"
        )
        yield "devices by priority:"
        for answer in self.asked:
            yield f"  {answer.device}: {'supports it' if answer.refusal is None else answer.refusal}"
        if self.costs:
            yield "costs, and the latency of an inference with this node there:"
        for cost in self.costs:
            whole = "" if cost.total_s is None else f", in total {duration(cost.total_s)}"
            here = " (it is there)" if cost.device == self.device else ""
            yield f"  {cost.device}: {duration(cost.work_s)} ({cost.source}){whole}{here}"
        if not self.cuts:
            yield "all its neighbors are in the same subgraph"
        else:
            yield "cut from:"
        for cut in self.cuts[:_MOST_CUTS]:
            verb = "it reads" if cut.reads else "which reads its"
            maker = f"whose {cut.value!r} {verb}" if cut.reads else f"{verb} {cut.value!r}"
            where = f"in subgraph {cut.subgraph} on {cut.device}"
            yield f"  {cut.neighbor!r} ({cut.op_type}), {maker}: {where}, {cut.reason}"
            if cut.device != self.device:
                continue
            if cut.path:
                way = " -> ".join(f"{step.node!r} (subgraph {step.subgraph}, {step.device})" for step in cut.path)
                yield f"    the two cannot be merged, because a path leads through other subgraphs: {way}"
            else:
                yield "    the two could be merged; the policy kept them apart"
        if len(self.cuts) > _MOST_CUTS:
            yield f"  and {len(self.cuts) - _MOST_CUTS} more"
        for missing in self.missing_ops:
            yield str(missing)


def explain(plan: BoundPlan, node: str) -> Explanation:
    """See `Plan.explain`."""
    assignment = plan.assignment
    model, affinity, partition = assignment.model, assignment.affinity, assignment.partition
    node = plain(node)
    index = _find(plan, model, node)
    cuts, passed = _cuts(assignment, index)
    relevant: dict[tuple[int, int], None] = {}
    for other in (index, *passed):
        for device in range(int(affinity.device_of[other])):
            if affinity.origin[other] == Origin.PRIORITY and not _own_answer(affinity, device)[other]:
                relevant[device, int(model.op_type_of[other])] = None
    return Explanation(
        node,
        model.op_types[model.op_type_of[index]],
        affinity.devices[affinity.device_of[index]],
        int(partition.subgraph_of[index]) + 1,
        partition.num_subgraphs,
        Origin(affinity.origin[index]).name.lower(),
        affinity.reason(index),
        tuple(Asked(device, affinity.refusal(i, index)) for i, device in enumerate(affinity.devices)),
        cuts,
        _tried(plan, list(relevant)[:_MOST_TRIED]),
        _costs(plan, index),
    )


def _costs(plan: BoundPlan, node: int) -> tuple[DeviceCost, ...]:
    """The costs of the node on each device that supports it. Empty unless nodes are assigned by cost."""
    assignment = plan.assignment
    if assignment.costs is None:
        return ()
    affinity, partition = assignment.affinity, assignment.partition
    trials = Trials(plan)
    costs = []
    for device, name in enumerate(affinity.devices):
        if not affinity.supports[device].mask[node]:
            continue
        moved: Partition | None = partition
        if device != affinity.device_of[node]:
            device_of = affinity.device_of.copy()
            device_of[node] = device
            moved = trials.partition(device_of)
        work, source = assignment.cost_of(device, node)
        costs.append(DeviceCost(name, work, source, None if moved is None else assignment.least_seconds(moved)))
    return tuple(costs)


def missing_ops(plan: BoundPlan, limit: int) -> tuple[MissingOp, ...]:
    """See `Plan.missing_ops`."""
    assignment = plan.assignment
    model, affinity, partition = assignment.model, assignment.affinity, assignment.partition
    graph = partition.graph
    source = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    target = graph.indices
    cut = partition.subgraph_of[source] != partition.subgraph_of[target]
    boundaries = np.bincount(np.concatenate((source[cut], target[cut])), minlength=graph.num_nodes)
    automatic = affinity.origin == Origin.PRIORITY
    ranked = []
    for device in range(len(affinity.devices) - 1):
        lacking = automatic & (affinity.device_of > device) & ~_own_answer(affinity, device)
        score = np.bincount(model.op_type_of, weights=boundaries * lacking, minlength=len(model.op_types))
        ranked += [(-score[op], device, op) for op in np.flatnonzero(score > 0).tolist()]
    ranked.sort()
    tried = _tried(plan, [(device, op) for _, device, op in ranked[:limit]])
    return tuple(missing for missing in tried if missing.subgraphs_after < missing.subgraphs_before)


def _tried(plan: BoundPlan, candidates: Sequence[tuple[int, int]]) -> tuple[MissingOp, ...]:
    """The effect of each operator on each device, the best first."""
    assignment = plan.assignment
    model, affinity, partition = assignment.model, assignment.affinity, assignment.partition
    trials = Trials(plan)
    effects = []
    for device, op in candidates:
        supported, has_op = _own_answer(affinity, device), model.op_type_of == op
        moved = (affinity.origin == Origin.PRIORITY) & (affinity.device_of > device) & has_op & ~supported
        after = trials.partition(np.where(moved, device, affinity.device_of).astype(np.int32))
        if after is None:
            break
        effects.append(
            MissingOp(
                affinity.devices[device],
                model.op_types[op],
                int(np.count_nonzero(moved)),
                partition.num_subgraphs,
                after.num_subgraphs,
                bool((has_op & supported).any()),
            )
        )
    return tuple(sorted(effects, key=lambda missing: missing.subgraphs_after))


def _own_answer(affinity: Affinity, device: int) -> NDArray[np.bool_]:
    """bool[num_nodes]: the nodes that the device supports, also where a constraint keeps them from it."""
    return (affinity.answers or affinity.supports)[device].mask


def _find(plan: BoundPlan, model: Model, key: str) -> int:
    """The node of a key."""
    if model.find_key(key) is None:
        if key in model.constant_keys:
            raise PropertyError(f"{key!r} is a constant and has no device: each subgraph that reads it contains a copy")
        inside = [other for other in model.keys if other.startswith(f"{key}/")] if plan.original is not model else []
        if inside and plan.original.find_key(key) is not None:
            raise PropertyError(
                f"{key!r} is a call of a function whose {counted(len(inside), 'node')} were planned separately; "
                f"explain one of them, such as {inside[0]!r}"
            )
        outer = enclosing_node(model, key)
        if outer is not None:
            raise PropertyError(
                f"{key!r} is inside a graph of {model.key_of(outer)!r} ({model.op_types[model.op_type_of[outer]]}), "
                "which is one node of the plan: explain that one"
            )
    return model.index_of(key)


def _cuts(assignment: Assignment, node: int) -> tuple[tuple[Cut, ...], list[int]]:
    """The boundaries at a node, and the other nodes involved, each once."""
    model, affinity, partition = assignment.model, assignment.affinity, assignment.partition
    graph, subgraph_of = partition.graph, partition.subgraph_of
    own = int(subgraph_of[node])
    cuts = []
    passed: dict[int, None] = {}
    for reads, neighbors in ((True, graph.predecessors(node)), (False, graph.successors(node))):
        for other in neighbors[subgraph_of[neighbors] != own].tolist():
            device = int(affinity.device_of[other])
            passed[other] = None
            path: list[int] = []
            if device == affinity.device_of[node]:
                path = _way_round(partition, other, node) if reads else _way_round(partition, node, other)
                passed.update(dict.fromkeys(path))
            cuts.append(
                Cut(
                    _value_between(model, *((other, node) if reads else (node, other))),
                    reads,
                    model.key_of(other),
                    model.op_types[model.op_type_of[other]],
                    affinity.devices[device],
                    int(subgraph_of[other]) + 1,
                    affinity.reason(other),
                    tuple(
                        PathStep(model.key_of(step), affinity.devices[affinity.device_of[step]], subgraph + 1)
                        for step, subgraph in zip(path, subgraph_of[path].tolist(), strict=True)
                    ),
                )
            )
    return tuple(cuts), list(passed)


def _value_between(model: Model, maker: int, reader: int) -> str:
    """The name of the first value that one node makes and the other reads."""
    read = {*model.node_inputs[reader].tolist(), *model.node_captures[reader].tolist()}
    return next(model.value_name(value) for value in model.node_outputs[maker].tolist() if value in read)


def _way_round(partition: Partition, maker: int, reader: int) -> list[int]:
    """Nodes along the path with the fewest subgraphs from the subgraph of ``maker`` through others to the subgraph of
    ``reader``. A subgraph contributes the node where the path enters and the node where it leaves. Empty if there is no
    path."""
    first, last = int(partition.subgraph_of[maker]), int(partition.subgraph_of[reader])
    quotient = partition.quotient
    came_from = {first: first}
    queue = deque([first])
    while queue and last not in came_from:
        at = queue.popleft()
        for after in quotient.successors(at).tolist():  # numbers ascend along edges: later ones cannot lead back
            if after <= last and after not in came_from and (at, after) != (first, last):
                came_from[after] = at
                queue.append(after)
    if last not in came_from:
        return []
    subgraphs = [last]
    while subgraphs[-1] != first:
        subgraphs.append(came_from[subgraphs[-1]])
    subgraphs.reverse()
    way: list[int] = []
    for here, there in itertools.pairwise(subgraphs):
        source, target = _edge_between(partition, here, there, way[-1] if way else maker)
        way += [step for step in (source, target) if not way or step != way[-1]]
    return way


def _edge_between(partition: Partition, here: int, there: int, preferred: int) -> tuple[int, int]:
    """An edge from one subgraph to another; from the node ``preferred`` if there is one."""
    graph, subgraph_of = partition.graph, partition.subgraph_of
    for node in (preferred, *partition.nodes(here).tolist()):
        after = graph.successors(node)
        targets = after[subgraph_of[after] == there]
        if len(targets) and subgraph_of[node] == here:
            return node, int(targets[0])
    raise AssertionError(f"no edge leads from subgraph {here} to {there}")
