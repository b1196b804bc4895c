"""`TransitiveClosure`: which nodes reach which."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .. import _closure
from ..errors import PartitionError
from .graph import Graph

__all__ = ["TransitiveClosure"]


class TransitiveClosure:
    """The descendants of every node, as bit rows in the compiled core.

    Memory grows with what the rows hold between a node and the point from which it reaches every later node, or none:
    a few bytes per node for most models, at most `estimate_bytes`, about ``n * n / 16``. A graph that needs more than
    ``max_bytes`` raises `PartitionError`, which names the budget and the estimate: before the rows are allocated where
    the farthest descendants alone tell (O(nodes + edges)), else when the rows made so far pass the budget.

    ``cache_bytes``: how much memory the sets of `path_nodes` may take that are remembered. Threads may share a closure.
    """

    __slots__ = ("_closure", "graph")

    def __init__(self, graph: Graph, max_bytes: int = 4 << 30, cache_bytes: int = 64 << 20) -> None:
        if max_bytes < 0 or cache_bytes < 0:
            raise PartitionError(f"max_bytes and cache_bytes must be zero or more: found {max_bytes}, {cache_bytes}")
        self.graph = graph
        self._closure = _closure.Closure(graph._csr, min(max_bytes, 2**62), min(cache_bytes, 2**62))

    @staticmethod
    def estimate_bytes(num_nodes: int) -> int:
        """The most memory the closure of a graph of so many nodes can take, whatever its edges."""
        return _closure.triangle_bytes(num_nodes)

    @property
    def nbytes(self) -> int:
        """Memory of the closure, the cache of `path_nodes` left out."""
        return self._closure.nbytes

    @property
    def cached_bytes(self) -> int:
        """Memory of the sets that `path_nodes` remembers, at most ``cache_bytes``."""
        return self._closure.cached_bytes

    def reaches(self, u: int, v: int) -> bool:
        """Whether a path of one edge or more leads from ``u`` to ``v``. O(1)."""
        return self._closure.reaches(u, v)

    def descendants(self, v: int) -> NDArray[np.int32]:
        """The nodes that ``v`` reaches, ascending. O(words of its row + descendants)."""
        return self._closure.descendants(v)

    def ancestors(self, v: int) -> NDArray[np.int32]:
        """The nodes that reach ``v``, ascending. O(nodes before v)."""
        return self._closure.ancestors(v)

    def path_nodes(self, u: int, v: int) -> NDArray[np.int32]:
        """The nodes on paths from ``u`` to ``v``, both left out, ascending and read-only.

        O(descendants of u before v), each tested for v; then remembered: the pair asked for longest ago is forgotten
        first, and a set remembered costs its copy.
        """
        return self._closure.path_nodes(u, v)

    def __repr__(self) -> str:
        return f"TransitiveClosure(num_nodes={self.graph.num_nodes}, nbytes={self.nbytes})"
