"""Plans that let devices work at the same time (`OBJECTIVE=LATENCY`): speedup, predictions, and the cost of planning.

    python bench/latency.py sleeping

- *sleeping*: branchy models over equal devices that wait as long as their nodes say, like accelerators: the speedup
  over one device with the fewest subgraphs and with `OBJECTIVE=LATENCY`, on the same devices per node.
- *hints*: the same models with `PERFORMANCE_HINT=LATENCY` and `THROUGHPUT`, over devices that run one subgraph at a
  time: one inference, and requests in flight.
- *cpu*: real models over two CPU devices of one thread each with measured costs, in groups of inferences; needs two
  idle processors.
- *sharing*: how much two CPU devices of one thread each slow each other down; needs two idle processors.
- *cuts*: CPU time of the subgraphs of such plans, one after the other, beside the whole model.
- *search*: CPU time of the parts of the search, in topological sorts of the same graph.
- *plan*: CPU time of a whole plan over four simulated devices, from a model that is read.
- *exact*: predicted latency beside the minimum that CP-SAT proves, on small graphs.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import pathlib
import statistics
import sys
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

import hetero
import real_models
from graphs import INCEPTION, KINDS, make
from hetero import _graph
from hetero.assign import AssignmentProblem
from hetero.assign.costs import Costs
from hetero.assign.costs.measured import Measurement, NodeTimes
from hetero.assign.schedule import Scheduler, least_makespan
from hetero.base.formatting import duration
from hetero.measure import measure_costs
from hetero.model.identity import graph_digest
from hetero.partition import Graph
from hetero.plugin import CompiledModel, Plugin, Support
from planning import model_of, register_npus
from runtime import products_model
from table import Table
from timing import cpu_time_with_children, elapsed_times, repeated_times

LATENCY = {"OBJECTIVE": "LATENCY"}
SECONDS_OF_OP = {"Relu": 4e-3, "Sum": 1e-3}
"""What sleeping devices take for a node."""
GROUP = 10  # inferences of one compiled model in a row; the first does not count
LAUNCH_SECONDS = 1.5e-4  # a subgraph of a sleeping device, beside its nodes: a sleep ends late


# ---- models

EXPERTS_OF_EIGHT = [[-1], *([0] for _ in range(8)), *([i] for i in range(1, 9)), list(range(9, 17))]
HEADS_OF_FOUR = [
    [-1],
    *([0] for _ in range(12)),  # query, key and value of each head
    *([3 * head + 1, 3 * head + 2] for head in range(4)),
    *([13 + head, 3 * head + 3] for head in range(4)),
    [17, 18, 19, 20],
]


def blocks(producers: Sequence[Sequence[int]], count: int) -> onnx.ModelProto:
    """Blocks in a row. A node that reads one value is a Relu, and one that reads several, or begins a block, a Sum."""
    nodes, size = [], len(producers)
    for block in range(count):
        for i, reads in enumerate(producers):
            inputs = [f"v{block * size + source}" if block * size + source >= 0 else "x" for source in reads]
            op = "Sum" if len(inputs) > 1 or reads == [-1] else "Relu"
            nodes.append(helper.make_node(op, inputs, [f"v{block * size + i}"], f"n{block * size + i}"))
    return _finished(nodes, f"v{size * count - 1}")


def towers(count: int, length: int) -> onnx.ModelProto:
    """Chains side by side whose ends are added."""
    nodes = []
    for tower, i in itertools.product(range(count), range(length)):
        before = f"v{tower}_{i - 1}" if i else "x"
        nodes.append(helper.make_node("Relu", [before], [f"v{tower}_{i}"], f"n{tower}_{i}"))
    nodes.append(helper.make_node("Sum", [f"v{tower}_{length - 1}" for tower in range(count)], ["y"], "join"))
    return _finished(nodes, "y")


def _finished(nodes: Sequence[onnx.NodeProto], output: str) -> onnx.ModelProto:
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 64]) for name in ("x", output)]
    graph = helper.make_graph(nodes, "branchy", ports[:1], ports[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


BRANCHY: Mapping[str, tuple[onnx.ModelProto, tuple[int, ...], Mapping[int, float]]] = {
    "two towers": (towers(2, 20), (2,), {2: 1.8}),
    "ensemble of 4": (towers(4, 10), (4,), {4: 3.5}),
    "inception": (blocks(INCEPTION, 6), (2, 4), {2: 1.6}),
    "8 experts": (blocks(EXPERTS_OF_EIGHT, 3), (2, 4), {}),
    "4 heads": (blocks(HEADS_OF_FOUR, 3), (2,), {}),
}
"""Name -> model, numbers of devices, and the minimum speedup for a number of devices."""


# ---- devices that wait


class Sleeping(Plugin):
    """Devices that wait as long as their nodes say."""

    name = "SLEEPING"

    def query_model(self, model: hetero.Model, config: Mapping[str, Any]) -> Support:
        return Support.from_reasons(model.num_nodes, {})

    def compile_model(self, model: hetero.Model, config: Mapping[str, Any], context: object = None) -> CompiledModel:
        seconds = sum(SECONDS_OF_OP[node.op_type] for node in model.nodes)
        return SleepingModel(f"SLEEPING.{config.get('DEVICE_ID', '')}", model.inputs, model.outputs, seconds)

    def device_ids(self) -> tuple[str, ...]:
        return tuple(map(str, range(4)))


class SleepingModel(CompiledModel):
    def __init__(self, device: str, inputs: Any, outputs: Any, seconds: float) -> None:
        super().__init__(device, inputs, outputs)
        self.seconds = seconds

    def create_runner(self) -> SleepingModel:
        return self

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        time.sleep(self.seconds)
        return [inputs[0] for _ in self.outputs]

    def profile(self) -> tuple[()]:
        return ()


def sleeping_costs(model: hetero.Model, devices: Sequence[str]) -> Costs:
    nodes = {node.key: SECONDS_OF_OP[node.op_type] * 1e6 for node in model.nodes}
    times = {key: NodeTimes(1, us, us) for key, us in nodes.items()}
    total = sum(nodes.values())
    measurements = tuple(Measurement(device, {}, times, total, LAUNCH_SECONDS * 1e6) for device in devices)
    return Costs(model.name, graph_digest(model), measurements)


def sleeping(rounds: int) -> Table:
    core = hetero.Core()
    core.register_plugin("SLEEPING", Sleeping)
    x = np.ones((1, 64), np.float32)
    table = Table(
        "speedup over one device", "fewest subgraphs", "OBJECTIVE=LATENCY", "at most", "measured to predicted"
    )
    ratios = []
    for name, (proto, counts, minima) in BRANCHY.items():
        model = core.read_model(proto)
        for count in counts:
            devices = [f"SLEEPING.{i}" for i in range(count)]
            listed, config = f"HETERO:{','.join(devices)}", {"COSTS": sleeping_costs(model, devices)}
            plan = core.plan(model, listed, {**config, **LATENCY})
            assert plan.latency is not None
            compiled = {
                "one": core.compile_model(model, devices[0]),
                "fewest": core.compile_model(model, listed, pins=plan.affinity),
                "latency": core.compile_model(model, plan),
            }
            requests = {key: each.create_infer_request() for key, each in compiled.items()}
            for request in requests.values():
                for _ in range(3):  # until the request has decided whether steps run at the same time
                    request.infer(x)
            times = elapsed_times({key: partial(each.infer, x) for key, each in requests.items()}, rounds)
            seconds = {key: min(each) for key, each in times.items()}
            ratios.append(seconds["latency"] / plan.latency.total_s)
            gain = seconds["one"] / seconds["latency"]
            text = f"{gain:.2f}"
            table.add(
                f"{name}, {count} devices",
                f"{seconds['one'] / seconds['fewest']:.2f}",
                text if gain >= minima.get(count, 0) else f"**{text}**",
                f"{seconds['one'] / plan.latency.lower_bound_s:.2f}",
                f"{ratios[-1]:.3f}",
            )
    table.add("median", "", "", "", f"{statistics.median(ratios):.3f}")
    return table


class OneAtATime(Sleeping):
    """Devices that run one subgraph at a time, for whichever request."""

    name = "TURNS"

    def __init__(self) -> None:
        super().__init__()
        self.turns = {id_: threading.Lock() for id_ in self.device_ids()}
        self.waited: list[float] = []
        """Seconds that steps waited for their device."""
        self.threads: set[int] = set()

    def compile_model(self, model: hetero.Model, config: Mapping[str, Any], context: object = None) -> CompiledModel:
        seconds = sum(SECONDS_OF_OP[node.op_type] for node in model.nodes)
        id_ = str(config.get("DEVICE_ID", "0"))
        return OneAtATimeModel(self, id_, model, seconds)


class OneAtATimeModel(SleepingModel):
    def __init__(self, plugin: OneAtATime, id_: str, model: hetero.Model, seconds: float) -> None:
        super().__init__(f"TURNS.{id_}", model.inputs, model.outputs, seconds)
        self.plugin, self.turn = plugin, plugin.turns[id_]

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        begin = time.perf_counter()
        with self.turn:
            self.plugin.waited.append(time.perf_counter() - begin)
            self.plugin.threads.add(threading.get_ident())
            return super().run(inputs)


def hints(inferences: int) -> Table:
    """With as many requests in flight as devices, after a round that does not count."""
    core, plugin = hetero.Core(), OneAtATime()
    core.register_plugin("TURNS", lambda: plugin)
    x = np.ones((1, 64), np.float32)
    table = Table(
        "hint", "subgraphs", "one inference", "predicted", "in flight: inferences/s", "a step waits", "threads"
    )
    for name in ("two towers", "ensemble of 4"):
        proto, counts, _ = BRANCHY[name]
        model, count = core.read_model(proto), counts[0]
        devices = [f"TURNS.{i}" for i in range(count)]
        config = {"COSTS": sleeping_costs(model, devices), **LATENCY}
        plan = core.plan(model, f"HETERO:{','.join(devices)}", config)
        assert plan.latency is not None
        for hint in ("LATENCY", "THROUGHPUT"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # THROUGHPUT with a plan that overlaps
                compiled = core.compile_model(model, plan, {"PERFORMANCE_HINT": hint})
            predicted = (
                plan.latency.total_s if hint == "LATENCY" else sum(plan.latency.end_s) - sum(plan.latency.begin_s)
            )
            request = compiled.create_infer_request()
            one = min(elapsed_times({"": partial(request.infer, x)}, 3)[""])
            list(compiled.map([x] * count, in_flight=count))
            plugin.waited.clear()
            plugin.threads.clear()
            begin = time.perf_counter()
            for _ in compiled.map([x] * inferences, in_flight=count):
                pass
            per_second = inferences / (time.perf_counter() - begin)
            waits = sum(plugin.waited) / len(plugin.waited)
            cells = (duration(one), duration(predicted), f"{per_second:.1f}", duration(waits), f"{len(plugin.threads)}")
            table.add(f"{name}, {count} devices, {hint}", f"{plan.num_subgraphs}", *cells)
    return table


# ---- two CPU devices


def cpu(names: Sequence[str], rounds: int) -> Table:
    core, one_thread = hetero.Core(), {"INFERENCE_NUM_THREADS": 1}
    devices = ("CPU.0", "CPU.1")
    listed = f"HETERO:{','.join(devices)}"
    cases: dict[str, tuple[onnx.ModelProto, Mapping[str, Any]]] = {
        "two towers of products": (products_model(branches=True), {"x": np.ones((640, 640), np.float32)})
    }
    cases |= {name: real_models.load(name) for name in names}
    minima = {"two towers of products": 1.8, "light_inception_v1": 1.3}
    table = Table("two CPU devices", "one device", "OBJECTIVE=LATENCY", "speedup", "predicted", "measured to predicted")
    ratios = []
    for name, (proto, inputs) in cases.items():
        model = core.read_model(proto)
        one = measure_costs(core, model, "CPU.0", inputs, config=one_thread)
        other = tuple(Measurement("CPU.1", m.shapes, m.nodes, m.total_us, m.launch_us) for m in one.measurements)
        costs = Costs(one.model_name, one.digest, (*one.measurements, *other))
        plan = core.plan(model, listed, {**LATENCY, **one_thread, "COSTS": costs})
        assert plan.latency is not None
        compiled = {
            "one": core.compile_model(model, "CPU.0", one_thread),
            "latency": core.compile_model(model, plan, one_thread),
        }
        requests = {key: each.create_infer_request() for key, each in compiled.items()}
        for request in requests.values():
            for _ in range(3):
                request.infer(inputs)
        # In groups, like the costs: the weights of two compiled models would evict each other from the caches.
        works = {key: repeated_times(partial(each.infer, inputs), GROUP) for key, each in requests.items()}
        seconds = dict.fromkeys(works, float("inf"))
        for _ in range(rounds // GROUP):
            seconds = {key: min(seconds[key], *work()[1:]) for key, work in works.items()}
        gain = seconds["one"] / seconds["latency"]
        ratios.append(seconds["latency"] / plan.latency.total_s)
        text = f"{gain:.2f}"
        table.add(
            name,
            duration(seconds["one"]),
            duration(seconds["latency"]),
            text if gain >= minima.get(name, 0) else f"**{text}**",
            duration(plan.latency.total_s),
            f"{ratios[-1]:.3f}",
        )
    table.add("median", "", "", "", "", f"{statistics.median(ratios):.3f}")
    return table


def cuts(names: Sequence[str], rounds: int) -> Table:
    """In one thread, so that other load does not count. For each subgraph, the least of the rounds."""
    core, config = hetero.Core(), {"INFERENCE_NUM_THREADS": 1}
    table = Table("model", "subgraphs", "whole", "subgraphs together", "more")
    for name in names:
        proto, inputs = real_models.load(name)
        model, arrays = core.read_model(proto), list(inputs.values())
        one = measure_costs(core, model, "CPU.0", inputs, config=config, clock=time.thread_time)
        other = tuple(dataclasses.replace(entry, device="CPU.1") for entry in one.measurements)
        costs = Costs(one.model_name, one.digest, (*one.measurements, *other))
        plan = core.plan(model, "HETERO:CPU.0,CPU.1", {**LATENCY, **config, "COSTS": costs})
        nodes = [plan.assignment.partition.nodes(i) for i in range(plan.num_subgraphs)]
        parts = model.extract_all(nodes, [f"subgraph{i}" for i in range(len(nodes))])
        whole = core.compile_model(model, "CPU.0", config).new_runner()
        runners = [core.compile_model(part, "CPU.0", config).new_runner() for part in parts]
        for device in range(len(plan.devices)):  # as the runtime does
            of_device = [runners[i] for i in np.flatnonzero(plan.assignment.partition.device_of == device).tolist()]
            for runner in of_device[1:]:
                runner.share_scratch(of_device[0])  # type: ignore[attr-defined]
        seconds = np.full(1 + len(runners), np.inf)
        for _ in range(rounds):
            values = dict(zip((port.name for port in model.inputs), arrays, strict=True))
            begin = time.thread_time()
            whole.run(arrays)
            seconds[0] = min(seconds[0], time.thread_time() - begin)
            for number, (part, runner) in enumerate(zip(parts, runners, strict=True), 1):
                reads = [values[port.name] for port in part.inputs]
                begin = time.thread_time()
                results = runner.run(reads)
                seconds[number] = min(seconds[number], time.thread_time() - begin)
                values.update(zip((port.name for port in part.outputs), results, strict=True))
        together = seconds[1:].sum()
        more = f"{together / seconds[0] - 1:.0%}"
        table.add(name, f"{plan.num_subgraphs}", duration(seconds[0]), duration(together), more)
    return table


def sharing(rounds: int) -> Table:
    """Two threads, each with its own compiled model, beside one alone."""
    core, one_thread = hetero.Core(), {"INFERENCE_NUM_THREADS": 1}
    big = (4096, 1024)  # 16 MiB: more than the caches of a core
    works: dict[str, tuple[onnx.ModelProto, Any]] = {
        "products of 640 x 640": (products_model(branches=False), np.ones((640, 640), np.float32)),
        "Relu of 16 MiB": (_elementwise(big), np.ones(big, np.float32)),
    }
    if real_models.missing("light_inception_v1") is None:
        proto, inputs = real_models.load("light_inception_v1")
        works["light_inception_v1"] = (proto, next(iter(inputs.values())))
    table = Table("two CPU devices at work", "slower than alone")
    for name, (proto, x) in works.items():
        model = core.read_model(proto)
        runners = [core.compile_model(model, f"CPU.{i}", one_thread).new_runner() for i in range(2)]

        def together(runners: Sequence[Any] = runners, x: Any = x) -> None:
            other = threading.Thread(target=lambda: [runners[1].run([x]) for _ in range(10)])
            other.start()
            for _ in range(10):
                runners[0].run([x])
            other.join()

        def alone(runners: Sequence[Any] = runners, x: Any = x) -> None:
            for _ in range(10):
                runners[0].run([x])

        times = elapsed_times({"together": together, "alone": alone}, rounds)
        table.add(name, f"{min(times['together']) / min(times['alone']) - 1:.1%}")
    return table


def _elementwise(shape: tuple[int, int]) -> onnx.ModelProto:
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", ports[:1], ports[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


# ---- the cost of planning


def scheduler(kind: str, nodes: int, devices: int) -> tuple[Scheduler, np.ndarray]:
    """Random work of up to 100 us per node; values of 100 kB over links of 10 GB/s."""
    src, dst, device = make(kind, nodes)
    n, rng = len(device), np.random.default_rng(0)
    graph = Graph.from_edges(src, dst, n)
    work, zero = np.tile(rng.random(n) * 1e-4, (devices, 1)), np.zeros((devices, devices))
    problem = AssignmentProblem.from_graph(graph, work, np.full(n, 1e5), zero, zero + 1e-10)
    return Scheduler(graph, problem, np.full(devices, 2e-6)), device


def search(kinds: Sequence[str], sizes: Sequence[int]) -> Table:
    """Values over their budget are bold: 30 sorts for the cut into runs at a million nodes."""
    table = Table("kind", "nodes", "one sort", "runs", "list scheduling", "lower bound")
    for size, kind in itertools.product(sizes, kinds):
        of_kind, device = scheduler(kind, size, 4)
        csr = of_kind.graph._csr
        machine = of_kind._machine
        works = {
            "sort": partial(_graph.kahn, csr),
            "runs": partial(machine.runs, device),
            "list": machine.assign,
            "bound": machine.bound,
        }
        times = {name: min(elapsed) for name, elapsed in _cpu_times(works, 5).items()}
        ratios = {name: times[name] / times["sort"] for name in works}
        runs = f"{ratios['runs']:.1f}"
        over = size >= 1_000_000 and ratios["runs"] > 30
        cells = [kind, f"{len(device):,}", duration(times["sort"]), f"**{runs}**" if over else runs]
        table.add(*cells, f"{ratios['list']:.1f}", f"{ratios['bound']:.1f}")
    return table


def _cpu_times(works: Mapping[str, Any], rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            begin = time.process_time()
            work()
            times[name].append(time.process_time() - begin)
    return times


def plan(kinds: Sequence[str], sizes: Sequence[int]) -> Table:
    core, count = hetero.Core(), 4
    devices = register_npus(core, count, flops_per_s=1e9, bytes_per_s=1e8)
    table = Table(f"{count} devices", "nodes", "plan", "subgraphs", "predicted", "by priority", "at least")
    for size, kind in itertools.product(sizes, kinds):
        model = core.read_model(model_of(kind, size).SerializeToString())
        model.type_table()  # shape inference, once for a model
        begin = cpu_time_with_children()
        made = core.plan(model, devices, LATENCY)
        seconds = cpu_time_with_children() - begin
        latency = made.latency
        assert latency is not None
        text = f"{seconds:.2f} s"
        times = (latency.total_s, latency.by_priority_s, latency.lower_bound_s)
        over = size <= 100_000 and seconds > 2
        table.add(kind, f"{size:,}", f"**{text}**" if over else text, f"{made.num_subgraphs:,}", *map(duration, times))
    return table


def exact(count: int) -> Table:
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests" / "helpers"))
    from schedule_cases import least_makespan_of_nodes, random_case  # type: ignore[import-not-found]

    table = Table("10 nodes", "predicted to the minimum: median", "worst", "lower bound to the minimum: median")
    for devices in (2, 3):
        found, bounds = [], []
        for seed in range(count):
            case = random_case(np.random.default_rng(seed), 10, devices, launch=0.0, links=0.0, hand_over=0.0)
            minimum = least_makespan_of_nodes(case)
            start = np.argmax(np.isfinite(case.problem.work[:, :-1]), axis=0).astype(np.int32)
            found.append(least_makespan(case.scheduler, [start]).latency / minimum)
            bounds.append(case.scheduler.lower_bound() / minimum)
        cells = (f"{statistics.median(found):.2f}", f"{max(found):.2f}", f"{statistics.median(bounds):.2f}")
        table.add(f"{devices} devices", *cells)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("sleeping", "hints", "cpu", "cuts", "sharing", "search", "plan", "exact"))
    parser.add_argument(
        "--models",
        nargs="*",
        default=["light_inception_v1"],
        choices=[*real_models.MODELS, *real_models.OTHERS],
        help="for cuts, and cpu beside the towers",
    )
    parser.add_argument("--rounds", type=int, help="for sleeping, hints (inferences), cpu, cuts and sharing")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND", help="of graphs")
    parser.add_argument("--sizes", nargs="+", type=int, metavar="NODES", help="for search and plan")
    parser.add_argument("--graphs", type=int, default=40, help="for exact")
    arguments = parser.parse_args()
    kinds, sizes = arguments.kinds, arguments.sizes
    tables = {
        "sleeping": partial(sleeping, arguments.rounds or 9),
        "hints": partial(hints, arguments.rounds or 40),
        "cpu": partial(cpu, arguments.models, arguments.rounds or 60),
        "cuts": partial(cuts, arguments.models, arguments.rounds or 60),
        "sharing": partial(sharing, arguments.rounds or 8),
        "search": partial(search, kinds, sizes or (100_000, 1_000_000)),
        "plan": partial(plan, kinds, sizes or (100_000,)),
        "exact": partial(exact, arguments.graphs),
    }
    tables[arguments.what]().print()


if __name__ == "__main__":
    main()
