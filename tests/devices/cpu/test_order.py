"""The order in which plans take the nodes of a model that runs some of them in Python."""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from hetero import Core
from hetero.devices.cpu.order import late_order
from hetero.devices.cpu.plugin import CpuModel, CpuPlugin
from sessions import onnxruntime_session


def stand_in(inputs: Sequence[int], outputs: Sequence[int], nested: bool) -> Any:
    operator = SimpleNamespace(custom=None, host=None)
    return SimpleNamespace(
        inputs=list(inputs), outputs=list(outputs), nested=object() if nested else None, operator=operator
    )


def random_nodes(rng: random.Random) -> list[Any]:
    """Nodes in topological order; value i < 3 is an input, -1 is absent."""
    nodes, values = [], [0, 1, 2]
    for _ in range(rng.randrange(1, 30)):
        inputs = [rng.choice([*values[-6:], -1, rng.choice(values)]) for _ in range(rng.randrange(4))]
        outputs = [len(values) + i if rng.random() < 0.9 else -1 for i in range(rng.randrange(1, 3))]
        values += range(len(values), len(values) + len(outputs))
        nodes.append(stand_in(inputs, outputs, rng.random() < 0.2))
    return nodes


@given(st.integers(0, 1 << 32))
def test_each_node_runs_behind_as_many_python_nodes_as_its_readers_allow(seed: int) -> None:
    nodes = random_nodes(random.Random(seed))
    order = list(late_order(nodes))
    assert sorted(order) == list(range(len(nodes)))
    place = {i: at for at, i in enumerate(order)}
    in_python = [i for i in order if nodes[i].nested is not None]
    assert in_python == sorted(in_python)
    maker = {value: i for i, node in enumerate(nodes) for value in node.outputs if value >= 0}
    readers: dict[int, list[int]] = {i: [] for i in range(len(nodes))}
    for i, node in enumerate(nodes):
        for value in node.inputs:
            if value in maker:
                readers[maker[value]].append(i)
    for i, node in enumerate(nodes):
        assert all(place[i] < place[reader] for reader in readers[i])
        if node.nested is None and readers[i]:
            first = min(place[reader] for reader in readers[i])
            between = order[place[i] + 1 : first]
            assert not any(other in in_python for other in between)


def test_without_python_nodes_the_order_is_kept() -> None:
    nodes = [stand_in([0], [1], False), stand_in([0], [2], False), stand_in([1], [3], False)]
    assert list(late_order(nodes)) == [0, 1, 2]


@pytest.mark.parametrize("op_type", ["Transpose", "MatMul", "Relu"])
def test_a_quantized_node_behind_an_if_is_computed_by_another(op_type: str) -> None:
    """A node that stays in the model computes the result of the QuantizeLinear, which plans leave out."""
    small = helper.make_graph(
        [helper.make_node("Slice", ["x", "zero", "one"], ["small"])],
        "then",
        [],
        [helper.make_tensor_value_info("small", TensorProto.INT8, None)],
    )
    whole = helper.make_graph(
        [helper.make_node("Sub", ["x", "x"], ["whole"])],
        "else",
        [],
        [helper.make_tensor_value_info("whole", TensorProto.INT8, None)],
    )
    nodes = [
        helper.make_node("If", ["c"], ["q"], then_branch=small, else_branch=whole),
        helper.make_node("DequantizeLinear", ["q", "half"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "half"], ["e"]),
        helper.make_node(op_type, ["d", "e"] if op_type == "MatMul" else ["d"], ["m"]),
        helper.make_node("QuantizeLinear", ["m", "half", "point"], ["r"]),
        helper.make_node("DequantizeLinear", ["r", "half", "point"], ["y"]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.INT8, [2, 2]),
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
    ]
    arrays = {"zero": np.array([0]), "one": np.array([1]), "half": np.float32(0.5), "point": np.int8(1)}
    constants = [
        numpy_helper.from_array(np.asarray(array), name)
        for name, array in (arrays | {"w": np.int8([[1, 0], [2, 4]])}).items()
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, constants)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime_session(proto)
    compiled = Core().compile_model(Core().read_model(proto), "CPU")
    for c in (True, False):
        feeds = {"x": np.int8([[1, 2], [3, -4]]), "c": np.array(c)}
        np.testing.assert_array_equal(compiled(feeds)["y"], session.run(None, feeds)[0])


def transposed_before_if() -> onnx.ModelProto:
    """A Transpose and a sum that stand before an If, and whose readers stand behind it. The If changes a size."""
    part = helper.make_graph(
        [helper.make_node("Slice", ["a", "zero", "one", "axis"], ["part"])],
        "then",
        [],
        [helper.make_tensor_value_info("part", TensorProto.FLOAT, None)],
    )
    whole = helper.make_graph(
        [helper.make_node("Neg", ["a"], ["whole"])],
        "else",
        [],
        [helper.make_tensor_value_info("whole", TensorProto.FLOAT, None)],
    )
    nodes = [
        helper.make_node("Transpose", ["b"], ["t"], perm=[0, 2, 1]),
        helper.make_node("ReduceSum", ["a"], ["sum"], keepdims=0),
        helper.make_node("If", ["c"], ["chosen"], then_branch=part, else_branch=whole),
        helper.make_node("MatMul", ["chosen", "t"], ["scores"]),
        helper.make_node("Add", ["scores", "sum"], ["y"]),
    ]
    inputs = [
        helper.make_tensor_value_info("a", TensorProto.FLOAT, [2, "n", 8]),
        helper.make_tensor_value_info("b", TensorProto.FLOAT, [2, "m", 8]),
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
    ]
    constants = [
        helper.make_tensor(name, TensorProto.INT64, [1], [value])
        for name, value in (("zero", 0), ("one", 1), ("axis", 1))
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_transpose_runs_with_the_product_that_reads_it() -> None:
    proto = transposed_before_if()
    compiled = CpuPlugin().compile_model(Core().read_model(proto), {})
    assert isinstance(compiled, CpuModel)
    request = compiled.create_infer_request()
    session = onnxruntime_session(proto)
    rng = np.random.default_rng(0)
    for n, m, c in ((3, 5, True), (3, 5, False), (1, 17, True), (4, 0, False)):
        feeds = {
            "a": rng.standard_normal((2, n, 8), np.float32),
            "b": rng.standard_normal((2, m, 8), np.float32),
            "c": np.array(c),
        }
        for found, wanted in zip(request.infer(feeds).arrays(), session.run(None, feeds), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    cut = [segment for segment in compiled._plans.segments() if segment.host >= 0]
    assert cut, "the branches have other sizes, so the If runs in Python"
    assert all(segment.program.num_calls == 0 for segment in cut), "all readers stand behind the If"
