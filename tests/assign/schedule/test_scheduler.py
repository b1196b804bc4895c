"""Predicted runs, the cut into runs and list scheduling, beside a plain simulator and an exact solver."""

from __future__ import annotations

import numpy as np
import pytest

import graphs
from hetero import _schedule
from hetero.assign import AssignmentProblem, predict
from hetero.assign.schedule import Room, Scheduler, least_makespan
from hetero.assign.schedule.chains import contract_chains, contract_small
from hetero.errors import PartitionError
from hetero.partition import Graph, Partition, check_partition, partition_graph
from schedule_cases import (
    least_makespan_of_nodes,
    make_case,
    naive_assignment,
    naive_run,
    naive_runs,
    random_case,
)

SEEDS = range(60)


def random_devices(rng, case):
    return np.array([rng.choice(np.flatnonzero(np.isfinite(column))) for column in case.problem.work.T[:-1]], np.int32)


def simulated(case, partition, **options):
    """Begin, end and makespan, also where overlapping gains too little for the runtime."""
    return case.scheduler._machine.run(partition.subgraph_of, partition.device_of, False)[2:5]


@pytest.mark.parametrize("seed", SEEDS)
def test_runs_as_a_plain_simulator(seed):
    rng = np.random.default_rng(seed)
    lanes = {} if seed % 3 else {"lane": rng.integers(0, 2, 3)}
    case = random_case(rng, int(rng.integers(1, 24)), 3, **lanes)
    partition = partition_graph(case.scheduler.graph, random_devices(rng, case), ("auto", "linear")[seed % 2])
    begin, end, makespan = simulated(case, partition)
    expected = naive_run(case, partition)
    np.testing.assert_allclose(begin, expected[0], atol=1e-9)
    np.testing.assert_allclose(end, expected[1], atol=1e-9)
    assert makespan == pytest.approx(expected[2])
    timeline = case.scheduler.run(partition)
    prediction = predict(case.problem, partition, case.scheduler.launch)
    assert timeline.sequential == pytest.approx(prediction.total)
    assert timeline.latency == pytest.approx(makespan if timeline.overlaps else prediction.total)
    assert timeline.latency == pytest.approx(max(timeline.end) if not timeline.overlaps else makespan)


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_a_lane_runs_one_step_at_a_time(first):
    """This also holds if the steps do not begin in the order of their numbers."""
    for seed in range(first, first + 100):
        rng = np.random.default_rng(seed)
        k = int(rng.integers(2, 5))
        options = {"shares": [True] * k, "slowdown": 0.5} if seed % 3 == 0 else {}
        options |= {"lane": rng.integers(0, 3, k)} if seed % 4 == 0 else {}
        case = random_case(rng, int(rng.integers(2, 24)), k, hand_over=0.05, **options)
        partition = partition_graph(case.scheduler.graph, random_devices(rng, case), ("auto", "linear")[seed % 2])
        for renumber in (False, True):
            _, device_of, begin, end = case.scheduler._machine.run(
                partition.subgraph_of, partition.device_of, renumber
            )[:4]
            lanes = case.scheduler.lane[device_of]
            for lane in np.unique(lanes):
                begins, ends = np.array(sorted(zip(begin[lanes == lane], end[lanes == lane], strict=True))).T
                assert (begins[1:] >= ends[:-1] - 1e-12).all(), (seed, renumber)
            if renumber:  # by the decision to start; a thread that wakes up begins a hand-over later
                assert (np.diff(begin) >= -0.05 - 1e-12).all(), seed


