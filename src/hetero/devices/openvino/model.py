"""Models compiled by OpenVINO, and requests on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import Cancelled, HeteroError, inference_error
from ...model.types import Port
from ...plugin.cancellation import Cancellation
from ...plugin.contract import CompiledModel, Runner
from ...plugin.profile import EXECUTED, NOT_RUN, OPTIMIZED_OUT, ProfileRow
from . import backend

if TYPE_CHECKING:
    from ...artifact.payload import PayloadWriter

__all__ = ["PAYLOAD_VERSION", "OpenvinoModel", "OpenvinoRunner", "Origins"]

PAYLOAD_VERSION = "1"


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
    ) -> None:
        super().__init__(device, inputs, outputs, properties)
        self.compiled = compiled
        self.origins = origins
        self.counted = bool(properties["PERF_COUNT"])
        self.positions = self._positions()
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

    def create_runner(self) -> Runner:
        return OpenvinoRunner(self)


class OpenvinoRunner:
    """One request. Inputs are not copied; results are, because the next run overwrites them."""

    def __init__(self, model: OpenvinoModel) -> None:
        self._model = model
        self._request = model.compiled.create_infer_request()
        self._num_outputs = len(model.outputs)
        self.cancellation: Cancellation = _Cancel(self._request)

    def run(self, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        request = self._request
        try:
            for position, array in zip(self._model.positions, inputs, strict=True):
                if position is not None:
                    request.set_input_tensor(position, backend.tensor_of(array))
            # Begun and waited for: what is only run cannot be cancelled.
            request.start_async()
            request.wait()
            return [backend.array_of(request.get_output_tensor(at)) for at in range(self._num_outputs)]
        except Exception as error:
            device = self._model.device
            if self.cancellation.requested:
                raise Cancelled("the run was cancelled") from error
            nodes = [self._model.origins.keys.get(name) for name in backend.failed_operations(error)]
            where = next((f" at node {key!r}" for key in nodes if key), "")
            text = f"{device}: inference failed{where}: {backend.error_text(error)}"
            raise inference_error(text, error) from error

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


class _Cancel(Cancellation):
    """Stops a run through OpenVINO's ``cancel``."""

    __slots__ = ("_request",)

    def __init__(self, request: Any) -> None:
        super().__init__()
        self._request = request

    def request(self) -> None:
        super().request()
        self._request.cancel()
