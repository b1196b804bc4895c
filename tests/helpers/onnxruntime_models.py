"""Models that onnxruntime's tools write: optimized transformers, quantized networks."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["MODELS", "feeds", "run_directly"]

_HIDDEN, _HEADS, _LENGTH = 16, 2, 5

node = helper.make_node


def encoder(layers: int = 2) -> onnx.ModelProto:
    """A small BERT-like encoder of float32 [n, length, hidden], with random weights."""
    random = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, np.ndarray] = {
        "heads": np.array([0, 0, _HEADS, _HIDDEN // _HEADS]),
        "joined": np.array([0, 0, _HIDDEN]),
        "scale": np.float32((_HIDDEN // _HEADS) ** 0.5),
        "root": np.float32(2**0.5),
        "one": np.float32(1),
        "half": np.float32(0.5),
    }

    def linear(x: str, name: str, rows: int = _HIDDEN, columns: int = _HIDDEN) -> str:
        constants[f"{name}.w"] = random.standard_normal((rows, columns)).astype(np.float32) / rows**0.5
        constants[f"{name}.b"] = random.standard_normal(columns).astype(np.float32)
        nodes.append(node("MatMul", [x, f"{name}.w"], [f"{name}.product"]))
        nodes.append(node("Add", [f"{name}.b", f"{name}.product"], [name]))
        return name

    def norm(x: str, y: str, name: str) -> str:
        constants[f"{name}.g"] = random.standard_normal(_HIDDEN).astype(np.float32)
        constants[f"{name}.b"] = random.standard_normal(_HIDDEN).astype(np.float32)
        nodes.append(node("Add", [x, y], [f"{name}.sum"]))
        nodes.append(node("LayerNormalization", [f"{name}.sum", f"{name}.g", f"{name}.b"], [name], axis=-1))
        return name

    def split(x: str, order: list[int]) -> str:
        nodes.append(node("Reshape", [x, "heads"], [f"{x}.r"]))
        nodes.append(node("Transpose", [f"{x}.r"], [f"{x}.t"], perm=order))
        return f"{x}.t"

    value = "x"
    for i in range(layers):
        query, key, rest = (linear(value, f"{i}.{name}") for name in "qkv")
        query, key, rest = split(query, [0, 2, 1, 3]), split(key, [0, 2, 3, 1]), split(rest, [0, 2, 1, 3])
        nodes += [
            node("MatMul", [query, key], [f"{i}.scores"]),
            node("Div", [f"{i}.scores", "scale"], [f"{i}.scaled"]),
            node("Softmax", [f"{i}.scaled"], [f"{i}.weights"], axis=-1),
            node("MatMul", [f"{i}.weights", rest], [f"{i}.mixed"]),
            node("Transpose", [f"{i}.mixed"], [f"{i}.back"], perm=[0, 2, 1, 3]),
            node("Reshape", [f"{i}.back", "joined"], [f"{i}.attended"]),
        ]
        value = norm(linear(f"{i}.attended", f"{i}.out"), value, f"{i}.norm1")
        up = linear(value, f"{i}.up", _HIDDEN, 4 * _HIDDEN)
        nodes += [
            node("Div", [up, "root"], [f"{i}.d"]),
            node("Erf", [f"{i}.d"], [f"{i}.e"]),
            node("Add", [f"{i}.e", "one"], [f"{i}.p"]),
            node("Mul", [up, f"{i}.p"], [f"{i}.u"]),
            node("Mul", [f"{i}.u", "half"], [f"{i}.gelu"]),
        ]
        value = norm(linear(f"{i}.gelu", f"{i}.down", 4 * _HIDDEN, _HIDDEN), value, f"{i}.norm2")
    nodes.append(node("Tanh", [value], ["y"]))
    return _model(nodes, ["n", _LENGTH, _HIDDEN], constants)


def network() -> onnx.ModelProto:
    """A small convolutional network, float32 [n, 3, 8, 8] -> [n, 10]."""
    random = np.random.default_rng(1)

    def weights(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float32) / 4

    constants = {
        "w1": weights(8, 3, 3, 3),
        "b1": weights(8),
        "w2": weights(8, 8, 3, 3),
        "b2": weights(8),
        "w3": weights(8, 10),
        "b3": weights(10),
    }
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], ["r1"]),
        node("Conv", ["r1", "w2", "b2"], ["c2"], pads=[1, 1, 1, 1]),
        node("Sigmoid", ["c2"], ["s2"]),
        node("Add", ["s2", "r1"], ["a"]),
        node("LeakyRelu", ["a"], ["l"]),
        node("GlobalAveragePool", ["l"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("Gemm", ["f", "w3", "b3"], ["h"]),
        node("Softmax", ["h"], ["y"]),
    ]
    return _model(nodes, ["n", 3, 8, 8], constants)


def feeds(model: onnx.ModelProto, batch: int = 2, seed: int = 0) -> dict[str, np.ndarray]:
    """Random float32 inputs."""
    random = np.random.default_rng(seed)
    shapes = {
        info.name: [dim.dim_value or batch for dim in info.type.tensor_type.shape.dim] for info in model.graph.input
    }
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def run_directly(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The results of onnxruntime without optimizations."""
    import onnxruntime

    options = _quiet_options()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, inputs))


