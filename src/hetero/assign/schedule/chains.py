"""`contract_chains`: an assignment problem whose nodes are the chains of another, so that a chain stays on a device."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...partition import Graph
from ..cuts import AssignmentProblem

__all__ = ["contract_chains"]


def contract_chains(graph: Graph, problem: AssignmentProblem) -> tuple[Graph, AssignmentProblem, NDArray[np.intp]]:
    """The graph and the problem of the chains, and the chain of each node: intp [num_nodes].

    A node belongs to the chain of its predecessor if it is the only successor of its only predecessor, and the same
    devices support both. The chain of nodes that are in none has one node. O(readers log readers).
    """
    n = graph.num_nodes
    source, target = np.repeat(np.arange(n), np.diff(graph.indptr)), graph.indices
    out_degree, in_degree = np.diff(graph.indptr), np.bincount(target, minlength=n)
    supported = np.isfinite(problem.work[:, :n])
    links = (out_degree[source] == 1) & (in_degree[target] == 1)
    links[links] = (supported[:, source[links]] == supported[:, target[links]]).all(axis=0)
    head = np.arange(n)
    head[target[links]] = source[links]
    while True:  # pointers double their reach
        further = head[head]
        if np.array_equal(further, head):
            break
        head = further
    heads, chain = np.unique(head, return_inverse=True)
    count = len(heads)
    extra = problem.num_nodes - n
    chain_of = np.concatenate([chain, np.arange(count, count + extra)])
    work = np.stack([np.bincount(chain_of, row, count + extra) for row in problem.work])
    value = np.repeat(np.arange(len(problem.producer)), np.diff(problem.indptr))
    reader, producer = chain_of[problem.readers], chain_of[problem.producer]
    pairs = np.unique(value * (count + extra) + reader)
    value, reader = pairs // (count + extra), pairs % (count + extra)
    outside = reader != producer[value]
    value, reader = value[outside], reader[outside]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(value, minlength=len(producer)))])
    contracted = AssignmentProblem.from_values(
        work, producer, indptr, reader, problem.size, problem.latency, problem.per_unit
    )
    between = chain[source] != chain[target]
    chains = Graph.from_edges(chain[source[between]], chain[target[between]], count)
    return chains, contracted, chain
