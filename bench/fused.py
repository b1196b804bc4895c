"""Nodes that the CPU device fuses into one call, and the cost of a call, beside onnxruntime.

    python bench/fused.py
    python bench/fused.py softmax attention      # rows with one of these words in their name

Same model, same input, one thread, median CPU time of interleaved rounds. Rows of 768 and 3072 numbers are BERT's.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import hetero
from hetero.base.formatting import duration
from sessions import both
from table import Table
from timing import calls_within, medians, repeated

Array = np.ndarray[Any, Any]
ROWS = 128
WIDTHS = (768, 3072)
NODES = 100_000
ROUNDS = 101
CALL_SECONDS = 0.005  # of onnxruntime, in one reading of the clock
ROW_SECONDS = 3.0
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
    """Five operations with numbers per column. One of the results is read twice."""
    inputs = {"x": normal(ROWS, width, seed=0)}
    nodes = [
        NODE("Mul", ["x", "g"], ["a"]),
        NODE("Add", ["a", "b"], ["c"]),
        NODE("Relu", ["c"], ["d"]),
        NODE("Mul", ["d", "x"], ["e"]),
        NODE("Sub", ["e", "a"], ["y"]),
    ]
    return model_of(nodes, inputs, {"g": normal(width, seed=2), "b": normal(width, seed=3)}), inputs


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


INVERTED = ((16, 96, 112, 2), (32, 192, 112, 2), (64, 128, 112, 1), (128, 768, 80, 1))


def inverted(channels: int, maps: int, size: int, stride: int) -> Case:
    """A 1x1 convolution to ``maps`` channels, Relu, and a depthwise convolution of 3x3."""
    inputs = {"x": normal(1, channels, size, size, seed=0)}
    nodes = [
        NODE("Conv", ["x", "w"], ["wide"]),
        NODE("Relu", ["wide"], ["active"]),
        NODE("Conv", ["active", "v"], ["y"], group=maps, pads=[1] * 4, strides=[stride] * 2),
    ]
    return model_of(
        nodes, inputs, {"w": normal(maps, channels, 1, 1, seed=1), "v": normal(maps, 1, 3, 3, seed=2)}
    ), inputs


def tiny_chain(length: int) -> Case:
    inputs = {"x": np.ones(4, np.float32)}
    nodes = [NODE("Add" if i % 2 else "Mul", [f"v{i}" if i else "x", "c"], [f"v{i + 1}"]) for i in range(length)]
    return model_of(nodes, inputs, {"c": np.ones(4, np.float32)}), inputs


def cases() -> Iterator[tuple[str, Case]]:
    for make in (bias_gelu, add_layer_norm, softmax, ten_additions, scaled_and_gated):
        for width in WIDTHS:
            yield f"{make.__name__.replace('_', ' ')}, {ROWS} x {width}", make(width)
    for length in (32, 128, 512):
        yield f"attention, 12 heads, {length} x 64", attention(length)
    for channels, maps, size, stride in INVERTED:
        name = f"1x1 and depthwise convolution, {channels} to {maps} at {size}x{size}, stride {stride}"
        yield name, inverted(channels, maps, size, stride)
    yield "one node of 4 numbers", tiny_chain(1)
    yield "1,000 nodes of 4 numbers", tiny_chain(1000)


def compile_many_nodes(count: int) -> float:
    """CPU seconds to read and compile so many nodes of 4 numbers, in one thread."""
    data = tiny_chain(count)[0].SerializeToString()
    core = hetero.Core()
    return medians({"": lambda: core.compile_model(core.read_model(data), "CPU")}, rounds=3)[""]


def fused(words: Sequence[str] = (), rounds: int = ROUNDS, nodes: int = NODES) -> Table:
    def chosen(name: str) -> bool:
        return not words or any(word in name for word in words)

    table = Table("", "onnxruntime", "CPU", "ratio")
    for name, case in cases():
        if chosen(name):
            works = both(*case)
            calls = calls_within(works["onnxruntime"], CALL_SECONDS)
            times = medians({device: repeated(work, calls) for device, work in works.items()}, rounds, ROW_SECONDS)
            reference, own = times["onnxruntime"], times["CPU"]
            table.add(name, duration(reference / calls), duration(own / calls), f"{own / reference:.2f}")
    name = f"compile {nodes:,} nodes of 4 numbers"
    if chosen(name):
        table.add(name, "", duration(compile_many_nodes(nodes)), "")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="in the name of a row; default: all rows")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--nodes", type=int, default=NODES, help="to compile")
    arguments = parser.parse_args()
    fused(arguments.words, arguments.rounds, arguments.nodes).print()


if __name__ == "__main__":
    main()
