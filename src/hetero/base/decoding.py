"""Decodes JSON against a type, from any thread.

msgspec examines a type when it is first used. If another thread uses the type meanwhile, the process crashes (msgspec
0.22), so one thread at a time examines types here.
"""

from __future__ import annotations

import os
import threading
from typing import Any, TypeVar

__all__ = ["decode_json", "place_in"]

_T = TypeVar("_T")

_lock = threading.Lock()
_decoders: dict[Any, Any] = {}

if hasattr(os, "register_at_fork"):  # no child starts with a type that is half examined
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def decode_json(data: str | bytes | memoryview, type: type[_T]) -> _T:
    """``data`` as a ``type``. Raises as ``msgspec.json.decode`` does."""
    import msgspec

    decoder = _decoders.get(type)
    if decoder is None:
        with _lock:
            decoder = _decoders.setdefault(type, msgspec.json.Decoder(type))
    found: _T = decoder.decode(data)
    return found


def place_in(data: bytes | memoryview, position: int) -> str:
    """Line and column of a byte, counted from 1."""
    before = bytes(data[:position])
    return f"line {before.count(10) + 1}, column {position - before.rfind(10)}"
