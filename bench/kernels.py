"""Single operators on the CPU device beside onnxruntime and NumPy: one model of a node for every family of kernels,
recurrent layers, and quantized products and convolutions.

    OPENBLAS_NUM_THREADS=1 python bench/kernels.py
    OPENBLAS_NUM_THREADS=1 python bench/kernels.py softmax LSTM     # rows with one of these words in their name

Same model, same input, one thread, median CPU time of interleaved rounds. Weights are constants. The first column is
onnxruntime's time of a run; the others are ratios to it.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import hetero
from hetero.base.formatting import duration
from sessions import onnxruntime_session
from table import Table
from timing import calls_within, medians, repeated

ROUNDS = 101
CALL_SECONDS = 0.0005  # of onnxruntime, in one reading of the clock
ROW_SECONDS = 1.0

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
RECURRENT = [("LSTM", hidden, steps) for hidden in (64, 128, 512) for steps in (1, 16, 100)]
RECURRENT += [(op, hidden, 16) for op in ("GRU", "RNN") for hidden in (64, 128, 512)]
PRODUCTS = [(128, 768, 768), (128, 768, 3072), (256, 768, 768), (3136, 64, 256), (16, 384, 384), (1, 768, 3072)]
CONVOLUTIONS: list[tuple[int, int, int, int, dict[str, Any]]] = [
    (64, 64, 3, 56, {}),
    (256, 256, 3, 14, {}),
    (512, 512, 3, 7, {}),
    (256, 64, 1, 56, {}),
    (64, 256, 1, 56, {}),
    (3, 32, 3, 224, {}),
    (64, 128, 3, 56, {"strides": [2, 2]}),
    (64, 64, 3, 56, {"group": 64}),
    (72, 72, 5, 56, {"group": 72, "strides": [2, 2]}),
    (512, 512, 3, 14, {"group": 512}),
    (960, 960, 5, 7, {"group": 960}),
]
Array = np.ndarray[Any, Any]


def model_of(op: str, inputs: dict[str, Array], constants: tuple[str, ...], **attributes: Any) -> onnx.ModelProto:
    """One node, of as many outputs as its schema asks for."""
    outputs = [f"y{i}" for i in range(max(1, onnx.defs.get_schema(op, 21).min_output))]
    sizes = attributes.pop("num_outputs", None)
    if op == "Split":
        outputs = [f"y{i}" for i in range(sizes)]
        attributes["num_outputs"] = sizes
    graph = helper.make_graph(
        [helper.make_node(op, list(inputs), outputs, **attributes)],
        op,
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in inputs.items()
            if name not in constants
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(inputs[name], name) for name in constants],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model)


def recurrent(op: str, hidden: int, steps: int) -> dict[str, Array]:
    """Batch 1, as many features as hidden units."""
    rng = np.random.default_rng(0)
    width = GATES[op] * hidden

    def uniform(*shape: int) -> Array:
        return (rng.uniform(-1, 1, shape) / hidden**0.5).astype(np.float32)

    return {
        "x": rng.standard_normal((steps, 1, hidden)).astype(np.float32),
        "w": uniform(1, width, hidden),
        "r": uniform(1, width, hidden),
        "b": uniform(1, 2 * width),
    }


def quantized(x: tuple[int, ...], w: tuple[int, ...]) -> dict[str, Array]:
    """uint8 activations and int8 weights with a zero point of 0."""
    rng = np.random.default_rng(0)
    scale = np.array(0.02, np.float32)
    return {
        "x": rng.integers(0, 256, x).astype(np.uint8),
        "x_scale": scale,
        "x_zero": np.array(120, np.uint8),
        "w": rng.integers(-127, 128, w).astype(np.int8),
        "w_scale": scale,
        "w_zero": np.array(0, np.int8),
        "y_scale": np.array(3, np.float32),
        "y_zero": np.array(110, np.uint8),
    }


def normal(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def below(limit: int, *shape: int) -> Array:
    return np.random.default_rng(limit).integers(0, limit, shape)


X, ROW, COLUMN = normal(128, 3072), normal(3072), normal(128, 1)
IMAGE, HEADS = normal(1, 64, 56, 56), normal(1, 128, 12, 64)
ONE = np.array([1], np.int64)
UNSIGNED = np.abs(X)
BOXES = np.concatenate([corner := np.abs(normal(1, 5000, 2)), corner + np.float32(0.1)], axis=2)

# name -> (operator, what varies, constants, attributes, the same with NumPy on what varies, if it has that)
Entry = tuple[str, list[Array], list[Array], dict[str, Any], Callable[..., Any] | None]
FAMILIES: dict[str, Entry] = {
    "product 128x768x768": ("MatMul", [normal(128, 768)], [W := normal(768, 768)], {}, lambda x: x @ W),
    "product 1x768x3072": ("MatMul", [normal(1, 768)], [V := normal(768, 3072)], {}, lambda x: x @ V),
    "product 64x768x768": ("MatMul", [normal(64, 768)], [W], {}, lambda x: x @ W),
    "product 1024x1024x1024": ("MatMul", [normal(1024, 1024)], [U := normal(1024, 1024)], {}, lambda x: x @ U),
    "products 12 of 128x64x128": ("MatMul", [normal(12, 128, 64), normal(12, 64, 128)], [], {}, np.matmul),
    "product of int32 64x64x64": ("MatMul", [below(9, 64, 64).astype(np.int32)] * 2, [], {}, np.matmul),
    "convolution 3x3, 64 to 64 at 56": ("Conv", [IMAGE], [normal(64, 64, 3, 3)], {"pads": [1] * 4}, None),
    "convolution 1x1, 64 to 256 at 56": ("Conv", [IMAGE], [normal(256, 64, 1, 1)], {}, None),
    "convolution 1x1, 512 to 256 at 28": ("Conv", [normal(1, 512, 28, 28)], [normal(256, 512, 1, 1)], {}, None),
    "convolution 7x7 by 2, 3 to 64 at 224": (
        "Conv", [normal(1, 3, 224, 224)], [normal(64, 3, 7, 7)], {"pads": [3] * 4, "strides": [2, 2]}, None,
    ),
    "depthwise 3x3, 64 at 56": ("Conv", [IMAGE], [normal(64, 1, 3, 3)], {"pads": [1] * 4, "group": 64}, None),
    "transposed 2x2 by 2, 64 at 56": ("ConvTranspose", [IMAGE], [normal(64, 32, 2, 2)], {"strides": [2, 2]}, None),
    "transposed 4x4, 100 to 256 at 1": ("ConvTranspose", [normal(1, 100, 1, 1)], [normal(100, 256, 4, 4)], {}, None),
    "transposed 4x4 by 2, 256 to 128 at 4": (
        "ConvTranspose", [normal(1, 256, 4, 4)], [normal(256, 128, 4, 4)], {"strides": [2, 2], "pads": [1] * 4}, None,
    ),
    "transposed 4x4 by 2, 128 to 64 at 8": (
        "ConvTranspose", [normal(1, 128, 8, 8)], [normal(128, 64, 4, 4)], {"strides": [2, 2], "pads": [1] * 4}, None,
    ),
    "suppression of 5,000 boxes": (
        "NonMaxSuppression", [BOXES, np.abs(normal(1, 1, 5000))], [ONE * 5000, ONE.astype(np.float32) / 2], {}, None,
    ),
    "max pool 3x3 by 2": ("MaxPool", [IMAGE], [], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}, None),
    "max pool 3x3 by 2, 128 at 55": (
        "MaxPool", [normal(1, 128, 55, 55)], [], {"kernel_shape": [3, 3], "strides": [2, 2]}, None,
    ),
    "max pool of four columns": (
        "MaxPool", [normal(1, 64, 496, 64)], [], {"kernel_shape": [1, 4], "strides": [1, 4]}, None,
    ),
    "average pool 3x3": ("AveragePool", [IMAGE], [], {"kernel_shape": [3, 3], "pads": [1] * 4}, None),
    "average pool 2x2 by 2, 512 at 14": (
        "AveragePool", [normal(1, 512, 14, 14)], [], {"kernel_shape": [2, 2], "strides": [2, 2]}, None,
    ),
    "max pool 3x3, 256 at 7": ("MaxPool", [normal(1, 256, 7, 7)], [], {"kernel_shape": [3, 3], "pads": [1] * 4}, None),
    "pool of whole planes": ("GlobalAveragePool", [IMAGE], [], {}, lambda x: x.mean((2, 3))),
    "softmax": ("Softmax", [X], [], {"axis": -1}, None),
    "layer normalization": ("LayerNormalization", [X], [ROW, ROW], {}, None),
    "instance normalization": ("InstanceNormalization", [IMAGE], [normal(64)] * 2, {}, None),
    "batch normalization": ("BatchNormalization", [IMAGE], [*[normal(64)] * 3, np.ones(64, np.float32)], {}, None),
    "local response": ("LRN", [IMAGE], [], {"size": 5}, None),
    "sum of rows": ("ReduceSum", [X], [ONE], {"keepdims": 0}, lambda x: x.sum(1)),
    "sum of columns": ("ReduceSum", [X], [ONE * 0], {"keepdims": 0}, lambda x: x.sum(0)),
    "maximum of rows": ("ReduceMax", [X], [ONE], {"keepdims": 0}, lambda x: x.max(1)),
    "place of the maximum": ("ArgMax", [X], [], {"axis": 1}, lambda x: x.argmax(1)),
    "place of the maximum of columns": ("ArgMax", [X], [], {"axis": 0}, lambda x: x.argmax(0)),
    "relu": ("Relu", [X], [], {}, lambda x: np.maximum(x, 0)),
    "exp": ("Exp", [X], [], {}, np.exp),
    "tanh": ("Tanh", [X], [], {}, np.tanh),
    "sigmoid": ("Sigmoid", [X], [], {}, None),
    "erf": ("Erf", [X], [], {}, None),
    "gelu": ("Gelu", [X], [], {}, None),
    "square root": ("Sqrt", [UNSIGNED], [], {}, np.sqrt),
    "logarithm": ("Log", [UNSIGNED], [], {}, np.log),
    "clip": ("Clip", [X], [np.array(-1, np.float32), np.array(1, np.float32)], {}, lambda x: x.clip(-1, 1)),
    "addition": ("Add", [X, X], [], {}, np.add),
    "addition of a row": ("Add", [X], [ROW], {}, lambda x: x + ROW),
    "addition of a column": ("Add", [X], [COLUMN], {}, lambda x: x + COLUMN),
    "quotient": ("Div", [X, UNSIGNED], [], {}, np.divide),
    "power": ("Pow", [UNSIGNED], [np.array(1.7, np.float32)], {}, lambda x: x ** np.float32(1.7)),
    "comparison": ("Less", [X, UNSIGNED], [], {}, np.less),
    "int64 sum": ("Add", [below(9, 128, 3072), below(7, 128, 3072)], [], {}, np.add),
    "choice": ("Where", [X > 0, X, UNSIGNED], [], {}, np.where),
    "float32 to int64": ("Cast", [X], [], {"to": 7}, lambda x: x.astype(np.int64)),
    "float32 to float16": ("Cast", [X], [], {"to": 10}, lambda x: x.astype(np.float16)),
    "gathered rows": ("Gather", [below(5000, 128)], [], {"axis": 0}, None),
    "gathered elements": (
        "GatherElements", [X, below(128, 128, 3072)], [], {"axis": 0}, lambda x, i: np.take_along_axis(x, i, 0),
    ),
    "scattered rows": ("ScatterND", [X, below(128, 64, 1), normal(64, 3072)], [], {"reduction": "add"}, None),
    "scattered elements": ("ScatterElements", [X, below(128, 128, 3072), X], [], {"axis": 0}, None),
    "transpose of a matrix": ("Transpose", [X], [], {"perm": [1, 0]}, lambda x: x.T.copy()),
    "transpose of heads": ("Transpose", [HEADS], [], {"perm": [0, 2, 1, 3]}, lambda x: x.swapaxes(1, 2).copy()),
    "transpose to channels last": (
        "Transpose", [IMAGE], [], {"perm": [0, 2, 3, 1]}, lambda x: x.transpose(0, 2, 3, 1).copy(),
    ),
    "transpose of colors to the front": (
        "Transpose", [normal(1, 224, 224, 3)], [], {"perm": [0, 3, 1, 2]}, lambda x: x.transpose(0, 3, 1, 2).copy(),
    ),
    "transpose of all axes": ("Transpose", [normal(8, 16, 32, 64)], [], {"perm": [3, 2, 1, 0]}, lambda x: x.T.copy()),
    "transpose of bytes": ("Transpose", [X.astype(np.uint8)], [], {"perm": [1, 0]}, lambda x: x.T.copy()),
    "slice by 2": ("Slice", [X], [ONE * 0, ONE * 3072, ONE, ONE * 2], {}, lambda x: x[:, ::2].copy()),
    "concatenation": ("Concat", [X, X], [], {"axis": 1}, lambda x, y: np.concatenate([x, y], 1)),
    "split": ("Split", [X], [], {"axis": 1, "num_outputs": 3}, lambda x: [part.copy() for part in np.split(x, 3, 1)]),
    "padding": (
        "Pad", [IMAGE], [np.array([0, 0, 1, 1] * 2)], {}, lambda x: np.pad(x, [(0, 0)] * 2 + [(1, 1)] * 2),
    ),
    "tiles": ("Tile", [normal(128, 96)], [np.array([1, 32])], {}, lambda x: np.tile(x, (1, 32))),
    "expansion": ("Expand", [COLUMN], [np.array([128, 3072])], {}, lambda x: np.broadcast_to(x, (128, 3072)).copy()),
    "top 10": ("TopK", [X], [ONE * 10], {}, None),
    "top 100": ("TopK", [X], [ONE * 100], {}, None),
    "top 10 of columns": ("TopK", [X], [ONE * 10], {"axis": 0}, None),
    "top 2 of 64": ("TopK", [normal(1000, 64)], [ONE * 2], {}, None),
    "running sum": ("CumSum", [X], [np.array(1)], {}, lambda x: x.cumsum(1)),
    "nonzero": ("NonZero", [X.clip(0)], [], {}, np.nonzero),
    "resize to 112, nearest": (
        "Resize", [IMAGE], [EMPTY := np.zeros(0, np.float32), np.array([1, 1, 2, 2], np.float32)],
        {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}, None,
    ),
    "resize of bytes to 112, nearest": (
        "Resize", [below(256, 1, 64, 56, 56).astype(np.uint8)], [EMPTY, np.array([1, 1, 2, 2], np.float32)],
        {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}, None,
    ),
    "resize to 112, linear": ("Resize", [IMAGE], [EMPTY, np.array([1, 1, 2, 2], np.float32)], {"mode": "linear"}, None),
    "Fourier transforms 100 of 400": ("DFT", [normal(100, 400, 1)], [], {}, lambda x: np.fft.fft(x[..., 0])),
    "Fourier transforms 100 of 512": ("DFT", [normal(100, 512, 1)], [], {}, lambda x: np.fft.fft(x[..., 0])),
    "Fourier transforms 10 of 2003": ("DFT", [normal(10, 2003, 1)], [], {}, lambda x: np.fft.fft(x[..., 0])),
    "to bytes": ("QuantizeLinear", [X], [np.array(0.02, np.float32), np.array(3, np.uint8)], {}, None),
    "from bytes": (
        "DequantizeLinear", [below(256, 128, 3072).astype(np.uint8)],
        [np.array(0.02, np.float32), np.array(3, np.uint8)], {},
        lambda x: (x.astype(np.float32) - 3) * np.float32(0.02),
    ),
    "to bytes of their own range": ("DynamicQuantizeLinear", [X], [], {}, None),
}  # fmt: skip


def works_of(op: str, inputs: dict[str, Array], constants: tuple[str, ...], **attributes: Any) -> dict[str, Callable]:
    """A function for each device that makes one run of the node."""
    model = model_of(op, inputs, constants, **attributes)
    feeds = {name: array for name, array in inputs.items() if name not in constants}
    session = onnxruntime_session(model)
    core = hetero.Core()
    request = core.compile_model(core.read_model(model), "CPU", {"INFERENCE_NUM_THREADS": 1}).create_infer_request()
    return {"onnxruntime": lambda: session.run(None, feeds), "CPU": lambda: request.infer(feeds)}


def family(name: str) -> dict[str, Callable[[], Any]]:
    op, varying, constants, attributes, with_numpy = FAMILIES[name]
    if name == "gathered rows":
        varying, with_numpy = [normal(5000, 768), *varying], lambda x, i: x[i]
    inputs = {f"x{i}": array for i, array in enumerate([*varying, *constants])}
    works = works_of(op, inputs, tuple(inputs)[len(varying) :], **attributes)
    if with_numpy is not None:
        works["NumPy"] = lambda: with_numpy(*varying)
    return works


def quantized_node(op: str, inputs: dict[str, Array], **attributes: Any) -> dict[str, Callable[[], Any]]:
    return works_of(op, inputs, tuple(inputs)[1:], **attributes)


def cases() -> Iterator[tuple[str, Callable[[], dict[str, Callable[[], Any]]]]]:
    """Name of a row, and what makes its works."""
    for name in FAMILIES:
        yield name, functools.partial(family, name)
    for op, hidden, steps in RECURRENT:
        inputs = recurrent(op, hidden, steps)
        yield (
            f"{op}, hidden {hidden}, {steps} {'step' if steps == 1 else 'steps'}",
            functools.partial(works_of, op, inputs, ("w", "r", "b"), hidden_size=hidden),
        )
    for m, k, n in PRODUCTS:
        inputs = quantized((m, k), (k, n))
        yield f"QLinearMatMul {m}x{k}x{n}", functools.partial(quantized_node, "QLinearMatMul", inputs)
        sums = {name: inputs[name] for name in ("x", "w", "x_zero", "w_zero")}
        yield f"MatMulInteger {m}x{k}x{n}", functools.partial(quantized_node, "MatMulInteger", sums)
    for channels, maps, kernel, size, attributes in CONVOLUTIONS:
        name = f"QLinearConv {channels} to {maps}, {kernel}x{kernel} at {size}"
        name += "".join(f", {attribute} {np.max(value)}" for attribute, value in attributes.items())
        shape = (maps, channels // attributes.get("group", 1), kernel, kernel)
        inputs = quantized((1, channels, size, size), shape)
        pads = [kernel // 2] * 4
        yield name, functools.partial(quantized_node, "QLinearConv", inputs, pads=pads, **attributes)


def kernels(words: Sequence[str] = (), rounds: int = ROUNDS) -> Table:
    table = Table("", "onnxruntime", "CPU", "NumPy")
    for name, make in cases():
        if words and not any(word in name for word in words):
            continue
        works = make()
        calls = calls_within(works["onnxruntime"], CALL_SECONDS)
        times = medians({device: repeated(work, calls) for device, work in works.items()}, rounds, ROW_SECONDS)
        reference = times["onnxruntime"]
        ratios = [f"{times[device] / reference:.2f}" if device in times else "" for device in ("CPU", "NumPy")]
        table.add(name, duration(reference / calls), *ratios)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="in the name of a row; default: all rows")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    kernels(arguments.words, arguments.rounds).print()


if __name__ == "__main__":
    main()
