"""Cost of boundaries between subgraphs whose devices share a memory.

    python bench/residency.py

CPU time on one thread, medians of interleaved rounds.

- *a boundary*: a chain of Relu nodes on a few numbers, cut after each node, by subgraphs in one memory. The time per
  subgraph, beside calls of the same runners in a plain loop.
- *MiniLM in 20 subgraphs*: `HETERO:ORT`, with all subgraphs on one device, beside one session of onnxruntime with an
  I/O binding for the whole model, and beside the same 20 parts as plain sessions: with all values bound once, which is
  the bound for any runtime that calls sessions, and exchanging arrays. A timed run is three calls. Each contender is
  made several times, because the addresses of the weights alone change a session's time by up to 10 %.

Nothing here needs a GPU: the memory is a NumPy array that only the device may read, or the host's.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

import hetero
from hetero.base.formatting import duration
from hetero.compiling.hetero_model import schedule_of
from hetero.plugin.executor import DeviceExecutors
from hetero.runtime.schedule import ScheduleRunner
from real_models import load
from table import Table
from timing import medians, repeated

sys.path.append(str(Path(__file__).parents[1] / "tests" / "helpers"))
from island import IslandPlugin, Sea
from model_zoo import make_model

CALLS = 200


class Plain:
    """A runner that returns its input: what remains is the schedule's own time."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def run(self, inputs: Sequence[Any]) -> Sequence[Any]:
        return inputs


def scheduled(plugin: hetero.Plugin, model: hetero.Model, parts: int) -> ScheduleRunner:
    """The runner of a model in ``parts`` subgraphs of one plugin."""
    nodes = np.array_split(np.arange(model.num_nodes, dtype=np.int32), parts)
    models = model.extract_all(nodes, [f"part{at}" for at in range(parts)])
    compiled = [plugin.compile_model(part, {}) for part in models]
    return ScheduleRunner(
        schedule_of(model, list(zip(models, compiled, strict=True)), DeviceExecutors(plugin.executors))
    )


def boundary(parts: int = 20) -> Table:
    names = ["x", *(f"v{at}" for at in range(parts - 1)), "y"]
    nodes = [onnx.helper.make_node("Relu", [names[at]], [names[at + 1]], name=f"n{at}") for at in range(parts)]
    model = hetero.Core().read_model(make_model(nodes))
    sea = Sea()
    runner = scheduled(IslandPlugin(sea), model, parts)
    x = np.ones((2, 3), np.float32)
    runner.run([x])
    crossed = len(sea.uploaded) + len(sea.downloaded)
    steps = list(runner._runners)
    kept = sea.upload(x)

    def loop() -> None:
        values = [kept]
        for step in steps:
            values = step.run(values)

    tasks = runner._tasks
    empty = [Plain(step).run for step in steps]
    of_step = iter(empty)
    runner._tasks = [
        (at, run if at in runner._movers else next(of_step), reads, fills, free)
        for at, run, reads, fills, free in tasks
    ]
    bare = medians({"schedule": repeated(lambda: runner.run([kept]), CALLS)}, 101, 5.0)["schedule"] / CALLS
    runner._tasks = tasks
    works = {
        "loop": repeated(loop, CALLS),
        "schedule": repeated(lambda: runner.run([kept]), CALLS),
    }
    times = medians(works, 51, 10.0)
    table = Table(f"{parts} subgraphs in one memory", "per subgraph")
    table.add("the device's runners in a plain loop", duration(times["loop"] / CALLS / parts))
    table.add(
        "more in a schedule, with the copy of the result", duration((times["schedule"] - times["loop"]) / CALLS / parts)
    )
    table.add("the schedule alone", duration(bare / parts))
    table.add("copies per inference", str(crossed))
    return table


def session_of(encoded: bytes, optimized: bool) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(encoded, options, providers=["CPUExecutionProvider"])


def bound(session: Any, inputs: dict[str, Any]) -> Callable[[], Any]:
    binding = session.io_binding()
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in inputs.items()}

    def run() -> Any:
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        for port in session.get_outputs():
            binding.bind_output(port.name)
        session.run_with_iobinding(binding)
        return binding.get_outputs()

    return run


