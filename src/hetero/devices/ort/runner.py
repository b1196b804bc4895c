"""Runs requests on a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._sizes import StateSizes
from ...errors import Cancelled, InferenceError, inference_error
from ...plugin.cancellation import Cancellation
from ...plugin.contract import CompiledModel, Runner
from ...plugin.profile import ProfileRow
from ...runtime.chains import PreparedRun
from . import backend
from .arena import Lease
from .binding import HOST_VALUES, MISFIT, HostBinding, OrtHostValue
from .counters import Counters
from .memory import OrtMemory, OrtTensor, out_of_memory
from .session import SessionSource, run_options
from .values import FOREIGN_TYPES, array_of, is_native, ort_value

if TYPE_CHECKING:
    from ...artifact.payload import PayloadWriter
    from ...model.model import Model

__all__ = ["PAYLOAD_VERSION", "SHAPING", "OrtModel", "OrtRunner"]


PAYLOAD_VERSION = "1"
SHAPING = ("DISABLE_TRANSFORMATIONS",)
"""Properties that an exported model stores. Options of onnxruntime are not stored, because some name libraries to load,
which a file must not do."""


class OrtModel(CompiledModel):
    """A session and the weights that it reads."""

    checks_results = False  # the session was made for these ports

    def __init__(
        self,
        device: str,
        model: Model,
        properties: Mapping[str, Any],
        source: SessionSource,
        session: Any,
        counters: Counters | None,
        memory: OrtMemory | None = None,
        share: Lease | None = None,
    ) -> None:
        """``memory``: where the provider computes; None: in the host's memory. ``share``: in the arena that the session
        uses; None: the session has its own."""
        super().__init__(device, model.inputs, model.outputs, properties)
        self._model = model
        self._source = source  # must live as long as the session
        self._session = session
        self._counters = counters
        self._memory: OrtMemory | None = None
        # An I/O binding takes tensors of numbers only.
        types = [entry.type for entry in (*session.get_inputs(), *session.get_outputs())]
        binds = all(type_.startswith("tensor(") and type_ != "tensor(string)" for type_ in types)
        if binds and backend.can_bind(session):
            self._memory = memory
            # A counted inference takes arrays, because it runs on other sessions.
            self.memory_space = memory if memory is not None else HOST_VALUES if counters is None else None
        self.share = share  # the last attribute

    def export_payload(self, writer: PayloadWriter) -> None:
        """Export the original model, because an optimized one is valid only for this processor and version."""
        from ...artifact.model import write_payload_model

        writer.version["payload"] = PAYLOAD_VERSION
        write_payload_model(writer, self._model)
        writer.add_json("ort.json", {name: self.get_property(name) for name in SHAPING})

    def create_runner(self) -> Runner:
        if self._memory is not None:
            return BoundRunner(self, self._session, self._counters, self._memory)
        return OrtRunner(self, self._session, self._counters)


class OrtRunner:
    """One request on the session.

    Arrays are passed to the session without copies; an I/O binding for each run would be slower. Dtypes that NumPy
    lacks are passed as ``OrtValue``. The C++ part of the session is called directly: the Python part repeats checks
    that were made before, which takes 5 to 10 µs per run with arrays, and 70 µs with ``OrtValue`` objects.

    Values that only other sessions read are passed on as `OrtHostValue`, through a `HostBinding`.
    """

    def __init__(self, model: OrtModel, session: Any, counters: Counters | None) -> None:
        self._model = model  # keeps the weights alive
        self._session = session
        self._direct = backend.direct(session)
        self._counters = counters
        self._options = run_options(model.settings)
        self.cancellation: Cancellation = _Terminate(self._options)
        self._inputs = [port.name for port in model.inputs]
        self._outputs = [port.name for port in model.outputs]
        self._binding: HostBinding | None = None
        types = [entry.type for entry in (*session.get_inputs(), *session.get_outputs())]
        self._by_ort_value = any(type_ in FOREIGN_TYPES for type_ in types)
        self._passed_on = _passed_on(self._inputs, self._outputs)
        self._like: list[np.dtype[Any]] | None = None  # of the inputs of the last run, if it can be repeated
        self._sizes = StateSizes([port.shape if port.is_tensor else None for port in model.inputs], ())
        self._rows: Sequence[ProfileRow] = ()
        self._share = model.share  # the last attribute

    def keep_on_device(self, positions: Sequence[int]) -> None:
        """See `CompiledModel.memory_space`."""
        self._binding = HostBinding(self._session, self._inputs, self._outputs, positions, self._options)

    def run(self, inputs: Sequence[Any]) -> Sequence[Any]:
        if not self._outputs:  # for which onnxruntime would return all results, or fail
            return []
        if self._binding is None and any(type(value) is OrtHostValue for value in inputs):
            self.keep_on_device(())
        if self._binding is not None:
            try:
                return self._binding.run(inputs)
            except Exception as error:
                raise self._failure(error) from error
        results = self.run_again(inputs)
        if results is not None:
            return results
        self._like = None
        feed = {name: self._convert(value) for name, value in zip(self._inputs, inputs, strict=True)}
        try:
            if self._counters is not None:
                results, self._rows = self._counters.run(self._call, feed)
            else:
                results = self._call(self._session, feed)
        except Exception as error:
            raise self._failure(error) from error
        for position, source in self._passed_on.items():
            results[position] = inputs[source]
        if self._counters is None and not self._by_ort_value:
            self._remember(inputs, results)
        return results

    def run_again(self, inputs: Sequence[Any]) -> list[np.ndarray] | None:
        """See `RepeatingRunner`."""
        if self._like is None:
            return None
        for value, dtype in zip(inputs, self._like, strict=True):
            if type(value) is not np.ndarray or value.dtype != dtype:
                return None
        # Every shape that the ports allow will do, because a session is not made for certain sizes.
        if not self._sizes.fit(inputs):
            return None
        try:
            results: list[np.ndarray] = self._direct.run(
                self._outputs, dict(zip(self._inputs, inputs, strict=True)), self._options
            )
        except Exception as error:
            raise self._failure(error) from error
        return results

    def prepared(self) -> PreparedRun | None:
        """See `hetero.runtime.chains.PreparedRunner`."""
        return None if self._binding is None else self._binding.prepared()

    def place_results(self, places: Mapping[int, np.ndarray]) -> None:
        """See `hetero.runtime.chains.PreparedRunner`."""
        assert self._binding is not None
        self._binding.place_results(places)

    def profile(self) -> Sequence[ProfileRow]:
        return self._rows

    def _call(self, session: Any, feed: dict[str, Any]) -> list[Any]:
        if not self._by_ort_value:
            results: list[Any] = backend.direct(session).run(self._outputs, feed, self._options)
            return results
        ort = backend.load()
        values = {
            name: value if isinstance(value, ort.OrtValue) else ort_value(ort, value) for name, value in feed.items()
        }
        return [array_of(value) for value in backend.run_with_values(session, self._outputs, values, self._options)]

    def _convert(self, value: Any) -> Any:
        if isinstance(value, np.ndarray) and not is_native(value.dtype):
            return ort_value(backend.load(), value)
        return value

    def _remember(self, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        """Remember the input types for `run_again` if all results are tensors. Sequences are excluded, because their
        tensors may share memory."""
        if all(type(value) is np.ndarray and value.dtype.kind in "biuf" for value in inputs) and all(
            type(result) is np.ndarray for result in results
        ):
            self._like = [value.dtype for value in inputs]

    def _failure(self, error: Exception) -> Exception:
        return _failure(error, self._model.device, self.cancellation)


class BoundRunner(Runner):
    """One request of a provider with its own memory, through an I/O binding: inputs and results can be there.

    A run waits for the provider before it returns, so other sessions of the device can read its results.
    """

    def __init__(self, model: OrtModel, session: Any, counters: Counters | None, memory: OrtMemory) -> None:
        self._model = model  # keeps the weights alive
        self._session = session
        self._counters = counters
        self._memory = memory
        self._options = run_options(model.settings)
        self.cancellation: Cancellation = _Terminate(self._options)
        self._inputs = [port.name for port in model.inputs]
        self._outputs = [port.name for port in model.outputs]
        self._passed_on = _passed_on(self._inputs, self._outputs)
        self._host = backend.load().OrtDevice.make("cpu", 0)._get_c_device()
        self._binding = session.io_binding()._iobinding
        self._kept: frozenset[int] = frozenset()
        self._rows: Sequence[ProfileRow] = ()
        types = [entry.type for entry in (*session.get_inputs(), *session.get_outputs())]
        self._takes_arrays = counters is None and not any(type_ in FOREIGN_TYPES for type_ in types)

    def keep_on_device(self, positions: Sequence[int]) -> None:
        self._kept = frozenset(positions)

    def run(self, inputs: Sequence[Any]) -> Sequence[Any]:
        return self.run_into(inputs, ())

    def run_into(self, inputs: Sequence[Any], places: Sequence[Any]) -> Sequence[Any]:
        """See `PlacingRunner`. Only tensors of the provider's memory are used as places."""
        if not self._outputs:
            return []
        place_of = {
            position: place
            for position, place in enumerate(places)
            # onnxruntime ignores the memory for an output that is an input.
            if isinstance(place, OrtTensor) and position in self._kept and position not in self._passed_on
        }
        try:
            if not place_of:
                return self._bound(inputs, place_of)
            try:
                return self._bound(inputs, place_of)
            except Exception as error:
                if not MISFIT.search(str(error)):  # of a place that does not fit: the caller reports it
                    raise
                return self._bound(inputs, {})
        except Exception as error:
            raise _failure(error, self._model.device, self.cancellation) from error

    def _bound(self, inputs: Sequence[Any], place_of: Mapping[int, OrtTensor]) -> list[Any]:
        if self._takes_arrays and not self._kept and all(type(value) is np.ndarray for value in inputs):
            return self._exchanged(inputs)
        if self._counters is None:
            return self._call(self._session, self._binding, inputs, place_of)

        def call(session: Any, feed: Sequence[Any]) -> list[Any]:
            return self._call(session, session.io_binding()._iobinding, feed, place_of)

        results, self._rows = self._counters.run(call, inputs)
        return results

    def _exchanged(self, inputs: Sequence[Any]) -> list[Any]:
        """The results as arrays, from arrays. onnxruntime copies them in less time than it takes to bind them."""
        feed = dict(zip(self._inputs, inputs, strict=True))
        results: list[Any] = backend.direct(self._session).run(self._outputs, feed, self._options)
        for position, source in self._passed_on.items():
            results[position] = inputs[source]
        return results

    def _call(self, session: Any, binding: Any, inputs: Sequence[Any], place_of: Mapping[int, OrtTensor]) -> list[Any]:
        ort = backend.load()
        arrays = []  # which must outlive the run
        for name, value in zip(self._inputs, inputs, strict=True):
            if isinstance(value, OrtTensor):
                binding.bind_ortvalue_input(name, value.value)
            else:
                arrays.append(ort_value(ort, value))
                binding.bind_ortvalue_input(name, arrays[-1]._get_c_value())
        binding.clear_binding_outputs()  # which would be overwritten
        for position, name in enumerate(self._outputs):
            if position in place_of:
                binding.bind_ortvalue_output(name, place_of[position].value)
            else:
                binding.bind_output(name, self._memory.device if position in self._kept else self._host)
        try:
            session._sess.run_with_iobinding(binding, self._options)
            values = binding.get_outputs()
            return [
                self._result(position, values, place_of, session)
                if position not in self._passed_on
                else self._moved(position, inputs[self._passed_on[position]])
                for position in range(len(self._outputs))
            ]
        finally:
            binding.clear_binding_inputs()
            binding.clear_binding_outputs()

    def _result(self, position: int, values: Any, place_of: Mapping[int, OrtTensor], session: Any) -> Any:
        if position in place_of:
            return place_of[position]
        if position in self._kept:
            return self._memory.tensor(values[position], session)
        return array_of(backend.load().OrtValue(values[position]))

    def _moved(self, position: int, value: Any) -> Any:
        """An input that is the output at ``position``, where the output must be."""
        if isinstance(value, OrtTensor):
            return value if position in self._kept else value.numpy()
        return self._memory.upload(value) if position in self._kept else value

    def profile(self) -> Sequence[ProfileRow]:
        return self._rows


