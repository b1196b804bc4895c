"""`Graph`: a directed acyclic graph in compressed rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import _graph

__all__ = ["Graph"]


class Graph:
    """An immutable directed acyclic graph, with nodes numbered from 0.

    Create it with `from_edges` or `from_csr`, both O(nodes + edges) in the compiled core. Rows are sorted, and
    duplicate edges count once. All arrays are int32 and read-only.
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

        ``src`` and ``dst`` are int32 or int64 arrays of equal length and any memory layout. The graph does not keep
        them. Raises `PartitionError` for another dtype or rank, a node outside ``0 .. num_nodes-1``, a self-loop, or a
        cycle (with its nodes).
        """
        return cls._of(_graph.csr_from_edges(src, dst, num_nodes))

    @classmethod
    def from_csr(cls, indptr: ArrayLike, indices: ArrayLike) -> Graph:
        """The graph in which the successors of node v are ``indices[indptr[v]:indptr[v + 1]]``.

        ``indptr`` has ``num_nodes + 1`` entries. The entries of a row may have any order. The arrays are int32 or
        int64, and are copied. Raises `PartitionError` as `from_edges` does, and if ``indptr`` does not increase from 0
        to ``len(indices)``.
        """
        return cls._of(_graph.csr_from_rows(indptr, indices))

    @property
    def num_nodes(self) -> int:
        """The number of nodes, including nodes without edges."""
        return self._csr.num_nodes

    @property
    def num_edges(self) -> int:
        """The number of distinct edges."""
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
        """[num_nodes]: the nodes in topological order.

        If every edge leads to a larger number, this is ``0, 1, 2, …``. Otherwise it is the order of Kahn's algorithm
        with a first-in first-out queue that starts with the sources in ascending order.
        """
        return self._csr.topological_order()

    def successors(self, node: int) -> NDArray[np.int32]:
        """The nodes that read results of ``node``, ascending."""
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
