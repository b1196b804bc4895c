"""The operators of the device. Each module adds its own to `table.OPERATORS`."""

from __future__ import annotations

from . import convolution, elementwise, moves, products, rows, shapes
from .table import OPERATORS, Operator, PlannedNode, StaticNode

__all__ = [
    "OPERATORS",
    "Operator",
    "PlannedNode",
    "StaticNode",
    "convolution",
    "elementwise",
    "moves",
    "products",
    "rows",
    "shapes",
]
