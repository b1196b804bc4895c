"""Parts of files that no other test reaches in the reader. `tools/branches.sh` counts its branches."""

from __future__ import annotations

import os
import re
import resource
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import pytest

import hostile.graph_cases
import hostile.operator_cases
import hostile.tensor_cases
import hostile.value_cases
import hostile.wire_cases  # noqa: F401
from hetero._onnx import OnnxIndex, WireError, read_type
from hetero.errors import ModelError
from hetero.model.read import read_model
from hetero.model.skeleton import skeleton_of
from hostile.case import CASES
from model.mutations import Field, encode

LONG = b"a" * 2**24
"""A byte longer than names may be."""
VARINT, FIXED64, LEN, FIXED32 = 0, 1, 2, 5
NODE, INITIALIZER, GRAPH_INPUT, GRAPH_OUTPUT, INFO, SPARSE = 1, 5, 11, 12, 13, 15
X, Y = (GRAPH_INPUT, LEN, [(1, LEN, b"x")]), (GRAPH_OUTPUT, LEN, [(1, LEN, b"y")])
RELU = (NODE, LEN, [(1, LEN, b"x"), (2, LEN, b"y"), (4, LEN, b"Relu")])


def model(graph: list[Any], *header: Any) -> bytes:
    fields: list[Any] = [(1, VARINT, 8), (7, LEN, [X, *graph, Y]), (8, LEN, [(2, VARINT, 17)]), *header]
    return encode(fields)


def tensor(*fields: Field, dtype: int = 1, name: bytes = b"w") -> Field:
    return (INITIALIZER, LEN, [*fields, (2, VARINT, dtype), (8, LEN, name)])


def nested(*graph: Any) -> bytes:
    """The graph as the body of a node of an unknown operator."""
    attribute = (5, LEN, [(1, LEN, b"body"), (6, LEN, [*graph]), (20, VARINT, 5)])
    return model([RELU, (NODE, LEN, [(2, LEN, b"z"), (4, LEN, b"Body"), attribute])])


def sparse(*fields: Field) -> Field:
    return (SPARSE, LEN, list(fields))


VALUES = (1, LEN, [(1, VARINT, 1), (2, VARINT, 1), (4, LEN, b"1234"), (8, LEN, b"s")])
DENSE = (3, VARINT, 2)
ONE: list[Field] = [(3, VARINT, 1), (20, VARINT, 2)]  # the value of an attribute, and its type


def indices(*dims: int, dtype: int = 7, data: bytes = b"\1") -> Field:
    sizes: list[Any] = [(1, VARINT, dim) for dim in dims]
    return (2, LEN, [*sizes, (2, VARINT, dtype), (7 if dtype == 7 else 5, LEN, data)])


