"""Nodes that compute sizes, such as the bounds of a Slice, and so have the same results in each inference if the sizes
are known."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .constant_nodes import may_fold

if TYPE_CHECKING:
    from .model import Model

__all__ = ["makes_sizes", "size_nodes"]

_SOURCES = ("Shape", "Size")
_LARGEST_RANK = 1
_TYPES = frozenset(map(np.dtype, ("int64", "int32", "bool")))


def size_nodes(model: Model, constant: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """bool[num_nodes]: the nodes that depend only on constants and known sizes (`Model.with_inner_sizes`), and for
    which `makes_sizes` is true: Shape and Size of values of known sizes, and nodes that compute with their results.
    ``constant``: bool[num_nodes], the nodes that depend on constants only.

    Models without Shape and Size cost nothing. With such nodes, inference runs if the file leaves their sizes open.
    """
    found = np.zeros(model.num_nodes, np.bool_)
    numbers = [number for number, name in enumerate(model.op_types) if name in _SOURCES]
    if not numbers:
        return found
    fixed = model.is_constant | np.append(constant, False)[model.producer]  # producer -1 selects the last entry
    folds = [may_fold(model, name) for name in model.op_types]
    pending = np.flatnonzero(np.isin(model.op_type_of, numbers)).tolist()  # a heap, in topological order
    last = -1
    while pending:
        node = heapq.heappop(pending)
        if node == last:
            continue
        last, op = node, model.op_type_of[node]
        read = model.node_inputs[node]
        read = read[read >= 0]
        if op in numbers:
            follows = len(read) == 1 and _has_sizes(model, int(read[0]))
        else:
            follows = folds[op] and not len(model.node_captures[node]) and bool(fixed[read].all())
        if follows and makes_sizes(model, node):
            found[node] = True
            fixed[model.node_outputs[node][model.node_outputs[node] >= 0]] = True
            for reader in model.graph.successors(node).tolist():
                heapq.heappush(pending, reader)
    return found


def makes_sizes(model: Model, node: int) -> bool:
    """Whether all results of a node are integers or truth values in tensors of at most rank 1, as sizes and indices
    are."""
    made = model.node_outputs[node]
    kinds = [model.type_of(value) for value in made[made >= 0].tolist()]
    return all(kind.dtype in _TYPES and kind.shape is not None and len(kind.shape) <= _LARGEST_RANK for kind in kinds)


def _has_sizes(model: Model, value: int) -> bool:
    return model.type_of(value).has_sizes or model.with_inner_sizes().type_of(value).has_sizes
