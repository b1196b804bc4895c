"""Words that messages, tables and explanations share."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["counted", "duration", "first_few", "short", "size"]

_WIDEST = 40  # characters of a name

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")


def counted(number: int, noun: str) -> str:
    """``1 node``, ``2 nodes``, ``1,234 nodes``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(seconds: float) -> str:
    """Three digits: ``12.3 ms``."""
    for unit, name in ((1, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds * 1e9:.3g} ns"


def first_few(names: Sequence[str], most: int = 5, total: int | None = None) -> str:
    """The first names, quoted, and how many more there are of ``total``."""
    count = len(names) if total is None else total
    text = ", ".join(repr(short(name)) for name in names[:most])
    shown = min(len(names), most)
    return f"{text} and {count - shown} more" if count > shown else text


def short(name: str) -> str:
    """A name without control characters, and not too wide."""
    name = "".join(c if c.isprintable() else " " for c in name)
    return name if len(name) <= _WIDEST else f"{name[: _WIDEST // 2 - 2]}...{name[-(_WIDEST // 2 - 1) :]}"


def size(number: int) -> str:
    """Bytes with three digits: ``1.23 MB``."""
    value, unit = float(number), 0
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value /= 1000
        unit += 1
    if not unit:
        return f"{number} B"
    return f"{value:.{max(0, 2 - (value >= 9.995) - (value >= 99.95))}f} {_UNITS[unit]}"
