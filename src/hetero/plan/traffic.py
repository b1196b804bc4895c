"""The values between the subgraphs of a plan, and the totals of each device, from arrays in one pass over the edges."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
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

__all__ = ["Traffic", "boundary_values", "cut_bytes", "device_totals", "traffic"]

_UNKNOWN = -1
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


def boundary_values(model: Model, traffic: Traffic) -> tuple[BoundaryValue, ...]:
    """The values for the plan: with name and type, subgraphs counted from 1. May run shape inference once."""
    kinds, kind_of = model.kinds_of(traffic.value)
    descriptions = [_description(known) for known in kinds]
    readers = (traffic.readers.values + 1).tolist()
    indptr = traffic.readers.indptr.tolist()
    values = []
    rows = zip(model.value_names(traffic.value), traffic.source.tolist(), kind_of.tolist(), strict=True)
    for i, (name, source, kind) in enumerate(rows):
        begin, end = indptr[i], indptr[i + 1]
        dtype, shape, size = descriptions[kind]
        read_by = tuple(readers[begin:end])
        values.append(BoundaryValue(name, dtype, shape, size, source + 1, read_by))
    return tuple(values)


def device_totals(
    devices: Sequence[str],
    partition: Partition,
    traffic: Traffic,
    values: Sequence[BoundaryValue],
    needs: Footprint,
    limits: Mapping[str, int],
) -> tuple[DeviceTotals, ...]:
    """Totals of each device, in the order of ``devices``."""
    count = len(devices)
    device_of = partition.device_of[partition.subgraph_of]
    nodes = np.bincount(device_of, minlength=count)
    subgraphs = np.bincount(partition.device_of, minlength=count)
    weights = list(map(int, needs.weights.tolist()))
    received, sent, unknown = [0] * count, [0] * count, [0] * count
    row = np.repeat(np.arange(len(traffic.value)), np.diff(traffic.readers.indptr))
    source_device = partition.device_of[traffic.source]
    pairs = distinct(row * count + partition.device_of[traffic.readers.values])  # a value is sent to a device once
    rows, targets = (pairs // count).tolist(), (pairs % count).tolist()
    sources = source_device.tolist()
    last = -1
    for number, target in zip(rows, targets, strict=True):
        source = sources[number]
        if source == target:
            continue
        size = values[number].bytes
        if size is None:
            unknown[target] += 1
        else:
            received[target] += size
        if number != last:
            last = number
            if size is None:
                unknown[source] += 1
            else:
                sent[source] += size
    return tuple(
        DeviceTotals(
            devices[i],
            int(nodes[i]),
            int(subgraphs[i]),
            min(weights[i], _LARGEST),
            min(received[i], _LARGEST),
            min(sent[i], _LARGEST),
            unknown[i],
            min(int(needs.activations[i]), _LARGEST),
            int(needs.unknown[i]),
            limits.get(devices[i]),
        )
        for i in range(count)
    )


def cut_bytes(model: Model, traffic: Traffic) -> tuple[int, int]:
    """Total bytes of the boundary values of known size, each counted once, and the number of values of unknown size."""
    total = unknown = 0
    sizes: dict[int, int | None] = {}
    kept: list[ValueType] = []
    for value in traffic.value.tolist():
        known = model.type_of(value)
        size = sizes.get(id(known), _UNKNOWN)
        if size == _UNKNOWN:
            kept.append(known)
            size = sizes[id(known)] = _description(known)[2]
        if size is None:
            unknown += 1
        else:
            total += size
    return min(total, _LARGEST), unknown


def _description(known: ValueType) -> tuple[str | None, tuple[int | str | None, ...] | None, int | None]:
    """The name of the element type, the shape, and the bytes."""
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
