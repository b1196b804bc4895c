"""The minimum and the maximum of each group, and distinct numbers.

`ufunc.at` is not used, because in NumPy 2.4 it crashes or fails without an exception if memory is short.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["distinct", "group_max", "group_min"]


def group_min(
    numbers: NDArray[np.integer], group: NDArray[np.integer], num_groups: int, none: int
) -> NDArray[np.int64]:
    """int64 [num_groups]: the minimum of each group; ``none`` for an empty group.

    ``group``: the group of each number, 0 .. num_groups - 1.
    """
    minima = np.full(num_groups, none, np.int64)
    if len(numbers):
        order = np.argsort(group, kind="stable")
        groups = group[order]
        begins = np.flatnonzero(np.concatenate([[True], groups[1:] != groups[:-1]]))
        at = groups[begins]
        minima[at] = np.minimum.reduceat(numbers[order].astype(np.int64, copy=False), begins)
    return minima


def group_max(
    numbers: NDArray[np.integer], group: NDArray[np.integer], num_groups: int, none: int
) -> NDArray[np.int64]:
    """int64 [num_groups]: the maximum of each group; ``none`` for an empty group."""
    return -group_min(-numbers.astype(np.int64, copy=False), group, num_groups, -none)


def distinct(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """The distinct numbers, ascending, which are not negative. Faster than np.unique, which hashes, if they are nearly
    sorted."""
    ordered = np.sort(numbers, kind="stable")
    is_first: NDArray[np.bool_] = np.diff(ordered, prepend=-1) != 0
    return ordered[is_first]
