"""A compiled model in an actor. A lost actor is replaced."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ...base.log import tell
from ...base.warn import warn
from ...errors import HeteroError, InferenceError, NotSupported
from ...plugin.cancellation import Cancellation
from ...plugin.contract import CompiledModel, Runner
from ...plugin.profile import ProfileRow
from ...workers.supervisor import WorkerSupervisor
from .actor import Actor, Place, Pool, ValueLost
from .stage import Answer, Request
from .values import ResidentResults, ResidentValue

if TYPE_CHECKING:
    from ...artifact.payload import PayloadWriter
    from ...model.model import Model

__all__ = ["RayModel", "RaySupervisor"]

_INLINE_BYTES = 64 << 10
"""In B. Smaller arrays are sent in the message. Larger ones are put into the object store once; by default, Ray would
do so for each attempt if they exceed 100 kB."""

_IN_FLIGHT = 2
"""Inferences per stream that keep an actor busy: while one runs, the tensors of another are transferred."""


class RaySupervisor(WorkerSupervisor[Actor]):
    """The actor of a model, and the data to replace it.

    ``places``: returns the place of the next actor. ``encoded``, ``weights``: references to the results of `detach`,
    which stay in the object store while this object lives.
    """

    def __init__(
        self,
        name: str,
        pool: Pool,
        places: Callable[[], Place],
        request: Request,
        encoded: Any,
        weights: Any,
        settings: Mapping[str, Any],
        num_results: int,
    ) -> None:
        super().__init__(name)
        self.settings = settings
        self.pool = pool
        self.streams = 1
        self.num_results = num_results
        self._pid = os.getpid()
        self._places = places
        self._request = request
        self._encoded = encoded
        self._weights = weights
        self._timeout = settings["PLUGIN_TIMEOUT_MS"] / 1000 or None
        weakref.finalize(self, pool.later, _give_back, pool, self._held).atexit = False
        self.worker()

    def worker(self) -> Actor:
        """Also raises `InferenceError` if there is no connection to Ray."""
        if os.getpid() != self._pid:
            raise InferenceError(
                f"{self.name}: the connection to Ray belongs to the process from which this one was forked"
            )
        if self.pool.cluster.is_over:  # otherwise Ray would start a cluster
            raise InferenceError(f"{self.name}: the connection to the Ray cluster was closed: compile the model again")
        return super().worker()

    def pass_on(self, answer: Answer, where: str) -> None:
        """Log the actor's messages in this process."""
        for level, text in answer.logged:
            tell(self.settings, self.name, level, f"{where}: {text}")

    def failed(self, answer: Answer, actor: Actor) -> HeteroError | MemoryError:
        """The error in an answer, with the device and the node."""
        assert answer.failure is not None
        error = msgspec.structs.replace(answer.failure, text=f"{self.name}: {answer.failure.text}").error()
        error.add_note(f"on {actor.where}")
        return error

    def start(self) -> Actor:
        place = self._places()
        actor = self.pool.actor(place, self._timeout)
        try:
            answer = actor.ask("compile", self._request, self._encoded, self._weights, timeout=self._timeout)
            self.pass_on(answer, actor.where)
            if answer.failure is not None:
                raise self.failed(answer, actor)
        except BaseException as error:
            # An actor that reported an error can be used for another model.
            is_alive = isinstance(error, HeteroError) and not actor.is_lost
            self.pool.later(self.pool.give_back, actor) if is_alive else actor.kill()
            raise
        for text in answer.warnings:
            warn(f"{self.name}: {text}")
        self.streams = answer.streams
        actor.expect_results(self.num_results)
        tell(self.settings, self.name, "INFO", f"runs on {actor.where}")
        if self.settings["RAY_STANDBY"]:
            self.pool.prepare(actor.place)
        return actor


def _give_back(pool: Pool, held: list[Actor]) -> None:
    for actor in held:
        pool.give_back(actor)


