"""Moving nodes one by one from the slowest stage to others.

After F. C. Fiduccia and R. M. Mattheyses (1982), for a bottleneck in place of a cut: of the slowest stage, the node
whose move leaves the slower of the two stages fastest goes, as long as this gets better. A node can go to the stages
from the last one of what it reads to the first one of what reads it, so stages stay in order.

Cost: O(nodes + values) for each node that is looked at, so few are in large graphs, where single nodes matter less.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...base.grouped import group_max, group_min
from .costs import StageCosts

__all__ = ["moved_nodes"]

_MOST_LOOKS = 2_000
_MOST_WORK = 10_000_000  # nodes and readings in all looks
_LARGEST_FRONTIER = 200
_LEAST_GAIN = 1e-9


def moved_nodes(costs: StageCosts, stage_of: NDArray[np.int32]) -> NDArray[np.int32]:
    """Stages of which the slowest is no slower. Those that are used stay so, others may come to be."""
    return _Moves(costs, stage_of).run()


class _Moves:
    def __init__(self, costs: StageCosts, stage_of: NDArray[np.int32]) -> None:
        self.costs = costs
        self.stage = stage_of.astype(np.int32).copy()
        self.total = costs.times(stage_of).total
        self.left = min(_MOST_LOOKS, _MOST_WORK // (len(stage_of) + len(costs.reader) + 1))
        graph = costs.graph
        self.source = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
        self.target = graph.indices

    def run(self) -> NDArray[np.int32]:
        while self.left > 0 and self._step():
            pass
        return self.stage

    def _step(self) -> bool:
        """One move off the slowest stage, if there is one that helps."""
        slowest = int(np.argmax(self.total))
        now = float(self.total[slowest])
        nodes = np.flatnonzero(self.stage == slowest)
        if len(nodes) < 2:
            return False
        first, last = self._ranges()
        best: tuple[float, int, int, NDArray[np.float64]] | None = None
        for target in range(self.costs.num_stages):
            work = self.costs.work[target, nodes]
            can = (first[nodes] <= target) & (target <= last[nodes]) & (work < now - self.total[target])
            if target == slowest or not can.any():
                continue
            order = np.argsort(-work[can], kind="stable")[:_LARGEST_FRONTIER]
            for node in nodes[can][order].tolist():
                self.left -= 1
                total = self._after(node, target)
                reached = float(max(total[slowest], total[target]))
                if total.max() < now * (1 - _LEAST_GAIN) and (best is None or reached < best[0]):
                    best = reached, node, target, total
        if best is None:
            return False
        _, node, target, self.total = best
        self.stage[node] = target
        return True

    def _ranges(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The first and the last stage that each node can go to, the others staying where they are."""
        n, k = self.costs.graph.num_nodes, self.costs.num_stages
        first = group_max(self.stage[self.source], self.target, n, 0)
        last = group_min(self.stage[self.target], self.source, n, k - 1)
        return first.astype(np.int32), last.astype(np.int32)

    def _after(self, node: int, target: int) -> NDArray[np.float64]:
        """What stages take once a node has moved."""
        moved = self.stage.copy()
        moved[node] = target
        return self.costs.times(moved).total
