"""Assignment by cost: its time and budgets, other libraries' maximum flow, predictions against measurements.

python bench/costs.py budgets [--largest N]     CPU seconds over every kind of graph
python bench/costs.py libraries [--nodes N]     maximum flow by what is installed of SciPy, igraph, OR-Tools, PyMaxflow
python bench/costs.py models                    real models: predicted and measured, by cost and by priority
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import hetero
from graphs import KINDS, make
from hetero._assign import min_cut
from hetero.assign import AssignmentProblem, assign_by_cost
from hetero.base.formatting import duration
from hetero.partition import Graph


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

BUDGETS = {10_000: 0.05, 100_000: 1.0, 1_000_000: 20.0}
REGIMES = ("small", "even", "large", "pins", "halves", "across")
Network = tuple[Any, Any, Any, Any, Any]


def problem(kind: str, n: int, regime: str) -> AssignmentProblem:
    """Exponential work and sizes. Transfers cost a tenth of the work, as much, or ten times as much. "pins": nodes of
    the kind's second device can only be there. "halves": each half of the graph prefers another device, and a transfer
    costs more than all that is gained in a thousand nodes, so that flow has to go far. "across": the same, but no cut
    pays, and all flow has to pass to the other half."""
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


def budgets(largest: int) -> Iterator[str]:
    sizes = [n for n in BUDGETS if n <= largest]
    yield "| kind | " + " | ".join(f"{n:,} nodes, {regime}" for n in sizes for regime in REGIMES) + " |"
    yield "|---" * (1 + len(sizes) * len(REGIMES)) + "|"
    worst = dict.fromkeys(sizes, 0.0)
    for kind in (*KINDS, *SHAPES):
        cells = []
        for n in sizes:
            for regime in REGIMES:
                given = problem(kind, n, regime)
                taken = min(cpu_time(lambda given=given: assign_by_cost(given)) for _ in range(3 if n < 10**6 else 1))
                worst[n] = max(worst[n], taken)
                cells.append(duration(taken))
        yield f"| {kind} | {' | '.join(cells)} |"
    for n in sizes:
        yield f"worst at {n:,}: {duration(worst[n])} (budget {duration(BUDGETS[n])})"


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


def libraries(nodes: int) -> Iterator[str]:
    yield "| graph | " + " | ".join(LIBRARIES) + " |"
    yield "|---" * (1 + len(LIBRARIES)) + "|"
    for kind in ("transformer", "random", "comb"):
        for factor in (1.0, 10.0):
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
            yield f"| {kind}, transfers {factor:g} times the work | {' | '.join(cells)} |"


# ---- real models


def models(rounds: int) -> Iterator[str]:
    """One thread, CPU time of the process: on a busy machine the clock tells little."""
    from hetero.assign.costs import Costs
    from hetero.measure import measure_costs, measure_link
    from real_models import MODELS, load

    core, clock = hetero.Core(), time.process_time
    yield "| model | devices | plan | subgraphs | predicted | measured | error | to priority |"
    yield "|---|---|---|---|---|---|---|---|"
    errors: dict[str, list[float]] = {}
    ratios = []
    for devices in (("ORT", "CPU"), ("CPU", "ORT"), ("TEMPLATE", "CPU")):
        config = {} if "TEMPLATE" in devices else {"INFERENCE_NUM_THREADS": 1}
        links = [measure_link(core, *pair, config, clock) for pair in (devices, devices[::-1])]
        for case in list(MODELS)[:5]:
            if "TEMPLATE" in devices and case != "light_squeezenet":
                continue  # others take seconds on it
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
                "priority": core.plan(model, listed, by_cost, pins=by_priority),
                "cost": core.plan(model, listed, by_cost),
                "halves": core.plan(model, listed, by_cost, pins=pins),
            }
            compiled = [core.compile_model(model, plan, config) for plan in plans.values()]
            measured = least_times(compiled, inputs, 3 if "TEMPLATE" in devices else rounds, clock)
            for (kind, plan), seconds in zip(plans.items(), measured, strict=True):
                predicted = plan.latency.total_s
                error, ratio = predicted / seconds - 1, seconds / measured[0]
                errors.setdefault(kind, []).append(abs(error))
                if kind == "cost":
                    ratios.append(ratio)
                yield (
                    f"| {case} | {', '.join(devices)} | {kind} | {plan.num_subgraphs} | {duration(predicted)} | "
                    f"{duration(seconds)} | {error:+.0%} | {ratio:.2f} |"
                )
    told = ", ".join(f"{kind} {statistics.median(each):.0%}" for kind, each in errors.items())
    yield f"median error: {told}; by cost takes at most {max(ratios):.2f} of what priority takes"


def least_times(
    compiled: Sequence[Any], inputs: Mapping[str, Any], rounds: int, clock: Callable[[], float]
) -> list[float]:
    """The least seconds of an inference of each, taken in turns."""
    least = [np.inf] * len(compiled)
    for number in range(rounds + 1):
        for i, model in enumerate(compiled):
            begin = clock()
            model(inputs)
            if number:
                least[i] = min(least[i], clock() - begin)
    return least


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("budgets", "libraries", "models"))
    parser.add_argument("--largest", type=int, default=100_000)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    lines = {
        "budgets": lambda: budgets(given.largest),
        "libraries": lambda: libraries(given.nodes),
        "models": lambda: models(given.rounds),
    }
    for line in lines[given.what]():
        print(line, flush=True)


if __name__ == "__main__":
    main()
