"""Moves of quantized elements that may not run on the integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from hetero import Core
from single_node import model

CASES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "ReduceMax": ((0, 3), {"axes": [0], "keepdims": 0}),
    "MaxPool": ((1, 1, 1, 1), {"kernel_shape": [2, 2], "dilations": [2, 2], "pads": [1, 1, 1, 1]}),
}


@pytest.mark.parametrize("op", CASES)
def test_the_largest_of_no_element(op: str) -> None:
    """It is -inf, which QuantizeLinear makes the least integer; a table would convert the least one of the input."""
    shape, attributes = CASES[op]
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "fine", "zero"], ["a"]),
        helper.make_node(op, ["a"], ["b"], **attributes),
        helper.make_node("QuantizeLinear", ["b", "coarse", "zero"], ["y"]),
    ]
    x = np.full(shape, 200, np.uint8)
    proto = model(nodes, {"x": x}, ["y"], 17)
    for name, value in (("fine", np.float32(0.1)), ("coarse", np.float32(1)), ("zero", np.uint8(128))):
        proto.graph.initializer.append(numpy_helper.from_array(np.array(value), name))
    found = Core().compile_model(Core().read_model(proto), "CPU")({"x": x})["y"]
    assert found.dtype == np.uint8
    assert found.size
    assert not found.any()
