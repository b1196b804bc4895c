"""What the device RAY costs on one machine, and what it gains.

    python bench/ray_hops.py

Starts a Ray cluster of one node, and ends it. By the wall, since work is spread over processes: the least and the
median of many rounds, which only mean something on a machine that is quiet now and then.

- *hop*: one inference in an actor that reads and writes 1 MB, from an array here to an array here; and of four numbers,
  which is what a call alone costs. *Pipelined*: a chain of two actors with requests in flight, two hops each; the value
  between them stays in the object store. Beside it what Ray itself takes for such a call.
- *stages*: two balanced stages, products of one thread each, in threads of this process and in two actors.
- *recovery*: from SIGKILL of an actor to the right answer of the next inference, with an actor that waits for a model
  (``RAY_STANDBY``, the default) and without.
"""

from __future__ import annotations

import collections
import os
import signal
import statistics
import time
from collections.abc import Callable

import numpy as np

import hetero
from runtime import on_two, products_model
from worker_processes import MEGABYTE, copies, row

PLACES = {"RAY_INIT": {"num_cpus": 2, "object_store_memory": 200 << 20, "resources": {"left": 1, "right": 1}}}
ONE_THREAD = {"RAY_DEVICE_PROPERTIES": {"INFERENCE_NUM_THREADS": 1}}
TINY = np.ones((1, 4), np.float32)


def hops(core: hetero.Core) -> None:
    one = core.compile_model(core.read_model(copies(1).SerializeToString()), "RAY.left", {**PLACES, **ONE_THREAD})
    rows({"hop of 1 MB": lambda: one(MEGABYTE), "hop of 16 bytes": lambda: one(TINY), **by_ray()}, 300)
    chain = core.read_model(copies(2).SerializeToString())
    two = core.compile_model(chain, "HETERO:RAY.left,RAY.right", ONE_THREAD, pins={"n0": "RAY.left", "n1": "RAY.right"})
    row("two hops of 1 MB, one after the other", lambda: two(MEGABYTE), 200)
    row(
        "hop of 1 MB, pipelined over two actors",
        lambda: collections.deque(two.map([MEGABYTE] * 50, in_flight=4), maxlen=0),
        10,
        100,
    )


def by_ray() -> dict[str, Callable[[], object]]:
    """The same through an actor that does nothing else, without hetero."""
    import ray

    class Copies:
        def run(self, array: np.ndarray) -> np.ndarray:
            return -array

    actor = ray.remote(num_cpus=0)(Copies).remote()
    return {
        "the same 1 MB by Ray alone": lambda: ray.get(actor.run.remote(ray.put(MEGABYTE))).copy(),
        "the same 16 bytes by Ray alone": lambda: ray.get(actor.run.remote(TINY)).copy(),
    }


def rows(works: dict[str, Callable[[], object]], rounds: int) -> None:
    """As `row`, in turns, so that all see the same of what else the machine does."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            begin = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - begin)
    for name, taken in times.items():
        print(f"| {name} | {min(taken) * 1e3:.3f} | {statistics.median(taken) * 1e3:.3f} |")


def stages(core: hetero.Core) -> None:
    model = core.read_model(products_model(branches=False).SerializeToString())
    x = np.ones((640, 640), np.float32)
    pins = {key: "RAY.right" if key.startswith("b") else "RAY.left" for key in model.keys}
    threads = on_two(core, model, lambda key: key.startswith("b"), {})
    actors = core.compile_model(model, "HETERO:RAY.left,RAY.right", ONE_THREAD, pins=pins)
    for name, compiled in (("threads", threads), ("actors", actors)):
        batches = [x] * 8
        found: dict[str, list[float]] = {"alone": [], "in flight": []}
        for _ in range(20):
            begin = time.perf_counter()
            for batch in batches:
                compiled(batch)
            found["alone"].append(time.perf_counter() - begin)
            begin = time.perf_counter()
            collections.deque(compiled.map(batches), maxlen=0)
            found["in flight"].append(time.perf_counter() - begin)
        # Eight requests through two stages take nine turns of one stage, and sixteen one after the other.
        gain, ideal = min(found["alone"]) / min(found["in flight"]), 16 / 9
        print(f"| two stages as {name}, eight requests | {gain:.2f} times as fast | {gain / ideal:.2f} of the ideal |")


def recovery(core: hetero.Core) -> None:
    model = core.read_model(copies(1).SerializeToString())
    for standby in (True, False):
        compiled = core.compile_model(model, "RAY.0", {"WORKER_RETRIES": 1, "RAY_STANDBY": standby})
        compiled(MEGABYTE)
        times = []
        for _ in range(10):
            time.sleep(2)  # until the next actor waits
            os.kill(compiled.process, signal.SIGKILL)  # type: ignore[attr-defined]
            begin = time.perf_counter()
            assert (compiled(MEGABYTE)[0] == -1).all()
            times.append(time.perf_counter() - begin)
        name = "from SIGKILL to the right answer" + ("" if standby else ", no actor waiting")
        print(f"| {name} | {min(times) * 1e3:.0f} | {statistics.median(times) * 1e3:.0f} |")
        del compiled
        core = hetero.Core()


def main() -> None:
    os.environ.setdefault("RAY_worker_niceness", "0")  # else the actors yield to all else that runs
    core = hetero.Core()
    print("| ms | least | median |\n|---|---|---|")
    hops(core)
    recovery(core)
    print()
    stages(core)


if __name__ == "__main__":
    main()
