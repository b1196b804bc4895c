"""The application's side of one worker process."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import queue
import select
import signal
import socket
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from ..errors import HeteroError, WorkerLost, raise_out_of_memory
from .channel import NUMBERS, BrokenChannel, Channel
from .control import address_in, remove_folder
from .fork_server import fork_server
from .mailbox import Mailbox
from .messages import Answer, Cancel, Compile, Compiled, Failed, Ready, Request, answer_decoder, encode
from .per_process import PerProcess
from .shared_memory import SharedPool

__all__ = ["Lane", "Worker"]

_START_SECONDS = 60.0  # timeout for a worker to connect; far longer than needed even on a busy machine
_DESCRIPTORS = 16  # file descriptors that a worker may use in this process until it is connected
_ENDING_MILLISECONDS = 1000  # timeout for a worker to end after its sockets are closed
_LOOK_SECONDS = 0.01  # how often a running inference is checked for cancellation

Stop = Callable[[], bool]


@dataclasses.dataclass(eq=False, slots=True)
class Lane:
    """A channel to a worker for one inference at a time.

    ``last``: the number of the last request. ``kept``: arrays that the worker may still read or write, for abandoned
    requests.
    """

    number: int
    channel: Channel
    poll: select.poll
    last: int = 0
    kept: list[Any] = dataclasses.field(default_factory=list)


class Worker:
    """A worker process: a control socket, and a lane for each inference that it runs at the same time.

    Thread-safe, except `compile`, which must be called first. ``name``: the name of the device, for errors.
    """

    def __init__(self, name: str, pool: SharedPool) -> None:
        """Fork it. Raises `HeteroError`."""
        import zmq

        self.name = name
        try:
            self._fork(pool)
        except (OSError, zmq.ZMQError) as error:
            raise_out_of_memory(error)
            raise HeteroError(f"{name}: cannot start a worker process: {error}") from error
        self._finalizer = weakref.finalize(
            self, _end, os.getpid(), self._ended, self._control, self._mailbox, self._lanes, self._folder
        )
        if not _is_readable(self._mailbox.fileno(), round(_START_SECONDS * 1e3), self._ended):
            self.kill()
            raise self.lost("ended, or did not start")
        self._control.connect(address_in(self._folder))
        self._expect(Ready, _START_SECONDS)
        self._leave_folder()

    def _fork(self, pool: SharedPool) -> None:
        import zmq

        self._lanes: list[Lane] = []
        self._idle: queue.SimpleQueue[Lane] = queue.SimpleQueue()
        self._control_lock = threading.Lock()
        _check_descriptors()
        with contextlib.ExitStack() as undo:
            self._folder = tempfile.mkdtemp(prefix="hetero-")  # accessible only to this user
            undo.callback(self._leave_folder)
            self._mailbox, theirs = Mailbox.pair()
            undo.callback(self._mailbox.close)
            with contextlib.closing(theirs):
                self._control = _context.get().socket(zmq.PAIR)
                undo.callback(self._control.close)
                self._control.linger = 0
                self._control.reconnect_ivl, self._control.reconnect_ivl_max = 10, 1000
                self.process, self._ended = fork_server.get().fork(
                    pool.descriptor, pool.size, self._folder, theirs.fileno()
                )
            undo.pop_all()

    def compile(self, request: Compile, timeout: float | None) -> None:
        """Compile the model and open the lanes. Raises the errors of the compilation, and `WorkerLost`."""
        self._send(request)
        compiled = self._expect(Compiled, timeout)
        try:
            descriptors = self._mailbox.receive(compiled.streams)
        except OSError as error:
            raise_out_of_memory(error)
            raise HeteroError(f"{self.name}: cannot connect to its worker: {error}") from error
        self._mailbox.close()
        for number, descriptor in enumerate(descriptors):
            own = socket.socket(fileno=descriptor)
            own.setblocking(False)
            poll = select.poll()
            poll.register(own, select.POLLIN)
            poll.register(self._ended, select.POLLIN)
            self._lanes.append(Lane(number, Channel(own), poll))
        for lane in self._lanes:
            self._idle.put(lane)

    @property
    def streams(self) -> int:
        """The number of inferences that keep the worker busy."""
        return len(self._lanes)

    @contextlib.contextmanager
    def lane(self, stop: Stop) -> Iterator[Lane | None]:
        """Wait for a free lane, for the exclusive use of the caller. None if ``stop()`` returns True before."""
        lane = None
        while lane is None and not stop():
            try:
                lane = self._idle.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                if self.is_lost:  # lanes of lost inferences are not returned
                    raise self.lost("ended") from None
        try:
            yield lane
        finally:
            if lane is not None:
                self._idle.put(lane)

    @property
    def is_lost(self) -> bool:
        return _is_readable(self._ended, 0)

    def kill(self) -> None:
        """Kill the worker, and wait until it no longer uses the shared memory."""
        _kill(self._ended)
        _is_readable(self._ended, None)

    def ask(self, lane: Lane, request: Request, kept: Any, timeout: float | None, stop: Stop) -> Answer:
        """Send a request and wait for the answer. While ``stop()`` returns True, ask the worker to cancel the
        inference.

        ``kept``: the arrays that the request refers to. They stay alive until the answer arrives, even if this call is
        interrupted. Raises `WorkerLost` if the worker ends, or if it does not answer within ``timeout`` seconds and is
        killed.
        """
        number = lane.last = (lane.last + 1) % NUMBERS
        end = None if timeout is None else time.monotonic() + timeout

        def wait(to_receive: bool) -> None:
            while True:
                seconds = _LOOK_SECONDS
                if end is not None:
                    seconds = min(seconds, end - time.monotonic())
                    if seconds <= 0:
                        self.kill()
                        raise self.lost(f"did not answer within {timeout:g} s, and was killed")
                events = (lane.poll if to_receive else self._poll_to_send(lane)).poll(math.ceil(seconds * 1e3))
                if any(descriptor != self._ended for descriptor, _ in events):
                    return
                if events:
                    raise self.lost("ended")
                if stop():
                    self.cancel(lane)

        lane.kept.append(kept)
        try:
            lane.channel.send(number, encode(request), wait)
            while True:
                answered, message = lane.channel.receive(wait)
                if answered == number:
                    break
            lane.kept.clear()
            answer: Answer = answer_decoder.decode(message)
        except BrokenChannel as error:
            if _is_readable(self._ended, _ENDING_MILLISECONDS):
                raise self.lost("ended") from error
            self.kill()
            raise self.lost(f"does not answer ({error}), and was killed") from error
        except msgspec.DecodeError as error:
            self.kill()
            raise self.lost(f"sent an invalid message ({error}), and was killed") from error
        except WorkerLost:
            raise
        except BaseException:
            self.cancel(lane)
            raise
        return answer

    def cancel(self, lane: Lane) -> None:
        """Ask the worker to stop the last inference of a lane if it is still running. Raises `WorkerLost`."""
        with self._control_lock:
            self._send(Cancel(lane.number, lane.last))

    def lost(self, what: str) -> WorkerLost:
        return WorkerLost(f"{self.name}: its worker process {self.process} {what}")

    def _poll_to_send(self, lane: Lane) -> select.poll:
        poll = select.poll()
        poll.register(lane.channel, select.POLLOUT)
        poll.register(self._ended, select.POLLIN)
        return poll

    def _send(self, request: Request) -> None:
        """Send a message to the control socket. Raises `WorkerLost` if the worker does not receive messages."""
        import zmq

        try:
            self._control.send(encode(request), zmq.NOBLOCK)
        except zmq.Again:  # the worker is not connected, or ZeroMQ's queue of 1,000 messages is full
            self.kill()
            raise self.lost("ended") from None

    def _expect(self, kind: type, timeout: float | None) -> Any:
        """The next message from the control socket."""
        import zmq

        poller = zmq.Poller()
        poller.register(self._control, zmq.POLLIN)
        poller.register(self._ended, zmq.POLLIN)
        events = dict(poller.poll(None if timeout is None else math.ceil(timeout * 1e3)))
        if not events:
            self.kill()
            raise self.lost(f"did not answer within {timeout:g} s, and was killed")
        if self._control not in events:
            raise self.lost("ended")
        answer: Answer = answer_decoder.decode(self._control.recv())
        if isinstance(answer, Failed):
            raise answer.error()
        if not isinstance(answer, kind):
            raise HeteroError(f"{self.name}: its worker answered {type(answer).__name__}, expected {kind.__name__}")
        return answer

    def _leave_folder(self) -> None:
        """Remove the socket's folder, once both sides are connected."""
        remove_folder(self._folder)


