"""`check_partition`: is this a valid partition, and if not, which rule does it break, and where?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import _partition
from ..errors import PartitionError
from .graph import Graph

__all__ = ["broken_rule", "check_partition"]


def check_partition(
    graph: Graph, device: ArrayLike, subgraph_of: ArrayLike, *, maximal: bool = False, ordered: bool = False
) -> None:
    """Raise `PartitionError` unless ``subgraph_of`` is a valid partition of ``graph``.

    ``device``: int [num_nodes], 0 to 254; ``subgraph_of``: int [num_nodes], ids 0 to k-1 in any order, none unused.
    The rules, checked in this order, each error naming its rule and a witness:

    1. *one device*: two nodes of a subgraph lie on different devices;
    2. *connected*: two nodes of a subgraph that no edges inside it join;
    3. *convex*: a path that leaves a subgraph and returns;
    4. *acyclic*: subgraphs that wait for each other in a circle;
    5. with ``ordered``: an edge from a greater id to a smaller one;
    6. with ``maximal``: an edge between two subgraphs of one device that could be merged.

    Rules 1 to 5 take O(nodes + edges); maximality is near-linear on graphs met in practice.
    """
    broken = broken_rule(graph, device, subgraph_of, maximal=maximal, ordered=ordered)
    if broken is not None:
        raise PartitionError(broken)


def broken_rule(
    graph: Graph,
    device: ArrayLike,
    subgraph_of: ArrayLike,
    *,
    maximal: bool = False,
    ordered: bool = False,
    name: Callable[[int], str] = str,
    first: int = 0,
) -> str | None:
    """The sentence that `check_partition` raises, None where all rules hold. ``name``: what to call a node;
    ``first``: what to call subgraph 0."""
    broken = _partition.check(graph._csr, device, subgraph_of, maximal, ordered)
    if broken is None:
        return None
    rule, a, b, witness = broken
    return _explain(rule, a, b, witness, np.asarray(subgraph_of) + first, np.asarray(device), name)


def _explain(
    rule: str,
    a: int,
    b: int,
    witness: NDArray[np.int32],
    subgraph_of: NDArray[np.integer],
    device: NDArray[np.integer],
    name: Callable[[int], str],
) -> str:
    """The sentence for one broken rule; ``a``, ``b`` and ``witness`` mean what the core's ``HG_*`` codes say."""
    match rule:
        case "id":
            return f"subgraph_of[{a}] = {subgraph_of[a]} is no subgraph id: expected 0 to {len(subgraph_of) - 1}"
        case "unused id":
            return f"subgraph {a} has no node: ids must be 0 to k-1 without gaps"
        case "one device":
            return (
                f"not on one device: subgraph {subgraph_of[a]} holds node {name(a)} of device {device[a]} and node "
                f"{name(b)} of device {device[b]}"
            )
        case "connected":
            return f"not connected: no edges inside subgraph {subgraph_of[a]} join its nodes {name(a)} and {name(b)}"
        case "convex":
            path = _shortened(witness, lambda node: name(int(node)))
            return (
                f"not convex: a path leaves subgraph {subgraph_of[witness[0]]} and returns to it: {' -> '.join(path)}"
            )
        case "acyclic":
            edges = witness.reshape(-1, 2)
            steps = _shortened(
                edges,
                lambda e: f"{subgraph_of[e[0]]} -> {subgraph_of[e[1]]} (edge {name(int(e[0]))} -> {name(int(e[1]))})",
            )
            return f"the quotient is not acyclic: subgraphs wait for each other: {', '.join(steps)}"
        case "ordered":
            return (
                f"ids are no topological order of the quotient: edge {name(a)} -> {name(b)} leads from subgraph "
                f"{subgraph_of[a]} to subgraph {subgraph_of[b]}"
            )
        case _:
            return (
                f"not maximal: subgraphs {subgraph_of[a]} and {subgraph_of[b]} of device {device[a]} can be merged "
                f"along edge {name(a)} -> {name(b)}"
            )


def _shortened(parts: NDArray[np.int32], text: Callable[[NDArray[np.int32]], str], limit: int = 30) -> list[str]:
    """The text of all parts, or of the first and last few of many."""
    if len(parts) <= limit:
        return [text(part) for part in parts]
    head, tail = limit // 2, limit - limit // 2 - 1
    omitted = f"... {len(parts) - head - tail} more ..."
    return [*map(text, parts[:head]), omitted, *map(text, parts[-tail:])]
