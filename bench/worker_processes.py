"""Overhead of worker processes (``ISOLATION=PROCESS``), and their speedup.

    python bench/worker_processes.py hops
    python bench/worker_processes.py stages

Times are elapsed times, minimum and median, and need two idle cores.

- *hops*: an inference by a worker that copies 1 MB, with input and output already in shared memory, as between two
  workers, and by a worker that gets four numbers, which is the cost of the messages alone. *Pipelined*: the time per
  hop of a chain of two workers with requests in flight. Also the time from SIGKILL of a worker to the correct answer of
  the next inference.
- *stages*: two balanced stages, products with one thread each, in threads of this process and in two workers, beside
  the most that filling and draining the pipeline allows.
"""

from __future__ import annotations

import argparse
import collections
import os
import signal
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import helper

import hetero
from hetero.base.formatting import duration
from runtime import on_two, products_model
from table import Table
from timing import elapsed_times

ISOLATED = {"ISOLATION": "PROCESS", "INFERENCE_NUM_THREADS": 1}
REQUESTS = 40
MEGABYTE = np.ones((1, 1 << 18), np.float32)


def copies(count: int) -> onnx.ModelProto:
    """A chain of ``count`` nodes that read and write as many bytes; names end in the parity of their device."""
    value = helper.make_tensor_value_info
    nodes = [helper.make_node("Neg", [f"v{i}"], [f"v{i + 1}"], name=f"n{i}") for i in range(count)]
    graph = helper.make_graph(nodes, "copies", [value("v0", 1, [1, "n"])], [value(f"v{count}", 1, [1, "n"])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def hops(core: hetero.Core, rounds: int = 500) -> Table:
    table = Table("", "minimum", "median")

    def add(name: str, work: Callable[[], Any], rounds: int, hops: int = 1) -> None:
        elapsed_times({"": work}, 3)
        times = elapsed_times({"": work}, rounds)[""]
        table.add(name, duration(min(times) / hops), duration(statistics.median(times) / hops))

    model = core.read_model(copies(1).SerializeToString())
    one = core.compile_model(model, "CPU", ISOLATED)
    shared = one(MEGABYTE)[0]
    tiny = np.ones((1, 4), np.float32)
    add("hop of 1 MB", lambda: one(shared), rounds)
    add("hop of 1 MB, input copied to shared memory first", lambda: one(MEGABYTE), rounds)
    add("hop of 16 bytes", lambda: one(tiny), rounds)
    here = core.compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": 1})
    add("the same 1 MB in this process", lambda: here(MEGABYTE), rounds)
    chain = core.read_model(copies(2).SerializeToString())
    two = core.compile_model(chain, "HETERO:CPU.0,CPU.1", ISOLATED, pins={"n0": "CPU.0", "n1": "CPU.1"})
    requests = [shared] * 50
    in_flight = partial(collections.deque, maxlen=0)
    add("hop of 1 MB, pipelined over two workers", lambda: in_flight(two.map(requests, in_flight=4)), rounds // 25, 100)
    times = recovery(core)
    table.add("from SIGKILL to the correct answer", duration(min(times)), duration(statistics.median(times)))
    return table


def stages(core: hetero.Core, rounds: int = 10) -> Table:
    """Through two equal stages, n requests take n + 1 turns of a stage, and 2 n turns one after the other."""
    model = core.read_model(products_model(branches=False).SerializeToString())
    x = np.ones((640, 640), np.float32)
    ideal = 2 * REQUESTS / (REQUESTS + 1)
    table = Table(f"two balanced stages, {REQUESTS} requests", "speedup", f"of the ideal {ideal:.2f}")
    batches = [x] * REQUESTS
    for name, config in (("threads", {}), ("processes", {"ISOLATION": "PROCESS"})):
        compiled = on_two(core, model, lambda key: key.startswith("b"), config)
        works = {
            "alone": lambda compiled=compiled: [compiled(batch) for batch in batches],
            "in flight": lambda compiled=compiled: collections.deque(compiled.map(batches), maxlen=0),
        }
        times = elapsed_times(works, rounds)
        gain = min(times["alone"]) / min(times["in flight"])
        table.add(name, f"{gain:.2f}", f"{gain / ideal:.2f}")
    return table


def recovery(core: hetero.Core) -> list[float]:
    """Elapsed seconds of an inference whose worker was killed just before."""
    model = core.read_model(copies(1).SerializeToString())
    compiled = core.compile_model(model, "CPU", {**ISOLATED, "WORKER_RETRIES": 1})
    compiled(MEGABYTE)
    times = []
    for _ in range(15):
        os.kill(compiled.process, signal.SIGKILL)
        begin = time.perf_counter()
        assert (compiled(MEGABYTE)[0] == -1).all()
        times.append(time.perf_counter() - begin)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("hops", "stages"))
    parser.add_argument("--rounds", type=int)
    arguments = parser.parse_args()
    core = hetero.Core()
    if arguments.what == "hops":
        hops(core, arguments.rounds or 500).print()
    else:
        stages(core, arguments.rounds or 10).print()


if __name__ == "__main__":
    main()
