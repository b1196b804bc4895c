"""One live worker process, as the application sees it."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import queue
import select
import shutil
import signal
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import HeteroError, WorkerLost
from .messages import Answer, Cancel, Compile, Compiled, Failed, Open, Ready, Request, answer_decoder, encode
from .nursery import nursery
from .per_process import PerProcess
from .shared_memory import SharedPool

__all__ = ["Lane", "Worker"]

_START_SECONDS = 60.0  # for a worker to connect: far more than it takes on a machine that is not lost
_LOOK_SECONDS = 0.01  # between two looks at whether an inference is to be cancelled

Stop = Callable[[], bool]


class Worker:
    """A worker process and its sockets. Thread-safe but for `compile`, which comes first.

    ``name``: of the device and model it works for, for errors.
    """

    def __init__(self, name: str, pool: SharedPool) -> None:
        """Fork it. Raises `HeteroError`."""
        self.name = name
        self._context = _context.get()
        self._folder = tempfile.mkdtemp(prefix="hetero-")  # nobody else may enter it
        self._lanes: queue.SimpleQueue[Lane] = queue.SimpleQueue()
        self._control_lock = threading.Lock()
        self._sockets: list[Any] = []
        try:
            self._control = self._bind("control")
            self.process, self._ended = nursery.get().fork(pool.descriptor, pool.size, self._folder)
        except BaseException:
            for socket in self._sockets:
                socket.close()
            self._leave_folder()
            raise
        self._finalizer = weakref.finalize(self, _end, os.getpid(), self._ended, self._sockets, self._folder)
        self._expect(self._control, Ready)

    def compile(self, request: Compile, timeout: float | None) -> int:
        """Compile the model and open the lanes; how many. Raises what the compilation does, and `WorkerLost`."""
        self._send(self._control, request)
        compiled = self._expect(self._control, Compiled, timeout)
        names = [str(number) for number in range(max(1, compiled.streams))]
        lanes = [Lane(number, self._bind(name)) for number, name in enumerate(names)]
        self._send(self._control, Open(names))
        for lane in lanes:
            self._expect(lane.socket, Ready)
            self._lanes.put(lane)
        self._leave_folder()
        return len(lanes)

    @contextlib.contextmanager
    def lane(self, stop: Stop) -> Iterator[Lane | None]:
        """One that no other thread uses meanwhile, when there is one; None if ``stop()`` says so before."""
        lane = None
        while lane is None and not stop():
            try:
                lane = self._lanes.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                if self.has_ended:  # lanes of inferences that were lost do not come back
                    raise self.lost("ended") from None
        try:
            yield lane
        finally:
            if lane is not None:
                self._lanes.put(lane)

    @property
    def has_ended(self) -> bool:
        return bool(select.select([self._ended], [], [], 0)[0])

    def kill(self) -> None:
        """End it at once, and wait until it has no hold of shared memory any longer."""
        with contextlib.suppress(ProcessLookupError, OSError):
            signal.pidfd_send_signal(self._ended, signal.SIGKILL)
        select.select([self._ended], [], [])

    def ask(self, lane: Lane, request: Request, timeout: float | None, stop: Stop) -> Answer:
        """Send and wait for the answer; as long as ``stop()`` says so, ask the worker to cancel it. Raises
        `WorkerLost`."""

        def look() -> None:
            if stop():
                with self._control_lock:
                    self._send(self._control, Cancel(lane.number))

        self._send(lane.socket, request)
        return self._answer(lane.socket, timeout, look)

    def _answer(self, socket: Any, timeout: float | None = None, look: Callable[[], None] | None = None) -> Answer:
        """The next message from a socket. ``look``: called every now and then while there is none.

        Raises `WorkerLost` if the worker ends, or does not answer within ``timeout`` seconds: then it is killed.
        """
        import zmq

        end = None if timeout is None else time.monotonic() + timeout
        poller = zmq.Poller()
        poller.register(socket, zmq.POLLIN)
        poller.register(self._ended, zmq.POLLIN)
        while True:
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                self.kill()
                raise self.lost(f"did not answer within {timeout:g} s, and was killed")
            wait = min(x for x in (left, _LOOK_SECONDS if look else None, 3600.0) if x is not None)
            events = dict(poller.poll(math.ceil(wait * 1e3)))
            if socket in events:
                answer: Answer = answer_decoder.decode(socket.recv())
                return answer
            if events:
                raise self.lost("ended")
            if look is not None:
                look()

    def _send(self, socket: Any, request: Request) -> None:
        """Raises `WorkerLost` if nobody is at the other end."""
        import zmq

        try:
            socket.send(encode(request), zmq.NOBLOCK)  # there is room: no more than one request is under way
        except zmq.Again:
            self.kill()
            raise self.lost("ended") from None

    def lost(self, what: str) -> WorkerLost:
        return WorkerLost(f"{self.name}: its worker process {self.process} {what}")

    def _bind(self, name: str) -> Any:
        import zmq

        socket = self._context.socket(zmq.PAIR)
        self._sockets.append(socket)
        socket.linger = 0
        socket.bind(f"ipc://{self._folder}/{name}")
        return socket

    def _expect(self, socket: Any, kind: type, timeout: float | None = _START_SECONDS) -> Any:
        answer = self._answer(socket, timeout)
        if isinstance(answer, Failed):
            raise answer.error()
        if not isinstance(answer, kind):
            raise HeteroError(f"{self.name}: its worker answered {type(answer).__name__}, expected {kind.__name__}")
        return answer

    def _leave_folder(self) -> None:
        """Both sides have their sockets: nothing of it needs a name any longer."""
        shutil.rmtree(self._folder, ignore_errors=True)


@dataclasses.dataclass(frozen=True, slots=True)
class Lane:
    """A socket of a worker for one inference at a time."""

    number: int
    socket: Any


def _end(owner: int, ended: int, sockets: list[Any], folder: str) -> None:
    if os.getpid() == owner:  # and not a child that was forked from it
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(ended, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)  # which is there yet if it never finished compiling
    os.close(ended)
    for socket in sockets:
        socket.close()


def _new_context() -> Any:
    import zmq

    return zmq.Context()


_context = PerProcess(_new_context)
