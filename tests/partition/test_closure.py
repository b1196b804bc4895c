"""`TransitiveClosure` against breadth-first search."""

from __future__ import annotations

import numpy as np
import pytest

from hetero.errors import PartitionError
from hetero.partition import Graph, TransitiveClosure
from threads import in_threads


def reach_matrix(g):
    reach = np.zeros((g.num_nodes, g.num_nodes), bool)
    for v in reversed(g.topological_order.tolist()):
        for w in g.successors(v).tolist():
            reach[v] |= reach[w]
            reach[v, w] = True
    return reach


@pytest.mark.parametrize("seed", range(60))
def test_equals_search(seed, dags):
    g, _ = dags.one(seed, max_nodes=330)
    if seed % 2:
        number = np.random.default_rng(seed).permutation(g.num_nodes)
        src = np.repeat(np.arange(g.num_nodes), np.diff(g.indptr))
        g = Graph.from_edges(number[src], number[g.indices], g.num_nodes)
    closure, expected = TransitiveClosure(g), reach_matrix(g)
    for v in range(g.num_nodes):
        assert closure.descendants(v).tolist() == np.flatnonzero(expected[v]).tolist()
        assert closure.ancestors(v).tolist() == np.flatnonzero(expected[:, v]).tolist()
    rng = np.random.default_rng(seed)
    for u, v in rng.integers(0, g.num_nodes, (50, 2)).tolist():
        assert closure.reaches(u, v) == expected[u, v]
        assert closure.path_nodes(u, v).tolist() == np.flatnonzero(expected[u] & expected[:, v]).tolist()
    assert closure.nbytes <= TransitiveClosure.estimate_bytes(g.num_nodes)


@pytest.mark.parametrize("n", [63, 64, 65, 127, 128, 129, 1000])
def test_tails_that_hold_everything(n):
    """A chain: each row is one run of ones, wherever it starts within a word."""
    closure = TransitiveClosure(Graph.from_edges(np.arange(n - 1), np.arange(1, n), n))
    for v in (0, 1, n // 2, n - 2, n - 1):
        assert closure.descendants(v).tolist() == list(range(v + 1, n))
        assert closure.ancestors(v).tolist() == list(range(v))
    assert closure.nbytes < 40 * n


def test_a_word_without_descendants_before_a_tail_of_descendants():
    """The tail is one bit; the empty word in front of it stays, whatever the row of the next node is."""
    after = np.concatenate([[1], np.arange(128, 256)])
    closure = TransitiveClosure(Graph.from_edges(np.zeros(len(after), int), after, 256))
    assert closure.descendants(0).tolist() == after.tolist()
    assert closure.descendants(1).tolist() == []


def test_cache_is_bounded_and_read_only():
    n, limit = 1000, 20_000
    closure = TransitiveClosure(Graph.from_edges(np.arange(n - 1), np.arange(1, n), n), cache_bytes=limit)
    rng = np.random.default_rng(0)
    for u, v in rng.integers(0, n, (3000, 2)).tolist():
        u, v = u // 20 * 20, v // 20 * 20  # so that pairs recur
        assert closure.path_nodes(u, v).tolist() == list(range(u + 1, v))
        assert closure.cached_bytes <= limit
    assert closure.cached_bytes > limit // 2
    first = closure.path_nodes(0, 3)
    assert closure.path_nodes(0, 3).tolist() == first.tolist() == [1, 2]
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 1


def test_nothing_is_remembered_without_room():
    closure = TransitiveClosure(Graph.from_edges([0, 1, 2], [1, 2, 3], 4), cache_bytes=0)
    assert closure.path_nodes(0, 3).tolist() == closure.path_nodes(0, 3).tolist() == [1, 2]
    assert closure.cached_bytes == 0
    with pytest.raises(PartitionError, match="zero or more"):
        TransitiveClosure(closure.graph, cache_bytes=-1)


def test_threads_share_a_cache(dags):
    g, _ = dags.one(3, max_nodes=200)
    closure, expected = TransitiveClosure(g, cache_bytes=4000), reach_matrix(g)
    wrong = []

    def ask(seed):
        rng = np.random.default_rng(seed)
        for u, v in rng.integers(0, g.num_nodes, (2000, 2)).tolist():
            if closure.path_nodes(u, v).tolist() != np.flatnonzero(expected[u] & expected[:, v]).tolist():
                wrong.append((u, v))

    in_threads(ask, range(4))
    assert not wrong


def test_refused_before_any_row():
    """Many long chains: no row reaches the end, so the estimate is sure."""
    n, length = 200_000, 20_000
    node = np.arange(n - 1)
    inside = (node + 1) % length != 0
    g = Graph.from_edges(node[inside], node[inside] + 1, n)
    with pytest.raises(PartitionError, match=r"needs more than max_bytes = 9000000: an estimated \d{9} to \d{9} bytes"):
        TransitiveClosure(g, max_bytes=9_000_000)
    with pytest.raises(PartitionError, match="estimated 5000000 to"):
        TransitiveClosure(g, max_bytes=1000)


def test_budget():
    n = 2000
    odd = np.arange(n - 2)  # two chains side by side: rows of every second bit, which no tail shortens
    g = Graph.from_edges(odd, odd + 2, n)
    with pytest.raises(
        PartitionError, match=r"closure of 2000 nodes needs more than max_bytes = 100000: an estimated \d+ to \d+ bytes"
    ):
        TransitiveClosure(g, max_bytes=100_000)
    assert TransitiveClosure(g).nbytes > 100_000


def test_empty_and_bad_nodes():
    assert TransitiveClosure(Graph.from_edges([], [], 0)).nbytes == 0
    closure = TransitiveClosure(Graph.from_edges([], [], 3))
    assert closure.descendants(1).tolist() == []
    for call in (closure.descendants, closure.ancestors, lambda v: closure.reaches(0, v)):
        for node in (3, -1):
            with pytest.raises(IndexError, match="is outside"):
                call(node)


@pytest.mark.parametrize("seed", range(8))
def test_estimate_before_any_row(seed):
    """A row spans the words from its first descendant to its last; its size is sure if that is not the last word."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(130, 400))
    src = rng.integers(0, n - 1, 2 * n)
    g = Graph.from_edges(src, np.minimum(src + rng.integers(1, 90, 2 * n), n - 1), n)
    order = g.topological_order.tolist()
    rank = np.empty(n, np.int64)
    rank[order] = np.arange(n)
    reach = reach_matrix(g)
    sure = possible = 25 * n  # what holds for each node, whatever it reaches
    for v in range(n):
        ranks = rank[reach[v]]
        if ranks.size:
            words = ranks.max() // 64 - ranks.min() // 64 + 1
            possible += 8 * words
            sure += 8 * words if ranks.max() // 64 < (n - 1) // 64 else 0
    assert sure > 25 * n
    with pytest.raises(PartitionError, match=f"an estimated {sure} to {possible} bytes"):
        TransitiveClosure(g, max_bytes=sure - 1)
    assert 25 * n <= TransitiveClosure(g).nbytes <= possible
