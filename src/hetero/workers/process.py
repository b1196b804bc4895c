"""What a worker process does: compile one model, then answer one inference after the other on each of its lanes."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core import Core
from ..errors import InferenceError
from ..model.detached import attach
from ..plugin import CompiledModel, InferRequest
from .messages import (
    Answer,
    Cancel,
    Compile,
    Compiled,
    Done,
    Failed,
    Open,
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

__all__ = ["main", "preload"]


def preload() -> None:
    """Import what most workers need, before they are forked."""
    import zmq  # noqa: F401

    from ..devices import cpu  # noqa: F401


def main(memory: int, size: int, folder: str, alive: int) -> None:
    """The worker's whole life; does not return. ``alive``: a pipe that ends with the application."""
    status = 1
    try:
        threading.Thread(target=_end_with, args=(alive, folder), daemon=True).start()
        _Worker(SharedMemory(memory, size), folder).serve()
        status = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(status)


def _end_with(alive: int, folder: str) -> None:
    os.read(alive, 1)
    shutil.rmtree(folder, ignore_errors=True)
    os.kill(os.getpid(), signal.SIGKILL)


class _Worker:
    """``folder``: of the sockets; ``control`` in it is there from the start."""

    def __init__(self, memory: SharedMemory, folder: str) -> None:
        import zmq

        self._memory = memory
        self._folder = folder
        self._context = zmq.Context()
        self._pair = zmq.PAIR
        self._compiled: CompiledModel | None = None
        self._lanes: list[_Lane] = []

    def serve(self) -> None:
        """Until the application is gone."""
        control = self._connect("control")
        while True:
            request = request_decoder.decode(control.recv())
            answer: Answer | None
            try:
                answer = self._answer(request)
            except BaseException as error:
                answer = failure(error)
            if answer is not None:
                control.send(encode(answer))

    def _connect(self, name: str) -> Any:
        own = self._context.socket(self._pair)
        own.connect(f"ipc://{self._folder}/{name}")
        own.send(encode(Ready()))
        return own

    def _answer(self, request: Any) -> Answer | None:
        match request:
            case Compile():
                return self._compile(request)
            case Open():
                assert self._compiled is not None
                for name in request.addresses:
                    lane = _Lane(self._memory, self._compiled, self._connect(name))
                    self._lanes.append(lane)
                    threading.Thread(target=lane.serve, name=f"hetero lane {name}", daemon=True).start()
            case Cancel():
                self._lanes[request.lane].cancel()
            case _:
                raise InferenceError(f"a worker's control does not take {type(request).__name__}")
        return None

    def _compile(self, request: Compile) -> Compiled:
        core = Core()
        for name, target in request.plugins:
            core.register_plugin(name, target)
        weights = {name: _read_only(ref.array(self._memory)) for name, ref in request.weights}
        encoded = _read_only(request.model.array(self._memory))
        model = attach(encoded.data, weights, "the model for a worker process")
        self._compiled = core.compile_model(model, request.device, request.config)
        self._core = core
        return Compiled(int(self._compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS")))


class _Lane:
    """A socket, and the request that its inferences run on."""

    def __init__(self, memory: SharedMemory, compiled: CompiledModel, socket: Any) -> None:
        self._memory = memory
        self._names = [port.name for port in compiled.inputs]
        self._request: InferRequest = compiled.create_infer_request()
        self._socket = socket
        self._results: Sequence[NDArray[Any]] = ()
        self._lock = threading.Lock()
        self._running: threading.Event | None = None

    def serve(self) -> None:
        while True:
            request = request_decoder.decode(self._socket.recv())
            answer: Answer
            try:
                if isinstance(request, Run):
                    inputs = [_read_only(ref.array(self._memory)) for ref in request.inputs]
                    self._results = self._request.infer(dict(zip(self._names, inputs, strict=True))).arrays()
                    answer = self._written(request.rooms)
                elif isinstance(request, Settle):
                    answer = self._written(request.rooms)
                else:
                    raise InferenceError(f"a worker's lane does not take {type(request).__name__}")
            except BaseException as error:
                answer = failure(error)
            if not isinstance(answer, TooSmall):
                self._results = ()
            self._socket.send(encode(answer))

    def cancel(self) -> None:
        self._request.cancel()

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
            ref.array(self._memory)[...] = result
            refs.append(ref)
        rows = self._request.profiling_info
        counters = [(r.node, r.status, r.layer_type, r.exec_type, r.real_us, r.cpu_us, r.subgraph) for r in rows]
        return Done(refs, counters)


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array
