"""Assignment by cost against exhaustive search."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import graphs
from assign.cuts.problems import Parts, least_cost, naive_cost, problem_of, random_parts
from hetero.assign import AssignmentProblem, assign_by_cost
from hetero.errors import PartitionError
from hetero.partition import Graph
from threads import in_threads


@pytest.mark.parametrize("seed", range(20))
def test_two_devices_are_exact(seed):
    rng = np.random.default_rng(seed)
    for _ in range(20):
        parts = random_parts(rng, int(rng.integers(1, 10)), 2)
        found = assign_by_cost(problem_of(parts))
        assert found.cost == pytest.approx(naive_cost(parts, tuple(found.device_of.tolist())))
        assert found.cost == pytest.approx(least_cost(parts))
        assert found.gap == 0


def test_two_devices_beside_others_that_only_pins_use_are_exact():
    rng = np.random.default_rng(3)
    for _ in range(50):
        n = int(rng.integers(2, 8))
        parts = random_parts(rng, n, 4)
        pinned = rng.random(n) < 0.5
        parts.work[:2] = rng.random((2, n))
        parts.work[2:] = np.inf
        parts.work[:, pinned] = np.inf
        parts.work[rng.integers(0, 4, n), np.arange(n)] = 0.5
        parts.work[2:, ~pinned] = np.inf
        parts.work[:2, ~pinned] = rng.random((2, int((~pinned).sum())))
        found = assign_by_cost(problem_of(parts))
        assert found.cost == pytest.approx(least_cost(parts))
        assert found.gap == 0


@pytest.mark.parametrize("uniform", [True, False])
def test_more_devices_keep_their_word(uniform):
    """Never below the bound, never above what the gap says, and nearly always the least."""
    rng = np.random.default_rng(1)
    least = 0
    for _ in range(200):
        parts = random_parts(rng, int(rng.integers(1, 8)), int(rng.integers(3, 5)), uniform_links=uniform)
        found = assign_by_cost(problem_of(parts))
        best = least_cost(parts)
        assert found.lower_bound <= best + 1e-9
        assert best - 1e-9 <= found.cost <= found.lower_bound * (1 + found.gap) + 1e-9
        least += found.cost <= best + 1e-9
    assert least >= 190


def test_a_move_never_makes_things_worse():
    rng = np.random.default_rng(2)
    for _ in range(300):
        n, k = int(rng.integers(1, 12)), int(rng.integers(3, 6))
        problem = problem_of(random_parts(rng, n, k))
        labels = np.argmin(problem.work, axis=0)
        cost = problem.cost(labels).total
        for target in range(k):
            moved = problem.move(labels, target)
            assert set(moved[moved != labels].tolist()) <= {target}
            assert problem.cost(moved).total <= cost + 1e-9


def test_a_move_over_equal_links_is_the_best_there_is():
    rng = np.random.default_rng(4)
    for _ in range(100):
        n, k = int(rng.integers(1, 8)), 3
        parts = random_parts(rng, n, k, uniform_links=True)
        problem = problem_of(parts)
        labels = np.argmin(parts.work, axis=0)
        best = min(
            naive_cost(parts, tuple(np.where(going, 1, labels).tolist()))
            for going in itertools.product([False, True], repeat=n)
        )
        assert problem.cost(problem.move(labels, 1)).total == pytest.approx(best)


def test_of_equally_cheap_moves_the_one_that_changes_the_fewest_nodes():
    """The costs are small integers, so many moves cost the same."""
    rng = np.random.default_rng(11)
    for _ in range(60):
        n = int(rng.integers(1, 8))
        parts = random_parts(rng, n, 2)
        whole = parts._replace(
            work=np.where(np.isinf(parts.work), np.inf, rng.integers(0, 4, parts.work.shape)),
            size=rng.integers(0, 3, len(parts.size)),
            latency=rng.integers(0, 2, (2, 2)),
            per_unit=rng.integers(0, 2, (2, 2)),
        )
        labels = np.where(np.isfinite(whole.work[0]), 0, 1)
        moves = [np.where(going, 1, labels) for going in itertools.product([False, True], repeat=n)]
        best = min(moves, key=lambda moved: (naive_cost(whole, tuple(moved.tolist())), (moved != labels).sum()))
        assert problem_of(whole).move(labels, 1).tolist() == best.tolist()


def test_a_move_knows_the_producers_that_stay_in_any_case():
    """Both readers save the expensive link from device 0 to 1 only if the producer stays, which its work makes sure."""
    work = np.array([[0, np.inf, np.inf], [100, 3, 3], [100, 4, 4]])
    latency = np.array([[0, 10, 1], [1, 0, 1], [1, 1, 0]])
    problem = AssignmentProblem.from_values(work, [0], [0, 2], [1, 2], [0], latency, np.zeros((3, 3)))
    assert problem.move([0, 1, 1], 2).tolist() == [0, 2, 2]


def test_of_equal_costs_the_first_device_is_chosen():
    work = np.ones((2, 5))
    problem = AssignmentProblem.from_graph(
        Graph.from_edges([0, 1, 2, 3], [1, 2, 3, 4], 5), work, np.ones(5), np.zeros((2, 2)), np.ones((2, 2))
    )
    np.testing.assert_array_equal(assign_by_cost(problem).device_of, 0)


def test_one_transfer_however_many_readers():
    """Node 0 must be on device 0, its three readers on device 1."""
    work = np.array([[0, np.inf, np.inf, np.inf], [np.inf, 0, 0, 0]])
    problem = AssignmentProblem.from_values(work, [0], [0, 3], [1, 2, 3], [7], np.full((2, 2), 2.0), np.ones((2, 2)))
    cost = problem.cost([0, 1, 1, 1])
    assert (cost.work, cost.transfers, cost.num_transfers) == (0, 9, 1)


@pytest.mark.parametrize("k", [2, 3])
def test_values_with_the_same_readers_or_one_more(k):
    """All read all of the layer before; each reads all before it in its block: auxiliary vertices are shared."""
    rng = np.random.default_rng(7)
    for _ in range(40 if k == 2 else 6):
        n = 8
        sets = [(0, [3, 4, 5]), (1, [3, 4, 5]), (2, [5, 3, 4]), (3, [4, 5, 6, 7]), (4, [5, 6, 7]), (5, [6, 7])]
        sets += [(6, [3, 4, 7]), (7, [0, 1, 2, 3]), (1, [0, 2, 3]), (3, [0, 1, 2])]
        sets = [sets[i] for i in rng.permutation(len(sets))[: rng.integers(3, len(sets) + 1)]]
        indptr = np.concatenate([[0], np.cumsum([len(readers) for _, readers in sets])])
        readers = np.concatenate([readers for _, readers in sets])
        work = rng.random((k, n)) * 2
        work[rng.integers(0, k, 2), rng.permutation(n)[:2]] = np.inf
        links = np.ones((k, k)) if rng.random() < 0.5 else rng.random((k, k))
        size = rng.random(len(sets))
        parts = Parts(work, np.array([u for u, _ in sets]), indptr, readers, size, np.zeros((k, k)), links)
        found = assign_by_cost(problem_of(parts))
        best = least_cost(parts)
        assert found.lower_bound <= best + 1e-9
        assert found.cost == pytest.approx(naive_cost(parts, tuple(found.device_of.tolist())))
        if k == 2:
            assert found.cost == pytest.approx(best)


def test_an_island_that_costs_more_to_reach_than_it_saves_vanishes():
    n = 30
    work = np.stack([np.full(n, 1.0), np.full(n, 1.2)])
    work[1, 15] = 0.5
    graph = Graph.from_edges(np.arange(n - 1), np.arange(1, n), n)
    cheap, dear = (
        assign_by_cost(AssignmentProblem.from_graph(graph, work, np.full(n, size), np.zeros((2, 2)), np.ones((2, 2))))
        for size in (0.1, 0.3)
    )
    assert np.flatnonzero(cheap.device_of).tolist() == [15]
    assert not dear.device_of.any()


@pytest.mark.parametrize("kind", list(graphs.KINDS))
def test_graphs_of_every_kind(kind):
    """Two devices: no single node, no neighborhood and no single device would be better; twice the same arrays."""
    src, dst, device = graphs.make(kind, 3000, 1)
    n = len(device)
    rng = np.random.default_rng(0)
    graph = Graph.from_edges(src, dst, n)
    work = rng.exponential(1, (2, n))
    work[0, device == 1] = np.inf
    problem = AssignmentProblem.from_graph(graph, work, rng.exponential(1, n), np.zeros((2, 2)), np.ones((2, 2)))
    found = assign_by_cost(problem)
    assert np.isfinite(found.cost)
    np.testing.assert_array_equal(found.device_of, assign_by_cost(problem).device_of)
    assert found.cost <= problem.cost(np.ones(n, np.int32)).total
    for node in rng.choice(n, 50).tolist():
        for around in ([node], [node, *graph.successors(node)], [node, *graph.predecessors(node)]):
            other = found.device_of.copy()
            other[around] = 1 - other[node]
            assert problem.cost(other).total >= found.cost - 1e-9


def test_costs_of_all_magnitudes():
    for scale in (1e-200, 1e-9, 1.0, 1e200):
        work = np.array([[1, 5], [3, 1]]) * scale
        problem = AssignmentProblem.from_values(
            work, [0], [0, 1], [1], [1], np.zeros((2, 2)), np.full((2, 2), 3 * scale)
        )
        found = assign_by_cost(problem)
        assert found.device_of.tolist() == [1, 1]
        assert found.cost == pytest.approx(4 * scale)


def test_nothing_to_assign():
    problem = AssignmentProblem.from_values(np.empty((2, 0)), [], [0], [], [], np.zeros((2, 2)), np.zeros((2, 2)))
    assert assign_by_cost(problem).cost == 0


GOOD = ([[1.0, 2.0], [2.0, 1.0]], [0], [0, 1], [1], [1.0], [[0, 1], [1, 0]], [[0, 1], [1, 0]])


@pytest.mark.parametrize(
    ("position", "value", "message"),
    [
        (0, [[1.0, -2.0], [2.0, 1.0]], r"work\[0, 1\] = -2.0: expected a cost, zero or more"),
        (0, [[1.0, np.nan], [2.0, 1.0]], r"work\[0, 1\] = nan"),
        (0, [[np.inf, 1.0], [np.inf, 1.0]], "no device takes node 0"),
        (0, [1.0, 2.0], "work must have shape"),
        (0, [[1e305, 1.0], [2.0, 1.0]], "too large"),
        (1, [2], r"producer\[0\] = 2 is no node"),
        (1, [0, 1], "producer must hold one node per value"),
        (2, [0, 2], "indptr must rise"),
        (2, [1, 1], "indptr must rise"),
        (3, [-1], r"readers\[0\] = -1 is no node"),
        (4, [np.inf], r"size\[0\] = inf: expected a cost, finite"),
        (4, [1.0, 2.0], "size must have shape"),
        (5, [[0, -1], [1, 0]], r"latency\[0, 1\]"),
        (6, [[0, 1]], "per_unit must have shape"),
    ],
)
def test_bad_input(position, value, message):
    arguments = list(GOOD)
    AssignmentProblem.from_values(*arguments)
    arguments[position] = value
    with pytest.raises(PartitionError, match=message):
        AssignmentProblem.from_values(*arguments)


def test_bad_labels():
    problem = AssignmentProblem.from_values(*GOOD)
    with pytest.raises(PartitionError, match="one device per node"):
        problem.cost([0])
    with pytest.raises(PartitionError, match="label"):
        problem.cost([0, 2])
    with pytest.raises(PartitionError, match="no device"):
        problem.move([0, 0], 2)
    with pytest.raises(TypeError):
        AssignmentProblem()


def test_threads_share_a_problem():
    rng = np.random.default_rng(5)
    src, dst, _ = graphs.make("random", 3000, 0)
    problem = AssignmentProblem.from_graph(
        Graph.from_edges(src, dst, 3000), rng.random((2, 3000)), rng.random(3000), np.zeros((2, 2)), np.ones((2, 2))
    )
    expected = assign_by_cost(problem).device_of
    found = []
    in_threads(lambda _: found.append(assign_by_cost(problem).device_of), range(4))
    assert len(found) == 4
    for labels in found:
        np.testing.assert_array_equal(labels, expected)
