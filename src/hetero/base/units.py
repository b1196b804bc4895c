"""Numbers for people: sizes, times and counts with the unit that fits."""

from __future__ import annotations

__all__ = ["bytes_text", "count_text", "time_text"]


def bytes_text(size: float) -> str:
    """As 12 B, 3.4 kB, 56 MB: in thousands, as plans and commands say it."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.0f} B" if unit == "B" else f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def time_text(nanoseconds: float) -> str:
    """As 850 ns, 12.3 µs, 4.56 ms, 7.89 s."""
    for unit, length in (("ns", 1.0), ("µs", 1e3), ("ms", 1e6)):
        if nanoseconds < 1000 * length:
            return f"{nanoseconds / length:.3g} {unit}"
    return f"{nanoseconds / 1e9:.3g} s"


def count_text(number: int, what: str) -> str:
    """As 1 node, 1,234 nodes."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
