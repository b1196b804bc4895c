"""Compiles and runs a model in an actor, after versions were compared. Runs on the node."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import logging
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.log import LEVELS
from ...core import Core
from ...errors import Cancelled
from ...model.detached import attach
from ...model.model import Model
from ...plugin.caller import query as ask
from ...plugin.contract import CompiledModel, InferRequest, Support
from ...plugin.profile import ProfileRow
from ...workers.messages import Failed, failure

__all__ = ["Answer", "Request", "Stage", "compile_stage", "query"]

_POLL_SECONDS = 0.02  # interval of checks whether a waiting inference was cancelled
_MAX_LINES = 1000  # log messages kept until the next answer
_MAX_CANCELLED = 1024  # cancelled inferences that have not arrived yet


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """The device and configuration to compile for. ``plugins``: names and targets of devices to register first."""

    device: str
    config: dict[str, Any]
    plugins: list[tuple[str, str]]


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """The answer of an actor, without the results.

    ``failure``: the error, or None. ``logged``: level and text of the log messages since the last answer.
    ``warnings``: texts of warnings. ``streams``: the number of concurrent inferences of a compiled model. ``sizes``:
    the size of each result in B.
    """

    failure: Failed | None = None
    logged: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()
    streams: int = 1
    rows: tuple[ProfileRow, ...] = ()
    sizes: tuple[int, ...] = ()
    support: Support | None = None


def query(request: Request, encoded: NDArray[np.uint8], weights: Mapping[str, NDArray[Any]]) -> Answer:
    """An answer with the nodes that the device supports, for a process that does not have the device."""
    try:
        with _recorded_warnings() as texts:
            core, model = _prepared(request, encoded, weights)
            support = ask(core._configured(request.device, request.config), model)
        return Answer(support=support, warnings=tuple(texts))
    except BaseException as error:
        return Answer(failure(error))


def compile_stage(
    request: Request, encoded: NDArray[np.uint8], weights: Mapping[str, NDArray[Any]]
) -> tuple[Stage | None, Answer]:
    """Compile the model. Returns None and an answer with the error if this fails. ``encoded``, ``weights``: the results
    of `detach`, not copied."""
    lines = _Lines(request.config.get("LOG_LEVEL", "NO"))
    try:
        with _recorded_warnings() as texts:
            core, model = _prepared(request, encoded, weights)
            stage = Stage(core, core.compile_model(model, request.device, request.config), lines)
        return stage, Answer(logged=lines.take(), warnings=tuple(texts), streams=stage.streams)
    except BaseException as error:
        return None, Answer(failure(error), lines.take())


def _prepared(request: Request, encoded: NDArray[np.uint8], weights: Mapping[str, NDArray[Any]]) -> tuple[Core, Model]:
    core = Core()
    for name, target in request.plugins:
        core._registry.register(name, target, must_exist=False)
    return core, attach(encoded.data, weights, "the model for an actor")


class Stage:
    """A compiled model in an actor. Thread-safe."""

    def __init__(self, core: Core, compiled: CompiledModel, lines: _Lines) -> None:
        self.streams = int(compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS"))
        self._core = core
        self._compiled = compiled
        self._lines = lines
        self._names = [port.name for port in compiled.inputs]
        self._turns = threading.Semaphore(self.streams)
        self._lock = threading.Lock()
        self._idle: list[InferRequest] = []
        self._running: dict[int, InferRequest] = {}
        self._cancelled: collections.OrderedDict[int, None] = collections.OrderedDict()

    def run(self, number: int, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """An `Answer` and the results, which are None if the inference failed."""
        try:
            with self._request(number) as request:
                results = request.infer(dict(zip(self._names, inputs, strict=True))).arrays()
                rows = tuple(request.profiling_info)
            sizes = tuple(getattr(result, "nbytes", 0) for result in results)
            return (Answer(logged=self._lines.take(), rows=rows, sizes=sizes), *results)
        except BaseException as error:
            return (Answer(failure(error), self._lines.take()), *[None] * len(self._compiled.outputs))

    def cancel(self, number: int) -> None:
        """Cancel an inference, including one that has not arrived yet. May have no effect on an inference that is about
        to start, so the caller must repeat it until the inference ends."""
        with self._lock:
            request = self._running.get(number)
            if request is None:
                self._cancelled[number] = None
                while len(self._cancelled) > _MAX_CANCELLED:
                    self._cancelled.popitem(last=False)
        if request is not None:
            request.cancel()

    @contextlib.contextmanager
    def _request(self, number: int) -> Iterator[InferRequest]:
        """A request for inference ``number``. Waits for a free stream."""
        while not self._turns.acquire(timeout=_POLL_SECONDS):
            self._check(number)
        try:
            self._check(number)
            try:
                request = self._idle.pop()
            except IndexError:
                request = self._compiled.create_infer_request()
            self._running[number] = request
            try:
                yield request
            finally:
                with self._lock:
                    del self._running[number]
                    self._cancelled.pop(number, None)
                self._idle.append(request)
        finally:
            self._turns.release()

    def _check(self, number: int) -> None:
        with self._lock:
            if number in self._cancelled:
                del self._cancelled[number]
                raise Cancelled("the inference was cancelled before it started")


class _Lines(logging.Handler):
    """Keeps the log messages of hetero in this process for the next answer."""

    def __init__(self, level: str) -> None:
        super().__init__()
        self._kept: collections.deque[tuple[str, str]] = collections.deque(maxlen=_MAX_LINES)
        logger = logging.getLogger("hetero")
        for other in [handler for handler in logger.handlers if isinstance(handler, _Lines)]:
            logger.removeHandler(other)  # of the previous model
        if level != "NO":
            logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        level = {"ERROR": "ERR"}.get(record.levelname, record.levelname)
        device = record.name.removeprefix("hetero.")
        self._kept.append((level if level in LEVELS else "INFO", f"{device}: {record.getMessage()}"))

    def take(self) -> tuple[tuple[str, str], ...]:
        """Remove and return the messages."""
        messages = []
        with contextlib.suppress(IndexError):
            while True:
                messages.append(self._kept.popleft())
        return tuple(messages)


@contextlib.contextmanager
def _recorded_warnings() -> Iterator[list[str]]:
    """The texts of the warnings that are issued within the block."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield texts
        finally:
            texts += dict.fromkeys(str(entry.message) for entry in caught if entry.category is RuntimeWarning)
