"""The index against a naive reader in plain Python over `onnx`: the same model, whatever the file."""

from __future__ import annotations

import dataclasses
import heapq
import importlib.util
import pathlib
import random
import struct
from collections import Counter
from typing import Any

import google.protobuf.descriptor
import hypothesis.strategies as st
import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper as onh
import pytest
from hypothesis import given, settings

from hetero.model.model import Model
from hetero.model.read import read_model


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


def dense(sparse: onnx.SparseTensorProto) -> np.ndarray[Any, Any]:
    values, indices = onh.to_array(sparse.values), onh.to_array(sparse.indices)
    array = np.zeros(tuple(sparse.dims), values.dtype)
    for row, value in zip(indices, values, strict=True):
        array[np.unravel_index(row, array.shape) if indices.ndim == 1 else tuple(row)] = value
    return array


def constant_of(node: onnx.NodeProto) -> np.ndarray[Any, Any]:
    attribute = node.attribute[0]
    value = oh.get_attribute_value(attribute)
    if attribute.name == "value":
        return onh.to_array(value)
    if attribute.name == "sparse_value":
        return dense(value)
    if attribute.name.startswith("value_string"):
        strings = [text.decode() for text in (value if isinstance(value, list) else [value])]
        return np.array(strings, object).reshape(() if attribute.name == "value_string" else -1)
    return np.array(value, np.float32 if "float" in attribute.name else np.int64)


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
    constants = {tensor.name: onh.to_array(tensor) for tensor in graph.initializer}
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


def check(model: Model, proto: onnx.ModelProto, *, fields_ordered: bool = True) -> None:
    """``fields_ordered``: nodes stand before outputs also in nested graphs, so that the order of captures is known."""
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
        expected = {attribute.name: oh.get_attribute_value(attribute) for attribute in node.attribute}
        assert repr(view.attributes) == repr(type(view.attributes)(expected))  # NaNs are equal to nothing
    assert model.keys == tuple(naive.keys)
    assert model.constant_keys == naive.constant_keys
    assert {model.value_name(value) for value in range(model.num_values)} == naive.values
    assert all(model.value_name(model.value_id(name)) == name for name in naive.values)
    assert tuple(port.name for port in model.inputs) == tuple(naive.inputs)
    assert tuple(port.name for port in model.outputs) == tuple(naive.outputs)

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
        known = model.type_of(model.value_id(name))
        shape = tuple(
            dim.dim_param or (dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None)
            for dim in kind.tensor_type.shape.dim
        )
        assert known.shape == shape
        assert known.dtype is not None
        expected_dtype = oh.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type)
        assert known.dtype == expected_dtype or known.dtype.hasobject


def wheel_models() -> list[pathlib.Path]:
    spec = importlib.util.find_spec("onnx")
    assert spec is not None
    assert spec.origin is not None
    return sorted((pathlib.Path(spec.origin).parent / "backend" / "test" / "data").rglob("*.onnx"))


