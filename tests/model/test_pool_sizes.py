"""Sizes of pools with ceil_mode, against those that onnxruntime computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import pytest

import hetero
from hetero.model.read import read_model
from sessions import onnxruntime_session

Make = Callable[..., onnx.ModelProto]


def pool_model(make_model: Make, op_type: str, size: int, opset: int = 19, **attributes: Any) -> onnx.ModelProto:
    """A pool with ceil_mode on [1, 2, size, 5], then a Relu."""
    nodes = [oh.make_node(op_type, ["x"], ["p"], "pool", ceil_mode=1, **attributes), oh.make_node("Relu", ["p"], ["y"])]
    inputs = [oh.make_tensor_value_info("x", 1, [1, 2, size, 5])]
    return make_model(nodes, inputs, [oh.make_tensor_value_info("y", 1, [None] * 4)], opset=opset)


@pytest.mark.parametrize(
    ("op_type", "size", "attributes"),
    [
        ("MaxPool", 4, {"kernel_shape": [3, 2], "strides": [5, 2], "pads": [1, 0, 1, 0]}),
        ("MaxPool", 8, {"kernel_shape": [3, 2], "strides": [5, 2], "dilations": [2, 1]}),  # the last window stays
        ("AveragePool", 4, {"kernel_shape": [1, 2], "strides": [5, 2], "auto_pad": "VALID"}),
        ("AveragePool", 4, {"kernel_shape": [1, 2], "strides": [3, 3], "auto_pad": "SAME_UPPER"}),
        ("LpPool", 3, {"kernel_shape": [1, 1], "strides": [3, 7]}),
        ("LpPool", 6, {"kernel_shape": [2, 2], "strides": [4, 4], "pads": [0, 1, 1, 1]}),
    ],
)
@pytest.mark.parametrize("opset", [18, 22])
def test_windows_in_the_right_padding_do_not_count(
    make_model: Make, op_type: str, size: int, attributes: dict[str, Any], opset: int
) -> None:
    proto = pool_model(make_model, op_type, size, opset, **attributes)
    session = onnxruntime_session(proto)
    (expected,) = session.run(None, {"x": np.ones((1, 2, size, 5), np.float32)})
    model = read_model(proto).with_inner_sizes()
    assert [model.type_of(model.value_id(name)).shape for name in "py"] == [expected.shape] * 2


def test_declared_and_unknown_sizes_stay(make_model: Make) -> None:
    attributes = {"kernel_shape": [1, 2], "strides": [3, 2]}
    proto = pool_model(make_model, "MaxPool", 3, **attributes)
    proto.graph.value_info.append(oh.make_tensor_value_info("p", 1, [1, 2, 2, 3]))
    model = read_model(proto)
    assert model.type_of(model.value_id("p")).shape == (1, 2, 2, 3)
    proto = pool_model(make_model, "MaxPool", 3, **attributes)
    proto.graph.input[0].type.tensor_type.shape.dim[3].dim_param = "n"
    model = read_model(proto)
    shape = model.type_of(model.value_id("p")).shape
    assert shape is not None
    assert shape[:3] == (1, 2, 1)
    assert not isinstance(shape[3], int)
    proto = pool_model(make_model, "MaxPool", 3, kernel_shape=[1, 2], strides=[0])
    assert read_model(proto).with_inner_sizes().num_nodes == 2


def test_another_device_reads_the_result(make_model: Make) -> None:
    proto = pool_model(make_model, "MaxPool", 4, kernel_shape=[3, 2], strides=[5, 2], pads=[1, 0, 1, 0])
    x = np.arange(40, dtype=np.float32).reshape(1, 2, 4, 5)
    compiled = hetero.Core().compile_model(proto, "HETERO:CPU,ORT", pins={"op:Relu": "ORT"})
    session = onnxruntime_session(proto)
    np.testing.assert_array_equal(compiled({"x": x})["y"], session.run(None, {"x": x})[0])
