"""NumPy scalars, subclasses of ``str``, and values of other libraries that callers pass where Python values are
expected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["plain", "stated_value"]


def plain(value: Any) -> Any:
    """The Python value of a NumPy scalar or of an instance of a subclass of ``str``, such as a member of a ``StrEnum``;
    other values unchanged."""
    if isinstance(value, str):  # the class first: np.str_ is both, and C code accepts exact strings only
        return value if type(value) is str else str.__str__(value)
    if type(value).__module__ != "numpy":
        return value
    import numpy as np  # late: the value's type shows that it is loaded

    return value.item() if isinstance(value, (np.bool_, np.integer, np.floating)) else value


def stated_value(value: Any) -> Any:
    """The value that an object of another library states, found without importing the library; other values unchanged.

    - A member of an enumeration states its name: its class has a mapping ``__members__`` that holds it under this name.
    - An object with a method ``to_integer`` or ``to_string`` states the result, which must be an integer or a string.
    - An object of a class ``OVAny``, such as in the pair that ``openvino.properties.enable_profiling(True)`` returns,
      states the value that it contains.
    """
    kind = type(value)
    if kind.__name__ == "OVAny":
        return stated_value(value.value)
    members, name = getattr(kind, "__members__", None), getattr(value, "name", None)
    if isinstance(members, Mapping) and isinstance(name, str) and type(members.get(name)) is kind:
        return name if members[name] == value else value
    for method, result in (("to_integer", int), ("to_string", str)):
        if callable(getattr(kind, method, None)):
            stated = getattr(value, method)()
            return stated if type(stated) is result else value
    return value
