"""Graphs, strategies and an independent evaluator for the tests of the partitioner."""

from __future__ import annotations

import importlib.util
import sys
from heapq import heapify, heappop, heappush
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from hetero.partition import Graph


class Quality(NamedTuple):
    subgraphs: int
    cut_edges: int


class Evaluator:
    """Judges a partition by SciPy alone: none of the project's own graph code."""

    def __call__(self, graph: Graph, device: np.ndarray, subgraph_of: np.ndarray) -> Quality:
        n = graph.num_nodes
        device, label = np.asarray(device), np.asarray(subgraph_of)
        k = int(label.max()) + 1 if n else 0
        assert np.array_equal(np.unique(label), np.arange(k)), "ids have gaps"
        src = np.repeat(np.arange(n), np.diff(graph.indptr))
        dst = graph.indices
        cut = label[src] != label[dst]
        assert (label[src] <= label[dst]).all(), "ids are no topological order of the quotient"
        inside = csr_matrix((np.ones((~cut).sum(), np.int8), (src[~cut], dst[~cut])), shape=(n, n))
        quotient = csr_matrix((np.ones(cut.sum(), np.int8), (label[src[cut]], label[dst[cut]])), shape=(k, k))
        first = np.zeros(k, device.dtype)
        first[label] = device
        assert (first[label] == device).all(), "a subgraph lies on two devices"
        if n:
            assert connected_components(inside, directed=False)[0] == k, "a subgraph is not connected"
            assert connected_components(quotient, directed=True, connection="strong")[0] == k, "a cyclic quotient"
        return Quality(k, int(cut.sum()))


@pytest.fixture(scope="session")
def evaluate() -> Evaluator:
    return Evaluator()


@pytest.fixture(scope="session")
def kinds() -> ModuleType:
    """bench/graphs.py: the seeded kinds of graphs that tests and benchmarks share."""
    path = Path(__file__).parents[2] / "bench" / "graphs.py"
    spec = importlib.util.spec_from_file_location("bench_graphs", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_graphs"] = module
    spec.loader.exec_module(module)
    return module


class Dags:
    """Seeded random graphs with devices, of many densities and shapes."""

    @staticmethod
    def one(seed: int, max_nodes: int = 64, max_devices: int = 4) -> tuple[Graph, np.ndarray]:
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, max_nodes + 1))
        edges = int(rng.integers(0, 3 * n + 1))
        window = int(rng.integers(1, n + 1))
        a = rng.integers(0, n, edges)
        b = np.clip(a + rng.integers(-window, window + 1, edges), 0, n - 1)
        src, dst = np.minimum(a, b), np.maximum(a, b)
        keep = src < dst
        device = rng.choice(max_devices, n, p=rng.dirichlet(np.ones(max_devices))).astype(np.int32)
        return Graph.from_edges(src[keep], dst[keep], n), device


@pytest.fixture(scope="session")
def dags() -> type[Dags]:
    return Dags


class Numbering:
    """The same graph under other node numbers."""

    @staticmethod
    def renumbered(graph: Graph, device: np.ndarray, number: np.ndarray) -> tuple[Graph, np.ndarray]:
        """``number``: the new number of each node."""
        src = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
        moved = np.empty_like(device)
        moved[number] = device
        return Graph.from_edges(number[src], number[graph.indices], graph.num_nodes), moved

    @staticmethod
    def another_order(graph: Graph, seed: int) -> np.ndarray:
        """A number for each node: its place in a topological order that takes a random node of those ready."""
        rank = np.random.default_rng(seed).permutation(graph.num_nodes)
        waiting = np.diff(graph.pred_indptr)
        ready = [(rank[v], v) for v in np.flatnonzero(waiting == 0)]
        heapify(ready)
        number = np.zeros(graph.num_nodes, np.int64)
        for place in range(graph.num_nodes):
            _, v = heappop(ready)
            number[v] = place
            for child in graph.successors(v):
                waiting[child] -= 1
                if not waiting[child]:
                    heappush(ready, (rank[child], child))
        return number


@pytest.fixture(scope="session")
def numbering() -> type[Numbering]:
    return Numbering
