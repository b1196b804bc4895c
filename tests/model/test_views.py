"""What a Model shows: nodes, keys, values, types, affinities, and where it can come from."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import onnx
import onnx.helper as oh
import pytest

from hetero.errors import ModelError
from hetero.model.constants import StoredTensor, array_of
from hetero.model.read import read_model


def test_node_views(branching_model: onnx.ModelProto) -> None:
    model = read_model(branching_model)
    node = model.nodes[1]
    assert (node.index, node.key, node.name, node.op_type, node.domain, node.opset) == (
        1,
        "choose",
        "choose",
        "If",
        "",
        17,
    )
    assert (node.inputs, node.outputs, node.captures) == (("c",), ("i",), ("h", "x", "w"))
    assert set(node.attributes) == {"then_branch", "else_branch"}
    assert node.proto() == branching_model.graph.node[1]
    assert repr(node) == "<node 1 'choose': i = If(c)>"
    assert node == model.nodes[-2]
    assert node != model.nodes[0]
    assert [view.key for view in model.nodes[:2]] == ["negate", "choose"]
    assert len(model.nodes) == 3
    with pytest.raises(IndexError, match=r"no node -?[0-9]+: the model has [0-9]+ nodes?"):
        model.nodes[3]
    with pytest.raises(IndexError):
        model.node_inputs[3]
    with pytest.raises(IndexError):
        model.key_of(-1)


def test_arrays_are_read_only(branching_model: onnx.ModelProto) -> None:
    whole = read_model(branching_model)
    for model in (whole, whole.extract([0, 1])):
        ragged = (model.node_inputs, model.node_outputs, model.node_captures)
        arrays = [array for rows in ragged for array in (rows.indptr, rows.values)]
        arrays += [model.producer, model.is_constant, model.op_type_of, model.constant(model.value_id("w"))]
        for array in arrays:
            assert not array.flags.writeable


def test_reading_does_not_import_onnx(minilm: pathlib.Path) -> None:
    script = (
        "import sys; from hetero.model.read import read_model; model = read_model(sys.argv[1]); model.inputs;"
        "model.keys; model.graph; model.constant(int(model.is_constant.argmax()));"
        "sys.exit('onnx' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script, str(minilm)], check=True)


def test_sources(branching_model: onnx.ModelProto, tmp_path: pathlib.Path) -> None:
    data = branching_model.SerializeToString()
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    changing = bytearray(data)
    models = [read_model(source) for source in (path, str(path), data, memoryview(data), changing, branching_model)]
    changing[:] = bytes(len(data))
    assert [model.keys for model in models] == [("negate", "choose", "scale")] * 6
    assert [model.to_bytes() for model in models] == [data] * 6
    assert [model.path for model in models] == [str(path)] * 2 + [None] * 4
    assert read_model(np.frombuffer(data, np.int8).data).keys == models[0].keys


@pytest.mark.parametrize("source", [3, None, ["model.onnx"], onnx.NodeProto()])
def test_sources_of_the_wrong_kind(source: object) -> None:
    with pytest.raises(TypeError, match=r"expected a path, bytes, a stream or an onnx\.ModelProto"):
        read_model(source)  # type: ignore[arg-type]


def test_files_that_cannot_be_read(tmp_path: pathlib.Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    os.mkfifo(tmp_path / "fifo")
    for name, message in [
        ("missing", "missing: cannot be opened: No such file"),
        ("empty", "empty: is empty"),
        ("fifo", "fifo: is not a regular file"),
        ("", "is a folder"),
        ("nul\0", "cannot be opened"),
    ]:
        with pytest.raises(ModelError, match=message):
            read_model(tmp_path / name)
    with pytest.raises(ModelError, match="the data is empty"):
        read_model(b"")
    with pytest.raises(ModelError, match="<bytes>: the model: there is no graph"):
        read_model(b"\x08\x08")


def named(*nodes: tuple[str, str]) -> list[onnx.NodeProto]:
    """Nodes of these (name, output), in a chain from x."""
    before = ["x", *(output for _, output in nodes)]
    return [
        oh.make_node("Relu", [source], [output], name=name)
        for source, (name, output) in zip(before, nodes, strict=False)
    ]


@pytest.mark.parametrize(
    ("nodes", "keys"),
    [
        ([("a", "1"), ("b", "y")], ("a", "b")),
        ([("", "1"), ("", "y")], ("1", "y")),
        ([("same", "1"), ("same", "2"), ("other", "y")], ("1", "2", "other")),
        ([("y", "1"), ("", "y")], ("1", "y")),  # the name is what the nameless node goes by
        ([("2", "1"), ("y", "2"), ("", "y")], ("1", "2", "y")),  # and so on
        ([("1", "1"), ("2", "y")], ("1", "2")),  # named as its own output
        ([("2", "1"), ("b", "2"), ("c", "y")], ("2", "b", "c")),  # named as an output that is no key
    ],
)
def test_keys(make_model: Callable[..., onnx.ModelProto], nodes: list[tuple[str, str]], keys: tuple[str, ...]) -> None:
    model = read_model(make_model(named(*nodes)))
    assert model.keys == keys
    assert [model.index_of(key) for key in keys] == list(range(len(keys)))
    assert model.extract([1]).keys == keys[1:2]


def test_unknown_keys_and_names(branching_model: onnx.ModelProto) -> None:
    model = read_model(branching_model)
    with pytest.raises(ModelError, match=r"no node 'chose' \(did you mean choose\?\)"):
        model.index_of("chose")
    with pytest.raises(ModelError, match=r"no node 'chose' \(did you mean choose\?\)"):
        model.nodes["chose"]
    assert model.nodes["choose"] == model.nodes[model.index_of("choose")]
    name = model.value_name(model.output_ids[0])
    with pytest.raises(ModelError, match=re.escape(f"no value '{name}_' (did you mean {name}?)")):
        model.with_outputs([f"{name}_"])
    with pytest.raises(ModelError, match="no value 'choose': it is a node, which makes '"):
        model.with_outputs(["choose"])
    with pytest.raises(ModelError, match="no value 1$"):
        model.with_outputs([1])  # type: ignore[list-item]
    with pytest.raises(ModelError, match="no value 'nothing'"):
        model.value_id("nothing")
    with pytest.raises(ModelError, match="no value '\\\\udc80'"):
        model.value_id("\udc80")  # no file can hold that
    with pytest.raises(ModelError, match="'x' is not a constant"):
        model.constant(model.value_id("x"))
    with pytest.raises(IndexError):
        model.value_name(model.num_values)


def test_affinity_of_the_file(make_model: Callable[..., onnx.ModelProto]) -> None:
    nodes = named(("a", "1"), ("b", "2"), ("c", "3"), ("d", "y"))
    nodes[0].metadata_props.add(key="affinity", value="FPGA")
    nodes[0].metadata_props.add(key="layer_ann", value="other")
    nodes[1].metadata_props.add(key="layer_ann", value="GPU")
    nodes[2].metadata_props.add(key="comment", value="CPU")
    nodes[3].metadata_props.add(key="affinity", value="")
    model = read_model(make_model(nodes[::-1], ir_version=10))
    assert model.affinity == {"a": "FPGA", "b": "GPU"}
    assert model.extract([1, 2]).affinity == {"b": "GPU"}
    assert read_model(model.to_bytes()).affinity == model.affinity
    assert read_model(model.extract([1, 2]).to_bytes()).affinity == {"b": "GPU"}


def test_with_affinity(make_model: Callable[..., onnx.ModelProto]) -> None:
    nodes = named(("a", "1"), ("b", "2"), ("c", "y"))
    nodes[0].metadata_props.add(key="affinity", value="FPGA")
    nodes[0].metadata_props.add(key="comment", value="kept")
    nodes[1].metadata_props.add(key="layer_ann", value="GPU")
    constant = oh.make_node("Constant", [], ["unused"], name="constant", value_float=1.0)
    model = read_model(make_model([constant, *nodes], ir_version=10))
    changed = model.with_affinity({"b": "CPU", "c": "ORT.CUDA", "constant": "CPU"})
    assert changed.affinity == {"b": "CPU", "c": "ORT.CUDA"}
    assert model.affinity == {"a": "FPGA", "b": "GPU"}  # as before
    assert changed.extract([0, 1]).affinity == {"b": "CPU"}
    assert changed.keys == model.keys
    proto = changed.to_proto()
    onnx.checker.check_model(proto)
    found = [{entry.key: entry.value for entry in node.metadata_props} for node in proto.graph.node]
    assert found == [{}, {"comment": "kept"}, {"affinity": "CPU"}, {"affinity": "ORT.CUDA"}]
    assert read_model(changed.to_bytes()).affinity == changed.affinity
    assert read_model(changed.with_affinity({}).to_bytes()).affinity == {}
    with pytest.raises(ModelError, match=r"no node 'bb'"):
        model.with_affinity({"bb": "CPU"})
    with pytest.raises(ModelError, match="expected the name of a device"):
        model.with_affinity({"b": ""})


def test_types(make_model: Callable[..., onnx.ModelProto]) -> None:
    nodes = [
        oh.make_node("Relu", ["x"], ["plain"]),
        oh.make_node("Relu", ["plain"], ["no_shape"]),
        oh.make_node("SequenceConstruct", ["no_shape", "x"], ["sequence"]),
        oh.make_node("SequenceAt", ["sequence", "zero"], ["taken"]),
        oh.make_node("Frob", ["taken"], ["unknown"], domain="mine"),
        oh.make_node("Frob", ["unknown"], ["declared"], domain="mine"),
        oh.make_node("Frob", ["declared"], ["y"], domain="mine"),
    ]
    info = [
        oh.make_tensor_value_info("no_shape", 1, None),
        oh.make_tensor_value_info("declared", 10, ["n", -1, 4, None]),
    ]
    inputs = [oh.make_tensor_value_info("x", 1, ["batch", 3])]
    zero = onnx.numpy_helper.from_array(np.array(0), "zero")
    proto = make_model(nodes, inputs, [oh.make_tensor_value_info("y", 7, None)], [zero], value_info=info)
    proto.opset_import.add(domain="mine", version=1)
    model = read_model(proto)
    known = {model.value_name(value): model.type_of(value) for value in range(model.num_values)}
    found = {name: (kind.dtype and kind.dtype.name, kind.shape) for name, kind in known.items()}
    assert found == {
        "x": ("float32", ("batch", 3)),
        "plain": ("float32", ("batch", 3)),
        "no_shape": ("float32", ("batch", 3)),  # declared without, inferred with a shape
        "zero": ("int64", ()),
        "sequence": (None, None),
        "taken": ("float32", ("batch", 3)),
        "unknown": (None, None),
        "declared": ("float16", ("n", None, 4, None)),
        "y": ("int64", None),
    }
    part = model.extract([3])
    onnx.checker.check_model(part.to_bytes(), full_check=True)  # the sequence has its type there
    assert part.to_proto().graph.input[0].type.HasField("sequence_type")


def test_types_of_long_vectors(make_model: Callable[..., onnx.ModelProto]) -> None:
    """Their lengths are hidden from inference, which would make a dim for each element, and come back after it."""
    vector = oh.make_tensor_value_info
    bias = onnx.numpy_helper.from_array(np.zeros(3072, np.float32), "bias")
    nodes = [
        oh.make_node("Add", ["x", "bias"], ["wide"]),
        oh.make_node("Relu", ["long"], ["still_long"]),
        oh.make_node("Neg", ["bias"], ["constant"]),
        oh.make_node("Add", ["declared", "huge"], ["y"]),
        oh.make_node("Neg", ["long"], ["declared"]),
    ]
    inputs = [vector("x", 1, ["n", 3072]), vector("long", 1, [5000]), vector("huge", 1, [2**38])]
    infos = [vector("declared", 1, [2**38]), vector("unrelated", 1, [1000])]
    model = read_model(make_model(nodes, inputs, [vector("y", 1, [2**38])], [bias], value_info=infos))
    shapes = {name: model.type_of(model.value_id(name)).shape for name in ("wide", "still_long", "constant", "y")}
    assert shapes == {"wide": ("n", 3072), "still_long": (5000,), "constant": (3072,), "y": (2**38,)}
    part = read_model(model.extract([0, 1, 2]).extract([1]).to_bytes())
    assert part.inputs[0].shape == (5000,)
    again = read_model(model.extract([2]).to_bytes())
    assert again.outputs == ()  # nobody reads it


def test_negative_sizes_are_unknown(make_model: Callable[..., onnx.ModelProto]) -> None:
    """Exporters write -1 for an unknown size; onnx's inference would compute with it."""
    weights = onnx.numpy_helper.from_array(np.zeros((8, 3, 3, 3), np.float32), "w")
    nodes = [
        oh.make_node("Conv", ["x", "w"], ["y"], strides=[2, 2], pads=[1, 1, 1, 1]),
        oh.make_node("Concat", ["z", "z"], ["twice"], axis=0),
        oh.make_node("Unknown", ["x"], ["stated"], domain="other"),
        oh.make_node("Concat", ["stated", "stated"], ["s"], axis=1),
        oh.make_node("Flatten", ["x"], ["flat"]),
    ]
    tensor = oh.make_tensor_value_info
    outputs = [oh.make_empty_tensor_value_info(name) for name in ("y", "twice", "s", "flat")]
    inputs = [tensor("x", 1, [-1, 3, -1, 32]), tensor("z", 1, [-2])]
    made = make_model(nodes, inputs, outputs, [weights], value_info=[tensor("stated", 1, [2, -(2**63)])])
    made.opset_import.append(oh.make_opsetid("other", 1))
    model = read_model(made)
    shapes = {port.name: port.shape for port in model.outputs}
    sizes = {name: [d if isinstance(d, int) else None for d in shape or [-1]] for name, shape in shapes.items()}
    assert sizes == {"y": [None, 8, None, 16], "twice": [None], "s": [2, None], "flat": [None, None]}