class RayModel(CompiledModel):
    """Runs in an actor, which is returned to the pool when this object and all its requests are deleted.

    ``memory_space``: the cluster. Results that only models with the same memory space read stay in the cluster.
    """

    checks_results = False  # the device in the actor does that

    def __init__(self, model: Model, supervisor: RaySupervisor, settings: Mapping[str, Any]) -> None:
        in_flight = supervisor.streams * _IN_FLIGHT
        properties = {
            **settings,
            "NETWORK_NAME": model.name,
            "NUM_STREAMS": in_flight,
            "OPTIMAL_NUMBER_OF_INFER_REQUESTS": in_flight,
        }
        super().__init__(supervisor.name, model.inputs, model.outputs, properties)
        self._supervisor = supervisor
        self.memory_space = supervisor.pool.cluster

    @property
    def process(self) -> int:
        """The process id of the actor on its host. Replaces a lost actor."""
        return self._supervisor.worker().process

    @property
    def node(self) -> str:
        """Ray's id of the actor's node. Replaces a lost actor."""
        return self._supervisor.worker().node

    def create_runner(self) -> Runner:
        timeout_ms, retries = self._properties["WORKER_TIMEOUT_MS"], self._properties["WORKER_RETRIES"]
        return _Runner(self._supervisor, self.subject, timeout_ms / 1000 if timeout_ms else None, retries)

    def export_payload(self, writer: PayloadWriter) -> None:
        raise NotSupported(
            f"{self.device} cannot export a model, because it runs in an actor; compile for "
            f"{self._properties['RAY_DEVICE']} and export the result"
        )


class _Runner:
    """One request, which runs in the actor; see `hetero.plugin.request.Runner`."""

    def __init__(self, supervisor: RaySupervisor, subject: str, timeout: float | None, retries: int) -> None:
        self.cancellation = Cancellation()
        self._supervisor = supervisor
        self._subject = subject
        self._timeout = timeout
        self._retries = retries
        self._rows: Sequence[ProfileRow] = ()
        self._fetched = list(range(supervisor.num_results))

    def keep_on_device(self, positions: Sequence[int]) -> None:
        """From now on, return the results at ``positions`` as `ResidentValue`."""
        self._fetched = [position for position in range(self._supervisor.num_results) if position not in positions]

    def run(self, inputs: Sequence[Any]) -> Sequence[Any]:
        try:
            answer, arrays, references = self._run(list(inputs))
        except HeteroError as error:
            error.add_note(f"in an inference {self._subject}, by {self._supervisor.name}")
            raise
        self._rows = answer.rows
        if len(self._fetched) == len(references):
            return arrays
        again = None
        if self._retries:
            kept = list(inputs)
            again = lambda: self._run(kept)[2]  # noqa: E731
        resident = ResidentResults(references, again)
        results: list[Any] = [ResidentValue(resident, position, size) for position, size in enumerate(answer.sizes)]
        for position, array in zip(self._fetched, arrays, strict=True):
            results[position] = array
        return results

    def _run(self, inputs: list[Any]) -> tuple[Answer, list[Any], list[Any]]:
        sent: list[Any] = []
        lost: list[tuple[ResidentValue, Any]] = []  # with their lost references

        def attempt(actor: Actor) -> tuple[Answer, list[Any], list[Any]]:
            nonlocal sent
            sent = sent or [_argument(value) for value in inputs]
            while lost:
                value, reference = lost.pop()
                value.recompute(reference)
            arguments = [value.reference if isinstance(value, ResidentValue) else value for value in sent]
            try:
                return self._run_on(actor, arguments)
            except ValueLost:
                pairs = zip(sent, arguments, strict=True)
                lost.extend((value, reference) for value, reference in pairs if isinstance(value, ResidentValue))
                raise

        return self._supervisor.run(attempt, self._retries)

    def _run_on(self, actor: Actor, arguments: list[Any]) -> tuple[Answer, list[Any], list[Any]]:
        stop: Callable[[], bool] = lambda: self.cancellation.requested  # noqa: E731
        answer, arrays, references = actor.run(arguments, self._timeout, self._supervisor.streams, stop, self._fetched)
        self._supervisor.pass_on(answer, actor.where)
        if answer.failure is not None:
            raise self._supervisor.failed(answer, actor)
        return answer, arrays, references

    def profile(self) -> Sequence[ProfileRow]:
        return self._rows


def _argument(value: Any) -> Any:
    """An argument for the actor. Large arrays are passed by reference, so that several attempts send them once."""
    if isinstance(value, np.ndarray) and value.nbytes > _INLINE_BYTES:
        import ray

        return ray.put(value)
    return value
