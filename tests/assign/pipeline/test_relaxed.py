"""The relaxation of stages: its bounds against exhaustive search, its orders, and plans on families of graphs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetero.assign import AssignmentProblem
from hetero.assign.pipeline import PipelineError, StageCosts, balance_stages, relaxed
from hetero.assign.pipeline.orders import ready_first, stage_ranges
from hetero.assign.pipeline.relaxed import Relaxation, share_bound
from hetero.partition import Graph
from pipeline_cases import least_bottleneck, random_case
from pipeline_families import FAMILIES, VARIANTS, family_case, obvious_bottleneck

SEEDS = st.integers(0, 2**32 - 1)


def relaxation_of(costs):
    return Relaxation.of(costs, *stage_ranges(costs.graph, costs.allowed), share_bound(costs)[1])


def check_relaxation(costs):
    """Its stages and tendencies ascend along edges, and its orders are topological."""
    graph, n = costs.graph, costs.graph.num_nodes
    found = relaxation_of(costs)
    source = np.repeat(np.arange(n), np.diff(graph.indptr))
    assert (found.stage_of[source] <= found.stage_of[graph.indices]).all()
    assert (found.tendency[source] <= found.tendency[graph.indices]).all()
    for order in found.orders(graph):
        position = np.empty(n, np.int64)
        position[order] = np.arange(n)
        assert sorted(order.tolist()) == list(range(n))
        assert (position[source] < position[graph.indices]).all()
    return found


@pytest.fixture(params=["all boundaries", "halving", "halving, no bound"])
def size(request, monkeypatch):
    """The three ways for graphs of different sizes."""
    if request.param != "all boundaries":
        monkeypatch.setattr(relaxed, "_MAX_VERTICES", 0)
    if request.param == "halving, no bound":
        monkeypatch.setattr(relaxed, "_MAX_BOUND_VERTICES", 0)
    return request.param


@pytest.mark.usefixtures("size")
@pytest.mark.parametrize("cases", [24, pytest.param(60, marks=pytest.mark.exhaustive)])
def test_bounds_never_exceed_the_optimum(cases):
    tight = 0
    for seed in range(cases):
        rng = np.random.default_rng(seed)
        n, k = int(rng.integers(1, 7)), int(rng.integers(1, 5))
        case = random_case(rng, n, k, links=seed % 2 == 0, restricted=seed % 3 == 0)
        if seed % 4:  # devices that suit different nodes
            factors = rng.choice([1.0, 10.0, 0.0], (k, n), p=[0.5, 0.4, 0.1])
            case = case._replace(
                work=np.where(np.isinf(case.work), np.inf, np.where(np.isinf(case.work), 0, case.work) * factors)
            )
        least = least_bottleneck(case, all_used=False)
        costs = StageCosts(case.graph, case.problem, case.launch, k)
        try:
            found = check_relaxation(costs)
        except PipelineError:
            assert np.isinf(least)
            continue
        share, weights = share_bound(costs)
        assert weights.sum() == pytest.approx(1)
        for bound in (costs.lower_bound(), share, found.lower_bound):
            assert 0 <= bound <= least * (1 + 1e-9)
        tight += max(share, found.lower_bound) > costs.lower_bound() * 1.01
    assert tight > cases / 6  # it improves on what each node takes by itself


@pytest.mark.spread(2)
@pytest.mark.usefixtures("size")
@pytest.mark.parametrize("seed", range(12))
def test_ranges_with_gaps(seed):
    """Nodes that only the first and the last stages may have, or a few in between that are far apart."""
    rng = np.random.default_rng(seed)
    case = random_case(rng, 5, 5, links=False)
    case.work[1:-1][rng.random((3, 5)) < 0.6] = np.inf
    found = check_relaxation(StageCosts(case.graph, case.problem, case.launch, 5))
    assert found.lower_bound <= least_bottleneck(case, all_used=False) * (1 + 1e-9)


def problem_of(costs):
    nothing = np.zeros((costs.num_stages, costs.num_stages))
    return AssignmentProblem.from_graph(costs.graph, costs.work, np.ones(costs.graph.num_nodes), nothing, nothing)


@pytest.mark.parametrize("family", FAMILIES)
def test_devices_that_suit_different_nodes(family):
    """Near the lower bound, and never worse than the obvious plan."""
    for variant in VARIANTS:
        case = family_case(family, variant, 300, 3, 0.3, 1)
        found = balance_stages(*case)
        assert found.times.slowest <= obvious_bottleneck(case) * 1.001
        assert found.gap < 0.4


@pytest.mark.parametrize("family", ["chains of segments", "recommendation"])
def test_large_graphs(family):
    case = family_case(family, "", 8_000, 6, 0.3, 1)
    found = balance_stages(*case)
    assert found.times.slowest <= obvious_bottleneck(case) * 1.01
    assert found.lower_bound > 0


def test_costs_at_the_edges():
    graph = Graph.from_edges([0, 1], [1, 2], 3)
    for work in (np.zeros((3, 3)), np.array([[0.0, 0, 5], [0, 0, 0], [0, 7, 0]]), np.full((3, 3), 1e-300)):
        costs = StageCosts(
            graph,
            AssignmentProblem.from_graph(graph, work, np.ones(3), np.zeros((3, 3)), np.zeros((3, 3))),
            np.zeros(3),
        )
        found = check_relaxation(costs)
        assert np.isfinite(found.lower_bound)
        assert found.lower_bound <= balance_stages(graph, problem_of(costs), np.zeros(3)).times.slowest * (1 + 1e-9)


def test_proportional_devices():
    graph = Graph.from_edges([0, 1], [1, 2], 3)
    own = np.array([1.0, 2, 3])
    nearly = np.stack([own, 2 * own])
    nearly[1, 2] += 0.01
    for work, expected in (
        (np.stack([own, own]), True),
        (np.stack([own, 7 * own]), True),
        (np.zeros((2, 3)), True),
        (nearly, False),
        (np.stack([own, [1.0, 2, np.inf]]), False),
    ):
        problem = AssignmentProblem.from_graph(graph, work, np.ones(3), np.zeros((2, 2)), np.zeros((2, 2)))
        assert relaxed.are_proportional(StageCosts(graph, problem, np.zeros(2))) == expected


def test_many_stages():
    case = family_case("drifting", "", 50, 40, 0.0, 1)
    found = balance_stages(*case)
    assert found.lower_bound <= found.times.slowest < np.inf


@given(SEEDS, st.integers(1, 30))
def test_ready_first(seed, n):
    """Against the definition: at each step, the ready node of the lowest priority, then of the lowest position."""
    rng = np.random.default_rng(seed)
    graph = random_case(rng, n, 2).graph
    priority = rng.integers(0, 3, n)
    position = np.empty(n, np.int64)
    position[graph.topological_order] = np.arange(n)
    placed: list[int] = []
    while len(placed) < n:
        ready = [v for v in range(n) if v not in placed and set(graph.predecessors(v).tolist()) <= set(placed)]
        placed.append(min(ready, key=lambda v: (priority[v], position[v])))
    assert ready_first(graph, priority).tolist() == placed
