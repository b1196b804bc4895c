"""The plugin of ``TEMPLATE``: query, compile, run. Imports onnx only when it gets a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.machine import DeviceMemory, host_memory
from ...base.properties import without
from ...errors import Cancelled, InferenceError, UnsupportedModel, inference_error
from ...extension.binding import bind_node
from ...extension.table import CUSTOM_OPS, CustomOps, describe_ops, require_ops
from ...plugin.cancellation import Cancellation
from ...plugin.contract import CompiledModel, Plugin, RemoteContext, Runner, Support
from ...plugin.profile import EXECUTED, ProfileRow
from ..contradictions import contradictions

if TYPE_CHECKING:
    from ...artifact.payload import PayloadReader, PayloadWriter
    from ...extension.elsewhere import OpDescription
    from ...model.model import Model
    from .program import Program, Scope

__all__ = ["TemplatePlugin", "create_plugin"]

_PAYLOAD_VERSION = "1"


class TemplatePlugin(Plugin):
    """Runs every ONNX operator with a reference implementation. Slow, but correct for every opset."""

    name = "TEMPLATE"
    computes_on_host = True
    properties = (
        *without(Plugin.properties, "DEVICE_ID"),
        "PERF_COUNT",
        "RANGE_FOR_ASYNC_INFER_REQUESTS",
        "OPTIMAL_NUMBER_OF_INFER_REQUESTS",
    )

    def __init__(self) -> None:
        super().__init__()
        self._custom_ops = CustomOps(self.name)

    def add_extension(self, extension: Any) -> None:
        """Add a `CustomOp`."""
        self._custom_ops.add(extension)

    def bound_to_process(self, model: Model) -> str:
        op = self._custom_ops.first_in(model)
        return "" if op is None else f"the custom operator {op.name}"

    def described_ops(self, model: Model) -> Sequence[OpDescription]:
        return self._custom_ops.described_in(model)

    def read_only_property(self, name: str) -> Any:
        match name:
            case "FULL_DEVICE_NAME":
                return "Reference implementations (onnx.reference)"
            case "OPTIMIZATION_CAPABILITIES":
                return ("FP64", "FP32", "FP16", "BF16", "INT8", "STRING")
        return super().read_only_property(name)

    def device_memory(self, device: str) -> DeviceMemory | None:
        return host_memory()

    def query_model(self, model: Model, config: Mapping[str, Any]) -> Support:
        """Supports a node if its operator exists in the model's opset and has an implementation."""
        from .resolve import refusal

        scope = _scope(model, self._custom_ops)
        reasons = self._contradictions(model)
        for index, node in enumerate(model.nodes):
            reason = refusal(node.proto(), scope) or _custom_mismatch(model, index, self._custom_ops)
            if reason:
                reasons[index] = reason
        return Support.from_reasons(model.num_nodes, reasons)

    def _contradictions(self, model: Model) -> dict[int, str]:
        """Parameters that contradict an operator's definition, as the CPU rejects them. Results would mean nothing."""
        found = contradictions(model, infer=True)
        return {index: reason for index, reason in found.items() if not _is_custom(model, index, self._custom_ops)}

    def compile_model(
        self, model: Model, config: Mapping[str, Any], context: RemoteContext | None = None
    ) -> CompiledModel:
        self.check_host_context(context)
        full = self.full_config(config)
        from .program import Program, Refused

        scope = _scope(model, self._custom_ops)
        try:
            program = Program(
                [(node.key, node.proto()) for node in model.nodes],
                [port.name for port in model.inputs],
                [port.name for port in model.outputs],
                _constants(model),
                scope,
            )
        except Refused as refusal:
            raise UnsupportedModel(
                f"{self.name} cannot compile {model.name!r}: node {refusal.key!r}: {refusal}",
                {refusal.key: {self.name: str(refusal)}},
            ) from refusal
        custom_ops = describe_ops(scope.library.used) if scope.library.used else ""
        return TemplateModel(model, program, self.name, full, custom_ops)

    def check_import(self, reader: PayloadReader, config: Mapping[str, Any]) -> None:
        reader.require_version("payload", _PAYLOAD_VERSION)
        require_ops(reader, self._custom_ops)

    def import_payload(self, reader: PayloadReader, config: Mapping[str, Any]) -> CompiledModel:
        from ...artifact.model import read_payload_model

        return self.compile_model(read_payload_model(reader), config)


