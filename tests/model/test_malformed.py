"""Files that are no models: each gives a `ModelError` that says what is wrong where, never anything else."""

from __future__ import annotations

import itertools
import resource
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper as onh
import pytest
from google.protobuf.message import DecodeError

from hetero.errors import ModelError
from hetero.model.read import read_model
from model.mutations import GRAPH, MODEL, NODE, encode, encode_field, mutants, parse, varint
from model.naive_reader import check

Make = Callable[..., onnx.ModelProto]
T = onnx.TensorProto


def use(data: bytes) -> bool:
    """Reads a model and looks at all of it but inferred types. Whether it is one."""
    try:
        model = read_model(data)
        for value in range(model.num_values):
            model.value_name(value)
            if model.is_constant[value]:
                model.constant(value)
        for node in model.nodes:
            assert node.key
            assert node.op_type
            assert repr(node)
            assert node.opset > 0
            assert len(node.name) + len(node.domain) + len(node.captures) >= 0
            assert node.attributes is not None
        assert model.graph.num_nodes == model.num_nodes
        assert read_model(model.to_bytes()).num_nodes == model.num_nodes
        assert model.affinity is not None
    except ModelError as error:
        message = str(error)
    else:
        return True
    assert message.startswith("<bytes>: ")
    return False


# ---- every byte and every bit of a model that has everything


@pytest.fixture(scope="module")
def everything(make_model: Make, branching_model: onnx.ModelProto) -> bytes:
    """A small model with every kind of message that the reader looks into."""
    model = onnx.ModelProto()
    model.CopyFrom(branching_model)
    model.ir_version = 10
    graph = model.graph
    graph.node.insert(0, oh.make_node("Constant", [], ["k"], name="k", value=oh.make_tensor("", 1, [1], [2.0])))
    graph.node.insert(1, oh.make_node("Constant", [], ["j"], value_ints=[1, 2]))
    graph.node.append(oh.make_node("F", ["y", "", "k", "s"], ["z"], domain="f", alpha=0.5, axes=[1, -2], mode=b"m"))
    graph.node[2].metadata_props.add(key="affinity", value="CPU")
    graph.sparse_initializer.append(
        oh.make_sparse_tensor(oh.make_tensor("s", 1, [1], [1.0]), oh.make_tensor("", 7, [1], [1]), [2])
    )
    graph.initializer.append(T(name="b", data_type=T.BOOL, dims=[2], int32_data=[0, 1]))
    graph.initializer.append(T(name="t", data_type=T.STRING, dims=[1], string_data=[b"t"]))
    graph.value_info.append(oh.make_tensor_value_info("h", 1, ["n", 2, None]))
    graph.output.append(oh.make_tensor_value_info("z", 1, ["m"]))
    model.opset_import.add(domain="f", version=1)
    model.metadata_props.add(key="k", value="v")
    model.functions.append(
        oh.make_function("f", "F", list("abcd"), ["o"], [oh.make_node("Relu", ["a"], ["o"])], model.opset_import[:1])
    )
    data = model.SerializeToString()
    assert use(data)
    return data


