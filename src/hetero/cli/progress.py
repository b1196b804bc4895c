"""Shows progress on stderr if it is a terminal: a bar or a spinner, one at a time."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, TextIO

from .text import clean

__all__ = ["progress", "working"]

_INTERVAL_S = 0.1  # between repaints
_BAR = 40  # characters
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"

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
    if _is_showing.get() or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda done: None
        return
    token = _is_showing.set(True)
    line = _Line(sys.stderr, clean(what), is_bar)
    sys.stderr = line
    line.start()
    try:
        yield line.tell
    finally:
        sys.stderr = line.stream
        line.stop()
        _is_showing.reset(token)


class _Line:
    """The last line of a terminal, which a thread repaints. It takes the place of ``sys.stderr``, so that warnings and
    logs appear above it."""

    def __init__(self, stream: TextIO, what: str, is_bar: bool) -> None:
        self.stream = stream
        self._what, self._is_bar, self._done = what, is_bar, 0.0
        self._begin = time.monotonic()
        self._shown = ""
        self._may_show = True  # text of others whose line has not ended stays
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._repaint, name="hetero-progress", daemon=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        with self._lock:
            self._erase()
            self._may_show = text.endswith("\n") if text else self._may_show
            return self.stream.write(text)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()
        self._erase()
        self.stream.flush()

    def tell(self, done: float) -> None:
        self._done = min(max(done, 0.0), 1.0)

    def _repaint(self) -> None:
        while True:
            with self._lock:
                if self._may_show:
                    self._erase()
                    self._shown = self._text()[: shutil.get_terminal_size().columns - 1]
                    self.stream.write(self._shown)
                    self.stream.flush()
            if self._ended.wait(_INTERVAL_S):
                return

    def _erase(self) -> None:
        if self._shown:  # with blanks: consoles of Windows may not know escape sequences
            self.stream.write(f"\r{' ' * len(self._shown)}\r")
            self._shown = ""

    def _text(self) -> str:
        passed = time.monotonic() - self._begin
        if not self._is_bar:
            frame = _FRAMES[int(passed / _INTERVAL_S) % len(_FRAMES)]
            return f"{frame} {self._what} {_clock(passed)}"
        filled = int(self._done * _BAR)
        remaining = _clock(passed / self._done - passed) if self._done else "-:--:--"
        return f"{self._what} {'━' * filled}{'─' * (_BAR - filled)} {remaining}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