@pytest.mark.parametrize("path", wheel_models(), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_models_of_the_onnx_wheel(path: pathlib.Path) -> None:
    check(read_model(path), onnx.load(path))


def test_minilm(minilm: pathlib.Path) -> None:
    check(read_model(minilm), onnx.load(minilm))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_models_of_the_node_tests() -> None:
    """Every model that onnx's own node tests are made of: all operators, nested graphs, sequences, optionals."""
    from onnx.backend.test.case.node import collect_testcases

    models = [case.model for case in collect_testcases(None) if case.model is not None]
    assert len(models) > 1000
    for model in models:
        check(read_model(model), model)


# ---- models made at random

DTYPES = [number for number in onnx.TensorProto.DataType.values() if number not in (0, onnx.TensorProto.STRING)]


def make_tensor(rng: random.Random, name: str) -> onnx.TensorProto:
    """A small tensor of any type, in any of the ways it can be stored."""
    shape = [rng.randrange(4) for _ in range(rng.randrange(3))]
    dtype = rng.choice([*DTYPES, onnx.TensorProto.STRING])
    count = int(np.prod(shape))
    if dtype == onnx.TensorProto.STRING:
        return oh.make_tensor(name, dtype, shape, [rng.choice(["", "a", "ü"]).encode() for _ in range(count)])
    numbers = np.array([rng.randrange(2) for _ in range(count)], np.float32)
    array = numbers.astype(oh.tensor_dtype_to_np_dtype(dtype)).reshape(shape)
    raw = onh.from_array(array, name)
    if rng.random() < 0.5:
        return raw
    field = oh.tensor_dtype_to_field(dtype)
    typed = onnx.TensorProto(name=name, data_type=dtype, dims=shape)
    if field in ("float_data", "double_data"):
        flat = array.reshape(-1).view("f4" if field == "float_data" else "f8")
    elif array.dtype.kind in "iub" and array.dtype.itemsize > 1:
        flat = array.reshape(-1)
    else:
        flat = np.frombuffer(raw.raw_data, f"u{min(array.dtype.itemsize, 2)}")
        if dtype in (onnx.TensorProto.FLOAT6E2M3, onnx.TensorProto.FLOAT6E3M2):
            flat = array.reshape(-1).view(np.uint8)
    getattr(typed, field).extend(flat.tolist())
    return typed


def make_random_model(rng: random.Random) -> onnx.ModelProto:
    """Anything the index must cope with: shuffled nodes, names shared, empty and colliding, optional inputs left out,
    outputs dropped, nested graphs with captures and shadows, constants of all kinds, domains, functions, affinities."""
    value = oh.make_tensor_value_info
    inputs = [f"in{i}" for i in range(rng.randrange(4))]
    initializers = [make_tensor(rng, f"w{i}") for i in range(rng.randrange(5))]
    known = inputs + [tensor.name for tensor in initializers]
    nodes: list[onnx.NodeProto] = []

    def nested(depth: int, outer: list[str]) -> onnx.GraphProto:
        local = [f"l{depth}_{i}" for i in range(rng.randrange(3))]
        weights = [make_tensor(rng, f"lw{depth}")] if rng.random() < 0.3 else []
        visible = outer + local + [tensor.name for tensor in weights]
        body = []
        for i in range(rng.randrange(1, 4)):
            node = oh.make_node("Op", rng.choices(visible, k=rng.randrange(3)) if visible else [], [f"n{depth}_{i}"])
            if depth < 3 and rng.random() < 0.4:
                node.attribute.append(oh.make_attribute("body", nested(depth + 1, [*visible, f"n{depth}_{i}"])))
            body.append(node)
            visible = [*visible, f"n{depth}_{i}"]
        outputs = [value(rng.choice(visible), 1, None)]
        return oh.make_graph(body, "nested", [value(name, 1, None) for name in local], outputs, weights)

    for i in range(rng.randrange(1, 12)):
        name = rng.choice(["", "", "same", f"node{i}", f"v{rng.randrange(12)}", "ünï"])
        if rng.random() < 0.2:
            form = rng.randrange(4)
            constant = oh.make_node("Constant", [], [f"v{i}"], name=name)
            if form == 0:
                constant.attribute.append(oh.make_attribute("value", make_tensor(rng, "")))
            elif form == 1:
                constant.attribute.append(oh.make_attribute("value_floats", [1.5, 2.5]))
            elif form == 2:
                constant.attribute.append(oh.make_attribute("value_int", 7))
            else:
                constant.attribute.append(oh.make_attribute("value_string", "text"))
            nodes.append(constant)
        else:
            reads = [rng.choice(known) if known and rng.random() < 0.8 else "" for _ in range(rng.randrange(4))]
            makes = [f"v{i}", *rng.choice([[], [""], ["", f"v{i}b"]])]
            rng.shuffle(makes)
            op, domain = rng.choice([("Op", ""), ("Op", "x"), ("Relu", ""), ("Relu", "ai.onnx"), ("Other", "x")])
            node = oh.make_node(op, reads, makes, name=name, domain=domain)
            if rng.random() < 0.3:
                node.attribute.append(oh.make_attribute("body", nested(0, known)))
            if rng.random() < 0.2:
                node.attribute.append(oh.make_attribute("branches", [nested(0, known), nested(0, known)]))
            if rng.random() < 0.3:
                node.attribute.append(oh.make_attribute("numbers", [rng.randrange(-5, 5) for _ in range(3)]))
            if rng.random() < 0.3:
                node.metadata_props.add(key=rng.choice(["affinity", "layer_ann", "other"]), value="CPU")
            nodes.append(node)
        known = [*known, f"v{i}"]
    if rng.random() < 0.5:
        rng.shuffle(nodes)
    sparse = []
    if rng.random() < 0.3:
        flat = oh.make_tensor("sparse", 1, [2], [1.0, 2.0])
        sparse.append(oh.make_sparse_tensor(flat, oh.make_tensor("", 7, [2, 2], [0, 1, 2, 0]), [3, 2]))
    graph = oh.make_graph(
        nodes,
        "random",
        [value(name, rng.choice([1, 7]), rng.choice([None, [], [2, "n"]])) for name in inputs],
        [value(name, 1, rng.choice([None, [1]])) for name in rng.sample(known, min(len(known), 2))],
        initializers,
        value_info=[value(name, 1, [3, None]) for name in rng.sample(known, min(len(known), 2))]
        + [value("gone", 1, [1])],
        sparse_initializer=sparse,
    )
    if initializers and rng.random() < 0.5:
        first = initializers[0]
        graph.input.append(value(first.name, first.data_type, list(first.dims)))
    for kind in graph.output:
        if kind.name in [tensor.name for tensor in initializers] or kind.name.startswith("in"):
            kind.ClearField("type")
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17), oh.make_opsetid("x", 1)], ir_version=8)
    if rng.random() < 0.3:
        body = [oh.make_node("Relu", ["a"], ["b"])]
        model.functions.append(oh.make_function("x", "Other", ["a"], ["b"], body, [oh.make_opsetid("", 17)]))
    return model


