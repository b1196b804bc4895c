"""Models compiled by OpenVINO, and requests on them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import Cancelled, HeteroError, InferenceError, inference_error, raise_out_of_memory
from ...model.types import Port
from ...plugin.cancellation import Cancellation
from ...plugin.contract import CompiledModel, Runner
from ...plugin.profile import EXECUTED, NOT_RUN, OPTIMIZED_OUT, ProfileRow
from . import backend
from .memory import OpenvinoMemory, OpenvinoTensor, out_of_memory

if TYPE_CHECKING:
    from ...artifact.payload import PayloadWriter

__all__ = ["PAYLOAD_VERSION", "OpenvinoModel", "OpenvinoRunner", "Origins", "copy_passed_inputs"]

PAYLOAD_VERSION = "3"  # 2: results that are inputs are copied; 3: integers that are not exact


_INPUT = ("Input", "Parameter", "")  # types of an operation that is an input of the model or is not known


class Origins:
    """The nodes of the model, and the OpenVINO operations that come from them.

    ``op_types``: node key -> operator, in the model's order. ``keys``: name of an operation -> node key.
    """

    def __init__(self, op_types: Mapping[str, str], keys: Mapping[str, str]) -> None:
        self.op_types = dict(op_types)
        self.keys = dict(keys)


class OpenvinoModel(CompiledModel):
    """A model compiled by OpenVINO."""

    checks_results = False  # the model was made for these ports

    def __init__(
        self,
        device: str,
        inputs: Sequence[Port],
        outputs: Sequence[Port],
        properties: Mapping[str, Any],
        compiled: Any,
        origins: Origins,
        limits: Mapping[str, int],
        memory: OpenvinoMemory | None = None,
    ) -> None:
        """``limits``: name of an input of integers -> the largest absolute value that is exact; see `integers`.
        ``memory``: of the device, if values can stay there; None: this machine's."""
        super().__init__(device, inputs, outputs, properties)
        self.memory_space = self.memory = memory
        self.compiled = compiled
        self.origins = origins
        self.limits = dict(limits)
        self.limited = [(at, limits[port.name]) for at, port in enumerate(inputs) if port.name in limits]
        self.counted = bool(properties["PERF_COUNT"])
        self.positions = self._positions()
        self.places_results = _places_results(compiled)
        # Execution node -> names of the operations that were fused into it.
        self.fused: dict[str, list[str]] = {}
        if self.counted:
            for node in compiled.get_runtime_model().get_ops():
                listed = node.get_rt_info()["originalLayersNames"].astype(str)
                self.fused[node.get_friendly_name()] = [name for name in listed.split(",") if name]

    def _positions(self) -> list[int | None]:
        """The position of each input of the model among OpenVINO's inputs; None if OpenVINO removed it.

        The order is the same, but OpenVINO removes inputs that nothing reads or that it treats as constants. In that
        case, inputs are matched by name, then by type, because an input that is also a result may be renamed."""
        names = [port.get_names() for port in self.compiled.inputs]
        if len(names) == len(self._inputs):
            return list(range(len(names)))
        positions = [next((at for at, known in enumerate(names) if port.name in known), None) for port in self._inputs]
        for at in sorted(set(range(len(names))) - set(positions)):
            renamed = self.compiled.inputs[at]
            candidates = [
                number
                for number, port in enumerate(self._inputs)
                if positions[number] is None
                and port.dtype == renamed.get_element_type().to_dtype()
                and port.shape is not None
                and len(port.shape) == len(renamed.get_partial_shape())
            ]
            if len(candidates) != 1:
                raise HeteroError(
                    f"{self.device}: OpenVINO renamed inputs of the model, and {sorted(names[at])} cannot be matched"
                )
            positions[candidates[0]] = at
        return positions

    def export_payload(self, writer: PayloadWriter) -> None:
        """Exports OpenVINO's own blob."""
        writer.version["payload"] = PAYLOAD_VERSION
        writer.version["openvino"] = str(backend.load().__version__)
        writer.add("blob", self.compiled.export_model().getvalue())
        writer.add_json("openvino.json", {"op_types": self.origins.op_types, "keys": self.origins.keys})
        writer.add_json("limits.json", self.limits)

    def create_runner(self) -> Runner:
        return OpenvinoRunner(self)


