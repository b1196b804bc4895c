"""Tables of distinct values, which columns refer to by number."""

from __future__ import annotations

from typing import TypeVar

__all__ = ["Numbers"]

_T = TypeVar("_T")


class Numbers(dict[_T, int]):
    """Distinct values in the order of their first use. ``numbers[value]`` adds a new value with the next number."""

    def __missing__(self, value: _T) -> int:
        number = self[value] = len(self)
        return number
