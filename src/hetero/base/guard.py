"""Calls into plugins: each failure becomes an error that names device, stage and node.

A plugin may raise any exception, return invalid data, or hang. With ``PLUGIN_TIMEOUT_MS`` the call runs in a separate
thread and is abandoned after the timeout. The thread cannot be ended. It is a daemon thread, so the interpreter can
exit, and its result is dropped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from ..errors import HeteroError, PluginTimeout, raise_out_of_memory

__all__ = ["Result", "guarded", "within"]

Result = TypeVar("Result")

_SIGNAL_LATENCY = 0.1
"""s. A signal that another thread receives, or that arrives just before the wait, does not end it (CPython)."""


def guarded(
    device: str,
    stage: str,
    subject: str,
    call: Callable[[], Result],
    timeout_ms: int = 0,
    kind: type[HeteroError] = HeteroError,
) -> Result:
    """Returns what ``call`` returns. Errors of hetero and `MemoryError` get a note; all others become a ``kind`` that
    names ``device``, the ``stage`` (``query_model``, ...) and its ``subject``. Raises `PluginTimeout` after
    ``timeout_ms``, unless that is 0."""
    work = f"{stage} {subject}".rstrip()
    try:
        return call() if timeout_ms == 0 else within(timeout_ms, call)
    except _TimeOver:
        raise PluginTimeout(f"{device} did not finish {work} within {timeout_ms} ms (PLUGIN_TIMEOUT_MS)") from None
    except HeteroError as error:
        if not str(error).startswith(f"{device} "):  # it says whose error it is
            error.add_note(f"in {work}, by {device}")
        raise
    except Exception as error:
        try:
            raise_out_of_memory(error)
        except MemoryError as short:
            short.add_note(f"in {work}, by {device}")
            raise
        raise kind(f"{device} failed in {work}: {type(error).__name__}: {error}") from error


def within(timeout_ms: int, call: Callable[[], Result]) -> Result:
    """Run ``call`` in a separate thread; returns its result or raises its exception. Raises `_TimeOver` after a
    timeout."""
    outcome: list[tuple[bool, Any]] = []

    def work() -> None:
        try:
            outcome.append((True, call()))
        except BaseException as error:  # raised in the calling thread
            outcome.append((False, error))

    thread = threading.Thread(target=work, name="hetero call of a plugin", daemon=True)
    thread.start()
    end = time.monotonic() + timeout_ms / 1000
    while thread.is_alive() and (left := end - time.monotonic()) > 0:
        thread.join(min(left, _SIGNAL_LATENCY))
    if not outcome:
        raise _TimeOver
    done, what = outcome[0]
    if done:
        result: Result = what
        return result
    raise what


class _TimeOver(Exception):
    pass
