"""The documented loop: the worked example to the letter, and validity on random graphs."""

from __future__ import annotations

import numpy as np
import pytest

from hetero.errors import PartitionError
from hetero.partition import Graph, TraceStep, check_partition, partition_graph
from partition import reference

# Numbered from 1 as in the document: node 0 is isolated, on a device of its own, so that numbers agree.
EDGES = ([1, 2, 2, 3, 4, 5, 6], [2, 3, 4, 5, 5, 6, 7])
DEVICE = [2, 0, 0, 0, 1, 0, 0, 0]

FIRST_ROUND = [
    ("root", 1, (1,), ()),
    ("merge", 2, (1, 2), ()),
    ("merge", 3, (1, 2, 3), ()),
    ("merge", 5, (1, 2, 3, 5), ()),
    ("merge", 6, (1, 2, 3, 5, 6), ()),
    ("merge", 7, (1, 2, 3, 5, 6, 7), ()),
    ("fail", 4, (1, 2, 3, 5, 6, 7), (4,)),
    ("rollback", 7, (1, 2, 3, 5, 6), (4, 7)),
    ("rollback", 6, (1, 2, 3, 5), (4, 6, 7)),
    ("rollback", 5, (1, 2, 3), (4, 5, 6, 7)),
    ("root", 5, (5,), ()),
    ("merge", 6, (5, 6), ()),
    ("merge", 7, (5, 6, 7), ()),
    ("merge", 3, (3, 5, 6, 7), ()),
    ("merge", 2, (2, 3, 5, 6, 7), ()),
    ("fail", 4, (2, 3, 5, 6, 7), (4,)),
    ("rollback", 2, (3, 5, 6, 7), (2, 4)),
    ("choose", 5, (3, 5, 6, 7), ()),
]


def test_worked_example():
    p = partition_graph(Graph.from_edges(*EDGES, 8), DEVICE, "documented", trace=True)
    assert p.trace is not None
    assert p.trace[: len(FIRST_ROUND)] == tuple(TraceStep(*step) for step in FIRST_ROUND)
    chosen = [step.candidate for step in p.trace if step.action == "choose"]
    assert chosen == [(3, 5, 6, 7), (1, 2), (4,), (0,)]
    assert sorted(p.nodes(i).tolist() for i in range(4)) == [[0], [1, 2], [3, 5, 6, 7], [4]]
    assert p.cut_edges == 3


def test_without_trace():
    assert partition_graph(Graph.from_edges(*EDGES, 8), DEVICE, "documented").trace is None


def test_deadlock_example():
    """Chosen subgraphs count as vertices: {a*} and {b*} are both convex, but neither could run first."""
    a, b = range(3), range(3, 6)
    g = Graph.from_edges([a[0], a[0], b[0], b[0], a[1], b[2]], [a[1], a[2], b[1], b[2], b[1], a[2]], 6)
    device = [0, 0, 0, 1, 1, 1]
    p = partition_graph(g, device, "documented")
    check_partition(g, device, p.subgraph_of, ordered=True)
    assert p.num_subgraphs == 3
    assert len(set(p.subgraph_of[:3].tolist())) == 1, "the first device chooses first"


def test_devices_in_ascending_order():
    """Both devices want the middle of a cross; the smaller number gets it whole."""
    g = Graph.from_edges([0, 1, 2, 3], [2, 3, 4, 4], 5)
    first = partition_graph(g, [0, 1, 0, 1, 0], "documented")
    assert [first.nodes(i).tolist() for i in range(first.num_subgraphs)] == [[1, 3], [0, 2, 4]]


@pytest.mark.parametrize("seed", range(150))
def test_valid_on_random_graphs(seed, dags, evaluate):
    g, device = dags.one(seed, max_nodes=24)
    p = partition_graph(g, device, "documented")
    check_partition(g, device, p.subgraph_of, ordered=True)
    quality = evaluate(g, device, p.subgraph_of)
    assert quality == (p.num_subgraphs, p.cut_edges)
    assert np.array_equal(device[[p.nodes(i)[0] for i in range(p.num_subgraphs)]], p.device_of)


def equals_its_twin(g, device):
    label, steps = reference.documented(g, device.tolist())
    p = partition_graph(g, device, "documented", trace=True)
    assert p.trace == steps
    chosen = [step.candidate for step in p.trace if step.action == "choose"]
    assert [tuple(np.flatnonzero(label == i).tolist()) for i in range(len(chosen))] == chosen
    untraced = partition_graph(g, device, "documented")  # keeps candidates from round to round
    assert np.array_equal(untraced.subgraph_of, p.subgraph_of)


@pytest.mark.parametrize("devices", [1, 2, 3, 4])
def test_equals_its_twin(devices, dags):
    for seed in range(120):
        equals_its_twin(*dags.one(seed, max_nodes=24, max_devices=devices))


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 3, 4])
def test_equals_its_twin_on_larger_graphs(devices, dags):
    for seed in range(60):
        equals_its_twin(*dags.one(1000 * devices + seed, max_nodes=64, max_devices=devices))


def test_kept_candidates_change_nothing(kinds):
    """Without the trace candidates are kept between rounds, with it they are grown afresh."""
    for kind in kinds.KINDS:
        src, dst, device = kinds.make(kind, 300)
        g = Graph.from_edges(src, dst, len(device))
        with_trace = partition_graph(g, device, "documented", trace=True)
        assert np.array_equal(partition_graph(g, device, "documented").subgraph_of, with_trace.subgraph_of), kind


def test_a_long_chain_is_not_too_large():
    """Its rows span 2 GiB, but are runs of ones, which take no memory."""
    n = 190_000
    chain = Graph.from_edges(np.arange(n - 1), np.arange(1, n), n)
    assert partition_graph(chain, np.zeros(n, np.int32), "documented").num_subgraphs == 1


def test_too_large_for_the_closure():
    """Refused from the spans of the rows alone, before anything large is allocated."""
    n = 1_000_000
    near, far = np.arange(n // 2), np.full(n // 2, n - 1000)
    g = Graph.from_edges(np.concatenate([near, near]), np.concatenate([near + n // 4, far]), n)
    with pytest.raises(PartitionError, match="this graph of 1000000 nodes takes more than 2147483648 bytes: use"):
        partition_graph(g, np.zeros(n, np.int32), "documented")