def varint(number: int) -> bytes:
    number &= 2**64 - 1
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def fields_of(message: bytes) -> list[tuple[int, bytes]]:
    """(number, bytes with tag) of each field of a message."""

    def varint(at: int) -> tuple[int, int]:
        number = shift = 0
        while True:
            byte = message[at]
            number |= (byte & 127) << shift
            at, shift = at + 1, shift + 7
            if byte < 128:
                return number, at

    found, at = [], 0
    while at < len(message):
        tag, end = varint(at)
        size, end = varint(end) if tag & 7 in (0, 2) else ({1: 8, 5: 4}[tag & 7], end)
        end += 0 if tag & 7 == 0 else size
        found.append((tag >> 3, message[at:end]))
        at = end
    return found


def shuffled_fields(rng: random.Random, message: bytes) -> bytes:
    """The same message with its fields in another order; those of one number keep theirs."""
    fields = fields_of(message)
    numbers = [number for number, _ in fields]
    rng.shuffle(numbers)
    left = {number: [field for other, field in fields if other == number][::-1] for number in numbers}
    return b"".join(left[number].pop() for number in numbers)


def with_shuffled_graph(rng: random.Random, model: onnx.ModelProto) -> bytes:
    graph = shuffled_fields(rng, model.graph.SerializeToString())
    rest = onnx.ModelProto()
    rest.CopyFrom(model)
    rest.ClearField("graph")
    size, length = b"", len(graph)
    while length > 127:
        size, length = size + bytes([length & 127 | 128]), length >> 7
    message = rest.SerializeToString() + b"\x3a" + size + bytes([length]) + graph
    return shuffled_fields(rng, message)


@settings(max_examples=300, deadline=None)
@given(st.randoms(use_true_random=False))
def test_random_models(rng: random.Random) -> None:
    model = make_random_model(rng)
    data = with_shuffled_graph(rng, model) if rng.random() < 0.5 else model.SerializeToString()
    assert onnx.ModelProto.FromString(data) == model
    check(read_model(data), model)


# ---- the same model, written in the ways that protobuf allows

Field = google.protobuf.descriptor.FieldDescriptor
VARINT_TYPES = {
    Field.TYPE_INT32,
    Field.TYPE_INT64,
    Field.TYPE_UINT32,
    Field.TYPE_UINT64,
    Field.TYPE_BOOL,
    Field.TYPE_ENUM,
}
FIXED_TYPES = {Field.TYPE_FLOAT: "<f", Field.TYPE_DOUBLE: "<d"}


