"""Shows progress on stderr if it is a terminal: a bar or a spinner, one at a time."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar

from .text import clean

__all__ = ["progress", "working"]

_is_showing: ContextVar[bool] = ContextVar("_is_showing", default=False)


@contextlib.contextmanager
def progress(what: str) -> Iterator[Callable[[float], None]]:
    """Shows a bar. Yields a function that sets the progress, from 0 to 1."""
    with _shown(what, is_bar=True) as tell:
        yield tell


@contextlib.contextmanager
def working(what: str) -> Iterator[None]:
    """Shows a spinner, for work without a known length."""
    with _shown(what, is_bar=False):
        yield


@contextlib.contextmanager
def _shown(what: str, is_bar: bool) -> Iterator[Callable[[float], None]]:
    if _is_showing.get() or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    text = TextColumn("{task.description}", markup=False)
    bar_columns = (text, BarColumn(), TimeRemainingColumn())
    columns = bar_columns if is_bar else (SpinnerColumn(), text, TimeElapsedColumn())
    token = _is_showing.set(True)
    try:
        with Progress(*columns, console=Console(stderr=True, highlight=False), transient=True) as shown:
            task = shown.add_task(clean(what), total=1.0)
            yield lambda done: shown.update(task, completed=done)
    finally:
        _is_showing.reset(token)