def test_truncation_at_every_byte(everything: bytes) -> None:
    whole = [end for end in range(1, len(everything)) if use(everything[:end])]
    # Only where a field of the model ends after the graph and its opsets can anything be left of it.
    assert len(whole) <= 3


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_every_single_bit_flip(everything: bytes, step: int) -> None:
    accepted = 0
    for bit in range(0, 8 * len(everything), step):
        mutant = bytearray(everything)
        mutant[bit // 8] ^= 1 << bit % 8
        accepted += use(bytes(mutant))
    assert 0 < accepted < 6 * len(everything) / step  # flips in names and numbers are still models


@pytest.mark.fuzz
def test_random_damage(everything: bytes) -> None:
    """Bytes replaced, doubled, dropped and exchanged, a few at a time."""
    rng = np.random.default_rng(0)
    for _ in range(4000):
        mutant = bytearray(everything)
        for _ in range(rng.integers(1, 4)):
            at, size = int(rng.integers(len(mutant))), int(rng.integers(1, 12))
            kind = rng.integers(4)
            if kind == 0:
                mutant[at : at + size] = rng.bytes(size)
            elif kind == 1:
                mutant[at:at] = mutant[at : at + size]
            elif kind == 2:
                del mutant[at : at + size]
            else:
                mutant[at] = int(rng.choice([0, 1, 0x7F, 0x80, 0xFF]))
        if mutant:
            use(bytes(mutant))


# ---- every field of every message, damaged in every way


@pytest.mark.slow
def test_what_is_accepted_is_read_as_protobuf_reads_it(everything: bytes) -> None:
    """No damage makes a model of another meaning: of what is read, all is as the naive reader finds it."""
    compared = unparsed = refused = 0
    fields = parse(everything, MODEL)
    assert encode(fields) == everything
    for mutant in mutants(fields, encode):
        if not use(mutant):
            refused += 1
            continue
        try:
            proto = onnx.ModelProto.FromString(mutant)
        except DecodeError:  # in a part that is read when needed: a function, a type, metadata of the model
            unparsed += 1
            continue
        check(read_model(mutant), proto, fields_ordered=False, may_have_bad_types=True)
        compared += 1
    assert compared > 1000
    assert unparsed < compared / 2
    accepted = compared + unparsed
    assert accepted + refused > 5000
    assert 0.05 < accepted / (accepted + refused) < 0.5


# ---- graphs that contradict themselves


def chain(*names: str, **options: Any) -> list[onnx.NodeProto]:
    return [oh.make_node("Relu", [a], [b], **options) for a, b in itertools.pairwise(names)]


def port(name: str, dtype: int = 1) -> onnx.ValueInfoProto:
    return oh.make_tensor_value_info(name, dtype, [2])


WEIGHT = oh.make_tensor("w", 1, [2], [1, 2])


@pytest.mark.parametrize(
    ("nodes", "options", "message"),
    [
        (chain("x", "y") + chain("a", "b"), {}, r"node of output 'b' \(op 'Relu'\): nothing produces .* read: 'a'"),
        (chain("x", "z"), {}, "the graph: nothing produces a graph output: 'y'"),
        (chain("x", "y", "y"), {}, r"node 1 of output 'y' \(op 'Relu'\): a value is defined twice: 'y'"),
        (chain("x", "y") + chain("y", "x"), {}, "graph input 0 'x': a value is defined twice: 'x'"),
        (chain("x", "y") + chain("y", "w"), {"initializers": [WEIGHT]}, "'w': a value is defined twice"),
        (chain("x", "y"), {"initializers": [WEIGHT, WEIGHT]}, "initializer 1 'w': a value is defined twice: 'w'"),
        (chain("x", "y"), {"inputs": [port("x"), port("x")]}, "graph input 1 'x': a value is defined twice: 'x'"),
        (chain("x", "y"), {"outputs": [port("y"), port("y")]}, "graph output 1 'y': .*listed twice"),
        (chain("x", "y"), {"inputs": [port("")]}, "graph input 0: the value has no name"),
        (chain("x", "y", name="n") + chain("y", "c", "b", "c"), {}, "defined twice"),
        (
            [oh.make_node("Add", ["x", "b"], ["a"], name="first"), *chain("a", "b", "y")],
            {},
            r"cycle: node 'first' \(op 'Add'\) <- node of output 'b' \(op 'Relu'\)$",
        ),
        ([oh.make_node("Add", ["x", "y"], ["y"], name="self")], {}, "node 'self' .op 'Add'.: nodes depend"),
        ([oh.make_node("", ["x"], ["y"], name="n")], {}, "node 0 'n': the node has no op_type"),
        ([*chain("x", "y"), oh.make_node("Frob", ["x"], [])], {}, "neither a name nor an output"),
        ([*chain("x", "y"), oh.make_node("Frob", ["x"], [""])], {}, "neither a name nor an output"),
        (
            [oh.make_node("Relu", ["x"], ["y"], name="n", domain="nowhere")],
            {},
            "node 'n' .nowhere::Relu.: the model does not import an opset of domain 'nowhere'",
        ),
        ([*chain("x", "y"), oh.make_node("Constant", ["x"], ["c"], value_int=1)], {}, "node 1 .*Constant node needs"),
        ([*chain("x", "y"), oh.make_node("Constant", [], ["c", "d"], value_int=1)], {}, "Constant node needs"),
        ([*chain("x", "y"), oh.make_node("Constant", [], ["c"])], {}, "Constant node needs"),
        ([*chain("x", "y"), oh.make_node("Constant", [], ["c"], value=1)], {}, "of the wrong type: 'value'"),
        ([*chain("x", "y"), oh.make_node("Constant", [], ["c"], valu=1)], {}, "is unknown .*: 'valu'"),
        ([*chain("x", "y"), oh.make_node("Constant", [], ["x"], value_int=1)], {}, "defined twice: 'x'"),
    ],
)
def test_graphs_refused(make_model: Make, nodes: list[onnx.NodeProto], options: dict[str, Any], message: str) -> None:
    data = make_model(nodes, **options).SerializeToString()
    with pytest.raises(ModelError, match=message):
        read_model(data)


def test_two_nodes_without_output_or_unique_name(make_model: Make) -> None:
    model = read_model(make_model([*chain("x", "y"), *(oh.make_node("Frob", ["x"], [], name="n") for _ in range(2))]))
    with pytest.raises(ModelError, match="neither a unique name nor an output: 'n'"):
        model.key_of(0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda model: model.ClearField("ir_version"), "ir_version is missing or invalid: 0"),
        (lambda model: setattr(model, "ir_version", -1), "ir_version is missing or invalid: -1"),
        (lambda model: setattr(model, "ir_version", onnx.IR_VERSION + 1), "ir_version .* is newer than onnx"),
        (lambda model: model.ClearField("graph"), "there is no graph"),
        (lambda model: model.ClearField("opset_import"), "does not import an opset of domain 'ai.onnx'"),
        (lambda model: setattr(model.opset_import[0], "version", 0), "opset 0 of domain 'ai.onnx' is not supported"),
        (lambda model: setattr(model.opset_import[0], "version", 2**62), "is not supported: onnx .* supports 1 to"),
        (lambda model: model.opset_import.add(domain="ai.onnx", version=3), "imported in versions 17 and 3"),
        (lambda model: model.opset_import.add(domain="ai.onnx.ml", version=99), "opset 99 .* is not supported"),
        (lambda model: model.opset_import.add(domain="mine", version=2**31), "expected 1 to 2147483647"),
        (lambda model: model.functions.add(domain="f"), "function 0: the function has no name"),
        (lambda model: model.functions.extend([onnx.FunctionProto(name="f")] * 2), "function ::f is defined twice"),
    ],
)
def test_headers_refused(make_model: Make, change: Callable[[onnx.ModelProto], object], message: str) -> None:
    model = make_model(chain("x", "y"))
    change(model)
    with pytest.raises(ModelError, match=message):
        read_model(model)


