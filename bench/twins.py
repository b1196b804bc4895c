"""Two independent partitioners in plain Python, to compare with: *depth* and *contraction*.

They share nothing with the compiled core but its input. Both give a valid partition as a label per node; labels are
no topological order.

- `depth`: depth(v) = max over predecessors u of depth(u) + [u and v on different devices]; the subgraphs are the
  connected components of equal depth and device (SciPy). Linear.
- `contraction`: same-device edges are contracted while no other path joins their ends, as TensorFlow's GraphCycles
  does, over a dynamic topological order (Pearce and Kelly, A dynamic topological sort algorithm for directed acyclic
  graphs, 2006). From the sinks over successors, again until nothing changes. Each search looks only at vertices whose
  rank lies between the two ends, which is near-linear on most graphs and quadratic on some: hence the limit on steps.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

Ints = NDArray[np.integer]


def rows(sources: Ints, targets: Ints, n: int) -> list[list[int]]:
    """The targets of each source, ascending, each once."""
    order = np.lexsort((targets, sources))
    sources, targets = sources[order], targets[order]
    if len(sources):
        first = np.append(True, (np.diff(sources) != 0) | (np.diff(targets) != 0))
        sources, targets = sources[first], targets[first]
    ends = np.searchsorted(sources, np.arange(n + 1)).tolist()
    flat = targets.tolist()
    return [flat[ends[v] : ends[v + 1]] for v in range(n)]


def topological_order(successors: list[list[int]]) -> list[int]:
    """The numbers themselves where every edge ascends; otherwise ready nodes first in, first out."""
    n = len(successors)
    if all(row[0] > v for v, row in enumerate(successors) if row):
        return list(range(n))
    waits = [0] * n
    for row in successors:
        for v in row:
            waits[v] += 1
    order = [v for v in range(n) if not waits[v]]
    for u in order:
        for v in successors[u]:
            waits[v] -= 1
            if not waits[v]:
                order.append(v)
    return order


def depth(src: Ints, dst: Ints, device: Ints) -> Ints:
    """Label per node: the component of equal depth and device it lies in."""
    n = len(device)
    successors = rows(src, dst, n)
    device_of = np.asarray(device).tolist()
    level = [0] * n
    for u in topological_order(successors):
        for v in successors[u]:
            level[v] = max(level[v], level[u] + (device_of[u] != device_of[v]))
    levels = np.asarray(level)
    inside = (np.asarray(device)[src] == np.asarray(device)[dst]) & (levels[src] == levels[dst])
    ones = np.ones(int(inside.sum()), np.int8)
    edges = csr_matrix((ones, (src[inside], dst[inside])), shape=(n, n))
    label: Ints = connected_components(edges, directed=False)[1]
    return label


def through_foreign(successors: list[list[int]], order: list[int], device: list[int]) -> Callable[[int, int], bool]:
    """A test that finds some of the paths u -> ... -> v that pass another device, in constant time.

    The nodes are covered by chains; it knows the paths along a chain.
    """
    n = len(order)
    onward, chain, place = [-1] * n, [-1] * n, [0] * n
    for u in order:
        if chain[u] < 0:
            chain[u] = u
        for v in successors[u]:
            if chain[v] < 0:
                onward[u], chain[v], place[v] = v, chain[u], place[u] + 1
                break
    foreign = [n] * n  # the place, in the chain, of the next node on another device
    for u in reversed(order):
        v = onward[u]
        if v >= 0:
            foreign[u] = place[v] if device[v] != device[u] else foreign[v]
    return lambda u, v: chain[u] == chain[v] and foreign[u] < place[v]


class Contraction:
    """A graph whose edges can be contracted as long as it stays acyclic."""

    def __init__(self, successors: list[list[int]], order: list[int], max_steps: int) -> None:
        n = len(successors)
        self.children = [set(row) for row in successors]
        self.parents: list[set[int]] = [set() for _ in range(n)]
        for u, row in enumerate(successors):
            for v in row:
                self.parents[v].add(u)
        self.into = list(range(n))  # union-find: a vertex -> what it was merged into
        self.rank = [0] * n  # a topological order of the vertices that are left; ranks may have gaps
        for i, v in enumerate(order):
            self.rank[v] = i
        self.steps_left = max_steps

    def vertex(self, v: int) -> int:
        """The vertex that ``v`` is part of."""
        into = self.into
        while into[v] != v:
            into[v] = v = into[into[v]]
        return v

    def contract(self, a: int, b: int) -> bool:
        """Merge the ends of edge a -> b, unless another path joins them."""
        between = self._between(a, b)
        if between is None:
            return False
        # One topological order of all that was met: ancestors of b, then the merged vertex, then descendants of a.
        rank = self.rank
        below, above = between
        met = [*sorted(above, key=rank.__getitem__), a, *sorted(below, key=rank.__getitem__)]
        for v, free in zip(met, sorted([rank[v] for v in met]), strict=True):
            rank[v] = free
        self._merge(a, b)
        return True

    def _between(self, a: int, b: int) -> tuple[set[int], set[int]] | None:
        """What ``a`` reaches before the rank of ``b``, and what reaches ``b`` after the rank of ``a``.

        None when the two meet: another path joins a and b. Breadth first from both ends in turn, from the end with
        fewer vertices to go on from, since a path tends to be short where there is one.
        """
        low, high, rank = self.rank[a], self.rank[b], self.rank
        below, above = {a}, {b}
        down, up = [a], [b]
        while down or up:
            if down and (not up or len(down) <= len(up)):
                front, onward, seen, other = down, self.children, below, above
            else:
                front, onward, seen, other = up, self.parents, above, below
            found = []
            for u in front:
                self.steps_left -= len(onward[u])
                for v in onward[u]:
                    if v in other:
                        if {u, v} != {a, b}:
                            return None
                    elif low < rank[v] < high and v not in seen:
                        seen.add(v)
                        found.append(v)
            if self.steps_left < 0:
                raise TimeoutError
            if seen is below:
                down = found
            else:
                up = found
        return below - {a}, above - {b}

    def _merge(self, a: int, b: int) -> None:
        """The vertex with fewer neighbors becomes part of the other, which takes the rank of ``a``."""
        children, parents, rank = self.children, self.parents, self.rank
        children[a].remove(b)
        parents[b].remove(a)
        at = rank[a]
        if len(children[a]) + len(parents[a]) < len(children[b]) + len(parents[b]):
            a, b = b, a
        rank[a] = at
        self.into[b] = a
        for neighbors, back in ((children, parents), (parents, children)):
            for v in neighbors[b]:
                back[v].remove(b)
                back[v].add(a)
            neighbors[a] |= neighbors[b]
            neighbors[b] = set()


def contraction(src: Ints, dst: Ints, device: Ints, max_steps: int = 1 << 62) -> Ints | None:
    """Label per node, or None after ``max_steps`` edges looked at by searches."""
    n = len(device)
    successors = rows(src, dst, n)
    order = topological_order(successors)
    graph = Contraction(successors, order, max_steps)
    device_of = np.asarray(device).tolist()
    hopeless = through_foreign(successors, order, device_of)  # for the sake of graphs with a long spine
    changed = True
    try:
        while changed:
            changed = False
            for u in reversed(order):
                for v in successors[u]:
                    if device_of[u] == device_of[v] and not hopeless(u, v):
                        a, b = graph.vertex(u), graph.vertex(v)
                        if a != b and graph.contract(a, b):
                            changed = True
    except TimeoutError:
        return None
    return np.unique([graph.vertex(v) for v in range(n)], return_inverse=True)[1]


def subgraphs_and_cut(src: Ints, dst: Ints, label: Ints) -> tuple[int, int]:
    """Number of subgraphs, and of edges between them. For graphs without duplicate edges."""
    return len(np.unique(label)), int((label[src] != label[dst]).sum())
