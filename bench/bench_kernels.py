"""Single operators on the CPU device beside onnxruntime: recurrent layers and quantised products and convolutions.

Same model, same input, same run, one thread. Weights are constants.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import hetero
from timing import repeated

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
RECURRENT = [("LSTM", hidden, steps) for hidden in (64, 128, 512) for steps in (1, 16, 100)]
RECURRENT += [(op, hidden, 16) for op in ("GRU", "RNN") for hidden in (64, 128, 512)]
PRODUCTS = [(128, 768, 768), (128, 768, 3072), (1, 768, 3072)]
CONVOLUTIONS = [(64, 64, 3, 56), (256, 256, 3, 14), (256, 64, 1, 56)]
Array = np.ndarray[Any, Any]


def model_of(
    op: str, inputs: dict[str, Array], x: str, output_type: int, **attributes: Any
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """One node of which ``x`` is the only input that is not constant."""
    graph = helper.make_graph(
        [helper.make_node(op, list(inputs), ["y"], **attributes)],
        op,
        [helper.make_tensor_value_info(x, helper.np_dtype_to_tensor_dtype(inputs[x].dtype), inputs[x].shape)],
        [helper.make_tensor_value_info("y", output_type, None)],
        [numpy_helper.from_array(array, name) for name, array in inputs.items() if name != x],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model, {x: inputs[x]}


def recurrent(op: str, hidden: int, steps: int) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Batch 1, as many features as hidden units."""
    rng = np.random.default_rng(0)
    width = GATES[op] * hidden

    def uniform(*shape: int) -> Array:
        return (rng.uniform(-1, 1, shape) / hidden**0.5).astype(np.float32)

    inputs = {
        "x": rng.standard_normal((steps, 1, hidden)).astype(np.float32),
        "w": uniform(1, width, hidden),
        "r": uniform(1, width, hidden),
        "b": uniform(1, 2 * width),
    }
    return model_of(op, inputs, "x", onnx.TensorProto.FLOAT, hidden_size=hidden)


def quantised(
    op: str, x: tuple[int, ...], w: tuple[int, ...], **attributes: Any
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """uint8 activations and int8 weights with a zero point of 0."""
    rng = np.random.default_rng(0)
    scale = np.array(0.02, np.float32)
    inputs = {
        "x": rng.integers(0, 256, x).astype(np.uint8),
        "x_scale": scale,
        "x_zero": np.array(120, np.uint8),
        "w": rng.integers(-127, 128, w).astype(np.int8),
        "w_scale": scale,
        "w_zero": np.array(0, np.int8),
        "y_scale": np.array(3, np.float32),
        "y_zero": np.array(110, np.uint8),
    }
    return model_of(op, inputs, "x", onnx.TensorProto.UINT8, **attributes)


def compare(
    benchmark: Any, group: str, device: str, model: onnx.ModelProto, inputs: dict[str, Array], calls: int
) -> None:
    benchmark.group = group
    benchmark.extra_info["label"] = device if calls == 1 else f"{device}, {calls} runs"
    if device == "onnxruntime":
        benchmark.extra_info["reference"] = True
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), sess_options=options, providers=["CPUExecutionProvider"]
        )
        work = lambda: session.run(None, inputs)  # noqa: E731
    else:
        core = hetero.Core()
        request = core.compile_model(core.read_model(model), "CPU", {"INFERENCE_NUM_THREADS": 1}).create_infer_request()
        work = lambda: request.infer(inputs)  # noqa: E731
    work()
    benchmark(repeated(work, calls))


@pytest.mark.parametrize("device", ["onnxruntime", "CPU"])
@pytest.mark.parametrize(("op", "hidden", "steps"), RECURRENT)
def bench_recurrent(benchmark: Any, op: str, hidden: int, steps: int, device: str) -> None:
    model, inputs = recurrent(op, hidden, steps)
    compare(
        benchmark, f"{op}, hidden {hidden}, {steps} steps", device, model, inputs, 1 if hidden * steps > 4096 else 50
    )


@pytest.mark.parametrize("device", ["onnxruntime", "CPU"])
@pytest.mark.parametrize(("m", "k", "n"), PRODUCTS)
def bench_quantised_product(benchmark: Any, m: int, k: int, n: int, device: str) -> None:
    model, inputs = quantised("QLinearMatMul", (m, k), (k, n))
    compare(benchmark, f"QLinearMatMul {m}x{k}x{n}", device, model, inputs, 1 if m > 1 else 20)


@pytest.mark.parametrize("device", ["onnxruntime", "CPU"])
@pytest.mark.parametrize(("channels", "maps", "kernel", "size"), CONVOLUTIONS)
def bench_quantised_convolution(benchmark: Any, channels: int, maps: int, kernel: int, size: int, device: str) -> None:
    weights, pads = (maps, channels, kernel, kernel), [kernel // 2] * 4
    model, inputs = quantised("QLinearConv", (1, channels, size, size), weights, pads=pads)
    compare(benchmark, f"QLinearConv {channels} to {maps}, {kernel}x{kernel} at {size}", device, model, inputs, 1)
