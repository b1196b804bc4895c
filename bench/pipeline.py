"""Pipelines: what planning them costs, how good the stages are, and what running them gains.

    python bench/pipeline.py [plan | stages | run | waiting]

- *plan*: CPU time to plan models of 100,000 nodes over eight simulated devices, from a model that is read to a plan
  that is printed; and of that the search for stages alone, on graphs of the kinds of `bench/graphs.py`.
- *stages*: how far the slowest stage is above the least possible, by exhaustive search, on small random graphs.
- *run*: two balanced stages of one thread each, by the wall: requests in flight through a pipeline (in threads, and in
  worker processes) beside the same one after the other, and beside a plan by priority, for two cores. Rounds alternate
  and the least counts, so that it only means something on a machine that is quiet now and then. *waiting*: the same
  of stages that need no processor.
"""

from __future__ import annotations

import collections
import pathlib
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hetero
from graphs import KINDS, make
from hetero.assign import AssignmentProblem
from hetero.assign.pipeline import balance_stages
from hetero.partition import Graph
from hetero.plugin import CompiledModel, Plugin, Support
from planning import model_of, spent
from runtime import products_model

PIPELINE = {"MODEL_DISTRIBUTION_POLICY": "PIPELINE_PARALLEL"}
DEVICES = 8
NODES = 100_000
REQUESTS = 24
ROUNDS = 8
WAIT_SECONDS = 0.02


def plan() -> None:
    folder = pathlib.Path(tempfile.mkdtemp())
    core = hetero.Core()
    for number in range(DEVICES):
        profile = folder / f"npu{number}.toml"
        profile.write_text(
            f'name = "NPU{number}"\nruns_on = "CPU"\n[ops]\nRelu = {{}}\nExp = {{}}\nSum = {{}}\nMax = {{}}\n'
            "[cost]\nflops_per_s = 1e12\nbytes_per_s = 1e11\nlaunch_s = 1e-5\nlink_bytes_per_s = 1e10\n"
        )
        core.register_plugin(f"NPU{number}", profile)
    devices = "HETERO:" + ",".join(f"NPU{number}" for number in range(DEVICES))
    print(f"| {NODES:,} nodes, {DEVICES} devices | plan | print | interval above the bound |\n|---|---|---|---|")
    for kind in ("transformer", "inception", "chain", "random"):
        model = core.read_model(model_of(kind, NODES).SerializeToString())
        core.plan(model, "HETERO:NPU0,CPU")  # shape inference, once for a model
        begin = spent()
        found = core.plan(model, devices, PIPELINE)
        planned = spent()
        str(found)
        printed = spent()
        pipeline = found.pipeline
        assert pipeline is not None
        gap = pipeline.interval_s / pipeline.lower_bound_s - 1
        print(f"| {kind} | {planned - begin:.2f} s | {printed - planned:.2f} s | {100 * gap:.2f}% |")


def random_problem(graph: Graph, stages: int, link: float, seed: int) -> AssignmentProblem:
    """Work of 5 us a node on average, values of 50 kB; ``link``: transfers, relative to 2 us and 10 GB/s."""
    n, rng = graph.num_nodes, np.random.default_rng(seed)
    work = np.full((stages + 1, n + 1), np.inf)
    work[:stages, :n] = rng.random(n) * 1e-5
    work[stages, n] = 0
    latency, per_byte = (np.full((stages + 1, stages + 1), each * link) for each in (2e-6, 1e-10))
    size = rng.random(n) * 1e5
    return AssignmentProblem.from_values(work, np.arange(n), graph.indptr, graph.indices, size, latency, per_byte)


def search() -> None:
    print("\n| search alone | links free | above the bound | links cost | above the bound |\n|---|---|---|---|---|")
    for kind in KINDS:
        src, dst, _ = make(kind, NODES)
        graph = Graph.from_edges(src, dst, int(max(src.max(), dst.max())) + 1)
        cells = []
        for link in (0.0, 1.0):
            problem = random_problem(graph, DEVICES, link, 1)
            begin = time.process_time()
            found = balance_stages(graph, problem, np.full(DEVICES, 1e-6), DEVICES)
            cells.append(f"{time.process_time() - begin:.2f} s | {100 * found.gap:.2f}%")
        print(f"| {kind} | {' | '.join(cells)} |")


def stages() -> None:
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests" / "helpers"))
    from pipeline_cases import least_bottleneck, random_case  # type: ignore[import-not-found]

    print("| 7 nodes, 2 and 3 stages | exact | mean above the least | most |\n|---|---|---|---|")
    for name, options in (
        ("chains", {"chain": True}),
        ("chains, nodes that only some devices take", {"chain": True, "restricted": True}),
        ("random graphs, links free", {"links": False}),
        ("random graphs", {}),
        ("random graphs, nodes that only some devices take", {"restricted": True}),
    ):
        gaps = []
        for seed in range(200):
            count = 2 + seed % 2
            case = random_case(np.random.default_rng(seed), 7, count, **options)
            least = least_bottleneck(case, all_used=False)
            if np.isfinite(least):
                found = balance_stages(case.graph, case.problem, case.launch, count)
                gaps.append(found.times.slowest / least - 1)
        exact = np.mean(np.array(gaps) < 1e-6)
        print(f"| {name} | {100 * exact:.0f}% | {100 * np.mean(gaps):.2f}% | {100 * np.max(gaps):.1f}% |")


