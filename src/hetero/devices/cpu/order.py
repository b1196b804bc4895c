"""The order in which a plan takes the nodes of a model that runs some of them in Python, such as control flow.

A plan is cut at such a node, and no rewrite reaches across a cut. In the model's order, a Transpose may stand before an
If and the product that reads it behind. Each node therefore runs behind as many of these nodes as its readers allow. A
plan in which an If disappears, because its condition is known, then has the same rewrites as one that is cut there.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from .registry import NodePlan

__all__ = ["late_order"]


def late_order(nodes: Sequence[NodePlan], unread: Collection[int] = ()) -> Sequence[int]:
    """The indices of ``nodes``, which are in topological order, in another such order. Nodes that run in Python keep
    their order, because random numbers depend on it. ``unread``: nodes that plans leave out. Others may compute their
    results, so they say nothing about the order.

    A node's stage is the number of nodes that run in Python before it. The earliest follows from its operands, the
    latest from its readers; a node that only outputs read keeps its earliest."""
    in_python = (i for i, plan in enumerate(nodes) if i not in unread and _runs_in_python(plan))
    number = {i: stage for stage, i in enumerate(in_python)}
    if not number:
        return range(len(nodes))
    made_in: dict[int, int] = {}  # value -> the first stage that may read it
    stages = []
    for i, plan in enumerate(nodes):
        stages.append(number.get(i, max((made_in.get(value, 0) for value in plan.inputs if value >= 0), default=0)))
        if i not in unread:
            made_in.update((value, stages[i] + (i in number)) for value in plan.outputs)
    read_in: dict[int, int] = {}  # value -> the first stage that reads it
    for i in range(len(nodes) - 1, -1, -1):
        if i in unread:
            continue
        readers = [read_in[value] for value in nodes[i].outputs if value in read_in]
        if readers and i not in number:
            stages[i] = min(readers)
        for value in nodes[i].inputs:
            if value >= 0:
                read_in[value] = min(read_in.get(value, stages[i]), stages[i])
    return sorted(range(len(nodes)), key=lambda i: (stages[i], i in number))


def _runs_in_python(plan: NodePlan) -> bool:
    return plan.nested is not None or plan.operator.custom is not None or plan.operator.host is not None
