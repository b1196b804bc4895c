"""Warnings that point at the user's line. Each is issued once per call, even if several stages find the problem."""

from __future__ import annotations

import contextlib
import contextvars
import sys
import warnings
from collections.abc import Iterator

__all__ = ["each_once", "warn"]

_told: contextvars.ContextVar[set[str] | None] = contextvars.ContextVar("hetero_told", default=None)


@contextlib.contextmanager
def each_once() -> Iterator[None]:
    """While the block runs, `warn` issues each message once. Blocks may be nested; the outermost counts."""
    token = None if _told.get() is not None else _told.set(set())
    try:
        yield
    finally:
        if token is not None:
            _told.reset(token)


def warn(message: str, about: str = "") -> None:
    """Issue a ``RuntimeWarning`` at the line that called into hetero. ``about``: of the messages with the same text
    here, such as those on the nested graphs of a model, `each_once` issues only the first."""
    told = _told.get()
    if told is not None:
        if (about or message) in told:
            return
        told.add(about or message)
    level = 1
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("hetero", "contextlib"):
        frame = frame.f_back  # type: ignore[assignment]
        level += 1
    warnings.warn(message, RuntimeWarning, stacklevel=level + 1)
