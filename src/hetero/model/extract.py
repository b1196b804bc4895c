"""Extracts nodes of a model as submodels, by slicing the parent's arrays.

All submodels of a partition are computed together by sorting pairs of submodel and value; each submodel is then a slice
of the result. The cost is O(k log k) for k selected entries. It depends neither on the size of the parent, apart from
one count of its reads, nor on the number of submodels.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .rows import Rows
from .types import Ragged

__all__ = ["Selection", "select", "select_constants"]

_Ids = NDArray[np.int32]
_Places = NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """Arrays of a submodel, in its own ids. ``parent_nodes``, ``parent_values``: their ids in the parent, ascending."""

    parent_nodes: _Ids
    parent_values: _Ids
    inputs: Ragged
    outputs: Ragged
    captures: Ragged
    producer: _Ids
    is_constant: NDArray[np.bool_]
    input_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    op_types: tuple[str, ...]
    op_type_of: _Ids


def select(parent: Rows, nodes: _Ids, start: _Places) -> list[Selection]:
    """One submodel for each range ``nodes[start[i]:start[i + 1]]``. Its ids must be valid, ascending and distinct."""
    num_parts = len(start) - 1
    part_of = np.repeat(np.arange(num_parts), np.diff(start))
    inputs, outputs, captures = (
        _Rows(ragged.take(nodes), start, part_of)
        for ragged in (parent.node_inputs, parent.node_outputs, parent.node_captures)
    )

    # Each distinct pair of part and value has a place in these arrays, sorted by part.
    width = max(len(parent.producer), 1)
    keys = np.unique(np.concatenate([rows.keys(width) for rows in (inputs, outputs, captures)]))
    values = (keys % width).astype(np.int32)
    first = np.searchsorted(keys, np.arange(num_parts + 1) * width)
    for rows in (inputs, outputs, captures):
        rows.find(keys, first, width)

    made = outputs.place >= 0
    producer = np.full(len(values), -1, np.int32)
    producer[outputs.place[made]] = (outputs.row - start[outputs.part])[made]
    is_constant = parent.is_constant[values]

    read = _reads_in_order(inputs, captures)
    from_outside = read[(producer[read] < 0) & ~is_constant[read]]
    from_outside = _first_of_each(from_outside)
    read_outside = parent.read_count[values] > np.bincount(read, minlength=len(values))
    read_after = outputs.place[made]
    read_after = read_after[read_outside[read_after]]
    of_value = np.repeat(np.arange(num_parts), np.diff(first))
    input_ids = _per_part(from_outside, of_value, first)
    output_ids = _per_part(read_after, of_value, first)

    num_ops = max(len(parent.op_types), 1)
    op_keys, op_of = np.unique(part_of * num_ops + parent.op_type_of[nodes], return_inverse=True)
    ops = (op_keys % num_ops).tolist()
    first_op = np.searchsorted(op_keys, np.arange(num_parts + 1) * num_ops)
    op_type_of = (op_of.reshape(-1) - first_op[part_of]).astype(np.int32)

    at, ends, op_ends = start.tolist(), first.tolist(), first_op.tolist()
    return [
        Selection(
            parent_nodes=nodes[at[i] : at[i + 1]],
            parent_values=values[ends[i] : ends[i + 1]],
            inputs=inputs.of_part(at[i], at[i + 1]),
            outputs=outputs.of_part(at[i], at[i + 1]),
            captures=captures.of_part(at[i], at[i + 1]),
            producer=producer[ends[i] : ends[i + 1]],
            is_constant=is_constant[ends[i] : ends[i + 1]],
            input_ids=input_ids[i],
            output_ids=output_ids[i],
            op_types=tuple(parent.op_types[op] for op in ops[op_ends[i] : op_ends[i + 1]]),
            op_type_of=op_type_of[at[i] : at[i + 1]],
        )
        for i in range(num_parts)
    ]


def select_constants(values: Sequence[int]) -> Selection:
    """A submodel without nodes, whose outputs are these constants of the parent."""
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
        op_types=(),
        op_type_of=np.zeros(0, np.int32),
    )


class _Rows:
    """The inputs, outputs or captures of all selected nodes. ``row``, ``part``: the node and the part of each entry.
    ``place``: the place of its value among the values of all parts, -1 for an absent value."""

    def __init__(self, ragged: Ragged, start: _Places, part_of: _Places) -> None:
        self._ends = ragged.indptr
        self._values = ragged.values
        self.row = np.repeat(np.arange(len(part_of)), np.diff(ragged.indptr))
        self.part = part_of[self.row]
        self.place: _Places
        self._own: _Ids

    def keys(self, width: int) -> _Places:
        """Pairs of part and value, encoded as numbers."""
        there = self._values >= 0
        return self.part[there] * width + self._values[there]

    def find(self, keys: _Places, first: _Places, width: int) -> None:
        """Sets ``place`` from the sorted keys of all parts."""
        place = np.searchsorted(keys, self.part * width + self._values)
        absent = self._values < 0
        self.place = np.where(absent, -1, place)
        self._own = np.where(absent, -1, place - first[self.part]).astype(np.int32)

    def of_part(self, begin: int, end: int) -> Ragged:
        """The rows of these nodes, in the part's own ids."""
        ends = self._ends[begin : end + 1]
        return Ragged(ends - ends[0], self._own[ends[0] : ends[-1]])


def _reads_in_order(inputs: _Rows, captures: _Rows) -> _Places:
    """Places of all values read, node by node, with a node's inputs before its captures. Omits absent inputs."""
    read = inputs.place
    if len(captures.place):
        order = np.argsort(np.concatenate((inputs.row, captures.row)), kind="stable")
        read = np.concatenate((inputs.place, captures.place))[order]
    return read[read >= 0]


def _first_of_each(places: _Places) -> _Places:
    """The distinct places, in the order they first occur."""
    return places[np.sort(np.unique(places, return_index=True)[1])]


def _per_part(places: _Places, part_of: _Places, first: _Places) -> list[tuple[int, ...]]:
    """Places, sorted by part, as ids within their parts."""
    parts = part_of[places]
    ends = np.searchsorted(parts, np.arange(len(first))).tolist()
    own = (places - first[parts]).tolist()
    return [tuple(own[begin:end]) for begin, end in itertools.pairwise(ends)]
