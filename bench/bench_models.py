"""Real models on hetero's devices beside onnxruntime: same model, same input, same number of threads, same run.

One thread by CPU time; two threads by the clock, which says something on two cores that have nothing else to do.
"""

from __future__ import annotations

import time
from typing import Any

import onnx
import onnxruntime
import pytest

import hetero
from real_models import MODELS, load


def onnxruntime_session(model: onnx.ModelProto | bytes, threads: int = 1) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    data = model if isinstance(model, bytes) else model.SerializeToString()
    return onnxruntime.InferenceSession(data, sess_options=options, providers=["CPUExecutionProvider"])


def hetero_request(model: onnx.ModelProto, device: str, threads: int) -> hetero.InferRequest:
    core = hetero.Core()
    core.set_property("CPU", {"INFERENCE_NUM_THREADS": threads})
    return core.compile_model(core.read_model(model), device).create_infer_request()


@pytest.mark.parametrize("device", ["onnxruntime", "CPU", "HETERO:FPGA,CPU"])
@pytest.mark.parametrize("case", MODELS)
def bench_infer(benchmark: Any, case: str, device: str) -> None:
    model, inputs = load(case)
    benchmark.group = f"infer {case}"
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
@pytest.mark.parametrize("case", MODELS)
def bench_infer_on_two_threads(benchmark: Any, case: str, device: str) -> None:
    model, inputs = load(case)
    benchmark.group = f"infer {case}, 2 threads, wall time"
    benchmark.extra_info["label"] = device
    if device == "onnxruntime":
        benchmark.extra_info["reference"] = True
        benchmark(onnxruntime_session(model, 2).run, None, inputs)
        return
    request = hetero_request(model, device, 2)
    request.infer(inputs)
    benchmark(request.infer, inputs)


@pytest.mark.parametrize("device", ["onnxruntime", "CPU"])
@pytest.mark.parametrize("case", MODELS)
def bench_compile_and_first_inference(benchmark: Any, case: str, device: str) -> None:
    model, inputs = load(case)
    benchmark.group = f"compile + first inference {case}"
    benchmark.extra_info["label"] = device
    if device == "onnxruntime":
        benchmark.extra_info["reference"] = True
        benchmark.pedantic(lambda: onnxruntime_session(model).run(None, inputs), rounds=3)
        return
    core = hetero.Core()
    core.set_property("CPU", {"INFERENCE_NUM_THREADS": 1})
    data = model.SerializeToString()
    benchmark.pedantic(lambda: core.compile_model(core.read_model(data), device)(inputs), rounds=3)
