"""Random graphs with values and limits, and memory counted by simulation: the naive twin of `hetero.assign.memory`."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import strategies as st

from hetero.assign.memory import Values
from hetero.partition import Graph, partition_graph


@st.composite
def random_values(draw, max_nodes=10):
    """Up to two values per node, inputs and constants; later nodes read some of what was there before."""
    n = draw(st.integers(1, max_nodes))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    producer = [-1] * int(rng.integers(1, 6))
    is_constant = [bool(rng.random() < 0.5) for _ in producer]
    pairs = []
    for node in range(n):
        for _ in range(int(rng.integers(0, 4))):
            pairs.append((int(rng.integers(0, len(producer))), node))
        made = int(rng.integers(0, 3))
        producer += [node] * made
        is_constant += [False] * made
    size = rng.integers(0, 50, len(producer)).astype(float)
    size[rng.random(len(size)) < 0.05] = np.inf
    is_output = (np.array(producer) >= 0) & (rng.random(len(producer)) < 0.2)
    own = np.where(rng.random(n) < 0.1, 7.0, 0.0)
    value, reader = ([pair[i] for pair in pairs] for i in (0, 1))
    return Values.from_arrays(n, producer, size, value, reader, is_constant, is_output, own)


def graph_of(values):
    inside = values.producer[values.read_value] >= 0
    source = values.producer[values.read_value[inside]]
    return Graph.from_edges(source, values.read_node[inside], values.num_nodes)


def cut(values, device_of, policy="auto"):
    return partition_graph(graph_of(values), np.asarray(device_of, np.int32), policy)


def simulated(values, subgraph_of, device_of, num_devices):
    """(weights, activations) per device, by keeping a set of what is alive while subgraphs run one after the other."""
    subgraph_of = list(subgraph_of)
    readers = {}
    for value, node in zip(values.read_value.tolist(), values.read_node.tolist(), strict=True):
        readers.setdefault(value, []).append(node)
    constants = [set() for _ in range(num_devices)]
    weights = [0.0] * num_devices
    for value, nodes in readers.items():
        if values.is_constant[value]:
            for node in nodes:
                constants[device_of[subgraph_of[node]]].add(value)
    for device in range(num_devices):
        weights[device] += sum(values.bytes[value] for value in constants[device])
    for node in range(values.num_nodes):
        weights[device_of[subgraph_of[node]]] += values.own[node]
    peak = [0.0] * num_devices
    alive = [set() for _ in range(num_devices)]
    done_nodes, done_subgraphs = set(), set()

    def needed_by(value):
        """Subgraphs and nodes of the producer's subgraph that still have to run."""
        home = subgraph_of[values.producer[value]] if values.producer[value] >= 0 else None
        nodes = [n for n in readers.get(value, []) if subgraph_of[n] == home and n not in done_nodes]
        subgraphs = {subgraph_of[n] for n in readers.get(value, [])} - {home} - done_subgraphs
        return nodes, subgraphs

    def sweep():
        for device in range(num_devices):
            for value in list(alive[device]):
                nodes, subgraphs = needed_by(value)
                home = values.producer[value]
                if home >= 0 and device_of[subgraph_of[home]] == device:
                    keep = values.is_output[value] or nodes or subgraphs
                else:
                    keep = any(device_of[subgraph] == device for subgraph in subgraphs)
                if not keep:
                    alive[device].remove(value)

    def measure():
        for device in range(num_devices):
            peak[device] = max(peak[device], sum(values.bytes[value] for value in alive[device]))

    for subgraph in range(len(device_of)):
        device = device_of[subgraph]
        members = [node for node in range(values.num_nodes) if subgraph_of[node] == subgraph]
        for value, nodes in readers.items():
            if not values.is_constant[value] and any(subgraph_of[node] == subgraph for node in nodes):
                home = values.producer[value]
                if home < 0 or subgraph_of[home] != subgraph:
                    alive[device].add(value)
        for node in members:
            alive[device].update(np.flatnonzero(values.producer == node).tolist())
            measure()
            done_nodes.add(node)
            if node == members[-1]:
                done_subgraphs.add(subgraph)
            sweep()
    return weights, peak


def needs_of(values, device_of, num_devices):
    partition = cut(values, device_of)
    weights, peak = simulated(values, partition.subgraph_of.tolist(), partition.device_of.tolist(), num_devices)
    return np.add(weights, peak)


def by_priority(allowed):
    return np.argmax(allowed, axis=0).astype(np.int32)


@st.composite
def problems(draw, max_nodes=6, max_devices=3):
    """Values, which device takes what (each node some), limits (not for all), and costs or None."""
    values = draw(random_values(max_nodes))
    count = draw(st.integers(1, max_devices))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    allowed = rng.random((count, values.num_nodes)) < 0.75
    allowed[rng.integers(0, count, values.num_nodes), np.arange(values.num_nodes)] = True
    whole = needs_of(values, np.zeros(values.num_nodes, np.int64), 1)[0]
    limits = np.floor(rng.random(count) * 1.2 * whole) + 1
    limits[rng.random(count) < 0.3] = np.inf
    work = rng.random((count, values.num_nodes)) if draw(st.booleans()) else None
    return values, allowed, limits, work


def solutions(values, allowed, limits, only_onward):
    """Every assignment that fits."""
    n = values.num_nodes
    first = by_priority(allowed)
    choices = [
        [d for d in range(len(allowed)) if allowed[d, i] and (d >= first[i] or not only_onward)] for i in range(n)
    ]
    for device_of in itertools.product(*choices):
        if (needs_of(values, device_of, len(limits)) <= limits).all():
            yield device_of


def random_tree(rng: np.random.Generator, n: int) -> tuple[Values, np.ndarray]:
    """Each node but the first reads one earlier node and a constant of its own; returns the constants' bytes too."""
    source = [int(rng.integers(0, max(1, node))) for node in range(n)]
    weight = rng.integers(1, 30, n)
    values = Values.from_arrays(
        n,
        [*range(n), *[-1] * n],
        [*rng.integers(1, 10, n), *weight],
        [*source[1:], *range(n, 2 * n)],
        [*range(1, n), *range(n)],
        [False] * n + [True] * n,
    )
    return values, weight
