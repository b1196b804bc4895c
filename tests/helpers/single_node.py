"""Small models of unknown shapes, run on the CPU device and held against onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from hetero import Core
from sessions import onnxruntime_session

__all__ = ["assert_as_onnxruntime", "model", "run"]


def run(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    core = Core()
    return list(core.compile_model(core.read_model(proto), "CPU")(feeds).arrays())


def model(nodes: list[onnx.NodeProto], feeds: dict[str, np.ndarray], outputs: list[str], opset: int) -> onnx.ModelProto:
    def port(name: str, array: np.ndarray) -> onnx.ValueInfoProto:
        # Lists keep their length: onnxruntime takes a Resize's sizes of unknown number for none.
        dims: list[Any] = [f"{name}{axis}" if array.ndim > 1 else size for axis, size in enumerate(array.shape)]
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), dims)

    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(nodes, "graph", [port(name, array) for name, array in feeds.items()], results)
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    )


def assert_as_onnxruntime(
    op: str,
    arrays: Sequence[np.ndarray | None],
    num_outputs: int = 1,
    opset: int = 17,
    atol: float = 2e-6,
    constants: bool = False,
    **attributes: Any,
) -> None:
    """One node with these inputs, None for one left out. ``constants``: all but the first are initializers."""
    feeds = {f"x{i}": array for i, array in enumerate(arrays) if array is not None}
    names = [f"x{i}" if array is not None else "" for i, array in enumerate(arrays)]
    outputs = [f"y{i}" for i in range(num_outputs)]
    if constants:
        feeds, initializers = {"x0": feeds.pop("x0")}, feeds
    else:
        initializers = {}
    proto = model([helper.make_node(op, names, outputs, **attributes)], feeds, outputs, opset)
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in initializers.items())
    session = onnxruntime_session(proto)
    for found, wanted in zip(run(proto, feeds), session.run(None, feeds), strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=atol)
