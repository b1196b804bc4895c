"""Models made ready to run, by onnxruntime and by hetero, with the same number of threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime

import hetero


def onnxruntime_session(
    model: onnx.ModelProto | bytes | str, threads: int = 1, optimized: bool = True
) -> onnxruntime.InferenceSession:
    """``model``: also the path of a file. ``optimized``: onnxruntime may rewrite the graph."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
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


def unoptimized_results(model: onnx.ModelProto, inputs: dict[str, Any]) -> list[Any]:
    """onnxruntime's results without optimizations of the graph."""
    return onnxruntime_session(model, optimized=False).run(None, inputs)


def largest_difference(found: Sequence[Any], expected: Sequence[Any]) -> float:
    """The largest difference of a result relative to its largest expected value. Infinity if results that are not
    floats, shapes, or the places of NaN and infinities differ. Sequences of maps compare as the arrays of their keys
    and values."""
    pairs = zip(map(_arrays, found), map(_arrays, expected), strict=True)
    return max((_difference(a, b) for one, other in pairs for a, b in zip(one, other, strict=True)), default=0.0)


def _arrays(value: Any) -> list[np.ndarray]:
    maps = [value] if isinstance(value, dict) else value
    if isinstance(maps, list) and all(isinstance(each, dict) for each in maps):
        return [np.array([list(each) for each in maps]), np.array([list(each.values()) for each in maps])]
    return [np.asarray(each) for each in value] if isinstance(value, list) else [np.asarray(value)]


def _difference(found: np.ndarray, expected: np.ndarray) -> float:
    if found.shape != expected.shape or found.dtype.kind != expected.dtype.kind:
        return np.inf
    if expected.dtype.kind != "f":
        return 0.0 if np.array_equal(found, expected) else np.inf
    finite = np.isfinite(expected)
    if not np.array_equal(found[~finite], expected[~finite], equal_nan=True) or not np.isfinite(found[finite]).all():
        return np.inf
    if not finite.any():
        return 0.0
    a, b = found[finite].astype(np.float64), expected[finite].astype(np.float64)
    return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30))
