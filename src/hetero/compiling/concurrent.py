"""Concurrent calls in daemon threads, which do not prevent the interpreter from exiting.

`concurrent.futures` waits for its threads when the interpreter exits, so a thread that hangs would block the exit.
"""

from __future__ import annotations

import collections
import contextvars
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

__all__ = ["ConcurrentCalls"]

_SIGNAL_LATENCY = 0.5
"""s. A signal that arrives just before a thread blocks does not end the wait (CPython), so waits are this short."""

Given = TypeVar("Given")


class ConcurrentCalls(Generic[Given]):
    """Starts ``calls`` in their order, at most ``threads`` at the same time, in the context of the caller."""

    def __init__(self, calls: Sequence[Callable[[], Given]], threads: int) -> None:
        self._waiting = collections.deque(enumerate(calls))
        self._done = [threading.Event() for _ in calls]
        self._outcomes: list[tuple[bool, Any] | None] = [None] * len(calls)
        self._threads = [
            threading.Thread(
                target=contextvars.copy_context().run, args=(self._work,), name=f"hetero compile {number}", daemon=True
            )
            for number in range(min(threads, len(calls)))
        ]
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        while True:
            try:
                number, call = self._waiting.popleft()
            except IndexError:
                return
            try:
                self._outcomes[number] = (True, call())
            except BaseException as error:  # `result` raises it
                self._outcomes[number] = (False, error)
            self._done[number].set()

    def result(self, number: int) -> Given:
        """Wait for a call, and return its result or raise its exception."""
        while not self._done[number].wait(_SIGNAL_LATENCY):
            pass
        outcome = self._outcomes[number]
        assert outcome is not None
        succeeded, what = outcome
        if succeeded:
            given: Given = what
            return given
        raise what

    def stop(self, wait: bool) -> None:
        """Start no more calls. ``wait``: wait until the running calls are done."""
        self._waiting.clear()
        if wait:
            for thread in self._threads:
                thread.join()
