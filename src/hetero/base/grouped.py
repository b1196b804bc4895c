"""The least and the greatest number of each group.

Not by `ufunc.at`, which crashes or fails without a reason where memory is short (NumPy 2.4).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["least", "most"]


def least(numbers: NDArray[np.integer], group: NDArray[np.integer], num_groups: int, none: int) -> NDArray[np.int64]:
    """int64 [num_groups]: the least number of each group; ``none`` for a group without any.

    ``group``: per number its group, 0 .. num_groups - 1.
    """
    found = np.full(num_groups, none, np.int64)
    if len(numbers):
        order = np.argsort(group, kind="stable")
        groups = group[order]
        begins = np.flatnonzero(np.concatenate([[True], groups[1:] != groups[:-1]]))
        at = groups[begins]
        found[at] = np.minimum.reduceat(numbers[order].astype(np.int64, copy=False), begins)
    return found


def most(numbers: NDArray[np.integer], group: NDArray[np.integer], num_groups: int, none: int) -> NDArray[np.int64]:
    """int64 [num_groups]: the greatest number of each group; else as `least`."""
    return -least(-numbers.astype(np.int64, copy=False), group, num_groups, -none)