REFUSED: dict[str, tuple[bytes, str]] = {
    "a graph's name is too long": (model([RELU, (2, LEN, LONG)]), "a string has more than 16777215 bytes"),
    "an output's name is not UTF-8": (model([RELU, (12, LEN, [(1, LEN, b"\xff")])]), "a string is not UTF-8"),
    "an output's name is a number": (model([RELU, (12, LEN, [(1, VARINT, 1)])]), "field 1 has wire type 0, expected 2"),
    "an overload is a number": (model([RELU], (25, LEN, [(1, LEN, b"f"), (13, VARINT, 1)])), "field 13 has wire type"),
    "an overload is not UTF-8": (model([RELU], (25, LEN, [(1, LEN, b"f"), (13, LEN, b"\xff")])), "is not UTF-8"),
    "too many imports": (model([RELU], *[(8, LEN, b"")] * 4096), "more than 4096 opset imports"),
    "too many functions": (model([RELU], *[(25, LEN, [(1, LEN, b"f")])] * 65537), "more than 65536 functions"),
    "a reference is a number": (
        model([(NODE, LEN, [*RELU[2], (5, LEN, [(21, VARINT, 1), (1, LEN, b"a")])])]), "field 21 has wire type 0",
    ),
    "a reference to a function's attribute": (
        model([(NODE, LEN, [*RELU[2], (5, LEN, [(1, LEN, b"a"), (21, LEN, b"b")])])]), "refers to a function's",
    ),
    "packed dims are cut off": (model([RELU, tensor((1, LEN, b"\x80"))]), "packed varint is cut off"),
    "packed dims of rank 65": (model([RELU, tensor((1, LEN, b"\1" * 65))]), "rank above 64"),
    "an initializer's name is a number": (model([RELU, tensor((8, VARINT, 1))]), "field 8 has wire type 0"),
    "raw data are a number": (model([RELU, tensor((9, VARINT, 1))]), "field 9 has wire type 0"),
    "a location is a number": (model([RELU, tensor((13, VARINT, 1))]), "field 13 has wire type 0"),
    "four elements of 6 bits": (
        model([RELU, tensor((1, VARINT, 4), (9, LEN, b"1234"), dtype=28)]),
        "raw_data has 4 bytes, dims and data_type need 3",
    ),
    "an unknown location": (model([RELU, tensor((14, VARINT, 2))]), "data_location 2 is unknown"),
    "external strings": (model([RELU, tensor((14, VARINT, 1), dtype=8)]), "strings cannot be external"),
    "external and raw data": (
        model([RELU, tensor((14, VARINT, 1), (9, LEN, b"1234"))]), "external data and embedded data are both given",
    ),
    "external and typed data": (
        model([RELU, tensor((14, VARINT, 1), (4, LEN, b"1234"))]), "external data and embedded data are both given",
    ),
    "external data nowhere": (model([RELU, tensor((14, VARINT, 1))]), "no location is given"),
    "sparse indices of int32": (model([RELU, sparse(VALUES, indices(1, dtype=6), DENSE)]), "int64 of rank 1 or 2"),
    "sparse indices of rank 0": (model([RELU, sparse(VALUES, indices(), DENSE)]), "int64 of rank 1 or 2"),
    "sparse indices of rank 3": (model([RELU, sparse(VALUES, indices(1, 1, 1), DENSE)]), "int64 of rank 1 or 2"),
    "a Constant's output has no name": (
        model([RELU, (NODE, LEN, [(2, LEN, b""), (4, LEN, b"Constant"), (5, LEN, [(1, LEN, b"value_int"), *ONE])])]),
        "a Constant node needs no input, one output",
    ),
    "sparse values are missing": (model([RELU, sparse(indices(1), DENSE)]), "a sparse tensor needs values and indices"),
    "sparse values of rank 0": (
        model([RELU, sparse((1, LEN, VALUES[2][1:]), indices(1), DENSE)]), "rank 1, one for each of 1 indices",
    ),
    "more sparse indices than values": (model([RELU, sparse(VALUES, indices(2, data=b"\1\1"), DENSE)]), "of 2 indices"),
    "sparse dims are text": (model([RELU, sparse(VALUES, indices(1), (3, FIXED32, b"1234"))]), "has wire type 5"),
    "a long name is bound": (nested((11, LEN, [(1, LEN, LONG)])), "a name has more than 16777215 bytes"),
    "a long name is read": (nested((NODE, LEN, [(1, LEN, LONG)])), "a name has more than 16777215 bytes"),
    "two inputs of one name": (nested(X, X), "a name is defined twice in a nested graph"),
    "an input and a result of one name": (
        nested(X, (NODE, LEN, [(2, LEN, b"x"), (4, LEN, b"A")])), "a name is defined twice in a nested graph",
    ),
    "a nested input's name is a number": (nested((11, LEN, [(1, VARINT, 1)])), "field 1 has wire type 0"),
    "a nested initializer's name is a number": (nested((5, LEN, [(8, VARINT, 1)])), "field 8 has wire type 0"),
    "a nested input is cut off": (nested((11, LEN, b"\x0a\x05")), "reaches past the end"),
    "a nested sparse tensor is cut off": (nested((15, LEN, b"\x0a\x05")), "reaches past the end"),
    "nested sparse values are a number": (nested(sparse((1, VARINT, 1))), "field 1 has wire type 0"),
    "nested sparse values are given twice": (nested(sparse(VALUES, VALUES)), "of a sparse tensor is given twice"),
    "nested sparse values have a number as name": (nested(sparse((1, LEN, [(8, VARINT, 1)]))), "field 8 has wire type"),
    "a nested name is read where another graph binds it": (
        nested(
            *[
                (NODE, LEN, [(2, LEN, b"o%d" % i), (4, LEN, b"B"), (5, LEN, [(1, LEN, b"g"), (6, LEN, graph)])])
                for i, graph in enumerate(([(11, LEN, [(1, LEN, b"t")])], [(NODE, LEN, [(1, LEN, b"t")])]))
            ]
        ),
        "nothing produces a value that is read: 't'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    data, message = REFUSED[name]
    with pytest.raises(ModelError, match=re.escape(message)):
        read_model(data)


def test_accepted() -> None:
    """What is unusual, but right."""
    accepted = {
        "training": model([RELU], (20, LEN, [(1, LEN, b"x")])),
        "an empty reference": model([(NODE, LEN, [*RELU[2], (5, LEN, [(1, LEN, b"a"), (21, LEN, b"")])])]),
        "nested input without a name": nested((11, LEN, b"")),
        "nested sparse tensors": nested(sparse(VALUES), sparse(DENSE), sparse((1, LEN, [(2, VARINT, 1)]))),
        "a float that is not packed": model([RELU, tensor((1, VARINT, 1), (4, FIXED32, b"1234"))]),
        "a nested input with a value": nested(X, (5, LEN, [(8, LEN, b"x")])),
        "a name that was bound before": nested(
            *[
                (NODE, LEN, [(2, LEN, b"o%d" % i), (4, LEN, b"B"), (5, LEN, [(1, LEN, b"g"), (6, LEN, graph)])])
                for i, graph in enumerate(([(11, LEN, [(1, LEN, b"y")])], [(NODE, LEN, [(1, LEN, b"y")])]))
            ]
        ),
    }
    for name, data in accepted.items():
        read = read_model(data)
        assert read.nodes[0].op_type == "Relu", name
        assert len(read_model(read.to_bytes()).nodes) == len(read.nodes), name
    assert b"training" not in read_model(accepted["training"]).to_bytes()


def test_absent_inputs_in_a_file_out_of_order() -> None:
    late = (NODE, LEN, [(1, LEN, b"a"), (1, LEN, b""), (2, LEN, b"y"), (4, LEN, b"Clip")])
    read = read_model(model([late, (NODE, LEN, [(1, LEN, b"x"), (2, LEN, b"a"), (4, LEN, b"Relu")])]))
    assert [node.op_type for node in read.nodes] == ["Relu", "Clip"]


def test_a_cycle_longer_than_its_message() -> None:
    names = [b"n%d" % i for i in range(20)]
    ring = [
        (NODE, LEN, [(1, LEN, b""), (1, LEN, one), (2, LEN, other), (4, LEN, b"Sum")])
        for one, other in zip(names, [*names[1:], names[0]], strict=True)
    ]
    with pytest.raises(ModelError, match="nodes depend on each other in a cycle") as caught:
        read_model(model([RELU, *ring]))
    assert str(caught.value).count(" <- ") == 7


@pytest.mark.skipif(resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY, reason="maps 512 GiB")
def test_files_of_512_GiB_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.touch()
    try:
        os.truncate(path, 1 << 39)
    except OSError:
        pytest.skip("the file system has no file of this size")
    with pytest.raises(ModelError, match="files of 512 GiB and more are not supported"):
        read_model(path)


def test_no_bytes() -> None:
    with pytest.raises(WireError, match="there are no bytes"):
        OnnxIndex(np.zeros(0, np.uint8), bytes(16))


def test_names_whose_hashes_collide() -> None:
    """Of so many names, several share the 32 bits of the hash that the table keeps."""
    count = 300_000
    names = [b"%0*d" % (8 + i % 2, i) for i in range(count)]  # of two lengths
    nodes: list[Any] = [(NODE, LEN, [(2, LEN, name), (4, LEN, b"A")]) for name in names]
    index = OnnxIndex(np.frombuffer(model([*nodes, RELU]), np.uint8), bytes(16))
    assert len(index.arrays["value_name"]) == count + 2
    for name in names[:: count // 100]:
        assert index.value_name(index.value_id(name.decode())) == name.decode()


# ---- types


def shape(*dims: list[Field]) -> bytes:
    return encode([(1, LEN, [(1, VARINT, 1), (2, LEN, [(1, LEN, dim) for dim in dims])])])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x0a", "length is cut off"),
        (encode([(1, VARINT, 1)]), "field 1 has wire type 0, expected 2"),
        (encode([(1, LEN, []), (4, LEN, [])]), "a type is given twice"),
        (encode([(1, LEN, b"\x08")]), "varint is cut off"),
        (encode([(1, LEN, [(1, LEN, b"")])]), "field 1 has wire type 2, expected 0"),
        (encode([(1, LEN, [(1, VARINT, 29)])]), "element type 29 is unknown"),
        (encode([(1, LEN, [(2, VARINT, 1)])]), "field 2 has wire type 0, expected 2"),
        (encode([(1, LEN, [(2, LEN, []), (2, LEN, [])])]), "a shape is given twice"),
        (encode([(1, LEN, [(2, LEN, b"\x0a")])]), "length is cut off"),
        (encode([(1, LEN, [(2, LEN, [(1, VARINT, 1)])])]), "field 1 has wire type 0, expected 2"),
        (shape(*[[]] * 65), "the shape's rank is above 64"),
        (encode([(1, LEN, [(2, LEN, [(1, LEN, b"\x08")])])]), "varint is cut off"),
        (shape([(1, LEN, b"")]), "field 1 has wire type 2, expected 0"),
        (shape([(2, VARINT, 1)]), "field 2 has wire type 0, expected 2"),
        (shape([(2, LEN, b"\xff")]), "the name of a dim is too long or not UTF-8"),
        (shape([(2, LEN, LONG)]), "the name of a dim is too long or not UTF-8"),
    ],
    ids=range(16),
)
def test_types_refused(data: bytes, message: str) -> None:
    with pytest.raises(WireError, match=re.escape(message)):
        read_type(np.frombuffer(data, np.uint8), 0, len(data))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (encode([(6, LEN, b"IMAGE"), (10, VARINT, 1)]), (0, None)),
        (encode([(4, LEN, [])]), (-1, None)),
        (encode([(1, LEN, [(3, VARINT, 5), (1, VARINT, 28)])]), (28, None)),
        (encode([(1, LEN, [(2, LEN, [(2, VARINT, 5)])])]), (0, ())),
        (
            shape([(1, VARINT, 3)], [(1, VARINT, -1)], [(2, LEN, b"n")], [(2, LEN, b"")], [(3, LEN, b"H")]),
            (1, (3, None, "n", None, None)),
        ),
        (shape([(1, VARINT, 2), (2, LEN, b"m")], [(2, LEN, b"m"), (1, VARINT, 2)]), (1, ("m", 2))),
    ],
    ids=range(6),
)  # fmt: skip
def test_types_accepted(data: bytes, expected: tuple[int, tuple[int | str | None, ...] | None]) -> None:
    assert read_type(np.frombuffer(data, np.uint8), 0, len(data)) == expected


