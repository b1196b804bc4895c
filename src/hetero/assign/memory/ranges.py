"""The memory of contiguous ranges of nodes, each as one subgraph on a device of its own, such as a pipeline's stage.

One pass over the steps from a beginning b gives the exact need for every end e. Constants and inputs of the range are
held while it runs, so both grow with e by what is read for the first time since b. A value that is made since b and
read after e is held until the range is done, so the bytes alive at a step do not depend on e.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ... import _assign
from .values import Values

__all__ = ["RangeMemory"]


class RangeMemory:
    """Memory of ranges ``order[begin:end]`` of a topological order of the nodes.

    ``order``: int [num_nodes], a topological order; None: by number. The need of a range never falls as its end grows.
    """

    def __init__(self, values: Values, order: ArrayLike | None = None) -> None:
        n = values.num_nodes
        step = np.arange(n, dtype=np.int32)
        if order is not None:
            step[np.asarray(order)] = np.arange(n, dtype=np.int32)
        self._n = n
        self._ranges = _assign.Ranges(values.arrays, step)

    @property
    def num_nodes(self) -> int:
        """The number of nodes."""
        return self._n

    def needs_from(self, begin: int, end: int | None = None) -> NDArray[np.float64]:
        """float64 [end - begin], ascending: the bytes of the range ``begin .. begin + i + 1``, for each i."""
        weights, activations = self.parts_from(begin, end)
        return weights + activations

    def parts_from(self, begin: int, end: int | None = None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """float64 [end - begin] each: bytes of constants, and the peak bytes of other values that are alive at one
        time, of the range ``begin .. begin + i + 1``, for each i.

        O(nodes and reads of the range). Raises IndexError unless 0 <= begin <= end <= num_nodes.
        """
        return self._ranges.parts_from(begin, self._n if end is None else end)

    def need(self, begin: int, end: int) -> float:
        """Bytes of one range."""
        return self._ranges.need(begin, end)

    def reach_back(self, end: int, limit: float) -> int:
        """A beginning from which the range up to ``end`` needs at most ``limit`` bytes, and would need more with one
        node before it; ``end`` if not even one node fits. O(m * log m) for a range of m nodes and reads.

        An even earlier beginning may fit too: a range that makes a value itself need not hold it as an input.
        """
        begin, step = end, 1  # the range from `begin` fits
        while begin and self.need(max(0, begin - step), end) <= limit:
            begin, step = max(0, begin - step), 2 * step
        too_early = max(0, begin - step)  # unless `begin` is 0
        while begin - too_early > 1:
            middle = (begin + too_early) // 2
            if self.need(middle, end) <= limit:
                begin = middle
            else:
                too_early = middle
        return begin

    def longest(self, begin: int, limit: float) -> int:
        """The largest end such that the range from ``begin`` needs at most ``limit`` bytes; ``begin`` if not even one
        node fits. O(m) for a result of m nodes and their reads."""
        return self._ranges.longest(begin, limit)
