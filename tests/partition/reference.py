"""The documented loop, literally: the naive twin of ``documented``.

Source: the subgraph selection of OpenVINO's HETERO plugin design, with one addition: chosen subgraphs count as single
vertices for reachability from then on (without it two convex subgraphs can wait for each other).

For each device in ascending order, until it has no root left: grow a candidate from every root, depth first; a node of
another device, or chosen before, joins the rejected list; whenever a rejected node lies on a path between two nodes of
the candidate, the nodes merged last are rolled back into the rejected list. The largest candidate is chosen.

Written to be read and to be compared with, not to be fast: Python integers serve as bit sets of vertices, and every
condition is evaluated afresh, pair by pair. About O(n^4) bit operations; meant for graphs of tens of nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

from hetero.partition.graph import Graph
from hetero.partition.partition import TraceStep

__all__ = ["documented"]


def documented(graph: Graph, device: Sequence[int]) -> tuple[NDArray[np.int32], tuple[TraceStep, ...]]:
    """Labels int32 [num_nodes], numbered in the order in which subgraphs were chosen, and every step taken."""
    loop = _Loop(graph, device)
    for number in sorted(set(device)):
        while loop.choose_one(number):
            pass
    return np.array(loop.label, np.int32), tuple(loop.trace)


def smallest_first_order(graph: Graph) -> list[int]:
    """Topological order that always takes the smallest of the nodes that are ready."""
    waiting = np.diff(graph.pred_indptr).tolist()
    ready = [node for node in range(graph.num_nodes) if waiting[node] == 0]
    heapify(ready)
    order = []
    while ready:
        node = heappop(ready)
        order.append(node)
        for child in graph.successors(node).tolist():
            waiting[child] -= 1
            if waiting[child] == 0:
                heappush(ready, child)
    return order


class _Loop:
    def __init__(self, graph: Graph, device: Sequence[int]) -> None:
        self.device = list(device)
        self.children: list[list[int]] = [graph.successors(v).tolist() for v in range(graph.num_nodes)]
        self.parents: list[list[int]] = [graph.predecessors(v).tolist() for v in range(graph.num_nodes)]
        self.order = smallest_first_order(graph)
        self.label = [-1] * graph.num_nodes  # -1: in no chosen subgraph
        self.num_chosen = 0
        self.vertex = list(range(graph.num_nodes))  # chosen subgraphs are single vertices, named by their first node
        self.trace: list[TraceStep] = []

    def choose_one(self, number: int) -> bool:
        """One round: a candidate from every root of device ``number``; the largest becomes a subgraph."""
        self.close()
        candidates: list[list[int]] = []
        for root in self.order:
            free = self.device[root] == number and self.label[root] < 0
            if free and not any(root in candidate for candidate in candidates):
                candidates.append(self.grow(root, number))
        if not candidates:
            return False
        best = max(candidates, key=len)  # the first of equals: the earliest root
        for node in best:
            self.label[node] = self.num_chosen
            self.vertex[node] = min(best)
        self.num_chosen += 1
        self.note("choose", best[0], best, [])
        return True

    def grow(self, root: int, number: int) -> list[int]:
        candidate, rejected = [root], list[int]()
        self.note("root", root, candidate, rejected)
        while (node := self.next_neighbor(candidate, rejected)) is not None:
            if self.device[node] == number and self.label[node] < 0:
                candidate.append(node)
                self.note("merge", node, candidate, rejected)
            else:
                rejected.append(node)
                self.note("fail", node, candidate, rejected)
            while self.refers_to_itself(candidate, rejected):
                node = candidate.pop()
                rejected.append(node)
                self.note("rollback", node, candidate, rejected)
        return candidate

    def next_neighbor(self, candidate: list[int], rejected: list[int]) -> int | None:
        """Of the most recently merged node that has one: the first neighbor neither merged nor rejected."""
        for node in reversed(candidate):
            for neighbor in self.children[node] + self.parents[node]:
                if neighbor not in candidate and neighbor not in rejected:
                    return neighbor
        return None

    def refers_to_itself(self, candidate: list[int], rejected: list[int]) -> bool:
        """The global condition fails: a rejected node lies on a path between two nodes of the candidate."""
        refused = 0
        for node in rejected:
            refused |= 1 << self.vertex[node]
        return any(self.path_nodes(src, dst) & refused for src in candidate for dst in candidate)

    def path_nodes(self, src: int, dst: int) -> int:
        """Bit set of the vertices reachable from ``src`` that reach ``dst``."""
        return self.descendants[self.vertex[src]] & self.ancestors[self.vertex[dst]]

    def close(self) -> None:
        """Bit sets of the descendants and ancestors of every vertex, chosen subgraphs contracted."""
        self.descendants = _transitive_closure(self.vertex, self.children)
        self.ancestors = _transitive_closure(self.vertex, self.parents)

    def note(self, action: str, node: int, candidate: list[int], rejected: list[int]) -> None:
        self.trace.append(TraceStep(action, node, tuple(sorted(candidate)), tuple(sorted(rejected))))


def _transitive_closure(vertex: list[int], neighbors: list[list[int]]) -> list[int]:
    """Bit set of the vertices reachable from each vertex in one step or more: repeated until nothing is added."""
    reach = [0] * len(vertex)
    for node, row in enumerate(neighbors):
        for other in row:
            if vertex[other] != vertex[node]:
                reach[vertex[node]] |= 1 << vertex[other]
    grown = True
    while grown:
        grown = False
        for v in range(len(reach)):
            wider = reach[v]
            for u in range(len(reach)):
                if reach[v] >> u & 1:
                    wider |= reach[u]
            grown = grown or wider != reach[v]
            reach[v] = wider
    return reach