def test_negative_sizes_in_a_body_are_unknown(make_model: Callable[..., onnx.ModelProto]) -> None:
    tensor = oh.make_tensor_value_info
    weights = onnx.numpy_helper.from_array(np.zeros((8, 3, 3, 3), np.float32), "w")
    body = oh.make_graph(
        [
            oh.make_node("Conv", ["s", "w"], ["c"], strides=[2, 2]),
            oh.make_node("Identity", ["s"], ["same"]),
            oh.make_node("Identity", ["go"], ["on"]),
        ],
        "body",
        [tensor("i", 7, []), tensor("go", 9, []), tensor("s", 1, [1, 3, -1, 33])],
        [tensor("on", 9, []), oh.make_empty_tensor_value_info("same"), oh.make_empty_tensor_value_info("c")],
    )
    nodes = [oh.make_node("Loop", ["count", "go", "x"], ["last", "all"], body=body)]
    inputs = [tensor("count", 7, []), tensor("go", 9, []), tensor("x", 1, [1, 3, "h", 33])]
    model = read_model(make_model(nodes, inputs, [oh.make_empty_tensor_value_info("all")], [weights]))
    shape = model.outputs[0].shape or ()
    assert [dim if isinstance(dim, int) else None for dim in shape] == [None, 1, 8, None, 16]


