"""The naive twin of the reader: plain Python over `onnx`, the slow and obvious way."""

from __future__ import annotations

import dataclasses
import heapq
from collections import Counter
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper as onh

from hetero.errors import ModelError
from hetero.model.model import Model


@dataclasses.dataclass
class Naive:
    """What a Model must say, found the slow way."""

    nodes: list[onnx.NodeProto]
    captures: list[list[str]]
    constants: dict[str, np.ndarray[Any, Any]]
    keys: list[str]
    constant_keys: set[str]
    inputs: list[str]
    outputs: list[str]
    edges: set[tuple[int, int]]
    values: set[str]
    declared: dict[str, onnx.TypeProto]


def captures_of(node: onnx.NodeProto) -> list[str]:
    found: list[str] = []

    def walk(graph: onnx.GraphProto, bound: set[str]) -> None:
        bound = bound | {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
        bound |= {sparse.values.name for sparse in graph.sparse_initializer}
        bound |= {output for inner in graph.node for output in inner.output}
        read = [name for inner in graph.node for name in inner.input] + [value.name for value in graph.output]
        found.extend(name for name in dict.fromkeys(read) if name and name not in bound and name not in found)
        for inner in graph.node:
            for nested in graphs_of(inner):
                walk(nested, bound)

    for nested in graphs_of(node):
        walk(nested, set())
    return found


def graphs_of(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    return [
        graph
        for attribute in node.attribute
        for graph in ([attribute.g] if attribute.HasField("g") else list(attribute.graphs))
    ]


def array_of(tensor: onnx.TensorProto) -> np.ndarray[Any, Any]:
    if tensor.data_type != onnx.TensorProto.STRING:
        return onh.to_array(tensor)
    strings = np.empty(len(tensor.string_data), object)  # to_array drops NULs at the end
    strings[:] = [text.decode() for text in tensor.string_data]
    return strings.reshape(tuple(tensor.dims))


def dense(sparse: onnx.SparseTensorProto) -> np.ndarray[Any, Any]:
    values, indices = array_of(sparse.values), onh.to_array(sparse.indices)
    array = np.zeros(tuple(sparse.dims), values.dtype)
    for row, value in zip(indices, values, strict=True):
        array[np.unravel_index(row, array.shape) if indices.ndim == 1 else tuple(row)] = value
    return array


def constant_of(node: onnx.NodeProto) -> np.ndarray[Any, Any]:
    attribute = node.attribute[0]
    if attribute.name == "value":
        return array_of(attribute.t)
    if attribute.name == "sparse_value":
        return dense(attribute.sparse_tensor)
    if attribute.name == "value_string":
        return np.array(attribute.s.decode(), object)
    if attribute.name == "value_strings":
        return np.array([text.decode() for text in attribute.strings], object)
    fields = {"value_float": "f", "value_floats": "floats", "value_int": "i", "value_ints": "ints"}
    value = getattr(attribute, fields[attribute.name])
    return np.array(value, np.float32 if "float" in attribute.name else np.int64)


def value_of(attribute: onnx.AttributeProto) -> Any:
    """As `onnx.helper.get_attribute_value`, but whatever is there for an attribute that states no type."""
    if attribute.type != onnx.AttributeProto.UNDEFINED:
        return oh.get_attribute_value(attribute)
    for field in ("f", "i", "s", "t", "g", "tp", "sparse_tensor"):
        if attribute.HasField(field):
            return getattr(attribute, field)
    for field in ("floats", "ints", "strings", "tensors", "graphs", "type_protos", "sparse_tensors"):
        if len(getattr(attribute, field)):
            return list(getattr(attribute, field))
    return None


def keys_of(nodes: list[onnx.NodeProto]) -> list[str]:
    names = Counter(node.name for node in nodes)
    output = [next((name for name in node.output if name), "") for node in nodes]
    by_name = [bool(node.name) and names[node.name] == 1 for node in nodes]
    while True:  # a name that is the key of another node by its output is no key
        taken = {output[i] for i in range(len(nodes)) if not by_name[i]}
        clash = [i for i in range(len(nodes)) if by_name[i] and nodes[i].name in taken]
        if not clash:
            return [node.name if by_name[i] else output[i] for i, node in enumerate(nodes)]
        for i in clash:
            by_name[i] = False


def read_naively(model: onnx.ModelProto) -> Naive:
    graph = model.graph
    is_constant = [node.op_type == "Constant" and node.domain in ("", "ai.onnx") for node in graph.node]
    constants = {tensor.name: array_of(tensor) for tensor in graph.initializer}
    constants |= {sparse.values.name: dense(sparse) for sparse in graph.sparse_initializer}
    for node, constant in zip(graph.node, is_constant, strict=True):
        if constant:
            constants[node.output[0]] = constant_of(node)
    nodes = [node for node, constant in zip(graph.node, is_constant, strict=True) if not constant]
    read = [[name for name in node.input if name] + captures_of(node) for node in nodes]
    producer = {name: i for i, node in enumerate(nodes) for name in node.output if name}

    waiting = [len({producer[name] for name in names if name in producer}) for names in read]
    readers: list[set[int]] = [set() for _ in nodes]
    for i, names in enumerate(read):
        for name in names:
            if name in producer:
                readers[producer[name]].add(i)
    ready = [i for i, count in enumerate(waiting) if count == 0]
    order: list[int] = []
    while ready:
        order.append(heapq.heappop(ready))
        for reader in readers[order[-1]]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heapq.heappush(ready, reader)
    place = {node: i for i, node in enumerate(order)}

    all_keys = keys_of(list(graph.node))
    keys = [key for key, constant in zip(all_keys, is_constant, strict=True) if not constant]
    declared = {info.name: info.type for info in (*graph.value_info[::-1], *graph.output, *graph.input)}
    named = {name for names in read for name in names} | set(producer) | set(constants)
    named |= {info.name for info in (*graph.input, *graph.output)}
    return Naive(
        nodes=[nodes[i] for i in order],
        captures=[captures_of(nodes[i]) for i in order],
        constants=constants,
        keys=[keys[i] for i in order],
        constant_keys={key for key, constant in zip(all_keys, is_constant, strict=True) if constant},
        inputs=[info.name for info in graph.input if info.name not in constants],
        outputs=[info.name for info in graph.output],
        edges={(place[producer[name]], place[i]) for i, names in enumerate(read) for name in names if name in producer},
        values=named,
        declared={name: kind for name, kind in declared.items() if name in named and name not in constants},
    )


def check(
    model: Model, proto: onnx.ModelProto, *, fields_ordered: bool = True, may_have_bad_types: bool = False
) -> None:
    """Compares all that a model says with what is found the slow way.

    ``fields_ordered``: nodes stand before outputs also in nested graphs, so that the order of captures is known.
    ``may_have_bad_types``: declared types may be refused when asked for.
    """
    naive = read_naively(proto)
    assert model.num_nodes == len(naive.nodes)
    for view, node, captures, key in zip(model.nodes, naive.nodes, naive.captures, naive.keys, strict=True):
        domain = "" if node.domain == "ai.onnx" else node.domain
        assert (view.name, view.op_type, view.domain) == (node.name, node.op_type, domain)
        assert view.inputs == tuple(node.input)
        assert view.outputs == tuple(node.output)
        assert view.captures == tuple(captures if fields_ordered else sorted(captures, key=view.captures.index))
        assert view.key == key
        assert model.index_of(key) == view.index
        assert model.op_types[model.op_type_of[view.index]] == (f"{domain}::{view.op_type}" if domain else view.op_type)
        assert view.proto() == node
        expected = {attribute.name: value_of(attribute) for attribute in node.attribute}
        assert repr(view.attributes) == repr(type(view.attributes)(expected))  # NaNs are equal to nothing
    assert model.keys == tuple(naive.keys)
    assert model.constant_keys == naive.constant_keys
    assert {model.value_name(value) for value in range(model.num_values)} == naive.values
    assert all(model.value_name(model.value_id(name)) == name for name in naive.values)
    assert tuple(map(model.value_name, model.input_ids)) == tuple(naive.inputs)
    assert tuple(map(model.value_name, model.output_ids)) == tuple(naive.outputs)

    names = [model.value_name(value) for value in range(model.num_values)]
    assert {names[value] for value in np.flatnonzero(model.is_constant)} == set(naive.constants)
    for name, array in naive.constants.items():
        value = model.value_id(name)
        found = model.constant(value)
        assert found.dtype == array.dtype or (found.dtype == object and array.dtype.kind in "OU")
        assert found.shape == array.shape
        assert not found.flags.writeable
        assert found.flags.aligned
        assert found.tolist() == array.tolist() if found.dtype == object else found.tobytes() == array.tobytes()
        known = model.constant_type(value)
        assert (known.dtype, known.shape) == (found.dtype, array.shape)

    for value in range(model.num_values):
        producer = int(model.producer[value])
        assert (producer >= 0) == any(names[value] in node.output for node in naive.nodes[producer : producer + 1])
    graph = model.graph
    sources = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    assert list(zip(sources.tolist(), graph.indices.tolist(), strict=True)) == sorted(naive.edges)
    opsets = {"" if entry.domain == "ai.onnx" else entry.domain: entry.version for entry in proto.opset_import}
    assert model.opsets == (opsets or {"": 1})
    assert model.functions == tuple((function.domain, function.name) for function in proto.functions)
    assert (model.ir_version, model.name) == (proto.ir_version, proto.graph.name)
    for name, kind in naive.declared.items():
        if not kind.HasField("tensor_type") or not kind.tensor_type.HasField("shape"):
            continue
        if kind.tensor_type.elem_type == 0:
            continue  # inference may know better
        try:
            known = model.type_of(model.value_id(name))
        except ModelError:
            assert may_have_bad_types
            continue
        shape = tuple(
            dim.dim_param or (dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None)
            for dim in kind.tensor_type.shape.dim
        )
        assert known.shape == shape
        assert known.dtype is not None
        expected_dtype = oh.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type)
        assert known.dtype == expected_dtype or known.dtype.hasobject
