"""Limits on the size of subgraphs: checks the arguments of `partition_graph`, and moves nodes to the next device."""

from __future__ import annotations

import operator
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import _partition
from ..errors import PartitionError, shown
from .graph import Graph

__all__ = ["MinNodes", "fallen_back", "largest_size"]

MinNodes = int | Mapping[int, int]

_MOST = 2**31 - 1  # the maximum number of nodes of a graph


def largest_size(max_nodes: int) -> int:
    """``max_nodes`` as a number of nodes. Raises `PartitionError` unless it is an integer of 1 or more."""
    return min(_whole(max_nodes, "max_nodes", 1), _MOST)


def fallen_back(
    graph: Graph,
    device: ArrayLike,
    policy: str,
    weight: NDArray[np.float64] | None,
    min_nodes: MinNodes,
    allowed: ArrayLike | None,
) -> NDArray[np.uint8]:
    """Device numbers with which every subgraph has at least ``min_nodes`` nodes, unless no later device supports it.

    Each round partitions the graph and moves subgraphs to later devices only, so the loop ends, usually after one or
    two rounds per device.
    """
    numbers = _partition.device_numbers(graph._csr, device)
    mask = _allowed_mask(allowed, numbers)
    sizes = _smallest_sizes(min_nodes, mask.shape[1])
    while True:
        subgraph_of, device_of, *_ = _partition.partition(graph._csr, policy, numbers, weight)
        if not _partition.fall_back(numbers, subgraph_of, len(device_of), sizes, mask):
            return numbers


def _whole(value: object, name: str, minimum: int) -> int:
    if isinstance(value, bool | np.bool_):
        raise PartitionError(f"{name} must be an integer, found {shown(value)}")
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise PartitionError(f"{name} must be an integer, found {shown(value)}") from None
    if number < minimum:
        raise PartitionError(f"{name} must be {minimum} or more, found {shown(number)}")
    return number


def _allowed_mask(allowed: ArrayLike | None, device: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """``allowed``, bool [num_nodes, num_devices], as contiguous bytes. Raises `PartitionError` if it is invalid."""
    if allowed is None:
        raise PartitionError("min_nodes requires allowed: a bool array [num_nodes, num_devices] of supported nodes")
    mask = np.asarray(allowed)
    if mask.ndim != 2 or mask.shape[0] != len(device):
        raise PartitionError(f"allowed must have shape ({len(device)}, num_devices), found {mask.shape}")
    if mask.dtype != np.bool_:
        raise PartitionError(f"allowed must be an array of bool, found dtype {mask.dtype}")
    if mask.shape[1] > 255:
        raise PartitionError(f"allowed has {mask.shape[1]} columns, expected at most 255: device numbers end at 254")
    if len(device) and int(device.max()) >= mask.shape[1]:
        raise PartitionError(f"allowed has {mask.shape[1]} columns, but device number {device.max()} occurs")
    return np.ascontiguousarray(mask).view(np.uint8)


def _smallest_sizes(min_nodes: MinNodes, num_devices: int) -> NDArray[np.int64]:
    """The minimum size of a subgraph for each device number, from one number for all devices or from a mapping."""
    sizes = np.zeros(num_devices, np.int64)
    if isinstance(min_nodes, Mapping):
        for number, size in min_nodes.items():
            if not 0 <= _whole(number, "a device number in min_nodes", 0) < num_devices:
                raise PartitionError(f"min_nodes names device {number}, but allowed has {num_devices} columns")
            sizes[number] = min(_whole(size, f"min_nodes[{number}]", 0), _MOST)
    else:
        sizes[:] = min(_whole(min_nodes, "min_nodes", 0), _MOST)
    return sizes
