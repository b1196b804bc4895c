"""What contiguous ranges of the nodes take, each as one subgraph on a device of its own: stages of a pipeline.

For a fixed beginning b and every end e at once: constants, and inputs that come from before b and are held while the
stage runs, grow with e by what is read for the first time since b; and of what is made since b as much is alive at a
step as without an end, since what somebody reads after e is held until the stage is done. So one pass over the steps
from b gives all ends, exactly.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...base.grouped import group_max
from .values import Values

__all__ = ["RangeMemory"]


class RangeMemory:
    """Memory of ranges ``order[begin:end]`` of a topological order of the nodes.

    ``order``: int [num_nodes], a topological order; None: by number. What a range needs grows with its end.
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
        value, at = values.read_value[by_step], read_step[by_step]
        # Each read: its value's producer, and the step at which the same value was read before.
        same = np.lexsort((at, value))
        before = np.full(len(value), -1)
        again = value[same][1:] == value[same][:-1]
        before[same[1:][again]] = at[same[:-1][again]]
        self._read_at = at
        self._read_before = before
        self._read_bytes = values.bytes[value]
        self._read_constant = values.is_constant[value]
        producer = values.producer[value]
        self._read_made = np.where(producer >= 0, step[np.maximum(producer, 0)], -1)
        self._first_read = np.searchsorted(at, np.arange(n + 1))
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
        """How many nodes there are."""
        return self._n

    def needs_from(self, begin: int, end: int | None = None) -> NDArray[np.float64]:
        """float64 [end - begin]: bytes of the ranges ``begin .. begin + i + 1``, for every i; they ascend."""
        weights, activations = self.parts_from(begin, end)
        return weights + activations

    def parts_from(self, begin: int, end: int | None = None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """float64 [end - begin] each: constants, and the most of other values that is alive at one time, of the ranges
        ``begin .. begin + i + 1``. O(nodes and reads between). IndexError unless 0 <= begin <= end <= num_nodes."""
        end = self._n if end is None else end
        if not 0 <= begin <= end <= self._n:
            raise IndexError(f"there is no range {begin} .. {end} of {self._n} nodes")
        count = end - begin
        reads = slice(self._first_read[begin], self._first_read[end])
        new = self._read_before[reads] < begin
        at = self._read_at[reads][new] - begin
        size = self._read_bytes[reads][new]
        constant = self._read_constant[reads][new]
        arriving = ~constant & (self._read_made[reads][new] < begin)
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
        """A begin such that the range up to ``end`` takes no more than ``limit`` bytes, and with one node before it
        would take more; ``end`` where not even one node fits. O(the range * log of it).

        There may be earlier ones: a range that begins earlier makes what it would have to hold as an input otherwise,
        and can take less.
        """
        low, step = end, 1  # the range from `low` fits
        while low and self.need(max(0, low - step), end) <= limit:
            low, step = max(0, low - step), 2 * step
        high = max(0, low - step)  # too long, unless `low` is 0
        while low - high > 1:
            middle = (low + high) // 2
            if self.need(middle, end) <= limit:
                low = middle
            else:
                high = middle
        return low

    def longest(self, begin: int, limit: float) -> int:
        """The largest end such that the range from ``begin`` takes no more than ``limit`` bytes; ``begin`` where not
        even one node fits. O(the range that is found and as much again)."""
        reach = 1024
        while True:
            end = min(self._n, begin + reach)
            found = int(np.searchsorted(self.needs_from(begin, end), limit, side="right"))
            if found < end - begin or end == self._n:
                return begin + found
            reach *= 2
