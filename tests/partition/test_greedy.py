"""Policy ``greedy``: equal to its naive twin, valid, and in total no worse than ``documented``."""

from __future__ import annotations

import numpy as np
import pytest

from hetero.partition import Graph, check_partition, partition_graph, reference


def groups(labels):
    return sorted(np.flatnonzero(labels == i).tolist() for i in np.unique(labels))


@pytest.mark.parametrize("devices", [1, 2, 3, 4])
def test_equals_its_twin(devices, dags):
    for seed in range(150):
        g, device = dags.one(seed, max_nodes=28, max_devices=devices)
        p = partition_graph(g, device, "greedy")
        assert groups(p.subgraph_of) == groups(reference.greedy(g, device.tolist())), seed


def test_worked_example():
    g = Graph.from_edges([1, 2, 2, 3, 4, 5, 6], [2, 3, 4, 5, 5, 6, 7], 8)
    device = [2, 0, 0, 0, 1, 0, 0, 0]
    assert groups(partition_graph(g, device, "greedy").subgraph_of) == [[0], [1, 2], [3, 5, 6, 7], [4]]


def test_in_total_no_worse_than_documented(dags):
    greedy = documented = 0
    for seed in range(1500):
        g, device = dags.one(seed)
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


def test_numbers_that_are_no_topological_order(dags):
    for seed in range(100):
        g, device = dags.one(seed)
        number = np.random.default_rng(seed).permutation(g.num_nodes)
        src = np.repeat(np.arange(g.num_nodes), np.diff(g.indptr))
        moved = np.empty_like(device)
        moved[number] = device
        g = Graph.from_edges(number[src], number[g.indices], g.num_nodes)
        p = partition_graph(g, moved, "greedy")
        check_partition(g, moved, p.subgraph_of, ordered=True)
