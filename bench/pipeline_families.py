"""Families of graphs whose nodes suit different devices, and two plans to compare with: the obvious and an exact one.

Each family is a function of a random generator, nodes and stages that returns edges, the device that each node suits,
and factors of work per device. Work on other devices is 3 to 20 times as much.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetero.assign import AssignmentProblem
from hetero.assign.pipeline import StageCosts
from hetero.partition import Graph

Edges = list[tuple[int, int]]
Rng = np.random.Generator


class Case(NamedTuple):
    """A pipeline: the graph, the costs, and seconds per launch of each stage."""

    graph: Graph
    problem: AssignmentProblem
    launch: NDArray[np.float64]


def _chains(rng: Rng, n: int, k: int) -> tuple[Edges, list[int]]:
    """Chains side by side that a last node joins. Each has a segment for each device, in order, of random length."""
    count = max(2, n // (4 * k))
    length = max(k + 1, n // count)
    edges: Edges = []
    suits: list[int] = []
    for _ in range(count):
        cuts = np.sort(rng.choice(np.arange(1, length), k - 1, replace=False))
        first = len(suits)
        suits += np.searchsorted(cuts, np.arange(length), "right").tolist()
        edges += [(v, v + 1) for v in range(first, len(suits) - 1)]
        edges.append((len(suits) - 1, count * length))
    return edges, [*suits, k - 1]


def _towers(rng: Rng, n: int, k: int) -> tuple[Edges, list[int]]:
    """Towers that each suit one device, numbered layer by layer; a last node joins them."""
    count = 2 * k
    n = max(n, 2 * count)
    device = rng.permutation(np.arange(count) % k).tolist()
    edges = [(v, v + count) for v in range(n - 1 - count)] + [(v, n - 1) for v in range(n - 1 - count, n - 1)]
    return edges, [device[v % count] for v in range(n - 1)] + [k - 1]


def _recommendation(rng: Rng, n: int, k: int) -> tuple[Edges, list[int]]:
    """Lookups with a projection each and a bottom network, an interaction of all, and a top network."""
    edges: Edges = []
    suits: list[int] = []
    joined = []
    for _ in range(max(1, 3 * n // 10)):
        edges.append((len(suits), len(suits) + 1))
        suits += [0, 1]
        joined.append(len(suits) - 1)
    bottom = len(suits)
    suits += [1] * max(1, n // 5)
    edges += [(v, v + 1) for v in range(bottom, len(suits) - 1)]
    joined.append(len(suits) - 1)
    edges += [(v, len(suits)) for v in joined]
    top = len(suits)
    suits += [k - 1, *(1 if i % 2 else k - 1 for i in range(max(1, n - len(suits) - 1)))]
    edges += [(v, v + 1) for v in range(top, len(suits) - 1)]
    return edges, suits


def _mixed_operators(rng: Rng, n: int, k: int) -> tuple[Edges, list[int]]:
    """Nodes that read one or two of the six before, of types that suit different devices."""
    edges = [(int(u), v) for v in range(1, n) for u in rng.integers(max(0, v - 6), v, rng.integers(1, 3))]
    return edges, rng.integers(0, k, n).tolist()


def _segments_in_any_order(rng: Rng, n: int, k: int) -> tuple[Edges, list[int]]:
    """Chains of ten nodes in three segments; each segment suits a random device."""
    edges: Edges = []
    suits: list[int] = []
    for _ in range(max(1, n // 10)):
        first = len(suits)
        suits += np.repeat(rng.integers(0, k, 3), (3, 3, 4)).tolist()
        edges += [(v, v + 1) for v in range(first, len(suits) - 1)]
    return edges, suits


def _drifting(rng: Rng, n: int, k: int) -> tuple[Edges, list[int]]:
    """Layers of four; the device that nodes suit rises with depth, with noise."""
    edges = [(int(u), v) for v in range(4, n) for u in rng.integers((v // 4 - 1) * 4, v // 4 * 4, 2)]
    device = np.clip(np.arange(n) / n * k + rng.normal(0, 0.4, n), 0, k - 1)
    return edges, device.astype(int).tolist()


def _u_net(rng: Rng, n: int, k: int) -> tuple[Edges, list[int]]:
    """A chain whose first half feeds its second half in reverse order."""
    edges = [(v, v + 1) for v in range(n - 1)] + [(v, n - 1 - v) for v in range(n // 2 - 1)]
    return edges, (np.arange(n) * k // n).tolist()


FAMILIES: Mapping[str, Callable[[Rng, int, int], tuple[Edges, list[int]]]] = {
    "chains of segments": _chains,
    "towers": _towers,
    "recommendation": _recommendation,
    "mixed operators": _mixed_operators,
    "segments in any order": _segments_in_any_order,
    "drifting": _drifting,
    "U-Net": _u_net,
}
VARIANTS = ("", "one fast device", "few heavy nodes", "equal devices")


def family_case(family: str, variant: str, n: int, k: int, link: float, seed: int) -> Case:
    """About ``n`` nodes over ``k`` devices. ``link``: transfers of a value take 0.05 to 0.35 of a node's work times
    this. ``variant``: "one fast device": devices differ in speed by up to 30; "few heavy nodes": a tenth of the nodes
    takes 30 times as long; "equal devices": nodes take equally long everywhere."""
    rng = np.random.default_rng([seed, n, k])
    edges, suits = FAMILIES[family](rng, n, k)
    count = len(suits)
    own = rng.uniform(0.5, 1.5, count)
    work = own * rng.uniform(3, 20, (k, count))
    work[suits, np.arange(count)] = own
    if variant == "one fast device":
        work *= rng.choice([0.1, 1, 3], (k, 1))
    elif variant == "few heavy nodes":
        work *= np.where(rng.random(count) < 0.1, 30, 1)
    elif variant == "equal devices":
        work[:] = own
    source, target = np.array(edges, np.int64).reshape(-1, 2).T
    graph = Graph.from_edges(source, target, count)
    latency, per_unit = np.full((k, k), 0.05 * link), np.full((k, k), 0.3 * link)
    return Case(
        graph, AssignmentProblem.from_graph(graph, work, rng.random(count), latency, per_unit), np.full(k, 0.02)
    )


def obvious_bottleneck(case: Case) -> float:
    """Seconds of the slowest stage if each node is on the device that it suits, unless a node that it depends on (or,
    in a second plan, that depends on it) is on a later (an earlier) one; the better of both plans."""
    graph = case.graph
    costs = StageCosts(graph, case.problem, case.launch)
    raised = costs.work.argmin(axis=0)
    lowered = raised.copy()
    order = graph.topological_order.tolist()
    for node in order:
        raised[node] = raised[[node, *graph.predecessors(node).tolist()]].max()
    for node in reversed(order):
        lowered[node] = lowered[[node, *graph.successors(node).tolist()]].min()
    return min(costs.times(raised).slowest, costs.times(lowered).slowest)


def exact_bottleneck(case: Case, seconds: float) -> tuple[float, float]:
    """The minimum bottleneck that CP-SAT finds in ``seconds``, and its lower bound."""
    from ortools.sat.python import cp_model

    graph, problem = case.graph, case.problem
    work = problem.work
    k, n = work.shape
    unit = 1e4  # whole numbers per second of cost
    model: Any = cp_model.CpModel()
    is_in = [[model.new_bool_var("") for _ in range(n)] for _ in range(k)]
    for node in range(n):
        model.add_exactly_one(is_in[stage][node] for stage in range(k))
        for stage in np.flatnonzero(np.isinf(work[:, node])).tolist():
            model.add(is_in[stage][node] == 0)
    stage_of = [sum(stage * is_in[stage][node] for stage in range(k)) for node in range(n)]
    bottleneck = model.new_int_var(0, 10**12, "")
    terms: list[list[Any]] = [[] for _ in range(k)]
    for stage in range(k):
        is_used = model.new_bool_var("")
        terms[stage].append(round(case.launch[stage] * unit) * is_used)
        for node in range(n):
            model.add_implication(is_in[stage][node], is_used)
            if np.isfinite(work[stage, node]):
                terms[stage].append(round(work[stage, node] * unit) * is_in[stage][node])
    for node in range(n):
        for successor in graph.successors(node).tolist():
            model.add(stage_of[node] <= stage_of[successor])
        for stage in range(1, k):
            transfer = problem.latency[0, stage] + problem.size[node] * problem.per_unit[0, stage]
            if transfer and len(graph.successors(node)):
                is_sent = model.new_bool_var("")
                for successor in graph.successors(node).tolist():
                    model.add_bool_or([~is_in[stage][successor], is_in[stage][node], is_sent])
                terms[stage].append(round(transfer * unit) * is_sent)
    for stage in range(k):
        model.add(sum(terms[stage]) <= bottleneck)
    model.minimize(bottleneck)
    solver: Any = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 1
    solver.solve(model)
    stages = [next(s for s in range(k) if solver.value(is_in[s][node])) for node in range(n)]
    return StageCosts(graph, problem, case.launch).times(stages).slowest, solver.best_objective_bound / unit
