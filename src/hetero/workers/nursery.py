"""The process that workers are forked from. It has imported hetero already, has one thread, and does nothing else.

An application starts it once, with the first worker; it ends with the application, as its workers do: all of them read
from a pipe, and nobody but the application has the other end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref

from ..errors import HeteroError, NotSupported, raise_out_of_memory
from .per_process import PerProcess

__all__ = ["Nursery", "nursery"]

_CODE = "import sys; sys.path[:] = {path!r}; from hetero.workers.forking import serve; serve({socket}, {alive})"


class Nursery:
    """The application's end. Thread-safe."""

    def __init__(self) -> None:
        if not sys.executable:
            raise NotSupported("ISOLATION=PROCESS needs Python's executable, and sys.executable does not name it")
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        alive, self._alive = os.pipe()
        code = _CODE.format(path=sys.path, socket=theirs.fileno(), alive=alive)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), alive),
                # Ctrl-C in a terminal goes to all of a group; what becomes of the work is the application's choice.
                process_group=0,
            )
        finally:
            theirs.close()
            os.close(alive)
        weakref.finalize(self, _end, os.getpid(), self._socket, self._alive, self._process)

    def fork(self, memory: int, size: int, folder: str, mailbox: int) -> tuple[int, int]:
        """A new worker: its process id, and a descriptor that is readable when it has ended.

        ``memory``, ``size``: the shared memory. ``folder``: where the socket for control is. ``mailbox``: its end of a
        `Mailbox`. Raises `HeteroError`.
        """
        with self._lock:
            try:
                socket.send_fds(self._socket, [f"{size} {folder}".encode()], [memory, mailbox])
                answer, descriptors, _, _ = socket.recv_fds(self._socket, 64, 1)
            except OSError as error:
                raise_out_of_memory(error)
                raise HeteroError(f"no worker process can be made: {error}") from error
        if not descriptors:
            why = answer.decode() or "the process that forks them ended"
            if why.isdecimal():
                os.kill(int(why), signal.SIGKILL)
                why = "more files are open than this process may have"
            raise_out_of_memory(OSError(why))  # as the process that forks them writes it
            raise HeteroError(f"no worker process can be made: {why}")
        os.set_inheritable(descriptors[0], False)
        return int(answer), descriptors[0]

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None


def _end(owner: int, own: socket.socket, alive: int, process: subprocess.Popen[bytes]) -> None:
    """Let go of it; with its pipe and socket closed it ends, and so do its workers."""
    own.close()
    os.close(alive)
    if os.getpid() != owner:
        process.returncode = 0  # a parent's, which this process cannot wait for
        return
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1.0)


nursery = PerProcess(Nursery, lambda nursery: nursery.ended)
"""The one of this process."""
