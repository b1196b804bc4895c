"""If, Loop and Scan: which of them the CPU supports, and their bodies as models of their own.

A body becomes a model whose inputs are its own inputs and the values that it reads from enclosing graphs (captures). It
is examined like any model: if one of its nodes is not supported, neither is the control-flow node, for the same reason.
Captured constants are constants in the body (`Planner.child`). Bodies within bodies are handled the same way; the model
reader limits their depth. `run.py`, `iterations.py` and `branches.py` run them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....errors import HeteroError, raise_out_of_memory
from ....model.read import read_model
from ....model.types import Dim, dtype_of, onnx_dtype_of
from ..registry import (
    ANY,
    ANYTHING,
    BOOL,
    NOT_TENSOR,
    STRING,
    Append,
    Expand,
    Nested,
    NestedGraph,
    Node,
    Types,
    examine,
    name_of,
    operator,
)
from ..values import Context, NeedsHost, Value
from .appends import without_appends
from .invariants import with_invariants_captured

if TYPE_CHECKING:
    import onnx

    from ....model.model import Model


class _Refused(Exception):
    """A node is not supported; the text is the reason."""


def _nested_of(model: Model, index: int, types: Types, expand: Expand) -> Nested | str:
    """The bodies of a control-flow node, or the reason why it is not supported. Records its outputs in ``types``."""
    view = model.nodes[index]
    inputs, outputs = model.node_inputs[index].tolist(), model.node_outputs[index].tolist()
    kept: tuple[int, ...] = ()
    appends: tuple[Append, ...] = ()
    try:
        old_scan = view.op_type == "Scan" and view.opset < 9  # its first input has the lengths, and may be absent
        required = {"Loop": inputs[2:]}.get(view.op_type, inputs[1:] if old_scan else inputs)
        if any(value < 0 for value in required):
            raise _Refused("a required input is missing")
        _check_calls(model, index)
        match view.op_type:
            case "If":
                graphs = [_read(model, index, name, [], types, expand) for name in ("else_branch", "then_branch")]
                _check_if(graphs, len(inputs), len(outputs))
                results = graphs[1].outputs
            case "Loop":
                body_inputs = [types.of(value) if value >= 0 else None for value in inputs[2:]]
                graphs = [_read(model, index, "body", ["int64", "bool", *body_inputs], types, expand)]
                _check_loop(graphs[0], len(inputs), len(outputs))
                row_shape = functools.partial(_row_shape, model, graphs[0], outputs, len(inputs) - 2)
                graphs[0] = dataclasses.replace(graphs[0], row_shape=row_shape)
                results = graphs[0].outputs[1:]
                graphs[0], appends = without_appends(graphs[0])
                graphs[0], kept = with_invariants_captured(graphs[0], body_inputs, appends)
            case "SequenceMap":
                graphs = [_read(model, index, "body", [None] * len(inputs), types, expand)]
                _check_sequence_map(graphs[0], len(inputs), len(outputs))
                results = ()
            case _:
                graphs = [_read(model, index, "body", [types.of(value) for value in required], types, expand)]
                _check_scan(graphs[0], view.attributes, len(required), len(outputs))
                results = graphs[0].outputs
        captures = tuple(model.node_captures[index].tolist())
        for value in captures:
            _check_type(types.of(value), f"captured {model.value_name(value)!r}")
    except _Refused as reason:
        return str(reason)
    for value, (dtype, _) in zip(outputs, results, strict=False):
        if value >= 0 and dtype is not None:
            types.state(value, name_of(dtype))
    return Nested(tuple(graphs), captures, len(inputs), kept, appends)


def _read(
    model: Model, index: int, name: str, own_types: Sequence[str | None], types: Types, expand: Expand
) -> NestedGraph:
    """The body in attribute ``name``. ``own_types``: the element types of the arguments for its own inputs."""
    import onnx

    graph = model.nodes[index].attributes.get(name)
    if not isinstance(graph, onnx.GraphProto):
        raise _Refused(f"it has no graph {name}")
    own = [value.name for value in graph.input]
    captured = _captures_of(graph, model, index)
    try:
        inner = read_model(
            _as_model(model, graph, own_types, captured, types),
            folder=model.file.folder,
            follow_links=model.file.follow_links,
            external_data=model.file.external_data,
        )
        inner_types = Types(inner)
        plans, reasons = examine(inner, expand, inner_types)
    except HeteroError as error:
        raise_out_of_memory(error)
        raise _Refused(f"its {name} cannot be read: {error}") from error
    if reasons:
        first, reason = next(iter(reasons.items()))
        raise _Refused(f"its {name}: node {inner.key_of(first)!r} ({inner.nodes[first].op_type}): {reason}")
    inputs = tuple(inner.value_id(own_name) for own_name in own)
    if any(inner.is_constant[value] for value in inputs):
        raise _Refused(f"its {name} has an input that is also an initializer")
    num_inputs = len(model.node_inputs[index])
    position_of = {value: num_inputs + at for at, value in enumerate(model.node_captures[index].tolist())}
    reads = inner.read_count
    captures = tuple(
        (inner_value, position_of[outer])
        for outer, outer_name in captured
        if (inner_value := inner.find_value(outer_name)) is not None and reads[inner_value]
    )
    outputs = []
    results = tuple(inner.value_id(value.name) for value in graph.output)
    for value, stated in zip(results, graph.output, strict=True):
        dtype, dims = _stated(stated)
        element = inner_types.of(value) if dtype is None else name_of(dtype)
        _check_type(element, f"output {inner.value_name(value)!r} of its {name}")
        outputs.append((dtype_of_name(element) if element else None, dims))
    if any(plan.operator.labels and plan.operator.labels(plan.node.attributes) is not None for plan in plans):
        raise _Refused(f"its {name} has a classifier with strings as labels")
    ranks = tuple(None if (dims := _stated(entry)[1]) is None else len(dims) for entry in graph.input)
    return NestedGraph(name, inner, plans, inputs, captures, results, tuple(outputs), ranks)


def _row_shape(model: Model, body: NestedGraph, results: Sequence[int], carried: int, value: int) -> tuple[Dim, ...]:
    """`NestedGraph.row_shape` of a Loop with these ``results`` in ``model``."""
    at = body.results.index(value, 1 + carried) - 1
    stack = model.type_of(results[at]).shape if at < len(results) and results[at] >= 0 else None
    return stack[1:] if stack else body.model.type_of(value).shape or ()


def _captures_of(graph: onnx.GraphProto, model: Model, index: int) -> list[tuple[int, str]]:
    """The captured values, as (value id, name), except names that this body defines itself."""
    bound = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    bound.update(tensor.values.name for tensor in graph.sparse_initializer)
    bound.update(name for node in graph.node for name in node.output)
    captured = [(value, model.value_name(value)) for value in model.node_captures[index].tolist()]
    return [(value, name) for value, name in captured if name not in bound]


def _as_model(
    model: Model,
    graph: onnx.GraphProto,
    own_types: Sequence[str | None],
    captured: Sequence[tuple[int, str]],
    types: Types,
) -> bytes:
    """A body as an encoded model. Inputs without a stated type get the type of their argument."""
    import onnx

    whole = onnx.ModelProto(ir_version=model.ir_version)
    for domain, version in model.opsets.items():
        whole.opset_import.add(domain=domain, version=version)
    whole.graph.CopyFrom(graph)
    whole.graph.name = graph.name or "body"
    del whole.graph.output[:]
    whole.graph.output.extend({value.name: value for value in graph.output}.values())
    for entry, element in zip(whole.graph.input, own_types, strict=False):
        if element is not None and not entry.HasField("type"):
            entry.type.tensor_type.elem_type = onnx_dtype_of(dtype_of_name(element))
    for value, name in captured:
        element = types.of(value)
        entry = whole.graph.input.add(name=name)
        if element is None:
            entry.type.ParseFromString(model.type_message(value))
        else:
            entry.type.tensor_type.elem_type = onnx_dtype_of(dtype_of_name(element))
    encoded: bytes = whole.SerializeToString()
    return encoded


def dtype_of_name(name: str) -> np.dtype[Any]:
    import ml_dtypes  # noqa: F401  which makes bfloat16 known to NumPy

    return np.dtype(name)


def _stated(value: onnx.ValueInfoProto) -> tuple[np.dtype[Any] | None, tuple[Dim, ...] | None]:
    """Element type and dimensions that a graph states for an input or output."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return dtype_of(tensor.elem_type), None
    return dtype_of(tensor.elem_type), tuple(
        dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim
    )


