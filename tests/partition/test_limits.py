"""``min_nodes``, ``allowed`` and ``max_nodes``."""

from __future__ import annotations

import numpy as np
import pytest

from hetero.errors import PartitionError
from hetero.partition import POLICIES, Graph, check_partition, partition_graph

CHAIN = Graph.from_edges(np.arange(9), np.arange(1, 10), 10)
CHAIN_DEVICE = [0, 0, 0, 1, 0, 1, 1, 1, 0, 2]


def test_small_subgraphs_fall_to_the_next_device():
    everywhere = np.ones((10, 3), bool)
    p = partition_graph(CHAIN, CHAIN_DEVICE, min_nodes={0: 2}, allowed=everywhere)
    assert p.device_of[p.subgraph_of].tolist() == [0, 0, 0, 1, 1, 1, 1, 1, 1, 2]
    q = partition_graph(CHAIN, CHAIN_DEVICE, min_nodes=4, allowed=everywhere)
    assert q.device_of[q.subgraph_of].tolist() == [1] * 9 + [2], "all of device 0 falls; one of the last device stays"


def test_a_device_that_may_not_take_all_nodes_is_skipped():
    allowed = np.ones((10, 3), bool)
    allowed[4, 1] = allowed[8, 1] = allowed[8, 2] = False
    p = partition_graph(CHAIN, CHAIN_DEVICE, min_nodes={0: 2}, allowed=allowed)
    assert p.device_of[p.subgraph_of].tolist() == [0, 0, 0, 1, 2, 1, 1, 1, 0, 2]


def test_nothing_is_small_enough_left(dags):
    for seed in range(60):
        g, device = dags.one(seed, max_devices=3)
        rng = np.random.default_rng(seed)
        allowed = rng.random((g.num_nodes, 3)) < 0.7
        for policy in POLICIES:
            p = partition_graph(g, device, policy, min_nodes={0: 3, 1: 2}, allowed=allowed)
            final = p.device_of[p.subgraph_of]
            check_partition(g, final, p.subgraph_of, maximal=policy == "auto", ordered=True)
            assert (final >= device).all()
            moved = final != device
            assert allowed[moved, final[moved]].all()
            for i in range(p.num_subgraphs):
                nodes, number = p.nodes(i), p.device_of[i]
                if len(nodes) < (3, 2, 0)[number]:
                    assert not any(allowed[nodes, later].all() for later in range(number + 1, 3))


@pytest.mark.spread(2)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("limit", [1, 2, 5, 1000])
def test_max_nodes(policy, limit, dags, evaluate):
    for seed in range(60):
        g, device = dags.one(seed)
        free = partition_graph(g, device, policy)
        p = partition_graph(g, device, policy, max_nodes=limit)
        check_partition(g, device, p.subgraph_of, ordered=True)
        assert evaluate(g, device, p.subgraph_of) == (p.num_subgraphs, p.cut_edges)
        sizes = np.bincount(p.subgraph_of)
        assert sizes.max() <= limit
        for small in np.flatnonzero(np.bincount(free.subgraph_of) <= limit):
            assert len(np.unique(p.subgraph_of[free.subgraph_of == small])) == 1, "it was split without need"
        assert p.num_subgraphs >= free.num_subgraphs or policy != "auto"
        assert p.num_subgraphs >= -(-g.num_nodes // limit)
        if limit >= g.num_nodes:
            assert np.array_equal(p.subgraph_of, free.subgraph_of)


@pytest.mark.parametrize("policy", POLICIES)
def test_both_limits_at_once(policy, dags, evaluate):
    for seed in range(40):
        g, device = dags.one(seed, max_devices=3)
        allowed = np.random.default_rng(seed).random((g.num_nodes, 3)) < 0.8
        p = partition_graph(g, device, policy, min_nodes=2, max_nodes=3, allowed=np.asfortranarray(allowed))
        final = p.device_of[p.subgraph_of]
        check_partition(g, final, p.subgraph_of, ordered=True)
        assert evaluate(g, final, p.subgraph_of) == (p.num_subgraphs, p.cut_edges)
        assert np.bincount(p.subgraph_of).max() <= 3
        again = partition_graph(g, final, policy, max_nodes=3)
        assert np.array_equal(again.subgraph_of, p.subgraph_of)


def test_limits_of_any_integer_type_and_size():
    p = partition_graph(CHAIN, CHAIN_DEVICE, max_nodes=np.int64(2))
    assert np.bincount(p.subgraph_of).max() == 2
    assert partition_graph(CHAIN, CHAIN_DEVICE, max_nodes=10**30).num_subgraphs == 6
    everywhere = np.ones((10, 3), bool)
    q = partition_graph(CHAIN, CHAIN_DEVICE, min_nodes=10**30, allowed=everywhere)
    assert q.device_of.tolist() == [2], "all fall to the last device"
    assert (
        partition_graph(Graph.from_edges([], [], 0), [], min_nodes=2, allowed=np.ones((0, 2), bool)).num_subgraphs == 0
    )


def test_max_nodes_packs_a_chain():
    g = Graph.from_edges(np.arange(99), np.arange(1, 100), 100)
    p = partition_graph(g, np.zeros(100, int), max_nodes=10)
    assert p.num_subgraphs == 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_nodes": 2}, "min_nodes requires allowed"),
        ({"min_nodes": 2, "allowed": np.ones((9, 3), bool)}, r"shape \(10, num_devices\), found \(9, 3\)"),
        ({"min_nodes": 2, "allowed": np.ones((10, 3))}, "array of bool, found dtype float64"),
        ({"min_nodes": 2, "allowed": np.ones((10, 2), bool)}, "2 columns, but device number 2 occurs"),
        ({"min_nodes": {3: 2}, "allowed": np.ones((10, 3), bool)}, "names device 3, but allowed has 3 columns"),
        ({"min_nodes": -1, "allowed": np.ones((10, 3), bool)}, "min_nodes must be 0 or more, found -1"),
        ({"max_nodes": 0}, "max_nodes must be 1 or more, found 0"),
        ({"max_nodes": -5}, "1 or more, found -5"),
        ({"max_nodes": 2.5}, r"max_nodes must be an integer, found 2\.5"),
        ({"max_nodes": True}, "max_nodes must be an integer, found True"),
        ({"max_nodes": "4"}, "max_nodes must be an integer, found '4'"),
        ({"min_nodes": True, "allowed": np.ones((10, 3), bool)}, "min_nodes must be an integer, found True"),
        ({"min_nodes": 2.0, "allowed": np.ones((10, 3), bool)}, r"an integer, found 2\.0"),
        ({"min_nodes": {0: -1}, "allowed": np.ones((10, 3), bool)}, r"min_nodes\[0\] must be 0 or more, found -1"),
        ({"min_nodes": {0.0: 1}, "allowed": np.ones((10, 3), bool)}, "a device number in min_nodes must be an integer"),
        (
            {"min_nodes": 2, "allowed": np.ones((10, 256), bool)},
            "256 columns, expected at most 255: device numbers end at 254",
        ),
        ({"allowed": np.ones((10, 3), bool)}, "pass min_nodes too"),
    ],
)
def test_bad_limits(options, message):
    with pytest.raises(PartitionError, match=message):
        partition_graph(CHAIN, CHAIN_DEVICE, **options)
