"""What worker processes cost (``ISOLATION=PROCESS``), and what they gain.

    python bench/worker_processes.py

By the wall, since work is spread over processes: the least and the median of many rounds, which only mean something on
a machine that is quiet now and then.

- *hop*: one inference of a worker that copies 1 MB, input and output in shared memory already, as between two workers;
  and of a worker that gets four numbers, which is what messages alone cost. *Pipelined*: a chain of two workers with
  requests in flight, two hops each: time per hop, of which the inverse are hops per second.
- *stages*: two balanced stages, products of one thread each, in threads of this process and in two workers; beside
  what filling and draining the pipeline leaves of twice the speed.
- *recovery*: from SIGKILL of a worker to the right answer of the next inference.
"""

from __future__ import annotations

import collections
import os
import signal
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import helper

import hetero
from runtime import on_two, products_model

ISOLATED = {"ISOLATION": "PROCESS", "INFERENCE_NUM_THREADS": 1}
REQUESTS = 40
MEGABYTE = np.ones((1, 1 << 18), np.float32)


def copies(count: int) -> onnx.ModelProto:
    """A chain of ``count`` nodes that read and write as many bytes; names end in the parity of their device."""
    value = helper.make_tensor_value_info
    nodes = [helper.make_node("Neg", [f"v{i}"], [f"v{i + 1}"], name=f"n{i}") for i in range(count)]
    graph = helper.make_graph(nodes, "copies", [value("v0", 1, [1, "n"])], [value(f"v{count}", 1, [1, "n"])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def row(name: str, work: Callable[[], Any], rounds: int, per_round: int = 1) -> None:
    for _ in range(3):
        work()
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        work()
        times.append((time.perf_counter() - begin) / per_round)
    print(f"| {name} | {min(times) * 1e3:.3f} | {statistics.median(times) * 1e3:.3f} |")


def hops(core: hetero.Core) -> None:
    model = core.read_model(copies(1).SerializeToString())
    one = core.compile_model(model, "CPU", ISOLATED)
    shared = one(MEGABYTE)[0]
    tiny = np.ones((1, 4), np.float32)
    row("hop of 1 MB", lambda: one(shared), 500)
    row("hop of 1 MB, input copied to shared memory first", lambda: one(MEGABYTE), 500)
    row("hop of 16 bytes", lambda: one(tiny), 500)
    here = core.compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": 1})
    row("the same 1 MB in this process", lambda: here(MEGABYTE), 500)
    chain = core.read_model(copies(2).SerializeToString())
    two = core.compile_model(chain, "HETERO:CPU.0,CPU.1", ISOLATED, pins={"n0": "CPU.0", "n1": "CPU.1"})
    row(
        "hop of 1 MB, pipelined over two workers",
        lambda: collections.deque(two.map([shared] * 50, in_flight=4), maxlen=0),
        20,
        100,
    )


def stages(core: hetero.Core) -> None:
    """``REQUESTS`` requests through two stages of equal time take that many turns and one more, and twice as many one
    after the other."""
    model = core.read_model(products_model(branches=False).SerializeToString())
    x = np.ones((640, 640), np.float32)
    ideal = 2 * REQUESTS / (REQUESTS + 1)
    print(f"| two balanced stages, {REQUESTS} requests | times as fast | of the ideal {ideal:.2f} |\n|---|---|---|")
    for name, config in (("threads", {}), ("processes", {"ISOLATION": "PROCESS"})):
        compiled = on_two(core, model, lambda key: key.startswith("b"), config)
        batches = [x] * REQUESTS
        found: dict[str, list[float]] = {"alone": [], "in flight": []}
        for _ in range(10):
            begin = time.perf_counter()
            for batch in batches:
                compiled(batch)
            found["alone"].append(time.perf_counter() - begin)
            begin = time.perf_counter()
            collections.deque(compiled.map(batches), maxlen=0)
            found["in flight"].append(time.perf_counter() - begin)
        gain = min(found["alone"]) / min(found["in flight"])
        print(f"| {name} | {gain:.2f} | {gain / ideal:.2f} |")


def recovery(core: hetero.Core) -> None:
    model = core.read_model(copies(1).SerializeToString())
    compiled = core.compile_model(model, "CPU", {**ISOLATED, "WORKER_RETRIES": 1})
    compiled(MEGABYTE)
    times = []
    for _ in range(15):
        os.kill(compiled.process, signal.SIGKILL)
        begin = time.perf_counter()
        assert (compiled(MEGABYTE)[0] == -1).all()
        times.append(time.perf_counter() - begin)
    print(f"| from SIGKILL to the right answer | {min(times) * 1e3:.1f} | {statistics.median(times) * 1e3:.1f} |")


def main() -> None:
    core = hetero.Core()
    print("| ms | least | median |\n|---|---|---|")
    hops(core)
    recovery(core)
    print()
    stages(core)


if __name__ == "__main__":
    main()
