"""`Scheduler`: predicts the run of a partition over devices that run in parallel, and cuts a graph for it."""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ... import _partition, _schedule
from ...base.grouped import distinct
from ...partition import Graph, Partition, check_partition, partition_graph
from ...partition.policies import CHECK_ALWAYS
from ..cuts import AssignmentProblem
from .chains import contract_chains, contract_small

__all__ = [
    "HAND_OVER_SECONDS",
    "LEAST_SECONDS",
    "LEAST_SHARE",
    "Room",
    "ScheduledPartition",
    "Scheduler",
    "Timeline",
    "is_worth",
]

HAND_OVER_SECONDS = 50e-6
"""Seconds to wake a thread and to be woken by it. Measured by bench/latency.py on a server processor."""

LEAST_SHARE, LEAST_SECONDS = 0.05, 100e-6
"""The minimum gain for steps at the same time, and for more subgraphs: as a share of the latency, and in seconds."""


def is_worth(before: float, after: float) -> bool:
    """Whether a latency of ``after`` seconds instead of ``before`` is worth threads or more subgraphs."""
    return before - after >= max(LEAST_SECONDS, LEAST_SHARE * before)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """The predicted run of a partition, in seconds from the start of an inference.

    ``begin``, ``end``: float64 [num_subgraphs], read-only. ``latency``: the end of the inference. ``sequential``: the
    latency of the same subgraphs one after the other, which is the sum of their times. ``overlaps``: whether subgraphs
    run at the same time; if that gains too little, the runtime runs them one after the other.
    """

    begin: NDArray[np.float64]
    end: NDArray[np.float64]
    latency: float
    sequential: float
    overlaps: bool


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ScheduledPartition:
    """A partition with its predicted run."""

    partition: Partition
    timeline: Timeline

    @property
    def latency(self) -> float:
        """Seconds."""
        return self.timeline.latency


class Room(NamedTuple):
    """The constants that nodes read, and the bytes that devices have for them.

    ``node``, ``constant``: int32 [num_reads], a node and a constant that it reads, each pair once. ``size``: float64
    [num_constants], bytes. ``own``: float64 [num_nodes], bytes of constants inside a node. ``limits``: float64
    [num_devices], bytes, infinite without a limit.
    """

    node: NDArray[np.int32]
    constant: NDArray[np.int32]
    size: NDArray[np.float64]
    own: NDArray[np.float64]
    limits: NDArray[np.float64]


def _room(room: Room | None, group_of: NDArray[np.intp]) -> _schedule.Room | None:
    """The memory limits for groups of nodes. A group reads a constant once, even if several of its nodes read it."""
    if room is None:
        return None
    count = int(group_of.max(initial=-1)) + 1
    pairs = distinct(group_of[room.node] * len(room.size) + room.constant)
    node, constant = np.divmod(pairs, max(1, len(room.size)))
    return _schedule.Room(node, constant, room.size, np.bincount(group_of, room.own, count), room.limits)


class _Groups(NamedTuple):
    """The result of `contract_small`, and the machine of the groups."""

    graph: Graph
    problem: AssignmentProblem
    machine: _schedule.Machine
    group_of: NDArray[np.intp]


