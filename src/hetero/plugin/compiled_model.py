"""What a device gives for a model: a `CompiledModel`, and everything that users touch around it."""

from __future__ import annotations

import abc
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Literal, overload

from ..base.properties import Property, PropertyTable
from ..errors import Corrupt, HeteroError, NotSupported, inference_error
from ..model.types import Port
from .checked import checked_runner
from .executor import ExecutorLease, ExecutorManager
from .futures import map_in_order, submit
from .request import InferRequest, Runner
from .tensor import Outputs

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ..artifact.payload import PayloadWriter

__all__ = ["CompiledModel"]


class CompiledModel(abc.ABC):
    """A model, ready to run on one device. Immutable; any number of requests may run on it at once."""

    def __init__(
        self,
        device: str,
        inputs: Iterable[Port],
        outputs: Iterable[Port],
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        """``properties``: what `get_property` gives. Of those, ``NUM_STREAMS`` says how many asynchronous requests run
        at one time (1 if absent), and ``EXCLUSIVE_ASYNC_REQUESTS`` that those of all models of the device take turns.
        """
        self._device = device
        self._inputs = tuple(inputs)
        self._outputs = tuple(outputs)
        given = dict(properties or {})
        streams = max(1, int(given.get("NUM_STREAMS", 1)))
        optimal = {"OPTIMAL_NUMBER_OF_INFER_REQUESTS": streams}
        stated = {"EXECUTION_DEVICES": (device,), "NETWORK_NAME": "", "LOADED_FROM_CACHE": False}
        self._properties = {**stated, **optimal, **given}
        self.subject = ""
        """What it was compiled of, for errors: ``of 'name' (node 'a')``."""
        self._idle: list[InferRequest] = []
        # An object of its own, so that requests need not hold the model that holds them.
        self._executor = ExecutorLease(device, streams)
        self._state_turns()

    @property
    def device(self) -> str:
        """The device it was compiled for, such as ``CPU`` or ``HETERO:FPGA,CPU``."""
        return self._device

    @property
    def inputs(self) -> tuple[Port, ...]:
        """What it takes, in the model's order."""
        return self._inputs

    @property
    def outputs(self) -> tuple[Port, ...]:
        """What it gives, in the model's order."""
        return self._outputs

    checks_results: ClassVar[bool] = True
    """Whether results are compared with the ports after each run, and errors of runs are named, which takes 1 to 2 us.
    A device whose runs give nothing else and raise only errors of hetero may do without."""

    home: object = None
    """Where results can stay for other models to read them there: those that only models of the same (``is``) home read
    are handed on as their runners give them, arrays or not. A runner of a model with a home has a method
    ``leave(positions)``, called once before it runs, that says which results those are."""

    @abc.abstractmethod
    def create_runner(self) -> Runner:
        """The state of one request. Called once per request; runners of one model may run at the same time."""

    def new_runner(self) -> Runner:
        """`create_runner`, as all others call it: what goes wrong there, or when it runs, names the device."""
        if not self.checks_results:
            return self.create_runner()
        try:
            runner = self.create_runner()
        except HeteroError as error:
            error.add_note(f"in making a request {self.subject}, by {self._device}")
            raise
        except Exception as error:
            raise inference_error(
                f"{self._device} failed in making a request {self.subject}: {type(error).__name__}: {error}", error
            ) from error
        return checked_runner(runner, self._device, self.subject, self._outputs)

    @property
    def timeout_ms(self) -> int:
        """``PLUGIN_TIMEOUT_MS``, for what is asked of the model itself."""
        return int(self._properties.get("PLUGIN_TIMEOUT_MS", 0))

    def create_infer_request(self) -> InferRequest:
        """A request of its own memory and counters; several run at the same time. It can be used again and again."""
        timed = bool(self._properties.get("PERF_COUNT"))
        return InferRequest(self._device, self._inputs, self._outputs, self.new_runner(), self._executor, timed)

    def __call__(self, inputs: Any) -> Outputs:
        """Run one inference in the calling thread, on a request of its own; see `InferRequest.infer`."""
        try:
            request = self._idle.pop()
        except IndexError:
            request = self.create_infer_request()
        try:
            return request.infer(inputs)
        finally:
            self._idle.append(request)

    def submit(self, inputs: Any) -> Future[Outputs]:
        """Begin one inference in a thread of the device; the future gives its `Outputs`, or raises what went wrong.

        Cancelling the future also stops an inference that has begun, where the device can stop.
        """
        return submit(self._idle, self.create_infer_request, inputs)

    @overload
    def map(
        self, batches: Iterable[Any], in_flight: int | None = None, *, return_exceptions: Literal[False] = False
    ) -> Iterator[Outputs]: ...

    @overload
    def map(
        self, batches: Iterable[Any], in_flight: int | None = None, *, return_exceptions: bool
    ) -> Iterator[Outputs | Exception]: ...

    def map(
        self, batches: Iterable[Any], in_flight: int | None = None, *, return_exceptions: bool = False
    ) -> Iterator[Outputs | Exception]:
        """The results for each of ``batches``, in their order, with up to ``in_flight`` of them under way at once: by
        default as many as keep the device busy (``OPTIMAL_NUMBER_OF_INFER_REQUESTS``), and at least 4.

        No more of ``batches`` are drawn than are under way. What goes wrong with one is raised in its turn, and then,
        or if the iterator is closed, the others under way are cancelled. With ``return_exceptions`` it is given in
        place of the results instead, and the others go on.
        """
        if in_flight is None:
            in_flight = max(4, int(self._properties["OPTIMAL_NUMBER_OF_INFER_REQUESTS"]))
        if in_flight < 1:
            raise ValueError(f"in_flight must be at least 1, got {in_flight}")
        return map_in_order(self.submit, batches, in_flight, return_exceptions)

    async def arun(self, inputs: Any) -> Outputs:
        """`submit` for coroutines: cancelling the task cancels the inference."""
        import asyncio

        return await asyncio.wrap_future(self.submit(inputs))

    def stream_processors(self) -> Sequence[Sequence[int]] | None:
        """Per stream, the processors that its thread may run on; None: any."""
        return None

    def lease_executors(self, executors: ExecutorManager) -> None:
        """Take the threads of asynchronous requests from there, when they are first needed. Before any request."""
        self._state_turns()
        self._executor.manager = executors
        self._executor.processors = self.stream_processors()

    def _state_turns(self) -> None:
        """Whether its asynchronous requests take turns with those of other models, and which go first."""
        exclusive = bool(self._properties.get("EXCLUSIVE_ASYNC_REQUESTS"))
        self._executor.take_turns(exclusive, str(self._properties.get("MODEL_PRIORITY", "MEDIUM")))

    @property
    def settings(self) -> Mapping[str, Any]:
        """All of its properties but ``SUPPORTED_PROPERTIES``."""
        return self._properties

    def add_settings(self, values: Mapping[str, Any]) -> None:
        """Called once, by whoever compiled the model, with properties that its author left out."""
        self._properties.update(values)

    def get_property(self, name: str) -> Any:
        """A property the model was compiled with; `PropertyError` if it has none of that name."""
        names = ("SUPPORTED_PROPERTIES", *self._properties)
        if isinstance(name, str) and name == "SUPPORTED_PROPERTIES":
            return names
        if not isinstance(name, str) or name not in self._properties:
            PropertyTable(Property(key, object) for key in names).declared(name, f"a model compiled for {self._device}")
        return self._properties[name]

    def export_model(self, target: str | os.PathLike[str] | BinaryIO) -> None:
        """Write it to a path, whole or not at all, or to a binary stream; `Core.import_model` reads it.

        Encrypted if it was compiled with ``CACHE_ENCRYPTION_CALLBACKS``. Raises `NotSupported` if a device of it
        cannot be exported, and `ArtifactError` if the file cannot be written.
        """
        from ..artifact.exporting import callbacks_of, export_model

        export_model(self, target, callbacks_of(self._properties.get("CACHE_ENCRYPTION_CALLBACKS"))[0])

    def export_payload(self, writer: PayloadWriter) -> None:
        """Hand all that is needed to make this model again to ``writer``, for `Plugin.import_payload`. Raises
        `NotSupported` unless overridden."""
        raise NotSupported(f"{self._device} cannot export compiled models")

    def rename(self, device: str) -> None:
        """Call the device ``device``: the plugin is registered under that name, and its author built in another."""
        if self._properties["EXECUTION_DEVICES"] == (self._device,):
            self._properties["EXECUTION_DEVICES"] = (device,)
        self._device = self._executor.name = device

    def adopt_ports(self, inputs: Sequence[Port], outputs: Sequence[Port]) -> None:
        """Take the ports that a model had when it was exported: types that were inferred are not inferred again.
        `Corrupt` unless they have the names of its own."""
        for mine, given in ((self._inputs, inputs), (self._outputs, outputs)):
            if [port.name for port in mine] != [port.name for port in given]:
                raise Corrupt(f"the ports of the model for {self._device} are not those that the file states")
        self._inputs, self._outputs = tuple(inputs), tuple(outputs)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self._device}: {len(self._inputs)} in, {len(self._outputs)} out>"
