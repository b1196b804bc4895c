"""The type of the tables of corrections."""

from __future__ import annotations

from typing import Any, TypeAlias

__all__ = ["Corrections", "since"]

Corrections: TypeAlias = tuple[tuple[str, str, int, int | None, type[Any]], ...]
"""Each entry: domain, operator, first and last operator set version (None: no last one), and class."""


def since(version: int, *classes: type[Any], domain: str = "") -> Corrections:
    """One entry for each class, named after its operator, from ``version`` on."""
    return tuple((domain, run_class.__name__, version, None, run_class) for run_class in classes)
