"""The order in which devices are filled."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .values import Values

__all__ = ["late_order"]


def late_order(values: Values) -> NDArray[np.int64]:
    """int64 [num_nodes]: the nodes in a topological order, that of their numbers but that one which depends on no input
    of the model comes just before the first that reads it and does.

    Such nodes make weights, shapes and the like, and exporters write them anywhere before their readers. With a cut in
    between each would be an island.
    """
    n = values.num_nodes
    has_inputs = np.zeros(n, np.bool_)
    given = (values.producer < 0) & ~values.is_constant
    has_inputs[values.read_node[given[values.read_value]]] = True
    producer = values.producer[values.read_value]
    made = producer >= 0
    producer, reader = producer[made], values.read_node[made]
    by_producer = np.lexsort((reader, producer))
    edges = list(zip(producer[by_producer].tolist(), reader[by_producer].tolist(), strict=True))
    depends = has_inputs.tolist()
    for before, after in edges:
        depends[after] = depends[after] or depends[before]
    if all(depends):
        return np.arange(n)
    needed_at = [node if depends[node] else n for node in range(n)]
    for before, after in reversed(edges):
        if not depends[before]:
            needed_at[before] = min(needed_at[before], needed_at[after])
    return np.lexsort((np.arange(n), np.array(depends), np.array(needed_at)))