@pytest.mark.parametrize("seed", SEEDS)
def test_no_cut_is_faster_than_its_devices_are_busy(seed):
    rng = np.random.default_rng(seed)
    lanes = {"lane": rng.integers(0, 2, 3)} if seed % 3 == 0 else {}
    case = random_case(rng, int(rng.integers(1, 24)), 3, **lanes)
    scheduler = case.scheduler
    devices = random_devices(rng, case)
    bound = scheduler.busy_bound(devices)
    assert bound > 0
    apart = partition_graph(scheduler.graph, devices, "documented")
    for cut in [*scheduler.cuts(devices), scheduler.in_turn(apart), scheduler.in_start_order(apart)]:
        assert cut.latency >= bound * (1 - 1e-12)
    work = case.problem.work[devices, np.arange(len(devices))].sum()
    least = work + len(set(devices)) * scheduler.launch[devices].min()
    assert bound >= least / len(set(scheduler.lane[devices])) * (1 - 1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_nodes_that_follow_each_other_never_overlap(seed):
    """Warnings of plans depend on it."""
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(2, 24)), int(rng.integers(2, 4))
    edges = [(a, b) for a in range(n) for b in range(a + 1, n) if b == a + 1 or rng.random() < 0.2]
    case = make_case(edges, rng.random((k, n)), links=rng.random(), size=rng.random(n + 1), inputs=(0, n // 2))
    for cut in case.scheduler.cuts(rng.integers(0, k, n)):
        assert (cut.timeline.begin[1:] >= cut.timeline.end[:-1] - 1e-12).all()
        assert not cut.timeline.overlaps


@pytest.mark.parametrize("seed", SEEDS)
def test_cuts_are_valid_and_numbered_by_start(seed):
    rng = np.random.default_rng(seed)
    case = random_case(rng, int(rng.integers(1, 40)), int(rng.integers(1, 5)))
    device = random_devices(rng, case)
    for cut in case.scheduler.cuts(device):
        partition = cut.partition
        check_partition(case.scheduler.graph, device, partition.subgraph_of, ordered=True)
        np.testing.assert_array_equal(partition.device_of[partition.subgraph_of], device)
        inside = partition.subgraph_of[np.repeat(np.arange(partition.graph.num_nodes), np.diff(partition.graph.indptr))]
        assert partition.cut_edges == np.count_nonzero(inside != partition.subgraph_of[partition.graph.indices])
        again = case.scheduler.run(partition)
        np.testing.assert_array_equal(again.begin, cut.timeline.begin)
        assert again.latency == cut.latency


@pytest.mark.parametrize("seed", SEEDS)
def test_numbers_by_start_keep_the_run(seed):
    rng = np.random.default_rng(seed)
    case = random_case(rng, int(rng.integers(1, 40)), int(rng.integers(2, 5)))
    device = random_devices(rng, case)
    before = case.scheduler.as_numbered(partition_graph(case.scheduler.graph, device))
    after = case.scheduler.numbered_by_start(before)
    assert after.latency == before.latency
    np.testing.assert_array_equal(after.timeline.begin, np.sort(before.timeline.begin))
    check_partition(case.scheduler.graph, device, after.partition.subgraph_of, ordered=True)


COSTS = {
    "random": lambda rng, n: rng.random(n),
    "equal": lambda rng, n: np.ones(n),
    "many zeros": lambda rng, n: rng.integers(0, 2, n) * rng.random(n),
    "from tiny to huge": lambda rng, n: np.exp(rng.normal(0, 60, n)),
    "last bits": lambda rng, n: 1 + rng.integers(0, 4, n) * 2.0**-50,
}
"""Work of the nodes. 32-bit floats, by which ranks are sorted first, cannot hold some of it, or tell some apart."""


@pytest.mark.spread(2)
@pytest.mark.parametrize("costs", COSTS)
@pytest.mark.parametrize("seed", range(16))
def test_list_scheduling_as_a_plain_one(seed, costs):
    """The same devices and the same runs, on small graphs and on those whose ranks are sorted by digits."""
    rng = np.random.default_rng(seed)
    n, k = int(rng.choice([2, 20, 150, 260])), int(rng.integers(1, 5))
    lanes = {} if seed % 3 else {"lane": rng.integers(0, 2, k)}
    case = random_case(rng, n, k, density=float(rng.choice([0.5, 1.6, 6])), **lanes)
    given = case.problem
    work = np.where(np.isfinite(given.work), np.append(COSTS[costs](rng, n), 0), np.inf)
    problem = AssignmentProblem.from_values(
        work, given.producer, given.indptr, given.readers, given.size, given.latency, given.per_unit
    )
    case = case._replace(scheduler=case.scheduler.with_problem(problem))
    assert case.scheduler._machine.assign().tolist() == naive_assignment(case)
    device = random_devices(rng, case)
    assert case.scheduler._machine.runs(device)[0].tolist() == naive_runs(case, device.tolist())


@pytest.mark.parametrize("seed", range(40))
def test_list_scheduling_within_memory_as_a_plain_one(seed):
    """From more room than is needed to none, with constants that several nodes read."""
    rng = np.random.default_rng(seed)
    n, k = int(rng.choice([1, 2, 20, 150])), int(rng.choice([1, 2, 3, 65]))
    case = random_case(rng, n, k)
    room = random_room(rng, n, case.problem.num_devices)
    found = case.scheduler._machine.assign(machine_room(room)).tolist()
    assert found == naive_assignment(case, room)
    assert case.scheduler._machine.assign(machine_room(room._replace(limits=room.limits + np.inf))).tolist() == (
        naive_assignment(case)
    )


@pytest.mark.parametrize("seed", range(8))
def test_list_scheduling_with_little_memory_to_spare_as_a_plain_one(seed):
    """All devices together have room for each constant once, and for few of them twice."""
    rng = np.random.default_rng(seed)
    case = random_case(rng, 30, 2)
    devices = case.problem.num_devices
    room = random_room(rng, 30, devices)
    total = room.size.sum() + room.own.sum()
    room = room._replace(limits=np.full(devices, np.ceil((1 + 0.05 * seed) * total / devices)))
    assert case.scheduler._machine.assign(machine_room(room)).tolist() == naive_assignment(case, room)


@pytest.mark.parametrize("seed", range(20))
def test_assignments_within_memory_hold_the_limits(seed):
    """Towers with constants that several nodes read, over devices that together have a fifth more than all of them."""
    rng = np.random.default_rng(seed)
    count, length, k = 6, 20, 3
    n = count * length
    edges = [(t * length + i, t * length + i + 1) for t in range(count) for i in range(length - 1)]
    scheduler = make_case(edges, rng.random((k, n)), launch=0.1, links=0.01).scheduler
    constants, constant = np.unique(rng.integers(0, n // 3, n), return_inverse=True)
    total = len(constants)
    limits = np.append(np.full(k, np.ceil(1.2 * total / k)), 0)  # the host has none
    room = Room(np.arange(n, dtype=np.int32), constant.astype(np.int32), np.ones(total), np.zeros(n), limits)
    device = scheduler.assign(room)
    for d in range(k):
        assert len(np.unique(constant[device == d])) <= room.limits[d]


def random_room(rng, n, devices):
    count = int(rng.integers(0, n + 1))
    reads = rng.random((n, count)) < 2 / (count + 1)
    node, constant = (each.astype(np.int32) for each in np.nonzero(reads[:, reads.any(axis=0)]))
    size = rng.integers(0, 20, reads.any(axis=0).sum()).astype(float)
    own = rng.integers(0, 5, n) * (rng.random() < 0.5) * 1.0
    limits = rng.uniform(-0.1, 0.9, devices) * (size.sum() + own.sum())
    limits = np.where(rng.random(devices) < 0.2, np.inf, np.floor(limits))
    return Room(node, constant, size, own, limits)


def machine_room(room):
    return _schedule.Room(*room)


def test_list_scheduling_of_many_nodes_of_equal_rank():
    """Towers whose costs differ by less than 32-bit floats tell: more equal codes than are sorted by insertion."""
    rng = np.random.default_rng(0)
    count, length = 200, 3
    edges = [(t * length + i, t * length + i + 1) for t in range(count) for i in range(length - 1)]
    work = np.tile(1 + rng.integers(0, 1000, count * length) * 2.0**-50, (2, 1))
    case = make_case(edges, work, launch=0.1, links=0.01)
    assert case.scheduler._machine.assign().tolist() == naive_assignment(case)
    device = rng.integers(0, 2, count * length).astype(np.int32)
    assert case.scheduler._machine.runs(device)[0].tolist() == naive_runs(case, device.tolist())


def test_list_scheduling_of_renumbered_nodes():
    """Nodes whose numbers are not a topological order, with and without cost: each gets a device."""
    rng = np.random.default_rng(1)
    for work in (np.zeros((2, 300)), rng.random((2, 300))):
        number = rng.permutation(300)
        edges = [(int(number[i]), int(number[i + step])) for i in range(290) for step in (1, 7)]
        case = make_case(edges, work)
        assert np.isin(case.scheduler.assign(), (0, 1)).all()
        device = rng.integers(0, 2, 300).astype(np.int32)
        partition = case.scheduler.runs(device).partition
        check_partition(case.scheduler.graph, device, partition.subgraph_of, ordered=True)


def test_slower_where_devices_share():
    """Two steps of 1 s side by side, of devices that each slow the other by a half; then 1 s on one device alone."""
    work = np.array([[1.0, np.inf, 1.0], [np.inf, 1.0, np.inf]])
    case = make_case([(0, 2), (1, 2)], work, shares=[True, True], slowdown=0.5)
    partition = Partition(case.scheduler.graph, "own", np.int32([0, 1, 2]), np.int32([0, 1, 0]), 2, 2.0)
    begin, end, makespan = simulated(case, partition)
    np.testing.assert_allclose(begin, [0, 0, 1.5])
    np.testing.assert_allclose(end, [1.5, 1.5, 2.5])
    assert makespan == pytest.approx(2.5)
    # A third device, which does not share, changes nothing; half the time of a longer step is spent alone.
    work = np.array([[2.0, np.inf, np.inf], [np.inf, 1.0, np.inf], [np.inf, np.inf, 9.0]])
    case = make_case([], work, shares=[True, True, False], slowdown=0.5)
    partition = Partition(case.scheduler.graph, "own", np.int32([0, 1, 2]), np.int32([0, 1, 2]), 0, 0.0)
    _, end, _ = simulated(case, partition)
    np.testing.assert_allclose(end, [2.5, 1.5, 9.0])


@pytest.mark.parametrize("host", [0, 1, 2])
def test_the_host_may_be_any_device(host):
    """A result pays for its transfer to the host, whatever the host's number is."""
    work = np.full((3, 3), np.inf)
    work[(host + 1) % 3, 0], work[(host + 2) % 3, 1], work[host, 2] = 1.0, 2.0, 0.0
    # Node 0 makes value 0, which node 1 and the host read; node 1 makes value 1, which the host reads.
    problem = AssignmentProblem.from_values(
        work, np.arange(2), np.int64([0, 2, 3]), np.int64([1, 2, 2]), np.ones(2), np.zeros((3, 3)), np.full((3, 3), 0.5)
    )
    graph = Graph.from_edges(np.int64([0]), np.int64([1]), 2)
    scheduler = Scheduler(graph, problem, np.zeros(3), hand_over=0.0)
    partition = Partition(graph, "own", np.int32([0, 1]), np.int32([(host + 1) % 3, (host + 2) % 3]), 1, 1.0)
    begin, end, makespan = scheduler._machine.run(partition.subgraph_of, partition.device_of, False)[2:5]
    np.testing.assert_allclose(begin, [0, 1.5])
    np.testing.assert_allclose(end, [1.5, 4.5])  # node 1 fetches value 0 and sends value 1
    assert makespan == pytest.approx(4.5)


def test_one_lane_runs_one_after_the_other():
    case = make_case([], np.array([[1.0, np.inf], [np.inf, 1.0]]), lane=[7, 7])
    timeline = case.scheduler.run(partition_graph(case.scheduler.graph, np.int32([0, 1])))
    assert not timeline.overlaps
    assert timeline.latency == timeline.sequential == 2.0


@pytest.mark.parametrize("seed", range(12))
def test_beside_an_exact_solver(seed):
    """The bound is below the exact minimum, plans are above, and close to it."""
    rng = np.random.default_rng(seed)
    case = random_case(rng, 9, 2, launch=0.0, links=0.0, hand_over=0.0)
    exact = least_makespan_of_nodes(case)
    scheduler = case.scheduler
    assert scheduler.lower_bound() <= exact + 1e-3
    start = np.argmax(np.isfinite(case.problem.work[:, :-1]), axis=0).astype(np.int32)
    found = least_makespan(scheduler, [start])
    machine = scheduler._machine
    by_nodes = machine.run(np.argsort(np.argsort(np.arange(9))), scheduler.assign(), True)[4]
    assert min(found.latency, by_nodes) >= exact - 1e-3
    assert found.latency <= 1.6 * exact + 1e-3


@pytest.mark.parametrize("seed", range(12))
def test_lower_bound_of_pinned_nodes(seed):
    """Most nodes have one device, some devices share a lane: the bound stays below the exact minimum."""
    rng = np.random.default_rng(seed)
    n, k = 8, int(rng.integers(2, 4))
    edges = [(a, b) for a in range(n) for b in range(a + 1, n) if rng.random() < 0.25]
    work = rng.random((k, n))
    pinned = rng.random(n) < 0.8
    work[(rng.integers(0, k, n) != np.arange(k)[:, None]) & pinned] = np.inf
    exact = least_makespan_of_nodes(make_case(edges, work))
    assert make_case(edges, work).scheduler.lower_bound() <= exact + 1e-3
    one_lane = make_case(edges, work, lane=np.zeros(k, np.uint8))
    fastest = work.min(axis=0).sum()
    assert one_lane.scheduler.lower_bound() == pytest.approx(fastest)


def test_lower_bound_of_a_device_that_waits():
    """Node 0 on one device, then 1 and 2 on another, then 3 on the first: no two of them can overlap with the rest."""
    first, second = [1, np.inf, np.inf, 4], [np.inf, 2, 3, np.inf]
    case = make_case([(0, 1), (0, 2), (1, 3), (2, 3)], np.array([first, second]), launch=0.5)
    assert case.scheduler.lower_bound() == pytest.approx(1 + 2 + 3 + 4 + 0.5)
    # A second node before the two lets them start at once, and one after them may be short.
    edges = [(0, 1), (4, 2), (1, 3), (2, 5)]
    case = make_case(edges, np.array([[*first, 0.5, 0.25], [*second, np.inf, np.inf]]))
    assert case.scheduler.lower_bound() == pytest.approx(max(1 + 2 + 4, 0.5 + 2 + 3 + 0.25))


@pytest.mark.parametrize("seed", range(4))
def test_lower_bound_of_a_path(seed):
    """With a device for each node, no bound is above the longest path."""
    rng = np.random.default_rng(seed)
    n = 12
    edges = [(a, b) for a in range(n) for b in range(a + 1, n) if rng.random() < 0.3]
    seconds = rng.random(n)
    longest = seconds.copy()
    for a, b in sorted(edges, key=lambda edge: edge[1]):
        longest[b] = max(longest[b], longest[a] + seconds[b])
    case = make_case(edges, np.broadcast_to(seconds, (n, n)))
    assert case.scheduler.lower_bound() == pytest.approx(longest.max())


@pytest.mark.parametrize("seed", SEEDS)
def test_never_slower_than_the_known_plans(seed):
    rng = np.random.default_rng(seed)
    case = random_case(rng, int(rng.integers(1, 30)), int(rng.integers(1, 4)))
    known = [random_devices(rng, case) for _ in range(3)]
    found = least_makespan(case.scheduler, known)
    for labels in known:
        plain = partition_graph(case.scheduler.graph, labels)
        assert found.latency <= case.scheduler.in_start_order(plain).latency
        assert found.latency <= case.scheduler.as_numbered(plain).latency
    assert found.latency >= case.scheduler.lower_bound() * (1 - 1e-9)
    device = found.partition.device_of[found.partition.subgraph_of]
    assert np.isfinite(case.problem.work[device, np.arange(len(device))]).all()


@pytest.mark.parametrize("hand_over", [0.0, 50e-6])
def test_subgraphs_numbered_by_start_run_in_the_same_way(hand_over):
    """Also if many end at the same time, because nodes take whole milliseconds."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        n, k = int(rng.integers(4, 30)), int(rng.integers(2, 5))
        edges = [(a, b) for a in range(n) for b in range(a + 1, n) if rng.random() < 1.6 / n]
        work = np.tile(rng.integers(1, 4, n) * 1e-3, (k, 1))
        shares = {"shares": [True] * k, "slowdown": 0.5} if rng.random() < 0.3 else {}
        scheduler = make_case(edges, work, hand_over=hand_over, **shares).scheduler
        for cut in scheduler.cuts(rng.integers(0, k, n).astype(np.int32)):
            before, after = cut.timeline, scheduler.numbered_by_start(cut).timeline
            order = np.argsort(before.begin, kind="stable")
            np.testing.assert_allclose(after.begin, before.begin[order], rtol=1e-9)
            np.testing.assert_allclose(after.end, before.end[order], rtol=1e-9)
            assert (np.diff(after.begin) >= 0).all()


def towers(count, length, join=True, **options):
    """Chains of nodes of 1 s side by side; with ``join``, a node reads the last of each."""
    edges = [(t * length + i, t * length + i + 1) for t in range(count) for i in range(length - 1)]
    n = count * length + join
    if join:
        edges += [((t + 1) * length - 1, n - 1) for t in range(count)]
    return make_case(edges, np.ones((count, n)), **options)


@pytest.mark.parametrize("seed", [9, 13, 15, 33, 35])
def test_single_nodes_of_small_graphs_move(seed):
    """Moves of whole subgraphs stay 15 to 33 % above the minimum."""
    case = random_case(np.random.default_rng(seed), 10, 2, launch=0.0, links=0.0, hand_over=0.0)
    start = np.argmax(np.isfinite(case.problem.work[:, :-1]), axis=0).astype(np.int32)
    assert least_makespan(case.scheduler, [start]).latency <= 1.02 * least_makespan_of_nodes(case)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_towers_run_side_by_side(count):
    case = towers(count, 20, launch=1e-3, hand_over=1e-3)
    one_device = np.zeros(case.scheduler.graph.num_nodes, np.int32)
    found = least_makespan(case.scheduler, [one_device])
    assert found.timeline.overlaps
    assert found.latency == pytest.approx(21, rel=0.01)
    assert found.partition.num_subgraphs == count + 1
    assert case.scheduler.lower_bound() == pytest.approx(21, rel=0.01)


def test_forced_to_one_after_the_other():
    """Pins that alternate along a chain: nothing can overlap, and the prediction is the sum."""
    work = np.ones((2, 10))
    work[np.arange(10) % 2, np.arange(10)] = np.inf
    case = make_case([(i, i + 1) for i in range(9)], work, launch=0.1)
    device = np.isinf(work[0]).astype(np.int32)
    found = least_makespan(case.scheduler, [device])
    assert not found.timeline.overlaps
    assert found.latency == pytest.approx(11)


@pytest.mark.parametrize("work", [np.zeros((2, 6)), np.ones((2, 6)), np.full((2, 6), 1e-300), np.full((2, 6), 5e-324)])
def test_costs_without_differences(work):
    case = make_case([(i, i + 1) for i in range(5)], work)
    found = least_makespan(case.scheduler, [np.zeros(6, np.int32)])
    assert found.partition.num_subgraphs == 1
    assert found.latency == pytest.approx(work[0].sum())
    assert case.scheduler.lower_bound() <= found.latency


def test_no_nodes_and_one():
    case = make_case([], np.ones((2, 0)))
    found = least_makespan(case.scheduler, [np.zeros(0, np.int32)])
    assert (found.latency, found.partition.num_subgraphs, case.scheduler.lower_bound()) == (0, 0, 0)
    case = make_case([], np.array([[3.0], [2.0]]))
    found = least_makespan(case.scheduler, [np.zeros(1, np.int32)])
    assert found.partition.device_of.tolist() == [1]
    assert found.latency == case.scheduler.lower_bound() == 2


def test_many_devices():
    """255 devices, beside the host: a node for each."""
    case = make_case([], np.ones((255, 255)))
    found = least_makespan(case.scheduler, [np.zeros(255, np.int32)])
    assert found.latency == pytest.approx(1.0)
    assert sorted(found.partition.device_of.tolist()) == list(range(255))


@pytest.mark.parametrize("k", [65, 130])
def test_list_scheduling_on_many_devices_as_a_plain_one(k):
    """Which devices have a value is kept in words of 64 bits."""
    case = random_case(np.random.default_rng(k), 40, k, density=3.0)
    assert case.scheduler._machine.assign().tolist() == naive_assignment(case)


def test_steps_that_wait_for_each_other():
    case = make_case([(0, 1), (1, 2)], np.ones((2, 3)))
    partition = Partition(case.scheduler.graph, "own", np.int32([0, 1, 0]), np.int32([0, 1]), 2, 2.0)
    with pytest.raises(PartitionError, match="wait for each other"):
        case.scheduler.run(partition)
    with pytest.raises(PartitionError, match="wait for each other"):
        case.scheduler.in_start_order(partition)


def test_bad_arrays():
    graph = Graph.from_edges([0], [1], 2)
    problem = AssignmentProblem.from_graph(graph, [[1.0, np.inf], [1, 1]], [0, 0], np.zeros((2, 2)), np.zeros((2, 2)))
    for launch in ([0.0], [0.0, -1], [0, np.nan], [0, np.inf]):
        with pytest.raises(PartitionError, match="launch"):
            Scheduler(graph, problem, launch)
    with pytest.raises(PartitionError, match="lane"):
        Scheduler(graph, problem, [0, 0], [0])
    with pytest.raises(PartitionError, match="slowdown"):
        Scheduler(graph, problem, [0, 0], slowdown=np.nan)
    scheduler = Scheduler(graph, problem, [0, 0])
    with pytest.raises(PartitionError, match="device 0 does not support node 1"):
        scheduler.runs([0, 0])
    with pytest.raises(PartitionError, match="one device per node"):
        scheduler.runs([0])
    with pytest.raises(PartitionError, match="fewer than the 3 nodes"):
        Scheduler(Graph.from_edges([0], [1], 3), problem, [0, 0])


@pytest.mark.parametrize("seed", range(20))
def test_chains_keep_costs(seed):
    """A labeling by chains costs the same in the problem of the chains."""
    rng = np.random.default_rng(seed)
    case = random_case(rng, int(rng.integers(1, 30)), 3, density=1.0)
    graph, problem, chain_of = contract_chains(case.scheduler.graph, case.problem)
    of_chain = np.array([rng.choice(np.flatnonzero(np.isfinite(column))) for column in problem.work.T], np.int32)
    whole = np.append(of_chain[chain_of], of_chain[-1])
    before, after = case.problem.cost(whole), problem.cost(of_chain)
    assert after.work == pytest.approx(before.work)
    assert after.transfers == pytest.approx(before.transfers)
    assert graph.num_nodes == problem.num_nodes - 1
    for node in range(case.scheduler.graph.num_nodes):
        for reader in case.scheduler.graph.successors(node).tolist():
            only = case.scheduler.graph.predecessors(reader).tolist() == [node]
            alone = case.scheduler.graph.successors(node).tolist() == [reader]
            same = (np.isfinite(case.problem.work[:, node]) == np.isfinite(case.problem.work[:, reader])).all()
            assert not (only and alone and same) or chain_of[node] == chain_of[reader]


@pytest.mark.parametrize("seed", range(20))
def test_small_nodes_keep_costs(seed):
    """A labeling by groups costs the same in the problem of the groups, and its runs are a valid partition."""
    rng = np.random.default_rng(seed)
    case = random_case(rng, int(rng.integers(1, 40)), 3, density=1.0)
    graph, problem, group_of = contract_small(case.scheduler.graph, case.problem)
    of_group = np.array([rng.choice(np.flatnonzero(np.isfinite(column))) for column in problem.work.T], np.int32)
    device = of_group[:-1][group_of]
    before, after = case.problem.cost(np.append(device, of_group[-1])), problem.cost(of_group)
    assert after.work == pytest.approx(before.work)
    assert after.transfers == pytest.approx(before.transfers)
    runs = case.scheduler.runs(device).partition
    check_partition(case.scheduler.graph, device, runs.subgraph_of, ordered=True)
    for group in range(graph.num_nodes):
        assert len(np.unique(runs.subgraph_of[group_of == group])) == 1


def small_groups(edges, work, inputs=(), outputs=()):
    """The groups of more than one node."""
    case = make_case(edges, np.atleast_2d(np.array(work, float)), inputs=inputs, outputs=outputs)
    group_of = contract_small(case.scheduler.graph, case.problem)[2]
    return [
        set(np.flatnonzero(group_of == group).tolist()) for group in np.unique(group_of) if sum(group_of == group) > 1
    ]


def test_which_small_nodes_join():
    """Node 0 reads the input. A small node joins its predecessor in a chain; a small node of constants, its reader."""
    assert small_groups([(0, 1), (1, 2)], [10, 1, 0.1], (0,)) == [{0, 1, 2}]
    assert small_groups([(0, 1), (1, 2)], [10, 1, 10], (0,)) == [{0, 1}]
    assert small_groups([(0, 1)], [10, 1.1], (0,)) == []  # not small enough
    assert small_groups([(0, 1)], [[10, 1], [10, 2]], (0,)) == []  # not on each device
    assert small_groups([(0, 1)], [[10, 1], [np.inf, 1]], (0,)) == []  # not the same devices
    assert small_groups([(0, 1)], [[10, 1], [np.inf, np.inf]], (0,)) == [{0, 1}]
    assert small_groups([(0, 1), (0, 2)], [10, 1, 10], (0,)) == []  # another reader
    assert small_groups([(0, 2), (1, 2)], [10, 10, 1], (0, 1)) == []  # another predecessor
    assert small_groups([(0, 2), (1, 2)], [10, 1, 10], (0,)) == [{1, 2}]  # node 1 reads constants
    assert small_groups([(0, 2), (1, 2)], [10, 1, 10], (0, 1)) == []
    assert small_groups([(0, 2), (1, 2)], [10, 2, 10], (0,)) == []  # not small enough
    assert small_groups([(0, 2), (1, 2), (1, 3)], [10, 1, 10, 10], (0,)) == []  # two readers
    assert small_groups([(0, 1)], [1, 10]) == [{0, 1}]  # all of constants
    assert small_groups([(0, 1)], [0, 0]) == [{0, 1}]
    assert small_groups([(0, 1)], [10, 1], (0,), (0, 1)) == [{0, 1}]  # an output of the model


@pytest.mark.parametrize("kind", graphs.KINDS)
def test_kinds_of_graphs(kind):
    """The cut into runs of larger graphs is valid, and not slower than `auto` by more than a little."""
    src, dst, device = graphs.make(kind, 3000)
    graph = Graph.from_edges(src, dst, len(device))
    k = int(device.max()) + 1
    rng = np.random.default_rng(0)
    problem = AssignmentProblem.from_graph(
        graph, np.tile(rng.random(len(device)) * 1e-4, (k, 1)), np.ones(len(device)), np.zeros((k, k)), np.zeros((k, k))
    )
    scheduler = Scheduler(graph, problem, np.full(k, 2e-6), hand_over=5e-6)
    runs = scheduler.runs(device)
    check_partition(graph, device, runs.partition.subgraph_of, ordered=True)
    auto = scheduler.in_start_order(partition_graph(graph, device))
    assert runs.latency <= 1.25 * auto.latency


def problem_of(readers, work, latency=None):
    """``readers``: of the value that each node makes."""
    links = np.zeros((len(work), len(work))) if latency is None else latency
    indptr = np.cumsum([0, *map(len, readers)])
    flat = np.array([reader for row in readers for reader in row], np.int64)
    return AssignmentProblem.from_values(work, range(len(readers)), indptr, flat, np.ones(len(readers)), links, links)


def test_values_against_the_order_of_the_graph():
    """The graph has no edges, and its two nodes read each other's values."""
    scheduler = Scheduler(Graph.from_edges([], [], 2), problem_of([[1], [0]], np.ones((2, 2))), np.zeros(2))
    for function in (lambda: scheduler.runs([0, 0]), lambda: scheduler.runs([0, 1]), scheduler.assign):
        with pytest.raises(PartitionError, match="wait for each other"):
            function()


@pytest.mark.parametrize("seed", range(10))
def test_a_node_that_reads_its_own_value_waits_for_nothing(seed):
    """No caller makes such problems today, but `AssignmentProblem.from_values` takes them."""
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(2, 100)), 3
    edges = [(int(a), b) for b in range(1, n) for a in set(rng.integers(0, b, 2).tolist())]
    graph = Graph.from_edges(*np.array(edges).T, n)
    work, latency = rng.random((k, n)), rng.random((k, k))
    readers = [sorted({b for a, b in edges if a == node}) for node in range(n)]
    own = [sorted({*row, node}) if rng.random() < 0.5 else row for node, row in enumerate(readers)]
    one, other = (Scheduler(graph, problem_of(each, work, latency), np.ones(k))._machine for each in (readers, own))
    device_of = one.assign()
    assert other.assign().tolist() == device_of.tolist()
    assert other.bound() == one.bound()
    label, count = one.runs(device_of)
    assert other.runs(device_of)[0].tolist() == label.tolist()
    device_of_run = np.zeros(count, np.int32)
    device_of_run[label] = device_of
    runs = [each.run(label, device_of_run, True) for each in (one, other)]
    for first, second in zip(*runs, strict=True):
        np.testing.assert_array_equal(first, second)


def test_no_nodes():
    work = np.array([[0.0], [np.inf]])  # of the host
    scheduler = Scheduler(Graph.from_edges([], [], 0), problem_of([[]], work), np.zeros(2))
    assert scheduler.assign().tolist() == []
    assert scheduler.runs([]).latency == 0
    assert scheduler.lower_bound() == 0


def test_bounds_of_many_nodes_and_devices_take_fewer_rounds():
    rng = np.random.default_rng(0)
    n, k = 12_000, 250
    graph = Graph.from_edges([], [], n)
    work = np.broadcast_to(rng.random(n), (k, n)) * (1 + rng.random((k, 1)))
    scheduler = Scheduler(graph, problem_of([[]] * n, work), np.zeros(k))
    exact = 1 / (1 / work.sum(axis=1)).sum()  # all devices are busy to the end
    assert scheduler.lower_bound() == pytest.approx(exact)