class OpenvinoRunner:
    """One request. OpenVINO reads inputs where they are, and writes results where the caller gets them as soon as their
    shapes are known: those that the model states, or those of the last run if the inputs have the same shapes."""

    def __init__(self, model: OpenvinoModel) -> None:
        self._model = model
        self._request = model.compiled.create_infer_request()
        self._own = [self._request.get_output_tensor(at) for at in range(len(model.outputs))]
        self._dtypes = [port.get_element_type() for port in model.compiled.outputs]
        self._stated = [_stated_shape(port) for port in model.compiled.outputs]
        self._shapes: list[tuple[int, ...] | None] = list(self._stated)
        self._like: list[tuple[int, ...]] | None = None  # the shapes of the inputs that ``_shapes`` are for
        self._replaced: set[int] = set()  # the outputs that OpenVINO does not write to ``_own``
        self._expects_same = True  # inputs of the same shapes have given results of the same shapes
        self._kept: frozenset[int] = frozenset()
        self.cancellation: Cancellation = _Cancel(self._request)

    def keep_on_device(self, positions: Sequence[int]) -> None:
        """See `CompiledModel.memory_space`."""
        self._kept = frozenset(positions)

    def run(self, inputs: Sequence[Any]) -> Sequence[Any]:
        return self.run_into(inputs, ())

    def run_into(self, inputs: Sequence[Any], places: Sequence[Any]) -> Sequence[Any]:
        """See `PlacingRunner`."""
        like = [value.shape for value in inputs]
        if like != self._like or not self._expects_same:
            self._like, self._shapes = like, list(self._stated)
        try:
            for position, limit in self._model.limited:
                self._check(position, inputs[position], limit)
            given = [self._place(at, places[at] if places else None) for at in range(len(self._own))]
            try:
                return self._run(inputs, given)
            except Exception:
                # The sizes of a result may depend on more than the shapes of the inputs: OpenVINO chooses its memory.
                sure = [None if shape is None else place for shape, place in zip(self._stated, given, strict=True)]
                if self.cancellation.requested or all(one is other for one, other in zip(sure, given, strict=True)):
                    raise
                self._expects_same = False
                return self._run(inputs, sure)
        except Exception as error:
            raise self._failure(error) from error

    def _check(self, position: int, value: Any, limit: int) -> None:
        """Raise an error if OpenVINO would round or truncate an integer of an input."""
        array = value.numpy() if isinstance(value, OpenvinoTensor) else value
        if not array.size:
            return
        low, high = int(array.min()), int(array.max())
        if low >= -limit and high <= limit:
            return
        name = self._model.inputs[position].name
        raise InferenceError(
            f"{self._model.device}: input {name!r} contains {high if high > limit else low}, but OpenVINO computes its "
            f"integers exactly only from {-limit:,} to {limit:,}: pin the nodes that read it to another device"
        )

    def _place(self, position: int, place: Any) -> np.ndarray | OpenvinoTensor | None:
        """Where OpenVINO writes a result; None: into memory of its own."""
        if not self._model.places_results:
            return None
        shape = self._shapes[position]
        memory = self._model.memory
        if position in self._kept:
            assert memory is not None
            if isinstance(place, OpenvinoTensor):
                return place if place.shape == shape else None
            return None if shape is None else memory.create_tensor(self._dtypes[position].to_dtype(), shape)
        if shape is None or 0 in shape:
            return None
        dtype = self._dtypes[position].to_dtype()
        if place is not None and place.nbytes == math.prod(shape) * dtype.itemsize:
            array: np.ndarray = place.view(dtype).reshape(shape)
            return array
        return np.empty(shape, dtype)

    def _run(self, inputs: Sequence[Any], given: Sequence[np.ndarray | OpenvinoTensor | None]) -> list[Any]:
        request, openvino = self._request, backend.load()
        for position, value in zip(self._model.positions, inputs, strict=True):
            if position is not None:
                request.set_input_tensor(
                    position, value.inner if isinstance(value, OpenvinoTensor) else backend.tensor_of(value)
                )
        for at, place in enumerate(given):
            if place is None:
                if at in self._replaced:
                    request.set_output_tensor(at, self._own[at])
                    self._replaced.discard(at)
                continue
            self._replaced.add(at)
            if isinstance(place, OpenvinoTensor):
                request.set_output_tensor(at, place.inner)
            else:
                request.set_output_tensor(at, openvino.Tensor(place, shared_memory=True))
        # Begun and waited for: what is only run cannot be cancelled.
        request.start_async()
        request.wait()
        return [self._result(at, place) for at, place in enumerate(given)]

    def _result(self, position: int, place: np.ndarray | OpenvinoTensor | None) -> Any:
        tensor = self._request.get_output_tensor(position)
        shape = tuple(tensor.shape)
        self._shapes[position] = shape
        if place is not None and place.shape == shape:
            return place
        if isinstance(place, OpenvinoTensor):  # it has another shape in the device's memory
            array = np.empty(shape, place.dtype)
            if array.size:
                tensor.copy_to(backend.load().Tensor(array, shared_memory=True))
        else:
            array = backend.array_of(tensor)
        if position not in self._kept:
            return array
        assert self._model.memory is not None
        return self._model.memory.upload(array)

    def _failure(self, error: Exception) -> Exception:
        if self.cancellation.requested:
            return Cancelled("the run was cancelled")
        if isinstance(error, HeteroError):
            return error
        device = self._model.device
        short = out_of_memory(error, device, "for an inference", 1)
        if short is not None:
            return short
        nodes = [self._model.origins.keys.get(name) for name in backend.failed_operations(error)]
        where = next((f" at node {key!r}" for key in nodes if key), "")
        return inference_error(f"{device}: inference failed{where}: {backend.error_text(error)}", error)

    def profile(self) -> Sequence[ProfileRow]:
        if not self._model.counted:
            return ()
        op_types, keys = self._model.origins.op_types, self._model.origins.keys
        rows: dict[str, ProfileRow] = {}
        for entry in self._request.profiling_info:
            names = [entry.node_name, *reversed(self._model.fused.get(entry.node_name, ()))]
            key = next((keys[name] for name in names if name in keys), None)
            if key is None:
                continue
            real, cpu = (time.total_seconds() * 1e6 for time in (entry.real_time, entry.cpu_time))
            status = {"EXECUTED": EXECUTED, "OPTIMIZED_OUT": OPTIMIZED_OUT}.get(entry.status.name, NOT_RUN)
            before = rows.get(key)
            if before is not None:
                real, cpu = real + before.real_us, cpu + before.cpu_us
                status = EXECUTED if EXECUTED in (status, before.status) else status
            rows[key] = ProfileRow(key, status, op_types[key], entry.exec_type or "none", real, cpu)
        return tuple(
            rows.get(key, ProfileRow(key, OPTIMIZED_OUT, op_type, "none", 0.0, 0.0))
            for key, op_type in op_types.items()
        )


