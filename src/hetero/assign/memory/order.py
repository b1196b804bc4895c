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
    n = values.num_nodes
    reads_input = np.zeros(n, np.bool_)
    is_input = (values.producer < 0) & ~values.is_constant
    reads_input[values.read_node[is_input[values.read_value]]] = True
    producer = values.producer[values.read_value]
    is_edge = producer >= 0
    producer, reader = producer[is_edge], values.read_node[is_edge]
    by_producer = np.lexsort((reader, producer))
    edges = list(zip(producer[by_producer].tolist(), reader[by_producer].tolist(), strict=True))
    depends_on_input = reads_input.tolist()
    for source, target in edges:
        depends_on_input[target] = depends_on_input[target] or depends_on_input[source]
    if all(depends_on_input):
        return np.arange(n)
    needed_at = [node if depends_on_input[node] else n for node in range(n)]
    for source, target in reversed(edges):
        if not depends_on_input[source]:
            needed_at[source] = min(needed_at[source], needed_at[target])
    return np.lexsort((np.arange(n), np.array(depends_on_input), np.array(needed_at)))
