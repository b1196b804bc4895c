"""Models made at random, and the ways that protobuf allows to write one."""

from __future__ import annotations

import random
import struct
from typing import Any

import google.protobuf.descriptor
import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper as onh

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
        if onnx.TensorProto.DataType.Name(dtype).startswith("FLOAT6"):
            flat = array.reshape(-1).view(np.uint8)
    getattr(typed, field).extend(flat.tolist())
    return typed


def make_sparse_tensor(rng: random.Random, name: str) -> onnx.SparseTensorProto:
    values = oh.make_tensor(name, 1, [2], [1.0, 2.0])
    if rng.random() < 0.5:
        return oh.make_sparse_tensor(values, oh.make_tensor("", 7, [2, 2], [0, 1, 2, 0]), [3, 2])
    return oh.make_sparse_tensor(values, oh.make_tensor("", 7, [2], [1, 4]), [3, 2])


def make_constant_attribute(rng: random.Random) -> onnx.AttributeProto:
    """What a Constant node may hold. Empty lists and zeros may be written as nothing at all."""
    kinds = onnx.AttributeProto
    return rng.choice(
        [
            lambda: oh.make_attribute("value", make_tensor(rng, "")),
            lambda: oh.make_attribute("sparse_value", make_sparse_tensor(rng, "")),
            lambda: oh.make_attribute("value_floats", [1.5, 2.5]),
            lambda: kinds(name="value_floats", type=kinds.FLOATS),
            lambda: oh.make_attribute("value_float", -0.0),
            lambda: oh.make_attribute("value_int", rng.choice([0, -1, 2**63 - 1, -(2**63)])),
            lambda: kinds(name="value_int", type=kinds.INT),
            lambda: oh.make_attribute("value_ints", [rng.randrange(-3, 3) for _ in range(3)]),
            lambda: oh.make_attribute("value_string", "text"),
            lambda: oh.make_attribute("value_strings", ["", "a", "ü"]),
        ]
    )()


def make_attribute(rng: random.Random, name: str) -> onnx.AttributeProto:
    """An attribute of any kind but graphs."""
    some_type = oh.make_tensor_type_proto(1, [2, "n"])
    return oh.make_attribute(
        name,
        rng.choice(
            [
                lambda: rng.randrange(-(2**63), 2**63),
                rng.random,
                lambda: b"\xff\0",
                lambda: "text",
                lambda: [rng.randrange(-5, 5) for _ in range(3)],
                lambda: [0.5, float("inf")],
                lambda: ["a", "", "ü"],
                lambda: make_tensor(rng, "t"),
                lambda: [make_tensor(rng, "t"), make_tensor(rng, "")],
                lambda: make_sparse_tensor(rng, "s"),
                lambda: [make_sparse_tensor(rng, "s")],
                lambda: oh.make_sequence_type_proto(some_type),
                lambda: [some_type, oh.make_map_type_proto(7, some_type), oh.make_optional_type_proto(some_type)],
            ]
        )(),
    )


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
        graph = oh.make_graph(body, "nested", [value(name, 1, None) for name in local], outputs, weights)
        if rng.random() < 0.2:
            graph.sparse_initializer.append(make_sparse_tensor(rng, f"ls{depth}"))
        return graph

    for i in range(rng.randrange(1, 12)):
        name = rng.choice(["", "", "same", f"node{i}", f"v{rng.randrange(12)}", "ünï"])
        if rng.random() < 0.2:
            constant = oh.make_node("Constant", [], [f"v{i}"], name=name)
            constant.attribute.append(make_constant_attribute(rng))
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
            for name in rng.sample(["a", "b", "c", "ä"], rng.choice([0, 0, 1, 3])):
                node.attribute.append(make_attribute(rng, name))
            if rng.random() < 0.3:
                node.metadata_props.add(key=rng.choice(["affinity", "layer_ann", "other"]), value="CPU")
            nodes.append(node)
        known = [*known, f"v{i}"]
    if rng.random() < 0.5:
        rng.shuffle(nodes)
    sparse = []
    if rng.random() < 0.3:
        sparse.append(make_sparse_tensor(rng, "sparse"))
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
    model.metadata_props.add(key="affinity", value="none of a node")
    if rng.random() < 0.2:
        model.opset_import.add(domain="x", version=1)
    if rng.random() < 0.3:
        body = [oh.make_node("Relu", ["a"], ["b"])]
        model.functions.append(oh.make_function("x", "Other", ["a"], ["b"], body, [oh.make_opsetid("", 17)]))
    return model


# ---- the same model in other encodings


def varint(number: int) -> bytes:
    number &= 2**64 - 1
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


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
