"""Minimum cuts: SciPy's maximum flow, and the duality that proves both."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from hetero._assign import min_cut
from hetero.errors import PartitionError


def random_network(rng, n, edges_per_vertex, excess_share):
    edges = edges_per_vertex * n
    a, b = rng.integers(0, n, edges), rng.integers(0, n, edges)
    a, b = a[a != b].astype(np.int32), b[a != b].astype(np.int32)
    capacity = rng.integers(0, 100, len(a))
    back = rng.integers(0, 100, len(a)) * rng.integers(0, 2)
    excess = rng.integers(-200, 200, n) * (rng.random(n) < excess_share)
    return a, b, capacity, back, excess


def by_scipy(a, b, capacity, back, excess):
    """The value of the flow, and the vertices from which the sink can be reached after it."""
    n = len(excess)
    source, sink = n, n + 1
    src = np.concatenate([a, b, np.full(n, source), np.arange(n)])
    dst = np.concatenate([b, a, np.arange(n), np.full(n, sink)])
    limits = np.concatenate([capacity, back, np.maximum(excess, 0), np.maximum(-excess, 0)]).astype(np.int32)
    graph = csr_array((limits, (src, dst)), shape=(n + 2, n + 2))
    graph.sum_duplicates()
    found = maximum_flow(graph, source, sink)
    residual = (graph - found.flow).T.tocsr()
    residual.eliminate_zeros()
    reaching = breadth_first_order(residual, sink, return_predecessors=False)
    side = np.zeros(n + 2, bool)
    side[reaching] = True
    return found.flow_value, side[:n]


@pytest.mark.parametrize("seed", range(60))
def test_agrees_with_scipy(seed):
    rng = np.random.default_rng(seed)
    network = random_network(rng, int(rng.integers(2, 400)), int(rng.integers(1, 5)), rng.choice([0.05, 0.5, 1]))
    flow, side, cut = min_cut(*network)
    expected, expected_side = by_scipy(*network)
    assert flow == cut == expected
    np.testing.assert_array_equal(side, expected_side)  # the least sink side is unique


def test_long_ways():
    """A long path whose flow must go from one end to the other, and more than can pass."""
    n = 5000
    node = np.arange(n - 1, dtype=np.int32)
    capacity = np.full(n - 1, 1_000_000)
    capacity[n // 3] = 70_000
    excess = np.where(np.arange(n) < n // 2, 50, -60)
    flow, side, cut = min_cut(node, node + 1, capacity, capacity, excess)
    assert flow == cut == by_scipy(node, node + 1, capacity, capacity, excess)[0]
    assert side[n // 3 + 1 :].all()
    assert not side[: n // 3 + 1].any()


def test_unlimited_capacities():
    flow, side, cut = min_cut([0, 1], [1, 2], [np.inf, 3], [0, np.inf], [10, 0, -5])
    assert (flow, cut) == (3, 3)
    np.testing.assert_array_equal(side, [False, False, True])


def test_nothing():
    flow, side, cut = min_cut([], [], [], [], [])
    assert (flow, cut, side.shape) == (0, 0, (0,))
    assert min_cut([0], [1], [5], [5], [3, 4])[0] == 0


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (([0], [2], [1], [1], [0, 0]), "head"),
        (([0], [1], [-1], [1], [0, 0]), "capacity"),
        (([0], [1], [1], [np.nan], [0, 0]), "back"),
        (([0, 1], [1], [1, 1], [1, 1], [0, 0]), "one entry"),
    ],
)
def test_bad_networks(network, message):
    with pytest.raises(PartitionError, match=message):
        min_cut(*[np.asarray(part, np.int32) if i < 2 else part for i, part in enumerate(network)])
