"""Small random pipelines, and how to solve them by trying everything."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from hetero.assign import AssignmentProblem
from hetero.partition import Graph


class Case(NamedTuple):
    """A graph, and what its nodes and values cost over ``stages`` stages; the node after the last is the host."""

    graph: Graph
    edges: list[tuple[int, int]]
    work: np.ndarray  # [stages, nodes]
    size: np.ndarray  # of the value that each node makes, and of the input, the last one
    read_inputs: list[int]
    given: list[int]
    latency: np.ndarray  # [stages + 1, stages + 1], the last is the host
    per_unit: np.ndarray
    launch: np.ndarray

    @property
    def problem(self) -> AssignmentProblem:
        k, n = self.work.shape
        work = np.full((k + 1, n + 1), np.inf)
        work[:k, :n] = self.work
        work[k, n] = 0
        readers: list[list[int]] = [[b for a, b in self.edges if a == node] for node in range(n)]
        for node in self.given:
            readers[node].append(n)
        readers.append(self.read_inputs)
        indptr = np.cumsum([0, *map(len, readers)])
        flat = np.array([reader for row in readers for reader in row], np.int64)
        return AssignmentProblem.from_values(
            work, np.append(np.arange(n), n), indptr, flat, self.size, self.latency, self.per_unit
        )


def random_case(rng, n, k, *, chain=False, links=True, restricted=False) -> Case:
    edges = [(i, i + 1) for i in range(n - 1)] if chain else []
    if not chain:
        edges = [(a, b) for a, b in itertools.combinations(range(n), 2) if rng.random() < 1.6 / n]
    work = rng.random((1, n)) * rng.choice([1, 3], n) * (0.5 + rng.random((k, 1)))
    if restricted:
        work[rng.random((k, n)) < 0.15] = np.inf
        work[rng.integers(0, k, n), np.arange(n)] = rng.random(n)
    latency = np.full((k + 1, k + 1), 0.02 * links)
    per_unit = (rng.random((k + 1, k + 1)) if links else np.zeros((k + 1, k + 1))) * 0.3
    graph = Graph.from_edges(np.array([a for a, _ in edges], np.int64), np.array([b for _, b in edges], np.int64), n)
    reads = [0] if chain else sorted(set(rng.integers(0, n, 2).tolist()))
    given = [n - 1] if chain else sorted({n - 1, int(rng.integers(0, n))})
    return Case(graph, edges, work, rng.random(n + 1), reads, given, latency, per_unit, rng.random(k) * 0.05)


def naive_times(case: Case, stages) -> np.ndarray:
    """What each stage takes: work, a launch, each value that another stage or the host makes, results."""
    return _naive_times(case, np.array([stages]))[0]


def least_bottleneck(case: Case, *, all_used: bool) -> float:
    """Of all stages in order; infinite if there are none."""
    k, n = case.work.shape
    stages = np.indices((k,) * n).reshape(n, -1).T
    for a, b in case.edges:
        stages = stages[stages[:, a] <= stages[:, b]]
    if all_used:
        stages = stages[[len(set(row)) == k for row in stages.tolist()]]
    return float(_naive_times(case, stages).max(1).min(initial=np.inf))


def _naive_times(case: Case, stages: np.ndarray) -> np.ndarray:
    """[rows, stages], of each row of stages by node."""
    k, n = case.work.shape
    rows, times = np.arange(len(stages)), np.zeros((len(stages), k))
    for node in range(n):
        here, size = stages[:, node], case.size[node]
        times[rows, here] += case.work[here, node]
        read_by = stages[:, [b for a, b in case.edges if a == node]]
        for reading in range(k):
            is_sent = (read_by == reading).any(1) & (here != reading)
            times[:, reading] += is_sent * (case.latency[here, reading] + size * case.per_unit[here, reading])
        if node in case.given:
            times[rows, here] += case.latency[here, k] + size * case.per_unit[here, k]
    for stage in range(k):
        times[:, stage] += (stages == stage).any(1) * case.launch[stage]
        is_given = (stages[:, case.read_inputs] == stage).any(1)
        times[:, stage] += is_given * (case.latency[k, stage] + case.size[n] * case.per_unit[k, stage])
    return times
