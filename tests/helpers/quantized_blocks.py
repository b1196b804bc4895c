"""Quantized models of blocks that a device with patterns and the CPU share."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from hetero.model.model import Model
from hetero.model.read import read_model

__all__ = ["residual"]

Q, DQ = "QuantizeLinear", "DequantizeLinear"


def residual(blocks: int = 1, shared_weights: bool = False) -> Model:
    """Blocks of a convolution of the NPU and a Mish of the CPU that read one DequantizeLinear, and their sum."""
    rng = np.random.default_rng(0)
    weights: dict[str, Any] = {"s": np.float32(0.02), "z": np.int8(0)}
    nodes: list[onnx.NodeProto] = []

    def node(op: str, name: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, list(inputs), [name], name, **attributes))
        return name

    def dq(value: str, name: str) -> str:
        return node(DQ, name, value, "s", "z")

    def q(value: str) -> str:
        return node(Q, f"{value}_q", value, "s", "z")

    value = q("x")
    for i in range(blocks):
        shared = dq(value, f"shared{i}")
        weights[f"w{i}"] = rng.integers(-127, 128, (32, 32, 3, 3), np.int8)
        weight = f"weight{i}"
        if not shared_weights or not i:
            dq(f"w{i}", weight)
        conv = q(node("Conv", f"conv{i}", shared, "weight0" if shared_weights else weight, pads=[1] * 4))
        mish = q(node("Mish", f"mish{i}", shared))
        value = q(node("Add", f"sum{i}", dq(conv, f"left{i}"), dq(mish, f"right{i}")))
    dq(value, "y")
    graph = helper.make_graph(
        nodes,
        "residual",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 32, 24, 24))],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    return read_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9))