class Scheduler:
    """A graph, its costs, and the devices. Every method is deterministic.

    ``problem``: has the nodes of ``graph``, and optionally more nodes after them that only one device supports, which
    stand for the host and take no time. ``launch``: float64 [num_devices], seconds per subgraph. ``lane``: int
    [num_devices], 0 to 255: devices of one lane never work at the same time, because they use the same processors; by
    default each device has its own. ``shares``: bool [num_devices]: while several of these devices work at the same
    time, each is slower by the share ``slowdown`` for each other one. ``hand_over``: seconds until another thread
    starts a step. List scheduling and the cut into runs do not divide what `contract_small` joins.

    Raises `PartitionError` for arrays of other sizes, and for launches that are negative or not finite.
    """

    def __init__(
        self,
        graph: Graph,
        problem: AssignmentProblem,
        launch: ArrayLike,
        lane: ArrayLike | None = None,
        shares: ArrayLike | None = None,
        slowdown: float = 0.0,
        hand_over: float = HAND_OVER_SECONDS,
    ) -> None:
        count = problem.num_devices
        self.graph = graph
        self.problem = problem
        self.launch = np.array(launch, np.float64)
        self.lane = np.arange(count, dtype=np.uint8) if lane is None else np.array(lane, np.uint8)
        self.shares = np.zeros(count, np.bool_) if shares is None else np.array(shares, np.bool_)
        self.slowdown, self.hand_over = slowdown, hand_over
        self._machine = self._machine_of(graph, problem)

    def _machine_of(self, graph: Graph, problem: AssignmentProblem) -> _schedule.Machine:
        devices = (self.launch, self.lane, self.shares, self.slowdown, self.hand_over)
        return _schedule.Machine(graph._csr, problem._costs, *devices)

    @functools.cached_property
    def _groups(self) -> _Groups:
        graph, problem, group_of = contract_small(self.graph, self.problem)
        return _Groups(graph, problem, self._machine_of(graph, problem), group_of)

    @functools.cached_property
    def _chains(self) -> tuple[_schedule.Machine, NDArray[np.intp]]:
        """The machine of chains of groups, and the chain of each node."""
        groups = self._groups
        chains, problem, chain_of = contract_chains(groups.graph, groups.problem)
        return self._machine_of(chains, problem), chain_of[groups.group_of]

    def with_problem(self, problem: AssignmentProblem) -> Scheduler:
        """The same graph and devices with other costs."""
        return Scheduler(
            self.graph, problem, self.launch, self.lane, self.shares, self.slowdown, hand_over=self.hand_over
        )

    def run(self, partition: Partition) -> Timeline:
        """The predicted run of a partition, which starts ready subgraphs in the order of their numbers."""
        return self._run(partition.subgraph_of, partition.device_of, renumber=False)[2]

    def as_numbered(self, partition: Partition) -> ScheduledPartition:
        """The partition with its run: ready subgraphs start in the order of their numbers."""
        return ScheduledPartition(partition, self.run(partition))

    def in_turn(self, partition: Partition) -> ScheduledPartition:
        """The partition with its subgraphs one after the other, also if overlapping would gain."""
        label, device_of = partition.subgraph_of, partition.device_of
        begin, end, sequential = self._machine.run(label, device_of, False)[5:]
        begin.setflags(write=False)
        end.setflags(write=False)
        return ScheduledPartition(partition, Timeline(begin, end, sequential, sequential, False))

    def numbered_by_start(self, cut: ScheduledPartition) -> ScheduledPartition:
        """The same subgraphs with the same run, numbered by their start."""
        partition, begin = cut.partition, cut.timeline.begin
        if (np.diff(begin) >= 0).all():
            return cut
        sequence = np.argsort(begin, kind="stable")  # stable: subgraphs that take no time stay in order
        number = np.empty(len(sequence), np.int32)
        number[sequence] = np.arange(len(sequence), dtype=np.int32)
        policy, edges, weight = partition.policy, partition.cut_edges, partition.cut_weight
        label, device_of = number[partition.subgraph_of], partition.device_of[sequence]
        return self.as_numbered(Partition(self.graph, policy, label, device_of, edges, weight))

    def in_start_order(self, partition: Partition) -> ScheduledPartition:
        """The same subgraphs, numbered by their start if those at the head of the longest paths start first."""
        label, device_of, timeline = self._run(partition.subgraph_of, partition.device_of, renumber=True)
        policy, edges, weight = partition.policy, partition.cut_edges, partition.cut_weight
        return ScheduledPartition(Partition(self.graph, policy, label, device_of, edges, weight), timeline)

    def runs(self, device_of: ArrayLike) -> ScheduledPartition:
        """The cut into runs (`src/_core/schedule/runs.c`), numbered by start. ``device_of``: int [num_nodes], devices
        that support their nodes; raises `PartitionError` otherwise."""
        devices = np.asarray(device_of, np.int32)
        label, count = self._runs(devices)
        device_of_run = np.empty(count, np.int32)
        device_of_run[label] = devices
        label, device_of_run, timeline = self._run(label, device_of_run, renumber=True)
        source = np.repeat(np.arange(self.graph.num_nodes), np.diff(self.graph.indptr))
        cut = int(np.count_nonzero(label[source] != label[self.graph.indices]))
        partition = Partition(self.graph, "runs", label, device_of_run, cut, float(cut))
        if CHECK_ALWAYS:
            check_partition(self.graph, devices, label, ordered=True)
        return ScheduledPartition(partition, timeline)

    def cuts(self, device_of: ArrayLike, policy: str = "auto") -> list[ScheduledPartition]:
        """The cuts of an assignment: by ``policy``, and those that let devices run in parallel."""
        plain = partition_graph(self.graph, device_of, policy)
        # List scheduling is a heuristic, so either order can be faster.
        cuts = [min(self.in_start_order(plain), self.as_numbered(plain), key=lambda cut: cut.latency)]
        if plain.num_subgraphs > 1:
            cuts.append(self.in_start_order(partition_graph(self.graph, device_of, "depth_height")))
            cuts.append(self.runs(device_of))
        return cuts

    def busy_bound(self, device_of: NDArray[np.int32]) -> float:
        """Seconds; no partition of this assignment takes less, because a lane is busy with its nodes, and all lanes
        with all nodes and the launches of the fewest possible subgraphs. O(nodes + edges)."""
        if not len(device_of):
            return 0.0
        work = self.problem.work[device_of, np.arange(len(device_of))]
        lane = np.bincount(self.lane[device_of], work)
        used = np.flatnonzero(np.bincount(device_of))
        launches = _partition.lower_bound(self.graph._csr, device_of) * self.launch[used].min()
        return float(max(lane.max(), (lane.sum() + launches) / len(set(self.lane[used].tolist()))))

    def assign(self, within: Room | None = None) -> NDArray[np.int32]:
        """int32 [num_nodes]: a device for each node, by list scheduling of single nodes (HEFT). ``within``: a node goes
        to a device that has room for its constants, if there is one."""
        groups = self._groups
        return groups.machine.assign(_room(within, groups.group_of))[groups.group_of]

    def assign_chains(self, within: Room | None = None) -> NDArray[np.int32]:
        """The same, by list scheduling of chains."""
        machine, chain_of = self._chains
        return machine.assign(_room(within, chain_of))[chain_of]

    def lower_bound(self) -> float:
        """Seconds; no assignment and partition take less."""
        return self._machine.bound()

    def _runs(self, device: NDArray[np.int32]) -> tuple[NDArray[np.int32], int]:
        """The run of each node, and the number of runs."""
        groups = self._groups
        if device.shape == groups.group_of.shape:
            of_group = np.zeros(groups.graph.num_nodes, np.int32)
            of_group[groups.group_of] = device
            if np.array_equal(of_group[groups.group_of], device):
                label, count = groups.machine.runs(of_group)
                return label[groups.group_of], count
        return self._machine.runs(device)  # the assignment divides groups

    def _run(
        self, label: NDArray[np.int32], device_of: NDArray[np.int32], renumber: bool
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], Timeline]:
        label, device_of, begin, end, makespan, begin_alone, end_alone, sequential = self._machine.run(
            label, device_of, renumber
        )
        overlaps = is_worth(sequential, makespan)
        if not overlaps:
            begin, end, makespan = begin_alone, end_alone, sequential
        begin.setflags(write=False)
        end.setflags(write=False)
        return label, device_of, Timeline(begin, end, makespan, sequential, overlaps)
