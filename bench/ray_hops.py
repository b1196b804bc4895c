"""Overhead of the device RAY on one machine, and its speedup.

    python bench/ray_hops.py hops
    python bench/ray_hops.py stages

Starts a Ray cluster of one node, and ends it. Times are elapsed times, minimum and median, and need idle cores.

- *hops*: an inference by an actor that reads and writes 1 MB, from an array in this process to an array in this
  process, and the same with 16 bytes, beside the same call by Ray alone; a chain of two actors, whose value between
  them stays in the object store; and from SIGKILL of an actor to the correct answer of the next inference, with a
  standby actor (``RAY_STANDBY``, the default) and without.
- *stages*: two balanced stages, products with one thread each, in threads of this process and in two actors.
"""

from __future__ import annotations

import argparse
import collections
import os
import signal
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np

import hetero
from hetero.base.formatting import duration
from runtime import on_two, products_model
from table import Table
from timing import elapsed_times
from worker_processes import MEGABYTE, copies

REQUESTS = 8

PLACES = {"RAY_INIT": {"num_cpus": 2, "object_store_memory": 200 << 20, "resources": {"left": 1, "right": 1}}}
ONE_THREAD = {"RAY_DEVICE_PROPERTIES": {"INFERENCE_NUM_THREADS": 1}}
TINY = np.ones((1, 4), np.float32)


def hops(core: hetero.Core, rounds: int) -> Table:
    table = Table("", "minimum", "median")

    def add(name: str, times: Sequence[float], hops: int = 1) -> None:
        table.add(name, duration(min(times) / hops), duration(statistics.median(times) / hops))

    one = core.compile_model(core.read_model(copies(1).SerializeToString()), "RAY.left", {**PLACES, **ONE_THREAD})
    works = {"hop of 1 MB": lambda: one(MEGABYTE), "hop of 16 bytes": lambda: one(TINY), **by_ray()}
    for name, times in elapsed_times(works, rounds).items():
        add(name, times)
    chain = core.read_model(copies(2).SerializeToString())
    two = core.compile_model(chain, "HETERO:RAY.left,RAY.right", ONE_THREAD, pins={"n0": "RAY.left", "n1": "RAY.right"})
    works = {"": lambda: two(MEGABYTE)}
    elapsed_times(works, 3)
    add("two hops of 1 MB on two actors", elapsed_times(works, rounds)[""])
    works = {"": lambda: collections.deque(two.map([MEGABYTE] * 50, in_flight=4), maxlen=0)}
    add("a hop of those with four requests in flight", elapsed_times(works, max(1, rounds // 30))[""], 100)
    for standby in (True, False):
        name = "from SIGKILL of an actor to the correct answer" + ("" if standby else ", `RAY_STANDBY` off")
        add(name, recovery(standby, max(1, rounds // 30)))
    return table


def by_ray() -> dict[str, Callable[[], object]]:
    """The same calls through an actor of Ray, without hetero."""
    import ray

    class Copies:
        def run(self, array: np.ndarray) -> np.ndarray:
            return -array

    actor = ray.remote(num_cpus=0)(Copies).remote()
    return {
        "1 MB by Ray alone: `ray.put`, an actor that negates, `ray.get`": lambda: ray.get(
            actor.run.remote(ray.put(MEGABYTE))
        ).copy(),
        "16 bytes by Ray alone": lambda: ray.get(actor.run.remote(TINY)).copy(),
    }


def stages(core: hetero.Core, rounds: int) -> Table:
    model = core.read_model(products_model(branches=False).SerializeToString())
    x = np.ones((640, 640), np.float32)
    pins = {key: "RAY.right" if key.startswith("b") else "RAY.left" for key in model.keys}
    threads = on_two(core, model, lambda key: key.startswith("b"), {})
    actors = core.compile_model(model, "HETERO:RAY.left,RAY.right", {**PLACES, **ONE_THREAD}, pins=pins)
    # Through two stages, n requests take n + 1 turns of one stage, and 2 n turns one after the other.
    ideal = 2 * REQUESTS / (REQUESTS + 1)
    table = Table(f"two stages, {REQUESTS} requests", "speedup", f"of the ideal {ideal:.2f}")
    batches = [x] * REQUESTS
    for name, compiled in (("threads", threads), ("actors", actors)):
        works = {
            "alone": lambda compiled=compiled: [compiled(batch) for batch in batches],
            "in flight": lambda compiled=compiled: collections.deque(compiled.map(batches), maxlen=0),
        }
        times = elapsed_times(works, rounds)
        gain = min(times["alone"]) / min(times["in flight"])
        table.add(name, f"{gain:.2f}", f"{gain / ideal:.2f}")
    return table


def recovery(standby: bool, rounds: int) -> list[float]:
    """Elapsed seconds of an inference whose actor was killed just before."""
    core = hetero.Core()  # an earlier model of the same Core could have left a standby actor
    model = core.read_model(copies(1).SerializeToString())
    compiled = core.compile_model(model, "RAY.0", {"WORKER_RETRIES": 1, "RAY_STANDBY": standby})
    compiled(MEGABYTE)
    times = []
    for _ in range(rounds):
        time.sleep(2)  # until the next standby actor is ready
        os.kill(compiled.process, signal.SIGKILL)  # type: ignore[attr-defined]
        begin = time.perf_counter()
        assert (compiled(MEGABYTE)[0] == -1).all()
        times.append(time.perf_counter() - begin)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("hops", "stages"))
    parser.add_argument("--rounds", type=int)
    arguments = parser.parse_args()
    os.environ.setdefault("RAY_worker_niceness", "0")  # by default, the actors yield to all other processes
    core = hetero.Core()
    if arguments.what == "hops":
        hops(core, arguments.rounds or 300).print()
    else:
        stages(core, arguments.rounds or 20).print()


if __name__ == "__main__":
    main()
