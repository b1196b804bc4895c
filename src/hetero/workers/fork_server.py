"""The process that forks workers. It has imported hetero, has one thread, and does nothing else.

An application starts it once, with the first worker. It ends with the application, and so do its workers: all of them
read from a pipe whose other end only the application holds.
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

__all__ = ["ForkServer", "fork_server"]

_CODE = "import sys; sys.path[:] = {path!r}; from hetero.workers.forking import serve; serve({socket}, {alive})"


class ForkServer:
    """The application's side. Thread-safe."""

    def __init__(self) -> None:
        if not sys.executable:
            raise NotSupported("ISOLATION=PROCESS requires Python's executable, but sys.executable is empty")
        self._lock = threading.Lock()
        self._last = 0  # the number of the last request
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        alive, self._alive = os.pipe()
        code = _CODE.format(path=sys.path, socket=theirs.fileno(), alive=alive)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), alive),
                # A separate process group, because Ctrl-C in a terminal reaches the whole group. The application
                # decides what happens to running work.
                process_group=0,
            )
        finally:
            theirs.close()
            os.close(alive)
        weakref.finalize(self, _end, os.getpid(), self._socket, self._alive, self._process)

    def fork(self, memory: int, size: int, mailbox: int) -> tuple[int, int]:
        """Fork a worker. Returns its process id, and a descriptor that becomes readable when it ends.

        ``memory``, ``size``: the shared memory. ``mailbox``: the worker's end of a `Mailbox`. Raises `HeteroError`.
        """
        with self._lock:
            self._last += 1
            number = b"%d " % self._last
            try:
                socket.send_fds(self._socket, [number + b"%d" % size], [memory, mailbox])
                while True:
                    answer, descriptors, _, _ = socket.recv_fds(self._socket, 96, 1)
                    if not answer or answer.startswith(number):
                        break
                    for descriptor in descriptors:  # the answer to a call that was interrupted
                        os.close(descriptor)
            except OSError as error:
                raise_out_of_memory(error)
                raise HeteroError(f"cannot start a worker process: {error}") from error
        answer = answer.removeprefix(number)
        if not descriptors:
            why = answer.decode() or "the process that forks them ended"
            if why.isdecimal():
                os.kill(int(why), signal.SIGKILL)
                why = "this process has too many open files"
            raise_out_of_memory(OSError(why))  # ``why`` may be an error of the process that forks workers
            raise HeteroError(f"cannot start a worker process: {why}")
        os.set_inheritable(descriptors[0], False)
        return int(answer), descriptors[0]

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None


def _end(owner: int, own: socket.socket, alive: int, process: subprocess.Popen[bytes]) -> None:
    """Close its pipe and socket. The process and its workers then end."""
    own.close()
    os.close(alive)
    if os.getpid() != owner:
        process.returncode = 0  # the parent's child, which this process cannot wait for
        return
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1.0)


fork_server = PerProcess(ForkServer, lambda fork_server: fork_server.ended)
"""The `ForkServer` of this process."""
