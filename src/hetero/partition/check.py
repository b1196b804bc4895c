"""`check_partition`: checks a partition, and reports the rule it breaks with a counterexample."""

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

    ``device``: int [num_nodes], 0 to 254. ``subgraph_of``: int [num_nodes], ids 0 to k-1 in any order, without gaps.
    The rules are checked in this order. The error names the broken rule and gives a counterexample:

    1. *one device*: two nodes of a subgraph on different devices;
    2. *connected*: two nodes of a subgraph that no edges inside it join;
    3. *convex*: a path that leaves a subgraph and returns;
    4. *acyclic*: a cycle of subgraphs that wait for each other;
    5. with ``ordered``: an edge from a larger id to a smaller one;
    6. with ``maximal``: an edge between two subgraphs of one device that can be merged.

    Rules 1 to 5 take O(nodes + edges). Rule 6 is near-linear on typical graphs.
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
    """The error message of `check_partition`, or None if all rules hold. ``name``: returns the name of a node.
    ``first``: the number of subgraph 0 in the message."""
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
    """The message for one broken rule. The core's ``HG_*`` codes define ``a``, ``b`` and ``witness``."""
    match rule:
        case "id":
            return f"subgraph_of[{a}] = {subgraph_of[a]} is not a subgraph id: expected 0 to {len(subgraph_of) - 1}"
        case "unused id":
            return f"subgraph {a} has no nodes: ids must be 0 to k-1 without gaps"
        case "one device":
            return (
                f"not on one device: subgraph {subgraph_of[a]} contains node {name(a)} of device {device[a]} and node "
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
                f"ids are not a topological order of the quotient: edge {name(a)} -> {name(b)} leads from subgraph "
                f"{subgraph_of[a]} to subgraph {subgraph_of[b]}"
            )
        case _:
            return (
                f"not maximal: subgraphs {subgraph_of[a]} and {subgraph_of[b]} of device {device[a]} can be merged "
                f"along edge {name(a)} -> {name(b)}"
            )


def _shortened(parts: NDArray[np.int32], text: Callable[[NDArray[np.int32]], str], limit: int = 30) -> list[str]:
    """The texts of all parts; if there are more than ``limit``, of the first and last ones."""
    if len(parts) <= limit:
        return [text(part) for part in parts]
    head, tail = limit // 2, limit - limit // 2 - 1
    omitted = f"... {len(parts) - head - tail} more ..."
    return [*map(text, parts[:head]), omitted, *map(text, parts[-tail:])]
