"""`Partition.lower_bound`: no valid partition has fewer subgraphs, compared with an exhaustive search."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import graphs
import optimum
from hetero.partition import Graph, partition_graph


@pytest.mark.parametrize("first", range(0, 1200, 200))
def test_never_exceeds_the_minimum(first, numbering):
    met = 0
    for i, (_, (src, dst, device)) in enumerate(optimum.cases(first + 200, 2, 9)):
        if i < first:
            continue
        minimum = optimum.minimum(src, dst, device).subgraphs
        g = Graph.from_edges(src, dst, len(device))
        if i % 2:  # numbers that are not a topological order
            g, device = numbering.renumbered(g, device, np.random.default_rng(i).permutation(g.num_nodes))
        bounds = {partition_graph(g, device, policy).lower_bound for policy in ("auto", "linear", "depth_height")}
        assert len(bounds) == 1
        assert bounds.pop() <= minimum, i
        met += partition_graph(g, device).lower_bound == minimum
    assert met >= 198


def test_a_path_that_returns_through_a_predecessor_of_another_device():
    """An edge is cut because a predecessor of its end, on another device, is reached from its start along the landmark
    path. Without that rule, the bound is 6."""
    edges = "0-2 0-3 0-4 0-6 0-7 0-8 1-2 1-7 2-3 2-4 2-5 2-6 2-9 3-5 3-7 3-8 4-7 5-6 7-8 8-9"
    src, dst = np.array([edge.split("-") for edge in edges.split()], int).T
    device = np.array([1, 0, 1, 1, 0, 0, 1, 1, 0, 0])
    assert optimum.minimum(src, dst, device).subgraphs == 7
    assert partition_graph(Graph.from_edges(src, dst, 10), device).lower_bound == 7


@pytest.mark.parametrize("kind", ["transformer", "inception", "chain", "unet", "experts", "comb"])
def test_proves_auto_on_models(kind):
    src, dst, device = graphs.make(kind, 3000)
    p = partition_graph(Graph.from_edges(src, dst, len(device)), device)
    assert p.lower_bound == p.num_subgraphs


@pytest.mark.parametrize("kind", graphs.KINDS)
def test_never_exceeds_what_auto_finds(kind):
    for seed in range(3):
        src, dst, device = graphs.make(kind, 1500, seed)
        p = partition_graph(Graph.from_edges(src, dst, len(device)), device)
        assert 0 < p.lower_bound <= p.num_subgraphs
        half = partition_graph(Graph.from_edges(src, dst, len(device)), device, max_nodes=4)
        assert half.lower_bound == p.lower_bound


def test_a_return_and_a_forced_cut():
    """0 -> 1 -> 2 with 1 elsewhere: the edge 0 -> 2 is cut. 3 and 4 join both ends, and are cut from one of them."""
    g = Graph.from_edges([0, 1, 0, 0, 3, 4], [1, 2, 2, 3, 4, 2], 5)
    p = partition_graph(g, [0, 1, 0, 0, 0])
    assert p.lower_bound == p.num_subgraphs == 3
    alone = partition_graph(Graph.from_edges([], [], 4), [0, 0, 1, 1])
    assert alone.lower_bound == alone.num_subgraphs == 4
    assert partition_graph(Graph.from_edges([], [], 0), []).lower_bound == 0


def test_is_not_part_of_what_is_pickled():
    p = partition_graph(Graph.from_edges([0], [1], 2), [0, 1])
    assert p.lower_bound == pickle.loads(pickle.dumps(p)).lower_bound == 2
