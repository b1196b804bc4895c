"""Nodes of a model -> a model of its own, by slicing the parent's arrays.

Source: DESIGN's extraction by ranges. Everything is computed from the chosen rows alone, after counting once per parent
how often each value is read; so the cost is O(k log k) for k chosen entries, whatever the size of the parent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .rows import Rows
from .types import Ragged

__all__ = ["Selection", "select", "select_constants"]

_Ids = NDArray[np.int32]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """Arrays of a submodel, in ids of its own. ``parent_values``: int32[num_values], ids in the parent, ascending."""

    parent_nodes: _Ids
    parent_values: _Ids
    inputs: Ragged
    outputs: Ragged
    captures: Ragged
    producer: _Ids
    is_constant: NDArray[np.bool_]
    input_ids: tuple[int, ...]
    output_ids: tuple[int, ...]


def select(parent: Rows, nodes: _Ids) -> Selection:
    """The submodel of ``nodes`` (ascending, distinct, in range)."""
    rows = [ragged.take(nodes) for ragged in (parent.node_inputs, parent.node_outputs, parent.node_captures)]
    values = np.unique(np.concatenate([row.values for row in rows]))
    values = values[values >= 0]
    inputs, outputs, captures = (Ragged(row.indptr, _renumber(row.values, values)) for row in rows)

    producer = np.full(len(values), -1, np.int32)
    made_by = np.repeat(np.arange(len(nodes), dtype=np.int32), np.diff(outputs.indptr))
    made = outputs.values
    producer[made[made >= 0]] = made_by[made >= 0]
    is_constant = parent.is_constant[values]

    read = _reads_in_order(inputs, captures)
    from_outside = read[(producer[read] < 0) & ~is_constant[read]]
    made = made[made >= 0]
    read_inside = np.bincount(read, minlength=len(values))
    leaves = (parent.read_count[values] > read_inside)[made]
    return Selection(
        parent_nodes=nodes,
        parent_values=values,
        inputs=inputs,
        outputs=outputs,
        captures=captures,
        producer=producer,
        is_constant=is_constant,
        input_ids=tuple(_first_of_each(from_outside).tolist()),
        output_ids=tuple(made[leaves].tolist()),
    )


def select_constants(values: Sequence[int]) -> Selection:
    """No nodes, and constants of the parent that are all outputs."""
    kept = np.unique(np.array(values, np.int32))
    none = [Ragged(np.zeros(1, np.int32), np.zeros(0, np.int32)) for _ in range(3)]
    return Selection(
        parent_nodes=np.zeros(0, np.int32),
        parent_values=kept,
        inputs=none[0],
        outputs=none[1],
        captures=none[2],
        producer=np.full(len(kept), -1, np.int32),
        is_constant=np.ones(len(kept), np.bool_),
        input_ids=(),
        output_ids=tuple(np.searchsorted(kept, values).tolist()),
    )


def _renumber(ids: _Ids, kept: _Ids) -> _Ids:
    """Positions of ``ids`` in ``kept``; -1 stays."""
    return np.where(ids < 0, -1, np.searchsorted(kept, ids)).astype(np.int32)


def _reads_in_order(inputs: Ragged, captures: Ragged) -> _Ids:
    """All values read: node by node, a node's inputs before its captures. Absent inputs are left out."""
    read = inputs.values
    if len(captures.values):
        reader = np.arange(len(inputs))
        order = np.argsort(
            np.concatenate((np.repeat(reader, np.diff(inputs.indptr)), np.repeat(reader, np.diff(captures.indptr)))),
            kind="stable",
        )
        read = np.concatenate((inputs.values, captures.values))[order]
    return read[read >= 0]


def _first_of_each(ids: _Ids) -> _Ids:
    """The distinct ids, in the order they first occur."""
    return ids[np.sort(np.unique(ids, return_index=True)[1])]
