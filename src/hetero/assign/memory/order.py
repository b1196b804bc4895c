"""The order in which devices are filled."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .values import Values

__all__ = ["late_order"]


def late_order(values: Values) -> NDArray[np.int64]:
    """int64 [num_nodes]: a topological order by number, with nodes that do not depend on any input as late as possible.

    Such nodes compute weights, shapes and the like, and exporters may write them far ahead of their readers. They are
    placed just before the first node that depends on an input and reads their results, directly or through other such
    nodes. Otherwise a cut in between would make each of them a subgraph of its own.
    """
    return values.arrays.late_order()
