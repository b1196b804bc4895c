"""NumPy scalars and subclasses of ``str`` that callers pass where Python values are expected."""

from __future__ import annotations

from typing import Any

__all__ = ["plain"]


def plain(value: Any) -> Any:
    """The Python value of a NumPy scalar or of an instance of a subclass of ``str``, such as a member of a ``StrEnum``;
    other values unchanged."""
    if isinstance(value, str):  # the class first: np.str_ is both, and C code accepts exact strings only
        return value if type(value) is str else str.__str__(value)
    if type(value).__module__ != "numpy":
        return value
    import numpy as np  # late: the value's type shows that it is loaded

    return value.item() if isinstance(value, (np.bool_, np.integer, np.floating)) else value
