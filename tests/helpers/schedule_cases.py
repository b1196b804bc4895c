"""Small random schedules, a plain simulator of the runtime, and an exact solver."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetero.assign import AssignmentProblem
from hetero.assign.schedule import Room, Scheduler
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
    readers: list[list[int]] = [[] for _ in range(n)]
    for a, b in sorted(set(edges)):
        readers[a].append(b)
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
        now, step, in_main = min(busy.values(), key=lambda entry: (entry[0], begin[entry[1]], entry[1]))
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


# ---- list scheduling, one node at a time


def _transfer(case: Case, value: int, source: int, to: int) -> float:
    problem = case.problem
    return float(problem.latency[source, to] + problem.size[value] * problem.per_unit[source, to])


def _reads(case: Case) -> list[list[int]]:
    """The values that each node reads."""
    reads: list[list[int]] = [[] for _ in range(case.scheduler.graph.num_nodes)]
    for value, (_, readers) in enumerate(case.values):
        for reader in readers:
            if reader < len(reads):
                reads[reader].append(value)
    return reads


def naive_assignment(case: Case, room: Room | None = None) -> list[int]:
    """The device of each node: the ready node of highest mean rank goes to the device on which it ends first, of those
    that have room for its constants."""
    problem, scheduler, n = case.problem, case.scheduler, case.scheduler.graph.num_nodes
    k, reads, launch = problem.num_devices, _reads(case), scheduler.launch
    work = problem.work[:, :n]
    used = [d for d in range(k) if np.isfinite(work[d]).any()]
    pairs = [(a, b) for a in range(k) for b in range(k) if a != b and a in used and b in used]
    chance = 1 - 1 / len(used) if len(used) > 1 else 0
    latency, per_unit = sum(problem.latency[p] for p in pairs), sum(problem.per_unit[p] for p in pairs)
    mean_launch = sum(launch[d] for d in used) / len(used)
    key = [0.0] * n
    for v in reversed(range(n)):
        transfer = (latency + per_unit * problem.size[v]) / len(pairs) if pairs else 0
        crossing = chance * (transfer + mean_launch + scheduler.hand_over)
        finite = [work[d, v] for d in range(k) if np.isfinite(work[d, v])]
        after = min([0.0, *(key[r] - crossing for r in case.values[v][1] if r < n)])
        key[v] = after - sum(finite) / len(finite)
    device, end, free = [-1] * n, [0.0] * n, [0.0] * 256
    fetched: set[tuple[int, int]] = set()
    held: list[set[int]] = [set() for _ in range(k)]
    taken = [0.0] * k
    constants_of: list[set[int]] = [set() for _ in range(n)]
    if room is not None:
        for node, constant in zip(room.node.tolist(), room.constant.tolist(), strict=True):
            constants_of[node].add(constant)
    waiting = set(range(n))
    while waiting:
        ready = [v for v in waiting if all(value == n or value not in waiting for value in reads[v])]
        v = min(ready, key=lambda node: (key[node], node))
        waiting.remove(v)
        best_end = np.inf
        candidates = [d for d in range(k) if np.isfinite(work[d, v])]
        added = [0.0] * k
        if room is not None:
            sizes = {c: float(room.size[c]) for c in range(len(room.size))}
            anywhere = set().union(*held)
            fresh = float(room.own[v]) + sum(sizes[c] for c in constants_of[v] - anywhere)
            added = [float(room.own[v]) + sum(sizes[c] for c in constants_of[v] - held[d]) for d in range(k)]
            to_come = sum(sizes[c] for c in set(sizes) - anywhere) + sum(float(room.own[w]) for w in {v, *waiting})
            spare = float(room.limits.sum()) - sum(taken) - to_come
            fitting = [
                d
                for d in candidates
                if not added[d]
                or (added[d] <= room.limits[d] - taken[d] and (added[d] == fresh or added[d] - fresh <= spare))
            ]
            most = max(candidates, key=lambda d: (room.limits[d] - taken[d] - added[d], -d))
            candidates = fitting or [most]
        for d in candidates:
            seconds, begin, is_foreign = work[d, v], free[scheduler.lane[d]], False
            if not np.isfinite(seconds):
                continue
            for value in reads[v]:
                source = device[value] if value < n else k - 1
                at = end[value] if value < n else 0.0
                if source != d:
                    seconds += 0 if (value, d) in fetched else _transfer(case, value, source, d)
                    is_foreign |= value < n
                    at += scheduler.hand_over if value < n else 0
                begin = max(begin, at)
            seconds += launch[d] if is_foreign else 0
            if begin + seconds < best_end:
                best_end, device[v] = begin + seconds, d
        end[v] = free[scheduler.lane[device[v]]] = best_end
        fetched |= {(value, device[v]) for value in reads[v]}
        taken[device[v]] += added[device[v]]
        held[device[v]] |= constants_of[v]
    return device


def naive_runs(case: Case, device: list[int]) -> list[int]:
    """The subgraph of each node: components of the runs of a list schedule on these devices, by their first nodes."""
    problem, scheduler, n = case.problem, case.scheduler, case.scheduler.graph.num_nodes
    host, reads, launch = problem.num_devices - 1, _reads(case), scheduler.launch
    lane = [int(scheduler.lane[d]) for d in device]
    readers = [[r for r in case.values[v][1] if r < n] for v in range(n)]
    work = [float(problem.work[device[v], v]) for v in range(n)]
    for value, (producer, all_readers) in enumerate(case.values):
        source, seen = device[producer] if producer < n else host, set()
        for reader in all_readers:
            to = device[reader] if reader < n else host
            if to == source or (reader == n and producer == n):
                continue
            if reader < n and to not in seen:
                seen.add(to)
                work[reader] += _transfer(case, value, source, to)
        if n in all_readers and producer < n and host != source:
            work[producer] += _transfer(case, value, source, host)
    foreign = [any(value < n and device[value] != device[v] for value in reads[v]) for v in range(n)]
    seconds = [work[v] + (launch[device[v]] if foreign[v] else 0) for v in range(n)]
    key = [0.0] * n
    for v in reversed(range(n)):
        key[v] = min([0.0, *(key[r] for r in readers[v])]) - seconds[v]
    waits = [sum(value < n for value in reads[v]) for v in range(n)]
    ready = {one: [v for v in range(n) if lane[v] == one and not waits[v]] for one in range(256)}
    running: list[int] = []
    sequence: list[int] = []
    end, now, lanes = [0.0] * n, 0.0, list(range(256))
    while True:
        for one in lanes:
            if ready[one] and all(lane[v] != one for v in running):
                v = min(ready[one], key=lambda node: (key[node], node))
                ready[one].remove(v)
                end[v] = now + seconds[v]
                running.append(v)
                sequence.append(v)
        if not running:
            break
        place = min(range(len(running)), key=lambda i: end[running[i]])
        v, last = running[place], running.pop()
        if place < len(running):
            running[place] = last
        now, lanes = end[v], [lane[v]]
        for r in readers[v]:
            waits[r] -= 1
            if not waits[r]:
                ready[lane[r]].append(r)
                lanes += [lane[r]] if lane[r] not in lanes else []
    latest, lane_latest = [0.0] * n, [now] * 256
    for v in reversed(sequence):
        latest[v] = min([lane_latest[lane[v]], *(latest[r] - seconds[r] for r in readers[v])])
        lane_latest[lane[v]] = latest[v] - seconds[v]
    open_runs: dict[int, list[Any]] = {}  # by device: number, ready, work, deadline
    run, run_end, lane_free, late, count = [-1] * n, {}, [0.0] * 256, 0.0, 0
    for v in sequence:
        own, start = device[v], 0.0
        for value in reads[v]:
            if value == n or device[value] == own:
                continue
            other = open_runs.get(device[value])
            if other and other[0] == run[value]:
                run_end[other[0]] = done = other[1] + other[2]
                lane_free[lane[value]] = max(lane_free[lane[value]], done)
                late = max(late, done - other[3])
                del open_runs[device[value]]
            start = max(start, run_end[run[value]] + scheduler.hand_over)
        deadline = min([np.inf, *(latest[r] - seconds[r] for r in readers[v] if device[r] != own)])
        mine = open_runs.get(own)
        if mine:
            done = mine[1] + mine[2]
            joined = max(start, mine[1]) + mine[2] + work[v]
            apart = max(start, done) + launch[own] + work[v]
            lateness = max(late, done - mine[3])
            if joined <= mine[3] + lateness + launch[own] and (
                joined <= apart or joined <= min(latest[v], deadline) + lateness + launch[own]
            ):
                mine[1:] = [max(start, mine[1]), mine[2] + work[v], min(mine[3], deadline)]
            else:
                run_end[mine[0]], late, mine = done, lateness, None
                lane_free[lane[v]] = max(lane_free[lane[v]], done)
        if not mine:
            mine = [count, max(start, lane_free[lane[v]]), launch[own] + work[v], deadline]
            open_runs[own], count = mine, count + 1
        run[v] = mine[0]
    label = list(range(n))
    for v in range(n):
        for r in readers[v]:
            if run[r] == run[v]:
                label = [label[v] if one == label[r] else one for one in label]
    number: dict[int, int] = {}
    return [number.setdefault(one, len(number)) for one in label]
