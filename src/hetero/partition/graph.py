"""`Graph`: a directed acyclic graph in compressed rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import _graph

__all__ = ["Graph"]


class Graph:
    """An immutable directed acyclic graph, its nodes numbered from 0.

    Made by `from_edges` or `from_csr`, both O(nodes + edges) in the compiled core. Rows ascend, and edges given twice
    are one. All arrays are int32 and read-only.
    """

    __slots__ = ("_csr",)

    _csr: _graph.Csr

    def __init__(self) -> None:
        raise TypeError("use Graph.from_edges or Graph.from_csr")

    @classmethod
    def _of(cls, csr: _graph.Csr) -> Graph:
        graph = object.__new__(cls)
        graph._csr = csr
        return graph

    @classmethod
    def from_edges(cls, src: ArrayLike, dst: ArrayLike, num_nodes: int) -> Graph:
        """The graph with an edge ``src[i] -> dst[i]`` for each i.

        ``src`` and ``dst`` are int32 or int64 arrays of equal length, of any layout; they are not kept.
        Raises `PartitionError` for another dtype or rank, a node outside ``0 .. num_nodes-1``, a self-loop, or a cycle
        (naming its nodes).
        """
        return cls._of(_graph.csr_from_edges(src, dst, num_nodes))

    @classmethod
    def from_csr(cls, indptr: ArrayLike, indices: ArrayLike) -> Graph:
        """The graph in which node v leads to ``indices[indptr[v]:indptr[v + 1]]``.

        ``indptr`` has ``num_nodes + 1`` entries; entries of a row may come in any order. The arrays, int32 or int64,
        are copied. Raises `PartitionError` as `from_edges` does, and when ``indptr`` does not rise from 0 to
        ``len(indices)``.
        """
        return cls._of(_graph.csr_from_rows(indptr, indices))

    @property
    def num_nodes(self) -> int:
        """Nodes, those without an edge too."""
        return self._csr.num_nodes

    @property
    def num_edges(self) -> int:
        """Distinct edges."""
        return self._csr.num_edges

    @property
    def indptr(self) -> NDArray[np.int32]:
        """[num_nodes + 1]: where each node's row of `indices` starts."""
        return self._csr.indptr

    @property
    def indices(self) -> NDArray[np.int32]:
        """[num_edges]: the successors of each node, ascending."""
        return self._csr.indices

    @property
    def pred_indptr(self) -> NDArray[np.int32]:
        """[num_nodes + 1]: where each node's row of `pred_indices` starts."""
        return self._csr.pred_indptr

    @property
    def pred_indices(self) -> NDArray[np.int32]:
        """[num_edges]: the predecessors of each node, ascending."""
        return self._csr.pred_indices

    @property
    def topological_order(self) -> NDArray[np.int32]:
        """[num_nodes]: every node after its predecessors.

        The numbers themselves where every edge ascends; otherwise the order of Kahn's algorithm, first in first out
        from the sources in ascending order.
        """
        return self._csr.topological_order()

    def successors(self, node: int) -> NDArray[np.int32]:
        """The nodes that read what ``node`` makes, ascending."""
        node = self._node(node)
        return self.indices[self.indptr[node] : self.indptr[node + 1]]

    def predecessors(self, node: int) -> NDArray[np.int32]:
        """The nodes whose results ``node`` reads, ascending."""
        node = self._node(node)
        return self.pred_indices[self.pred_indptr[node] : self.pred_indptr[node + 1]]

    def _node(self, node: int) -> int:
        if not 0 <= node < self.num_nodes:
            raise IndexError(f"node {node} is outside 0 .. {self.num_nodes - 1}")
        return node

    def __reduce__(self) -> tuple[object, ...]:
        return (Graph.from_csr, (self.indptr, self.indices))

    def __repr__(self) -> str:
        return f"Graph(num_nodes={self.num_nodes}, num_edges={self.num_edges})"
