"""An If whose condition is known when the program runs, as one call of it.

Both branches are planned for the operands at hand. Where each is one program and gives results of the same types, the
call runs the one that the condition asks for, so that a Loop or Scan around it makes its trips in C. Other Ifs run
between two segments (`run.py`), where only the branch that is taken is planned: so do those of many nodes or
large constants, which would be packed in vain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .... import _program
from ....errors import HeteroError
from ..values import Call, Context, Value

if TYPE_CHECKING:
    from ..registry import NestedGraph, NodePlan
    from ..segment import Segment

__all__ = ["branched"]

_MOST_NODES, _MOST_BYTES = 64, 1 << 16  # of a branch


class Planner(Protocol):
    """The part of `hetero.devices.cpu.planner.Planner` that `branched` uses."""

    @property
    def nodes(self) -> Sequence[NodePlan]: ...
    @property
    def input_ids(self) -> Sequence[int]: ...
    @property
    def output_ids(self) -> Sequence[int]: ...
    def child(self, i: int, graph: int) -> tuple[Planner, tuple[int, ...]]: ...
    def whole(self, incoming: dict[int, Value]) -> Segment | None: ...


def branched(planner: Planner, context: Context, i: int, inputs: Sequence[Value | None]) -> list[Value] | None:
    """The results of node ``i``, an If, by one call; None if it is not that simple."""
    plan = planner.nodes[i]
    condition = inputs[0]
    assert plan.nested is not None
    if condition is None or condition.size != 1 or condition.dtype != np.bool_ or condition.data is not None:
        return None
    if not all(_is_small(graph) for graph in plan.nested.graphs):
        return None
    operands: dict[int, int] = {}  # storage and shape -> number
    values: list[Value] = [condition]
    found = []
    for graph in range(2):
        child, captured = planner.child(i, graph)
        given: dict[int, Value] = {}
        for number, position in zip(child.input_ids, captured, strict=True):
            value = inputs[position]
            assert value is not None, "captures are present"
            given[number] = Value(value.dtype, value.shape, value.data, shared=value.shared)
            if value.data is None and id(value) not in operands:
                operands[id(value)] = len(values)
                values.append(value)
        try:
            segment = child.whole(given)
        except HeteroError:  # what is wrong with it matters only if it is taken
            return None
        if segment is None:
            return None
        numbers = {
            number: operands[id(inputs[position])]
            for number, position in zip(child.input_ids, captured, strict=True)
            if given[number].data is None
        }
        found.append((child, segment, numbers))
    count = len(plan.outputs)
    types = [[_type_of(child, segment, at) for at in child.output_ids[:count]] for child, segment, _ in found]
    if types[0] != types[1]:
        return None
    made = []
    for shape, dtype in types[0]:
        made.append(Value(dtype, shape, storage=context.new_storage()))
    branches = tuple(_branch(child.output_ids[:count], segment, numbers) for child, segment, numbers in found)
    context.calls.append(Call("branch", tuple(values), tuple(made), (), (), 0, i, None, branches))
    return made


def _is_small(graph: NestedGraph) -> bool:
    if len(graph.nodes) > _MOST_NODES:
        return False
    read = {value for plan in graph.nodes for value in plan.inputs if value >= 0 and graph.model.is_constant[value]}
    return sum(graph.model.constant(value, aligned=False).nbytes for value in sorted(read)) <= _MOST_BYTES


def _type_of(child: Planner, segment: Segment, value: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
    constant = segment.known.get(value)
    if constant is not None:
        return constant.shape, constant.dtype
    source, shape = segment.aliases.get(value, (value, None))
    program = segment.program
    if source in segment.outputs:
        found = program.output_specs[segment.outputs.index(source)]
    else:
        found = program.input_specs[segment.inputs.index(source)]
    return (found[0] if shape is None else shape), found[1]


def _branch(results: Sequence[int], segment: Segment, numbers: Mapping[int, int]) -> _program.Branch:
    """``results``: value ids. ``numbers``: of the call's operand, per value id of the branch's inputs."""
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
