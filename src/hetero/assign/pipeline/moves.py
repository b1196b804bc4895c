"""Local search over single nodes: each step moves one node from the slowest stage to another stage.

Like a pass of C. M. Fiduccia and R. M. Mattheyses, "A linear-time heuristic for improving network partitions" (1982),
with the bottleneck in place of the cut and without uphill moves. Each step moves the node after whose move the slower
of its old and new stage is fastest, if the bottleneck falls. A node may move to any stage from the last stage of its
predecessors to the first stage of its successors, so stages stay in order.

Cost: O(nodes + reads) for each move that is tried. `_MAX_WORK` bounds the total, so in large graphs, where single
nodes matter less, few moves are tried.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...base.grouped import group_max, group_min
from .costs import StageCosts

__all__ = ["moved_nodes"]

_MAX_TRIALS = 2_000
_MAX_WORK = 10_000_000  # nodes and reads, summed over all trials
_MAX_TRIALS_PER_TARGET = 200  # in one step: the nodes with the most work
_MIN_GAIN = 1e-9  # of the bottleneck, relative


def moved_nodes(costs: StageCosts, stage_of: NDArray[np.int32]) -> NDArray[np.int32]:
    """int32 [num_nodes]: stages whose bottleneck is not greater than that of ``stage_of``.

    Used stages stay used; empty ones may receive nodes.
    """
    return _Moves(costs, stage_of).run()


class _Moves:
    def __init__(self, costs: StageCosts, stage_of: NDArray[np.int32]) -> None:
        self.costs = costs
        self.stage = stage_of.astype(np.int32).copy()
        self.stage_times = costs.times(stage_of).total
        self.trials_left = min(_MAX_TRIALS, _MAX_WORK // (len(stage_of) + len(costs.reader) + 1))
        graph = costs.graph
        self.edge_source = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
        self.edge_target = graph.indices

    def run(self) -> NDArray[np.int32]:
        while self.trials_left > 0 and self._step():
            pass
        return self.stage

    def _step(self) -> bool:
        """Make the best move off the slowest stage; False if no move helps."""
        slowest = int(np.argmax(self.stage_times))
        bottleneck = float(self.stage_times[slowest])
        nodes = np.flatnonzero(self.stage == slowest)
        if len(nodes) < 2:
            return False
        first, last = self._ranges()
        best: tuple[float, int, int, NDArray[np.float64]] | None = None
        for target in range(self.costs.num_stages):
            work = self.costs.work[target, nodes]
            is_option = (first[nodes] <= target) & (target <= last[nodes])
            is_option &= work < bottleneck - self.stage_times[target]
            if target == slowest or not is_option.any():
                continue
            by_work = np.argsort(-work[is_option], kind="stable")[:_MAX_TRIALS_PER_TARGET]
            for node in nodes[is_option][by_work].tolist():
                self.trials_left -= 1
                times = self._times_after(node, target)
                slower = float(max(times[slowest], times[target]))
                if times.max() < bottleneck * (1 - _MIN_GAIN) and (best is None or slower < best[0]):
                    best = slower, node, target, times
        if best is None:
            return False
        _, node, target, self.stage_times = best
        self.stage[node] = target
        return True

    def _ranges(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The first and the last stage that each node can move to while all other nodes stay."""
        n, k = self.costs.graph.num_nodes, self.costs.num_stages
        first = group_max(self.stage[self.edge_source], self.edge_target, n, 0)
        last = group_min(self.stage[self.edge_target], self.edge_source, n, k - 1)
        return first.astype(np.int32), last.astype(np.int32)

    def _times_after(self, node: int, target: int) -> NDArray[np.float64]:
        """The stages' times if ``node`` moved to ``target``."""
        moved = self.stage.copy()
        moved[node] = target
        return self.costs.times(moved).total
