"""Warnings that point at the user's line. Each is issued once per call, even if several stages find the problem."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import sys
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import Any

__all__ = ["CallSite", "each_once", "warn"]

# Modules whose lines are not the user's. The first function of a thread that hetero starts is in `threading`.
_NOT_THE_USER = ("hetero", "contextlib", "threading")


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class CallSite:
    """A line that called into hetero. ``registry``: in which its module remembers the warnings that it showed."""

    file: str
    line: int
    module: str
    registry: dict[Any, Any]

    @classmethod
    def current(cls) -> CallSite | None:
        """The line that the calling thread came from; in a thread of hetero, the one of `each_once`. None: unknown."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _NOT_THE_USER:
            frame = frame.f_back
        if frame is None:
            scope = _scope.get()
            return None if scope is None else scope.site
        names = frame.f_globals
        registry = names.setdefault("__warningregistry__", {})
        return cls(frame.f_code.co_filename, frame.f_lineno, names.get("__name__", "<unknown>"), registry)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Scope:
    """A call into hetero: where it is, and the warnings that it has issued."""

    site: CallSite | None
    told: set[str]


_scope: contextvars.ContextVar[_Scope | None] = contextvars.ContextVar("hetero_scope", default=None)


@contextlib.contextmanager
def each_once() -> Iterator[None]:
    """While the block runs, `warn` issues each message once, also in threads with a copy of the context. Blocks may be
    nested; the outermost counts."""
    token = None if _scope.get() is not None else _scope.set(_Scope(CallSite.current(), set()))
    try:
        yield
    finally:
        if token is not None:
            _scope.reset(token)


def warn(message: str, about: str = "", otherwise: CallSite | None = None) -> None:
    """Issue a ``RuntimeWarning`` at the line that called into hetero. ``about``: of the messages with the same text
    here, such as those on the nested graphs of a model, `each_once` issues only the first. ``otherwise``: the line if
    this is a thread of hetero that no call waits for."""
    scope = _scope.get()
    if scope is not None:
        if (about or message) in scope.told:
            return
        scope.told.add(about or message)
    site = CallSite.current() or otherwise
    if site is None:
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    else:
        warnings.warn_explicit(message, RuntimeWarning, site.file, site.line, site.module, site.registry)
