"""Encoding a model with its nodes named by their keys."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import hetero


def _proto() -> onnx.ModelProto:
    """Nodes without a name, with one name for two, and with their own; one with a Constant, and one in a branch."""
    branch = helper.make_graph(
        [helper.make_node("Relu", ["a"], ["in_branch"])],
        "branch",
        [],
        [helper.make_tensor_value_info("in_branch", 1, None)],
    )
    nodes = [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.ones(3, np.float32))),
        helper.make_node("Add", ["x", "c"], ["a"]),
        helper.make_node("Neg", ["a"], ["b"], name="same"),
        helper.make_node("Neg", ["b"], ["d"], name="same"),
        helper.make_node("Mul", ["d", "w"], ["e"], name="own"),
        helper.make_node("If", ["yes"], ["y"], then_branch=branch, else_branch=branch),
    ]
    info = helper.make_tensor_value_info
    weight = numpy_helper.from_array(np.arange(3, dtype=np.float32), "w")
    graph = helper.make_graph(
        nodes, "g", [info("x", 1, [3]), info("yes", 9, [])], [info("y", 1, [3]), info("e", 1, [3])], [weight]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("affinity", [False, True])
@pytest.mark.parametrize("part", [False, True])
def test_only_names_change(affinity: bool, part: bool) -> None:
    model = hetero.Core().read_model(_proto())
    if affinity:
        model = model.with_affinity({model.keys[1]: "CPU", model.keys[0]: "TEMPLATE"})
    if part:
        model = model.extract([0, 1, 2, 3])
    plain = onnx.ModelProto.FromString(model.to_bytes())
    named = onnx.ModelProto.FromString(model.to_bytes(with_keys=True))
    lent = onnx.ModelProto.FromString(model.to_bytes_lending(8, with_keys=True)[0])
    vertices = [node for node in named.graph.node if node.op_type != "Constant"]
    assert [node.name for node in vertices] == list(model.keys)
    assert [node.name for node in lent.graph.node if node.op_type != "Constant"] == list(model.keys)
    assert len(set(model.keys)) == len(model.keys)
    assert onnx.ModelProto.FromString(model.to_bytes()) == plain
    for node in (*named.graph.node, *plain.graph.node):
        node.ClearField("name")
    assert named == plain


def test_a_model_whose_names_are_its_keys_is_its_file() -> None:
    proto = _proto()
    for number, node in enumerate(proto.graph.node):
        node.name = f"n{number}"
    encoded = proto.SerializeToString()
    model = hetero.Core().read_model(encoded)
    assert model.to_bytes(with_keys=True) == model.to_bytes()
