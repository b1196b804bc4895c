"""Stages of pipelines against exhaustive search."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetero.assign import AssignmentProblem
from hetero.assign.by_stage import stage_partition
from hetero.assign.pipeline import NoRoom, PipelineError, StageCosts, TooManyStages, balance_stages, timeline
from hetero.assign.pipeline.orders import depth_first, other_orders, own_orders, random_order, stage_ranges
from hetero.errors import PartitionError
from hetero.partition import Graph, check_partition
from pipeline_cases import least_bottleneck, naive_times, random_case

SEEDS = st.integers(0, 2**32 - 1)


def chain_graph(n):
    return Graph.from_edges(np.arange(n - 1), np.arange(1, n), n)


def without_values(work):
    """A problem of work alone; [stages, nodes]."""
    k = len(work)
    return AssignmentProblem.from_values(work, [], [0], np.empty(0, np.int32), [], np.zeros((k, k)), np.zeros((k, k)))


def check_stages(case, found):
    """Stages in order, what they take as counted by hand, and the partition that they are."""
    stages = found.stage_of.tolist()
    assert all(stages[a] <= stages[b] for a, b in case.edges)
    np.testing.assert_allclose(found.times.total, naive_times(case, stages))
    partition = stage_partition(case.graph, found.stage_of)
    check_partition(case.graph, found.stage_of, partition.subgraph_of, ordered=True, maximal=True)
    assert (np.diff(partition.device_of) >= 0).all()


@given(SEEDS, st.integers(1, 8), st.integers(1, 4), st.booleans(), st.booleans())
def test_chains_are_exact(seed, n, k, links, restricted):
    case = random_case(np.random.default_rng(seed), n, k, chain=True, links=links, restricted=restricted)
    if n < k:
        with pytest.raises(TooManyStages, match=f"{k} stages"):
            balance_stages(case.graph, case.problem, case.launch, k)
        return
    least = least_bottleneck(case, all_used=False)
    if np.isinf(least):
        with pytest.raises(PipelineError):
            balance_stages(case.graph, case.problem, case.launch, k)
        return
    found = balance_stages(case.graph, case.problem, case.launch, k)
    check_stages(case, found)
    assert found.times.slowest == pytest.approx(least, rel=1e-6)
    with_all = least_bottleneck(case, all_used=True)
    if found.with_all is None:
        assert len(set(found.stage_of.tolist())) == k
    else:
        assert found.with_all == pytest.approx(with_all, rel=1e-6)
        assert with_all > least


@given(SEEDS, st.integers(2, 7), st.integers(2, 3), st.booleans(), st.booleans())
def test_any_graph_is_near_the_best(seed, n, k, links, restricted):
    if n < k:
        return
    case = random_case(np.random.default_rng(seed), n, k, links=links, restricted=restricted)
    least = least_bottleneck(case, all_used=False)
    if np.isinf(least):
        with pytest.raises(PipelineError):
            balance_stages(case.graph, case.problem, case.launch, k)
        return
    found = balance_stages(case.graph, case.problem, case.launch, k)
    check_stages(case, found)
    assert found.lower_bound <= least * (1 + 1e-9) <= found.times.slowest * (1 + 1e-6)


@pytest.mark.parametrize("cases", [20, pytest.param(60, marks=pytest.mark.exhaustive)])
def test_how_near_the_best_it_is(cases):
    gaps = []
    for seed in range(cases):
        case = random_case(np.random.default_rng(seed), 7, 2 + seed % 2)
        found = balance_stages(case.graph, case.problem, case.launch, 2 + seed % 2)
        gaps.append(found.times.slowest / least_bottleneck(case, all_used=False) - 1)
    assert np.mean(gaps) < 0.03
    assert np.median(gaps) < 0.01


def test_what_is_read_twice_is_paid_twice_and_not_between():
    # 0 makes a value for 1 (stage 1) and 3 (stage 3); nothing passes stage 2.
    graph = Graph.from_edges([0, 0, 1, 2], [1, 3, 2, 3], 4)
    problem = AssignmentProblem.from_values(
        np.ones((4, 4)), [0], [0, 2], [1, 3], [5.0], np.full((4, 4), 0.5), np.full((4, 4), 0.1)
    )
    times = StageCosts(graph, problem, np.zeros(4)).times([0, 1, 2, 3])
    np.testing.assert_allclose(times.transfers, [0, 1.0, 0, 1.0])
    np.testing.assert_allclose(times.received, [0, 5, 0, 5])


def test_two_stages_of_a_graph_with_a_long_skip():
    # A value of 0 that only the last node reads does not count against boundaries on its way.
    n = 40
    edges = [(i, i + 1) for i in range(n - 1)] + [(0, n - 1)]
    graph = Graph.from_edges([a for a, _ in edges], [b for _, b in edges], n)
    work = np.ones((3, n))
    latency, per_unit = np.zeros((3, 3)), np.ones((3, 3))
    readers = [[1, n - 1], *[[i + 1] for i in range(1, n - 1)]]
    problem = AssignmentProblem.from_values(
        work,
        np.arange(n - 1),
        np.cumsum([0, *map(len, readers)]),
        np.concatenate(readers),
        np.array([6.0] + [0.0] * (n - 2)),
        latency,
        per_unit,
    )
    found = balance_stages(graph, problem, np.zeros(3))
    # 40 nodes and 6 for the transfer into the last stage: 15.33 each at best.
    assert found.times.slowest == 16


def test_stages_are_left_out_where_they_cost_more_than_they_save():
    graph = chain_graph(4)
    problem = AssignmentProblem.from_values(
        np.ones((3, 4)), [0, 1, 2], [0, 1, 2, 3], [1, 2, 3], np.ones(3), np.full((3, 3), 9.0), np.zeros((3, 3))
    )
    found = balance_stages(graph, problem, np.zeros(3))
    assert len(set(found.stage_of.tolist())) == 1
    assert found.times.slowest == 4
    assert found.with_all > 9
    cheap = problem.with_costs(latency=np.full((3, 3), 0.1))
    assert set(balance_stages(graph, cheap, np.zeros(3)).stage_of.tolist()) == {0, 1, 2}


def test_a_stage_is_left_out_on_the_order_that_suits_the_others():
    # Stage 3 is slow at all nodes, and the best order with it has nodes 1 and 2 the other way round.
    graph = Graph.from_edges([0], [3], 4)
    work = [[0.8, 1.0, 12.2, 1.8], [2.9, 0.8, 4.1, 7.7], [0.7, 18.8, np.inf, 15.7]]
    found = balance_stages(graph, without_values(np.array(work)), np.zeros(3))
    assert found.stage_of.tolist() == [0, 0, 1, 0]
    assert found.times.slowest == pytest.approx(4.1)


@pytest.mark.parametrize("seed", [*range(12), 51, 140, 214, 258])
def test_never_slower_than_one_device_alone(seed):
    """Devices of different speed behind slow links."""
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(3, 10)), int(rng.integers(2, 4))
    case = random_case(rng, n, k)
    work, per_unit = case.work * rng.choice([0.02, 0.1, 1], (k, 1)), case.per_unit * rng.choice([1, 5, 20])
    case = case._replace(work=work, per_unit=per_unit)
    found = balance_stages(case.graph, case.problem, case.launch, k)
    alone = min(max(naive_times(case, [stage] * n)) for stage in range(k))
    assert found.times.slowest <= alone * (1 + 1e-9)


def test_a_stage_more_that_neither_helps_nor_harms_is_used():
    found = balance_stages(chain_graph(3), without_values(np.array([[5.0, 1, 1]] * 3)), np.zeros(3))
    assert found.stage_of.tolist() == [0, 1, 2]
    assert found.with_all is None


def test_nodes_that_are_bound_to_stages():
    work = np.ones((3, 9))
    work[1:, 7] = np.inf  # late in the order, and only in the first stage
    work[:2, 1] = np.inf  # early, and only in the last
    graph = Graph.from_edges([0, 2, 3, 4, 5], [2, 3, 4, 5, 6], 9)
    found = balance_stages(graph, without_values(work), np.zeros(3))
    assert found.stage_of[7] == 0
    assert found.stage_of[1] == 2
    assert found.times.slowest == 3


def test_what_cannot_be_in_order_is_told():
    work = np.ones((3, 4))
    work[:2, 1] = np.inf
    work[1:, 2] = np.inf
    with pytest.raises(PipelineError, match="no stage from 2 on can have node 2") as caught:
        balance_stages(chain_graph(4), without_values(work), np.zeros(3))
    assert (caught.value.node, caught.value.earliest, caught.value.before) == (2, 2, 1)


@given(SEEDS, st.integers(1, 30))
def test_orders_are_topological(seed, n):
    rng = np.random.default_rng(seed)
    graph = random_case(rng, n, 2).graph
    source = np.repeat(np.arange(n), np.diff(graph.indptr))
    allowed = rng.random((3, n)) < 0.9
    allowed[0] = True
    first, last = stage_ranges(graph, np.ones((3, n), np.bool_))
    best_stage = rng.integers(0, 3, n)
    found = [*own_orders(graph, first, last), depth_first(graph), random_order(graph, seed)]
    found += other_orders(graph, first, last, best_stage)
    try:
        first, last = stage_ranges(graph, allowed)
        found += [*own_orders(graph, first, last), *other_orders(graph, first, last, best_stage)]
        assert (first[source] <= first[graph.indices]).all()
        assert (last[source] <= last[graph.indices]).all()
        assert (first <= last).all()
    except PipelineError:
        pass
    for order in found:
        position = np.empty(n, np.int64)
        position[order] = np.arange(n)
        assert sorted(order.tolist()) == list(range(n))
        assert (position[source] < position[graph.indices]).all()


def test_wrong_arguments():
    graph = chain_graph(3)
    problem = without_values(np.ones((2, 3)))
    with pytest.raises(PartitionError, match="launch"):
        balance_stages(graph, problem, [0.0])
    with pytest.raises(PartitionError, match="launch"):
        balance_stages(graph, problem, [0.0, -1.0])
    with pytest.raises(PartitionError, match="from 1 to the number of devices 2, found 3"):
        balance_stages(graph, problem, np.zeros(3), 3)
    costs = StageCosts(graph, problem, np.zeros(2))
    with pytest.raises(PartitionError, match="one stage from 0 to 1"):
        costs.times([0, 1, 2])


def test_large_chain():
    rng = np.random.default_rng(1)
    n, k = 100_000, 8
    work = rng.random(n) * np.ones((k, 1))
    found = balance_stages(chain_graph(n), without_values(work), np.zeros(k))
    assert found.gap < 1e-4


def test_timeline():
    runs = timeline([2.0, 3.0, 1.0], 3)
    assert [(run.begin, run.end) for run in runs if run.stage == 1] == [(2, 5), (5, 8), (8, 11)]
    assert [(run.begin, run.end) for run in runs if run.stage == 2] == [(5, 6), (8, 9), (11, 12)]
    assert timeline([], 3) == []


@given(SEEDS, st.integers(2, 8), st.integers(2, 3))
def test_capacity_holds_and_chains_are_exact_within_it(seed, n, k):
    """Each node has a weight, each stage a limit of the sum."""
    if n < k:
        return
    rng = np.random.default_rng(seed)
    case = random_case(rng, n, k, chain=True)
    weight, limits = rng.random(n), rng.random(k) * n
    sums = np.concatenate([[0.0], np.cumsum(weight)])

    def capacity(stage, order):
        assert order.tolist() == list(range(n))
        return np.searchsorted(sums, sums + limits[stage] + 1e-12, "right") - 1

    least = np.inf
    for stages in itertools.product(range(k), repeat=n):
        loads = np.bincount(stages, weight, k)
        if (np.diff(stages) >= 0).all() and (loads <= limits + 1e-12).all():
            least = min(least, max(naive_times(case, stages)))
    if np.isinf(least):
        with pytest.raises(NoRoom):
            balance_stages(case.graph, case.problem, case.launch, k, capacity=capacity)
        return
    found = balance_stages(case.graph, case.problem, case.launch, k, capacity=capacity)
    assert (np.bincount(found.stage_of, weight, k) <= limits + 1e-9).all()
    assert found.times.slowest == pytest.approx(least, rel=1e-6)
