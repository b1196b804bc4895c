"""Which nodes of a model the device supports, and why it rejects the others."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ...model.types import ValueType
from .builder import LARGEST
from .operators import OPERATORS, Operator, StaticNode

if TYPE_CHECKING:
    from ...model.model import Model
    from ...model.views import NodeView

__all__ = ["Examination", "examine"]

_READ_WHOLE = 64
"""Elements: constants that a check of a node may read."""


class Examination:
    """``reasons``: rejected node -> reason. ``versions``: of the operator's schema, for each node that is supported.
    ``host_only``: supported nodes that the host computes, because their inputs are known before the run."""

    def __init__(self) -> None:
        self.reasons: dict[int, str] = {}
        self.versions: dict[int, int] = {}
        self.host_only: set[int] = set()


def examine(model: Model) -> Examination:
    """Ask each node's operator."""
    result = Examination()
    known = np.array(model.is_constant)  # values that are known before the run: constants, inputs, and what follows
    for value in model.input_ids:
        shape = model.type_of(value).shape
        known[value] = shape is not None and len(shape) <= 1  # a run reads such inputs before it plans, if it has to
    read = np.zeros(model.num_values + 1, np.bool_)  # the last entry is for absent values, -1
    for values in (model.node_inputs.values, model.node_captures.values, list(model.output_ids)):
        read[values] = True
    for node in model.nodes:
        reason = _refusal(model, node, known, read, result)
        if reason is not None:
            result.reasons[node.index] = reason
            continue
        operator = OPERATORS[node.op_type]
        outputs = [value for value in model.node_outputs[node.index].tolist() if value >= 0]
        inputs = [value for value in model.node_inputs[node.index].tolist() if value >= 0]
        known[outputs] = node.op_type in ("Shape", "Size", "Range") or (
            operator.on_host is not None and bool(known[inputs].all())
        )
    return result


def _refusal(model: Model, node: NodeView, known: np.ndarray, read: np.ndarray, result: Examination) -> str | None:
    if node.domain not in ("", "ai.onnx"):
        return f"operators of domain {node.domain!r} are not supported"
    operator = OPERATORS.get(node.op_type)
    if operator is None:
        return f"the operator {node.op_type} is not supported"
    version = _schema_version(node.op_type, node.opset)
    if version not in operator.versions:
        return f"{node.op_type} of opset {node.opset} is not supported"
    attributes = node.attributes
    unknown = sorted(name for name in attributes if name not in operator.attributes)
    if unknown:
        return f"its attribute {unknown[0]!r} is not supported"
    inputs = model.node_inputs[node.index].tolist()
    types = [None if value < 0 else model.type_of(value) for value in inputs]
    reason = _mistyped(operator, types)
    if reason is not None:
        return reason
    for position in operator.host:
        if position < len(inputs) and inputs[position] >= 0 and not known[inputs[position]]:
            return f"its input {position + 1}, which states a size, an axis or a position, depends on data"
    outputs = model.node_outputs[node.index].tolist()
    num_outputs = max((at + 1 for at, value in enumerate(outputs) if value >= 0 and read[value]), default=0)
    for value in (*inputs, *outputs):
        if value >= 0 and _elements(model.type_of(value)) > LARGEST:
            return "a tensor has more than 2^31 - 1 elements"
    constants = [_small_constant(model, value) for value in inputs]
    static = StaticNode(attributes, version, types, constants, num_outputs)
    reason = None if operator.check is None else operator.check(static)
    if reason is None and num_outputs > operator.num_outputs:
        reason = f"only {operator.num_outputs} of its outputs are supported"
    if reason is None and operator.check_on_device is not None:
        reason = operator.check_on_device(static)
        if reason is not None and all(value < 0 or known[value] for value in inputs):
            result.host_only.add(node.index)
            reason = None
    if reason is None:
        result.versions[node.index] = version
    return reason


def _mistyped(operator: Operator, types: list[ValueType | None]) -> str | None:
    """Why the element types of the inputs are not supported."""
    for position, kind in enumerate(types):
        if kind is None:
            continue
        if kind.dtype is None:
            return f"the element type of its input {position + 1} is unknown"
        allowed = operator.types[min(position, len(operator.types) - 1)]
        if kind.dtype.name not in allowed:
            return f"{kind.dtype} in input {position + 1} is not supported; expected {', '.join(sorted(allowed))}"
    return None


def _elements(kind: ValueType) -> int:
    """The number of elements, as far as the sizes are known."""
    return math.prod(size for size in kind.shape or () if isinstance(size, int))


def _small_constant(model: Model, value: int) -> np.ndarray | None:
    if value < 0 or not model.is_constant[value] or _elements(model.constant_type(value)) > _READ_WHOLE:
        return None
    return model.constant(value)


def _schema_version(op_type: str, opset: int) -> int:
    """The version of an operator in an opset; 0 if the operator does not exist there."""
    import onnx.defs

    if not onnx.defs.has(op_type, opset, ""):
        return 0
    return int(onnx.defs.get_schema(op_type, opset, "").since_version)
