"""`least_makespan`: an assignment and its cut with the minimum predicted latency, with devices in parallel.

Finding the minimum is NP-hard. So several assignments, each cut in several ways, compete in the simulator:
1. the assignments given, which are those of the plans without this search,
2. list scheduling of single nodes, which uses all devices but can scatter small nodes,
3. list scheduling of chains, which keeps chains together.
In the fastest plan, whole subgraphs, and in small graphs single nodes, move to other devices while that helps, within a
limit of work. Of the plans that are within the minimum gain of the fastest, the one with the fewest subgraphs wins.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from .scheduler import LEAST_SECONDS, LEAST_SHARE, ScheduledPartition, Scheduler, is_worth

__all__ = ["assignments", "fewest_of_the_fastest", "improved", "least_makespan"]

_MAX_TRIALS = 400  # assignments
_MAX_TRIAL_NODES = 200_000  # nodes of the graph times trials: about 0.2 s
_SMALL = 100  # nodes of graphs in which single nodes move
_LEAST_STEP = 1e-3  # the share of the latency that a move must save


def least_makespan(
    scheduler: Scheduler, known: Sequence[NDArray[np.int32]], policy: str = "auto"
) -> ScheduledPartition:
    """The best plan found, never slower than the first assignment of ``known``, cut by ``policy``.

    ``known``: assignments to compete, int32 [num_nodes] each; at least one.
    """
    cuts = [cut for labeling in assignments(scheduler, known) for cut in scheduler.cuts(labeling, policy)]
    return fewest_of_the_fastest([*cuts, improved(scheduler, cuts)], cuts[0].latency)


def assignments(scheduler: Scheduler, known: Sequence[NDArray[np.int32]]) -> list[NDArray[np.int32]]:
    """The distinct assignments to compete: those known, and those of list scheduling."""
    labelings = list(known)
    if scheduler.graph.num_nodes:
        labelings += [scheduler.assign(), scheduler.assign_chains()]
    distinct: list[NDArray[np.int32]] = []
    for labeling in labelings:
        if not any(np.array_equal(labeling, other) for other in distinct):
            distinct.append(labeling)
    return distinct


def improved(scheduler: Scheduler, cuts: Sequence[ScheduledPartition]) -> ScheduledPartition:
    """The fastest of the cuts after moves to other devices, as long as they help: of whole subgraphs, those with the
    longest times first, and in small graphs of single nodes, and swaps of two of these. Ends where the lower bound
    leaves less than the minimum gain."""
    best = min(cuts, key=lambda cut: cut.latency)
    n = scheduler.graph.num_nodes
    possible = np.isfinite(scheduler.problem.work[:, :n])
    trials = min(_MAX_TRIALS, _MAX_TRIAL_NODES // max(1, n))
    tried = set()
    bound = scheduler.lower_bound()
    is_better = bool(trials)
    while is_better and is_worth(best.latency, bound):
        is_better = False
        for moved in _changes(best, possible):
            if moved.tobytes() in tried:
                continue
            if not trials:
                return best
            trials -= 1
            tried.add(moved.tobytes())
            cut = scheduler.runs(moved)
            if cut.latency < best.latency * (1 - _LEAST_STEP):
                best, is_better = cut, True
                break
    return best


def _changes(cut: ScheduledPartition, possible: NDArray[np.bool_]) -> Iterator[NDArray[np.int32]]:
    """Assignments in which a group of nodes, or two, are on another device. ``possible``: bool [num_devices, n]."""
    partition, timeline = cut.partition, cut.timeline
    device_of = partition.device_of[partition.subgraph_of]
    longest_first = np.argsort(timeline.begin - timeline.end, kind="stable").tolist()
    groups = [partition.nodes(subgraph) for subgraph in longest_first]
    if len(device_of) <= _SMALL:
        groups += [nodes[i : i + 1] for nodes in groups if len(nodes) > 1 for i in range(len(nodes))]
    for nodes in groups:
        for device in np.flatnonzero(possible[:, nodes].all(axis=1)).tolist():
            if device != device_of[nodes[0]]:
                moved = device_of.copy()
                moved[nodes] = device
                yield moved
    if len(device_of) <= _SMALL:
        for first, second in itertools.combinations(groups, 2):
            here, there = device_of[first[0]], device_of[second[0]]
            if here != there and possible[there, first].all() and possible[here, second].all():
                moved = device_of.copy()
                moved[first], moved[second] = there, here
                yield moved


def fewest_of_the_fastest(cuts: Sequence[ScheduledPartition], at_most: float = np.inf) -> ScheduledPartition:
    """Of the cuts that are slower than the fastest by less than the minimum gain, the one with the fewest subgraphs; of
    several, the fastest. ``at_most``: the latency of a known plan, in seconds; slower cuts only if all are slower."""
    fastest = min(cut.latency for cut in cuts)
    slowest = max(fastest / (1 - LEAST_SHARE), fastest + LEAST_SECONDS)
    good = [cut for cut in cuts if cut.latency <= max(fastest, min(slowest, at_most))]
    return min(good, key=lambda cut: (cut.partition.num_subgraphs, cut.latency))
