"""A small If whose condition is computed at run time, as one kernel call.

Both branches are lowered. The call `branch` runs the calls of one of them, so a Loop or Scan around the If can run its
iterations in C. The calls of a branch share the arena, the sizes and the symbols of the program around them, but no
rewrite reaches from a branch to other calls, because these run in any case.

Conditions: neither branch is cut or fails in planning; both give results of the same types and shapes, which may depend
on sizes; and the branches have few nodes and no large constants, because planning packs constants that a run may never
need. Every other If runs between two segments (`run.py`), and only the branch that is taken is planned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ....errors import HeteroError
from ..values import Call, Context, NeedsHost, Value, in_order

if TYPE_CHECKING:
    from ..registry import NestedGraph, NodePlan

__all__ = ["branched"]

_MAX_NODES, _MAX_BYTES = 64, 1 << 16  # of a branch: nodes, and bytes of constants


class Planner(Protocol):
    """The part of `hetero.devices.cpu.planner.Planner` that `branched` uses."""

    @property
    def nodes(self) -> Sequence[NodePlan]: ...
    def child(self, i: int, graph: int) -> tuple[Planner, tuple[int, ...]]: ...
    def inline(self, context: Context, inputs: Sequence[Value | None], around: NodePlan) -> Sequence[Value]: ...


def branched(planner: Planner, context: Context, i: int, inputs: Sequence[Value | None]) -> list[Value] | None:
    """Lower node ``i``, an If, to one call; None unless the conditions in the header hold."""
    plan, condition = planner.nodes[i], inputs[0]
    assert plan.nested is not None
    if condition is None or condition.size != 1 or condition.dtype != np.bool_:
        return None
    if not all(_is_small(graph) for graph in plan.nested.graphs):
        return None
    outer = context.calls
    branches: list[list[Call]] = []
    results: list[Sequence[Value]] = []
    try:
        for graph in range(2):
            child, captured = planner.child(i, graph)
            context.calls = []
            results.append(child.inline(context, [inputs[position] for position in captured], plan))
            branches.append(context.calls)
    except (HeteroError, NeedsHost):  # an error must only be raised if its branch is taken
        return None
    finally:
        context.calls = outer
    types = [[(value.dtype, value.shape) for value in values[: len(plan.outputs)]] for values in results]
    if types[0] != types[1]:
        return None
    made = [Value(dtype, shape, storage=context.new_storage()) for dtype, shape in types[0]]
    for calls, values in zip(branches, results, strict=True):
        _store(calls, values, made, i)
    read = {
        value.storage for calls in branches for call in in_order(calls) for value in call.inputs if value is not None
    }
    captures = {id(value): value for value in inputs[1:] if value is not None and value.data is None}
    operands = (condition, *(value for value in captures.values() if value.storage in read))
    context.calls.append(Call("branch", operands, tuple(made), (), (), i, None, tuple(branches)))
    return made


def _store(calls: list[Call], values: Sequence[Value], made: Sequence[Value], node: int) -> None:
    """Let the calls of a branch write its results, ``values``, to the storages of ``made``. A result that the calls do
    not compute, or that is listed twice, is copied there."""
    written = {value.storage for call in calls for value in call.outputs}
    renamed: dict[int, int] = {}
    for value, target in zip(values, made, strict=False):
        if value.data is None and value.storage in written and value.storage not in renamed:
            renamed[value.storage] = target.storage
        else:
            calls.append(Call("identity", (value,), (target,), (), (), node))
    for call in in_order(calls):
        for operand in (*call.inputs, *call.outputs):
            if operand is not None and operand.storage in renamed:
                operand.storage = renamed[operand.storage]


def _is_small(graph: NestedGraph) -> bool:
    if len(graph.nodes) > _MAX_NODES:
        return False
    read = {value for plan in graph.nodes for value in plan.inputs if value >= 0 and graph.model.is_constant[value]}
    return sum(graph.model.constant(value, aligned=False).nbytes for value in sorted(read)) <= _MAX_BYTES