def bound_in_turn(sessions: Sequence[Any], inputs: dict[str, Any]) -> Callable[[], Any]:
    """Sessions whose inputs and results stay bound between runs: the least that calls of sessions can cost."""
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in inputs.items()}
    bindings = []
    for session in sessions:
        binding = session.io_binding()
        for port in session.get_inputs():
            binding.bind_ortvalue_input(port.name, values[port.name])
        for port in session.get_outputs():
            binding.bind_output(port.name)
        session.run_with_iobinding(binding)
        for port, value in zip(session.get_outputs(), binding.get_outputs(), strict=True):
            values[port.name] = value
            binding.bind_ortvalue_output(port.name, value)
        bindings.append((session._sess, binding._iobinding))

    def run() -> Any:
        for session, binding in bindings:
            session.run_with_iobinding(binding, None)
        return values

    return run


def in_turn(sessions: Sequence[Any], inputs: dict[str, Any]) -> Callable[[], Any]:
    ports = [
        ([port.name for port in each.get_inputs()], [port.name for port in each.get_outputs()]) for each in sessions
    ]

    def run() -> Any:
        values = dict(inputs)
        for session, (reads, fills) in zip(sessions, ports, strict=True):
            values.update(zip(fills, session.run(fills, {name: values[name] for name in reads}), strict=True))
        return values

    return run


def minilm(case: str, parts: int, optimized: bool, seconds: float, instances: int = 3) -> Table:
    """Fusions end at cuts. Without them (``optimized`` False), the difference is the boundaries alone."""
    proto, inputs = load(case)
    core = hetero.Core()
    core.set_property("ORT", {"INFERENCE_NUM_THREADS": 1, "DISABLE_TRANSFORMATIONS": not optimized})
    model = core.read_model(proto)
    plugin = core._registry.plugin("ORT")
    arrays = [inputs[port.name] for port in model.inputs]
    nodes = np.array_split(np.arange(model.num_nodes, dtype=np.int32), parts)
    models = [part.to_bytes() for part in model.extract_all(nodes, [f"part{at}" for at in range(parts)])]
    encoded = proto.SerializeToString()
    makers: dict[str, Callable[[], Callable[[], Any]]] = {
        "onnxruntime, one session, I/O binding": lambda: bound(session_of(encoded, optimized), inputs),
        "HETERO:ORT, 1 subgraph": lambda: partial(scheduled(plugin, model, 1).run, arrays),
        f"HETERO:ORT, {parts} subgraphs": lambda: partial(scheduled(plugin, model, parts).run, arrays),
        f"onnxruntime, {parts} sessions, all values bound once": lambda: bound_in_turn(
            [session_of(each, optimized) for each in models], inputs
        ),
        f"onnxruntime, {parts} sessions that exchange arrays": lambda: in_turn(
            [session_of(each, optimized) for each in models], inputs
        ),
    }
    works = {(name, number): make() for number in range(instances) for name, make in makers.items()}
    expected = session_of(encoded, optimized).run(None, inputs)
    for result, value in zip(works[f"HETERO:ORT, {parts} subgraphs", 0](), expected, strict=True):
        np.testing.assert_allclose(result, value, 1e-3, 1e-4)
    times = medians({str(key): repeated(work, 3) for key, work in works.items()}, 2001, seconds)
    table = Table(f"{case}, {'optimized' if optimized else 'as exported'}", "one inference", "more than one session")
    base = 0.0
    for name in makers:
        spent = statistics.median(times[str((name, number))] / 3 for number in range(instances))
        base = base or spent
        table.add(name, duration(spent), f"{spent / base - 1:+.1%}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=("MiniLM-L3, sequence 16", "MiniLM-L3, sequence 128"))
    parser.add_argument("--parts", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=10.0, help="CPU time per table")
    arguments = parser.parse_args()
    boundary().print()
    for case in arguments.cases:
        for optimized in (False, True):
            minilm(case, arguments.parts, optimized, arguments.seconds).print()


if __name__ == "__main__":
    main()
