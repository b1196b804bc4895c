"""`CompiledModel`: what `Plugin.compile_model` returns, and what users call on it."""

from __future__ import annotations

import abc
import io
import itertools
import os
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Final, Literal, Never, NoReturn, Self, TypeVar, overload

from ..base.names import shortened
from ..base.notebook import html_table
from ..base.other_names import OtherNames
from ..base.properties import Property, PropertyTable
from ..errors import (
    Corrupt,
    HeteroError,
    InferenceError,
    NotSupported,
    PropertyError,
    did_you_mean,
    inference_error,
    shown,
)
from ..model.types import PORT_COLUMNS, Port, port_rows
from .checked import checked_runner
from .executor import ExecutorLease, ExecutorManager
from .futures import map_in_order, submit
from .remote import PortMemories, moving_memory
from .request import InferRequest, Runner
from .state_pairs import pair_states
from .stateful_request import StatefulRequest
from .tensor import NO_INPUTS, Outputs

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ..artifact.payload import PayloadWriter

__all__ = ["CompiledModel"]

AnyRequest = TypeVar("AnyRequest", bound=InferRequest)

# Argument of a call in OpenVINO or onnxruntime -> what to do, as the end of a sentence.
_ARGUMENTS_ELSEWHERE: Final[Mapping[str, str]] = {
    "share_inputs": "; leave it out: inputs are not copied",
    "share_outputs": "; leave it out, or pass arrays that receive the results as out=arrays",
    "run_options": "; compile with ORT_RUN_CONFIG, and stop a run with request.cancel()",
    "output_names": "; the result has all outputs",
    "input_feed": "; pass the inputs as the first argument",
}


