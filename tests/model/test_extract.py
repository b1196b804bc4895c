"""Parts of a model against onnxruntime: run one after the other they compute what the whole computes."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import pytest

from hetero.errors import ModelError
from hetero.model.model import Model
from hetero.model.read import read_model
from sessions import onnxruntime_session

Arrays = Mapping[str, np.ndarray[Any, Any]]
HEAVY = {"light_vgg19", "light_bvlc_alexnet", "light_zfnet512"}


def run(data: bytes, feeds: Arrays) -> dict[str, Any]:
    session = onnxruntime_session(data, optimized=False)
    names = [port.name for port in session.get_inputs()]
    outputs = [port.name for port in session.get_outputs()]
    return dict(zip(outputs, session.run(outputs, {name: feeds[name] for name in names}), strict=True))


@pytest.mark.parametrize("length", [b"\x04", b"\x84\x00"])
def test_the_graph_precedes_the_operator_sets(length: bytes, make_model: Callable[..., onnx.ModelProto]) -> None:
    """``length``: of the first operator set's encoding; the second form is correct too, but unusual."""
    model = make_model([oh.make_node("Relu", ["x"], ["h"]), oh.make_node("Neg", ["h"], ["y"])])
    graph = oh.make_model(model.graph).graph.SerializeToString()
    sets = b"\x42" + length + b"\x0a\x00\x10\x11" + b"\x42\x05\x0a\x01o\x10\x01"
    whole = b"\x08\x08" + sets + b"\x3a" + bytes([len(graph)]) + graph
    part = read_model(whole).extract([1]).to_bytes()
    assert part.startswith(b"\x08\x08" + (b"\x3a" if len(length) == 1 else sets))
    read = onnx.ModelProto.FromString(part)
    assert [(each.domain, each.version) for each in read.opset_import] == [("", 17), ("o", 1)]
    assert [node.op_type for node in read.graph.node] == ["Neg"]
    assert read.ir_version == 8


def run_in_parts(model: Model, feeds: Arrays, parts: int) -> dict[str, Any]:
    """Contiguous stretches of the topological order, each a model of its own."""
    known = dict(feeds)
    for nodes in np.array_split(np.arange(model.num_nodes), parts):
        part = model.extract(nodes)
        data = part.to_bytes()
        onnx.checker.check_model(data)
        again = read_model(data)
        assert [port.name for port in again.inputs] == [port.name for port in part.inputs]
        assert [port.name for port in again.outputs] == [port.name for port in part.outputs]
        assert sorted(again.keys) == sorted(part.keys)
        known |= run(data, {port.name: known[port.name] for port in part.inputs})
    return {port.name: known[port.name] for port in model.outputs}


def feeds_of(model: Model, sizes: Mapping[str, int], seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    feeds = {}
    for port in model.inputs:
        assert port.shape is not None
        assert port.dtype is not None
        shape = [dim if isinstance(dim, int) else sizes[dim or ""] for dim in port.shape]
        numbers = rng.standard_normal(shape) if port.dtype.kind == "f" else rng.integers(0, 2, shape)
        feeds[port.name] = numbers.astype(port.dtype)
    return feeds


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in HEAVY else [])
        for name in (
            *("light_squeezenet", "light_shufflenet", "light_inception_v1", "light_inception_v2", "light_resnet50"),
            *("light_densenet121", *sorted(HEAVY)),
        )
    ],
)
def test_light_models_in_parts(light_models: dict[str, pathlib.Path], name: str) -> None:
    model = read_model(light_models[name])
    assert model.to_bytes() == light_models[name].read_bytes()
    feeds = feeds_of(model, {})
    whole = run(model.to_bytes(), feeds)
    for parts in (1, 4):
        for key, array in run_in_parts(model, feeds, parts).items():
            np.testing.assert_array_equal(array, whole[key])


def test_minilm_in_parts(minilm: pathlib.Path) -> None:
    model = read_model(minilm)
    feeds = feeds_of(model, {"batch_size": 2, "sequence_length": 7})
    feeds["attention_mask"][:] = 1
    whole = run(model.to_bytes(), feeds)
    for parts in (2, 17):
        for key, array in run_in_parts(model, feeds, parts).items():
            np.testing.assert_array_equal(array, whole[key])


