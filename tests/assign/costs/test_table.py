"""`cost_table`: which sizes it uses."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

import hetero
from hetero.assign.costs import cost_table
from hetero.assign.memory.values import values_of
from hetero.plugin.speed import CostSource, DeviceSpeed
from model_zoo import make_model


def test_sizes_that_the_file_leaves_open_are_inferred_as_for_memory() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Neg", ["a"], ["y"])]
    proto = make_model(nodes, {"x": [3, 5]}, ["y"])
    proto.graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, ["unk__0", "unk__1"]))
    model = hetero.Core().read_model(proto)
    table = cost_table(model, ["A"], [DeviceSpeed(1e9, 1e9)])
    np.testing.assert_array_equal(table.value_bytes, values_of(model).bytes)
    assert table.value_bytes[model.value_id("a")] == 3 * 5 * 4
    assert (table.source != CostSource.ASSUMED).all()
