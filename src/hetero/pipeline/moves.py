"""Moving nodes one by one from a slow stage to the one beside it.

After F. C. Fiduccia and R. M. Mattheyses (1982), for a bottleneck in place of a cut: of the slowest stage, the node
whose move to the next or the previous used stage leaves the slower of the two fastest goes there, as long as this gets
better. Only nodes whose readers (or producers) are all in later (or earlier) stages can go, so stages stay in order.

Cost: O(nodes + values) for each node that is looked at, so few are in large graphs, where single nodes matter less.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .costs import StageCosts

__all__ = ["moved_nodes"]

_MOST_LOOKS = 2_000
_MOST_WORK = 10_000_000  # nodes and readings in all looks
_LARGEST_FRONTIER = 200
_LEAST_GAIN = 1e-9


def moved_nodes(costs: StageCosts, stage_of: NDArray[np.int32]) -> NDArray[np.int32]:
    """Stages of which the slowest is no slower; the same ones are used, and no others."""
    return _Moves(costs, stage_of).run()


class _Moves:
    def __init__(self, costs: StageCosts, stage_of: NDArray[np.int32]) -> None:
        self.costs = costs
        self.stage = stage_of.astype(np.int32).copy()
        self.total = costs.times(stage_of).total
        self.count = np.bincount(stage_of, minlength=costs.num_stages)
        self.used = np.flatnonzero(self.count).tolist()
        self.left = min(_MOST_LOOKS, _MOST_WORK // (len(stage_of) + len(costs.reader) + 1))

    def run(self) -> NDArray[np.int32]:
        while self.left > 0 and self._step():
            pass
        return self.stage

    def _step(self) -> bool:
        """One move off the slowest stage, if there is one that helps."""
        slowest = int(np.argmax(self.total))
        now = float(self.total[slowest])
        if self.count[slowest] < 2:
            return False
        at = self.used.index(slowest)
        best: tuple[float, int, int, NDArray[np.float64]] | None = None
        for step in (1, -1):
            if not 0 <= at + step < len(self.used):
                continue
            target = self.used[at + step]
            for node in self._frontier(slowest, step, now - float(self.total[target])):
                self.left -= 1
                total = self._after(node, slowest, target)
                reached = float(max(total[slowest], total[target]))
                if total.max() < now * (1 - _LEAST_GAIN) and (best is None or reached < best[0]):
                    best = reached, node, target, total
        if best is None:
            return False
        _, node, target, self.total = best
        self.count[self.stage[node]] -= 1
        self.count[target] += 1
        self.stage[node] = target
        return True

    def _frontier(self, stage: int, step: int, room: float) -> list[int]:
        """Nodes of a stage that can go to the next (1) or previous (-1) one and are not too much for it, the largest
        first."""
        graph = self.costs.graph
        nodes = np.flatnonzero(self.stage == stage)
        source = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
        here, there = (source, graph.indices) if step > 0 else (graph.indices, source)
        tied = here[(self.stage[here] == stage) & (self.stage[there] == stage)]
        free = np.setdiff1d(nodes, tied, assume_unique=False)
        target = self.used[self.used.index(stage) + step]
        work = self.costs.work[target, free]
        fits = work < room
        free, work = free[fits], work[fits]
        order = np.argsort(-work, kind="stable")[:_LARGEST_FRONTIER]
        return list(map(int, free[order]))

    def _after(self, node: int, stage: int, target: int) -> NDArray[np.float64]:
        """What stages take once a node has moved."""
        moved = self.stage.copy()
        moved[node] = target
        return self.costs.times(moved).total
