"""What each node of a model has to do, from shapes alone: operations and bytes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .operators import FORMULAS, SPARSE_READERS, VIEWS, Operands
from .sizes import ValueSizes, value_sizes

if TYPE_CHECKING:
    from ...model.model import Model

__all__ = ["NodeWork", "estimate_work"]

_WITH_GRAPHS = ("If", "Loop", "Scan", "SequenceMap")


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class NodeWork:
    """Per node, float64 [num_nodes]: ``flops``, ``bytes`` read and made. ``assumed``: bool, True where a shape is not
    known (see `ValueSizes`), or what a node does: a call of a function, a nested graph, an operator that is not
    ONNX's own. ``sizes``: of the values."""

    flops: NDArray[np.float64]
    bytes: NDArray[np.float64]
    assumed: NDArray[np.bool_]
    sizes: ValueSizes


def estimate_work(model: Model, sizes: Mapping[str, int] | None = None) -> NodeWork:
    """Operations and bytes of every node. ``sizes``: symbolic dim -> the size to take it for.

    O(nodes + edges), a formula per operator over arrays. A node with nested graphs counts as if these were run once,
    over all that it reads and makes.
    """
    values = value_sizes(model, sizes)
    flops = np.zeros(model.num_nodes)
    moved = np.zeros(model.num_nodes)
    assumed = np.zeros(model.num_nodes, np.bool_)
    for rows in (model.node_inputs, model.node_outputs, model.node_captures):
        given = rows.values >= 0
        node = np.repeat(np.arange(model.num_nodes), np.diff(rows.indptr))[given]
        value = rows.values[given]
        moved += np.bincount(node, values.bytes[value], model.num_nodes)
        assumed[node[values.assumed[value]]] = True
    for number, name in enumerate(model.op_types):
        nodes = np.flatnonzero(model.op_type_of == number)
        operands = Operands(model, values, nodes)
        if name in VIEWS:
            moved[nodes] = 0
        elif name in SPARSE_READERS:
            made = operands.elements(0, output=True)
            unread = np.maximum(operands.elements(0) - made, 0)
            each = np.maximum(moved[nodes], 1) / np.maximum(operands.elements(0) + made + operands.elements(1), 1)
            moved[nodes] = np.maximum(moved[nodes] - unread * each, 0)
        elif name in FORMULAS:
            flops[nodes] = FORMULAS[name](operands)
        elif "::" in name or name in _WITH_GRAPHS:
            assumed[nodes] = True
    return NodeWork(flops, moved, assumed, values)
