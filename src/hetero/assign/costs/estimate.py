"""The work of each node of a model, estimated from shapes: operations and bytes."""

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

_OPS_WITH_GRAPHS = ("If", "Loop", "Scan", "SequenceMap")


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class NodeWork:
    """Estimated work per node.

    ``flops``, ``bytes``: float64 [num_nodes], operations, and bytes read and written. ``assumed``: bool [num_nodes],
    True if the estimate is based on an assumption: a shape is unknown (see `ValueSizes`), or the node is a call of a
    function, has nested graphs, or has an unknown operator of another domain. ``sizes``: of the values.
    """

    flops: NDArray[np.float64]
    bytes: NDArray[np.float64]
    assumed: NDArray[np.bool_]
    sizes: ValueSizes


def estimate_work(model: Model, sizes: Mapping[str, int] | None = None) -> NodeWork:
    """Operations and bytes of every node. ``sizes``: symbolic dim -> size.

    A node with nested graphs counts the bytes that it reads and writes once, and no operations. O(nodes + edges), with
    one array formula per operator.
    """
    values = value_sizes(model, sizes)
    flops = np.zeros(model.num_nodes)
    moved = np.zeros(model.num_nodes)
    assumed = np.zeros(model.num_nodes, np.bool_)
    for rows in (model.node_inputs, model.node_outputs, model.node_captures):
        is_present = rows.values >= 0
        node = np.repeat(np.arange(model.num_nodes), np.diff(rows.indptr))[is_present]
        value = rows.values[is_present]
        moved += np.bincount(node, values.bytes[value], model.num_nodes)
        assumed[node[values.assumed[value]]] = True
    for number, name in enumerate(model.op_types):
        nodes = np.flatnonzero(model.op_type_of == number)
        operands = Operands(model, values, nodes)
        if name in VIEWS:
            moved[nodes] = 0
        elif name in SPARSE_READERS:
            table = SPARSE_READERS[name]
            data, result = operands.elements(table), operands.elements(0, output=True)
            index = operands.elements(1 if table == 0 else 0)
            bytes_per_element = np.maximum(moved[nodes], 1) / np.maximum(data + result + index, 1)
            unread = np.maximum(data - result, 0)
            moved[nodes] = np.maximum(moved[nodes] - unread * bytes_per_element, 0)
        if name in FORMULAS:
            flops[nodes] = FORMULAS[name](operands)
        elif name in SPARSE_READERS or name in VIEWS:
            continue
        elif "::" in name or name in _OPS_WITH_GRAPHS:
            assumed[nodes] = True
    return NodeWork(flops, moved, assumed, values)
