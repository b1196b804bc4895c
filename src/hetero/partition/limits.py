"""Limits on the size of subgraphs: which nodes fall to the next device."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import PartitionError

__all__ = ["MinNodes", "allowed_mask", "fall_back", "smallest_sizes"]

MinNodes = int | Mapping[int, int]


def allowed_mask(allowed: ArrayLike | None, num_nodes: int, device: NDArray[np.integer]) -> NDArray[np.bool_]:
    """``allowed`` as a bool array [num_nodes, num_devices], or PartitionError."""
    if allowed is None:
        raise PartitionError("min_nodes needs allowed: a bool array [num_nodes, num_devices] of who may take what")
    mask = np.asarray(allowed)
    if mask.ndim != 2 or mask.shape[0] != num_nodes:
        raise PartitionError(f"allowed must have shape ({num_nodes}, num_devices), found {mask.shape}")
    if mask.dtype != np.bool_:
        raise PartitionError(f"allowed must be an array of bool, found dtype {mask.dtype}")
    if num_nodes and int(device.max()) >= mask.shape[1]:
        raise PartitionError(f"allowed has {mask.shape[1]} columns, but device number {device.max()} occurs")
    return mask


def smallest_sizes(min_nodes: MinNodes, num_devices: int) -> NDArray[np.int64]:
    """The smallest size of a subgraph by device number, from one number for all or a mapping."""
    sizes = np.zeros(num_devices, np.int64)
    if isinstance(min_nodes, Mapping):
        for number, size in min_nodes.items():
            if not 0 <= number < num_devices:
                raise PartitionError(f"min_nodes names device {number}, but allowed has {num_devices} columns")
            sizes[number] = size
    else:
        sizes[:] = min_nodes
    if (sizes < 0).any():
        raise PartitionError(f"min_nodes must be zero or more, found {sizes.min()}")
    return sizes


def fall_back(
    device: NDArray[np.integer],
    subgraph_of: NDArray[np.int32],
    device_of: NDArray[np.int32],
    sizes: NDArray[np.int64],
    allowed: NDArray[np.bool_],
) -> NDArray[np.integer] | None:
    """Device numbers after the too small subgraphs of one device went, whole, each to the next that may take it.

    The device is the first that has any: what falls from it makes the subgraphs of later ones larger. None when no
    subgraph is too small, or no later device may take any that is. O(nodes * devices).
    """
    count = np.bincount(subgraph_of, minlength=len(device_of))
    small = count < sizes[device_of]
    target = np.full(len(device_of), -1)
    for number in range(allowed.shape[1] - 1, -1, -1):
        if not small[device_of < number].any():
            continue
        may_take = np.bincount(subgraph_of, weights=allowed[:, number], minlength=len(device_of)) == count
        target = np.where(small & (device_of < number) & may_take, number, target)
    if (target < 0).all():
        return None
    target[device_of != device_of[target >= 0].min()] = -1
    moved = target[subgraph_of]
    return np.where(moved >= 0, moved, device)
