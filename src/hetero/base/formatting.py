"""Formats counts, bytes, durations and shapes for errors, plans, reports and commands."""

from __future__ import annotations

from collections.abc import Sequence

from .names import short

__all__ = ["byte_size", "counted", "duration", "shape_text"]

_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")


def counted(number: int, noun: str) -> str:
    """``1 node``, ``2 nodes``, ``1,234 nodes``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(seconds: float) -> str:
    """Seconds with three significant digits: ``850 ns``, ``12.3 µs``, ``4.56 ms``, ``7.89 s``."""
    for unit, name in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds * 1e9:.3g} ns"


def byte_size(number: float) -> str:
    """Bytes with three significant digits: ``12 B``, ``1.23 MB``."""
    value, unit = float(number), 0
    while value >= 999.5 and unit < len(_BYTE_UNITS) - 1:
        value /= 1000
        unit += 1
    if not unit:
        return f"{value:.0f} B"
    return f"{value:.{max(0, 2 - (value >= 9.995) - (value >= 99.95))}f} {_BYTE_UNITS[unit]}"


def shape_text(shape: Sequence[int | str | None] | None, unknown: str = "?", *, compact: bool = False) -> str:
    """``[1, 3, height, ?]``, or ``unknown`` if the rank is unknown.

    ``compact``: write a shape without unknown sizes as ``1x3x224x224`` or ``scalar``, as ``--shape`` expects it.
    """
    if shape is None:
        return unknown
    if compact and all(isinstance(dim, int) for dim in shape):
        return "x".join(map(str, shape)) or "scalar"
    return f"[{', '.join('?' if dim is None else short(str(dim)) for dim in shape)}]"