def _model(nodes: list[onnx.NodeProto], shape: list[int | str], constants: dict[str, np.ndarray]) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _quiet_options() -> object:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return options


def _fused(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """By onnxruntime.transformers."""
    from onnxruntime.transformers import optimizer

    onnx.save(model, folder / "model.onnx")
    logging.getLogger("onnxruntime.transformers").setLevel(logging.ERROR)
    optimized = optimizer.optimize_model(
        str(folder / "model.onnx"), model_type="bert", num_heads=_HEADS, hidden_size=_HIDDEN, opt_level=0
    )
    made: onnx.ModelProto = optimized.model
    if not any(entry.domain for entry in made.opset_import):
        made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return made


def _extended(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """By a session, without the layouts that depend on the processor."""
    import onnxruntime

    options = _quiet_options()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(folder / "extended.onnx")
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return onnx.load(folder / "extended.onnx")


REDUCE_RANGE = True
"""Weights of 7 bits: with 8, the sums of onnxruntime saturate on processors without VNNI."""


def _dynamic(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    from onnxruntime.quantization import quantize_dynamic

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # The type of what reads a fused node, which onnx does not infer.
        options = {"DefaultTensorType": TensorProto.FLOAT}
        quantize_dynamic(model, folder / "dynamic.onnx", extra_options=options, reduce_range=REDUCE_RANGE)
    return onnx.load(folder / "dynamic.onnx")


def _static(model: onnx.ModelProto, folder: Path, layout: str, per_channel: bool) -> onnx.ModelProto:
    from onnxruntime import quantization

    class Reader(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self._batches = iter([feeds(model, seed=seed) for seed in range(3)])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self._batches, None)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantization.quantize_static(
            model,
            folder / "static.onnx",
            Reader(),
            quant_format=quantization.QuantFormat[layout],
            per_channel=per_channel,
            reduce_range=REDUCE_RANGE,
            weight_type=quantization.QuantType.QInt8,
            activation_type=quantization.QuantType.QUInt8,
        )
    return onnx.load(folder / "static.onnx")


MODELS: dict[str, Callable[[Path], onnx.ModelProto]] = {
    "encoder fused": lambda folder: _fused(encoder(), folder),
    "encoder fused dynamic": lambda folder: _dynamic(_fused(encoder(), folder), folder),
    "encoder extended": lambda folder: _extended(encoder(), folder),
    "encoder dynamic": lambda folder: _dynamic(encoder(), folder),
    "encoder dynamic extended": lambda folder: _extended(_dynamic(encoder(), folder), folder),
    "encoder QDQ": lambda folder: _static(encoder(), folder, "QDQ", per_channel=False),
    "encoder QDQ extended": lambda folder: _extended(_static(encoder(), folder, "QDQ", per_channel=True), folder),
    "encoder QOperator": lambda folder: _static(encoder(), folder, "QOperator", per_channel=False),
    "network extended": lambda folder: _extended(network(), folder),
    "network dynamic": lambda folder: _dynamic(network(), folder),
    "network QDQ": lambda folder: _static(network(), folder, "QDQ", per_channel=True),
    "network QDQ extended": lambda folder: _extended(_static(network(), folder, "QDQ", per_channel=True), folder),
    "network QOperator": lambda folder: _static(network(), folder, "QOperator", per_channel=False),
}
"""Name -> a function that makes the model in an empty folder."""
