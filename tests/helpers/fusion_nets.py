"""Small nets that the CPU device fuses, and the number of kernel calls that remain."""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import hetero
from sessions import onnxruntime_session

__all__ = ["SHAPE", "Net", "array", "calls", "check", "gelu_erf", "layer_norm", "silu"]

RNG = np.random.default_rng(0)
SHAPE = (2, 5, 24)


def array(*shape, scale=1.0):
    return (RNG.standard_normal(shape) * scale).astype(np.float32)


class Net:
    """Nodes one after another, each with one output."""

    def __init__(self, shape):
        self.nodes, self.weights, self.outputs = [], {}, []
        self.shape = shape

    def const(self, value):
        name = f"c{len(self.weights)}"
        self.weights[name] = np.asarray(value, np.float32) if not isinstance(value, np.ndarray) else value
        return name

    def __call__(self, op_type, *inputs, **attributes):
        names = [name if isinstance(name, str) else self.const(name) for name in inputs]
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, names, [name], **attributes))
        return name

    def model(self, *outputs):
        graph = helper.make_graph(
            self.nodes,
            "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
            [numpy_helper.from_array(value, name) for name, value in self.weights.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def calls(compiled, inputs):
    return compiled._plans.first([inputs["x"]]).program.num_calls


def check(model: onnx.ModelProto, shape, num_calls: int, tolerance=2e-5):
    """The number of kernel calls that remain, and the results with and without fusion beside onnxruntime's."""
    inputs = {"x": array(*shape)}
    wanted = onnxruntime_session(model).run(None, inputs)
    core = hetero.Core()
    fused = core.compile_model(model, "CPU")
    plain = core.compile_model(model, "CPU", {"DISABLE_TRANSFORMATIONS": True})
    assert calls(fused, inputs) == num_calls
    assert calls(plain, inputs) >= num_calls
    for compiled in (fused, plain):
        for found, want in zip(compiled(inputs).values(), wanted, strict=True):
            assert found.shape == want.shape
            assert np.abs(found - want).max() <= tolerance * max(1, np.abs(want).max())


def gelu_erf(net, x, form):
    inner = net("Div", x, math.sqrt(2)) if form % 2 else net("Mul", math.sqrt(0.5), x)
    gate = net("Add", net("Erf", inner), 1.0)
    if form // 2 == 0:
        return net("Mul", net("Mul", x, gate), 0.5)
    return net("Mul", net("Mul", 0.5, x), gate)


def silu(net, x, form):
    return net("Mul", x, net("Sigmoid", x)) if form else net("Mul", net("Sigmoid", x), x)


def layer_norm(net, x, square_by_mul=False, bias=True):
    centered = net("Sub", x, net("ReduceMean", x, np.array([-1]), keepdims=1))
    square = net("Mul", centered, centered) if square_by_mul else net("Pow", centered, 2.0)
    root = net("Sqrt", net("Add", net("ReduceMean", square, np.array([-1]), keepdims=1), 1e-5))
    scaled = net("Mul", net("Div", centered, root), array(24))
    return net("Add", scaled, array(24)) if bias else scaled