def test_types_of_boundary_values_come_from_the_whole(minilm: pathlib.Path) -> None:
    model = read_model(minilm)
    part = model.extract(range(100, 140))
    for port in (*part.inputs, *part.outputs):
        known = model.type_of(model.value_id(port.name))
        assert known.dtype is not None
        assert known.shape is not None
        assert (port.dtype, port.shape) == (known.dtype, known.shape)
    again = read_model(part.to_bytes())
    assert again.inputs == part.inputs
    assert again.outputs == part.outputs


def test_inputs_by_first_use_and_outputs_by_production(make_model: Callable[..., onnx.ModelProto]) -> None:
    nodes = [
        oh.make_node("Relu", ["x"], ["a"]),
        oh.make_node("Neg", ["x"], ["b"]),
        oh.make_node("Sub", ["b", "a"], ["c"]),
        oh.make_node("Add", ["c", "w"], ["d"]),
        oh.make_node("Mul", ["d", "c"], ["y"]),
    ]
    model = read_model(make_model(nodes, None, None, [onnx.numpy_helper.from_array(np.ones(2, np.float32), "w")]))
    part = model.extract([3, 2], name="middle")
    assert part.name == "middle"
    assert part.op_types == ("Sub", "Add")
    assert part.op_type_of.tolist() == [0, 1]
    assert [port.name for port in part.inputs] == ["b", "a"]
    assert [port.name for port in part.outputs] == ["c", "d"]
    assert [part.value_name(value) for value in np.flatnonzero(part.is_constant)] == ["w"]
    assert part.producer[part.value_id("d")] == 1
    assert part.nodes[1].inputs == ("c", "w")
    with pytest.raises(ModelError, match="no value 'x'"):
        part.value_id("x")
    with pytest.raises(ModelError, match="no node 'a'"):
        part.index_of("a")
    assert part.index_of("d") == 1
    smaller = part.extract([1])
    assert [port.name for port in smaller.inputs] == ["c"]
    assert [port.name for port in smaller.outputs] == ["d"]  # an output of its parent
    assert [port.name for port in part.extract([0]).outputs] == ["c"]
    assert smaller.graph.num_nodes == 1
    assert part.graph.num_edges == 1
    proto = part.to_proto()
    assert proto.graph.name == "middle"
    assert [tensor.name for tensor in proto.graph.initializer] == ["w"]


def test_captured_values_are_inputs(branching_model: onnx.ModelProto) -> None:
    model = read_model(branching_model)
    assert model.nodes[1].captures == ("h", "x", "w")
    part = model.extract([1])
    assert [port.name for port in part.inputs] == ["c", "h", "x"]  # w is a constant and comes along
    assert sorted(model.graph.predecessors(1).tolist()) == [0]
    data = part.to_bytes()
    onnx.checker.check_model(data, full_check=True)
    x = np.array([3, -4], np.float32)
    for condition in (True, False):
        feeds = {"x": x, "c": np.array(condition)}
        whole = run(model.to_bytes(), feeds)
        np.testing.assert_array_equal(run_in_parts(model, feeds, 3)["y"], whole["y"])


def test_nodes_out_of_order_are_written_in_order(branching_model: onnx.ModelProto) -> None:
    shuffled = onnx.ModelProto()
    shuffled.CopyFrom(branching_model)
    nodes = list(shuffled.graph.node)
    del shuffled.graph.node[:]
    shuffled.graph.node.extend(nodes[::-1])
    model = read_model(shuffled)
    assert model.keys == ("negate", "choose", "scale")
    assert model.to_proto() == branching_model
    onnx.checker.check_model(model.to_bytes(), full_check=True)