def test_types_without_end_are_not_inferred(make_model: Callable[..., onnx.ModelProto]) -> None:
    """Functions that call the next one twice each stand for 2**40 nodes; functions that call themselves for more."""
    opsets = [oh.make_opsetid("", 17), oh.make_opsetid("f", 1)]

    def function(name: str, callee: str, domain: str = "f") -> onnx.FunctionProto:
        body = [oh.make_node(callee, [a], [b], domain=domain) for a, b in (("a", "b"), ("b", "c"))]
        return oh.make_function("f", name, ["a"], ["c"], body, opsets)

    bomb = [function(f"f{i}", f"f{i + 1}") for i in range(40)] + [function("f40", "Relu", "")]
    for functions in (bomb, bomb[::-1], [function("f0", "f0")], [function("f0", "f1"), function("f1", "f0")]):
        proto = make_model([oh.make_node("f0", ["x"], ["h"], domain="f"), oh.make_node("Relu", ["h"], ["y"])])
        proto.opset_import.append(opsets[1])
        proto.functions.extend(functions)
        model = read_model(proto)
        assert model.type_of(model.value_id("h")).dtype is None
        assert len(model.functions) == len(functions)


def test_initializers_are_views(minilm: pathlib.Path) -> None:
    model = read_model(minilm)
    proto = onnx.load(minilm)
    assert list(model.initializers) == [tensor.name for tensor in proto.graph.initializer]
    assert len(model.initializers) == len(proto.graph.initializer)
    for tensor in proto.graph.initializer[:8]:
        view = model.initializers[tensor.name]
        expected = onnx.numpy_helper.to_array(tensor)
        assert (view.name, view.dtype, view.shape, view.nbytes) == (
            tensor.name,
            expected.dtype,
            expected.shape,
            expected.nbytes,
        )
        assert (view.is_sparse, view.external_path) == (False, None)
        np.testing.assert_array_equal(view.numpy(), expected)
    large = max(model.initializers.values(), key=lambda view: view.nbytes)
    if large.numpy().ctypes.data % 4 == 0:
        assert np.shares_memory(large.numpy(), np.frombuffer(model.file.data, np.uint8))
    part = model.extract([model.num_nodes - 1])
    read = {name for name in part.nodes[0].inputs if name in model.initializers}
    assert set(part.initializers) == read


