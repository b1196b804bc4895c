"""`TransitiveClosure` against breadth-first search."""

from __future__ import annotations

import numpy as np
import pytest

from hetero.errors import PartitionError
from hetero.partition import Graph, TransitiveClosure


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


def test_cache_is_bounded_and_read_only():
    closure = TransitiveClosure(Graph.from_edges([0, 1, 2], [1, 2, 3], 4), cache_size=2)
    first = closure.path_nodes(0, 3)
    assert closure.path_nodes(0, 3) is first
    closure.path_nodes(0, 2)
    closure.path_nodes(1, 3)
    assert closure.path_nodes(0, 3) is not first
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 1


def test_budget():
    n = 2000
    odd = np.arange(n - 2)  # two chains side by side: rows of every second bit, which no tail shortens
    g = Graph.from_edges(odd, odd + 2, n)
    with pytest.raises(PartitionError, match=r"closure of 2000 nodes needs more than max_bytes = 100000: at most \d+"):
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
