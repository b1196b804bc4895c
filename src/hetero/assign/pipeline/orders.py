"""Topological orders in which the stages of a pipeline may be intervals.

Any stages that a graph can have are intervals of some order, but which order that is nobody knows beforehand. So a few
are tried: the model's own, in which exporters mostly write things as they are used; depth-first, in which each branch
is in one piece, so that few values cross a position; and for small graphs, in which single nodes matter, some drawn by
lot. Where not every stage may have every node, nodes come by
the first and last stage that they can be in, which keeps what has to be early or late in its place.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ...partition import Graph
from .errors import PipelineError

__all__ = ["depth_first", "drawn", "orders", "stage_ranges"]

_SMALL = 1_000  # nodes
_MOST_DRAWN = 64


def stage_ranges(graph: Graph, allowed: NDArray[np.bool_]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The first and the last stage that each node can be in, given those of all that it depends on or that depend on
    it: int32 [num_nodes] each. ``allowed``: bool [num_stages, num_nodes].

    Raises `PipelineError` for a node that has none. Otherwise there are stages: for example, each node in its first.
    """
    k, n = allowed.shape
    if allowed.all():
        return np.zeros(n, np.int32), np.full(n, k - 1, np.int32)
    # [stage][node]: the first stage from this one on, or the last up to it, that may have the node.
    following = np.full((k + 1, n), k)
    preceding = np.full((k + 1, n), -1)  # by stage + 1
    for s in reversed(range(k)):
        following[s] = np.where(allowed[s], s, following[s + 1])
    for s in range(k):
        preceding[s + 1] = np.where(allowed[s], s, preceding[s])
    order = graph.topological_order.tolist()
    next_of, before_of = following.T.tolist(), preceding.T.tolist()
    first, last = [0] * n, [k - 1] * n
    indptr, indices = graph.pred_indptr.tolist(), graph.pred_indices.tolist()
    for node in order:
        earliest, because = 0, None
        for at in range(indptr[node], indptr[node + 1]):
            if first[indices[at]] > earliest:
                earliest, because = first[indices[at]], indices[at]
        first[node] = next_of[node][earliest]
        if first[node] == k:
            raise PipelineError(
                f"node {node} can be in no stage from {earliest} on, and what it reads is in none before",
                node,
                earliest,
                because,
            )
    indptr, indices = graph.indptr.tolist(), graph.indices.tolist()
    for node in reversed(order):
        latest = k - 1
        for at in range(indptr[node], indptr[node + 1]):
            latest = min(latest, last[indices[at]])
        last[node] = before_of[node][latest + 1]
    return np.array(first, np.int32), np.array(last, np.int32)


def orders(graph: Graph, first: NDArray[np.int32], last: NDArray[np.int32]) -> Iterator[NDArray[np.int32]]:
    """Orders to try, the most likely ones first. ``first``, ``last``: from `stage_ranges`. Ascending along edges, as
    both do, they may be sorted by any mixture of the two."""
    own = graph.topological_order
    place = np.empty(len(own), np.int64)
    restricted = bool(len(own)) and (bool(first.any()) or bool((last != last[0]).any()))
    seen = set()
    for number in range(2 + (_MOST_DRAWN if len(own) <= _SMALL else 0)):
        order = own if number == 0 else depth_first(graph) if number == 1 else drawn(graph, number)
        place[order] = np.arange(len(order))
        sorted_by = ((place, last, first), (place, first, last), (place, first + last)) if restricted else ((place,),)
        for keys in sorted_by:
            found = np.lexsort(keys).astype(np.int32)
            if (data := found.tobytes()) not in seen:
                seen.add(data)
                yield found


def depth_first(graph: Graph) -> NDArray[np.int32]:
    """int32 [num_nodes]: from each sink, in ascending order, all that it depends on and that is not placed yet, then
    itself."""
    n = graph.num_nodes
    indptr, indices = graph.pred_indptr.tolist(), graph.pred_indices.tolist()
    at = indptr[:n]
    is_placed, order = bytearray(n), []
    sinks = np.flatnonzero(np.diff(graph.indptr) == 0).tolist()
    for sink in sinks:
        stack = [sink]
        while stack:
            node = stack[-1]
            while at[node] < indptr[node + 1] and is_placed[indices[at[node]]]:
                at[node] += 1
            if at[node] < indptr[node + 1]:
                stack.append(indices[at[node]])
                continue
            stack.pop()
            if not is_placed[node]:
                is_placed[node] = 1
                order.append(node)
    return np.array(order, np.int32)


def drawn(graph: Graph, seed: int) -> NDArray[np.int32]:
    """int32 [num_nodes]: of the nodes that are ready, one drawn by lot goes next."""
    lot = np.random.default_rng(seed).permutation(graph.num_nodes).tolist()
    indptr, indices = graph.indptr.tolist(), graph.indices.tolist()
    waits_for = np.diff(graph.pred_indptr).tolist()
    ready = [(lot[node], node) for node, count in enumerate(waits_for) if count == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        _, node = heapq.heappop(ready)
        order.append(node)
        for after in indices[indptr[node] : indptr[node + 1]]:
            waits_for[after] -= 1
            if waits_for[after] == 0:
                heapq.heappush(ready, (lot[after], after))
    return np.array(order, np.int32)