def test_messages_given_twice_are_not_merged(make_model: Make) -> None:
    """Protobuf merges the occurrences of a singular message, so that each half may look harmless."""
    model = make_model(chain("x", "y"))
    with pytest.raises(ModelError, match="the graph is given twice"):
        read_model(model.SerializeToString() + encode_field((7, 2, b"")))
    node = oh.make_node("Constant", [], ["y"], value=WEIGHT).SerializeToString()
    once = parse(node, NODE)
    once[-1][2].append((5, 2, b""))
    model.graph.node[0].CopyFrom(oh.make_node("Constant", [], ["y"], value=WEIGHT))
    fields = parse(model.SerializeToString(), MODEL)
    graph = next(value for number, _, value in fields if number == 7)
    graph[0] = (1, 2, once)
    with pytest.raises(ModelError, match="field 5 of an attribute is given twice"):
        read_model(encode(fields))


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        (onnx.AttributeProto(name="a", type=onnx.AttributeProto.INT, t=WEIGHT), "another type than it states: 'a'"),
        (onnx.AttributeProto(name="a", type=onnx.AttributeProto.INT, i=1, f=1), "another type than it states: 'a'"),
        (onnx.AttributeProto(name="a", i=1, f=1), "another type than it states: 'a'"),
        (onnx.AttributeProto(type=onnx.AttributeProto.INT, i=1), "an attribute has no name"),
        (onnx.AttributeProto(name="a", ref_attr_name="b"), "stands outside of functions"),
    ],
)
def test_attributes_refused(make_model: Make, attribute: onnx.AttributeProto, message: str) -> None:
    model = make_model(chain("x", "y", name="n"))
    model.graph.node[0].attribute.append(attribute)
    with pytest.raises(ModelError, match=rf"node 0 'n' \(op 'Relu'\): .*{message}"):
        read_model(model)


def test_attributes_given_twice(make_model: Make) -> None:
    model = make_model(chain("x", "y", name="n", alpha=1) * 1)
    model.graph.node[0].attribute.append(oh.make_attribute("alpha", 2))
    with pytest.raises(ModelError, match=r"node 'n' \(Relu\): attribute 'alpha' is given twice"):
        assert read_model(model).nodes[0].attributes


