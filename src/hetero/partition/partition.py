"""`Partition`: the result of every policy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import _graph, _partition
from .graph import Graph

__all__ = ["Partition", "TraceStep"]


class TraceStep(NamedTuple):
    """One step of the documented loop, and the state after it."""

    action: str
    """``root``, ``merge``, ``fail`` (on another device, or already in a subgraph), ``rollback`` or ``choose``."""
    node: int
    """The node of the action; for ``choose``, the root of the chosen candidate."""
    candidate: tuple[int, ...]
    """The candidate, ascending."""
    rejected: tuple[int, ...]
    """The rejected nodes, ascending."""


class Partition:
    """An immutable partition of a `Graph` into single-device, connected, convex subgraphs with an acyclic quotient.

    Subgraph ids ``0 .. num_subgraphs-1`` are a topological order of `quotient`: running subgraphs by ascending id is
    a valid schedule.
    """

    __slots__ = (
        "_lower_bound",
        "_members",
        "_quotient",
        "cut_edges",
        "cut_weight",
        "device_of",
        "graph",
        "policy",
        "subgraph_of",
        "trace",
    )

    graph: Graph
    subgraph_of: NDArray[np.int32]
    """[num_nodes], read-only: the subgraph of each node."""
    device_of: NDArray[np.int32]
    """[num_subgraphs], read-only: the device of each subgraph."""
    cut_edges: int
    """The number of distinct edges between subgraphs."""
    cut_weight: float
    """The total weight of these edges; without ``edge_weight``, each edge weighs 1."""
    policy: str
    trace: tuple[TraceStep, ...] | None
    """The steps of the documented loop with ``trace=True``, otherwise None."""

    def __init__(
        self,
        graph: Graph,
        policy: str,
        subgraph_of: NDArray[np.int32],
        device_of: NDArray[np.int32],
        cut_edges: int,
        cut_weight: float,
        trace: tuple[TraceStep, ...] | None = None,
    ) -> None:
        subgraph_of.setflags(write=False)
        device_of.setflags(write=False)
        put = object.__setattr__
        put(self, "graph", graph)
        put(self, "policy", policy)
        put(self, "subgraph_of", subgraph_of)
        put(self, "device_of", device_of)
        put(self, "cut_edges", cut_edges)
        put(self, "cut_weight", cut_weight)
        put(self, "trace", trace)
        put(self, "_lower_bound", None)
        put(self, "_members", None)
        put(self, "_quotient", None)

    @property
    def num_subgraphs(self) -> int:
        """The number of subgraphs."""
        return len(self.device_of)

    @property
    def lower_bound(self) -> int:
        """A number of subgraphs that no valid partition of these nodes on these devices is below.

        If it equals `num_subgraphs`, no valid partition has fewer subgraphs. It is computed on first use, in a time
        that grows linearly with nodes + edges."""
        bound = self._lower_bound
        if bound is None:
            bound = _partition.lower_bound(self.graph._csr, self.device_of[self.subgraph_of])
            object.__setattr__(self, "_lower_bound", bound)
        return bound

    _lower_bound: int | None

    def nodes(self, subgraph: int) -> NDArray[np.int32]:
        """The nodes of one subgraph, ascending, read-only. The first call sorts all nodes: O(nodes)."""
        if not 0 <= subgraph < self.num_subgraphs:
            raise IndexError(f"subgraph {subgraph} is outside 0 .. {self.num_subgraphs - 1}")
        members = self._members
        if members is None:
            members = _partition.members(self.subgraph_of, self.num_subgraphs)
            object.__setattr__(self, "_members", members)
        start, member = members
        return member[start[subgraph] : start[subgraph + 1]]

    _members: tuple[NDArray[np.int32], NDArray[np.int32]] | None

    @property
    def quotient(self) -> Graph:
        """The graph with one node per subgraph and an edge from each subgraph to its readers.

        It is computed on first use, in O(nodes + edges)."""
        quotient = self._quotient
        if quotient is None:
            quotient = Graph._of(_graph.quotient(self.graph._csr, self.subgraph_of, self.num_subgraphs))
            object.__setattr__(self, "_quotient", quotient)
        return quotient

    _quotient: Graph | None

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Partition is immutable: cannot set {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Partition is immutable: cannot delete {name!r}")

    def __reduce__(self) -> tuple[object, ...]:
        parts = (self.graph, self.policy, self.subgraph_of, self.device_of, self.cut_edges, self.cut_weight, self.trace)
        return (Partition, parts)

    def __repr__(self) -> str:
        return (
            f"Partition(policy={self.policy!r}, num_nodes={len(self.subgraph_of)}, "
            f"num_subgraphs={self.num_subgraphs}, cut_edges={self.cut_edges})"
        )
