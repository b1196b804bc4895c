"""Pipelines: the cost of planning them, the quality of their stages, and their speedup.

    python bench/pipeline.py plan

- *plan*: CPU time to plan models of 100,000 nodes over eight simulated devices, from a model that is read to a plan
  that is printed.
- *search*: the search for stages alone, on graphs of the kinds of `bench/graphs.py`.
- *stages*: how far the slowest stage is above the minimum, which an exhaustive search finds, on small random graphs.
- *families*: graphs whose nodes suit different devices (`pipeline_families`), beside CP-SAT for 24 nodes, and beside
  the obvious plan and the lower bound for 3,000.
- *run*: two balanced stages of one thread each: requests in flight through a pipeline (in threads, and in worker
  processes) beside the same one after the other, and beside a plan by priority, for two cores. Minimum elapsed times of
  interleaved rounds, which need two idle cores.
- *waiting*: the same of stages that need no processor.
"""

from __future__ import annotations

import argparse
import collections
import pathlib
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hetero
from graphs import KINDS, make
from hetero.assign import AssignmentProblem
from hetero.assign.pipeline import balance_stages
from hetero.partition import Graph
from hetero.plugin import CompiledModel, Plugin, Support
from planning import model_of, register_npus
from runtime import products_model
from table import Table
from timing import cpu_time_with_children, elapsed_times

PIPELINE = {"MODEL_DISTRIBUTION_POLICY": "PIPELINE_PARALLEL"}
DEVICES = 8
NODES = 100_000
REQUESTS = 24
ROUNDS = 8
WAIT_SECONDS = 0.02


def plan() -> Table:
    core = hetero.Core()
    devices = register_npus(core, DEVICES, flops_per_s=1e12, bytes_per_s=1e11)
    table = Table(f"{NODES:,} nodes, {DEVICES} devices", "plan", "print", "interval above the bound")
    for kind in ("transformer", "inception", "chain", "random"):
        model = core.read_model(model_of(kind, NODES).SerializeToString())
        core.plan(model, "HETERO:NPU0,CPU")  # shape inference, once for a model
        begin = cpu_time_with_children()
        staged = core.plan(model, devices, PIPELINE)
        planned = cpu_time_with_children()
        str(staged)
        printed = cpu_time_with_children()
        pipeline = staged.pipeline
        assert pipeline is not None
        gap = pipeline.interval_s / pipeline.lower_bound_s - 1
        table.add(kind, f"{planned - begin:.2f} s", f"{printed - planned:.2f} s", f"{gap:.2%}")
    return table


def random_problem(graph: Graph, stages: int, link: float, seed: int) -> AssignmentProblem:
    """Work of 5 us a node on average, values of 50 kB; ``link``: transfers, relative to 2 us and 10 GB/s."""
    n, rng = graph.num_nodes, np.random.default_rng(seed)
    work = np.full((stages + 1, n + 1), np.inf)
    work[:stages, :n] = rng.random(n) * 1e-5
    work[stages, n] = 0
    latency, per_byte = (np.full((stages + 1, stages + 1), each * link) for each in (2e-6, 1e-10))
    size = rng.random(n) * 1e5
    return AssignmentProblem.from_values(work, np.arange(n), graph.indptr, graph.indices, size, latency, per_byte)


def search() -> Table:
    table = Table("search alone", "links free", "above the bound", "links cost", "above the bound")
    for kind in KINDS:
        src, dst, _ = make(kind, NODES)
        graph = Graph.from_edges(src, dst, int(max(src.max(), dst.max())) + 1)
        cells = []
        for link in (0.0, 1.0):
            problem = random_problem(graph, DEVICES, link, 1)
            begin = time.process_time()
            balanced = balance_stages(graph, problem, np.full(DEVICES, 1e-6), DEVICES)
            cells += [f"{time.process_time() - begin:.2f} s", f"{balanced.gap:.2%}"]
        table.add(kind, *cells)
    return table


