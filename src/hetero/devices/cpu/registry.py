"""The operators of the CPU device: which forms of each are taken, and the function that lowers it.

A lowering gets the node and its operands as `Value`s and returns the outputs as `Value`s, by calls on the `Context`.
What an `Operator` accepts is checked in `query_model`, so that a node is refused with a reason before anything is
compiled; what only shapes or data can tell is checked by the lowering, which raises `InferenceError`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .values import Context, Value

if TYPE_CHECKING:
    from ...model.model import Model, NodeView

__all__ = ["ANY", "BOOL", "F32", "FLOATS", "INDICES", "NUMBERS", "OPERATORS", "Node", "Operator", "operator", "refusal"]

F32 = ("float32",)
FLOATS = ("float32", "float64")
INDICES = ("int32", "int64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
NUMBERS = FLOATS + INTEGERS
BOOL = ("bool",)
ANY = (*NUMBERS, *BOOL, "float16", "bfloat16")

Lowering = Callable[["Context", "Node", Sequence[Value | None]], Sequence[Value]]


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """A node as lowerings see it, parsed once per compiled model."""

    op_type: str
    opset: int
    attributes: Mapping[str, Any]
    num_outputs: int
    wanted: tuple[bool, ...]
    """Per output: whether anybody can read it (it has a name)."""

    def get(self, name: str, default: Any) -> Any:
        return self.attributes.get(name, default)


@dataclasses.dataclass(frozen=True, slots=True)
class Operator:
    """``dtypes``: per input, the last for all that follow. ``attributes``: name -> accepted values, None for all."""

    lower: Lowering
    dtypes: tuple[Collection[str], ...]
    attributes: Mapping[str, Collection[Any] | None]
    since: int
    until: int
    check: Callable[[Model, NodeView], str | None] | None


OPERATORS: dict[str, list[Operator]] = {}


def operator(
    *names: str,
    dtypes: Collection[str] | tuple[Collection[str], ...],
    attributes: Mapping[str, Collection[Any] | None] | None = None,
    since: int = 1,
    until: int = 10_000,
    check: Callable[[Model, NodeView], str | None] | None = None,
) -> Callable[[Lowering], Lowering]:
    """Register the lowering of ONNX operators, for opsets ``since`` to ``until``."""
    per_input = dtypes if dtypes and not isinstance(next(iter(dtypes)), str) else (dtypes,)

    def add(lower: Lowering) -> Lowering:
        for name in names:
            OPERATORS.setdefault(name, []).append(
                Operator(lower, tuple(per_input), attributes or {}, since, until, check)  # type: ignore[arg-type]
            )
        return lower

    return add


def find(op_type: str, opset: int) -> Operator | None:
    return next((entry for entry in OPERATORS.get(op_type, ()) if entry.since <= opset <= entry.until), None)


def refusal(model: Model, node: NodeView) -> str | None:
    """Why the CPU does not take a node; None if it does."""
    if (node.domain, node.op_type) in model.functions:
        return f"{node.op_type} is a function of the model"
    if node.domain:
        return f"no kernel for {node.domain}::{node.op_type}"
    if node.op_type not in OPERATORS:
        return f"no kernel for {node.op_type}"
    entry = find(node.op_type, node.opset)
    if entry is None:
        versions = ", ".join(f"{entry.since} to {entry.until}" for entry in OPERATORS[node.op_type])
        return f"{node.op_type} of opset {node.opset}; there are kernels for opsets {versions}"
    attributes = node.attributes
    for name, value in attributes.items():
        if name not in entry.attributes:
            return f"{node.op_type} with attribute {name}"
        accepted = entry.attributes[name]
        if accepted is not None and value not in accepted:
            return f"{node.op_type} with {name} = {value!r}; kernels take {', '.join(map(repr, accepted))}"
    for position, value_id in enumerate(model.node_inputs[node.index].tolist()):
        if value_id < 0:
            continue
        dtype = model.type_of(value_id).dtype
        accepted = entry.dtypes[min(position, len(entry.dtypes) - 1)]
        if dtype is not None and dtype.name not in accepted:
            return (
                f"{node.op_type} of {dtype.name} ({model.value_name(value_id)!r}); kernels take {', '.join(accepted)}"
            )
    return entry.check(model, node) if entry.check is not None else None


def dtype_trouble(entry: Operator, inputs: Sequence[Value | None]) -> str | None:
    """As in `refusal`, for types that were not known before planning."""
    for position, value in enumerate(inputs):
        accepted = entry.dtypes[min(position, len(entry.dtypes) - 1)]
        if value is not None and value.dtype.name not in accepted:
            return f"input {position} is {value.dtype.name}; kernels take {', '.join(accepted)}"
    return None
