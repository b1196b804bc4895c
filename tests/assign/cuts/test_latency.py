"""Latency with the launches that the partition makes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import graphs
from hetero.assign import AssignmentProblem, least_latency, predict
from hetero.errors import PartitionError
from hetero.partition import Graph, partition_graph


def random_case(rng, n, k):
    edges = [(a, b) for a, b in itertools.combinations(range(n), 2) if rng.random() < 0.4]
    graph = Graph.from_edges([a for a, _ in edges], [b for _, b in edges], n)
    work = rng.random((k, n))
    work[rng.random((k, n)) < 0.1] = np.inf
    work[rng.integers(0, k, n), np.arange(n)] = rng.random(n)
    links = np.full((k, k), rng.choice([0.1, 0.5]))
    return graph, AssignmentProblem.from_graph(graph, work, rng.random(n), np.zeros((k, k)), links)


def everything(graph, problem, launch):
    least = np.inf
    for labels in itertools.product(range(problem.num_devices), repeat=graph.num_nodes):
        if np.isfinite(problem.cost(labels).work):
            least = min(least, predict(problem, partition_graph(graph, np.array(labels)), launch).total)
    return least


@pytest.mark.parametrize("seed", range(30))
def test_close_to_the_best_of_all(seed):
    rng = np.random.default_rng(seed)
    graph, problem = random_case(rng, 6, int(rng.integers(2, 4)))
    launch = rng.random(problem.num_devices) * 0.3
    start = np.argmax(np.isfinite(problem.work), axis=0)
    found = least_latency(graph, problem, launch, start)
    least = everything(graph, problem, launch)
    assert found.lower_bound <= least + 1e-9
    assert least - 1e-9 <= found.prediction.total <= least * 1.1 + 1e-9
    assert found.prediction == predict(problem, found.partition, launch)
    np.testing.assert_array_equal(found.partition.device_of[found.partition.subgraph_of], found.device_of)
    assert found.prediction.total <= predict(problem, partition_graph(graph, start), launch).total


def test_launches_are_counted_per_subgraph():
    """A chain on two devices in turns: three subgraphs, two transfers."""
    graph = Graph.from_edges([0, 1], [1, 2], 3)
    work = np.array([[1, np.inf, 1], [np.inf, 1, np.inf]])
    problem = AssignmentProblem.from_graph(graph, work, [2, 3, 4], np.full((2, 2), 0.5), np.ones((2, 2)))
    found = least_latency(graph, problem, [10, 20])
    assert found.prediction.work == 3
    assert found.prediction.launches == 40
    assert found.prediction.transfers == 6
    assert found.prediction.num_transfers == 2
    assert found.lower_bound == 39  # each device launched once


def test_launches_alone_dissolve_islands():
    n = 40
    graph = Graph.from_edges(np.arange(n - 1), np.arange(1, n), n)
    work = np.stack([np.full(n, 1.0), np.full(n, 1.1)])
    work[1, ::4] = 0.9
    problem = AssignmentProblem.from_graph(graph, work, np.zeros(n), np.zeros((2, 2)), np.zeros((2, 2)))
    assert least_latency(graph, problem, [0, 0]).device_of.sum() == 10
    assert least_latency(graph, problem, [1, 1]).partition.num_subgraphs == 1


def test_the_start_is_kept_where_nothing_is_better():
    graph = Graph.from_edges([0, 1], [1, 2], 3)
    problem = AssignmentProblem.from_graph(graph, np.ones((2, 3)), np.zeros(3), np.zeros((2, 2)), np.zeros((2, 2)))
    found = least_latency(graph, problem, [0, 0], [1, 0, 1])
    assert found.device_of.tolist() == [1, 0, 1]


@pytest.mark.parametrize("kind", ["transformer", "inception", "random", "comb"])
def test_never_worse_than_the_start(kind):
    src, dst, device = graphs.make(kind, 1000, 0)
    n = len(device)
    rng = np.random.default_rng(0)
    graph = Graph.from_edges(src, dst, n)
    work = np.stack([np.full(n, 1e-5), rng.exponential(1e-5, n)])
    work[0, device == 1] = np.inf
    problem = AssignmentProblem.from_graph(graph, work, np.full(n, 1e-5), np.full((2, 2), 1e-6), np.ones((2, 2)))
    launch = np.array([1e-5, 5e-6])
    found = least_latency(graph, problem, launch, device)
    assert found.prediction.total <= predict(problem, partition_graph(graph, device), launch).total
    assert found.lower_bound <= found.prediction.total
    assert found.gap < 0.5


@pytest.mark.parametrize("launch", [[1], [1, -1], [1, np.nan], [np.inf, 1]])
def test_bad_launches(launch):
    graph, problem = random_case(np.random.default_rng(0), 4, 2)
    with pytest.raises(PartitionError, match="launch"):
        least_latency(graph, problem, launch)


def test_a_graph_of_other_nodes():
    _, problem = random_case(np.random.default_rng(0), 4, 2)
    with pytest.raises(PartitionError, match="nodes"):
        least_latency(Graph.from_edges([], [], 3), problem, [0, 0])
