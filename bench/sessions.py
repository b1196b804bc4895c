"""Models made ready to run, by onnxruntime and by hetero, with the same number of threads."""

from __future__ import annotations

from typing import Any

import onnx
import onnxruntime

import hetero


def onnxruntime_session(model: onnx.ModelProto | bytes | str, threads: int = 1) -> onnxruntime.InferenceSession:
    """``model``: also the path of a file."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    data = model.SerializeToString() if isinstance(model, onnx.ModelProto) else model
    return onnxruntime.InferenceSession(data, sess_options=options, providers=["CPUExecutionProvider"])


def hetero_request(model: onnx.ModelProto, device: str, threads: int = 1) -> hetero.InferRequest:
    core = hetero.Core()
    core.set_property("CPU", {"INFERENCE_NUM_THREADS": threads})
    return core.compile_model(core.read_model(model), device).create_infer_request()


def both(model: onnx.ModelProto, inputs: dict[str, Any], device: str = "CPU", threads: int = 1) -> dict[str, Any]:
    """A function for each of the two that runs the model once; each has run once already."""
    session, request = onnxruntime_session(model, threads), hetero_request(model, device, threads)
    works = {"onnxruntime": lambda: session.run(None, inputs), device: lambda: request.infer(inputs)}
    for work in works.values():
        work()
    return works
