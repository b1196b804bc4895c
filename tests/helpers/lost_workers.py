"""A plugin of pytest: how a process of pytest-xdist ended, and what it had written, if it ends before its tests do.

pytest-xdist says only that the process crashed. What a library in it wrote before it called ``_exit`` went to the files
in which pytest captures the output of a test. They have no names, so they are lost unless another process opens them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path
from typing import Any, BinaryIO

import pytest

_MOST_BYTES = 8000  # of each file
_END_SECONDS = 5.0  # until a process whose pipes are closed has ended


class LostWorkers:
    """For the process that starts the others. Each of those has captured files before its first test."""

    def __init__(self) -> None:
        self._captured: dict[int, list[BinaryIO]] = {}  # by process

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self, node: Any) -> None:
        process = node.gateway._io.popen.pid
        files = self._captured[process] = []
        for link in Path(f"/proc/{process}/fd").iterdir():
            with contextlib.suppress(OSError):
                target = os.readlink(link)
                if target.endswith(" (deleted)") and not target.startswith("/memfd:"):
                    files.append(link.open("rb", buffering=0))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        process = node.gateway._io.popen
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(file) for file in self._captured.pop(process.pid, [])]
            if not error:
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_SECONDS)
            written = "\n".join(filter(None, map(_end_of, files)))
            reporter = node.config.pluginmanager.getplugin("terminalreporter")
            reporter.ensure_newline()
            reporter.write_line(f"{node.gateway.id}, process {process.pid}, {_how(process.returncode)}")
            reporter.write_line(f"Captured last: {written or 'nothing'}")


def _how(status: int | None) -> str:
    if status is None:
        return "has closed its pipes, but still runs"
    return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"exited with status {status}"


def _end_of(file: BinaryIO) -> str:
    file.seek(max(0, file.seek(0, os.SEEK_END) - _MOST_BYTES))
    return file.read().decode(errors="replace").strip()
