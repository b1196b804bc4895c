"""A small If whose condition is computed at run time, as one kernel call.

Both branches are planned. If each is one program and both give results of the same types and shapes, the call `branch`
runs one of the two programs, so a Loop or Scan around the If can run its iterations in C. Every other If runs between
two segments (`run.py`), and only the branch that is taken is planned. That includes branches with many nodes or large
constants, because planning packs constants that a run may never need, and branches whose operands have symbols as
sizes: the call would hold for these sizes only. In a Loop or Scan, iterations in C are worth more than a plan for all
sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .... import _program
from ...._sizes import is_symbolic
from ....errors import HeteroError
from ..values import Call, Context, Value

if TYPE_CHECKING:
    from ..registry import NestedGraph, NodePlan
    from ..segment import Segment

__all__ = ["branched"]

_MAX_NODES, _MAX_BYTES = 64, 1 << 16  # of a branch: nodes, and bytes of constants


class Planner(Protocol):
    """The part of `hetero.devices.cpu.planner.Planner` that `branched` uses."""

    @property
    def nodes(self) -> Sequence[NodePlan]: ...
    @property
    def input_ids(self) -> Sequence[int]: ...
    @property
    def output_ids(self) -> Sequence[int]: ...
    @property
    def repeated(self) -> bool: ...
    def child(self, i: int, graph: int) -> tuple[Planner, tuple[int, ...]]: ...
    def whole(self, incoming: dict[int, Value]) -> Segment | None: ...


def branched(planner: Planner, context: Context, i: int, inputs: Sequence[Value | None]) -> list[Value] | None:
    """Lower node ``i``, an If, to one call; None unless the conditions in the header hold."""
    plan = planner.nodes[i]
    condition = inputs[0]
    assert plan.nested is not None
    if condition is None or condition.size != 1 or condition.dtype != np.bool_ or condition.data is not None:
        return None
    if not all(_is_small(graph) for graph in plan.nested.graphs):
        return None
    operands: dict[int, int] = {}  # id of a Value -> its position among the call's operands
    values: list[Value] = [condition]
    planned = []
    for graph in range(2):
        child, captured = planner.child(i, graph)
        incoming: dict[int, Value] = {}
        for number, position in zip(child.input_ids, captured, strict=True):
            value = inputs[position]
            assert value is not None, "captures are present"
            if any(map(is_symbolic, value.shape)) and not planner.repeated:
                return None
            sizes = tuple(int(size) for size in value.shape)  # plans of branches hold for these sizes only
            incoming[number] = Value(value.dtype, sizes, value.data, shared=value.shared)
            if value.data is None and id(value) not in operands:
                operands[id(value)] = len(values)
                values.append(value)
        try:
            segment = child.whole(incoming)
        except HeteroError:  # the error must only be raised if this branch is taken
            return None
        if segment is None:
            return None
        numbers = {
            number: operands[id(inputs[position])]
            for number, position in zip(child.input_ids, captured, strict=True)
            if incoming[number].data is None
        }
        planned.append((child, segment, numbers))
    count = len(plan.outputs)
    types = [[_type_of(child, segment, at) for at in child.output_ids[:count]] for child, segment, _ in planned]
    if types[0] != types[1]:
        return None
    made = []
    for shape, dtype in types[0]:
        made.append(Value(dtype, shape, storage=context.new_storage()))
    branches = tuple(_branch(child.output_ids[:count], segment, numbers) for child, segment, numbers in planned)
    context.calls.append(Call("branch", tuple(values), tuple(made), (), (), i, None, branches))
    return made


def _is_small(graph: NestedGraph) -> bool:
    if len(graph.nodes) > _MAX_NODES:
        return False
    read = {value for plan in graph.nodes for value in plan.inputs if value >= 0 and graph.model.is_constant[value]}
    return sum(graph.model.constant(value, aligned=False).nbytes for value in sorted(read)) <= _MAX_BYTES


def _type_of(child: Planner, segment: Segment, value: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
    constant = segment.known.get(value)
    if constant is not None:
        return constant.shape, constant.dtype
    source, shape = segment.aliases.get(value, (value, None))
    program = segment.program
    if source in segment.outputs:
        spec = program.output_specs[segment.outputs.index(source)]
    else:
        spec = program.input_specs[segment.inputs.index(source)]
    assert not isinstance(shape, int), "a branch is planned for single sizes"
    return (spec[0] if shape is None else shape), spec[1]


def _branch(results: Sequence[int], segment: Segment, numbers: Mapping[int, int]) -> _program.Branch:
    """A branch of the call. ``results``: value ids of its outputs, in the order of the call's outputs. ``numbers``:
    value id of an input of the branch -> position among the call's operands.

    In `_program.Branch`, the call's output number ``at`` is written -1 - ``at``. An output that the program does not
    write itself is a copy: of a known array, of an operand, or of another output."""
    outputs: dict[int, int] = {}  # value id -> the call's output that the program writes
    copies: list[tuple[int | np.ndarray[Any, Any], int]] = []
    later = []
    for at, value in enumerate(results):
        source = segment.aliases.get(value, (value, None))[0]
        if value in segment.known:
            copies.append((segment.known[value], -1 - at))
        elif source in numbers:
            copies.append((numbers[source], -1 - at))
        elif source in outputs:
            later.append((outputs[source], -1 - at))
        else:
            outputs[source] = -1 - at
    return _program.Branch(
        segment.program,
        [numbers[value] for value in segment.inputs],
        [outputs[value] for value in segment.outputs],
        [*copies, *later],
    )
