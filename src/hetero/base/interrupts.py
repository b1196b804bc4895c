"""Ctrl-C in the process of the command line: no traceback, from the import of this module on.

It imports only modules that Python has at its start: `signal`, `contextlib` and `types` take as long to import as the
rest until `end_on_interrupt`, and an interrupt meanwhile shows a traceback.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # what the module signal wraps in enumerations
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import types

__all__ = ["INTERRUPTED", "end_on_interrupt", "interrupts_raised"]

INTERRUPTED = 130
"""The exit status of an interrupted command."""


def end_on_interrupt() -> None:
    """From now on, an interrupt ends the process with status 130, outside of `interrupts_raised`. Meant for the imports
    before a command and the exit after it, when nothing has to be cleaned up. Does nothing if interrupts are ignored,
    as in background jobs."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_end_quietly)


class interrupts_raised:
    """Within the block, interrupts raise `KeyboardInterrupt` again, except in an import: Python ignores exceptions in
    some functions of its import system, and modules may replace them."""

    def __enter__(self) -> None:
        self._applies = signal.getsignal(signal.SIGINT) is _end
        if self._applies:
            signal.signal(signal.SIGINT, _raise)

    def __exit__(self, *raised: object) -> None:
        if self._applies:
            signal.signal(signal.SIGINT, _end)


def _raise(number: int, frame: types.FrameType | None) -> None:
    caller = frame
    while caller is not None:
        if caller.f_code.co_filename.startswith("<frozen importlib"):
            _end(number, frame)
        caller = caller.f_back
    signal.default_int_handler(number, frame)


def _end_quietly() -> None:
    """An interrupt ends the process without output, because other libraries fork processes that do not handle it, such
    as OpenVINO for its telemetry."""
    if signal.getsignal(signal.SIGINT) in (_end, _raise):
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _end(number: int, frame: types.FrameType | None) -> None:
    os.write(2, b"Interrupted\n")
    os._exit(INTERRUPTED)
