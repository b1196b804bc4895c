"""Small random schedules, a plain simulator of the runtime, and an exact solver."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetero.assign import AssignmentProblem
from hetero.assign.schedule import Scheduler
from hetero.partition import Graph, Partition


class Case(NamedTuple):
    """A graph whose node i makes value i. The last node of the problem is the host, which makes the last value; the
    last device is the host's."""

    scheduler: Scheduler
    values: list[tuple[int, list[int]]]  # producer, readers

    @property
    def problem(self) -> AssignmentProblem:
        return self.scheduler.problem


def make_case(
    edges: list[tuple[int, int]],
    work: NDArray[np.float64],
    launch: NDArray[np.float64] | float = 0.0,
    links: float = 0.0,
    size: NDArray[np.float64] | float = 1.0,
    inputs: tuple[int, ...] = (),
    outputs: tuple[int, ...] = (),
    **devices: Any,
) -> Case:
    """``work``: [devices, nodes]. ``links``: seconds per unit of each link. ``inputs``: nodes that read the input."""
    k, n = work.shape
    graph = Graph.from_edges(np.array([a for a, _ in edges], np.int64), np.array([b for _, b in edges], np.int64), n)
    readers: list[list[int]] = [sorted({b for a, b in edges if a == node}) for node in range(n)]
    for node in outputs:
        readers[node].append(n)
    readers.append(list(inputs))
    padded = np.full((k + 1, n + 1), np.inf)
    padded[:k, :n] = work
    padded[k, n] = 0
    indptr = np.cumsum([0, *map(len, readers)])
    flat = np.array([reader for row in readers for reader in row], np.int64)
    per_unit = np.full((k + 1, k + 1), links)
    sizes = np.broadcast_to(np.asarray(size, float), n + 1)
    problem = AssignmentProblem.from_values(
        padded, np.append(np.arange(n), n), indptr, flat, sizes, np.zeros((k + 1, k + 1)), per_unit
    )
    launches = np.append(np.broadcast_to(np.asarray(launch, float), k), 0.0)
    for name, extra in (("lane", k), ("shares", False)):
        if name in devices:
            devices[name] = np.append(devices[name], extra)
    scheduler = Scheduler(graph, problem, launches, **{"hand_over": 0.0, **devices})
    return Case(scheduler, list(enumerate(readers)))


def random_case(rng: np.random.Generator, n: int, k: int, density: float = 1.6, **options: Any) -> Case:
    edges = [(a, b) for a, b in itertools.combinations(range(n), 2) if rng.random() < density / n]
    work = rng.random((1, n)) * rng.choice([0, 1, 3], n) * (0.5 + rng.random((k, 1)))
    work[rng.random((k, n)) < 0.1] = np.inf
    work[rng.integers(0, k, n), np.arange(n)] = rng.random(n)
    settings = {
        "launch": rng.choice([0, 0.1]) * rng.random(k),
        "links": float(rng.choice([0, 0.1, 1])),
        "size": rng.random(n + 1),
        "inputs": tuple(sorted(set(rng.integers(0, n, 3).tolist()))),
        "outputs": tuple(sorted(set(rng.integers(0, n, 3).tolist()))),
        "hand_over": float(rng.choice([0, 0.05])),
    }
    return make_case(edges, work, **{**settings, **options})


def step_work(
    case: Case, partition: Partition
) -> tuple[list[float], list[set[int]], list[list[tuple[int, int, float]]]]:
    """For each step: its seconds without fetches, the steps before it, and its fetches: (value, device, seconds)."""
    problem, scheduler = case.problem, case.scheduler
    n, host = scheduler.graph.num_nodes, problem.num_devices - 1
    count = partition.num_subgraphs
    seconds = [float(scheduler.launch[d]) for d in partition.device_of]
    before: list[set[int]] = [set() for _ in range(count)]
    fetches: list[list[tuple[int, int, float]]] = [[] for _ in range(count)]
    label = partition.subgraph_of.tolist()
    for node in range(n):
        seconds[label[node]] += problem.work[partition.device_of[label[node]], node]
    for value, (producer, readers) in enumerate(case.values):
        source = int(partition.device_of[label[producer]]) if producer < n else host
        for reader in readers:
            to = int(partition.device_of[label[reader]]) if reader < n else host
            cost = problem.latency[source, to] + problem.size[value] * problem.per_unit[source, to]
            if reader == n:
                if to != source:
                    seconds[label[producer]] += cost  # only the host is on its device
                continue
            step = label[reader]
            if producer < n and label[producer] != step:
                before[step].add(label[producer])
            if to != source and (value, to, cost) not in fetches[step]:
                fetches[step].append((value, to, cost))
    return seconds, before, fetches


