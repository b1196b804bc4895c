"""How long values live if the nodes run in the order of their numbers, as one subgraph."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...base.grouped import group_max, group_min
from .values import Values

__all__ = ["alive_at", "bytes_alone", "bytes_crossing", "lifetimes", "values_of_part"]


def lifetimes(values: Values) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """intp [num_values] each: the node at which each value's life begins, and the last node that reads it.

    A value begins at its producer, or at its first reader if no node makes it; ``num_nodes`` if nothing reads it
    either. Outputs that nodes make end at ``num_nodes``; a value without readers ends at its producer, or at -1.
    """
    n = values.num_nodes
    first = group_min(values.read_node, values.read_value, len(values.producer), n)
    last = group_max(values.read_node, values.read_value, len(values.producer), -1)
    is_made = values.producer >= 0
    first[is_made] = values.producer[is_made]
    np.maximum(last, values.producer, out=last)
    last[values.is_output & is_made] = n
    return first, last


def alive_at(values: Values) -> NDArray[np.float64]:
    """float64 [num_nodes]: bytes that are alive while each node runs, without constants."""
    n = values.num_nodes
    first, last = lifetimes(values)
    counted = np.flatnonzero((first < n) & ~values.is_constant)
    change = np.bincount(first[counted], values.bytes[counted], n + 1).astype(np.float64)
    change -= np.bincount(np.minimum(last[counted], n - 1) + 1, values.bytes[counted], n + 1)
    return np.cumsum(change)[:n]


def bytes_crossing(values: Values, begin: int) -> NDArray[np.float64]:
    """float64 [num_nodes + 1]: bytes of the values that nodes from ``begin`` on make before each position, and that are
    read at the position or later. Outputs count as read at the end."""
    n = values.num_nodes
    _, last = lifetimes(values)
    made = np.flatnonzero(values.producer >= begin)
    change = np.bincount(values.producer[made] + 1, values.bytes[made], n + 2).astype(np.float64)
    change -= np.bincount(np.minimum(last[made], n) + 1, values.bytes[made], n + 2)
    return np.cumsum(change)[: n + 1]


def bytes_alone(values: Values, num_devices: int) -> NDArray[np.float64]:
    """float64 [num_devices, num_nodes]: bytes that each node reads, makes and holds. Its device needs at least as
    much."""
    if values.bytes_inside is not None:
        return np.stack([bytes_alone(values.on(device), 1)[0] for device in range(num_devices)])
    read = np.bincount(values.read_node, values.bytes[values.read_value], values.num_nodes)
    is_made = values.producer >= 0
    made = np.bincount(values.producer[is_made], values.bytes[is_made], values.num_nodes)
    return np.tile(values.own + read + made, (num_devices, 1))


def values_of_part(values: Values, members: NDArray[np.intp], device: int) -> Values:
    """The values as some of the nodes (``members``, ascending) on ``device`` see them, with these nodes renumbered from
    0.

    Values that other nodes make become inputs, and values that other nodes read become outputs.
    """
    number = np.full(values.num_nodes + 1, -1)
    number[members] = np.arange(len(members))
    reader = number[values.read_node]
    is_inside = reader >= 0
    read_outside = np.zeros(len(values.producer), np.bool_)
    read_outside[values.read_value[~is_inside]] = True
    return Values(
        len(members),
        number[values.producer].astype(np.int32),  # producer -1 selects the last entry, which is -1
        np.where(read_outside, values.bytes, values.on(device).bytes),
        values.known,
        values.is_constant,
        values.is_output | read_outside,
        values.read_value[is_inside],
        reader[is_inside].astype(np.int32),
        values.own[members],
    )