def test_initializers_by_name(make_model: Callable[..., onnx.ModelProto]) -> None:
    nodes = [oh.make_node("Constant", [], ["c"], value_int=3), oh.make_node("Frob", ["x", "w", "c"], ["y"], domain="m")]
    proto = make_model(nodes, None, None, [oh.make_tensor("w", onnx.TensorProto.STRING, [1], ["a"])])
    proto.opset_import.add(domain="m", version=1)
    model = read_model(proto)
    assert dict(model.initializers).keys() == {"w"}
    assert repr(model.initializers["w"]) == "<initializer 'w': object [1]>"
    assert repr(model.initializers) == "<1 initializers of 'test'>"
    for name in ("c", "x", "unknown", 3):
        assert name not in model.initializers
    with pytest.raises(ValueError, match="no fixed size"):
        model.initializers["w"].nbytes  # noqa: B018


def test_the_file_around_the_graph(branching_model: onnx.ModelProto) -> None:
    proto = onnx.ModelProto()
    proto.CopyFrom(branching_model)
    plain = read_model(proto)
    assert (plain.producer_name, plain.model_version, plain.doc_string, dict(plain.metadata)) == ("", 0, "", {})
    proto.producer_name, proto.producer_version, proto.domain = "maker", "1.2", "org.example"
    proto.model_version, proto.doc_string = -7, "ü"
    oh.set_model_props(proto, {"author": "me", "empty": ""})
    for model in (read_model(proto), read_model(proto).extract([1])):
        assert (model.producer_name, model.producer_version, model.domain) == ("maker", "1.2", "org.example")
        assert (model.model_version, model.doc_string, model.ir_version) == (-7, "ü", 8)
        assert dict(model.metadata) == {"author": "me", "empty": ""}
    data = proto.SerializeToString().replace("ü".encode(), b"\xff\xff")
    with pytest.raises(ModelError, match="is not UTF-8"):
        read_model(data).doc_string  # noqa: B018


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "float16", "uint8"])
@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 3)])
def test_tensors_in_attributes_are_read_from_the_file(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    node = oh.make_node("Any", [], ["y"], domain="test", value=onnx.numpy_helper.from_array(array), n=3)
    graph = oh.make_graph([node], "g", [], [oh.make_tensor_value_info("y", 1, None)])
    model = read_model(oh.make_model(graph, opset_imports=[oh.make_opsetid("test", 1)]).SerializeToString())
    view = model.nodes[0]
    stored = view.stored_attributes
    assert isinstance(stored["value"], StoredTensor)
    assert (stored["n"], stored["value"].data_type) == (3, view.attributes["value"].data_type)
    assert isinstance(view.attributes["value"], onnx.TensorProto)
    for tensor in (stored["value"], view.attributes["value"]):
        found = array_of(tensor)
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found, array)


