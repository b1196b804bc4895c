"""Units of nodes that a device runs as one operation (`Support.units`): in which type they compute, what they move.

A Conv between DequantizeLinear and QuantizeLinear is float32 in the graph. A device that runs the three as one
operation computes in int8, and the float32 values between them never exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .estimate import NodeWork

if TYPE_CHECKING:
    from ...model.model import Model

__all__ = ["bytes_in_units", "computing_types", "types_in_units"]

_UNKNOWN = "unknown"


def computing_types(model: Model) -> tuple[list[str], NDArray[np.intp]]:
    """The names of element types, and for each node an index into them, intp [num_nodes]: the type of its first input,
    or of its first output if it has no input."""
    kinds, kind_of = model.type_table()
    names = [_UNKNOWN if kind.dtype is None or kind.dtype.hasobject else kind.dtype.name for kind in kinds]
    types = np.full(model.num_nodes, len(names), np.intp)
    for rows in (model.node_outputs, model.node_inputs):
        nodes = np.flatnonzero(np.diff(rows.indptr) > 0)
        value = rows.values[rows.indptr[nodes]]
        types[nodes[value >= 0]] = kind_of[value[value >= 0]]
    return [*names, _UNKNOWN], types


def types_in_units(types: NDArray[np.intp], units: Sequence[NDArray[np.int32]]) -> NDArray[np.intp]:
    """``types`` of `computing_types` on a device with units: each computes in the type of its first node."""
    changed = types.copy()
    for unit in sorted(units, key=len):  # the largest unit of a node counts
        changed[unit] = types[unit[0]]
    return changed


def bytes_in_units(model: Model, work: NodeWork, units: Sequence[NDArray[np.int32]]) -> NDArray[np.float64]:
    """float64 [num_nodes]: the bytes of each node without values that only pass inside one of its units."""
    moved, size = work.bytes.copy(), work.sizes.bytes
    is_output = np.zeros(model.num_values, np.bool_)
    is_output[list(model.output_ids)] = True
    skipped: set[tuple[int, int]] = set()
    for unit in units:
        members = set(unit.tolist())
        for node in members:
            for value in model.node_inputs[node].tolist():
                if value >= 0 and model.producer[value] in members:
                    skipped.add((node, value))
            readers = set(model.graph.successors(node).tolist())
            for value in model.node_outputs[node].tolist():
                if value >= 0 and not is_output[value] and readers and readers <= members:
                    skipped.add((node, value))
    for node, value in skipped:
        moved[node] = max(moved[node] - size[value], 0.0)
    return moved