def test_attributes_without_a_type(make_model: Make) -> None:
    """Files of the first IR versions have them."""
    model = make_model(chain("x", "y"))
    model.graph.node[0].attribute.extend([onnx.AttributeProto(name="a", i=3), onnx.AttributeProto(name="b", ints=[1])])
    model.graph.node[0].attribute.append(onnx.AttributeProto(name="c"))
    assert read_model(model).nodes[0].attributes == {"a": 3, "b": [1], "c": None}


def nested_model(make_model: Make, depth: int) -> bytes:
    """If within If; built from the inside, since protobuf itself would refuse to make it."""
    leaf = parse(make_model(chain("x", "o"), [], [port("o")]).graph.SerializeToString(), GRAPH)
    inner = encode(leaf)
    for _ in range(depth):
        attribute = encode([(1, 2, b"then_branch"), (6, 2, inner), (20, 0, 5)])
        node = encode([(2, 2, b"o"), (4, 2, b"If"), (5, 2, attribute)])
        inner = encode([(1, 2, node), (12, 2, encode([(1, 2, b"o")]))])
    graph = inner + encode_field((11, 2, port("x").SerializeToString()))
    return encode([(1, 0, 8), (7, 2, graph), (8, 2, encode([(2, 0, 17)]))])


def test_nesting_is_bounded(make_model: Make) -> None:
    model = read_model(nested_model(make_model, 31))
    assert model.nodes[0].captures == ("x",)
    assert model.nodes[0].attributes["then_branch"]
    for depth in (32, 1000):
        with pytest.raises(ModelError, match="graphs are nested more than 31 deep"):
            read_model(nested_model(make_model, depth))


def test_names_of_nested_graphs(make_model: Make) -> None:
    body = [*chain("x", "a"), *chain("w", "a")]
    graph = oh.make_graph(body, "nested", [], [port("a")])
    node = oh.make_node("If", ["c"], ["y"], name="n", then_branch=graph)
    with pytest.raises(ModelError, match=r"node 0 'n' \(op 'If'\): a name is defined twice in a nested graph: 'a'"):
        read_model(make_model([node], [port("x"), port("c")]))
    graph = oh.make_graph(chain("missing", "a"), "nested", [], [port("a")])
    node = oh.make_node("If", ["c"], ["y"], name="n", then_branch=graph)
    with pytest.raises(ModelError, match=r"node 'n' \(op 'If'\): nothing produces a value that is read: 'missing'"):
        read_model(make_model([node], [port("c")]))
    graph = oh.make_graph(chain("y", "a"), "nested", [], [port("a")])
    node = oh.make_node("If", ["c"], ["y"], name="n", then_branch=graph)
    with pytest.raises(ModelError, match="cycle"):
        read_model(make_model([node], [port("c")]))


@pytest.mark.parametrize("name", ["a\0b", "a\nb", '"];//', "../../x", "%s{0}\u202e", "x" * 10_000_000], ids=range(6))
def test_odd_names_are_names(make_model: Make, name: str) -> None:
    model = read_model(make_model([oh.make_node("Relu", ["x"], [name], name=name), oh.make_node("Neg", [name], ["y"])]))
    assert model.keys == (name, "y")
    assert model.value_id(name) == model.node_outputs[0][0]
    assert read_model(model.extract([1]).to_bytes()).inputs[0].name == name


def test_messages_shorten_names(make_model: Make) -> None:
    with pytest.raises(ModelError) as caught:
        read_model(make_model(chain("x", "y") + chain("z" * 100_000, "b")))
    assert len(str(caught.value)) < 500


def test_names_too_long_are_refused(make_model: Make) -> None:
    with pytest.raises(ModelError, match="a name has more than 16777215 bytes"):
        read_model(make_model([oh.make_node("Relu", ["x"], ["a" * 2**24]), oh.make_node("Neg", ["x"], ["y"])]))


def test_wide_and_deep_graphs_take_linear_time(make_model: Make) -> None:
    """A hundred thousand nodes in reverse order, a node with as many inputs, and as many captures."""
    count = 100_000
    names = [f"t{i}" for i in range(count)]
    nodes = [*chain("x", *names, "y")][::-1]
    graph = oh.make_graph([oh.make_node("Sum", names, ["o"])], "nested", [], [port("o")])
    nodes += [oh.make_node("Sum", names, ["sum"]), oh.make_node("If", ["c"], ["if"], then_branch=graph)]
    model = read_model(make_model(nodes, [port("x"), port("c", T.BOOL)]))
    assert model.num_nodes == count + 3
    assert model.keys[:3] == ("t0", "t1", "t2")
    assert len(model.node_captures.values) == count
    assert model.graph.num_edges == 3 * count
    nodes[0].input[0] = "y"
    with pytest.raises(ModelError, match="cycle"):
        read_model(make_model(nodes, [port("x"), port("c", T.BOOL)]))


