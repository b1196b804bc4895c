"""Strings that encoders make of numbers stay numbers within plans (`Operator.labels`), also where nodes move them.

Converters of scikit-learn's trees write the path through each tree as a LabelEncoder, and join the paths by Reshape and
Concat. In Python, these nodes take a few µs each; with kernels, they are part of the program of the trees.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .operators.elementwise import binary
from .registry import NUMBERS, NodePlan, Operator, attribute_trouble, find

if TYPE_CHECKING:
    from ...model.model import Model
    from .registry import Node
    from .values import Context, Value

__all__ = ["in_plans"]

_MOVES = ("Concat", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
_MOST_JOINED = 1 << 20  # strings in the tables that Concats of one model need: 8 MB

_Labels = tuple[Operator, NDArray[Any]]  # the operator with a kernel, and the strings that its result numbers


def in_plans(model: Model, nodes: list[NodePlan]) -> list[NodePlan]:
    """The nodes, with kernels for LabelEncoders whose keys are numbers and whose values are strings, and for moves of
    labels.

    A node that a kernel reads, also through nodes that run in Python, stays as it is: it runs before the first plan or
    between two."""
    if not any(_is_encoder(plan) for plan in nodes):
        return nodes
    read_by_kernels: set[int] = set()
    for plan in reversed(nodes):
        if plan.operator.host is None or not read_by_kernels.isdisjoint(plan.outputs):
            read_by_kernels.update(plan.inputs)
    tables: dict[int, NDArray[Any]] = {}
    num_joined = 0
    made = []
    for plan in nodes:
        found: _Labels | None = None
        if plan.operator.host is None:
            table = None if plan.operator.labels is None else plan.operator.labels(plan.node.attributes)
            if table is not None:
                tables[plan.outputs[0]] = table
        elif not read_by_kernels.isdisjoint(plan.outputs):
            pass
        elif _is_encoder(plan):
            found = _encoder(plan)
        elif plan.node.op_type in _MOVES:
            found = _move(model, plan, tables, _MOST_JOINED - num_joined)
        if found is not None:
            operator, tables[plan.outputs[0]] = found
            num_joined += len(found[1]) if len(plan.inputs) > 1 and plan.node.op_type == "Concat" else 0
            plan = plan.replaced(operator, plan.inputs, plan.outputs)
        made.append(plan)
    return made


def _is_encoder(plan: NodePlan) -> bool:
    return plan.node.op_type == "ai.onnx.ml::LabelEncoder" and plan.operator.host is not None and plan.node.opset >= 2


def _encoder(plan: NodePlan) -> _Labels | None:
    from .operators.classic import encoded  # few models need these modules
    from .operators.strings import encoder_tables

    keys, table = encoder_tables(plan.node)
    if keys.dtype.name not in NUMBERS or table.dtype != object:
        return None
    count = len(keys)

    def lower(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
        (x,) = inputs
        assert x is not None, "checked by examine"
        return [encoded(context, x, keys, np.arange(count, dtype=np.int64), count, has_nan=node.opset >= 4)]

    made = dataclasses.replace(
        plan.operator, lower=lower, dtypes=((keys.dtype.name,),), host=None, labels=lambda _: table
    )
    return made, table


def _move(model: Model, plan: NodePlan, tables: dict[int, NDArray[Any]], most: int) -> _Labels | None:
    """None unless all strings are labels, all other inputs are constants, kernels support the attributes, and a new
    table has at most ``most`` strings."""
    name = plan.node.op_type
    operator = find(name, plan.node.opset)
    if operator is None or operator.check is not None or attribute_trouble(name, operator, plan.node.attributes):
        return None
    strings = plan.inputs if name == "Concat" else plan.inputs[:1]
    given = [tables[value] for value in strings if value in tables]
    is_known = all(value < 0 or model.is_constant[value] for value in plan.inputs[len(strings) :])
    if len(given) != len(strings) or not is_known:
        return None
    if len(given) == 1:
        return dataclasses.replace(operator, labels=lambda _: given[0]), given[0]
    *first, total = itertools.accumulate(map(len, given), initial=0)
    if total > most:
        return None
    joined = np.concatenate(given)
    lower_numbers = operator.lower

    def lower(context: Context, node: Node, inputs: Sequence[Value | None]) -> Sequence[Value]:
        moved: list[Value] = []
        for value, begin in zip(inputs, first, strict=True):
            assert value is not None, "checked above"
            moved.append(binary(context, "add", value, context.scalar(begin, value.dtype)) if begin else value)
        return lower_numbers(context, node, moved)

    return dataclasses.replace(operator, lower=lower, labels=lambda _: joined), joined
