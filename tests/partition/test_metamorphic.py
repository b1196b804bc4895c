"""What must hold for every policy when its input is written otherwise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetero.errors import PartitionError
from hetero.partition import POLICIES, Graph, check_partition, partition_graph
from threads import in_threads


@st.composite
def problems(draw, max_nodes=40, max_devices=4):
    """Edge arrays whose numbers are some topological order, or none, and a device per node."""
    n = draw(st.integers(1, max_nodes))
    pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda e: e[0] != e[1])))
    number = draw(st.one_of(st.just(list(range(n))), st.permutations(range(n))))
    device = draw(st.lists(st.integers(0, max_devices - 1), min_size=n, max_size=n))
    src = np.array([number[min(e)] for e in pairs], np.int64)
    dst = np.array([number[max(e)] for e in pairs], np.int64)
    return src, dst, np.array(device, np.int32)


def edges_of(g):
    return np.repeat(np.arange(g.num_nodes), np.diff(g.indptr)), g.indices


def groups(label):
    """The partition without its ids: each node's group by the first node of it."""
    _, first, ids = np.unique(label, return_index=True, return_inverse=True)
    return first[ids].tolist()


@pytest.mark.parametrize("policy", POLICIES)
@given(problem=problems(), weighted=st.booleans())
def test_every_policy_keeps_the_rules(policy, problem, weighted, evaluate):
    src, dst, device = problem
    g = Graph.from_edges(src, dst, len(device))
    weight = np.arange(len(src)) % 5 if weighted else None
    p = partition_graph(g, device, policy, edge_weight=weight)
    check_partition(g, device, p.subgraph_of, maximal=policy == "auto", ordered=True)
    assert evaluate(g, device, p.subgraph_of) == (p.num_subgraphs, p.cut_edges)
    cut = p.subgraph_of[src] != p.subgraph_of[dst]
    assert p.cut_weight == (weight[cut].sum() if weighted else p.cut_edges)
    assert np.array_equal(device, p.device_of[p.subgraph_of])
    assert p.quotient.num_nodes == p.num_subgraphs
    assert sorted(v for i in range(p.num_subgraphs) for v in p.nodes(i).tolist()) == list(range(len(device)))


@pytest.mark.parametrize("policy", POLICIES)
@given(problem=problems(), place=st.floats(0, 1), new_device=st.integers(0, 4))
def test_an_isolated_node_changes_nothing_else(policy, problem, place, new_device):
    """Wherever its number is inserted."""
    src, dst, device = problem
    n = len(device)
    at = round(place * n)
    number = np.arange(n) + (np.arange(n) >= at)
    plain = partition_graph(Graph.from_edges(src, dst, n), device, policy)
    more = partition_graph(Graph.from_edges(number[src], number[dst], n + 1), np.insert(device, at, new_device), policy)
    assert more.num_subgraphs == plain.num_subgraphs + 1
    assert more.cut_edges == plain.cut_edges
    assert groups(np.delete(more.subgraph_of, at)) == groups(plain.subgraph_of)


@given(problem=problems(), seed=st.integers(0, 2**32 - 1))
def test_numbers_do_not_matter_to_linear(problem, seed):
    """Equal depth is a property of the graph alone: the same subgraphs under any numbering, topological or not."""
    src, dst, device = problem
    number = np.random.default_rng(seed).permutation(len(device))
    plain = partition_graph(Graph.from_edges(src, dst, len(device)), device, "linear")
    moved_device = np.empty_like(device)
    moved_device[number] = device
    moved = partition_graph(Graph.from_edges(number[src], number[dst], len(device)), moved_device, "linear")
    assert groups(moved.subgraph_of[number]) == groups(plain.subgraph_of)
    assert moved.cut_edges == plain.cut_edges


TIES = ("random", "towers", "loose_comb", "three_devices", "half_foreign")
"""Kinds on which equally good choices differ in what follows from them."""


@pytest.mark.parametrize("policy", ["auto", "documented"])
def test_another_topological_order_changes_ties_alone(policy, kinds, numbering):
    for kind in kinds.KINDS:
        src, dst, device = kinds.make(kind, 1000)
        g = Graph.from_edges(src, dst, len(device))
        plain = partition_graph(g, device, policy)
        for seed in range(3):
            p = partition_graph(*numbering.renumbered(g, device, numbering.another_order(g, seed)), policy)
            most = 0.1 if kind in TIES else 0
            assert abs(p.num_subgraphs - plain.num_subgraphs) <= most * plain.num_subgraphs, (kind, seed)


@pytest.mark.parametrize("policy", POLICIES)
@given(problem=problems(), seed=st.integers(0, 2**32 - 1))
def test_the_order_of_edges_does_not_matter(policy, problem, seed):
    src, dst, device = problem
    order = np.random.default_rng(seed).permutation(len(src))
    plain = partition_graph(Graph.from_edges(src, dst, len(device)), device, policy)
    twice = np.concatenate([order, order])
    shuffled = partition_graph(Graph.from_edges(src[twice], dst[twice], len(device)), device, policy)
    assert np.array_equal(shuffled.subgraph_of, plain.subgraph_of)


@pytest.mark.parametrize("policy", POLICIES)
@given(problem=problems(max_devices=4), step=st.integers(2, 60))
def test_only_the_order_of_device_numbers_matters(policy, problem, step):
    src, dst, device = problem
    g = Graph.from_edges(src, dst, len(device))
    plain = partition_graph(g, device, policy)
    spread = partition_graph(g, device * step + 1, policy)
    assert np.array_equal(spread.subgraph_of, plain.subgraph_of)
    assert np.array_equal(spread.device_of, plain.device_of * step + 1)


@pytest.mark.parametrize("policy", POLICIES)
def test_equal_across_threads_and_runs(policy, kinds):
    n = 1000 if policy == "documented" else 20_000
    problems = [kinds.make(kind, n) for kind in ("random", "unet", "three_devices")]
    graphs = [(Graph.from_edges(src, dst, len(device)), device) for src, dst, device in problems]
    expected = [partition_graph(g, device, policy).subgraph_of for g, device in graphs]
    different = []

    def work():
        for (g, device), label in zip(graphs, expected, strict=True):
            if not np.array_equal(partition_graph(g, device, policy).subgraph_of, label):
                different.append(g)

    in_threads(lambda _: work(), range(3))
    assert not different


@pytest.mark.parametrize("policy", POLICIES)
def test_as_many_devices_as_there_can_be(policy, evaluate):
    n = 2000
    rng = np.random.default_rng(0)
    node = np.arange(1, n)
    g = Graph.from_edges(np.concatenate([node - 1, node // 2]), np.concatenate([node, node + (node == 1)]) % n, n)
    device = rng.integers(0, 255, n)
    p = partition_graph(g, device, policy)
    check_partition(g, device, p.subgraph_of, maximal=policy == "auto", ordered=True)
    assert evaluate(g, device, p.subgraph_of) == (p.num_subgraphs, p.cut_edges)
    assert int(device.max()) == 254
    device[7] = 255
    with pytest.raises(PartitionError, match=r"device\[7\] = 255"):
        partition_graph(g, device, policy)