class CompiledModel(OtherNames, abc.ABC):
    """A model, ready to run on one device. Any number of requests may run in parallel."""

    _is_closed = False

    other_names = types.MappingProxyType(
        {
            **dict.fromkeys(("infer", "infer_new_request", "run"), "compiled(inputs)"),
            "create_infer_requests": "compiled.map(batches, in_flight=n), or compiled.create_infer_request for each",
            "run_async": "compiled.submit(inputs)",
            "input": "compiled.inputs",
            "output": "compiled.outputs",
            **dict.fromkeys(("get_inputs", "model_inputs"), "compiled.inputs"),
            **dict.fromkeys(("get_outputs", "model_outputs"), "compiled.outputs"),
            **dict.fromkeys(
                ("get_tuning_results", "set_tuning_results"), "the command `hetero tune`, which writes a plan"
            ),
            "get_runtime_model": "request.profiling_info of a model compiled with PERF_COUNT",
            "release_memory": "compiled.close()",
            "reshape": "core.compile_model(model, device, shapes=…)",
            "io_binding": "compiled(inputs, out=arrays)",
            "get_providers": "compiled.get_property('EXECUTION_DEVICES')",
            "get_modelmeta": "model.metadata, before compiling",
            **dict.fromkeys(("query_state", "reset_state"), "compiled.create_stateful_request"),
            "get_overridable_initializers": "model.default_inputs",
            **dict.fromkeys(
                ("run_with_iobinding", "run_with_ort_values", "run_with_ortvaluevector"), "compiled(inputs, out=arrays)"
            ),
            **dict.fromkeys(("get_session_options", "get_provider_options"), "compiled.get_property(name)"),
            **dict.fromkeys(("set_property", "set_providers"), "core.compile_model(model, device, config)"),
            "get_provider_graph_assignment_info": "core.plan(model, device)",
            **dict.fromkeys(
                ("get_input_memory_infos", "get_output_memory_infos", "get_input_epdevices"),
                "core.create_context(device) for tensors in a device's memory",
            ),
            "disable_fallback": "a list without a CPU, such as 'HETERO:ORT.CUDA'",
            "enable_fallback": "AUTO or MULTI, which continue on another device if one fails",
            "create_ortvalue_from_shape_and_type": "core.create_context(device).create_tensor(dtype, shape)",
            "set_ep_dynamic_options": "core.compile_model(model, device, config)",
            **dict.fromkeys(
                ("end_profiling", "get_profiling_start_time_ns"),
                "request.profiling_info of a model compiled with PERF_COUNT",
            ),
        }
    )

    def __init__(
        self,
        device: str,
        inputs: Iterable[Port],
        outputs: Iterable[Port],
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        """``properties``: the values of `get_property`. hetero adds the properties of the device that are missing, with
        their values for this compilation, and ``NETWORK_NAME``.

        ``NUM_STREAMS`` is the number of asynchronous requests that run in parallel (default 1). With
        ``EXCLUSIVE_ASYNC_REQUESTS``, the asynchronous requests of all such models of the device take turns.
        """
        self._device = device
        self._inputs = tuple(inputs)
        self._outputs = tuple(outputs)
        provided = dict(properties or {})
        streams = max(1, int(provided.get("NUM_STREAMS", 1)))
        optimal = {"OPTIMAL_NUMBER_OF_INFER_REQUESTS": streams}
        stated = {"EXECUTION_DEVICES": (device,), "NETWORK_NAME": "", "LOADED_FROM_CACHE": False}
        self._properties = {**stated, **optimal, **provided}
        self.subject = ""
        """A description of the model that it was compiled from, for errors: ``of 'name' (node 'a')``."""
        self._idle: list[InferRequest] = []
        # An object of its own, so that requests need not hold the model that holds them.
        self._executor = ExecutorLease(device, streams)
        self._state_turns()

    # -- what a device must implement ---------------------------------------------------------------------------------

    @abc.abstractmethod
    def create_runner(self) -> Runner:
        """The state of one request, as a `Runner`. hetero calls this once per request; runners of one model may run at
        the same time."""

    # -- what a device may override -----------------------------------------------------------------------------------

    checks_results: ClassVar[bool] = True
    """Whether hetero checks results against the ports and wraps exceptions of runs, which takes 1 to 2 µs per run. A
    device whose results are always right and whose runs raise only exceptions of hetero may set it to False."""

    memory_space: object = None
    """The memory of the device, if results can stay there. A result that only models with the same memory space (by
    ``is``) read is passed on as the runner returns it, array or not. The runner of a model with a memory space has a
    method ``keep_on_device(positions)``, which hetero calls once before the first run with the positions of these
    results. If it is a `RemoteContext` with `RemoteContext.moves_values`, hetero also moves values into and out of this
    memory, and callers can pass and receive its tensors."""

    def export_payload(self, writer: PayloadWriter) -> None:
        """Write the data that `Plugin.import_payload` requires to restore this model. Raises `NotSupported` unless
        overridden."""
        raise NotSupported(f"{self._device} cannot export compiled models")

    def stream_processors(self) -> Sequence[Sequence[int]] | None:
        """The processors that the thread of each stream may run on; None: any."""
        return None

    # -- what users call ----------------------------------------------------------------------------------------------

    @property
    def device(self) -> str:
        """The device it was compiled for, such as ``CPU`` or ``HETERO:FPGA,CPU``."""
        return self._device

    @property
    def inputs(self) -> tuple[Port, ...]:
        """The input ports, in the model's order."""
        return self._inputs

    @property
    def outputs(self) -> tuple[Port, ...]:
        """The output ports, in the model's order."""
        return self._outputs

    def get_property(self, name: str) -> Any:
        """A property that the model was compiled with. Raises `PropertyError` for an unknown name."""
        names = ("SUPPORTED_PROPERTIES", *self._properties)
        if isinstance(name, str) and name == "SUPPORTED_PROPERTIES":
            return names
        if not isinstance(name, str) or name not in self._properties:
            PropertyTable(Property(key, object) for key in names).declared(name, f"a model compiled for {self._device}")
        return self._properties[name]

    def create_infer_request(self) -> InferRequest:
        """A reusable request with its own memory and counters. Several requests run in parallel."""
        return self.new_request(InferRequest)

    def create_stateful_request(
        self, states: Mapping[Any, str] | None = None, initial: Mapping[str, Any] | None = None
    ) -> StatefulRequest:
        r"""A request with states: outputs of one inference are inputs of the next, without leaving their device.

        ``states``: output name -> input name. A key may also be a compiled regular expression that matches whole names
        of outputs; its value is then a template: ``{re.compile(r"present\.(.*)"): r"past.\1"}``. None: all outputs
        whose names follow ``present`` -> ``past`` or ``past_key_values``, or ``*_out`` -> ``*_in``.

        ``initial``: input name -> array or tensor, which is copied. Other states begin with zeros: a dimension whose
        symbol an input of the call has gets its size there, and one whose symbol differs from that of the output is 0.

        Raises `InferenceError` for an unknown name, an input or an output in two pairs, dtypes and shapes that cannot
        agree, and wrong initial values.
        """
        pairs = pair_states(self._inputs, self._outputs, states)

        def make(values: Mapping[str, Any] | None = None) -> StatefulRequest:
            return self.new_request(partial(StatefulRequest, pairs=pairs, initial=values, fork=make))

        return make(initial)

    def new_request(self, make: Callable[..., AnyRequest]) -> AnyRequest:
        """A request, by ``make``, which takes the arguments of `InferRequest`."""
        timed = bool(self._properties.get("PERF_COUNT"))
        return make(
            self._device,
            self._inputs,
            self._outputs,
            self.new_runner(),
            self._executor,
            timed,
            self.port_memories(),
            self.outputs_on_device(),
        )

    def __call__(self, inputs: Any = NO_INPUTS, out: Any = None, **named: Never) -> Outputs:
        """Run one inference in the calling thread, on a request of its own; see `InferRequest.infer`."""
        if named:
            name = next(iter(named))
            if any(port.name == name for port in self._inputs):
                raise InferenceError(f"inputs are passed as one mapping: write compiled({{{name!r}: …}})")
            near = did_you_mean(name, [port.name for port in self._inputs])
            raise InferenceError(
                f"compiled(inputs, out=None) accepts no argument {name!r}, and the model has no input of this name"
                f"{_ARGUMENTS_ELSEWHERE.get(name, near)}"
            )
        idle = self._idle
        try:
            request = idle.pop()
        except IndexError:
            request = self.create_infer_request()
        try:
            return request.infer(inputs, out)
        except InferenceError as error:
            self._check_order(inputs, out, error)
            raise
        finally:
            idle.append(request)

    def _check_order(self, inputs: Any, out: Any, error: InferenceError) -> None:
        """Raise an error that says how to write a call with the arguments of onnxruntime's ``session.run``: names of
        outputs or None, and the inputs."""
        names = [port.name for port in self._inputs]
        listed = () if inputs is None else inputs
        are_names = isinstance(listed, (list, tuple)) and all(isinstance(name, str) for name in listed)
        if are_names and isinstance(out, Mapping) and not out.keys().isdisjoint(names):
            raise InferenceError(
                f"the first argument is the inputs: write compiled({{{names[0]!r}: …}}); the result has all outputs"
            ) from error

    def submit(self, inputs: Any = NO_INPUTS, out: Any = None) -> Future[Outputs]:
        """Start one inference in a thread of the device. The future returns its `Outputs` or raises its exception.
        ``out``: see `InferRequest.infer`.

        Cancelling the future also stops a running inference if the device supports that.
        """
        return submit(self._idle, self.create_infer_request, inputs, out)

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
        """The results for each of ``batches``, in order, with up to ``in_flight`` inferences in parallel. The
        default is ``OPTIMAL_NUMBER_OF_INFER_REQUESTS``, but at least 4.

        ``batches`` is read only as far as inferences start. If an inference fails, its exception is raised in its turn
        and the running inferences are cancelled; closing the iterator also cancels them. With ``return_exceptions``,
        the exception is returned in place of the results, and the other inferences continue.
        """
        if in_flight is None:
            in_flight = max(4, int(self._properties["OPTIMAL_NUMBER_OF_INFER_REQUESTS"]))
        if in_flight < 1:
            raise ValueError(f"in_flight must be at least 1, got {in_flight}")
        return map_in_order(self.submit, batches, in_flight, return_exceptions)

    async def arun(self, inputs: Any = NO_INPUTS, out: Any = None) -> Outputs:
        """`submit` for coroutines. Cancelling the task cancels the inference."""
        import asyncio

        return await asyncio.wrap_future(self.submit(inputs, out))

    @overload
    def export_model(self, target: str | os.PathLike[str] | BinaryIO) -> None: ...

    @overload
    def export_model(self, target: None = None) -> bytes: ...

    def export_model(self, target: str | os.PathLike[str] | BinaryIO | None = None) -> bytes | None:
        """Write the model to a path (atomically) or to a binary stream, or return it as bytes; `Core.import_model`
        reads it.

        The file is encrypted if the model was compiled with ``CACHE_ENCRYPTION_CALLBACKS``. Raises `NotSupported` if a
        device of the model does not support exporting, and `ArtifactError` if the file cannot be written.
        """
        from ..artifact.exporting import callbacks_of, export_model

        encrypt, _ = callbacks_of(self._properties.get("CACHE_ENCRYPTION_CALLBACKS"))
        stream = io.BytesIO()
        export_model(self.exported_model(), stream if target is None else target, encrypt)
        return stream.getvalue() if target is None else None

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a compiled model cannot be copied or pickled: share it between threads, or export it with export_model "
            "and load it with hetero.load"
        )

    def __repr__(self) -> str:
        closed = "; closed" if self._is_closed else ""
        return f"<{type(self).__name__} on {self._device}: {len(self._inputs)} in, {len(self._outputs)} out{closed}>"

    def _repr_html_(self) -> str:
        """Inputs, outputs and devices, for notebooks."""
        devices = ", ".join(map(str, self.get_property("EXECUTION_DEVICES")))
        rows = itertools.chain(port_rows(self._inputs, self._outputs), [("runs on", devices, None, None)])
        total = len(self._inputs) + len(self._outputs) + 1
        name = shortened(str(self._properties["NETWORK_NAME"]), 80)
        return html_table(f"{type(self).__name__} {name} on {self._device}", PORT_COLUMNS, rows, total)

    def close(self) -> None:
        """Release the memory of idle requests, and make no new ones: calls, `submit` and `create_infer_request` then
        raise `InferenceError`. Running inferences and existing requests continue. ``with compiled:`` calls it at its
        end. Other resources, such as worker processes, are released when the object is garbage collected."""
        self._is_closed = True
        self._idle = []  # running calls return their requests to the old list

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- what hetero calls --------------------------------------------------------------------------------------------

    def exported_model(self) -> CompiledModel:
        """The model that `export_model` writes."""
        return self

    def new_runner(self) -> Runner:
        """`create_runner`, with errors of the call and of the runner wrapped to name the device."""
        if self._is_closed:
            raise InferenceError(f"{self._device}: the compiled model is closed")
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

    def port_memories(self) -> PortMemories:
        """The memories between which hetero moves inputs and outputs."""
        return PortMemories.of_ports(moving_memory(self.memory_space), self._inputs, self._outputs)

    def outputs_on_device(self) -> frozenset[int]:
        """The positions of the outputs in ``OUTPUTS_ON_DEVICE``. Raises `PropertyError` for an unknown output."""
        named = self._properties.get("OUTPUTS_ON_DEVICE", False)
        if isinstance(named, bool):
            return frozenset(range(len(self._outputs)) if named else ())
        positions = {port.name: position for position, port in enumerate(self._outputs)}
        for name in named:
            if name not in positions:
                listed = ", ".join(positions) or "none"
                raise PropertyError(
                    f"OUTPUTS_ON_DEVICE: the model has no output {shown(name)}{did_you_mean(name, positions)}; its "
                    f"outputs: {listed}"
                )
        return frozenset(positions[name] for name in named)

    @property
    def timeout_ms(self) -> int:
        """``PLUGIN_TIMEOUT_MS``, for calls of the model itself."""
        return int(self._properties.get("PLUGIN_TIMEOUT_MS", 0))

    @property
    def settings(self) -> Mapping[str, Any]:
        """All of its properties but ``SUPPORTED_PROPERTIES``."""
        return self._properties

    def add_settings(self, values: Mapping[str, Any]) -> None:
        """Add properties that the device's author left out, or ``LOADED_FROM_CACHE``. hetero calls this before it
        returns the model to the user."""
        self._properties.update(values)

    def rename(self, device: str) -> None:
        """Set the registered name of the device. Its author may have written another name into the model."""
        if self._properties["EXECUTION_DEVICES"] == (self._device,):
            self._properties["EXECUTION_DEVICES"] = (device,)
        self._device = self._executor.name = device

    def adopt_ports(self, inputs: Sequence[Port], outputs: Sequence[Port]) -> None:
        """Use the ports of the exported model, so that types are not inferred again. Raises `Corrupt` if their names
        differ from those of this model."""
        for mine, stored in ((self._inputs, inputs), (self._outputs, outputs)):
            if [port.name for port in mine] != [port.name for port in stored]:
                raise Corrupt(f"the ports of the model for {self._device} are not those that the file states")
        self._inputs, self._outputs = tuple(inputs), tuple(outputs)

    def lease_executors(self, executors: ExecutorManager) -> None:
        """Use the threads of ``executors`` for asynchronous requests. hetero calls this before the first request."""
        self._state_turns()
        self._executor.manager = executors
        self._executor.processors = self.stream_processors()

    def _state_turns(self) -> None:
        """Tell the executor whether asynchronous requests take turns with those of other models, and their priority."""
        exclusive = bool(self._properties.get("EXCLUSIVE_ASYNC_REQUESTS"))
        self._executor.take_turns(exclusive, str(self._properties.get("MODEL_PRIORITY", "MEDIUM")))
