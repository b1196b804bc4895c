"""What a second thread saves: each node's time on the CPU device with one thread and with two.

    python bench/threads.py                            # the models that are there
    python bench/threads.py det model.onnx             # cases with this word in their name, and a file
    python bench/threads.py --calls 20                 # more of the nodes that lose the most
    python bench/threads.py --whole models/*.onnx      # whole inferences only, beside onnxruntime

Both numbers of threads in interleaved rounds. Each node's time is its least over the rounds, and a model's time is the
sum, so a round that was disturbed matters only where all rounds were. `lost` is the time with two threads less half the
time with one: 0 if the second thread doubles the speed. Needs two cores that are idle at times.
A file's inputs are those of the .npz file beside it. Without one, its sizes must be fixed, and the inputs are random
numbers, and integers of 0 or 1.

``--whole`` measures each library in processes of its own. "Two processes" says what the machine allows: how many times
as many inferences it completes if two processes, which share the weights, each run the model on one thread. They divide
no work and wait for nothing, so what is missing from 2 is lost to memory, caches and the processor's clock. The two
processors of a virtual machine may at times be two threads of one core, where they complete 1.1 to 1.4 times as many.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx

import hetero
from alone import LIBRARIES, gains
from hetero.base.formatting import duration
from real_models import Inputs, available, load
from table import Table

ROUNDS = 100
CALLS = 10
REST = 4  # seconds of rest per second of real-time priority: what else runs on the machine goes on

modes = {"realtime": False}
Row = tuple[str, float, float]  # operator and output shapes; seconds with one thread, with two


@contextlib.contextmanager
def priority() -> Iterator[None]:
    """With ``--realtime``: runs at real-time priority, then rests. Threads started within keep the priority."""
    if not modes["realtime"]:
        yield
        return
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    begin = time.perf_counter()
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        time.sleep(REST * min(1.0, time.perf_counter() - begin))


def load_file(path: str) -> tuple[onnx.ModelProto, Inputs]:
    model = onnx.load(path)
    if (arrays := Path(path).with_suffix(".npz")).exists():
        with np.load(arrays, allow_pickle=False) as stored:
            return model, dict(stored)
    random = np.random.default_rng(0)
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs: Inputs = {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        shape = [dim.dim_value for dim in tensor.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if value.name not in constants:
            is_float = np.issubdtype(dtype, np.floating)
            numbers = random.standard_normal(shape) if is_float else random.integers(0, 2, shape)
            inputs[value.name] = numbers.astype(dtype)
    return model, inputs


def labels_of(model: onnx.ModelProto, inputs: Inputs) -> list[str]:
    """The operator and the shape of the first output of each node, without Constant nodes."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    for value in model.graph.input:
        if value.name in inputs:
            for dim, size in zip(value.type.tensor_type.shape.dim, inputs[value.name].shape, strict=True):
                dim.dim_value = size
    shapes: dict[str, str] = {}
    graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    for value in (*graph.value_info, *graph.output):
        dims = value.type.tensor_type.shape.dim
        shapes[value.name] = "x".join(str(dim.dim_value) if dim.dim_value else "?" for dim in dims)
    nodes = [node for node in graph.node if node.op_type != "Constant"]
    return [f"{node.op_type} {shapes.get(node.output[0], '')}" for node in nodes]


def timed_request(model: onnx.ModelProto, threads: int) -> hetero.InferRequest:
    core = hetero.Core()
    core.set_property("CPU", {"INFERENCE_NUM_THREADS": threads, "PERF_COUNT": True})
    with priority():
        return core.compile_model(core.read_model(model), "CPU").create_infer_request()


def calls_of(model: onnx.ModelProto, inputs: Inputs, rounds: int) -> list[Row]:
    """The nodes that ran, with their least times."""
    requests = [timed_request(model, threads) for threads in (1, 2)]
    least = [np.full(0, np.inf)] * 2
    for _ in range(rounds):
        for at, request in enumerate(requests):
            with priority():
                request.infer(inputs)
                request.infer(inputs)
            times = np.array([row.real_us / 1e6 for row in request.profiling_info])
            least[at] = np.minimum(times, least[at]) if least[at].size else times
    labels = labels_of(model, inputs)
    if len(labels) != least[0].size:
        labels = [row.layer_type for row in requests[0].profiling_info]
    return [(label, one, two) for label, one, two in zip(labels, *least, strict=True) if one > 0]


def whole(cases: Sequence[str], calls: int) -> Table:
    """Elapsed time of an inference, with one thread and with two."""
    table = Table("model", "onnxruntime, 1", "2", "gain", "CPU, 1", "2", "gain", "ratio, 1", "2", "two processes")
    ratios = []
    for case in cases:
        model, inputs = load_file(case) if case.endswith(".onnx") else load(case)
        times = gains(model, inputs, calls)
        seconds = [times[f"{library} {threads}"] for library in LIBRARIES for threads in (1, 2)]
        peer, own, most = seconds[0] / seconds[1], seconds[2] / seconds[3], 2 * seconds[2] / times["twice"]
        ratios.append((peer, own, seconds[2] / seconds[0], seconds[3] / seconds[1], most))
        peer_one, peer_two, one, two = map(duration, seconds)
        numbers = [f"{value:.2f}" for value in ratios[-1]]
        table.add(Path(case).stem, peer_one, peer_two, numbers[0], one, two, *numbers[1:])
    if ratios:
        means = [f"{value:.2f}" for value in np.exp(np.log(ratios).mean(0))]
        table.add("geometric mean", "", "", means[0], "", "", *means[1:])
    return table


def by_node(cases: Sequence[str], rounds: int, calls: int) -> Table:
    table = Table("model", "one thread", "two", "gain", "lost")
    for case in cases:
        model, inputs = load_file(case) if case.endswith(".onnx") else load(case)
        rows = calls_of(model, inputs, rounds)
        for name, one, two in [
            (Path(case).name, sum(row[1] for row in rows), sum(row[2] for row in rows)),
            *sorted(rows, key=lambda row: row[1] / 2 - row[2])[:calls],
        ]:
            table.add(name, duration(one), duration(two), f"{one / two:.2f}", duration(two - one / 2))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help="words in the name of a model, and files; default: all models")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--calls", type=int, default=CALLS, help="nodes that are listed; with --whole, calls per round")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--realtime", action="store_true", help="at real-time priority, in short bursts (as root)")
    arguments = parser.parse_args()
    modes["realtime"] = arguments.realtime
    files = [case for case in arguments.cases if case.endswith(".onnx")]
    words = [case for case in arguments.cases if case not in files]
    cases = [*(available(words) if words or not files else []), *files]
    table = whole(cases, arguments.calls) if arguments.whole else by_node(cases, arguments.rounds, arguments.calls)
    table.print()


if __name__ == "__main__":
    main()