def run() -> None:
    core = hetero.Core()
    model = core.read_model(products_model(branches=False).SerializeToString())
    x: NDArray[np.float32] = np.ones((640, 640), np.float32)
    one_thread = {"INFERENCE_NUM_THREADS": 1}

    def compiled(config: Mapping[str, Any]) -> hetero.CompiledModel:
        return core.compile_model(model, "HETERO:CPU.0,CPU.1", {**one_thread, **config})

    threads, processes = compiled(PIPELINE), compiled({**PIPELINE, "ISOLATION": "PROCESS"})
    priority = compiled({})
    two_threads = core.compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": 2})

    def in_flight(of: hetero.CompiledModel) -> Callable[[], Any]:
        return lambda: collections.deque(of.map([x] * REQUESTS), maxlen=0)

    def one_by_one(of: hetero.CompiledModel) -> Callable[[], Any]:
        return lambda: [of(x) for _ in range(REQUESTS)]

    def apart() -> None:
        """What two threads do at most: each runs its stage over and over, and waits for nothing."""

        def over_and_over(part: hetero.CompiledModel) -> None:
            runner = part.new_runner()
            for _ in range(REQUESTS):
                runner.run([x])

        parts = threads.submodels  # type: ignore[attr-defined]
        workers = [threading.Thread(target=over_and_over, args=(part,)) for part in parts]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    works = {
        "one after the other, in this process": one_by_one(threads),
        "one after the other, processes": one_by_one(processes),
        "pipeline, threads": in_flight(threads),
        "pipeline, processes": in_flight(processes),
        "two threads, each with its stage alone": apart,
        "by priority (all on CPU.0), in flight": in_flight(priority),
        "CPU with two threads for each request": one_by_one(two_threads),
    }
    least: dict[str, float] = dict.fromkeys(works, np.inf)
    for _ in range(ROUNDS):
        for name, work in works.items():
            begin = time.perf_counter()
            work()
            least[name] = min(least[name], time.perf_counter() - begin)
    ideal = 2 * REQUESTS / (REQUESTS + 1)
    alone = least["one after the other, in this process"]
    print(
        f"| {REQUESTS} requests, two stages | ms each | times as fast | of the ideal {ideal:.2f} |\n|---|---|---|---|"
    )
    for name, seconds in least.items():
        gain = alone / seconds
        print(f"| {name} | {1e3 * seconds / REQUESTS:.2f} | {gain:.2f} | {gain / ideal:.2f} |")


class _Waiting(Plugin):
    """Stages that wait, as for an accelerator: they need no processor, so a busy machine hardly matters."""

    name = "WAITING"

    def query_model(self, model: hetero.Model, config: Mapping[str, Any]) -> Support:
        return Support.from_reasons(model.num_nodes, {})

    def compile_model(self, model: hetero.Model, config: Mapping[str, Any], context: object = None) -> CompiledModel:
        return _WaitingModel(f"WAITING.{config.get('DEVICE_ID', '')}", model.inputs, model.outputs)

    def device_ids(self) -> tuple[str, ...]:
        return tuple(map(str, range(4)))


class _WaitingModel(CompiledModel):
    def create_runner(self) -> _WaitingModel:
        return self

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        time.sleep(WAIT_SECONDS)
        return [inputs[0] for _ in self.outputs]

    def profile(self) -> tuple[()]:
        return ()


def waiting() -> None:
    core = hetero.Core()
    core.register_plugin("WAITING", _Waiting)
    proto = model_of("chain", 1_000)
    x: NDArray[np.float32] = np.ones((8, 64), np.float32)
    print(f"\n| stages that wait {1e3 * WAIT_SECONDS:.0f} ms | ms each | times as fast | of the ideal |")
    print("|---|---|---|---|")
    for count in (2, 3, 4):
        devices = "HETERO:" + ",".join(f"WAITING.{i}" for i in range(count))
        compiled = core.compile_model(core.read_model(proto), devices, PIPELINE)
        least = np.inf
        for _ in range(5):
            begin = time.perf_counter()
            collections.deque(compiled.map([x] * REQUESTS), maxlen=0)
            least = min(least, time.perf_counter() - begin)
        gain, ideal = count * REQUESTS * WAIT_SECONDS / least, count * REQUESTS / (REQUESTS + count - 1)
        print(f"| {count} stages | {1e3 * least / REQUESTS:.2f} | {gain:.2f} | {gain / ideal:.3f} of {ideal:.2f} |")


def main(what: str) -> None:
    if what in ("plan", "all"):
        plan()
        search()
    if what in ("stages", "all"):
        stages()
    if what in ("run", "all"):
        run()
    if what in ("run", "waiting", "all"):
        waiting()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "all")
