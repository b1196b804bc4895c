"""Policy ``greedy``: equal to its naive twin within any bounds, valid, and in total no worse than ``documented``."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from hetero import _partition
from hetero.partition import Graph, check_partition, partition_graph
from partition import reference
from threads import in_threads

NO_BOUND = 2**40


def groups(labels):
    return sorted(np.flatnonzero(labels == i).tolist() for i in np.unique(labels))


@pytest.mark.parametrize("devices", [1, 2, 3, 4])
def test_equals_its_twin(devices, dags):
    for seed in range(120):
        g, device = dags.one(seed, max_nodes=28, max_devices=devices)
        p = partition_graph(g, device, "greedy")
        assert groups(p.subgraph_of) == groups(reference.greedy(g, device.tolist())), seed


def test_equals_its_twin_within_bounds(dags, numbering):
    """Any bounds, any numbering: the same labels, the order of choices included."""
    bounded = stopped = 0
    for seed in range(450):
        rng = np.random.default_rng(seed)
        g, device = dags.one(seed, max_nodes=40)
        if seed % 3 == 0:
            g, device = numbering.renumbered(g, device, rng.permutation(g.num_nodes))
        first, each, covered = (int(rng.integers(0, most)) for most in (12, 4, 12))
        steps = int(rng.choice([NO_BOUND, rng.integers(0, 200)]))
        label, chosen = _partition.greedy_within(g._csr, device, first, each, covered, steps)
        most = None if steps == NO_BOUND else chosen
        assert np.array_equal(label, reference.greedy(g, device.tolist(), first, each, covered, most)), seed
        bounded += groups(label) != groups(partition_graph(g, device, "greedy").subgraph_of)
        stopped += chosen < label.max() + 1
    assert bounded > 100
    assert stopped > 100


@pytest.mark.parametrize(("first", "each", "covered", "share"), [(0, 0, 0, 1), (8, 1, 8, 0.5), (0, 0, 0, 0.1)])
@pytest.mark.parametrize("n", [1000, 20_000])
def test_every_kind_is_valid_within_bounds(n, first, each, covered, share, kinds):
    """``share``: of the steps that it would take."""
    for kind in kinds.KINDS:
        src, dst, device = kinds.make(kind, n)
        g = Graph.from_edges(src, dst, len(device))
        steps = int(share * 8 * (g.num_nodes + len(g.indices)))
        label, chosen = _partition.greedy_within(g._csr, device, first, each, covered, steps)
        check_partition(g, device, label)
        assert share == 1 or chosen < label.max() + 1


def test_worked_example():
    g = Graph.from_edges([1, 2, 2, 3, 4, 5, 6], [2, 3, 4, 5, 5, 6, 7], 8)
    device = [2, 0, 0, 0, 1, 0, 0, 0]
    greedy, documented = (partition_graph(g, device, policy).subgraph_of for policy in ("greedy", "documented"))
    assert groups(greedy) == groups(documented) == [[0], [1, 2], [3, 5, 6, 7], [4]]


def test_in_total_no_worse_than_documented(dags, kinds):
    greedy = documented = 0
    for seed in range(1500):
        g, device = dags.one(seed)
        greedy += partition_graph(g, device, "greedy").num_subgraphs
        documented += partition_graph(g, device, "documented").num_subgraphs
    assert greedy <= documented
    for kind in kinds.KINDS:
        for seed, n in enumerate((300, 700, 1200, 2000)):
            src, dst, device = kinds.make(kind, n, seed)
            g = Graph.from_edges(src, dst, len(device))
            greedy += partition_graph(g, device, "greedy").num_subgraphs
            documented += partition_graph(g, device, "documented").num_subgraphs
    assert greedy <= documented


@pytest.mark.parametrize("n", [1000, 20_000])
def test_every_kind_is_valid(n, kinds, evaluate):
    for kind in kinds.KINDS:
        src, dst, device = kinds.make(kind, n)
        g = Graph.from_edges(src, dst, len(device))
        p = partition_graph(g, device, "greedy")
        check_partition(g, device, p.subgraph_of, ordered=True)
        assert evaluate(g, device, p.subgraph_of) == (p.num_subgraphs, p.cut_edges)


def test_numbers_that_are_no_topological_order(dags, numbering):
    for seed in range(100):
        g, device = dags.one(seed)
        g, device = numbering.renumbered(g, device, np.random.default_rng(seed).permutation(g.num_nodes))
        check_partition(g, device, partition_graph(g, device, "greedy").subgraph_of, ordered=True)


def test_a_candidate_does_not_depend_on_the_numbering(dags, numbering):
    """Nor on which topological order it is: a function of the root and the graph, as long as no bound is met."""
    for seed in range(60):
        g, device = dags.one(seed, max_nodes=24, max_devices=2)
        number = numbering.another_order(g, seed)
        h, moved = numbering.renumbered(g, device, number)
        here, there = (
            reference._EarlyRejection(graph, numbers.tolist(), NO_BOUND, 0, NO_BOUND)
            for graph, numbers in ((g, device), (h, moved))
        )
        for v in range(g.num_nodes):
            assert {int(number[w]) for w in here.grow(v, set())} == set(there.grow(int(number[v]), set())), seed


def test_another_numbering_changes_ties_alone(dags, numbering):
    """Which nodes become roots, and which of equally large candidates comes first: so single results differ, and the
    number of subgraphs hardly does."""
    usual = renamed = 0
    for seed in range(300):
        g, device = dags.one(seed, max_devices=2)
        h, moved = numbering.renumbered(g, device, numbering.another_order(g, seed))
        usual += partition_graph(g, device, "greedy").num_subgraphs
        other = partition_graph(h, moved, "greedy")
        check_partition(h, moved, other.subgraph_of, ordered=True)
        renamed += other.num_subgraphs
    assert abs(usual - renamed) <= usual // 200


def test_an_isolated_node_changes_nothing_else(dags):
    for seed in range(100):
        g, device = dags.one(seed)
        src = np.repeat(np.arange(g.num_nodes), np.diff(g.indptr))
        p = partition_graph(g, device, "greedy")
        h = Graph.from_edges(src, g.indices, g.num_nodes + 1)
        q = partition_graph(h, np.append(device, seed % 5), "greedy")
        assert groups(q.subgraph_of) == sorted([*groups(p.subgraph_of), [g.num_nodes]])


def test_the_smallest_graphs():
    for n in (0, 1, 5):
        p = partition_graph(Graph.from_edges([], [], n), np.arange(n) % 2, "greedy")
        assert sorted(p.subgraph_of.tolist()) == list(range(n))


@pytest.mark.parametrize("devices", [16, 255])
def test_many_devices(devices, evaluate):
    rng = np.random.default_rng(devices)
    n = 6000
    dst = np.repeat(np.arange(1, n), 2)
    src = dst - 1 - rng.integers(0, np.minimum(dst, 64))
    device = np.repeat(rng.integers(0, devices, n // 4), 4)
    device[-1] = devices - 1
    g = Graph.from_edges(src, dst, n)
    p = partition_graph(g, device, "greedy")
    check_partition(g, device, p.subgraph_of, ordered=True)
    assert evaluate(g, device, p.subgraph_of) == (p.num_subgraphs, p.cut_edges)


def star(n, rng):
    """One hub in the middle: half of the nodes before it, half behind."""
    hub = n // 2
    rest = np.delete(np.arange(n), hub)
    return np.minimum(rest, hub), np.maximum(rest, hub), rng.random(n) < 0.3


def layers(n, rng):
    """Complete bipartite layers of 24."""
    width = 24
    node = np.arange(n - width)
    src = np.repeat(node, width)
    dst = (node // width + 1)[:, None] * width + np.arange(width)
    keep = dst.ravel() < n
    return src[keep], dst.ravel()[keep], rng.random(n) < 0.1


def anywhere(n, rng):
    """Two producers anywhere before: no two nodes are far apart."""
    node = np.repeat(np.arange(1, n), 2)
    return (rng.random(2 * n - 2) * node).astype(np.int64), node, rng.random(n) < 0.1


def butterfly(n, rng):
    """Stages of a fast Fourier transform of 64 values."""
    node = np.arange(64, n)
    stage = node // 64 % 6
    straight = node - 64
    return np.concatenate([straight, straight ^ (1 << stage)]), np.concatenate([node, node]), rng.random(n) < 0.1


def guarded_fan(n, rng):
    """Pairs a, b below one hub that a leads to; the hub leads on to what feeds b, for half of them."""
    k = (n - 1) // 3
    a, c, b, hub = np.arange(k), k + 1 + np.arange(k), 2 * k + 1 + np.arange(k), k
    guarded = np.flatnonzero(rng.random(k) < 0.5)
    src = np.concatenate([a, a, c, np.full(len(guarded), hub)])
    dst = np.concatenate([b, np.full(k, hub), b, c[guarded]])
    device = np.zeros(n, np.int64)
    device[hub] = 1
    device[c] = 2
    return src, dst, device


@pytest.mark.parametrize("make", [star, layers, anywhere, butterfly, guarded_fan])
def test_graphs_made_to_be_hard(make, evaluate):
    rng = np.random.default_rng(0)
    for n in (100, 3000, 40_000):
        src, dst, device = make(n, rng)
        g = Graph.from_edges(src, dst, n)
        p = partition_graph(g, device.astype(np.int32), "greedy")
        check_partition(g, device.astype(np.int32), p.subgraph_of, ordered=True)
        assert evaluate(g, device, p.subgraph_of) == (p.num_subgraphs, p.cut_edges)


def test_equal_in_every_thread_and_run(kinds):
    src, dst, device = kinds.make("half_foreign", 30_000)
    g = Graph.from_edges(src, dst, len(device))
    expected = partition_graph(g, device, "greedy").subgraph_of
    found = []

    def work():
        for _ in range(2):
            found.append(partition_graph(g, device, "greedy").subgraph_of)

    in_threads(lambda _: work(), range(3))
    assert len(found) == 6
    assert all(np.array_equal(labels, expected) for labels in found)


def test_steps_are_bounded():
    """A bound of zero steps is the last resort alone, policy ``linear``'s result; the largest bound is none."""
    rng = np.random.default_rng(3)
    n = 500
    dst = np.repeat(np.arange(1, n), 2)
    g = Graph.from_edges(dst - 1 - rng.integers(0, np.minimum(dst, 9)), dst, n)
    device = rng.integers(0, 2, n)
    label, chosen = _partition.greedy_within(g._csr, device, 128, 16, 32, -1)
    assert chosen == 0
    assert groups(label) == groups(partition_graph(g, device, "linear").subgraph_of)
    label, chosen = _partition.greedy_within(g._csr, device, 128, 16, 32, sys.maxsize)
    assert chosen == label.max() + 1
    assert groups(label) == groups(partition_graph(g, device, "greedy").subgraph_of)
