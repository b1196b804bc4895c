"""Topological orders whose intervals are tried as the stages of a pipeline.

Any valid stages are intervals of some topological order, but it is not known of which one, so a few orders are tried:
the model's own, in which most exporters write a node shortly before its use; a depth-first order, which keeps each
branch together, so that few values cross a position; and, for small graphs, random orders. If some stages may not have
some nodes, each order is also sorted by the first or last stage that a node can be in, which places nodes that must be
early or late.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ...partition import Graph
from .errors import PipelineError

__all__ = ["depth_first", "orders", "random_order", "stage_ranges"]

_SMALL = 1_000  # nodes: graphs up to this size get random orders as well
_NUM_RANDOM = 64


def stage_ranges(graph: Graph, allowed: NDArray[np.bool_]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """int32 [num_nodes] each: the first and the last stage that a node can be in, given its ancestors and descendants.

    ``allowed``: bool [num_stages, num_nodes]. Raises `PipelineError` if a node has no such stage. Otherwise valid
    stages exist: for example, each node in its first.
    """
    k, n = allowed.shape
    if allowed.all():
        return np.zeros(n, np.int32), np.full(n, k - 1, np.int32)
    # first_from[s, node]: the first allowed stage >= s, or k. last_before[s, node]: the last allowed stage < s, or -1.
    first_from = np.full((k + 1, n), k)
    last_before = np.full((k + 1, n), -1)
    for s in reversed(range(k)):
        first_from[s] = np.where(allowed[s], s, first_from[s + 1])
    for s in range(k):
        last_before[s + 1] = np.where(allowed[s], s, last_before[s])
    order = graph.topological_order.tolist()
    first_from_of, last_before_of = first_from.T.tolist(), last_before.T.tolist()
    first, last = [0] * n, [k - 1] * n
    indptr, indices = graph.pred_indptr.tolist(), graph.pred_indices.tolist()
    for node in order:
        earliest, latest_predecessor = 0, None
        for predecessor in indices[indptr[node] : indptr[node + 1]]:
            if first[predecessor] > earliest:
                earliest, latest_predecessor = first[predecessor], predecessor
        first[node] = first_from_of[node][earliest]
        if first[node] == k:
            message = f"no stage can have node {node}"
            if latest_predecessor is not None:
                message = (
                    f"no stage from {earliest} on can have node {node}, and node {latest_predecessor}, a predecessor, "
                    f"cannot be in an earlier stage"
                )
            raise PipelineError(message, node, earliest, latest_predecessor)
    indptr, indices = graph.indptr.tolist(), graph.indices.tolist()
    for node in reversed(order):
        latest = k - 1
        for successor in indices[indptr[node] : indptr[node + 1]]:
            latest = min(latest, last[successor])
        last[node] = last_before_of[node][latest + 1]
    return np.array(first, np.int32), np.array(last, np.int32)


def orders(graph: Graph, first: NDArray[np.int32], last: NDArray[np.int32]) -> Iterator[NDArray[np.int32]]:
    """Orders to try, the most promising first, each once: int32 [num_nodes]. ``first``, ``last``: from `stage_ranges`.

    Both ascend along edges, so an order stays topological when it is sorted by either or by their sum.
    """
    own = graph.topological_order
    position = np.empty(len(own), np.int64)
    is_restricted = bool(len(own)) and (bool(first.any()) or bool((last != last[0]).any()))
    by_stage = ((position, last, first), (position, first, last), (position, first + last))
    sort_keys = by_stage if is_restricted else ((position,),)
    seen = set()
    for number in range(2 + (_NUM_RANDOM if len(own) <= _SMALL else 0)):
        base = own if number == 0 else depth_first(graph) if number == 1 else random_order(graph, number)
        position[base] = np.arange(len(base))
        for keys in sort_keys:
            order = np.lexsort(keys).astype(np.int32)
            if (data := order.tobytes()) not in seen:
                seen.add(data)
                yield order


def depth_first(graph: Graph) -> NDArray[np.int32]:
    """int32 [num_nodes]: for each sink, ascending, its ancestors that are not placed yet, then the sink (postorder)."""
    n = graph.num_nodes
    indptr, indices = graph.pred_indptr.tolist(), graph.pred_indices.tolist()
    next_edge = indptr[:n]
    is_placed, order = bytearray(n), []
    sinks = np.flatnonzero(np.diff(graph.indptr) == 0).tolist()
    for sink in sinks:
        stack = [sink]
        while stack:
            node = stack[-1]
            while next_edge[node] < indptr[node + 1] and is_placed[indices[next_edge[node]]]:
                next_edge[node] += 1
            if next_edge[node] < indptr[node + 1]:
                stack.append(indices[next_edge[node]])
                continue
            stack.pop()
            if not is_placed[node]:
                is_placed[node] = 1
                order.append(node)
    return np.array(order, np.int32)


def random_order(graph: Graph, seed: int) -> NDArray[np.int32]:
    """int32 [num_nodes]: a topological order in which random priorities decide between nodes that are ready."""
    priority = np.random.default_rng(seed).permutation(graph.num_nodes).tolist()
    indptr, indices = graph.indptr.tolist(), graph.indices.tolist()
    waits_for = np.diff(graph.pred_indptr).tolist()
    ready = [(priority[node], node) for node, count in enumerate(waits_for) if count == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        _, node = heapq.heappop(ready)
        order.append(node)
        for successor in indices[indptr[node] : indptr[node + 1]]:
            waits_for[successor] -= 1
            if waits_for[successor] == 0:
                heapq.heappush(ready, (priority[successor], successor))
    return np.array(order, np.int32)
