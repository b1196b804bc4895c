"""Compares two results of one computation, and finds the tolerance that makes them pass."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import shown
from .maps import table_of_maps

__all__ = ["Difference", "difference"]

_INF = math.inf


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """One value on two devices.

    ``largest``: max |Δ|; ``relative``: max |Δ| / max |reference|; both over elements that are finite on both devices.
    ``off``: number of elements that fail. ``least_rtol``: the smallest relative tolerance that passes all elements with
    the given absolute tolerance, and ``least_atol`` the reverse; infinite if no tolerance does. ``subgraph``: the
    subgraph that computes the value, counted from 1.
    """

    name: str
    dtype: str | None
    shape: tuple[int, ...] | None
    largest: float
    relative: float
    off: int
    least_rtol: float
    least_atol: float
    verdict: str
    subgraph: int | None = None

    @property
    def passes(self) -> bool:
        return self.off == 0

    @property
    def badness(self) -> float:
        """Sort key: larger is worse."""
        return _INF if self.least_atol == _INF else self.relative

    def as_json(self) -> dict[str, Any]:
        shape = None if self.shape is None else list(self.shape)
        return {**dataclasses.asdict(self), "shape": shape, "passes": self.passes}


def difference(
    name: str, found: Any, expected: Any, rtol: float, atol: float, subgraph: int | None = None
) -> Difference:
    """Compares two results: arrays, sequences of them, or lists of maps from keys to numbers. Elements pass if |Δ| ≤
    atol + rtol · |expected|, if both are NaN, or if they are equal. Non-float values must match exactly."""
    table, expected_table = table_of_maps(found), table_of_maps(expected)
    if table is not None and expected_table is not None and table[0] == expected_table[0]:
        found, expected = table[1], expected_table[1]
    if not all(isinstance(value, (np.ndarray, list)) or value is None for value in (found, expected)):
        is_equal = type(found) is type(expected) and bool(found == expected)
        off, least = (0, 0.0) if is_equal else (1, _INF)
        verdict = "equal" if is_equal else f"is {shown(found)}, expected {shown(expected)}"
        return Difference(name, None, None, least, least, off, least, least, verdict, subgraph)
    if not isinstance(found, np.ndarray) or not isinstance(expected, np.ndarray):
        return _of_sequences(name, found, expected, rtol, atol, subgraph)
    dtype, shape = str(expected.dtype), expected.shape
    if found.shape != expected.shape or found.dtype != expected.dtype:
        mismatch = f"is {found.dtype} {list(found.shape)}, expected {dtype} {list(shape)}"
        return Difference(name, dtype, shape, _INF, _INF, max(expected.size, 1), _INF, _INF, mismatch, subgraph)
    if found.dtype.hasobject or found.dtype.kind in "USb" or (found.dtype.isbuiltin == 1 and found.dtype.kind in "iu"):
        return _exact(name, found, expected, subgraph)
    with np.errstate(all="ignore"):
        return _of_floats(name, found, expected, rtol, atol, subgraph)


def _exact(name: str, found: NDArray[Any], expected: NDArray[Any], subgraph: int | None) -> Difference:
    off = int(np.count_nonzero(found != expected))
    largest = relative = 0.0
    if off and found.dtype.kind in "iu":
        apart = np.abs(found.astype(np.float64) - expected.astype(np.float64))
        largest = float(apart.max())
        relative = largest / max(float(np.abs(expected.astype(np.float64)).max()), 1.0)
    elif off:
        largest = relative = 1.0
    tolerance = _INF if off else 0.0
    verdict = f"{off} of {found.size} differ" if off else "equal"
    return Difference(
        name, str(expected.dtype), expected.shape, largest, relative, off, tolerance, tolerance, verdict, subgraph
    )


def _of_floats(
    name: str, found: NDArray[Any], expected: NDArray[Any], rtol: float, atol: float, subgraph: int | None
) -> Difference:
    wide = np.complex128 if found.dtype.kind == "c" else np.float64
    one, other = found.astype(wide), expected.astype(wide)
    finite = np.isfinite(one) & np.isfinite(other)
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    odd = int(np.count_nonzero(~finite & ~same))  # NaN or infinite on one side only: fails with any tolerance
    apart = np.where(finite, np.abs(one - other), 0.0)
    size = np.where(finite, np.abs(other), 0.0)
    off = odd + int(np.count_nonzero(finite & ~same & ~(apart <= atol + rtol * size)))
    largest = float(apart.max(initial=0.0))
    highest = float(size.max(initial=0.0))
    beyond = apart > atol
    least_rtol = float(np.max(np.where(beyond, (apart - atol) / size, 0.0), initial=0.0))  # infinite where size is 0
    least_atol = float(np.max(apart - rtol * size, initial=0.0))
    if odd:
        least_rtol = least_atol = _INF
    verdict = "equal" if bool(same.all()) else "passes" if not off else "differs"
    if odd:
        verdict = f"differs; {odd} NaN or infinite on one side alone"
    relative = largest / highest if highest else (_INF if largest else 0.0)
    return Difference(
        name, str(expected.dtype), expected.shape, largest, relative, off, least_rtol, max(least_atol, 0.0), verdict,
        subgraph,
    )  # fmt: skip


def _of_sequences(name: str, found: Any, expected: Any, rtol: float, atol: float, subgraph: int | None) -> Difference:
    """The worst item of a sequence. An item that one side lacks is the worst."""
    one = [] if found is None else found if isinstance(found, list) else [found]
    other = [] if expected is None else expected if isinstance(expected, list) else [expected]
    if len(one) != len(other):
        mismatch = f"has {len(one)} arrays, expected {len(other)}"
        return Difference(name, None, None, _INF, _INF, 1, _INF, _INF, mismatch, subgraph)
    items = [difference(name, *pair, rtol, atol, subgraph) for pair in zip(one, other, strict=True)]
    if not items:
        return Difference(name, None, None, 0.0, 0.0, 0, 0.0, 0.0, "equal", subgraph)
    worst = max(items, key=lambda item: (not item.passes, item.badness))
    return dataclasses.replace(
        worst,
        off=sum(item.off for item in items),
        least_rtol=max(item.least_rtol for item in items),
        least_atol=max(item.least_atol for item in items),
    )
