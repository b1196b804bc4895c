"""Assignment problems with fewer nodes: chains, or nodes with their small neighbors, become one node."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...base.grouped import distinct
from ...partition import Graph
from ..cuts import AssignmentProblem

__all__ = ["contract", "contract_chains", "contract_small"]

_SMALL = 0.1
"""The share of its neighbor's work that a small node takes at most. Along a chain, a group grows by a ninth at most,
because the next small node must be that much smaller again."""


def contract_chains(graph: Graph, problem: AssignmentProblem) -> tuple[Graph, AssignmentProblem, NDArray[np.intp]]:
    """The graph and the problem of the chains, and the chain of each node: intp [num_nodes].

    A node belongs to the chain of its predecessor if it is the only successor of its only predecessor, and the same
    devices support both. The chain of nodes that are in none has one node. O(readers log readers).
    """
    source, target = _chain_links(graph, problem)
    head = np.arange(graph.num_nodes)
    head[target] = source
    return contract(graph, problem, head)


def contract_small(graph: Graph, problem: AssignmentProblem) -> tuple[Graph, AssignmentProblem, NDArray[np.intp]]:
    """The same for small nodes, which are better not cut from a neighbor, because devices fuse the two.

    A node of a chain that takes at most `_SMALL` of the work of its predecessor, on each device, belongs to it, such as
    an activation to a convolution. Likewise, a node that reads nothing but constants belongs to its only reader. The
    quotient stays acyclic, because no path leaves and enters such a pair.
    """
    source, target = _chain_links(graph, problem)
    n, work = graph.num_nodes, problem.work
    reads_nothing = np.bincount(problem.readers, minlength=n)[:n] == 0
    is_small = _is_small(work, target, source) & ~reads_nothing[source]
    head = np.arange(n)
    head[target[is_small]] = source[is_small]
    alone = np.flatnonzero(reads_nothing & (np.diff(graph.indptr) == 1))
    reader = graph.indices[graph.indptr[alone]]
    is_small = _same_support(problem, alone, reader) & _is_small(work, alone, reader)
    head[alone[is_small]] = reader[is_small]
    return contract(graph, problem, head)


def _is_small(work: NDArray[np.float64], node: NDArray[np.integer], neighbor: NDArray[np.integer]) -> NDArray[np.bool_]:
    return np.asarray((work[:, node] <= _SMALL * work[:, neighbor]).all(axis=0))


def contract(
    graph: Graph, problem: AssignmentProblem, head: NDArray[np.intp]
) -> tuple[Graph, AssignmentProblem, NDArray[np.intp]]:
    """The graph and the problem whose nodes are groups, and the group of each node: intp [num_nodes].

    ``head``: for each node, another one of its group, or the node itself for one node of each group.
    """
    n = graph.num_nodes
    if np.array_equal(head, np.arange(n)):
        return graph, problem, head
    while True:  # pointers double their reach
        further = head[head]
        if np.array_equal(further, head):
            break
        head = further
    heads, group = np.unique(head, return_inverse=True)
    count = len(heads)
    extra = problem.num_nodes - n
    group_of = np.concatenate([group, np.arange(count, count + extra)])
    work = np.stack([np.bincount(group_of, row, count + extra) for row in problem.work])
    value = np.repeat(np.arange(len(problem.producer)), np.diff(problem.indptr))
    reader, producer = group_of[problem.readers], group_of[problem.producer]
    pairs = distinct(value * (count + extra) + reader)
    value, reader = pairs // (count + extra), pairs % (count + extra)
    outside = reader != producer[value]
    value, reader = value[outside], reader[outside]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(value, minlength=len(producer)))])
    contracted = AssignmentProblem.from_values(
        work, producer, indptr, reader, problem.size, problem.latency, problem.per_unit
    )
    source, target = np.repeat(np.arange(n), np.diff(graph.indptr)), graph.indices
    between = group[source] != group[target]
    groups = Graph.from_edges(group[source[between]], group[target[between]], count)
    return groups, contracted, group


def _chain_links(graph: Graph, problem: AssignmentProblem) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
    """The edges from a node with one successor to a node with one predecessor, if the same devices support both."""
    n = graph.num_nodes
    source, target = np.repeat(np.arange(n), np.diff(graph.indptr)), graph.indices
    out_degree, in_degree = np.diff(graph.indptr), np.bincount(target, minlength=n)
    links = (out_degree[source] == 1) & (in_degree[target] == 1)
    links[links] = _same_support(problem, source[links], target[links])
    return source[links], target[links]


def _same_support(
    problem: AssignmentProblem, one: NDArray[np.integer], other: NDArray[np.integer]
) -> NDArray[np.bool_]:
    supported = np.isfinite(problem.work)
    return np.asarray((supported[:, one] == supported[:, other]).all(axis=0))
