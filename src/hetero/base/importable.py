"""References to functions that another process can import: the module and the qualified name."""

from __future__ import annotations

import functools
import importlib
import sys
from typing import Any

__all__ = ["import_name", "imported"]


def import_name(function: object) -> str | None:
    """``module:name`` if an import returns the same object. None for local functions, lambdas and scripts."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__":
        return None
    try:
        imported_object = functools.reduce(getattr, name.split("."), sys.modules.get(module))
    except AttributeError:
        return None
    return f"{module}:{name}" if imported_object is function else None


def imported(name: str) -> Any:
    """The object for a name from `import_name`. Raises the errors of importing, and `AttributeError`."""
    module, _, path = name.partition(":")
    return functools.reduce(getattr, path.split("."), importlib.import_module(module))
