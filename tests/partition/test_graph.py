"""`Graph`: building, validation, orders."""

from __future__ import annotations

import pickle
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetero.errors import PartitionError
from hetero.partition import Graph

DIAMOND = ([0, 0, 1, 2], [1, 2, 3, 3])


def naive_rows(src, dst, n):
    rows = [sorted({int(d) for s, d in zip(src, dst, strict=True) if s == v}) for v in range(n)]
    return np.cumsum([0] + [len(row) for row in rows]), [d for row in rows for d in row]


@st.composite
def edge_lists(draw):
    n = draw(st.integers(2, 30))
    pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda e: e[0] != e[1])))
    relabel = draw(st.permutations(range(n)))
    src = [relabel[min(e)] for e in pairs]
    dst = [relabel[max(e)] for e in pairs]
    return src, dst, n


@given(edge_lists(), st.sampled_from([np.int32, np.int64]), st.sampled_from(["plain", "strided", "reversed"]))
def test_rows_equal_the_naive_ones(edges, dtype, layout):
    src, dst, n = edges
    a, b = np.array(src, dtype), np.array(dst, dtype)
    if layout == "strided":
        a, b = np.repeat(a, 3)[::3], np.stack([b, b], axis=1)[:, 1]
    elif layout == "reversed":
        a, b = a[::-1].copy()[::-1], b[::-1].copy()[::-1]
    g = Graph.from_edges(a, b, n)
    indptr, indices = naive_rows(src, dst, n)
    assert g.indptr.tolist() == indptr.tolist()
    assert g.indices.tolist() == indices
    pred_indptr, pred_indices = naive_rows(dst, src, n)
    assert g.pred_indptr.tolist() == pred_indptr.tolist()
    assert g.pred_indices.tolist() == pred_indices
    assert g.num_nodes == n
    assert g.num_edges == len(indices)
    rank = np.empty(n, int)
    rank[g.topological_order] = np.arange(n)
    assert sorted(rank) == list(range(n))
    assert all(rank[s] < rank[d] for s, d in zip(src, dst, strict=True))
    again = Graph.from_csr(g.indptr.astype(dtype), g.indices.astype(dtype))
    assert np.array_equal(again.indices, g.indices)
    assert np.array_equal(again.topological_order, g.topological_order)


def test_ascending_edges_keep_their_order():
    assert Graph.from_edges([2, 0, 0], [3, 3, 1], 4).topological_order.tolist() == [0, 1, 2, 3]


def test_from_csr_sorts_rows_and_merges_duplicates():
    g = Graph.from_csr([0, 4, 4, 5, 5], [3, 1, 3, 2, 3])
    assert g.indices.tolist() == [1, 2, 3, 3]
    assert g.indptr.tolist() == [0, 3, 3, 4, 4]


def test_arrays_are_copies_and_read_only():
    indptr, indices = np.array([0, 1, 1], np.int32), np.array([1], np.int32)
    g = Graph.from_csr(indptr, indices)
    indices[0] = 0
    assert g.indices.tolist() == [1]
    for array in (g.indptr, g.indices, g.pred_indptr, g.pred_indices, g.topological_order):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7


@pytest.mark.parametrize("n", [0, 1, 5])
def test_graphs_without_edges(n):
    g = Graph.from_edges([], [], n)
    assert (g.num_nodes, g.num_edges) == (n, 0)
    assert g.topological_order.tolist() == list(range(n))
    assert Graph.from_csr(np.zeros(n + 1, np.int64), []).num_nodes == n


def test_neighbors_and_repr():
    g = Graph.from_edges(*DIAMOND, 4)
    assert g.successors(0).tolist() == [1, 2]
    assert g.predecessors(3).tolist() == [1, 2]
    assert repr(g) == "Graph(num_nodes=4, num_edges=4)"
    with pytest.raises(IndexError, match="node 4 is outside"):
        g.successors(4)


def test_pickle():
    g = pickle.loads(pickle.dumps(Graph.from_edges(*DIAMOND, 4)))
    assert g.indices.tolist() == [1, 2, 3, 3]


def test_constructor_points_to_the_factories():
    with pytest.raises(TypeError, match="from_edges"):
        Graph()


@pytest.mark.parametrize(
    ("src", "dst", "n", "message"),
    [
        ([0, 1, 2, 3], [1, 2, 3, 1], 5, r"cycle.*: 1 -> 2 -> 3 -> 1"),
        ([1, 0], [0, 1], 2, r"cycle.*: 0 -> 1 -> 0"),
        ([0, 2], [1, 2], 3, r"edge 1 is a self-loop: node 2"),
        ([0, 3], [1, 1], 3, r"src\[1\] = 3 is no node: expected 0 to 2"),
        ([0, 1], [1, -1], 3, r"dst\[1\] = -1 is no node"),
        (np.array([0, 2**32]), np.array([1, 1]), 3, r"src\[1\] = 4294967296 is no node"),
        ([0.0], [1.0], 2, r"src must be an array of int32 or int64, found dtype float64"),
        (np.array([0], np.uint8), [1], 2, r"dtype uint8"),
        ([[0]], [[1]], 2, r"src must be a one-dimensional array, found 2"),
        ([0, 1], [1], 2, r"one entry per edge each, found 2 and 1"),
        ([0], [1], -1, r"num_nodes must lie within"),
        ([0], [1], 2**31, r"num_nodes must lie within"),
        ([0], [1], 2.0, r"num_nodes must be an integer"),
        ([0], [0], 0, r"is no node"),
    ],
)
def test_bad_edges(src, dst, n, message):
    with pytest.raises(PartitionError, match=message):
        Graph.from_edges(src, dst, n)


@pytest.mark.parametrize(
    ("indptr", "indices", "message"),
    [
        ([], [], r"num_nodes \+ 1 entries"),
        ([1, 1], [], r"indptr must rise from 0 to the number of edges 0: indptr\[0\] = 1"),
        ([0, 2, 1, 2], [1, 2], r"indptr\[2\] = 1"),
        ([0, 1, 1], [1, 1], r"number of edges 2: indptr\[2\] = 1"),
        ([0, 2**40, 1], [1], r"indptr\[1\] = 1099511627776|indptr\[2\] = 1"),
        ([0, 1, 1], [2], r"indices\[0\] = 2 is no node"),
        ([0, 1, 2], [1, 1], r"row 1 of indices holds a self-loop"),
        ([0, 1, 2], [1, 0], r"cycle"),
        ([[0, 1]], [0], r"indptr must be a one-dimensional"),
        ([0, 0], [[]], r"indices must be a one-dimensional"),
        ([0.0], [], r"indptr must be an array of int32"),
    ],
)
def test_bad_rows(indptr, indices, message):
    with pytest.raises(PartitionError, match=message):
        Graph.from_csr(indptr, indices)


def test_long_cycle_is_shortened_and_linear():
    n = 200_000
    node = np.arange(n)
    started = time.thread_time()
    with pytest.raises(PartitionError, match=r"0 -> 1 -> .*\(200000 nodes\)"):
        Graph.from_edges(node, (node + 1) % n, n)
    assert time.thread_time() - started < 20  # less than a tenth of a second; a minute if quadratic


def test_cycle_behind_a_long_tail():
    """Nodes behind a cycle are unordered too, but are not part of it."""
    src, dst = [5, 6, 7, 7, 0, 1, 2], [6, 7, 5, 0, 1, 2, 3]
    with pytest.raises(PartitionError, match=r": 5 -> 6 -> 7 -> 5$"):
        Graph.from_edges(src, dst, 8)