def stages() -> Table:
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests" / "helpers"))
    from pipeline_cases import least_bottleneck, random_case  # type: ignore[import-not-found]

    table = Table("7 nodes, 2 and 3 stages", "optimal", "mean above the minimum", "worst")
    for name, options in (
        ("chains", {"chain": True}),
        ("chains, nodes that only some devices support", {"chain": True, "restricted": True}),
        ("random graphs, links free", {"links": False}),
        ("random graphs", {}),
        ("random graphs, nodes that only some devices support", {"restricted": True}),
    ):
        gaps = []
        for seed in range(200):
            count = 2 + seed % 2
            case = random_case(np.random.default_rng(seed), 7, count, **options)
            minimum = least_bottleneck(case, all_used=False)
            if np.isfinite(minimum):
                balanced = balance_stages(case.graph, case.problem, case.launch, count)
                gaps.append(balanced.times.slowest / minimum - 1)
        exact = np.mean(np.array(gaps) < 1e-6)
        table.add(name, f"{exact:.0%}", f"{np.mean(gaps):.2%}", f"{np.max(gaps):.1%}")
    return table


def families() -> Table:
    from pipeline_families import FAMILIES, VARIANTS, exact_bottleneck, family_case, obvious_bottleneck

    table = Table(
        *("family", "24 nodes: above the minimum, mean", "worst", "bound of the minimum"),
        *("3,000 nodes: of the obvious plan", "above the bound", "CPU time"),
    )
    for family in FAMILIES:
        for variant in VARIANTS if family == "chains of segments" else VARIANTS[:1]:
            gaps, bounds, gains, to_bound, taken = [], [], [], [], []
            for seed in range(8):
                case = family_case(family, variant, 24, 2 + seed % 3, seed % 2, seed)
                balanced = balance_stages(*case)
                minimum, proven = exact_bottleneck(case, 5.0)
                gaps.append(balanced.times.slowest / minimum - 1)
                bounds.append(balanced.lower_bound / max(proven, 1e-12))
            for seed in range(4):
                case = family_case(family, variant, 3_000, 2 + 2 * (seed // 2), seed % 2, seed)
                begin = time.process_time()
                balanced = balance_stages(*case)
                taken.append(time.process_time() - begin)
                gains.append(balanced.times.slowest / obvious_bottleneck(case))
                to_bound.append(balanced.gap)
            name = f"{family}, {variant}" if variant else family
            cells = [f"{np.mean(gaps):.1%}", f"{np.max(gaps):.1%}", f"{np.mean(bounds):.0%}"]
            cells += [f"{np.mean(gains):.2f}", f"{np.mean(to_bound):.1%}", f"{np.mean(taken):.2f} s"]
            table.add(name, *cells)
    return table


def run() -> Table:
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
        """The most that two threads can do: each runs its stage repeatedly, without waiting."""

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
    minima = {name: min(times) for name, times in elapsed_times(works, ROUNDS).items()}
    ideal = 2 * REQUESTS / (REQUESTS + 1)
    alone = minima["one after the other, in this process"]
    table = Table(f"{REQUESTS} requests, two stages", "ms each", "speedup", f"of the ideal {ideal:.2f}")
    for name, seconds in minima.items():
        gain = alone / seconds
        table.add(name, f"{1e3 * seconds / REQUESTS:.2f}", f"{gain:.2f}", f"{gain / ideal:.2f}")
    return table


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


def waiting() -> Table:
    core = hetero.Core()
    core.register_plugin("WAITING", _Waiting)
    proto = model_of("chain", 1_000)
    x: NDArray[np.float32] = np.ones((8, 64), np.float32)
    table = Table(f"stages that wait {1e3 * WAIT_SECONDS:.0f} ms", "ms each", "speedup", "of the ideal")
    for count in (2, 3, 4):
        devices = "HETERO:" + ",".join(f"WAITING.{i}" for i in range(count))
        compiled = core.compile_model(core.read_model(proto), devices, PIPELINE)
        in_flight = partial(_drain, compiled, [x] * REQUESTS)
        seconds = min(elapsed_times({"": in_flight}, 5)[""])
        gain, ideal = count * REQUESTS * WAIT_SECONDS / seconds, count * REQUESTS / (REQUESTS + count - 1)
        table.add(
            f"{count} stages", f"{1e3 * seconds / REQUESTS:.2f}", f"{gain:.2f}", f"{gain / ideal:.3f} of {ideal:.2f}"
        )
    return table


def _drain(compiled: hetero.CompiledModel, requests: Sequence[Any]) -> None:
    collections.deque(compiled.map(requests), maxlen=0)


TABLES = {"plan": plan, "search": search, "stages": stages, "families": families, "run": run, "waiting": waiting}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=TABLES)
    TABLES[parser.parse_args().what]().print()


if __name__ == "__main__":
    main()
