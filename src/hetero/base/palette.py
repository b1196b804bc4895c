"""Colors of devices: the same in all pictures, and distinguishable for all kinds of color vision.

The eight colors are from Okabe and Ito (*Color Universal Design*, 2008). The first two, blue and orange, are the pair
with the greatest contrast. A ninth device reuses the first color; all pictures also name the devices.
"""

from __future__ import annotations

__all__ = ["COLORS", "device_color", "shade", "tint"]

COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#888888")


def device_color(number: int) -> str:
    """The color of device ``number`` of the list, as ``#rrggbb``."""
    return COLORS[number % len(COLORS)]


def tint(color: str, share: float) -> str:
    """``color`` mixed with white; ``share`` 0 is white, 1 the color itself."""
    return _mixed(color, 255, share)


def shade(color: str, share: float) -> str:
    """``color`` mixed with black; ``share`` 0 is black, 1 the color itself."""
    return _mixed(color, 0, share)


def _mixed(color: str, other: int, share: float) -> str:
    parts = (int(color[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(other + (part - other) * share):02x}" for part in parts)
