"""Local and exhaustive search within limits, against trying everything."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from hypothesis import given

from hetero.assign import AssignmentProblem
from hetero.assign.cuts import predict
from hetero.assign.memory import Values, moves
from hetero.assign.memory.fit import cut_and_count, fit
from hetero.assign.memory.moves import all_assignments, improved
from hetero.partition import partition_graph
from memory_graphs import by_priority, cut, graph_of, needs_of, problems, random_tree, solutions


def costs_of(values, work):
    """The cost of work and of transfers along edges, and the predicted seconds with launches."""
    count = len(work)
    graph = graph_of(values)
    links = np.full((count, count), 0.1)
    problem = AssignmentProblem.from_graph(graph, work, np.ones(values.num_nodes), links, links)
    launches = np.full(count, 0.2)
    return lambda device_of: problem.cost(device_of).total, lambda fit: predict(problem, fit.partition, launches).total


@given(problems(max_nodes=5))
def test_local_search_keeps_its_promises(problem):
    values, allowed, limits, work = problem
    start = cut_and_count(values, by_priority(allowed), limits, lambda device_of: cut(values, device_of))
    price, seconds = (None, None) if work is None else costs_of(values, np.where(allowed, work, np.inf))
    found = improved(values, start, allowed, limits, lambda device_of: cut(values, device_of), price, seconds)
    assert allowed[found.device_of, np.arange(values.num_nodes)].all()
    needs = needs_of(values, found.device_of, len(limits))
    assert needs.tolist() == found.needs.total.tolist()
    assert found.excess.tolist() == np.maximum(needs - limits, 0).tolist()
    assert found.excess.sum() <= start.excess.sum()
    if start.fits:
        assert found.fits
        if seconds is None:
            assert found is start
        else:
            assert seconds(found) <= seconds(start)
    again = improved(values, start, allowed, limits, lambda device_of: cut(values, device_of), price, seconds)
    assert again.device_of.tolist() == found.device_of.tolist()


@given(problems(max_nodes=5))
def test_exhaustive_search_is_exact(problem):
    values, allowed, limits, work = problem
    _, seconds = (None, None) if work is None else costs_of(values, np.where(allowed, work, np.inf))
    every = list(solutions(values, allowed, limits, only_onward=False))
    found, tried_all = all_assignments(values, allowed, limits, lambda device_of: cut(values, device_of), seconds)
    assert (found is None) == (not every)
    if found is None:
        assert tried_all
        return
    assert tuple(found.device_of.tolist()) in every
    if seconds is not None:
        fits = [cut_and_count(values, np.array(d, np.int32), limits, lambda d: cut(values, d)) for d in every]
        assert seconds(found) == pytest.approx(min(map(seconds, fits)))


def test_exhaustive_search_that_gives_up_proves_nothing(monkeypatch):
    values = Values.from_arrays(6, [-1] * 6, [5.0] * 6, range(6), range(6), [True] * 6)
    allowed = np.ones((2, 6), np.bool_)
    limits = np.array([14.0, 14.0])  # two nodes each, although 28 bytes would hold five
    found, tried_all = all_assignments(values, allowed, limits, lambda device_of: cut(values, device_of))
    assert (found, tried_all) == (None, True)
    roomy = np.array([15.0, 15.0])
    monkeypatch.setattr(moves, "MAX_ASSIGNMENTS", 0)
    assert all_assignments(values, allowed, roomy, lambda device_of: cut(values, device_of)) == (None, False)
    monkeypatch.setattr(moves, "MAX_ASSIGNMENTS", 2_000)
    monkeypatch.setattr(moves, "_MAX_NODES", 5)
    assert all_assignments(values, allowed, roomy, lambda device_of: cut(values, device_of)) == (None, False)


def test_a_swap_where_no_device_has_room():
    """Both devices are full, each with the node that the other runs ten times as fast."""
    values = Values.from_arrays(2, [-1, -1], [5.0, 5.0], [0, 1], [0, 1], [True, True])
    limits = np.array([5.0, 5.0])
    price, seconds = costs_of(values, np.array([[10.0, 1.0], [1.0, 10.0]]))
    start = cut_and_count(values, np.array([0, 1], np.int32), limits, lambda d: cut(values, d))
    found = improved(values, start, np.ones((2, 2), np.bool_), limits, lambda d: cut(values, d), price, seconds)
    assert found.device_of.tolist() == [1, 0]


def test_the_way_to_a_better_assignment_leads_through_worse_ones():
    """Three full devices, and three nodes that each belong on the next one: each move exceeds a limit, and each swap
    takes longer than the start."""
    values = Values.from_arrays(3, [-1] * 3, [5.0] * 3, range(3), range(3), [True] * 3)
    limits = np.full(3, 5.0)
    work = np.array([[10.0, 30.0, 1.0], [1.0, 10.0, 30.0], [30.0, 1.0, 10.0]])
    price, seconds = costs_of(values, work)
    start = cut_and_count(values, np.arange(3, dtype=np.int32), limits, lambda d: cut(values, d))
    found = improved(values, start, np.ones((3, 3), np.bool_), limits, lambda d: cut(values, d), price, seconds)
    assert found.device_of.tolist() == [1, 2, 0]
    assert found.fits


def test_with_a_quick_cut_few_candidates_are_partitioned_thoroughly():
    """On a graph whose thorough partitions take 25 times as long, the search partitions no more of them than it has
    time for, and returns the thorough partition of an assignment that is no worse than the start."""
    rng = np.random.default_rng(5)
    n = 300
    reads = [(max(0, v - 1 - int(rng.integers(8))), v) for v in range(1, n) for _ in range(2)]
    value, node = np.unique(np.array(reads), axis=0).T
    values = Values.from_arrays(n, range(n), [8.0] * n, value, node, [False] * n)
    limits = np.array([1500.0, np.inf])
    work = rng.uniform(1, 2, (2, n))
    price, seconds = costs_of(values, work)
    allowed = np.ones((2, n), np.bool_)
    graph = graph_of(values)
    cuts = {True: 0, False: 0}

    def cut_of(device_of, thorough=True):
        cuts[thorough] += 1
        return partition_graph(graph, device_of, thorough=thorough)

    start = cut_and_count(values, np.argmin(work, axis=0).astype(np.int32), limits, cut_of)
    assert start.fits
    found = improved(values, start, allowed, limits, cut_of, price, seconds, lambda d: cut_of(d, False))
    assert found.fits
    assert seconds(found) < seconds(start)
    assert found.partition.num_subgraphs == partition_graph(graph, found.device_of).num_subgraphs
    assert 1 < cuts[True] <= 1 + moves._THOROUGH
    assert cuts[False] >= cuts[True]  # the first is that of the start


def test_a_candidate_may_be_better_than_its_quick_partition():
    values = Values.from_arrays(2, [-1, -1], [5.0, 5.0], [0, 1], [0, 1], [True, True])
    limits = np.array([20.0, 20.0])
    price, seconds = costs_of(values, np.array([[5.0, 5.0], [1.0, 5.0]]))
    quick = []

    def quick_cut(device_of):
        quick.append(cut(values, device_of))
        return quick[-1]

    def seconds_of(fit):
        return seconds(fit) + 10 * (fit.device_of[0] == 1 and any(fit.partition is each for each in quick))

    start = cut_and_count(values, np.zeros(2, np.int32), limits, lambda d: cut(values, d))
    allowed = np.ones((2, 2), np.bool_)
    found = improved(values, start, allowed, limits, lambda d: cut(values, d), price, seconds_of, quick_cut)
    assert found.device_of.tolist() == [1, 0]
    assert not any(found.partition is each for each in quick)


def test_nodes_that_share_a_constant_move_together():
    """Moving one of them only stores the constant twice."""
    values = Values.from_arrays(4, [-1, -1], [60.0, 60.0], [0, 0, 1, 1], [0, 1, 2, 3], [True, True])
    limits = np.array([100.0, 100.0])
    start = cut_and_count(values, np.zeros(4, np.int32), limits, lambda d: cut(values, d))
    assert start.excess.tolist() == [20, 0]
    found = improved(values, start, np.ones((2, 4), np.bool_), limits, lambda d: cut(values, d))
    assert found.fits


def test_near_the_best_where_filling_is_not():
    """Without exhaustive search, on 30 problems of five nodes."""
    rng = np.random.default_rng(5)
    before, after, possible, missed = [], [], 0, 0
    for _ in range(30):
        n = 5
        values, weight = random_tree(rng, n)
        allowed = np.ones((2, n), np.bool_)
        limits = np.floor(weight.sum() * rng.uniform(0.45, 0.8, 2)) + 15
        work = rng.random((2, n))
        price, seconds = costs_of(values, work)
        fits = [
            candidate
            for d in itertools.product(range(2), repeat=n)
            if (candidate := cut_and_count(values, np.array(d, np.int32), limits, lambda d, v=values: cut(v, d))).fits
        ]
        if not fits:
            continue
        possible += 1
        least = min(map(seconds, fits))
        start = fit(values, work.argmin(0).astype(np.int32), allowed, limits, lambda d, v=values: cut(v, d), work)
        found = improved(values, start, allowed, limits, lambda d, v=values: cut(v, d), price, seconds)
        missed += not found.fits
        if found.fits:
            after.append(seconds(found) / least - 1)
        if start.fits:
            before.append(seconds(start) / least - 1)
    assert possible > 12
    assert missed <= 1
    assert np.mean(after) < 0.03 < np.mean(before)


def test_a_large_graph_takes_a_bounded_time():
    n = 50_000
    values = Values.from_arrays(n, range(n), np.ones(n), range(n - 1), range(1, n))
    graph = graph_of(values)
    limits = np.array([n / 2, np.inf])
    work = np.random.default_rng(0).random((2, n))
    price, seconds = costs_of(values, work)
    start = cut_and_count(values, np.ones(n, np.int32), limits, lambda d: partition_graph(graph, d))
    begin = time.process_time()
    found = improved(
        values, start, np.ones((2, n), np.bool_), limits, lambda d: partition_graph(graph, d), price, seconds
    )
    assert time.process_time() - begin < 30  # about 0.7 s
    assert seconds(found) <= seconds(start)
