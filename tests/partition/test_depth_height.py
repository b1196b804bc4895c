"""Policy ``depth_height`` against its definition: components of equal device, depth and height."""

from __future__ import annotations

import numpy as np
import pytest

from hetero.partition import Graph, check_partition, partition_graph


def changes(g, device, order, before):
    """The largest number of device changes on a path from an end of the graph to each node. ``before``: neighbors."""
    most = [0] * g.num_nodes
    for v in order:
        for u in before(v).tolist():
            most[v] = max(most[v], most[u] + int(device[u] != device[v]))
    return most


def components_of_equal_depth_and_height(g, device):
    """The naive twin: the first node of each node's component."""
    order = g.topological_order.tolist()
    depth = changes(g, device, order, g.predecessors)
    height = changes(g, device, order[::-1], g.successors)
    kind = list(zip(device.tolist(), depth, height, strict=True))
    group = [-1] * g.num_nodes
    for first in range(g.num_nodes):
        if group[first] >= 0:
            continue
        group[first], queue = first, [first]
        for v in queue:
            for u in [*g.successors(v).tolist(), *g.predecessors(v).tolist()]:
                if group[u] < 0 and kind[u] == kind[v]:
                    group[u] = first
                    queue.append(u)
    return group


@pytest.mark.parametrize("seed", range(200))
def test_equals_its_twin(seed, dags, evaluate, numbering):
    g, device = dags.one(seed)
    if seed % 2:  # numbers that are not a topological order
        g, device = numbering.renumbered(g, device, np.random.default_rng(seed).permutation(g.num_nodes))
    p = partition_graph(g, device, "depth_height")
    check_partition(g, device, p.subgraph_of, ordered=True)
    assert evaluate(g, device, p.subgraph_of) == (p.num_subgraphs, p.cut_edges)
    assert np.array_equal(p.device_of[p.subgraph_of], device)
    _, first, ids = np.unique(p.subgraph_of, return_index=True, return_inverse=True)
    assert first[ids].tolist() == components_of_equal_depth_and_height(g, device)


def test_every_kind_is_valid(kinds, evaluate):
    for kind in kinds.KINDS:
        src, dst, device = kinds.make(kind, 3000)
        g = Graph.from_edges(src, dst, len(device))
        p = partition_graph(g, device, "depth_height")
        check_partition(g, device, p.subgraph_of, ordered=True)
        assert evaluate(g, device, p.subgraph_of) == (p.num_subgraphs, p.cut_edges)


def test_towers_that_join_can_run_side_by_side():
    """0 feeds towers 1, 2 on device 0 and 3, 4 on device 1, and 5 joins them. `auto` merges a tower with 5."""
    g = Graph.from_edges([0, 1, 2, 0, 3, 4], [1, 2, 5, 3, 4, 5], 6)
    device = np.array([0, 0, 0, 1, 1, 0])
    p = partition_graph(g, device, "depth_height")
    assert [p.nodes(i).tolist() for i in range(p.num_subgraphs)] == [[0], [1, 2], [3, 4], [5]]
    assert partition_graph(g, device).num_subgraphs == 3


@pytest.mark.parametrize("n", [0, 1, 3])
def test_graphs_without_edges(n):
    p = partition_graph(Graph.from_edges([], [], n), np.zeros(n, np.int32), "depth_height")
    assert p.num_subgraphs == n
    assert p.cut_edges == 0


def test_long_alternating_chain():
    n = 100_000
    g = Graph.from_edges(np.arange(n - 1), np.arange(1, n), n)
    assert partition_graph(g, np.arange(n) % 2, "depth_height").num_subgraphs == n
