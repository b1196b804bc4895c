"""Elementwise functions of one 8-bit tensor become a table of 256 numbers.

Contract: the bits of the float32 nodes, because these nodes compute the table.

A value is a *function* of an 8-bit tensor if only elementwise nodes, constants of one element, and QuantizeLinear and
DequantizeLinear with one scale lie between the two (`roots_of`). So SiLU, HardSwish or GELU become one table, also if a
tool quantized the values within them.

Conditions for a result of QuantizeLinear to come from a table (`Table`):

- It is a function of a tensor that is not a constant, by at most `MAX_NODES` nodes.
- That tensor and the result are int8 or uint8, and the rank of the tensor is not below that of any constant. Types and
  ranks are checked when the node is lowered.

Other readers of the values in between do not matter: their nodes are kept for them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..registry import Node, NodePlan
from ..values import Context, Value
from .schemes import Scheme, is_plain, lowered, table

__all__ = ["BYTES", "MAX_NODES", "Table", "Transfer", "looked_up", "roots_of"]

MAX_NODES = 64
"""Nodes that a table replaces, at most, which bounds the time to find and compute it."""

BYTES = (np.dtype(np.int8), np.dtype(np.uint8))

_ELEMENTWISE = frozenset((
    "Relu", "LeakyRelu", "Elu", "Selu", "Celu", "ThresholdedRelu", "Sigmoid", "HardSigmoid", "HardSwish",
    "Swish", "Gelu", "Tanh", "Softplus", "Softsign", "Mish", "Erf", "Exp", "Log", "Sqrt", "Reciprocal", "Abs",
    "Neg", "Floor", "Ceil", "Round", "Sign", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh",
    "Asinh", "Acosh", "Atanh", "Shrink", "Clip", "Identity", "Add", "Sub", "Mul", "Div", "Pow", "Max", "Min",
    "PRelu",
))  # fmt: skip


@dataclasses.dataclass(slots=True)
class _Function:
    """The tensor of which a value is a function, and the maximum number of nodes in between (nodes that are used twice
    count twice)."""

    root: int
    nodes: int


def roots_of(
    nodes: Sequence[NodePlan],
    schemes: Mapping[int, Scheme],
    number: Callable[[int], Value | None],
    is_constant: Callable[[int], bool],
) -> dict[int, int]:
    """The results of QuantizeLinear that are functions of another tensor, with that tensor; both as value ids.
    ``number``: the value of an id that is known and has one element."""
    found: dict[int, _Function] = {}
    roots: dict[int, int] = {}
    for i, plan in enumerate(nodes):
        scheme = schemes.get(i)
        if scheme is not None:
            function = _through(scheme, found, is_constant)
            if function is not None and plan.node.op_type == "QuantizeLinear":
                roots[plan.outputs[0]] = function.root
        elif plan.node.op_type in _ELEMENTWISE and len(plan.outputs) == 1 and is_plain(plan):
            function = _joined(plan, found, number)
        else:
            continue
        if function is not None and function.nodes < MAX_NODES:
            found[plan.outputs[0]] = function
    return roots


def _through(scheme: Scheme, found: Mapping[int, _Function], is_constant: Callable[[int], bool]) -> _Function | None:
    x = scheme.plan.inputs[0]
    if not scheme.is_single or x < 0:
        return None
    if x in found:
        return _Function(found[x].root, found[x].nodes + 1)
    if scheme.plan.node.op_type == "QuantizeLinear" or is_constant(x):
        return None
    return _Function(x, 1)


def _joined(plan: NodePlan, found: Mapping[int, _Function], number: Callable[[int], Value | None]) -> _Function | None:
    functions = [found[value] for value in plan.inputs if value in found]
    if not functions or any(function.root != functions[0].root for function in functions):
        return None
    for value in plan.inputs:
        if value >= 0 and value not in found and number(value) is None:
            return None
    return _Function(functions[0].root, 1 + sum(function.nodes for function in functions))


class Transfer:
    """A function from integers to integers of 8 or 16 bits, by its values. ``function``: emits its float32 nodes."""

    def __init__(self, function: Callable[[Context, Value], Value]) -> None:
        self._function = function
        self._tables: dict[np.dtype[Any], NDArray[np.generic]] = {}
        self._identities: dict[np.dtype[Any], bool] = {}

    def table(self, dtype: np.dtype[Any]) -> NDArray[np.generic]:
        """The results for all integers of a type of 8 bits, the smallest first."""
        if dtype not in self._tables:
            self._tables[dtype] = table(dtype, self._function)
        return self._tables[dtype]

    def is_supported(self, dtype: np.dtype[Any]) -> bool:
        """Whether `looked_up` computes the function for operands of this type: 8 bits to 8 bits, or no change of 16."""
        if dtype.kind not in "iu" or dtype.itemsize > 2:
            return False
        return self.is_identity(dtype) or (dtype in BYTES and self.table(dtype).dtype in BYTES)

    def is_identity(self, dtype: np.dtype[Any]) -> bool:
        if dtype not in self._identities:
            # A table of 16 bits takes 128 KB or more and is not needed again.
            made = self.table(dtype) if dtype in BYTES else table(dtype, self._function)
            limits = np.iinfo(dtype)
            is_same = made.dtype == dtype and bool((made == np.arange(limits.min, limits.max + 1)).all())
            self._identities[dtype] = is_same
        return self._identities[dtype]

    def is_monotone(self, dtype: np.dtype[Any]) -> bool:
        """For a type that `is_supported`."""
        return self.is_identity(dtype) or bool((np.diff(self.table(dtype).astype(np.int64)) >= 0).all())


def looked_up(context: Context, x: Value, transfer: Transfer) -> Value:
    """The function of ``x``, whose type `Transfer.is_supported`."""
    if transfer.is_identity(x.dtype):
        return x
    made = transfer.table(x.dtype)
    return context.call("lookup", [x, context.constant(made)], x.shape, made.dtype)


class Table:
    """The lowering of the last of ``plans``, which compute its result from ``root``, in order."""

    def __init__(
        self, plans: Sequence[NodePlan], root: int, schemes: Mapping[int, Scheme], constants: Mapping[int, Value]
    ) -> None:
        self._plans = plans
        self._root = root
        self._schemes = schemes
        self._constants = constants
        self._rank = max((value.rank for value in constants.values()), default=0)
        self._transfer = Transfer(lambda context, x: self._run(context, x, as_scalars=True))

    def lower(self, context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
        (x,) = inputs
        assert x is not None
        if x.rank >= self._rank and self._transfer.is_supported(x.dtype):
            return [looked_up(context, x, self._transfer)]
        return [self._run(context, x)]

    def _run(self, context: Context, x: Value, as_scalars: bool = False) -> Value:
        """The result of all nodes for ``x``. ``as_scalars``: with constants of rank 0, whatever the rank of ``x``."""
        values: dict[int, Value] = {self._root: x}
        for plan in self._plans:
            scheme = self._schemes.get(plan.index)
            if scheme is not None:
                made = scheme.apply(context, values[plan.inputs[0]])
            else:
                operands = [None if value < 0 else values.get(value) or self._constant(value, as_scalars)
                            for value in plan.inputs]  # fmt: skip
                (made,) = lowered(context, plan, operands)
            values[plan.outputs[0]] = made
        return made

    def _constant(self, value: int, as_scalar: bool) -> Value:
        operand = self._constants[value]
        if not as_scalar:
            return operand
        assert operand.data is not None
        return Value(operand.dtype, (), operand.data.reshape(()))
