"""What the CPU device makes one call of, and what a call costs, beside onnxruntime: same model, same input, same run,
one thread. Rows of 768 and 3072 numbers are those of BERT.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import hetero
from bench_models import hetero_request, onnxruntime_session
from timing import repeated

Array = np.ndarray[Any, Any]
ROWS = 128
WIDTHS = (768, 3072)
DEVICES = ("onnxruntime", "CPU")
NODE = helper.make_node


def normal(*shape: int, seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def model_of(nodes: list[onnx.NodeProto], inputs: dict[str, Array], weights: dict[str, Array]) -> onnx.ModelProto:
    """The last node's output is the model's."""
    graph = helper.make_graph(
        nodes,
        "fused",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name, x in inputs.items()],
        [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


Case = tuple[onnx.ModelProto, dict[str, Array]]


def bias_gelu(width: int) -> Case:
    inputs = {"x": normal(ROWS, width, seed=0)}
    return model_of(
        [NODE("Add", ["x", "b"], ["s"]), NODE("Gelu", ["s"], ["y"])], inputs, {"b": normal(width, seed=1)}
    ), inputs


def add_layer_norm(width: int) -> Case:
    inputs = {"x": normal(ROWS, width, seed=0), "z": normal(ROWS, width, seed=1)}
    nodes = [NODE("Add", ["x", "z"], ["s"]), NODE("LayerNormalization", ["s", "g", "b"], ["y"])]
    return model_of(nodes, inputs, {"g": normal(width, seed=2), "b": normal(width, seed=3)}), inputs


def softmax(width: int) -> Case:
    inputs = {"x": normal(ROWS, width, seed=0)}
    return model_of([NODE("Softmax", ["x"], ["y"])], inputs, {}), inputs


def ten_additions(width: int) -> Case:
    inputs = {"x": normal(ROWS, width, seed=0)}
    nodes = [NODE("Add", [f"v{i}" if i else "x", "c"], [f"v{i + 1}"]) for i in range(10)]
    return model_of(nodes, inputs, {"c": np.array(1, np.float32)}), inputs


def scaled_and_gated(width: int) -> Case:
    """Five operations, of which one result is read twice, with numbers per column."""
    inputs = {"x": normal(ROWS, width, seed=0)}
    nodes = [
        NODE("Mul", ["x", "g"], ["a"]),
        NODE("Add", ["a", "b"], ["c"]),
        NODE("Relu", ["c"], ["d"]),
        NODE("Mul", ["d", "x"], ["e"]),
        NODE("Sub", ["e", "a"], ["y"]),
    ]
    return model_of(nodes, inputs, {"g": normal(width, seed=2), "b": normal(width, seed=3)}), inputs


def compare(benchmark: Any, group: str, device: str, case: Case, calls: int = 1) -> None:
    model, inputs = case
    benchmark.group = group
    benchmark.extra_info["label"] = device if calls == 1 else f"{device}, {calls} runs"
    if device == "onnxruntime":
        benchmark.extra_info["reference"] = True
        session = onnxruntime_session(model)
        benchmark(repeated(lambda: session.run(None, inputs), calls))
        return
    request = hetero_request(model, device, 1)
    request.infer(inputs)
    benchmark(repeated(lambda: request.infer(inputs), calls))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("make", [bias_gelu, add_layer_norm, softmax, ten_additions, scaled_and_gated])
def bench_rows(benchmark: Any, make: Any, width: int, device: str) -> None:
    compare(benchmark, f"{make.__name__.replace('_', ' ')}, {ROWS} x {width}", device, make(width), 10)


def attention(length: int) -> Case:
    """Twelve heads of 64 columns over projections of 768, as BERT writes it."""
    inputs = {name: normal(1, length, 12, 64, seed=seed) for seed, name in enumerate("qkv")}
    nodes = [
        NODE("Transpose", ["q"], ["qt"], perm=[0, 2, 1, 3]),
        NODE("Transpose", ["k"], ["kt"], perm=[0, 2, 3, 1]),
        NODE("Transpose", ["v"], ["vt"], perm=[0, 2, 1, 3]),
        NODE("MatMul", ["qt", "kt"], ["product"]),
        NODE("Div", ["product", "root"], ["scaled"]),
        NODE("Add", ["scaled", "mask"], ["scores"]),
        NODE("Softmax", ["scores"], ["weights"]),
        NODE("MatMul", ["weights", "vt"], ["heads"]),
        NODE("Transpose", ["heads"], ["y"], perm=[0, 2, 1, 3]),
    ]
    mask = np.zeros((1, 1, 1, length), np.float32)
    return model_of(nodes, inputs, {"root": np.array(8, np.float32), "mask": mask}), inputs


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("length", [32, 128, 512])
def bench_attention(benchmark: Any, length: int, device: str) -> None:
    compare(benchmark, f"attention, 12 heads, {length} x 64", device, attention(length))


def tiny_chain(length: int) -> Case:
    inputs = {"x": np.ones(4, np.float32)}
    nodes = [NODE("Add" if i % 2 else "Mul", [f"v{i}" if i else "x", "c"], [f"v{i + 1}"]) for i in range(length)]
    return model_of(nodes, inputs, {"c": np.ones(4, np.float32)}), inputs


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("length", [1, 1000])
def bench_tiny_nodes(benchmark: Any, length: int, device: str) -> None:
    compare(benchmark, f"{length} nodes of 4 numbers", device, tiny_chain(length), 1000 // length * 10)


def bench_compile_many_nodes(benchmark: Any) -> None:
    """100,000 nodes of 4 numbers: read and compile."""
    data = tiny_chain(100_000)[0].SerializeToString()
    core = hetero.Core()
    benchmark.group = "compile 100,000 nodes of 4 numbers"
    benchmark.extra_info["label"] = "CPU"
    benchmark.pedantic(lambda: core.compile_model(core.read_model(data), "CPU"), rounds=3)
