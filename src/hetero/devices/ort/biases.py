"""Finds biases whose scale onnxruntime ignores.

It fuses the product of dequantized operands and the int32 bias behind it into QGemm, which takes the scale of the bias
to be the product of the operands' scales. Quantizers choose this scale, but a model may have another one. Convolutions
are not affected: onnxruntime 1.32 compares their scales.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from ...model.function_library import graphs_of, plain_domain

__all__ = ["has_bias_of_other_scale"]

_MOVES = frozenset({"Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators through which onnxruntime moves a DequantizeLinear."""
_MOST_MOVES = 16  # in a row; a malformed graph may have a value that depends on itself
_TOLERANCE = 1e-4  # relative: quantizers round the product


class _Scope:
    """The names of a graph: which node computes a value, and which are constant."""

    def __init__(self, nodes: Iterable[onnx.NodeProto], constants: Mapping[str, Any], outer: _Scope | None) -> None:
        self.producer: MutableMapping[str, onnx.NodeProto] = {name: node for node in nodes for name in node.output}
        self.constants: MutableMapping[str, Any] = dict(constants)
        if outer:
            self.producer = ChainMap(self.producer, outer.producer)
            self.constants = ChainMap(self.constants, outer.constants)

    def dequantize(self, name: str) -> onnx.NodeProto | None:
        """The DequantizeLinear that computes a value, also if the value is moved behind it."""
        for _ in range(_MOST_MOVES):
            node = self.producer.get(name)
            if node is None or node.op_type not in _MOVES or not node.input:
                return node if node is not None and node.op_type == "DequantizeLinear" and len(node.input) > 1 else None
            name = node.input[0]
        return None

    def constant(self, name: str) -> NDArray[Any] | None:
        value = self.constants.get(name)
        node = self.producer.get(name)
        if value is None and node is not None and node.op_type == "Constant" and node.attribute[0].name == "value":
            value = node.attribute[0].t
        return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value

    def ignores_scale(self, bias: str, operands: Sequence[str]) -> bool:
        """Whether onnxruntime may add a bias to the product of the operands with another scale than its own."""
        node, *sides = found = [self.dequantize(name) for name in (bias, *operands)]
        quantized = self.constant(node.input[0]) if node else None
        if node is None or None in sides or (quantized is not None and quantized.dtype != np.int32):
            return False
        own, left, right = (self.constant(side.input[1]) for side in found if side)
        zero = self.constant(node.input[2]) if len(node.input) > 2 and node.input[2] else np.int32(0)
        if zero is None or zero.any() or own is None or left is None or right is None:
            return True
        try:
            return not np.allclose(own, left.astype(np.float64).ravel() * right.ravel(), rtol=_TOLERANCE, atol=0)
        except ValueError:  # the shapes do not fit
            return True


def has_bias_of_other_scale(encoded: bytes, weights: Mapping[str, NDArray[Any]]) -> bool:
    """Whether a product of dequantized operands may have a bias whose scale is not the product of theirs, in any graph
    or function of an encoded model. ``weights``: initializers that it does not contain."""
    model = onnx.ModelProto.FromString(encoded)
    functions = (_in_graph(function.node, {}, None) for function in model.functions)
    return _in_graph(model.graph.node, _initializers(model.graph, weights), None) or any(functions)


def _initializers(graph: onnx.GraphProto, weights: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    return {**{tensor.name: tensor for tensor in graph.initializer}, **weights}


def _in_graph(nodes: Sequence[onnx.NodeProto], constants: Mapping[str, Any], outer: _Scope | None) -> bool:
    scope = _Scope(nodes, constants, outer)
    for node in nodes:
        if any(_in_graph(graph.node, _initializers(graph, {}), scope) for graph in graphs_of(node)):
            return True
        if plain_domain(node.domain):
            continue
        if node.op_type == "Gemm" and len(node.input) > 2 and scope.ignores_scale(node.input[2], node.input[:2]):
            return True
        if node.op_type != "Add" or len(node.input) != 2:  # malformed nodes are for others to report
            continue
        for bias, sum_of in (node.input, reversed(node.input)):
            product = scope.producer.get(sum_of)
            if product is None or product.op_type != "MatMul" or len(product.input) != 2:
                continue
            if scope.ignores_scale(bias, product.input):
                return True
    return False