def _end(owner: int, ended: int, control: Any, mailbox: Mailbox, lanes: list[Lane], folder: str) -> None:
    if os.getpid() == owner:  # not in a forked child
        _kill(ended)
        remove_folder(folder)  # still exists if the worker never connected
        if any(lane.kept for lane in lanes):
            _is_readable(ended, None)  # the worker may still write to the kept arrays
    os.close(ended)
    control.close()
    mailbox.close()
    for lane in lanes:
        lane.channel.close()


def _kill(ended: int) -> None:
    with contextlib.suppress(OSError):
        signal.pidfd_send_signal(ended, signal.SIGKILL)


def _is_readable(descriptor: int, milliseconds: int | None, ended: int | None = None) -> bool:
    """Whether ``descriptor`` becomes readable within the time, and before ``ended`` does."""
    poll = select.poll()  # `select.select` does not support descriptors of 1024 and above
    poll.register(descriptor, select.POLLIN)
    if ended is not None:
        poll.register(ended, select.POLLIN)
    return any(found == descriptor for found, _ in poll.poll(milliseconds))


def _check_descriptors() -> None:
    """Raise OSError unless enough file descriptors are free: without them, ZeroMQ aborts this process."""
    spare: list[int] = []
    try:
        while len(spare) < _DESCRIPTORS:
            spare.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    finally:
        for descriptor in spare:
            os.close(descriptor)


def _new_context() -> Any:
    import zmq

    return zmq.Context()


_context = PerProcess(_new_context)