def any_varint(rng: random.Random, number: int, longest: int) -> bytes:
    """A varint, perhaps longer than it need be."""
    out = varint(number)
    if rng.random() < 0.1 and len(out) < longest:
        zeros = rng.randrange(longest - len(out)) + 1
        out = out[:-1] + bytes([out[-1] | 128]) + b"\x80" * (zeros - 1) + b"\0"
    return out


def tagged(rng: random.Random, number: int, wire: int, payload: bytes) -> bytes:
    length = any_varint(rng, len(payload), 5) if wire == 2 else b""
    return any_varint(rng, number << 3 | wire, 5) + length + payload


def rewritten(rng: random.Random, message: Any) -> bytes:
    """The message in another encoding: fields in any order, lists packed or not or both, singular values preceded by
    ones that do not count, varints too long, fields nobody knows."""
    chunks: list[tuple[int, bytes]] = []
    for field, content in message.ListFields():
        values = list(content) if field.is_repeated else [content]
        scalar = field.type in VARINT_TYPES or field.type in FIXED_TYPES
        if field.is_repeated and scalar:
            chunks += [(field.number, chunk) for chunk in rewritten_list(rng, field, values)]
            continue
        if not field.is_repeated and field.message_type is None and rng.random() < 0.15:
            decoys = {Field.TYPE_STRING: "decoy", Field.TYPE_BYTES: b"decoy"}
            values.insert(0, decoys.get(field.type, rng.choice([0, 1])))
        for value in values:
            chunks.append((field.number, rewritten_value(rng, field, value)))
    for _ in range(rng.choice([0, 0, 0, 1, 2])):
        number = rng.choice([100, 1000, 2**29 - 1])
        wire, payload = rng.choice([(0, b"\x05"), (1, b"12345678"), (2, b""), (2, b"\xff\xff"), (5, b"1234")])
        chunks.append((number, tagged(rng, number, wire, payload)))
    numbers = [number for number, _ in chunks]
    if rng.random() < 0.5:
        rng.shuffle(numbers)
    left = {number: [chunk for other, chunk in chunks if other == number][::-1] for number in numbers}
    return b"".join(left[number].pop() for number in numbers)


def rewritten_value(rng: random.Random, field: Any, value: Any) -> bytes:
    if field.message_type is not None:
        return tagged(rng, field.number, 2, rewritten(rng, value))
    if field.type in VARINT_TYPES:
        return tagged(rng, field.number, 0, any_varint(rng, int(value), 10))
    if field.type in FIXED_TYPES:
        return tagged(rng, field.number, 5 if field.type == Field.TYPE_FLOAT else 1, packed(rng, field, value))
    return tagged(rng, field.number, 2, value.encode() if isinstance(value, str) else value)


def packed(rng: random.Random, field: Any, value: Any) -> bytes:
    if field.type in VARINT_TYPES:
        return any_varint(rng, int(value), 10)
    return struct.pack(FIXED_TYPES[field.type], value)


def rewritten_list(rng: random.Random, field: Any, values: list[Any]) -> list[bytes]:
    """Numbers in runs, each packed or one by one."""
    chunks, at = [], 0
    if len(values) > 1000:  # weights
        return [tagged(rng, field.number, 2, b"".join(packed(rng, field, value) for value in values))]
    while at < len(values) or rng.random() < 0.1:
        run = values[at : at + rng.randrange(5)]
        at += len(run)
        if rng.random() < 0.5:
            chunks.append(tagged(rng, field.number, 2, b"".join(packed(rng, field, value) for value in run)))
        else:
            chunks += [rewritten_value(rng, field, value) for value in run]
    return chunks


@settings(max_examples=200, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 2**32))
def test_random_models_in_other_encodings(rng: random.Random, seed: int) -> None:
    model = make_random_model(rng)
    data = rewritten(random.Random(seed), model)
    again = onnx.ModelProto.FromString(data)
    check(read_model(data), again, fields_ordered=False)
    plain = onnx.ModelProto.FromString(data)
    plain.DiscardUnknownFields()
    assert plain == model


@pytest.mark.parametrize("path", wheel_models(), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_models_of_the_onnx_wheel_in_other_encodings(path: pathlib.Path) -> None:
    rng = random.Random(0)
    for _ in range(3):
        data = rewritten(rng, onnx.load(path))
        check(read_model(data), onnx.ModelProto.FromString(data), fields_ordered=False)