@pytest.mark.slow
def test_memory_stays_bounded(tmp_path_factory: pytest.TempPathFactory, make_model: Make) -> None:
    """Hostile files read under a limit of address space not far above what the interpreter takes."""
    folder = tmp_path_factory.mktemp("hostile")
    head, tail = b"\x08\x08", encode_field((8, 2, b"\x10\x11"))
    files = {
        "deep": nested_model(make_model, 100_000 // 60),
        "many_dims": head + encode_field((7, 2, encode_field((5, 2, b"\x08\x01" * 500_000)))) + tail,
        "empty_nodes": head + encode_field((7, 2, b"\x0a\x00" * 500_000)) + tail,
        "tiny_nodes": head + encode_field((7, 2, b"\x0a\x06\x1a\x01n\x22\x01A" * 100_000)) + tail,
        "empty_inputs": head + encode_field((7, 2, encode_field((1, 2, b"\x0a\x00" * 500_000)))) + tail,
        "empty_attributes": head + encode_field((7, 2, encode_field((1, 2, b"\x2a\x00" * 500_000)))) + tail,
        "length": head + b"\x3a" + varint(2**31 - 1),
    }
    script = """
import sys
from hetero.errors import ModelError
from hetero.model.read import read_model

def peak():  # ru_maxrss is inherited from the parent
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

before = peak()
try:
    read_model(sys.argv[1])
except ModelError as error:
    print(error)
print(peak() - before)
"""
    for name, data in files.items():
        path = folder / name
        path.write_bytes(data)
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        answer = subprocess.run(
            [sys.executable, "-c", script, str(path)], check=True, capture_output=True, text=True, timeout=20
        )
        assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 3
        assert int(answer.stdout.splitlines()[-1]) * 1024 < 64e6 + 2 * len(data), name


def test_weights_of_hidden_size_are_not_allocated(make_model: Make) -> None:
    tensor = T(name="w", data_type=T.FLOAT, dims=[2**38], float_data=[1.0])
    with pytest.raises(ModelError, match="the data have 1 entries"):
        read_model(make_model(chain("x", "y"), initializers=[tensor, onh.from_array(np.zeros(1), "z")]))


def test_of_names_given_twice_the_last_counts_in_nested_graphs_too(make_model: Make) -> None:
    """A name that does not count neither hides a value of the graph outside nor is read from there."""
    body = encode(
        [
            (1, 2, [(1, 2, b"x"), (1, 2, b"local"), (2, 2, b"o"), (4, 2, b"Add")]),
            (11, 2, [(1, 2, b"x"), (1, 2, b"local")]),
            (12, 2, [(1, 2, b"nowhere"), (1, 2, b"o")]),
        ]
    )
    node = oh.make_node("If", ["c"], ["y"]).SerializeToString()
    node += encode([(5, 2, [(1, 2, b"then_branch"), (6, 2, body), (20, 0, 5)])])
    ports = [(11, 2, port("x").SerializeToString()), (11, 2, port("c").SerializeToString())]
    graph = [(1, 2, node), *ports, (12, 2, port("y").SerializeToString())]
    model = read_model(encode([(1, 0, 8), (7, 2, graph), (8, 2, [(2, 0, 17)])]))
    assert model.nodes[0].captures == ("x",)


@pytest.mark.parametrize("lead", [0x7F, 0x80, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xED, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF])
def test_names_are_utf_8_as_python_decodes_it(make_model: Make, lead: int) -> None:
    """At both sides of every limit of the second byte, and of where later bytes must continue."""
    data = make_model(chain("x", "y", name="QQQQ")).SerializeToString()
    for second in (0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0):
        for rest in (b"\x80\x80", b"\x80A", b"AA", b"\xc0\x80", b"\xbf\xbf"):
            name = bytes([lead, second]) + rest
            try:
                name.decode()
            except UnicodeDecodeError:
                with pytest.raises(ModelError, match="UTF-8"):
                    read_model(data.replace(b"QQQQ", name))
            else:
                assert read_model(data.replace(b"QQQQ", name)).nodes[0].name == name.decode()
