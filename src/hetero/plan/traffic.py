"""The values between the subgraphs of a plan, and the totals of each device, from arrays in one pass over the edges."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..assign.memory.footprint import Footprint
from ..assign.memory.values import reads_of
from ..base.grouped import distinct
from ..model.constants import raw_size
from ..model.types import Ragged, ValueType, onnx_dtype_of
from .schema import BoundaryValue, DeviceTotals

if TYPE_CHECKING:
    from ..model.model import Model
    from ..partition import Partition

__all__ = ["Boundary", "Traffic", "boundary_of", "cut_bytes", "device_totals", "traffic"]

_STRING = 8  # onnx.TensorProto.STRING
_LARGEST = 2**63 - 1  # the largest int64, also the largest integer of many JSON readers


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """The values made in one subgraph and read in others, ordered by the subgraph that makes them, then by number.

    ``value``, ``source``: int32[m], the value's number in the model, and the subgraph that makes it. ``readers``: rows
    of the subgraphs that read it, ascending. Subgraphs are counted from 0 here.
    """

    value: NDArray[np.int32]
    source: NDArray[np.int32]
    readers: Ragged


Description = tuple[str | None, tuple[int | str | None, ...] | None, int | None]
"""The name of the element type, the shape, and the bytes, as in `BoundaryValue`."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Boundary:
    """The boundary values of a plan without their names, as columns.

    ``kinds``: the distinct types. ``kind_of``: int32[m], the index of each value's type. ``source``, ``num_readers``:
    int[m], the subgraph that makes it, and the number of subgraphs that read it, which are consecutive in ``readers``.
    Subgraphs are counted from 0 here.
    """

    kinds: Sequence[Description]
    kind_of: NDArray[np.int32]
    source: NDArray[np.integer]
    num_readers: NDArray[np.integer]
    readers: NDArray[np.integer]

    @classmethod
    def of(cls, values: Sequence[BoundaryValue]) -> Boundary:
        """The columns of the values of a plan file, whose subgraph numbers are any of 64 bits."""
        kinds: dict[Description, int] = {}
        kind_of = [kinds.setdefault((value.dtype, value.shape, value.bytes), len(kinds)) for value in values]
        return cls(
            list(kinds),
            np.array(kind_of, np.int32),
            np.array([value.source for value in values], np.int64) - 1,
            np.array([len(value.readers) for value in values], np.int64),
            np.array([reader for value in values for reader in value.readers], np.int64) - 1,
        )

    @property
    def rows(self) -> NDArray[np.int64]:
        """The value of each element of ``readers``."""
        return np.repeat(np.arange(len(self.source)), self.num_readers)

    def total(self, values: NDArray[np.integer]) -> tuple[int, int]:
        """The sum of the bytes of these values, and the number of those of unknown size."""
        counts = np.bincount(self.kind_of[values], minlength=len(self.kinds)).tolist()
        sizes = [size for _, _, size in self.kinds]  # the sum may exceed 64 bits
        known = sum(size * count for size, count in zip(sizes, counts, strict=True) if size is not None)
        return known, sum(count for size, count in zip(sizes, counts, strict=True) if size is None)

    def values(self, names: Iterable[str]) -> tuple[BoundaryValue, ...]:
        """The values with these names, for a plan file; subgraphs are counted from 1."""
        readers = (self.readers + 1).tolist()
        spans = itertools.pairwise(itertools.accumulate(self.num_readers.tolist(), initial=0))
        rows = zip(names, self.kind_of.tolist(), (self.source + 1).tolist(), spans, strict=True)
        values = []
        for name, kind, source, (begin, end) in rows:
            dtype, shape, size = self.kinds[kind]
            values.append(BoundaryValue(name, dtype, shape, size, source, tuple(readers[begin:end])))
        return tuple(values)


def traffic(model: Model, subgraph_of: NDArray[np.int32]) -> Traffic:
    """The boundary values of a partition. O(edges log edges)."""
    value, node = reads_of(model)
    inside = model.producer[value] >= 0
    value, node = value[inside], node[inside]
    source, reader = subgraph_of[model.producer[value]], subgraph_of[node]
    crossing = source != reader
    value, source, reader = value[crossing], source[crossing], reader[crossing]
    order = np.lexsort((reader, value, source))
    value, source, reader = value[order], source[order], reader[order]
    new_value = np.ones(len(value), np.bool_)
    new_value[1:] = value[1:] != value[:-1]
    distinct = new_value.copy()
    distinct[1:] |= reader[1:] != reader[:-1]
    starts = np.flatnonzero(new_value[distinct])
    indptr = np.append(starts, np.count_nonzero(distinct)).astype(np.int32)
    first = np.flatnonzero(new_value)
    return Traffic(value[first], source[first], Ragged(indptr, reader[distinct].astype(np.int32)))


def boundary_of(model: Model, traffic: Traffic) -> Boundary:
    """The types of the values, and between which subgraphs they pass. May run shape inference once."""
    kinds, kind_of = model.kinds_of(traffic.value)
    readers = traffic.readers
    return Boundary(list(map(_description, kinds)), kind_of, traffic.source, np.diff(readers.indptr), readers.values)


def device_totals(
    devices: Sequence[str],
    partition: Partition,
    boundary: Boundary,
    needs: Footprint,
    limits: Mapping[str, int],
) -> tuple[DeviceTotals, ...]:
    """Totals of each device, in the order of ``devices``."""
    count = len(devices)
    device_of = partition.device_of[partition.subgraph_of]
    nodes = np.bincount(device_of, minlength=count)
    subgraphs = np.bincount(partition.device_of, minlength=count)
    pairs = distinct(boundary.rows * count + partition.device_of[boundary.readers])
    row, target = pairs // count, pairs % count  # a value is sent to a device once
    source = partition.device_of[boundary.source[row]]
    passes = source != target
    row, source, target = row[passes], source[passes], target[passes]
    is_first = np.diff(row, prepend=-1) != 0  # a value that goes to several devices counts once as sent
    totals = []
    for i, device in enumerate(devices):
        received, unknown_received = boundary.total(row[target == i])
        sent, unknown_sent = boundary.total(row[is_first & (source == i)])
        totals.append(
            DeviceTotals(
                device,
                int(nodes[i]),
                int(subgraphs[i]),
                min(int(needs.weights[i]), _LARGEST),
                min(received, _LARGEST),
                min(sent, _LARGEST),
                unknown_received + unknown_sent,
                min(int(needs.activations[i]), _LARGEST),
                int(needs.unknown[i]),
                limits.get(device),
            )
        )
    return tuple(totals)


def cut_bytes(boundary: Boundary) -> tuple[int, int]:
    """Total bytes of the boundary values of known size, each counted once, and the number of values of unknown size."""
    total, unknown = boundary.total(np.arange(len(boundary.source)))
    return min(total, _LARGEST), unknown


def _description(known: ValueType) -> Description:
    return _dtype_name(known.dtype), known.shape, _size(known)


def _dtype_name(dtype: np.dtype[Any] | None) -> str | None:
    return None if dtype is None else "string" if onnx_dtype_of(dtype) == _STRING else dtype.name


def _size(known: ValueType) -> int | None:
    if known.dtype is None or known.shape is None or onnx_dtype_of(known.dtype) in (0, _STRING):
        return None
    sizes = [dim for dim in known.shape if isinstance(dim, int) and dim >= 0]
    if len(sizes) < len(known.shape):
        return None
    size = raw_size(onnx_dtype_of(known.dtype), sizes)
    return size if size <= _LARGEST else None
