"""Topological orders whose intervals are tried as the stages of a pipeline.

Any valid stages are intervals of some topological order, but it is not known of which one, so a few orders are tried:
the model's own, in which most exporters write a node shortly before its use; a depth-first order, which keeps each
branch together, so that few values cross a position; an order that finishes what suits early stages before it begins
what suits later ones; and, for small graphs, random orders. If some stages may not have some nodes, each order is also
sorted by the first or last stage that a node can be in, which places nodes that must be early or late.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ...partition import Graph
from .errors import PipelineError

__all__ = ["depth_first", "other_orders", "own_orders", "random_order", "ready_first", "stage_ranges"]

_SMALL = 1_000  # nodes: graphs up to this size get random orders as well
_NUM_RANDOM = 64
_RANDOM_WORK = 200_000  # random orders times stages squared, what the cuts of an order take for many stages


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


def own_orders(graph: Graph, first: NDArray[np.int32], last: NDArray[np.int32]) -> Iterator[NDArray[np.int32]]:
    """int32 [num_nodes] each: the graph's own order, also sorted by the ranges of stages; see `other_orders`."""
    return _sorted_by_ranges(graph.topological_order, first, last)


def other_orders(
    graph: Graph, first: NDArray[np.int32], last: NDArray[np.int32], best_stage: NDArray[np.integer]
) -> Iterator[NDArray[np.int32]]:
    """Further orders to try, the most promising first: int32 [num_nodes]. ``first``, ``last``: from `stage_ranges`.

    Both ascend along edges, so an order stays topological when it is sorted by either or by their sum. ``best_stage``:
    int [num_nodes], the stage where each node takes the minimum time.
    """
    if len(best_stage) and (best_stage != best_stage[0]).any():
        yield from _sorted_by_ranges(ready_first(graph, best_stage), first, last)
    yield from _sorted_by_ranges(depth_first(graph), first, last)
    if graph.num_nodes <= _SMALL:
        num_stages = int(last.max(initial=0)) + 1
        for seed in range(2, 2 + min(_NUM_RANDOM, _RANDOM_WORK // num_stages**2)):
            yield from _sorted_by_ranges(random_order(graph, seed), first, last)


def _sorted_by_ranges(
    order: NDArray[np.int32], first: NDArray[np.int32], last: NDArray[np.int32]
) -> Iterator[NDArray[np.int32]]:
    """The order itself if all nodes have the same range of stages; otherwise the order sorted in three ways."""
    if not len(order) or not (first.any() or (last != last[0]).any()):
        yield order
        return
    position = _positions(order)
    for keys in ((position, last, first), (position, first, last), (position, first + last)):
        yield np.lexsort(keys).astype(np.int32)


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
    return ready_first(graph, np.random.default_rng(seed).permutation(graph.num_nodes))


def ready_first(graph: Graph, priority: NDArray[np.integer]) -> NDArray[np.int32]:
    """int32 [num_nodes]: the topological order that takes, of the nodes that are ready, one of the lowest ``priority``
    (int [num_nodes]); of several, the first in the graph's own order. O(edges + nodes * log nodes)."""
    n = graph.num_nodes
    rank = np.empty(n, np.int64)
    by_priority = np.lexsort((_positions(graph.topological_order), priority))
    rank[by_priority] = np.arange(n)
    rank_of, node_of = rank.tolist(), by_priority.tolist()
    indptr, indices = graph.indptr.tolist(), graph.indices.tolist()
    waits_for = np.diff(graph.pred_indptr).tolist()
    ready = [rank_of[node] for node, count in enumerate(waits_for) if count == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        node = node_of[heapq.heappop(ready)]
        order.append(node)
        for successor in indices[indptr[node] : indptr[node + 1]]:
            waits_for[successor] -= 1
            if waits_for[successor] == 0:
                heapq.heappush(ready, rank_of[successor])
    return np.array(order, np.int32)


def _positions(order: NDArray[np.int32]) -> NDArray[np.int64]:
    """int64 [num_nodes]: the position of each node in an order."""
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    return position
