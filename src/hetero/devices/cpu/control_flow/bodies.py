"""Operators without a kernel that ONNX defines as a function of other operators.

The node is planned as the nodes of its schema's function, the body. If one of these is not supported, the node is not
supported, for the same reason. Nodes of the body that compute from shapes and constants emit no calls: of the dozens of
nodes of an Attention, a dozen calls remain.

The onnx package builds some bodies in C++ code that does not validate the node. Therefore it gets only nodes that match
their schema, and only of operators whose builders were reviewed (`_EXPANDED`). A body is built once per distinct node
(operator, attributes, input types).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....errors import HeteroError, InferenceError, inference_error, raise_out_of_memory
from ....model.functions import fill_references
from ....model.read import read_model
from ....model.types import onnx_dtype_of
from ..registry import ANY, Node, NodePlan, Operator, Types, dtype_trouble, examine
from ..values import Context, NeedsData, Value

if TYPE_CHECKING:
    import onnx
    import onnx.defs

    from ....model.model import Model

__all__ = ["Bodies"]

# Operators whose builder reads only attributes and the presence, types and ranks of the inputs.
_EXPANDED = frozenset({
    "Attention",
    "BlackmanWindow",
    "CausalConvWithState",
    "Celu",
    "CenterCropPad",
    "HammingWindow",
    "HannWindow",
    "MeanVarianceNormalization",
    "NegativeLogLikelihoodLoss",
    "RMSNormalization",
    "SoftmaxCrossEntropyLoss",
    "SwiGLU",
})  # fmt: skip

# Operators whose lowering uses `Context.staged`. `Body.lower` stages values too, and a node can do so only once.
_STAGING = frozenset({"NonZero", "Compress", "Unique", "NonMaxSuppression"})


class _NoBody(Exception):
    """A node cannot be planned as its body; the text is the reason."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Step:
    """One node of a body. ``inputs``, ``outputs``: value numbers within the body; -1 if absent."""

    operator: Operator
    node: Node
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Body:
    """The nodes that replace one node. ``parameters``, ``results``: value numbers of its inputs and outputs, -1 for
    absent ones. ``last_read``: value number -> the last step that reads it."""

    steps: tuple[_Step, ...]
    constants: Mapping[int, Value]
    parameters: tuple[int, ...]
    results: tuple[int, ...]
    num_values: int
    last_read: Mapping[int, int]

    def lower(self, context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
        """Lower all steps.

        If a step needs data that the body computes, the values that the remaining steps read are staged. The first
        staged value is a constant: the step to continue with, then the numbers of the values that follow it."""
        values: dict[int, Value] = dict(self.constants)
        for number, value in zip(self.parameters, inputs, strict=False):
            if number >= 0 and value is not None:
                values[number] = value
        first = 0
        stage = context.stages.pop(context.node, None)
        if stage:
            assert stage[0].data is not None, "a constant"
            first, *numbers = stage[0].data.tolist()
            values.update(zip(numbers, stage[1:], strict=True))
        for at in range(first, len(self.steps)):
            step = self.steps[at]
            operands = [values[number] if number >= 0 else None for number in step.inputs]
            trouble = dtype_trouble(step.operator, operands)
            if trouble:
                raise InferenceError(f"{step.node.op_type} of its body: {trouble}")
            try:
                results = step.operator.lower(context, step.node, operands)
            except NeedsData as need:
                if not any(need.value is value for value in inputs):
                    kept = [n for n in values if n not in self.constants and self.last_read.get(n, -1) >= at]
                    marker = context.constant(np.array([at, *kept], np.int64))
                    context.stages[context.node] = [marker, *(values[n] for n in kept)]
                raise
            except HeteroError as error:
                raise inference_error(f"{step.node.op_type} of its body: {error}", error) from error
            values.update((n, result) for n, result in zip(step.outputs, results, strict=False) if n >= 0)
        nothing = Value(np.dtype(np.bool_), ())
        return [values[number] if number >= 0 else nothing for number in self.results]


class Bodies:
    """Builds and caches the bodies for the nodes of one model. Not thread-safe."""

    def __init__(self) -> None:
        self._made: dict[bytes, Operator | str] = {}

    def __call__(self, model: Model, index: int, types: Types) -> Operator | str | None:
        """An operator that lowers the node as its body, or the reason why there is none; None if ONNX defines none."""
        op_type = model.op_types[int(model.op_type_of[index])]
        if op_type not in _EXPANDED:
            return None
        try:
            call, elements = _canonical(model, index, types)
        except _NoBody as reason:
            return str(reason)
        opset = model.opsets.get("", 0)
        key = b"%d %s " % (opset, repr(elements).encode()) + call.SerializeToString(deterministic=True)
        if key not in self._made:
            try:
                self._made[key] = self._operator(call, opset, elements)
            except _NoBody as reason:
                self._made[key] = str(reason)
        return self._made[key]

    def _operator(self, call: onnx.NodeProto, opset: int, elements: _Elements) -> Operator:
        try:
            function = _function_of(call, opset, elements)
            inner = read_model(_as_model(function, call, elements))
        except _NoBody:
            raise
        except Exception as error:  # onnx raises any exception for contradictory attributes
            raise_out_of_memory(error)
            raise _NoBody(f"onnx gives no definition of it: {str(error)[:200]}") from error
        types = Types(inner)
        plans, reasons = examine(inner, self, types)
        if reasons:
            first, reason = next(iter(reasons.items()))
            raise _NoBody(f"{inner.nodes[first].op_type} in its definition: {reason}")
        body = _flattened(inner, plans, function, call)
        accepted = tuple((name,) if name else ANY for name, _ in elements)
        result = types.of(int(inner.output_ids[0])) if call.output[0] else None
        return Operator(body.lower, accepted or (ANY,), {}, 1, 10_000, None, result)


_Shape = tuple[int | None, ...] | None
_Elements = tuple[tuple[str | None, _Shape], ...]
"""Element type and shape of each input. The type of an absent input is None. The shape is None unless the operator's
builder reads it; unknown sizes are None."""


def _canonical(model: Model, index: int, types: Types) -> tuple[onnx.NodeProto, _Elements]:
    """The node with inputs i0, i1, ... and outputs o0, o1, ..., so that equal nodes have equal bytes."""
    import onnx

    node = model.nodes[index].proto()
    call = onnx.NodeProto(op_type=node.op_type, domain=node.domain)
    call.attribute.extend(sorted(node.attribute, key=lambda attribute: attribute.name))
    elements: list[tuple[str | None, _Shape]] = []
    for position, value in enumerate(model.node_inputs[index].tolist()):
        call.input.append(f"i{position}" if value >= 0 else "")
        if value < 0:
            elements.append((None, None))
            continue
        name = types.of(value)
        if name is None:
            raise _NoBody(f"the element type of input {model.value_name(value)!r} is not known")
        if name not in ANY:
            raise _NoBody(f"input {model.value_name(value)!r} is {name}")
        shape = model.type_of(value).shape if node.op_type in _BY_SHAPE else None
        sizes = None if shape is None else tuple(size if isinstance(size, int) else None for size in shape)
        elements.append((name, sizes))
    for position, value in enumerate(model.node_outputs[index].tolist()):
        call.output.append(f"o{position}" if value >= 0 else "")
    return call, tuple(elements)


_BY_SHAPE = frozenset({"CausalConvWithState", "Attention"})


def _function_of(call: onnx.NodeProto, opset: int, elements: _Elements) -> onnx.FunctionProto:
    """The function of the node's schema, with the node's attributes filled in."""
    import onnx
    import onnx.defs

    if not onnx.defs.has(call.op_type, opset, ""):
        raise _NoBody(f"opset {opset} has no {call.op_type}")
    schema: Any = onnx.defs.get_schema(call.op_type, opset, "")  # the stubs are incomplete
    _check_call(schema, call)
    plain, by_context = schema.function_opset_versions, schema.context_dependent_function_opset_versions
    versions = by_context or plain
    if not versions:
        raise _NoBody(f"ONNX does not define {call.op_type} of opset {opset} as a function of other operators")
    version = max((version for version in versions if version <= opset), default=min(versions))
    if by_context:
        encoded = [_type_proto(name, shape).SerializeToString() if name else b"" for name, shape in elements]
        made = schema.get_context_dependent_function_with_opset_version(version, call.SerializeToString(), encoded)
    else:
        made = schema.get_function_with_opset_version(version)
    function: onnx.FunctionProto = onnx.FunctionProto.FromString(made) if isinstance(made, bytes) else made
    if not function.node:
        raise _NoBody("its definition depends on shapes that are not known, or its attributes are contradictory")
    attributes = {name: entry.default_value for name, entry in schema.attributes.items() if entry.default_value.name}
    attributes.update((attribute.name, attribute) for attribute in call.attribute)
    filled = [fill_references(node, attributes) for node in function.node]
    del function.node[:]
    function.node.extend(filled)
    if not any(entry.domain in ("", "ai.onnx") for entry in function.opset_import):
        function.opset_import.add(domain="", version=version)
    return function


def _check_call(schema: Any, call: onnx.NodeProto) -> None:
    """Raise `_NoBody` unless the node has the inputs and attributes that the schema requires; builders rely on them."""
    if not schema.min_input <= len(call.input) <= schema.max_input:
        raise _NoBody(f"{len(call.input)} inputs; {call.op_type} has {schema.min_input} to {schema.max_input}")
    if not schema.min_output <= len(call.output) <= schema.max_output:
        raise _NoBody(f"{len(call.output)} outputs; {call.op_type} has {schema.min_output} to {schema.max_output}")
    single = type(schema).FormalParameterOption.Single
    for parameters, names, what in ((schema.inputs, call.input, "input"), (schema.outputs, call.output, "output")):
        for parameter, name in zip(parameters, names, strict=False):
            if parameter.option == single and not name:
                raise _NoBody(f"{call.op_type} without its {what} {parameter.name}")
    for attribute in call.attribute:
        expected = schema.attributes.get(attribute.name)
        if expected is None:
            raise _NoBody(f"{call.op_type} with attribute {attribute.name}")
        if attribute.type != expected.type.value:
            raise _NoBody(f"{call.op_type} with an attribute {attribute.name} that is not of type {expected.type.name}")
    named = {attribute.name for attribute in call.attribute}
    for name, expected in schema.attributes.items():
        if expected.required and name not in named:
            raise _NoBody(f"{call.op_type} without its attribute {name}")


def _type_proto(name: str, shape: _Shape) -> onnx.TypeProto:
    import onnx

    type_proto = onnx.TypeProto()
    type_proto.tensor_type.elem_type = onnx_dtype_of(np.dtype(name) if name != "bfloat16" else _bfloat16())
    if shape is not None:
        type_proto.tensor_type.shape.SetInParent()
        for size in shape:
            dim = type_proto.tensor_type.shape.dim.add()
            if size is not None:
                dim.dim_value = size
    return type_proto


def _bfloat16() -> np.dtype[Any]:
    import ml_dtypes

    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype


def _as_model(function: onnx.FunctionProto, call: onnx.NodeProto, elements: _Elements) -> bytes:
    """A model of those nodes of the function that the node's outputs depend on."""
    import onnx

    rename = dict.fromkeys(function.input[len(call.input) :], "")
    rename.update((name, "") for name, argument in zip(function.input, call.input, strict=False) if not argument)
    if len(function.output) < len(call.output) or len(function.input) < len(call.input):
        raise _NoBody(f"its definition has fewer inputs or outputs than {call.op_type}")
    outputs = [name for name, name_in_call in zip(function.output, call.output, strict=False) if name_in_call]
    needed, kept = set(outputs), []
    for node in reversed(function.node):
        if node.attribute and any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
            raise _NoBody(f"{node.op_type} in its definition")
        if needed.intersection(node.output):
            node.input[:] = [rename.get(name, name) for name in node.input]
            needed.update(node.input)
            kept.append(node)
    graph = onnx.GraphProto(name=call.op_type, node=reversed(kept))
    for name, (element, shape) in zip(function.input, elements, strict=False):
        if element is not None:
            graph.input.add(name=name, type=_type_proto(element, shape))
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    model = onnx.ModelProto(ir_version=10, graph=graph, opset_import=function.opset_import)
    encoded: bytes = model.SerializeToString()
    return encoded


def _value_named(inner: Model, name: str) -> int:
    value = inner.find_value(name)
    if value is None:
        raise _NoBody(f"its definition does not contain its own parameter {name!r}")
    return value


def _flattened(inner: Model, plans: Sequence[NodePlan], function: onnx.FunctionProto, call: onnx.NodeProto) -> Body:
    """The body of a call. Nodes that are planned as bodies themselves are replaced by the steps of their bodies."""
    constants: dict[int, Value] = {}
    steps: list[_Step] = []
    num_values = inner.num_values

    def note_constants(numbers: Sequence[int]) -> None:
        for number in numbers:
            if number >= 0 and number not in constants and inner.is_constant[number]:
                array = inner.constant(number)
                constants[number] = Value(array.dtype, array.shape, array, shared=True)

    for plan in plans:
        note_constants(plan.inputs)
        body = getattr(plan.operator.lower, "__self__", None)
        if not isinstance(body, Body):
            if plan.node.op_type in _STAGING:
                raise _NoBody(f"{plan.node.op_type} in its definition")
            steps.append(_Step(plan.operator, plan.node, tuple(plan.inputs), tuple(plan.outputs)))
            continue
        number_of = {number: num_values + number for number in range(body.num_values)} | {-1: -1}
        num_values += body.num_values
        number_of.update((own, outer) for own, outer in zip(body.parameters, plan.inputs, strict=False) if own >= 0)
        number_of.update((own, outer) for own, outer in zip(body.results, plan.outputs, strict=True) if own >= 0)
        constants.update((number_of[number], value) for number, value in body.constants.items())
        for step in body.steps:
            inputs, outputs = (tuple(number_of[n] for n in numbers) for numbers in (step.inputs, step.outputs))
            steps.append(_Step(step.operator, step.node, inputs, outputs))
    results, parameters = (
        tuple(_value_named(inner, name) if is_used else -1 for name, is_used in zip(names, used, strict=False))
        for names, used in ((function.output, call.output), (function.input, call.input))
    )
    note_constants(results)
    last_read = {number: at for at, step in enumerate(steps) for number in step.inputs}
    last_read.update((number, len(steps)) for number in results)
    return Body(tuple(steps), constants, parameters, results, num_values, last_read)
