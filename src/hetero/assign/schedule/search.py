"""`least_makespan`: an assignment and its cut with the least predicted latency, with devices at work at the same time.

Finding the minimum is NP-hard. So several assignments, each cut in several ways, compete in the simulator:
1. the assignments given, which are those of the plans without this search,
2. list scheduling of single nodes, which uses all devices but can scatter small nodes,
3. list scheduling of chains, which keeps chains together.
Of the plans that are within the minimum gain of the fastest, the one with the fewest subgraphs wins.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .chains import contract_chains
from .scheduler import LEAST_SECONDS, LEAST_SHARE, ScheduledPartition, Scheduler

__all__ = ["assignments", "fewest_of_the_fastest", "least_makespan"]


def least_makespan(
    scheduler: Scheduler, known: Sequence[NDArray[np.int32]], policy: str = "auto"
) -> ScheduledPartition:
    """The best plan found, never slower than the first assignment of ``known``, cut by ``policy``.

    ``known``: assignments to compete, int32 [num_nodes] each; at least one.
    """
    labelings = assignments(scheduler, known)
    return fewest_of_the_fastest([cut for labeling in labelings for cut in scheduler.cuts(labeling, policy)])


def assignments(scheduler: Scheduler, known: Sequence[NDArray[np.int32]]) -> list[NDArray[np.int32]]:
    """The distinct assignments to compete: those known, and those of list scheduling."""
    labelings = list(known)
    if scheduler.graph.num_nodes:
        labelings.append(scheduler.assign())
        chains, contracted, chain_of = contract_chains(scheduler.graph, scheduler.problem)
        if chains.num_nodes < scheduler.graph.num_nodes:
            of_chains = Scheduler(chains, contracted, scheduler.launch, scheduler.lane, hand_over=scheduler.hand_over)
            labelings.append(of_chains.assign()[chain_of])
    distinct: list[NDArray[np.int32]] = []
    for labeling in labelings:
        if not any(np.array_equal(labeling, other) for other in distinct):
            distinct.append(labeling)
    return distinct


def fewest_of_the_fastest(cuts: Sequence[ScheduledPartition]) -> ScheduledPartition:
    """Of the cuts that are not slower than the first, and slower than the fastest by less than the minimum gain, the
    one with the fewest subgraphs; of several, the fastest."""
    fastest = min(cut.latency for cut in cuts)
    slowest = max(fastest / (1 - LEAST_SHARE), fastest + LEAST_SECONDS)
    good = [cut for cut in cuts if cut.latency <= min(slowest, cuts[0].latency)]
    return min(good, key=lambda cut: (cut.partition.num_subgraphs, cut.latency))
