"""The memory of contiguous ranges of nodes, each as one subgraph on a device of its own, such as a pipeline's stage.

One pass over the steps from a beginning b gives the exact need for every end e. Constants and inputs of the range are
held while it runs, so both grow with e by what is read for the first time since b. A value that is made since b and
read after e is held until the range is done, so the bytes alive at a step do not depend on e.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...base.grouped import group_max
from .values import Values

__all__ = ["RangeMemory"]


class RangeMemory:
    """Memory of ranges ``order[begin:end]`` of a topological order of the nodes.

    ``order``: int [num_nodes], a topological order; None: by number. The need of a range never falls as its end grows.
    """

    def __init__(self, values: Values, order: ArrayLike | None = None) -> None:
        n = values.num_nodes
        step = np.arange(n)
        if order is not None:
            step = np.empty(n, np.int64)
            step[np.asarray(order)] = np.arange(n)
        self._n = n
        read_step = step[values.read_node]
        by_step = np.lexsort((values.read_value, read_step))
        value, read_at = values.read_value[by_step], read_step[by_step]
        # For each read: the step of the read of the same value before it, and the step that makes the value; else -1.
        by_value = np.lexsort((read_at, value))
        previous = np.full(len(value), -1)
        is_repeated = value[by_value][1:] == value[by_value][:-1]
        previous[by_value[1:][is_repeated]] = read_at[by_value[:-1][is_repeated]]
        self._read_at = read_at
        self._read_previous = previous
        self._read_bytes = values.bytes[value]
        self._read_constant = values.is_constant[value]
        producer = values.producer[value]
        self._read_made = np.where(producer >= 0, step[np.maximum(producer, 0)], -1)
        self._first_read = np.searchsorted(read_at, np.arange(n + 1))
        # For each value that a node makes, by step: the last step that reads it, n for outputs.
        made = np.flatnonzero(values.producer >= 0)
        made_at = step[values.producer[made]]
        last = group_max(read_step, values.read_value, len(values.producer), -1)
        until = np.maximum(last[made], made_at)
        until[values.is_output[made]] = n
        by_made = np.argsort(made_at, kind="stable")
        self._made_at, self._until, self._made_bytes = made_at[by_made], until[by_made], values.bytes[made[by_made]]
        self._first_made = np.searchsorted(self._made_at, np.arange(n + 1))
        self._own = values.own if order is None else values.own[np.asarray(order)]

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
        end = self._n if end is None else end
        if not 0 <= begin <= end <= self._n:
            raise IndexError(f"range {begin} .. {end} is not within 0 .. {self._n}")
        count = end - begin
        reads = slice(self._first_read[begin], self._first_read[end])
        is_first = self._read_previous[reads] < begin
        at = self._read_at[reads][is_first] - begin
        size = self._read_bytes[reads][is_first]
        constant = self._read_constant[reads][is_first]
        arriving = ~constant & (self._read_made[reads][is_first] < begin)
        weights = np.cumsum(np.bincount(at[constant], size[constant], count) + self._own[begin:end], dtype=np.float64)
        held = np.cumsum(np.bincount(at[arriving], size[arriving], count), dtype=np.float64)
        made = slice(self._first_made[begin], self._first_made[end])
        size = self._made_bytes[made]
        change = np.bincount(self._made_at[made] - begin, size, count + 1)
        change -= np.bincount(np.minimum(self._until[made], end - 1) + 1 - begin, size, count + 1)
        alive = np.cumsum(change[:count], dtype=np.float64)
        return weights, held + np.maximum.accumulate(alive)

    def need(self, begin: int, end: int) -> float:
        """Bytes of one range."""
        return float(self.needs_from(begin, end)[-1]) if end > begin else 0.0

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
        window = 1024
        while True:
            end = min(self._n, begin + window)
            count = int(np.searchsorted(self.needs_from(begin, end), limit, side="right"))
            if count < end - begin or end == self._n:
                return begin + count
            window *= 2
