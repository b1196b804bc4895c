"""The worker process: compiles one model, then runs one inference after the other on each of its lanes."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.descriptor import Descriptor
from ..core import Core
from ..errors import InferenceError
from ..extension.elsewhere import made
from ..model.detached import attach
from ..plugin.cancellation import Cancellation
from ..plugin.contract import CompiledModel
from .channel import BrokenChannel, Channel
from .mailbox import Mailbox
from .messages import (
    Answer,
    Cancel,
    Compile,
    Compiled,
    Done,
    Failed,
    Ready,
    Room,
    Run,
    Settle,
    TensorRef,
    TooSmall,
    dtype_name,
    encode,
    failure,
    request_decoder,
)
from .shared_memory import SharedMemory
from .weights import attach_weights

__all__ = ["main", "preload"]


def preload() -> None:
    """Import the modules that most workers need, before the fork."""
    from ..devices import cpu  # noqa: F401


def main(memory: int, size: int, mailbox: int, alive: int) -> None:
    """Run the worker. Does not return. ``alive``: a pipe that closes when the application ends."""
    status = 1
    try:
        threading.Thread(target=_end_with, args=(alive,), daemon=True).start()
        _Worker(SharedMemory(memory, size), Mailbox(socket.socket(fileno=mailbox))).serve()
        status = 0
    except ConnectionError:
        status = 0  # the application ended while the worker was answering it
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(status)


def _end_with(alive: int) -> None:
    os.read(alive, 1)
    os.kill(os.getpid(), signal.SIGKILL)


class _Worker:
    """``mailbox``: receives control messages, and sends the answers and the lanes."""

    def __init__(self, memory: SharedMemory, mailbox: Mailbox) -> None:
        self._memory = memory
        self._mailbox = mailbox
        self._lanes: list[_Lane] = []

    def serve(self) -> None:
        """Answer control messages until the application ends."""
        self._mailbox.send(encode(Ready()))
        while True:
            try:
                message, descriptors = self._mailbox.receive()
            except OSError:
                return
            files = list(map(Descriptor, descriptors))
            try:
                self._obey(request_decoder.decode(message), files)
            except BaseException as error:
                self._mailbox.send(encode(failure(error)))

    def _obey(self, request: Any, files: Sequence[Descriptor]) -> None:
        match request:
            case Compile():
                self._compile(request, files)
            case Cancel():
                self._lanes[request.lane].cancel(request.number)
            case _:
                raise InferenceError(f"a worker's control does not accept {type(request).__name__}")

    def _compile(self, request: Compile, files: Sequence[Descriptor]) -> None:
        sys.path[:] = request.path
        core = Core()
        for name, target in request.plugins:
            core._registry.register(name, target, must_exist=False)
        for op in request.ops:
            core.add_extension(made(op))
        weights = attach_weights(request, files, self._memory)
        encoded = _read_only(request.model.array(self._memory))
        model = attach(encoded.data, weights, "the model for a worker process")
        compiled = core.compile_model(model, request.device, request.config)
        self._core = core
        streams = max(1, int(compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS")))
        theirs = []
        for number in range(streams):
            own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            theirs.append(other)
            self._lanes.append(_Lane(self._memory, compiled, Channel(own)))
            threading.Thread(target=self._lanes[-1].serve, name=f"hetero lane {number}", daemon=True).start()
        self._mailbox.send(encode(Compiled(streams)), [other.fileno() for other in theirs])
        for other in theirs:
            other.close()  # the application now holds the only copy, so the socket closes when it ends


class _Lane:
    """A channel and its runner."""

    def __init__(self, memory: SharedMemory, compiled: CompiledModel, channel: Channel) -> None:
        self._memory = memory
        self._runner = compiled.new_runner()
        self._channel = channel
        self._run_into: Callable[..., Sequence[NDArray[Any]]] | None = getattr(self._runner, "run_into", None)
        self._results: Sequence[NDArray[Any]] = ()
        self._cancellation = getattr(self._runner, "cancellation", None) or Cancellation()
        self._lock = threading.Lock()
        self._running: int | None = None  # the number of the request

    def serve(self) -> None:
        """Answer requests until the other end is closed."""
        with contextlib.suppress(BrokenChannel):
            while True:
                number, message = self._channel.receive()
                answer: Answer
                try:
                    answer = self._answer(number, message)
                except BaseException as error:
                    answer = failure(error)
                if not isinstance(answer, TooSmall):
                    self._results = ()
                self._channel.send(number, encode(answer))

    def _answer(self, number: int, message: bytes) -> Answer:
        request = request_decoder.decode(message)
        if isinstance(request, Run):
            inputs = [_read_only(ref.array(self._memory)) for ref in request.inputs]
            with self._lock:
                self._running = number
                self._cancellation.clear()
            try:
                self._results = self._run(inputs, request.rooms)
            finally:
                with self._lock:
                    self._running = None
            return self._written(request.rooms)
        if isinstance(request, Settle):
            return self._written(request.rooms)
        raise InferenceError(f"a worker's lane does not accept {type(request).__name__}")

    def _run(self, inputs: Sequence[NDArray[Any]], rooms: Sequence[Room]) -> Sequence[NDArray[Any]]:
        if self._run_into is None:
            return self._runner.run(inputs)
        return self._run_into(inputs, [self._memory.array(room.offset, (room.size,), np.uint8) for room in rooms])

    def cancel(self, number: int) -> None:
        """Ask the run of a request to stop if it is still running."""
        with self._lock:
            if self._running == number:
                self._cancellation.request()

    def _written(self, rooms: Sequence[Room]) -> Done | TooSmall | Failed:
        for result in self._results:
            if not isinstance(result, np.ndarray) or result.dtype.hasobject:
                raise InferenceError("only tensors of numbers pass between processes")
        sizes = [result.nbytes for result in self._results]
        if len(rooms) != len(sizes) or any(size > room.size for size, room in zip(sizes, rooms, strict=True)):
            return TooSmall(sizes)
        refs = []
        for result, room in zip(self._results, rooms, strict=True):
            ref = TensorRef(room.offset, dtype_name(result.dtype), result.shape)
            if self._memory.offset_of(result) != room.offset:  # the runner did not write it to its room
                ref.array(self._memory)[...] = result
            refs.append(ref)
        rows = self._runner.profile()
        counters = [(r.node, r.status, r.layer_type, r.exec_type, r.real_us, r.cpu_us, r.subgraph) for r in rows]
        return Done(refs, counters)


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array