# ---- skeletons


def described() -> bytes:
    """A model in which everything has documentation and metadata."""
    proto = oh.make_model(
        oh.make_graph(
            [
                oh.make_node("Add", ["x", "w"], ["a"], name="n", doc_string="d", domain="ai.onnx"),
                oh.make_node("Mul", ["a", "k"], ["y"], name="m", domain=""),
                oh.make_node("Drop", ["a"], [""], name="dropped", domain="ai.onnz"),
            ],
            "g",
            [oh.make_tensor_value_info("x", 1, [2])],
            [oh.make_tensor_value_info("y", 1, [2])],
            [oh.make_tensor("w", 1, [2], [1, 2])],
        ),
        opset_imports=[oh.make_opsetid("", 17), oh.make_opsetid("ai.onnz", 1)],
        ir_version=10,
    )
    proto.graph.node.insert(
        0, oh.make_node("Constant", [], ["k"], doc_string="d", value=oh.make_tensor("", 1, [], [2]))
    )
    for message in (*proto.graph.node, proto.graph.initializer[0]):
        message.metadata_props.add(key="key", value="value")
        message.doc_string = "documentation"
    return proto.SerializeToString()


def test_skeletons_have_no_documentation() -> None:
    read = read_model(described())
    data = skeleton_of(read.file, read._types._constants, {}, with_data=True)
    assert data is not None
    assert b"documentation" not in data
    assert b"key" not in data
    made = onnx.load_from_string(data)
    assert [node.domain for node in made.graph.node] == ["", "", "", "ai.onnz"]
    assert [node.name for node in made.graph.node] == ["", "", "", "dropped"]
    assert read.type_of(read.value_id("y")).shape == (2,)


