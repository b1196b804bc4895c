"""`check_partition` names the broken rule and a witness."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hetero.errors import PartitionError
from hetero.partition import Graph, check_partition, partition_graph

WORKED = Graph.from_edges([0, 1, 1, 2, 3, 4, 5], [1, 2, 3, 4, 4, 5, 6], 7)
WORKED_DEVICE = [0, 0, 0, 1, 0, 0, 0]


@pytest.mark.parametrize(
    ("label", "options", "message"),
    [
        ([0, 0, 0, 1, 0, 0, 0], {}, r"not convex: a path leaves subgraph 0 and returns to it: 1 -> 3 -> 4$"),
        (
            [0, 0, 0, 0, 0, 0, 0],
            {},
            r"not on one device: subgraph 0 contains node 0 of device 0 and node 3 of device 1",
        ),
        ([0, 0, 1, 2, 1, 1, 3], {}, None),
        ([1, 1, 2, 0, 2, 2, 2], {}, None),
        ([1, 1, 2, 0, 2, 2, 2], {"ordered": True}, r"edge 1 -> 3 leads from subgraph 1 to subgraph 0"),
        ([0, 0, 1, 2, 1, 1, 3], {"maximal": True}, r"not maximal: subgraphs 1 and 3 of device 0 .* edge 5 -> 6"),
        ([0, 0, 1, 2, 1, 1, 1], {"maximal": True}, None),
        ([0, 0, 2, 1, 2, 2, 2], {"maximal": True, "ordered": True}, None),
        ([0, 0, 1, 2, 3, 1, 1], {}, r"not connected: no edges inside subgraph 1 join its nodes 2 and 5"),
        ([0, 0, 1, 3, 1, 1, 1], {}, r"subgraph 2 has no node"),
        ([0, 0, 1, -1, 1, 1, 1], {}, r"subgraph_of\[3\] = -1 is not a subgraph id"),
        ([0, 0, 1, 7, 1, 1, 1], {}, r"subgraph_of\[3\] = 7 is not a subgraph id"),
        (np.array([0, 0, 1, 2**33, 1, 1, 1]), {}, r"is not a subgraph id"),
        ([0, 0, 1], {}, r"expected 7, found 3"),
        ([0.0] * 7, {}, r"dtype float64"),
    ],
)
def test_rules(label, options, message):
    if message is None:
        check_partition(WORKED, WORKED_DEVICE, label, **options)
        return
    with pytest.raises(PartitionError, match=message):
        check_partition(WORKED, WORKED_DEVICE, label, **options)


def test_the_path_out_and_back_is_a_shortest_one():
    """Also where it leaves from node 0, and another path reaches the same nodes later."""
    g = Graph.from_edges([0, 0, 0, 1, 2], [1, 2, 3, 2, 3], 4)
    with pytest.raises(PartitionError, match=r"a path leaves subgraph 0 and returns to it: 0 -> 2 -> 3$"):
        check_partition(g, [0, 1, 1, 0], [0, 1, 1, 0])
    many = Graph.from_edges([0] * 9 + [*range(1, 9)], [*range(1, 10), *range(2, 10)], 10)
    with pytest.raises(PartitionError, match=r"a path leaves subgraph 0 and returns to it: 0 -> 8 -> 9$"):
        check_partition(many, [0, *[1] * 8, 0], [0, *[1] * 8, 0])


@pytest.mark.parametrize("length", [2, 3, 4])
def test_each_subgraph_of_a_cycle_is_examined(length):
    """Only one of the subgraphs that wait for each other is not convex, wherever the search begins: that depends on the
    number of all subgraphs. ``others``: so many of one node."""
    for first, reverse, others in itertools.product(range(length), (False, True), range(length)):
        number = [(first + (-at if reverse else at)) % length for at in range(length)]
        g = Graph.from_edges([*range(length), 0], [*range(1, length + 1), length], length + 1 + others)
        label = [*number, number[0], *range(length, length + others)]
        message = rf"returns to it: {' -> '.join(map(str, range(length + 1)))}$"
        with pytest.raises(PartitionError, match=rf"not convex: a path leaves subgraph {number[0]} and {message}"):
            check_partition(g, label, label)


def test_two_convex_subgraphs_that_wait_for_each_other():
    g = Graph.from_edges([0, 0, 3, 3, 1, 5], [1, 2, 4, 5, 4, 2], 6)
    with pytest.raises(PartitionError, match=r"not acyclic: subgraphs wait for each other: .*edge 1 -> 4.*edge 5 -> 2"):
        check_partition(g, [0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 1])


def test_empty_graph():
    check_partition(Graph.from_edges([], [], 0), [], [], maximal=True, ordered=True)


def is_valid(children, device, label):
    """The rules by definition: paths and connectivity by breadth-first search, cycles by deletion of sinks."""
    n, k = len(device), max(label) + 1
    if sorted(set(label)) != list(range(k)):
        return False
    for s in range(k):
        nodes = [v for v in range(n) if label[v] == s]
        if len({device[v] for v in nodes}) > 1:
            return False
        seen, grown = {nodes[0]}, True
        while grown:
            new = {v for v in nodes if v not in seen and any(v in children[u] or u in children[v] for u in seen)}
            grown = bool(new)
            seen |= new
        if len(seen) < len(nodes):
            return False
    edges = {(label[u], label[v]) for u in range(n) for v in children[u] if label[u] != label[v]}
    left = set(range(k))
    while sinks := {s for s in left if not any(a == s and b in left for a, b in edges)}:
        left -= sinks
    return not left


def can_merge_some(children, device, label):
    pairs = {(label[u], label[v]) for u in range(len(device)) for v in children[u] if label[u] != label[v]}
    device_of = dict(zip(label, device, strict=True))
    for a, b in sorted(pairs):
        if device_of[a] == device_of[b]:
            merged = [a if x == b else x for x in label]
            merged = [sorted(set(merged)).index(x) for x in merged]
            if is_valid(children, device, merged):
                return True
    return False


def test_verdicts_equal_the_definition(dags):
    """All labelings of small random graphs by at most three ids."""
    for seed in range(60):
        g, device = dags.one(seed, max_nodes=6, max_devices=2)
        n = g.num_nodes
        children = [set(g.successors(v).tolist()) for v in range(n)]
        for label in itertools.product(range(min(n, 3)), repeat=n):
            expected = is_valid(children, device.tolist(), label)
            try:
                check_partition(g, device, np.array(label))
            except PartitionError:
                assert not expected
                continue
            assert expected
            try:
                check_partition(g, device, np.array(label), maximal=True)
            except PartitionError:
                assert can_merge_some(children, device.tolist(), label)
            else:
                assert not can_merge_some(children, device.tolist(), label)


def test_debug_switch_checks_every_partition(monkeypatch):
    from hetero.partition import policies

    seen = []
    monkeypatch.setattr(policies, "CHECK_ALWAYS", True)
    monkeypatch.setattr(policies, "check_partition", lambda *args, **options: seen.append(options))
    partition_graph(WORKED, WORKED_DEVICE, "linear")
    assert seen == [{"maximal": False, "ordered": True}]


def test_debug_switch_demands_maximality_only_where_the_search_was_finished(monkeypatch):
    from hetero.partition import policies

    demanded = []

    def check(*args, **options):
        demanded.append(options["maximal"])
        check_partition(*args, **options)

    monkeypatch.setattr(policies, "CHECK_ALWAYS", True)
    monkeypatch.setattr(policies, "check_partition", check)
    partition_graph(WORKED, WORKED_DEVICE)
    assert demanded == [True]
    for seed, chains in enumerate((64, 1000)):  # side by side, with long edges: contraction has to run again
        rng = np.random.default_rng(seed)
        nodes = 130_000
        node = np.arange(chains, nodes)
        reader = node[rng.random(len(node)) < 0.1]
        other = (rng.random(len(reader)) * (reader // chains * chains)).astype(np.int64)
        graph = Graph.from_edges(np.concatenate([node - chains, other]), np.concatenate([node, reader]), nodes)
        device = (rng.random(nodes) < 0.1).astype(np.int32)
        partition = partition_graph(graph, device)
        assert demanded[-1] is True
        assert partition.num_subgraphs < 0.95 * partition_graph(graph, device, "linear").num_subgraphs
        assert demanded[-1] is False
        partition_graph(graph, device, max_nodes=3)
        assert demanded[-1] is False
        partition_graph(graph, device, min_nodes=2, allowed=np.ones((nodes, 3), bool))
