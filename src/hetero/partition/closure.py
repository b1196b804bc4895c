"""`TransitiveClosure`: reachability between nodes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .. import _closure
from ..errors import PartitionError
from .graph import Graph

__all__ = ["TransitiveClosure"]


class TransitiveClosure:
    """The descendants of every node, as rows of bits in the compiled core. Threads may share a closure.

    A row of bits ends where the node reaches either all later nodes or none of them. The rows take a few bytes per node
    for most models, and at most `estimate_bytes`, about ``n * n / 16``. A graph that needs more than ``max_bytes``
    raises `PartitionError` with the budget and the estimate: before the rows are allocated if the farthest descendants
    show this (O(nodes + edges)), otherwise when the rows exceed the budget.

    ``cache_bytes``: the maximum memory of the cached sets of `path_nodes`.
    """

    __slots__ = ("_closure", "graph")

    def __init__(self, graph: Graph, max_bytes: int = 4 << 30, cache_bytes: int = 64 << 20) -> None:
        if max_bytes < 0 or cache_bytes < 0:
            raise PartitionError(f"max_bytes and cache_bytes must be zero or more, found {max_bytes} and {cache_bytes}")
        self.graph = graph
        self._closure = _closure.Closure(graph._csr, min(max_bytes, 2**62), min(cache_bytes, 2**62))

    @staticmethod
    def estimate_bytes(num_nodes: int) -> int:
        """The maximum memory of the closure of any graph with ``num_nodes`` nodes, in B."""
        return _closure.triangle_bytes(num_nodes)

    @property
    def nbytes(self) -> int:
        """The memory of the closure in B, without the cache of `path_nodes`."""
        return self._closure.nbytes

    @property
    def cached_bytes(self) -> int:
        """The memory of the cached sets of `path_nodes` in B, at most ``cache_bytes``."""
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
        """The nodes on paths from ``u`` to ``v``, without ``u`` and ``v``, ascending and read-only.

        O(descendants of u before v). The cache discards the least recently used set first. A cached set is copied.
        """
        return self._closure.path_nodes(u, v)

    def __repr__(self) -> str:
        return f"TransitiveClosure(num_nodes={self.graph.num_nodes}, nbytes={self.nbytes})"