def test_other_tensors_in_attributes_are_left_to_protobuf() -> None:
    raw = onnx.numpy_helper.from_array(np.ones(2, np.float32))
    external = onnx.TensorProto()
    external.CopyFrom(raw)
    external.ClearField("raw_data")
    external.data_location = onnx.TensorProto.EXTERNAL
    external.external_data.add(key="location", value="weights")
    short = onnx.TensorProto()
    short.CopyFrom(raw)
    short.raw_data = raw.raw_data[:-1]
    typed, strings = oh.make_tensor("", 1, [2], [1.0, 2.0]), oh.make_tensor("", 8, [1], [b"a"])
    parts = [
        onnx.AttributeProto(name="value", type=4, t=t).SerializeToString() for t in (external, short, typed, strings)
    ]
    for attribute in parts:
        node = onnx.NodeProto(op_type="Any", output=["y"], domain="test")
        body = b"\x2a" + bytes([len(attribute)]) + attribute
        head = node.SerializeToString() + body
        node.MergeFromString(body)
        graph = onnx.GraphProto(name="g", output=[oh.make_tensor_value_info("y", 1, None)]).SerializeToString()
        graph += b"\x0a" + bytes([len(head)]) + head
        model = onnx.ModelProto(ir_version=8, opset_import=[oh.make_opsetid("test", 1)]).SerializeToString()
        files = {"weights": raw.raw_data} if attribute is parts[0] else {}
        view = read_model(model + b"\x3a" + bytes([len(graph)]) + graph, external_data=files).nodes[0]
        if attribute is parts[0]:
            node.attribute[0].t.CopyFrom(raw)
        assert view.stored_attributes["value"] == node.attribute[0].t
        assert view.attributes["value"] == node.attribute[0].t


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"data_type": 1, "dims": [-1], "raw_data": bytes(4)}, "negative dim"),
        ({"data_type": 99, "dims": [1], "raw_data": bytes(4)}, "data_type 99 is unknown"),
        ({"data_type": 1, "dims": [2], "raw_data": bytes(3)}, "buffer size"),
        ({"data_type": 1, "dims": [1], "data_location": 1}, "its data are external"),
    ],
)
def test_malformed_tensors_in_attributes(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        array_of(onnx.TensorProto(**fields))