def _check_calls(model: Model, index: int) -> None:
    """Raise `_Refused` for calls of the model's functions at any depth; they are inlined before."""
    if not model.functions:
        return
    functions = set(model.functions)
    pending = [model.nodes[index].proto()]
    while pending:
        node = pending.pop()
        if (node.domain, node.op_type) in functions:
            raise _Refused(f"it contains a call of {node.op_type}, a function of the model")
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                pending += graph.node


def _check_type(element: str | None, what: str) -> None:
    if element is not None and element not in ANY and element not in STRING:
        raise _Refused(f"{what} is {element}; kernels support {', '.join(ANY)}")


def _check_if(graphs: Sequence[NestedGraph], num_inputs: int, num_outputs: int) -> None:
    if num_inputs != 1:
        raise _Refused(f"it has {num_inputs} inputs, expected 1: the condition")
    for graph in graphs:
        if graph.inputs or len(graph.outputs) < num_outputs:
            raise _Refused(
                f"its {graph.name} has {len(graph.inputs)} inputs and {len(graph.outputs)} outputs, "
                f"expected none and {num_outputs}"
            )
    for position, ((no, _), (yes, _)) in enumerate(zip(graphs[0].outputs, graphs[1].outputs, strict=False)):
        if position < num_outputs and no is not None and yes is not None and no != yes:
            raise _Refused(f"output {position} of its branches is {yes} and {no}")