def _passed_on(inputs: Sequence[str], outputs: Sequence[str]) -> dict[int, int]:
    """Position of an output -> position of the input that it is. onnxruntime returns the memory of such an input, which
    may be a copy that only the run keeps alive."""
    positions = {name: position for position, name in enumerate(inputs)}
    return {position: positions[name] for position, name in enumerate(outputs) if name in positions}


def _failure(error: Exception, device: str, cancellation: Cancellation) -> Exception:
    """The error of a run, from onnxruntime's."""
    if isinstance(error, Cancelled | InferenceError):
        return error
    if cancellation.requested:
        return Cancelled("the run was cancelled")
    node = backend.failed_node(error)
    short = out_of_memory(error, device, f"at node {node!r}" if node else "for an inference")
    if short is not None:
        return short
    where = f"{device}: inference failed at node {node!r}" if node else f"{device}: inference failed"
    return inference_error(f"{where}: {backend.error_text(error)}", error)


class _Terminate(Cancellation):
    """Stops a run before its next node, through onnxruntime's own flag."""

    __slots__ = ("_options",)

    def __init__(self, options: Any) -> None:
        super().__init__()
        self._options = options

    def request(self) -> None:
        super().request()
        self._options.terminate = True

    def clear(self) -> None:
        super().clear()
        self._options.terminate = False
