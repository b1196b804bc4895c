"""What an actor does once it is known to have the same hetero: compile a model and run it. On the node."""

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

_LOOK_SECONDS = 0.02  # between two looks at whether an inference that waits for its turn is cancelled
_MOST_LINES = 1000  # of logs that are kept until the next answer
_MOST_CANCELLED = 1024  # inferences that are remembered as cancelled without having come yet


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """What to compile for. ``plugins``: name and target of devices to register first."""

    device: str
    config: dict[str, Any]
    plugins: list[tuple[str, str]]


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What comes back besides results.

    ``failure``: what went wrong. ``told``: level and text of log lines since the last answer. ``warned``: warnings.
    ``streams``: of a compiled model, inferences that keep it busy. ``sizes``: bytes of each result.
    """

    failure: Failed | None = None
    told: tuple[tuple[str, str], ...] = ()
    warned: tuple[str, ...] = ()
    streams: int = 1
    rows: tuple[ProfileRow, ...] = ()
    sizes: tuple[int, ...] = ()
    support: Support | None = None


def query(request: Request, encoded: NDArray[np.uint8], weights: Mapping[str, NDArray[Any]]) -> Answer:
    """Which nodes the device takes here, for a process that does not have it."""
    try:
        with _noted_warnings() as warned:
            core, model = _prepared(request, encoded, weights)
            support = ask(core._configured(request.device, request.config), model)
        return Answer(support=support, warned=tuple(warned))
    except BaseException as error:
        return Answer(failure(error))


def compile_stage(
    request: Request, encoded: NDArray[np.uint8], weights: Mapping[str, NDArray[Any]]
) -> tuple[Stage | None, Answer]:
    """The model, ready to run, and the answer that says so, or why not. ``encoded``, ``weights``: what `detach` gave,
    not copied."""
    lines = _Lines(request.config.get("LOG_LEVEL", "NO"))
    try:
        with _noted_warnings() as warned:
            core, model = _prepared(request, encoded, weights)
            stage = Stage(core, core.compile_model(model, request.device, request.config), lines)
        return stage, Answer(told=lines.taken(), warned=tuple(warned), streams=stage.streams)
    except BaseException as error:
        return None, Answer(failure(error), lines.taken())


def _prepared(request: Request, encoded: NDArray[np.uint8], weights: Mapping[str, NDArray[Any]]) -> tuple[Core, Model]:
    core = Core()
    for name, target in request.plugins:
        core.register_plugin(name, target)
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
        """An `Answer` and the results; those are None if it tells of a failure."""
        try:
            with self._request(number) as request:
                results = request.infer(dict(zip(self._names, inputs, strict=True))).arrays()
                rows = tuple(request.profiling_info)
            sizes = tuple(getattr(result, "nbytes", 0) for result in results)
            return (Answer(told=self._lines.taken(), rows=rows, sizes=sizes), *results)
        except BaseException as error:
            return (Answer(failure(error), self._lines.taken()), *[None] * len(self._compiled.outputs))

    def cancel(self, number: int) -> None:
        """Stop an inference, also one that has not come yet. Does nothing between its coming and its beginning: who
        wants it cancelled says so until it is done."""
        with self._lock:
            request = self._running.get(number)
            if request is None:
                self._cancelled[number] = None
                while len(self._cancelled) > _MOST_CANCELLED:
                    self._cancelled.popitem(last=False)
        if request is not None:
            request.cancel()

    @contextlib.contextmanager
    def _request(self, number: int) -> Iterator[InferRequest]:
        """A request for inference ``number``, when it is its turn."""
        while not self._turns.acquire(timeout=_LOOK_SECONDS):
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
                raise Cancelled("the inference was cancelled before it began")


class _Lines(logging.Handler):
    """Keeps what hetero tells in this process, for the next answer."""

    def __init__(self, level: str) -> None:
        super().__init__()
        self._kept: collections.deque[tuple[str, str]] = collections.deque(maxlen=_MOST_LINES)
        logger = logging.getLogger("hetero")
        for other in [handler for handler in logger.handlers if isinstance(handler, _Lines)]:
            logger.removeHandler(other)  # of the model before
        if level != "NO":
            logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        level = {"ERROR": "ERR"}.get(record.levelname, record.levelname)
        device = record.name.removeprefix("hetero.")
        self._kept.append((level if level in LEVELS else "INFO", f"{device}: {record.getMessage()}"))

    def taken(self) -> tuple[tuple[str, str], ...]:
        found = []
        with contextlib.suppress(IndexError):
            while True:
                found.append(self._kept.popleft())
        return tuple(found)


@contextlib.contextmanager
def _noted_warnings() -> Iterator[list[str]]:
    """The texts of warnings that are given meanwhile."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield texts
        finally:
            texts += dict.fromkeys(str(entry.message) for entry in caught if entry.category is RuntimeWarning)
