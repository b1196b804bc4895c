"""Assignment by cost: its time and budgets, other libraries' maximum flow, predictions beside measurements.

python bench/costs.py budgets       # CPU time of the slowest kind of graph; --by-kind: of each kind
python bench/costs.py libraries     # maximum flow by SciPy, igraph, OR-Tools and PyMaxflow, if installed
python bench/costs.py models        # real models: predicted and measured time of plans
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

import hetero
from graphs import KINDS, make
from hetero._assign import min_cut
from hetero.assign import AssignmentProblem, assign_by_cost
from hetero.assign.costs import Costs
from hetero.base.formatting import duration
from hetero.measure import measure_costs, measure_link
from hetero.partition import Graph
from real_models import available, load
from table import Table


def _grid(width: int) -> Callable[[int], tuple[Any, Any, int]]:
    """So many nodes a row; each reads the one before it and the one above it."""

    def make(n: int) -> tuple[Any, Any, int]:
        v = np.arange(n // width * width).reshape(-1, width)
        pairs = [(v[:, :-1], v[:, 1:]), (v[:-1], v[1:])]
        return np.concatenate([a.ravel() for a, _ in pairs]), np.concatenate([b.ravel() for _, b in pairs]), v.size

    return make


def _layers(n: int) -> tuple[Any, Any, int]:
    """Layers of 16, each node of which reads all of the layer before."""
    v = np.arange(n // 16 * 16).reshape(-1, 16)
    src, dst = np.broadcast_arrays(v[:-1, :, None], v[1:, None, :])
    return src.ravel(), dst.ravel(), v.size


def _dense_blocks(n: int) -> tuple[Any, Any, int]:
    """As in DenseNet: blocks of 24 nodes, each of which reads all of its block before it; the last feeds the next."""
    v = np.arange(n)
    pairs = [(v[v % 24 >= d] - d, v[v % 24 >= d]) for d in range(1, 24)] + [(v[24::24] - 1, v[24::24])]
    return np.concatenate([a for a, _ in pairs]), np.concatenate([b for _, b in pairs]), n


def _far_apart(n: int) -> tuple[Any, Any, int]:
    """Each node reads two of all before it."""
    rng, node = np.random.default_rng(0), np.arange(1, n)
    edges = [np.stack([(rng.random(n - 1) * node).astype(np.int64), node]) for _ in range(2)]
    src, dst = np.unique(np.concatenate(edges, axis=1), axis=1)
    return src, dst, n


SHAPES: Mapping[str, Callable[[int], tuple[Any, Any, int]]] = {
    "grid, 4 wide": _grid(4),
    "grid, 30 wide": _grid(30),
    "grid, 300 wide": _grid(300),
    "dense layers": _layers,
    "dense blocks": _dense_blocks,
    "far apart": _far_apart,
}
"""Beside `KINDS`: what maximum flows may find hard. Sources, targets, number of nodes; no devices."""

PAIRS = (("ORT", "CPU"), ("CPU", "ORT"), ("TEMPLATE", "CPU"))
BUDGETS = {10_000: 0.05, 100_000: 1.0, 1_000_000: 20.0}
REGIMES = {
    "small": "a tenth",
    "even": "as much",
    "large": "ten times",
    "pins": "pinned",
    "halves": "halves",
    "across": "across",
}
"""The regimes of `problem`, and the columns of the table. The first three: the cost of transfers relative to the
work."""
MILLION = 1_000_000
SLOWEST_KINDS = ("comb", "random")  # of all kinds at a million nodes
Network = tuple[Any, Any, Any, Any, Any]


def problem(kind: str, n: int, regime: str) -> AssignmentProblem:
    """Exponential work and sizes. Transfers cost a tenth of the work, as much, or ten times as much. "pins": nodes of
    the kind's second device can only run there. "halves": the two halves of the graph prefer different devices, and a
    transfer costs more than a thousand nodes gain, so flow has to go far. "across": the same, but no cut pays, and all
    flow has to pass to the other half."""
    if kind in KINDS:
        src, dst, device = make(kind, n)
        n = len(device)
    else:
        src, dst, n = SHAPES[kind](n)
        device = np.random.default_rng(1).random(n) < 0.1
    rng = np.random.default_rng(0)
    work, size = rng.exponential(1, (2, n)), rng.exponential(1, n)
    if regime in ("small", "large"):
        size *= 0.1 if regime == "small" else 10
    if regime == "pins":
        work[0, device == 1] = np.inf
    if regime in ("halves", "across"):
        work[:] = 1
        work[0, n // 2 :] += rng.random(n - n // 2)
        work[1, : n // 2] += rng.random(n // 2)
        size[:] = 1000 if regime == "halves" else n
    graph = Graph.from_edges(src, dst, n)
    return AssignmentProblem.from_graph(graph, work, size, np.zeros((2, 2)), np.ones((2, 2)))


def budgets(kinds: Sequence[str], sizes: Sequence[int], by_kind: bool = False) -> Table:
    """At a million nodes, only the regimes and the kinds that are slowest there, and a single run."""
    regimes = {size: REGIMES if size < MILLION else ("large", "across") for size in sizes}
    taken: dict[tuple[int, str, str], float] = {}
    for size in sizes:
        for kind in kinds if size < MILLION else [kind for kind in kinds if kind in SLOWEST_KINDS]:
            for regime in regimes[size]:
                case = problem(kind, size, regime)
                runs = [cpu_time(partial(assign_by_cost, case)) for _ in range(3 if size < MILLION else 1)]
                taken[size, kind, regime] = min(runs)
    if by_kind:
        table = Table("kind", *(f"{size:,}, {REGIMES[name]}" for size in sizes for name in regimes[size]))
        for kind in kinds:
            times = (taken.get((size, kind, name)) for size in sizes for name in regimes[size])
            table.add(kind, *("" if seconds is None else duration(seconds) for seconds in times))
        return table
    table = Table("nodes", *REGIMES.values(), "slowest kind", "budget")
    for size in sizes:
        of_size = {(kind, regime): seconds for (n, kind, regime), seconds in taken.items() if n == size}
        worst = [max((s for (_, name), s in of_size.items() if name == regime), default=None) for regime in REGIMES]
        cells = ["" if seconds is None else duration(seconds) for seconds in worst]
        slowest = max(of_size, key=lambda case: of_size[case])
        budget = duration(BUDGETS[size]) if size in BUDGETS else ""
        table.add(f"{size:,}", *cells, slowest[0], budget)
    return table


def cpu_time(work: Callable[[], Any]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


# ---- other libraries


def network(kind: str, n: int, factor: float) -> Network:
    """Edges with the same capacity both ways, as whole numbers."""
    src, dst, device = make(kind, n)
    rng = np.random.default_rng(0)
    excess = np.round((rng.exponential(1, len(device)) - rng.exponential(1, len(device))) * 100).astype(np.int64)
    capacity = np.round(rng.exponential(100 * factor, len(src))).astype(np.int64)
    return src, dst, capacity, capacity, excess


def with_terminals(net: Network) -> tuple[Any, Any, Any, int]:
    """Tails, heads, capacities with arcs of a source and a sink, which is the last vertex."""
    a, b, there, back, excess = net
    n = len(excess)
    v = np.arange(n)
    tail, head = np.concatenate([a, b, np.full(n, n), v]), np.concatenate([b, a, v, np.full(n, n + 1)])
    return tail, head, np.concatenate([there, back, np.maximum(excess, 0), np.maximum(-excess, 0)]), n


def by_scipy(net: Network) -> int:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    tail, head, capacity, n = with_terminals(net)
    graph = csr_array((capacity.astype(np.int32), (tail, head)), shape=(n + 2, n + 2))
    return int(maximum_flow(graph, n, n + 1).flow_value)


def by_igraph(net: Network) -> int:
    import igraph

    tail, head, capacity, n = with_terminals(net)
    graph = igraph.Graph(n=n + 2, edges=np.stack([tail, head], axis=1), directed=True)
    return round(graph.maxflow_value(n, n + 1, capacity.tolist()))


def by_ortools(net: Network) -> int:
    from ortools.graph.python import max_flow

    tail, head, capacity, n = with_terminals(net)
    solver = max_flow.SimpleMaxFlow()
    solver.add_arcs_with_capacity(tail, head, capacity)
    solver.solve(n, n + 1)
    return int(solver.optimal_flow())


def by_pymaxflow(net: Network) -> int:
    import maxflow

    a, b, there, back, excess = net
    graph = maxflow.GraphInt(len(excess), len(a))
    graph.add_nodes(len(excess))
    graph.add_edges(a, b, there, back)
    graph.add_grid_tedges(np.arange(len(excess)), np.maximum(excess, 0), np.maximum(-excess, 0))
    return int(graph.maxflow())


LIBRARIES: Mapping[str, Callable[[Network], int]] = {
    "hetero": lambda net: min_cut(*net)[0],
    "SciPy": by_scipy,
    "igraph": by_igraph,
    "OR-Tools": by_ortools,
    "PyMaxflow": by_pymaxflow,
}


def libraries(nodes: int, kinds: Sequence[str] = ("transformer", "random", "comb")) -> Table:
    table = Table("graph", *LIBRARIES)
    for kind in kinds:
        for factor, regime in ((1.0, "as much"), (10.0, "ten times")):
            net = network(kind, nodes, factor)
            flows, cells = set(), []
            for solve in LIBRARIES.values():
                begin = time.process_time()
                try:
                    flows.add(solve(net))
                except ImportError:
                    cells.append("not installed")
                    continue
                cells.append(duration(time.process_time() - begin))
            assert len(flows) == 1, f"flows differ: {flows}"
            table.add(f"{kind}, {regime}", *cells)
    return table


# ---- real models


def models(cases: Sequence[str], pairs: Sequence[tuple[str, str]] = PAIRS, rounds: int = 20) -> Table:
    """CPU times with one thread. TEMPLATE is slow, so it gets only SqueezeNet, three times."""
    core, clock = hetero.Core(), time.process_time
    plan_names = ("by priority", "by cost", "halves")
    table = Table(
        *("model", "devices", "subgraphs"),
        *(f"{plan}: {what}" for plan in plan_names for what in ("predicted", "measured")),
        "by cost to by priority",
    )
    errors: dict[str, list[float]] = {plan: [] for plan in plan_names}
    ratios = []
    for devices in pairs:
        on_template = "TEMPLATE" in devices
        config = {} if on_template else {"INFERENCE_NUM_THREADS": 1}
        links = [measure_link(core, *pair, config, clock) for pair in (devices, devices[::-1])]
        for case in cases:
            if on_template and case != "light_squeezenet":
                continue
            proto, inputs = load(case)
            model = core.read_model(proto)
            costs = Costs.of_model(model, links=links)
            for device in devices:
                runs = 3 if device == "TEMPLATE" else rounds
                costs = costs.merge(measure_costs(core, model, device, inputs, runs=runs, config=config, clock=clock))
            listed, by_cost = f"HETERO:{','.join(devices)}", {"ASSIGNMENT": "COST", "COSTS": costs}
            half = dict(zip(model.keys, np.arange(model.num_nodes) >= model.num_nodes / 2, strict=True))
            pins = {key: devices[int(second)] for key, second in half.items()}
            by_priority = core.plan(model, listed).affinity
            plans = {
                "by priority": core.plan(model, listed, by_cost, pins=by_priority),
                "by cost": core.plan(model, listed, by_cost),
                "halves": core.plan(model, listed, by_cost, pins=pins),
            }
            compiled = [core.compile_model(model, plan, config) for plan in plans.values()]
            measured = minimum_times(compiled, inputs, 3 if on_template else rounds, clock)
            cells = []
            for (name, plan), seconds in zip(plans.items(), measured, strict=True):
                predicted = plan.latency.total_s
                errors[name].append(abs(predicted / seconds - 1))
                cells += [duration(predicted), duration(seconds)]
            ratios.append(measured[1] / measured[0])
            subgraphs = ", ".join(f"{plan.num_subgraphs}" for plan in plans.values())
            table.add(case, ", ".join(devices), subgraphs, *cells, f"{ratios[-1]:.2f}")
    if ratios:
        medians = [cell for each in errors.values() for cell in ("", f"{statistics.median(each):.0%}")]
        table.add("median error; worst ratio", "", "", *medians, f"{max(ratios):.2f}")
    return table


def minimum_times(
    compiled: Sequence[Any], inputs: Mapping[str, Any], rounds: int, clock: Callable[[], float]
) -> list[float]:
    """The minimum seconds of an inference of each, in interleaved rounds."""
    minima = [np.inf] * len(compiled)
    for number in range(rounds + 1):
        for i, model in enumerate(compiled):
            begin = clock()
            model(inputs)
            if number:
                minima[i] = min(minima[i], clock() - begin)
    return minima


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("budgets", "libraries", "models"))
    parser.add_argument("words", nargs="*", help="models: in the name of a model; default: the first five")
    parser.add_argument("--kinds", nargs="+", metavar="KIND", help="of graphs")
    parser.add_argument("--sizes", nargs="+", type=int, default=[10_000, 100_000], metavar="NODES", help="for budgets")
    parser.add_argument("--by-kind", action="store_true", help="for budgets: a row for each kind of graph")
    parser.add_argument("--nodes", type=int, default=100_000, help="for libraries")
    parser.add_argument("--rounds", type=int, default=20, help="for models")
    parser.add_argument("--devices", nargs=2, metavar="DEVICE", help="for models; default: three pairs")
    arguments = parser.parse_args()
    if arguments.what == "budgets":
        budgets(arguments.kinds or (*KINDS, *SHAPES), arguments.sizes, arguments.by_kind).print()
    elif arguments.what == "libraries":
        libraries(arguments.nodes, arguments.kinds or ("transformer", "random", "comb")).print()
    else:
        pairs = [tuple(arguments.devices)] if arguments.devices else PAIRS
        models(available(arguments.words) if arguments.words else available()[:5], pairs, arguments.rounds).print()


if __name__ == "__main__":
    main()
