"""Lists of maps, which the operator ZipMap returns: one map from class to score for each row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["table_of_maps"]


def table_of_maps(value: Any) -> tuple[list[Any], NDArray[np.float64]] | None:
    """The keys, and the values as an array with one row for each map, of a list of maps from the same keys to numbers.
    None for other values."""
    if not isinstance(value, list) or not value or not all(isinstance(item, Mapping) for item in value):
        return None
    keys = list(value[0])
    if any(list(item) != keys for item in value):
        return None
    try:
        return keys, np.array([list(item.values()) for item in value], np.float64).reshape(len(value), len(keys))
    except (TypeError, ValueError):
        return None
