"""`TransitiveClosure`: which nodes reach which."""

from __future__ import annotations

import threading
from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from .. import _closure
from .graph import Graph

__all__ = ["TransitiveClosure"]


class TransitiveClosure:
    """The descendants of every node, as bit rows in the compiled core.

    Memory grows with what the rows hold between a node and the point from which it reaches every later node, or none:
    a few bytes per node for most models, at most `estimate_bytes`, about ``n * n / 16``. Raises `PartitionError` when
    more than ``max_bytes`` would be needed; nothing beyond that is allocated.
    ``cache_size``: how many sets `path_nodes` remembers.
    """

    __slots__ = ("_cache", "_cache_size", "_closure", "_lock", "graph")

    def __init__(self, graph: Graph, max_bytes: int = 4 << 30, cache_size: int = 4096) -> None:
        self.graph = graph
        self._closure = _closure.Closure(graph._csr, max_bytes)
        self._cache: OrderedDict[tuple[int, int], NDArray[np.int32]] = OrderedDict()
        self._cache_size = cache_size
        self._lock = threading.Lock()

    @staticmethod
    def estimate_bytes(num_nodes: int) -> int:
        """The most memory the closure of a graph of so many nodes can take, whatever its edges."""
        return _closure.triangle_bytes(num_nodes)

    @property
    def nbytes(self) -> int:
        """Memory of the closure, the cache of `path_nodes` left out."""
        return self._closure.nbytes

    def reaches(self, u: int, v: int) -> bool:
        """Whether a path of one edge or more leads from ``u`` to ``v``. O(1)."""
        return self._closure.reaches(u, v)

    def descendants(self, v: int) -> NDArray[np.int32]:
        """The nodes that ``v`` reaches, ascending. O(nodes)."""
        self.graph._node(v)
        return self._closure.between(v, -1)

    def ancestors(self, v: int) -> NDArray[np.int32]:
        """The nodes that reach ``v``, ascending. O(nodes)."""
        self.graph._node(v)
        return self._closure.between(-1, v)

    def path_nodes(self, u: int, v: int) -> NDArray[np.int32]:
        """The nodes on paths from ``u`` to ``v``, both left out, ascending and read-only.

        O(nodes), and remembered: the pair asked for longest ago is forgotten first.
        """
        self.graph._node(u)
        self.graph._node(v)
        with self._lock:
            found = self._cache.get((u, v))
            if found is not None:
                self._cache.move_to_end((u, v))
                return found
        found = self._closure.between(u, v)
        found.setflags(write=False)
        with self._lock:
            self._cache[u, v] = found
            while len(self._cache) > self._cache_size:
                self._cache.popitem(last=False)
        return found

    def __repr__(self) -> str:
        return f"TransitiveClosure(num_nodes={self.graph.num_nodes}, nbytes={self.nbytes})"