def test_constant_nodes_are_written_before_their_readers(make_model: Callable[..., onnx.ModelProto]) -> None:
    constant = oh.make_node("Constant", [], ["c"], value_floats=[1.0, 2.0])
    model = read_model(make_model([oh.make_node("Add", ["x", "c"], ["y"]), constant]))
    assert model.num_nodes == 1
    assert model.constant_keys == {"c"}
    onnx.checker.check_model(model.to_bytes(), full_check=True)
    np.testing.assert_array_equal(run(model.to_bytes(), {"x": np.ones(2, np.float32)})["y"], [2, 3])
    assert model.extract([0]).constant_keys == {"c"}


def test_before_ir_version_4_initializers_are_inputs_too(make_model: Callable[..., onnx.ModelProto]) -> None:
    weight = onnx.numpy_helper.from_array(np.array([1, 2], np.float32), "w")
    ports = [oh.make_tensor_value_info(name, 1, [2]) for name in ("x", "w")]
    nodes = [oh.make_node("Add", ["x", "w"], ["a"]), oh.make_node("Mul", ["a", "w"], ["y"])]
    model = read_model(make_model(nodes, ports, None, [weight], ir_version=3, opset=8))
    part = model.extract([1])
    assert [port.name for port in model.inputs] == ["x"]
    assert [port.name for port in part.inputs] == ["a"]
    proto = part.to_proto()
    assert [port.name for port in proto.graph.input] == ["a", "w"]
    onnx.checker.check_model(proto, full_check=True)
    np.testing.assert_array_equal(run(part.to_bytes(), {"a": np.ones(2, np.float32), "w": np.ones(2)})["y"], [1, 2])


def test_functions_come_along(make_model: Callable[..., onnx.ModelProto]) -> None:
    opsets = [oh.make_opsetid("", 17), oh.make_opsetid("mine", 1)]
    twice = oh.make_function("mine", "Twice", ["a"], ["b"], [oh.make_node("Add", ["a", "a"], ["b"])], opsets[:1])
    nodes = [oh.make_node("Twice", ["x"], ["h"], domain="mine"), oh.make_node("Twice", ["h"], ["y"], domain="mine")]
    ports = [oh.make_tensor_value_info(name, 1, [2]) for name in ("x", "y")]
    graph = oh.make_graph(nodes, "test", ports[:1], ports[1:])
    model = read_model(oh.make_model(graph, opset_imports=opsets, functions=[twice], ir_version=8))
    assert model.functions == (("mine", "Twice"),)
    assert model.op_types == ("mine::Twice",)
    part = model.extract([1])
    assert part.inputs[0].shape == (2,)  # inferred through the function
    onnx.checker.check_model(part.to_bytes())
    np.testing.assert_array_equal(run(part.to_bytes(), {"h": np.ones(2, np.float32)})["y"], [2, 2])


def test_sparse_initializers_are_cloned(make_model: Callable[..., onnx.ModelProto]) -> None:
    values = oh.make_tensor("w", 1, [1], [5.0])
    sparse = oh.make_sparse_tensor(values, oh.make_tensor("", 7, [1], [1]), [2])
    nodes = [oh.make_node("Neg", ["x"], ["h"]), oh.make_node("Add", ["h", "w"], ["y"])]
    part = read_model(make_model(nodes, sparse_initializer=[sparse])).extract([1])
    assert part.constant(part.value_id("w")).tolist() == [0, 5]
    onnx.checker.check_model(part.to_bytes())
    np.testing.assert_array_equal(run(part.to_bytes(), {"h": np.ones(2, np.float32)})["y"], [1, 6])


def test_declared_types_inside_a_part_are_kept(make_model: Callable[..., onnx.ModelProto]) -> None:
    """Operators that nobody can infer may come with declared types, which other runtimes need."""
    nodes = [oh.make_node("Frob", [a], [b], domain="mine") for a, b in (("x", "a"), ("a", "b"), ("b", "y"))]
    infos = [oh.make_tensor_value_info(name, 1, ["n", 3]) for name in ("a", "b")]
    proto = make_model(nodes, value_info=infos)
    proto.opset_import.add(domain="mine", version=1)
    part = read_model(proto).extract([1, 2])
    assert part.inputs[0].shape == ("n", 3)
    again = read_model(part.to_bytes())
    assert again.type_of(again.value_id("b")).shape == ("n", 3)


