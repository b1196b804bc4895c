"""Custom operators on the CPU. C functions become kernel calls; Python functions run between two segments of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ....extension.binding import BoundOp, bind_node
from ....extension.custom_op import CustomOp
from ....extension.table import CustomOps
from ....model.types import ValueType
from ..control_flow.bodies import Bodies
from ..control_flow.nested import dtype_of_name
from ..registry import ALIASES, ANY, HOSTED, Node, Operator, Types, forms_of, name_of
from ..values import Context, NeedsHost, Value

if TYPE_CHECKING:
    from ....model.model import Model

__all__ = ["Expansions"]


class Expansions:
    """Finds operators for nodes without a kernel: custom operators, and bodies (`Bodies`).

    For one model; not thread-safe. ``used``: the custom operators that the model uses.
    """

    def __init__(self, ops: CustomOps) -> None:
        self.used: dict[CustomOp, None] = {}
        self._ops = ops
        self._bodies = Bodies()

    def __call__(self, model: Model, index: int, types: Types) -> Operator | str | None:
        """See `registry.examine`."""
        domain, custom, op_type = model.op_types[int(model.op_type_of[index])].rpartition("::")
        if not custom or (domain, op_type) in model.functions:
            return self._bodies(model, index, types)
        op = self._ops.find(domain, op_type, model.opsets.get(domain))
        if isinstance(op, str):
            # If there is a kernel, something else is wrong with the node than the lack of a custom operator.
            full = f"{domain}::{op_type}"
            has_kernel = bool(forms_of(full)) or full in HOSTED or full in ALIASES
            return None if has_kernel and not self._ops.has(domain, op_type) else op
        names = [types.of(value) if value >= 0 else None for value in model.node_inputs[index].tolist()]
        for position, name in enumerate(names):
            if name is not None and name not in ANY:
                return f"input {position} is {name}; custom operators on the CPU support {', '.join(ANY)}"
        dtypes = [None if name is None else dtype_of_name(name) for name in names]
        bound = bind_node(op, model, index, dtypes)
        if isinstance(bound, str):
            return bound
        results = bound.output_dtypes(dtypes)
        for at, (dtype, value) in enumerate(zip(results, model.node_outputs[index].tolist(), strict=False)):
            if dtype is not None and name_of(dtype) not in ANY:
                return f"output {at} is {name_of(dtype)}; custom operators on the CPU support {', '.join(ANY)}"
            if dtype is not None and value >= 0:
                types.state(value, name_of(dtype))
        self.used[op] = None
        lower = _Kernel(bound).lower if op.address else _run_by_host
        return Operator(
            lower, tuple(_names(op, at) for at in range(max(len(names), 1))), {}, 1, 10_000, None, None, custom=bound
        )


class _Kernel:
    """The lowering of a custom operator in C."""

    def __init__(self, bound: BoundOp) -> None:
        self._bound = bound

    def lower(self, context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
        """Returns all outputs of the operator, also those that the node does not name."""
        bound = self._bound
        known = [None if value is None else ValueType(value.dtype, value.shape) for value in inputs]
        types = bound.output_types(known)
        for dtype, _ in types:
            if name_of(dtype) not in ANY:
                raise ValueError(f"an output is {name_of(dtype)}; custom operators on the CPU support {', '.join(ANY)}")
        attributes = bound.c_attributes
        return context.call_many(
            "custom",
            inputs,
            [(shape, dtype) for dtype, shape in types],
            [bound.op.address, bound.op.user_data, attributes.address, attributes.count],
            fold=False,
        )


def _run_by_host(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    raise NeedsHost


def _names(op: CustomOp, position: int) -> tuple[str, ...]:
    """The element types that the operator accepts for an input, of those that the CPU supports."""
    accepted = op.dtypes_accepted(position)
    return ANY if accepted is None else tuple(name for name in ANY if np.dtype(dtype_of_name(name)) in accepted)