def _check_loop(body: NestedGraph, num_inputs: int, num_outputs: int) -> None:
    carried = max(num_inputs - 2, 0)
    if len(body.inputs) != carried + 2 or len(body.outputs) < max(num_outputs, carried) + 1:
        raise _Refused(
            f"its body has {len(body.inputs)} inputs and {len(body.outputs)} outputs, which does not fit "
            f"{num_inputs} inputs and {num_outputs} outputs"
        )


def _check_sequence_map(body: NestedGraph, num_inputs: int, num_outputs: int) -> None:
    if len(body.inputs) != num_inputs or len(body.outputs) != num_outputs or not num_inputs:
        raise _Refused(
            f"its body has {len(body.inputs)} inputs and {len(body.outputs)} outputs, expected {num_inputs} and "
            f"{num_outputs}"
        )


def _check_scan(body: NestedGraph, attributes: Any, num_inputs: int, num_outputs: int) -> None:
    scanned = int(attributes.get("num_scan_inputs", 0))
    states = num_inputs - scanned
    if scanned < 1 or states < 0 or len(body.inputs) != num_inputs or len(body.outputs) < max(num_outputs, states):
        raise _Refused(
            f"its body has {len(body.inputs)} inputs and {len(body.outputs)} outputs, which does not fit "
            f"{num_inputs} inputs, {num_outputs} outputs and num_scan_inputs {scanned}"
        )
    names = ("scan_input_directions", "scan_input_axes", "scan_output_directions", "scan_output_axes", "directions")
    for name in names:
        expected = scanned if "output" not in name else len(body.outputs) - states
        entries = list(attributes.get(name, ()))
        if entries and len(entries) != expected:
            raise _Refused(f"{name} has {len(entries)} entries, expected {expected}")
        if name.endswith("directions") and not set(entries) <= {0, 1}:
            raise _Refused(f"{name} is {entries}, expected 0 and 1")


@operator(
    "SequenceMap",
    dtypes=(NOT_TENSOR, ANYTHING),
    attributes={"body": None},
    result=None,
    nested=_nested_of,
)
@operator(
    "If",
    dtypes=(BOOL, ANYTHING),
    attributes={"then_branch": None, "else_branch": None},
    result=None,
    nested=_nested_of,
)
@operator("Loop", dtypes=(("int64",), BOOL, ANYTHING), attributes={"body": None}, result=None, nested=_nested_of)
@operator(
    "Scan",
    dtypes=ANY,
    attributes={
        "body": None,
        "num_scan_inputs": None,
        "scan_input_axes": None,
        "scan_input_directions": None,
        "scan_output_axes": None,
        "scan_output_directions": None,
    },
    since=9,
    result=None,
    nested=_nested_of,
)
@operator(
    "Scan",
    dtypes=ANY,
    attributes={"body": None, "num_scan_inputs": None, "directions": None},
    until=8,
    result=None,
    nested=_nested_of,
)
def _run_by_host(context: Context, node: Node, inputs: Sequence[Value | None]) -> Sequence[Value]:
    raise NeedsHost
