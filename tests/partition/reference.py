"""The documented loop, literally, and with early rejection: the naive twins of ``documented`` and ``greedy``.

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

__all__ = ["documented", "greedy"]


def documented(graph: Graph, device: Sequence[int]) -> tuple[NDArray[np.int32], tuple[TraceStep, ...]]:
    """Labels int32 [num_nodes], numbered in the order in which subgraphs were chosen, and every step taken."""
    loop = _Loop(graph, device)
    for number in sorted(set(device)):
        while loop.choose_one(number):
            pass
    return np.array(loop.label, np.int32), tuple(loop.trace)


def greedy(
    graph: Graph,
    device: Sequence[int],
    explore_first: int | None = None,
    explore_each: int = 16,
    max_covered: int | None = None,
    max_choices: int | None = None,
) -> NDArray[np.int32]:
    """Labels int32 [num_nodes], numbered in the order in which subgraphs were chosen, of policy ``greedy``.

    For each device in ascending order: every free node is covered by a candidate, grown from the first node that none
    covers. The largest by the size last seen (the earliest root among equals) is grown again; if it is still as large
    as the next one it is chosen. Nodes that are no longer covered get candidates of their own.

    ``explore_first``, ``explore_each``: a node is rejected when the steps (nodes and edges) that explore its side of a
    candidate of ``size`` nodes would become more than ``explore_first + explore_each * size``. ``max_covered``: a
    candidate that is not about to be chosen stops growing when twice the nodes it takes from other candidates are more
    than this and its size. ``max_choices``: after so many choices the rest is cut by depth. ``None``: as the policy has
    it, which spends more on each node of a small graph.
    """
    spare = (1 << 22) // (graph.num_nodes + 1)
    if explore_first is None:
        explore_first = 128 + spare
    if max_covered is None:
        max_covered = 32 + spare
    loop = _EarlyRejection(graph, device, explore_first, explore_each, max_covered)
    most = graph.num_nodes if max_choices is None else max_choices
    for number in sorted(set(device)):
        loop.choose_all(number, most)
    loop.cut_the_rest_by_depth()
    return np.array(loop.label, np.int32)


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


class _EarlyRejection:
    """``order``: the vertices, as a topological order that changes with each choice. Growth upwards is growth downwards
    in the reversed graph, so everything is said once, for ``rows`` (side 0: children, 1: parents)."""

    LOOK = 32  # a node with more parents is decided by exploring alone
    APART = 8  # a step is not expected to lead further than so many places in topological order

    def __init__(
        self, graph: Graph, device: Sequence[int], explore_first: int, explore_each: int, max_covered: int
    ) -> None:
        n = graph.num_nodes
        self.device = list(device)
        self.rows = [[row(v).tolist() for v in range(n)] for row in (graph.successors, graph.predecessors)]
        self.nodes: list[int] = graph.topological_order.tolist()
        self.place = {node: i for i, node in enumerate(self.nodes)}
        self.explore_first, self.explore_each, self.max_covered = explore_first, explore_each, max_covered
        self.label = [-1] * n
        self.num_chosen = 0
        self.vertex = list(range(n))  # chosen subgraphs are single vertices
        self.members = [[v] for v in range(n)]  # of a vertex
        self.order = list(self.nodes)

    def choose_all(self, number: int, max_choices: int) -> None:
        covered_by: dict[int, int] = {}  # free node -> root of the candidate that covers it
        last_size: dict[int, int] = {}  # root -> size of its candidate when last grown

        def cover(root: int, candidate: list[int]) -> None:
            last_size[root] = len(candidate)
            for node in candidate:
                covered_by.setdefault(node, root)

        def cover_the_rest() -> None:
            for node in self.nodes:
                if self.device[node] == number and self.label[node] < 0 and node not in covered_by:
                    cover(node, self.grow(node, set(covered_by)))

        def uncover(root: int, still: list[int]) -> None:
            for node in [n for n, owner in covered_by.items() if owner == root and n not in still]:
                del covered_by[node]

        cover_the_rest()
        while last_size and self.num_chosen < max_choices:
            root = min(last_size, key=lambda r: (-last_size[r], self.place[r]))
            size = last_size.pop(root)
            if self.label[root] >= 0:
                uncover(root, [])
            else:
                candidate = self.grow(root, set())
                rest = [(-other, self.place[r]) for r, other in last_size.items()]
                if len(candidate) >= size or not rest or (-len(candidate), self.place[root]) < min(rest):
                    self.choose(candidate)
                    uncover(root, [])
                else:
                    uncover(root, candidate)
                    cover(root, candidate)
            cover_the_rest()

    def grow(self, root: int, covered: set[int]) -> list[int]:
        """Downwards, then upwards, and again: each neighbor in turn, merged or rejected for good."""
        candidate = [root]
        tainted: tuple[set[int], set[int]] = (set(), set())  # outside for good, and reached from the candidate
        explored: tuple[set[int], set[int]] = (set(), set())  # of those: what they lead to is tainted as well
        side = 0
        while any(self.waiting(s, candidate, tainted[s]) for s in (0, 1)):
            while waiting := self.waiting(side, candidate, tainted[side]):
                if self.may_merge(side, candidate, waiting[0], tainted[side], explored[side]):
                    candidate.append(waiting[0])
                    if waiting[0] in covered and 2 * len(covered & set(candidate)) > self.max_covered + len(candidate):
                        return candidate
                else:
                    tainted[side].add(waiting[0])
            side = 1 - side
        return candidate

    def waiting(self, side: int, candidate: list[int], tainted: set[int]) -> list[int]:
        """Neighbors that may still be merged, the first in topological order first; the others become tainted."""
        device = self.device[candidate[0]]
        adjacent = {self.vertex[n] for node in candidate for n in self.rows[side][node]} - set(candidate)
        tainted |= {v for v in adjacent if self.label[v] >= 0 or self.device[v] != device}
        return sorted(adjacent - tainted, key=self.position(side).index)

    def position(self, side: int) -> list[int]:
        return self.order if side == 0 else self.order[::-1]

    def may_merge(self, side: int, candidate: list[int], node: int, tainted: set[int], explored: set[int]) -> bool:
        position = self.position(side)
        parents = {self.vertex[p] for p in self.rows[1 - side][node]} - set(candidate)
        if len(self.rows[1 - side][node]) <= self.LOOK:
            if parents & tainted:
                return False
            first = min(position.index(v) for v in candidate)
            if all(position.index(p) < first for p in parents):
                return True
        while node not in tainted:
            before = [v for v in tainted - explored if position.index(v) < position.index(node)]
            if not before:
                return True
            vertex = min(before, key=position.index)
            left = self.explore_first + self.explore_each * len(candidate) - sum(self.steps(side, v) for v in explored)
            apart = abs(self.place[node] - self.place[vertex])
            if self.steps(side, vertex) > left or apart > self.APART * left:
                return False
            if self.leads_to(side, vertex, node):
                return False
            explored.add(vertex)
            tainted |= {self.vertex[n] for n in self.neighbors(side, vertex)} - {vertex, *candidate}
        return False

    def neighbors(self, side: int, vertex: int) -> list[int]:
        return [n for member in self.members[vertex] for n in self.rows[side][member]]

    def steps(self, side: int, vertex: int) -> int:
        return len(self.members[vertex]) + len(self.neighbors(side, vertex))

    def leads_to(self, side: int, vertex: int, node: int) -> bool:
        """Whether the chain of last predecessors (upwards: first successors) of ``node`` runs through ``vertex``."""
        pick = max if side == 0 else min
        while node != vertex and self.rows[1 - side][node]:
            node = pick(self.rows[1 - side][node], key=lambda n: self.place[n])
        return node == vertex

    def reached(self, side: int, candidate: list[int]) -> set[int]:
        """Vertices outside the candidate that it reaches."""
        reached: set[int] = set()
        todo = list(candidate)
        while todo:
            found = {self.vertex[n] for n in self.neighbors(side, todo.pop())} - reached - set(candidate)
            reached |= found
            todo += found
        return reached

    def choose(self, candidate: list[int]) -> None:
        """The candidate becomes one vertex, at the place of its last member, and what it reaches before that moves
        behind it; or at the place of its first, and what reaches it after that moves before it: whatever takes
        fewer steps to find."""
        moved: list[list[int]] = []
        cost: list[int] = []
        for side in (0, 1):
            position = self.position(side)
            last = max(position.index(v) for v in candidate)
            moved.append([v for v in self.reached(side, candidate) if position.index(v) < last])
            looked_at = candidate + moved[side]
            cost.append(sum(self.steps(side, v) for v in looked_at))
        side = 0 if cost[0] <= cost[1] else 1
        position = self.position(side)
        last_member = max(candidate, key=position.index)
        new_order = []
        for v in position:
            if v == last_member:
                new_order += [v] + [w for w in position if w in moved[side]]
            elif v not in candidate and v not in moved[side]:
                new_order.append(v)
        self.order = new_order if side == 0 else new_order[::-1]
        for node in candidate:
            self.label[node] = self.num_chosen
            self.vertex[node] = last_member
        self.members[last_member] = list(candidate)
        self.num_chosen += 1

    def cut_the_rest_by_depth(self) -> None:
        """The last resort: components of equal depth among what is free; see policy ``linear``."""
        depth: dict[int, int] = {}
        label: dict[int, int] = {}
        kind = {v: -1 - v if self.label[v] >= 0 else self.device[v] for v in self.order}
        for v in self.order:
            parents = {self.vertex[p] for p in self.neighbors(1, v)} - {v}
            depth[v] = max((depth[p] + (kind[p] != kind[v]) for p in parents), default=0)
        for v in self.order:
            if self.label[v] >= 0 or v in label:
                continue
            todo = [v]
            label[v] = self.num_chosen
            while todo:
                node = todo.pop()
                for other in self.rows[0][node] + self.rows[1][node]:
                    if kind.get(other) == kind[v] and depth[other] == depth[v] and other not in label:
                        label[other] = self.num_chosen
                        todo.append(other)
            self.num_chosen += 1
        for v, number in label.items():
            self.label[v] = number


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
