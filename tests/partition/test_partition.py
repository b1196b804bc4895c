"""`Partition` and the arguments of `partition_graph`."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from hetero.errors import PartitionError
from hetero.partition import POLICIES, Graph, partition_graph

CHAIN = Graph.from_edges([0, 1, 2, 3], [1, 2, 3, 4], 5)
CHAIN_DEVICE = [0, 0, 1, 1, 0]


def test_fields():
    p = partition_graph(CHAIN, CHAIN_DEVICE, "linear")
    assert p.subgraph_of.tolist() == [0, 0, 1, 1, 2]
    assert p.device_of.tolist() == [0, 1, 0]
    assert (p.num_subgraphs, p.cut_edges, p.cut_weight, p.policy, p.trace) == (3, 2, 2.0, "linear", None)
    assert p.nodes(1).tolist() == [2, 3]
    assert p.quotient.indices.tolist() == [1, 2]
    assert p.quotient is p.quotient
    assert repr(p) == "Partition(policy='linear', num_nodes=5, num_subgraphs=3, cut_edges=2)"
    with pytest.raises(IndexError, match=r"subgraph 3 is outside 0 \.\. 2"):
        p.nodes(3)


def test_immutable():
    p = partition_graph(CHAIN, CHAIN_DEVICE, "linear")
    with pytest.raises(AttributeError, match="immutable"):
        p.cut_edges = 3
    with pytest.raises(AttributeError, match="immutable"):
        del p.policy
    for array in (p.subgraph_of, p.device_of, p.nodes(0)):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_pickle():
    p = pickle.loads(pickle.dumps(partition_graph(CHAIN, CHAIN_DEVICE, "linear")))
    assert p.subgraph_of.tolist() == [0, 0, 1, 1, 2]
    assert p.cut_edges == 2


@pytest.mark.parametrize(
    "dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64, ">i4"]
)
def test_device_dtypes(dtype):
    p = partition_graph(CHAIN, np.array(CHAIN_DEVICE, dtype), "linear")
    assert p.subgraph_of.tolist() == [0, 0, 1, 1, 2]
    strided = np.repeat(np.array(CHAIN_DEVICE, dtype), 2)[::2]
    assert partition_graph(CHAIN, strided, "linear").num_subgraphs == 3


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ([0, 0, 1], r"one number per node: expected 5, found 3"),
        ([0, 0, 1, 1, -1], r"device\[4\] = -1 is no device number: expected 0 to 254"),
        ([0, 0, 1, 255, 0], r"device\[3\] = 255"),
        (np.array([0, 0, 1, 2**63 + 1, 0], np.uint64), r"device\[3\]"),
        ([0, 0, 1, 2**40, 0], r"device\[3\] = 1099511627776"),
        ([0.0] * 5, r"array of integers, found dtype float64"),
        ([[0] * 5], r"one-dimensional"),
    ],
)
@pytest.mark.parametrize("policy", ["linear", "documented"])
def test_bad_devices(device, message, policy):
    with pytest.raises(PartitionError, match=message):
        partition_graph(CHAIN, device, policy)


def test_unknown_policy():
    with pytest.raises(
        PartitionError, match=r"unknown policy 'lineal' \(did you mean linear\?\): expected one of auto"
    ):
        partition_graph(CHAIN, CHAIN_DEVICE, "lineal")
    with pytest.raises(PartitionError, match="unknown policy"):
        partition_graph(CHAIN, CHAIN_DEVICE, None)
    assert POLICIES[0] == "auto"


def test_trace_needs_the_documented_policy():
    with pytest.raises(PartitionError, match="does not support trace=True: use policy='documented'"):
        partition_graph(CHAIN, CHAIN_DEVICE, "linear", trace=True)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.uint8])
def test_edge_weights_belong_to_edges_as_given(dtype):
    # 1 -> 2 twice, in descending order
    g = Graph.from_edges([3, 1, 1, 0, 2], [4, 2, 2, 1, 3], 5)
    weight = np.array([1, 10, 20, 40, 80], dtype)
    p = partition_graph(g, CHAIN_DEVICE, "linear", edge_weight=weight)
    assert (p.cut_edges, p.cut_weight) == (2, 31.0)
    rows = Graph.from_csr([0, 1, 3, 4, 5, 5], [1, 2, 2, 3, 4])
    assert partition_graph(rows, CHAIN_DEVICE, "linear", edge_weight=[40, 10, 20, 80, 1]).cut_weight == 31.0
    ascending = Graph.from_csr([0, 1, 2, 3, 4, 4], [1, 2, 3, 4])
    assert partition_graph(ascending, CHAIN_DEVICE, "linear", edge_weight=[40, 30, 80, 1]).cut_weight == 31.0


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ([1.0, 2.0, float("nan"), 3.0], r"edge_weight\[2\] = nan"),
        ([1.0, -2.0, 0.0, 3.0], r"edge_weight\[1\] = -2.0"),
        ([1.0, float("inf"), 0.0, 3.0], r"edge_weight\[1\] = inf"),
        ([1.0, 2.0], r"expected shape \(4,\), found \(2,\)"),
        ([[1.0] * 4], r"expected shape \(4,\)"),
        (["a"] * 4, r"real numbers"),
    ],
)
def test_bad_edge_weights(weight, message):
    with pytest.raises(PartitionError, match=message):
        partition_graph(CHAIN, CHAIN_DEVICE, "linear", edge_weight=weight)


@pytest.mark.parametrize("policy", ["linear", "documented"])
@pytest.mark.parametrize("n", [0, 1, 4])
def test_graphs_without_edges(policy, n):
    p = partition_graph(Graph.from_edges([], [], n), np.arange(n) % 2, policy, edge_weight=[])
    assert p.subgraph_of.tolist() == list(range(n))
    assert p.cut_edges == 0
    assert p.quotient.num_nodes == n


def test_all_on_one_device():
    p = partition_graph(CHAIN, [7] * 5, "linear")
    assert p.device_of.tolist() == [7]