def test_lengths_are_hidden() -> None:
    """Those of vectors that are inputs, so that inference does not compute with them."""
    read = read_model(described())
    arrays = read.file.index.arrays
    counts = [len(arrays[name]) for name in ("constant_value", "info_value", "value_name")]
    for most, hidden in ((1, b"hidden2"), (2, None)):
        choice = [np.zeros(counts[0], np.uint8), np.zeros(counts[1], np.uint8), np.ones(counts[2], np.uint8)]
        data = read.file.index.skeleton(*choice, most, b"hidden")
        graph = onnx.GraphProto.FromString(data)
        (port,) = (port for port in graph.input if port.name == "w")
        (dim,) = port.type.tensor_type.shape.dim
        assert (dim.dim_param.encode() or None, dim.dim_value) == (hidden, 0 if hidden else 2)


def test_names_in_answers() -> None:
    """Short names are numbers of values; others are looked up, and those of no value are passed over."""

    def index(names: list[bytes]) -> OnnxIndex:
        nodes: list[Any] = [(NODE, LEN, [(1, LEN, b"x"), (2, LEN, name), (4, LEN, b"Relu")]) for name in names]
        return OnnxIndex(np.frombuffer(model([*nodes, RELU]), np.uint8), bytes(16))

    own = index([b"a", b"b"])
    position = {own.value_name(value): value for value in range(4)}
    odd = [b"\x01", b"\x01g", b"\x01G", b"\x01ffffffff", b"\x01000000001", b"unknown", b"\x01%x" % position["b"], b"a"]
    answer = index(odd)
    found = own.values_in_answer(answer)
    assert answer.value_name(int(found[position["a"]])) == "a"
    assert answer.value_name(int(found[position["b"]])) == f"\x01{position['b']:x}"


# ---- the hostile files, in this process


@pytest.mark.parametrize("name", [name for name, one in CASES.items() if one.stage in ("read", "look", "fine")])
def test_hostile_files(name: str, tmp_path: Path) -> None:
    """What test_hostile.py does in processes that end without a word of the branches they took."""
    made = CASES[name].make(tmp_path)
    data = made if isinstance(made, bytes) else made.SerializeToString()
    if len(data) > 1 << 22:
        pytest.skip("too large for a moment")
    (tmp_path / "model.onnx").write_bytes(data)
    try:
        read = read_model(tmp_path / "model.onnx")
        for value in range(read.num_values):
            read.type_of(value, infer=False)
    except ModelError:
        assert CASES[name].stage != "fine"
    else:
        assert CASES[name].stage != "read"
