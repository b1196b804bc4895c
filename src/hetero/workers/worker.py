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
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from ..errors import HeteroError, WorkerLost, raise_out_of_memory
from .channel import NUMBERS, BrokenChannel, Channel
from .fork_server import fork_server
from .mailbox import Mailbox, Wait
from .messages import Answer, Cancel, Compile, Compiled, Failed, Ready, Request, answer_decoder, encode
from .shared_memory import SharedPool

__all__ = ["Lane", "Worker"]

_START_SECONDS = 60.0  # timeout for a worker to connect; far longer than needed even on a busy machine
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
    """A worker process: a mailbox for control messages, and a lane for each inference that it runs at the same time.

    Thread-safe, except `compile`, which must be called first. ``name``: the name of the device, for errors.
    """

    def __init__(self, name: str, pool: SharedPool) -> None:
        """Fork it. Raises `HeteroError`."""
        self.name = name
        self._lanes: list[Lane] = []
        self._idle: queue.SimpleQueue[Lane] = queue.SimpleQueue()
        try:
            self._mailbox, theirs = Mailbox.pair()
            with contextlib.closing(theirs), contextlib.ExitStack() as undo:
                undo.callback(self._mailbox.close)
                self.process, self._ended = fork_server.get().fork(pool.descriptor, pool.size, theirs.fileno())
                undo.pop_all()
        except OSError as error:
            raise_out_of_memory(error)
            raise HeteroError(f"{name}: cannot start a worker process: {error}") from error
        self._finalizer = weakref.finalize(self, _end, os.getpid(), self._ended, self._mailbox, self._lanes)
        self._expect(Ready, _START_SECONDS)

    def compile(self, request: Compile, files: Sequence[int], timeout: float | None) -> None:
        """Compile the model and open the lanes. ``files``: the descriptors of the files that the worker maps.

        Raises the errors of the compilation, and `WorkerLost`."""
        self._mailbox.send(encode(request), files, wait=self._wait_for_mailbox(timeout))
        descriptors = self._expect(Compiled, timeout)
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
        try:
            self._mailbox.send(encode(Cancel(lane.number, lane.last)), wait=self._refuse_to_wait)
        except OSError:
            self.kill()
            raise self.lost("ended") from None

    def lost(self, what: str) -> WorkerLost:
        return WorkerLost(f"{self.name}: its worker process {self.process} {what}")

    def _poll_to_send(self, lane: Lane) -> select.poll:
        poll = select.poll()
        poll.register(lane.channel, select.POLLOUT)
        poll.register(self._ended, select.POLLIN)
        return poll

    def _refuse_to_wait(self, _: bool) -> None:
        """Kill a worker whose socket is full: a working worker reads these messages at once."""
        self.kill()
        raise self.lost("does not receive messages, and was killed")

    def _wait_for_mailbox(self, timeout: float | None) -> Wait:
        """Waits for the mailbox, for at most ``timeout`` seconds altogether. Raises `WorkerLost`."""
        end = None if timeout is None else time.monotonic() + timeout

        def wait(to_receive: bool) -> None:
            poll = select.poll()
            poll.register(self._mailbox, select.POLLIN if to_receive else select.POLLOUT)
            poll.register(self._ended, select.POLLIN)
            seconds = None if end is None else max(0.0, end - time.monotonic())
            events = poll.poll(None if seconds is None else math.ceil(seconds * 1e3))
            if not events:
                self.kill()
                raise self.lost(f"did not answer within {timeout:g} s, and was killed")
            if all(descriptor == self._ended for descriptor, _ in events):
                raise self.lost("ended")

        return wait

    def _expect(self, kind: type[Answer], timeout: float | None) -> list[int]:
        """Wait for a message of this kind. Returns its file descriptors."""
        try:
            message, descriptors = self._mailbox.receive(self._wait_for_mailbox(timeout))
        except OSError as error:
            raise_out_of_memory(error)
            if _is_readable(self._ended, _ENDING_MILLISECONDS):
                raise self.lost("ended") from error
            raise HeteroError(f"{self.name}: cannot connect to its worker: {error}") from error
        answer: Answer = answer_decoder.decode(message)
        if isinstance(answer, Failed):
            raise answer.error()
        if not isinstance(answer, kind):
            raise HeteroError(f"{self.name}: its worker answered {type(answer).__name__}, expected {kind.__name__}")
        return descriptors


def _end(owner: int, ended: int, mailbox: Mailbox, lanes: list[Lane]) -> None:
    if os.getpid() == owner:  # not in a forked child
        _kill(ended)
        if any(lane.kept for lane in lanes):
            _is_readable(ended, None)  # the worker may still write to the kept arrays
    os.close(ended)
    mailbox.close()
    for lane in lanes:
        lane.channel.close()


def _kill(ended: int) -> None:
    with contextlib.suppress(OSError):
        signal.pidfd_send_signal(ended, signal.SIGKILL)


def _is_readable(descriptor: int, milliseconds: int | None) -> bool:
    """Whether ``descriptor`` becomes readable within the time."""
    poll = select.poll()  # `select.select` does not support descriptors of 1024 and above
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(milliseconds))