class TemplateModel(CompiledModel):
    """A model compiled to a `Program`."""

    checks_results = False  # the file may declare wrong shapes, which this device tolerates

    def __init__(
        self, model: Model, program: Program, device: str, config: Mapping[str, Any], custom_ops: str = ""
    ) -> None:
        """``custom_ops``: the required custom operators, from `describe_ops`."""
        properties = {"NETWORK_NAME": model.name, "OPTIMAL_NUMBER_OF_INFER_REQUESTS": 1, **config}
        super().__init__(device, model.inputs, model.outputs, properties)
        self._model = model
        self._program = program
        self._measured = bool(config["PERF_COUNT"])
        self._custom_ops = custom_ops

    def export_payload(self, writer: PayloadWriter) -> None:
        from ...artifact.model import write_payload_model

        writer.version["payload"] = _PAYLOAD_VERSION
        if self._custom_ops:
            writer.version[CUSTOM_OPS] = self._custom_ops
        write_payload_model(writer, self._model)

    def create_runner(self) -> Runner:
        return TemplateRunner(self.device, self._program, self._measured)


class TemplateRunner:
    """One request: the counters of its last run, and the flag that cancels a run."""

    def __init__(self, device: str, program: Program, measured: bool) -> None:
        self.cancellation = Cancellation()
        self._device = device
        self._program = program
        self._measured = measured
        self._times: list[tuple[int, int]] = []

    def run(self, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        from .program import stopping_by, with_str_objects

        times: list[tuple[int, int]] | None = [] if self._measured else None
        values = [with_str_objects(value) for value in inputs]
        with np.errstate(all="ignore"), stopping_by(self.cancellation):  # infinities and NaN are valid results
            try:
                results = self._program.run(values, times=times)
            except Cancelled:
                raise
            except InferenceError as error:
                raise inference_error(f"{self._device}: inference failed: {error}", error) from error.__cause__
        self._times = times or []
        return results

    def profile(self) -> Sequence[ProfileRow]:
        return tuple(
            ProfileRow(step.key, EXECUTED, step.op_type, "reference", real / 1000, cpu / 1000)
            for step, (real, cpu) in zip(self._program.steps, self._times, strict=False)
        )


def _is_custom(model: Model, index: int, ops: CustomOps) -> bool:
    domain, custom, op_type = model.op_types[int(model.op_type_of[index])].rpartition("::")
    return bool(custom) and bool(ops) and not isinstance(ops.find(domain, op_type, model.opsets.get(domain)), str)


def _custom_mismatch(model: Model, index: int, ops: CustomOps) -> str | None:
    """Why a custom operator does not support the known inputs of a node; None if it does, or for other operators."""
    if not ops:
        return None
    domain, custom, op_type = model.op_types[int(model.op_type_of[index])].rpartition("::")
    op = ops.find(domain, op_type, model.opsets.get(domain))
    if not custom or isinstance(op, str) or (domain, op_type) in model.functions:
        return None
    bound = bind_node(op, model, index)
    return bound if isinstance(bound, str) else None


def _scope(model: Model, custom_ops: CustomOps) -> Scope:
    """The opsets, functions and custom operators that a model's nodes can use."""
    import onnx

    from .program import Library, Scope
    from .resolve import implementation

    functions: Sequence[onnx.FunctionProto] = ()
    if model.functions:
        functions = onnx.ModelProto.FromString(model.to_bytes(max_constant_bytes=0)).functions
    return Scope(model.opsets, Library(implementation, functions, model.constants.external, custom_ops))


def _constants(model: Model) -> dict[str, np.ndarray]:
    """The constants that nodes, nested graphs or outputs read."""
    constants: dict[int, None] = {}
    for values in (model.node_inputs.values, model.node_captures.values, model.output_ids):
        constants.update((int(value), None) for value in values if value >= 0 and model.is_constant[value])
    return {model.value_name(value): model.constant(value) for value in constants}


def create_plugin() -> TemplatePlugin:
    return TemplatePlugin()
