"""Small random problems, and how to solve them by trying everything."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetero.assign import AssignmentProblem


class Parts(NamedTuple):
    """The arguments of `AssignmentProblem.from_values`."""

    work: np.ndarray
    producer: np.ndarray
    indptr: np.ndarray
    readers: np.ndarray
    size: np.ndarray
    latency: np.ndarray
    per_unit: np.ndarray


def random_parts(rng: np.random.Generator, n: int, k: int, *, uniform_links: bool = False) -> Parts:
    """Work with infeasible places, values with none to four readers (a producer among them now and then), links that
    differ by direction and may cost more than a detour."""
    work = rng.random((k, n)) * rng.choice([1, 5])
    work[rng.random((k, n)) < 0.15] = np.inf
    work[rng.integers(0, k, n), np.arange(n)] = rng.random(n)
    count = int(rng.integers(0, n + 1))
    rows = [rng.permutation(n)[: rng.integers(0, min(n, 4) + 1)] for _ in range(count)]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int32)
    readers = np.concatenate([*rows, np.empty(0, np.int64)]).astype(np.int32)
    latency = np.zeros((k, k)) if uniform_links else rng.random((k, k)) * rng.choice([0, 0.5])
    per_unit = np.ones((k, k)) if uniform_links else rng.random((k, k))
    producer = rng.integers(0, n, count).astype(np.int32)
    return Parts(work, producer, indptr, readers, rng.random(count) * 2, latency, per_unit)


def naive_cost(parts: Parts, labels: tuple[int, ...]) -> float:
    return float(_naive_costs(parts, np.array([labels]))[0])


def least_cost(parts: Parts) -> float:
    k, n = parts.work.shape
    return float(_naive_costs(parts, np.indices((k,) * n).reshape(n, -1).T).min())


def _naive_costs(parts: Parts, labels: np.ndarray) -> np.ndarray:
    """Of each row of labels: work, and each value once on each device that reads it and did not make it."""
    k, n = parts.work.shape
    costs = parts.work[labels, np.arange(n)].sum(1)
    for value, producer in enumerate(parts.producer.tolist()):
        here = labels[:, producer]
        read_on = labels[:, parts.readers[parts.indptr[value] : parts.indptr[value + 1]]]
        for there in range(k):
            is_sent = (read_on == there).any(1) & (here != there)
            costs += is_sent * (parts.latency[here, there] + parts.size[value] * parts.per_unit[here, there])
    return costs


def problem_of(parts: Parts) -> AssignmentProblem:
    return AssignmentProblem.from_values(*parts)
