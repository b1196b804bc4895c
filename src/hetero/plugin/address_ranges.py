"""Which values share memory, by the addresses of their first and last bytes."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from typing import Any

import numpy as np

from .._kernels import range_of
from .remote import HOST_DEVICE, RemoteTensor

__all__ = ["AddressRanges", "UsedMemory", "range_of", "ranges_of"]


class AddressRanges:
    """A set of address ranges ``[begin, end)``, merged where they overlap. A search takes O(log n)."""

    __slots__ = ("_begins", "_ends")

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []

    def overlaps(self, begin: int, end: int) -> bool:
        """Whether the range has a byte in common with the set."""
        before = bisect.bisect_left(self._begins, end)
        return begin < end and before > 0 and self._ends[before - 1] > begin

    def add(self, begin: int, end: int) -> None:
        """Add a range; an empty one changes nothing."""
        if begin >= end:
            return
        first = bisect.bisect_left(self._ends, begin)
        last = bisect.bisect_right(self._begins, end)
        if first < last:  # merge with the ranges that it touches
            begin = min(begin, self._begins[first])
            end = max(end, self._ends[last - 1])
        self._begins[first:last] = [begin]
        self._ends[first:last] = [end]


class UsedMemory:
    """The memory of arrays, also in lists, and of tensors in the memories of devices. Other values have none, and
    neither have tensors without a context."""

    __slots__ = ("_host", "_in_context", "_tensors")

    def __init__(self, values: Iterable[Any] = ()) -> None:
        self._host = AddressRanges()
        self._in_context: dict[int, AddressRanges] = {}  # by the id of the context
        self._tensors: set[int] = set()  # the ids of those without an `address_range`
        for value in values:
            self.add(value)

    def overlaps(self, value: np.ndarray | RemoteTensor) -> bool:
        """Whether the value has a byte in common with those that were added."""
        if isinstance(value, np.ndarray):
            return self._host.overlaps(*range_of(value))
        place = value.address_range
        if place is None:
            return id(value) in self._tensors
        return self._ranges_for(value).overlaps(*place)

    def add(self, value: Any) -> None:
        """Add a value, which must live as long as this object."""
        if isinstance(value, np.ndarray):
            self._host.add(*range_of(value))
        elif isinstance(value, list):
            for item in value:
                self.add(item)
        elif isinstance(value, RemoteTensor) and value.context is not None:
            place = value.address_range
            if place is None:
                self._tensors.add(id(value))
            else:
                self._ranges_for(value).add(*place)

    def _ranges_for(self, tensor: RemoteTensor) -> AddressRanges:
        """The addresses that those of a tensor are compared with."""
        if tensor.__dlpack_device__()[0] == HOST_DEVICE:  # a context may adopt an array's memory
            return self._host
        return self._in_context.setdefault(id(tensor.context), AddressRanges())


def ranges_of(arrays: Iterable[np.ndarray]) -> AddressRanges:
    """The addresses of several arrays."""
    ranges = AddressRanges()
    for array in arrays:
        ranges.add(*range_of(array))
    return ranges