def test_values_of_unknown_type_stay_without_one(make_model: Callable[..., onnx.ModelProto]) -> None:
    proto = make_model([oh.make_node("Frob", ["x"], ["a"], domain="mine"), oh.make_node("Relu", ["a"], ["y"])])
    proto.opset_import.add(domain="mine", version=1)
    part = read_model(proto).extract([1])
    assert (part.inputs[0].dtype, part.inputs[0].shape) == (None, None)
    assert not part.to_proto().graph.input[0].HasField("type")


def test_skeleton_turns_large_constants_into_inputs(make_model: Callable[..., onnx.ModelProto]) -> None:
    large = np.zeros((2, 1000), np.float32)
    nodes = [
        oh.make_node("Constant", [], ["also_large"], value=onnx.numpy_helper.from_array(large.T.copy())),
        oh.make_node("MatMul", ["large", "also_large"], ["m"]),
        oh.make_node("Reshape", ["m", "shape"], ["y"]),
    ]
    constants = [onnx.numpy_helper.from_array(large, "large"), onnx.numpy_helper.from_array(np.array([4]), "shape")]
    model = read_model(make_model(nodes, [], [oh.make_tensor_value_info("y", 1, ["n"])], constants))
    skeleton = model.to_bytes(max_constant_bytes=1024)
    assert len(skeleton) < 1000
    again = read_model(skeleton)
    assert [(port.name, port.shape) for port in again.inputs] == [("also_large", (1000, 2)), ("large", (2, 1000))]
    assert model.type_of(model.value_id("m")).shape == (2, 2)
    onnx.checker.check_model(skeleton)
    part = read_model(model.extract([0]).to_bytes(max_constant_bytes=0))
    assert {port.name for port in part.inputs} == {"large", "also_large"}


@pytest.mark.parametrize("nodes", [[], [3], [-1], [0.5], [[0]], np.zeros(0, np.int64)])
def test_extract_refuses(branching_model: onnx.ModelProto, nodes: Any) -> None:
    with pytest.raises(ModelError, match="extract: expected"):
        read_model(branching_model).extract(nodes)


@pytest.mark.parametrize("seed", range(4))
def test_many_parts_at_one_time_are_as_one_by_one(
    branching_model: onnx.ModelProto, light_models: dict[str, pathlib.Path], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    for model in (read_model(branching_model), read_model(light_models["light_inception_v2"])):
        cut = rng.integers(0, 5, model.num_nodes)
        groups = [*(np.flatnonzero(cut == i) for i in np.unique(cut)), rng.integers(0, model.num_nodes, 3)]
        names = [f"part {i}" for i in range(len(groups))]
        for nodes, name, part in zip(groups, names, model.extract_all(groups, names), strict=True):
            alone = model.extract(nodes, name)
            assert part.to_bytes() == alone.to_bytes()
            assert part.inputs == alone.inputs
            assert part.outputs == alone.outputs
            assert [(node.key, node.op_type, node.inputs, node.outputs) for node in part.nodes] == [
                (model.nodes[i].key, model.nodes[i].op_type, model.nodes[i].inputs, model.nodes[i].outputs)
                for i in np.unique(nodes).tolist()
            ]
    assert model.extract_all([], []) == []


def test_extract_takes_any_order_and_repetition(branching_model: onnx.ModelProto) -> None:
    model = read_model(branching_model)
    assert model.extract([2, 0, 2]).keys == ("negate", "scale")
    assert model.extract(np.array([1], np.uint8)).keys == ("choose",)


def test_save(branching_model: onnx.ModelProto, tmp_path: pathlib.Path) -> None:
    model = read_model(branching_model)
    target = tmp_path / "saved.onnx"
    target.write_bytes(b"old")
    model.extract([0]).save(target)
    assert read_model(target).keys == ("negate",)
    assert [path.name for path in tmp_path.iterdir()] == ["saved.onnx"]
    with pytest.raises(OSError, match="nowhere"):
        model.save(tmp_path / "nowhere" / "x.onnx")