def copy_passed_inputs(converted: Any, compiled: Any) -> bool:
    """Change a converted model so that OpenVINO's optimized model copies each result that is one of its inputs. Returns
    whether there are any: the model must then be compiled again.

    If such an input has dynamic sizes, the CPU plugin (2026.4) swaps its memory with the result's memory. Other nodes
    that read the input then get elements of earlier runs. OpenVINO removes a Convert, but not an Identity.
    """
    kinds = _kinds_of_results(compiled)
    passed = [
        result
        for result in converted.get_results()
        if kinds is None or kinds.get(result.get_friendly_name(), _INPUT[0]) in _INPUT
    ]
    for result in passed:
        source = result.input_value(0)
        result.input(0).replace_source_output(backend.load().opset16.identity(source).output(0))
    return bool(passed)


def _places_results(compiled: Any) -> bool:
    """Whether OpenVINO writes results to given memory. It does not write a result that is an input of its optimized
    model, but shares the input's memory with the given one, so that both are wrong (2026.4)."""
    kinds = _kinds_of_results(compiled)
    return kinds is not None and {*_INPUT, "Const", "Constant"}.isdisjoint(kinds.values())


def _kinds_of_results(compiled: Any) -> dict[str, str] | None:
    """Name of each result of OpenVINO's optimized model -> the type of the operation that computes it; None if the
    device does not tell."""
    kinds = {}
    try:
        for result in compiled.get_runtime_model().get_results():
            node = result.input_value(0).get_node()
            kinds[result.get_friendly_name()] = str(node.get_rt_info()["layerType"].astype(str))
    except Exception as error:
        raise_out_of_memory(error)
        return None
    return kinds


def _stated_shape(port: Any) -> tuple[int, ...] | None:
    """The shape of an output, if every run has the same."""
    shape = port.get_partial_shape()
    return tuple(int(size) for size in shape.to_shape()) if shape.is_static else None


class _Cancel(Cancellation):
    """Stops a run through OpenVINO's ``cancel``."""

    __slots__ = ("_request",)

    def __init__(self, request: Any) -> None:
        super().__init__()
        self._request = request

    def request(self) -> None:
        super().request()
        self._request.cancel()
