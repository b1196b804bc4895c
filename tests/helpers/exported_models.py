"""What the tests of exported models export."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

__all__ = ["PACKED", "X", "bits", "network"]

PACKED = {"CACHE_MODE": "OPTIMIZE_SPEED"}  # packed weights are exported too


def network(turned: bool = True) -> onnx.ModelProto:
    """Two products with a relu between; the weight of the second is transposed first if ``turned``."""
    random = np.random.default_rng(0)
    first = random.standard_normal((48, 64)).astype(np.float32)
    second = random.standard_normal((32, 64) if turned else (64, 32)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "first"], ["a"], name="one"),
        helper.make_node("Relu", ["a"], ["b"], name="two"),
        helper.make_node("Transpose", ["second"], ["turned"], name="turn"),
        helper.make_node("MatMul", ["b", "turned" if turned else "second"], ["y"], name="three"),
    ]
    if not turned:
        del nodes[2]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 48])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 32])],
        [numpy_helper.from_array(first, "first"), numpy_helper.from_array(second, "second")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


X = np.random.default_rng(1).standard_normal((5, 48)).astype(np.float32)


def bits(outputs: Any) -> list[tuple[str, tuple[int, ...], bytes]]:
    return [(array.dtype.name, array.shape, array.tobytes()) for array in outputs.arrays()]