def naive_run(case: Case, partition: Partition) -> tuple[list[float], list[float], float]:
    """Begin and end of each step, and the end of the inference, as the threads of `ParallelRun` run them. Without
    devices that slow each other."""
    seconds, before, fetches = step_work(case, partition)
    hand_over, lane = case.scheduler.hand_over, [int(case.scheduler.lane[d]) for d in partition.device_of]
    count = len(seconds)
    begin, end = [np.nan] * count, [np.nan] * count
    waiting, done, fetched = set(range(count)), set(), set()
    busy: dict[int, tuple[float, int, bool]] = {}  # lane -> end, step, whether the calling thread runs it
    now, in_main = 0.0, True

    def ready(lanes):
        return [s for s in sorted(waiting) if before[s] <= done and lane[s] in lanes and lane[s] not in busy]

    def start(step, at, by_main):
        waiting.discard(step)
        cost = seconds[step]
        for value, to, transfer in fetches[step]:
            if (value, to) not in fetched:
                fetched.add((value, to))
                cost += transfer
        begin[step] = at
        busy[lane[step]] = (at + cost, step, by_main)

    every = set(lane)
    free_thread = "main"
    while True:
        # The thread that is free now goes on at once; the others wake up.
        can = ready(every if free_thread == "main" else {free_thread})
        if free_thread is not None and can:
            start(can[0], now, free_thread == "main")
        if not any(by_main for _, _, by_main in busy.values()) and (can := ready(every)):
            start(can[0], now + hand_over, True)
        while can := ready(every):
            start(can[0], now + hand_over, False)
        if not busy:
            break
        now, step, in_main = min(busy.values(), key=lambda entry: (entry[0], entry[1]))
        end[step] = now
        done.add(step)
        del busy[lane[step]]
        free_thread = "main" if in_main else lane[step]
    assert not waiting
    return begin, end, now + (0 if in_main else hand_over)


def least_makespan_of_nodes(case: Case, seconds: float = 10.0) -> float:
    """The exact minimum over all assignments of single nodes to lanes, without launches, transfers and hand-overs, by
    CP-SAT: no partition takes less."""
    from ortools.sat.python import cp_model

    scale = 10_000
    problem, scheduler = case.problem, case.scheduler
    n, k = scheduler.graph.num_nodes, problem.num_devices - 1
    model = cp_model.CpModel()
    horizon = int(sum(np.where(np.isfinite(problem.work[:k, :n]), problem.work[:k, :n], 0).max(axis=0)) * scale) + n + 1
    starts = [model.new_int_var(0, horizon, "") for _ in range(n)]
    ends = [model.new_int_var(0, horizon, "") for _ in range(n)]
    by_lane: dict[int, list[Any]] = {}
    for node in range(n):
        choices = []
        for device in range(k):
            if np.isfinite(problem.work[device, node]):
                chosen = model.new_bool_var("")
                length = int(problem.work[device, node] * scale)  # rounded down
                interval = model.new_optional_interval_var(starts[node], length, ends[node], chosen, "")
                by_lane.setdefault(int(scheduler.lane[device]), []).append(interval)
                choices.append(chosen)
        model.add_exactly_one(choices)
    for intervals in by_lane.values():
        model.add_no_overlap(intervals)
    for node in range(n):
        for reader in scheduler.graph.successors(node).tolist():
            model.add(starts[reader] >= ends[node])
    makespan = model.new_int_var(0, horizon, "")
    model.add_max_equality(makespan, [0, *ends])
    model.minimize(makespan)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = seconds
    status = solver.solve(model)
    assert status == cp_model.OPTIMAL
    return solver.objective_value / scale
