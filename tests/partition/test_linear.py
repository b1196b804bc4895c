"""Policy ``linear`` against its definition: components of equal depth."""

from __future__ import annotations

import numpy as np
import pytest

from hetero.partition import Graph, check_partition, partition_graph


def components_of_equal_depth(g, device):
    """The naive twin: (label by (depth, first node))."""
    n = g.num_nodes
    depth = [0] * n
    for v in g.topological_order.tolist():
        for u in g.predecessors(v).tolist():
            depth[v] = max(depth[v], depth[u] + int(device[u] != device[v]))
    group = list(range(n))
    changed = True
    while changed:
        changed = False
        for u in range(n):
            for v in g.successors(u).tolist():
                if device[u] == device[v] and depth[u] == depth[v] and group[u] != group[v]:
                    low, high = sorted((group[u], group[v]))
                    group = [low if x == high else x for x in group]
                    changed = True
    rank = {v: i for i, v in enumerate(g.topological_order.tolist())}
    first = {}
    for v in g.topological_order.tolist():
        first.setdefault(group[v], (depth[v], rank[v]))
    ids = {x: i for i, (x, _) in enumerate(sorted(first.items(), key=lambda item: item[1]))}
    return [ids[x] for x in group]


@pytest.mark.parametrize("seed", range(200))
def test_equals_its_twin(seed, dags, evaluate):
    g, device = dags.one(seed)
    if seed % 2:  # numbers that are no topological order
        relabel = np.random.default_rng(seed).permutation(g.num_nodes)
        src = np.repeat(np.arange(g.num_nodes), np.diff(g.indptr))
        g = Graph.from_edges(relabel[src], relabel[g.indices], g.num_nodes)
        moved = np.empty_like(device)
        moved[relabel] = device
        device = moved
    p = partition_graph(g, device, "linear")
    assert p.subgraph_of.tolist() == components_of_equal_depth(g, device)
    check_partition(g, device, p.subgraph_of, ordered=True)
    assert evaluate(g, device, p.subgraph_of) == (p.num_subgraphs, p.cut_edges)
    assert p.subgraph_of.dtype == p.device_of.dtype == np.int32


def test_every_kind_is_valid(kinds, evaluate):
    for kind in kinds.KINDS:
        src, dst, device = kinds.make(kind, 3000)
        g = Graph.from_edges(src, dst, len(device))
        p = partition_graph(g, device, "linear")
        check_partition(g, device, p.subgraph_of, ordered=True)
        assert evaluate(g, device, p.subgraph_of) == (p.num_subgraphs, p.cut_edges)
