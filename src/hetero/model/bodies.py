"""The nested graphs of If, Loop and Scan as models of their own, and the keys of their nodes.

A nested graph reads values of the outer graph by name. As a model, it has these values as further inputs after its own,
or as constants if they are constants outside. Its nodes are called ``<key of the outer node>/<name>``, so that pins,
errors and counters name the node and where it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import NDArray

from ..errors import HeteroError, raise_out_of_memory
from .detached import attach, detach
from .model import Model
from .nested import NestedTensors
from .types import Dim, onnx_dtype_of
from .wire import encode_tensor_type
from .write import header_of, with_graph

if TYPE_CHECKING:
    import onnx

__all__ = ["BODY_ATTRIBUTES", "Body", "BodyNode", "bodies_of", "body_nodes"]

BODY_ATTRIBUTES = {"If": ("then_branch", "else_branch"), "Loop": ("body",), "Scan": ("body",)}
"""Control-flow operator -> the attributes with its nested graphs."""

_GRAPH_ATTRIBUTE = 5  # onnx.AttributeProto.GRAPH
_TENSOR = "tensor_type"


class Body(NamedTuple):
    """A nested graph. ``attribute``: where the node has it. ``captures``: the outer values that are its last inputs.
    ``results``: for each output of the graph, its place among those of the model, where a value that the graph lists
    several times is one output."""

    attribute: str
    model: Model
    captures: tuple[str, ...]
    results: tuple[int, ...]


def bodies_of(model: Model, index: int, *, infer: bool = True) -> list[Body]:
    """The nested graphs of an If, Loop or Scan. Raises `HeteroError` if the node lacks one or has a wrong one.

    ``infer``: state the types of their inputs that follow from the outer graph, which may run shape inference."""
    view = model.nodes[index]
    embedded = NestedTensors(model, None).nodes.get(model.file_node(index))
    node = view.proto() if embedded is None else embedded
    graphs = {attribute.name: attribute.g for attribute in node.attribute if attribute.type == _GRAPH_ATTRIBUTE}
    found = []
    for attribute in BODY_ATTRIBUTES[view.op_type]:
        if attribute not in graphs:
            raise HeteroError(f"its graph attribute {attribute!r} is missing")
        found.append(_body(model, index, attribute, graphs[attribute], infer))
    return found


class BodyNode(NamedTuple):
    """A node in a nested graph. ``op``: the operator, with its domain unless that is ONNX's. ``constants``: the names
    of the constants that it reads, of its graph or an outer one."""

    key: str
    op: str
    constants: tuple[str, ...]


def body_nodes(model: Model, index: int) -> list[BodyNode]:
    """The nodes in the nested graphs of an If, Loop or Scan, at any depth."""
    captured = model.node_captures[index]
    constants = {model.value_name(value) for value in captured[model.is_constant[captured]].tolist()}
    return list(_nodes_inside(model.nodes[index].proto(), model.key_of(index), constants))


def _nodes_inside(node: onnx.NodeProto, key: str, outer: set[str]) -> Iterator[BodyNode]:
    for attribute in node.attribute:
        if attribute.type == _GRAPH_ATTRIBUTE and attribute.name in BODY_ATTRIBUTES.get(node.op_type, ()):
            graph = attribute.g
            stored = {tensor.name for tensor in graph.initializer}
            stored.update(sparse.values.name for sparse in graph.sparse_initializer)
            stored.update(name for inner in graph.node if _is_constant(inner) for name in inner.output)
            constants = outer - {info.name for info in graph.input} | stored
            for inner, name in zip(graph.node, _names_of(graph), strict=True):
                if _is_constant(inner):
                    continue  # not a node of the body's model
                inner_key = _joined(key, name)
                op = f"{inner.domain}::{inner.op_type}" if inner.domain else inner.op_type
                yield BodyNode(inner_key, op, tuple(read for read in inner.input if read in constants))
                yield from _nodes_inside(inner, inner_key, constants)


def _is_constant(node: onnx.NodeProto) -> bool:
    return node.op_type == "Constant" and not node.domain


def _body(model: Model, index: int, attribute: str, graph: onnx.GraphProto, infer: bool) -> Body:
    import onnx

    key = model.key_of(index)
    own = onnx.GraphProto()
    own.CopyFrom(graph)
    own.name = f"{key}.{attribute}"
    for node, name in zip(own.node, _names_of(own), strict=True):
        node.name = _joined(key, name)
    if infer:
        _state_types(model, index, own)
    listed = {info.name: info for info in reversed(own.output)}
    order = {name: place for place, name in enumerate(dict.fromkeys(info.name for info in own.output))}
    results = tuple(order[info.name] for info in own.output)
    infos = [listed[name] for name in order]
    del own.output[:]
    own.output.extend(infos)
    constants, captures = [], []
    for name in _free_names(own):
        value = model.find_value(name)
        if value is None:
            raise HeteroError(f"its graph {attribute!r} reads {name!r}, which is not defined")
        if model.is_constant[value]:
            constants.append(value)
            continue
        captures.append(name)
        info = own.input.add(name=name)
        if infer and model.has_type(value):
            info.type.MergeFromString(model.type_message(value))
    arrays: dict[str, NDArray[Any]] = {}
    if constants:
        data, arrays = detach(model.extract_constants(constants))
        outside = onnx.ModelProto.FromString(data).graph
        nodes = [*outside.node, *own.node]  # the first are Constant nodes
        del own.node[:]
        own.node.extend(nodes)
        own.initializer.extend(outside.initializer)
        own.sparse_initializer.extend(outside.sparse_initializer)
    label = f"{key!r} ({graph.name or attribute})"
    try:
        encoded = b"".join(with_graph(header_of(model), [own.SerializeToString()]))
        return Body(attribute, attach(memoryview(encoded), arrays, label), tuple(captures), results)
    except HeteroError as error:
        raise_out_of_memory(error)
        raise HeteroError(f"its graph {attribute!r}: {error}") from error


def _state_types(model: Model, index: int, graph: onnx.GraphProto) -> None:
    """State what the inputs of a body lack of their types, as far as it holds in each iteration."""
    import onnx

    op_type = model.nodes[index].op_type
    values = model.node_inputs[index].tolist()
    if op_type == "Scan":
        values = values[max(0, len(values) - len(graph.input)) :]  # in opset 8, the lengths of the batches come first
    fixed = (onnx.TensorProto.INT64, onnx.TensorProto.BOOL) if op_type == "Loop" else ()
    known = model.body_inputs(index) if op_type != "If" else ()
    for at, info in enumerate(graph.input):
        if info.type.WhichOneof("value") not in (None, _TENSOR):
            continue
        if not info.type.tensor_type.elem_type:
            value = values[at] if at < len(values) else -1
            if at < len(fixed):  # the iteration and the condition, which a body has even if the node has neither
                info.type.MergeFromString(encode_tensor_type(fixed[at], None))
            elif value >= 0:
                dtype = model.type_of(value).dtype
                if dtype is not None and model.is_tensor(value):
                    info.type.MergeFromString(encode_tensor_type(onnx_dtype_of(dtype), None))
                elif model.has_type(value):
                    info.type.MergeFromString(model.type_message(value))
        if at < len(known) and info.type.WhichOneof("value") == _TENSOR:
            _state_dims(info.type.tensor_type, known[at].shape)


def _state_dims(tensor: onnx.TypeProto.Tensor, shape: tuple[Dim, ...] | None) -> None:
    """State known sizes. What a body states of its first iteration only is replaced."""
    if shape is None:
        return
    if not tensor.HasField("shape") or len(tensor.shape.dim) != len(shape):
        tensor.ClearField("shape")
        tensor.shape.dim.extend(type(tensor.shape).Dimension() for _ in shape)
    for dim, size in zip(tensor.shape.dim, shape, strict=True):
        if isinstance(size, int):
            dim.dim_value = size


def _free_names(graph: onnx.GraphProto) -> list[str]:
    """The names that a graph and its nested graphs read and do not define, each once."""
    defined = {info.name for info in graph.input}
    defined.update(tensor.name for tensor in graph.initializer)
    defined.update(sparse.values.name for sparse in graph.sparse_initializer)
    free: dict[str, None] = {}
    for node in graph.node:
        read = list(node.input)
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                read += _free_names(inner)
        free.update((name, None) for name in read if name and name not in defined)
        defined.update(node.output)
    free.update((info.name, None) for info in graph.output if info.name not in defined)
    return list(free)


def _names_of(graph: onnx.GraphProto) -> list[str]:
    """The name of each node; of a node without a name of its own, its first output."""
    count = Counter(node.name for node in graph.node)
    return [
        node.name if node.name and count[node.name] == 1 else next(filter(None, node.output), node.op_type)
        for node in graph.node
    ]


def _joined(key: str, name: str) -> str:
    """``/Loop`` and ``/conv`` as ``/Loop/conv``: PyTorch's names begin with a slash."""
    return f"{key}{name}" if name.startswith("/") else f"{key}/{name}"
