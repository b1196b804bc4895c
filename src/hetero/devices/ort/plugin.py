"""The plugin of ``ORT``, which runs models on onnxruntime. ``ORT.CUDA`` and others select execution providers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.formatting import counted
from ...base.machine import DeviceMemory, host_memory
from ...base.properties import Property
from ...errors import (
    DeviceUnavailable,
    HeteroError,
    PropertyError,
    UnsupportedModel,
    raise_out_of_memory,
    shown,
)
from ...plugin.contract import CompiledModel, Plugin, RemoteContext, Support
from ...plugin.speed import DeviceSpeed
from ..contradictions import contradictions
from . import backend, nvidia
from .arena import lease
from .backend import Target
from .counters import Counters
from .memory import OrtMemory, memory_at
from .runner import PAYLOAD_VERSION, SHAPING, OrtModel
from .session import (
    CPU_PROVIDER,
    SESSION_OPTIONS,
    SessionSource,
    named_options,
    num_streams,
    session_options,
    session_options_problem,
)
from .support import inferred_dtypes, record_assignment, refusals, takes_all, wrong_results
from .values import passes

if TYPE_CHECKING:
    from ...artifact.payload import PayloadReader
    from ...model.model import Model

__all__ = ["OrtPlugin", "create_plugin"]

# The builds of onnxruntime with execution providers that the default build lacks.
_PACKAGES = {
    "CUDA": "onnxruntime-gpu",
    "TENSORRT": "onnxruntime-gpu",
    "ROCM": "onnxruntime-rocm",
    "MIGRAPHX": "onnxruntime-migraphx",
    "OPENVINO": "onnxruntime-openvino",
    "QNN": "onnxruntime-qnn",
}
_GPUS = ("CUDA", "TENSORRT", "NVTENSORRTRTX", "ROCM", "MIGRAPHX", "DML", "WEBGPU")

_NO_GPU = 1 << 16  # a number that no GPU has

# Options of providers whose defaults do not suit several sessions on one GPU. By default, a session's memory grows to
# the next power of two, and to nearly the whole GPU after a request that was too large.
_OPTIONS = {"CUDAExecutionProvider": {"arena_extend_strategy": "kSameAsRequested"}}


class OrtPlugin(Plugin):
    """onnxruntime. Without an id, uses its CPU kernels.

    Each session has its own threads: ``INFERENCE_NUM_THREADS`` in total, for ``NUM_STREAMS`` concurrent requests. By
    default, its threads spin while a request runs and sleep afterwards, because other devices may need the processor.
    """

    name = "ORT"
    refuses_when_compiling = True
    computes_on_host = True  # unless a provider has memory of its own
    properties = (
        *Plugin.properties,
        "PERF_COUNT",
        "RANGE_FOR_ASYNC_INFER_REQUESTS",
        "RANGE_FOR_STREAMS",
        "OPTIMAL_NUMBER_OF_INFER_REQUESTS",
        "NUM_STREAMS",
        "PERFORMANCE_HINT",
        "PERFORMANCE_HINT_NUM_REQUESTS",
        "INFERENCE_NUM_THREADS",
        "DISABLE_TRANSFORMATIONS",
        Property("ORT_ALLOW_SPINNING", bool, False, doc="threads of a session also spin after a run, until the next"),
        Property("ORT_PROVIDER_OPTIONS", Mapping, {}, doc="onnxruntime's options for the execution provider"),
        Property("ORT_SESSION_CONFIG", Mapping, {}, doc="onnxruntime's config entries for the session"),
        Property(
            "ORT_SESSION_OPTIONS",
            Mapping,
            {},
            doc=f"attributes of onnxruntime's SessionOptions: {', '.join(SESSION_OPTIONS)}",
            problem=session_options_problem,
            convert=named_options,
        ),
        Property("ORT_RUN_CONFIG", Mapping, {}, doc="onnxruntime's config entries for each run"),
    )

    def __init__(self) -> None:
        super().__init__()
        backend.load()

    def device_ids(self) -> tuple[str, ...]:
        return tuple(backend.targets())

    def check_device_id(self, id_: str) -> None:
        try:
            super().check_device_id(id_)
        except DeviceUnavailable as error:
            package = _PACKAGES.get(id_.partition(".")[0]) if id_.partition(".")[0] not in self.device_ids() else None
            if package is None:
                raise
            raise DeviceUnavailable(
                f"{error}: the installed onnxruntime does not include it: pip uninstall onnxruntime && "
                f"pip install {package}"
            ) from None

    def read_only_property(self, name: str) -> Any:
        match name:
            case "FULL_DEVICE_NAME":
                return f"onnxruntime {backend.load().__version__}"
            case "DEVICE_ARCHITECTURE":
                return f"onnxruntime-{backend.load().__version__}"
            case "DEVICE_TYPE":
                return "discrete" if any(id_ in _GPUS for id_ in self.device_ids()) else "integrated"
            case "OPTIMIZATION_CAPABILITIES":
                return ("FP64", "FP32", "FP16", "INT8", "STRING")
            case "OPTIMAL_NUMBER_OF_INFER_REQUESTS":
                return num_streams(self.full_config({}))
            case "RANGE_FOR_ASYNC_INFER_REQUESTS" | "RANGE_FOR_STREAMS":
                return (1, 1024, 1) if name == "RANGE_FOR_ASYNC_INFER_REQUESTS" else (1, 1024)
        return super().read_only_property(name)

    def device_memory(self, device: str) -> DeviceMemory | None:
        """Known for onnxruntime's own kernels, and for GPUs of CUDA, whose driver says it."""
        id_ = device.partition(".")[2]
        if id_ in ("", "CPU"):
            return host_memory()
        target = backend.targets().get(id_)
        memory = None if target is None else target.memory({})
        total = None if memory is None else nvidia.total_bytes(memory[1])
        return None if total is None else DeviceMemory(total)

    def query_model(self, model: Model, config: Mapping[str, Any]) -> Support:
        """Supports a node if onnxruntime can create a session with it; see `support`."""
        settings = self.full_config(config)
        target = self._target(settings["DEVICE_ID"])
        return Support.from_reasons(model.num_nodes, refusals(model, target, settings["ORT_PROVIDER_OPTIONS"]))

    def speed(self, device: str) -> DeviceSpeed:
        """CPU kernels at the measured speed; GPUs of CUDA by what the driver says of them; other GPUs as a small one of
        them, because they also have memory of their own."""
        id_ = device.partition(".")[2] or "CPU"
        target = backend.targets().get(id_)
        memory = None if target is None else target.memory({})
        if memory is not None:
            return nvidia.speed(memory[1])
        if id_.partition(".")[0] in _GPUS:
            return dataclasses.replace(nvidia.speed(_NO_GPU), memory="")
        return super().speed(device)

    def get_default_context(self) -> RemoteContext:
        return self.get_context_of(str(self.full_config({})["DEVICE_ID"]))

    def get_context_of(self, id_: str) -> RemoteContext:
        context = self._memory(self._target(id_), {})
        return super().get_default_context() if context is None else context

    def create_context(self, parameters: Mapping[str, Any]) -> RemoteContext:
        unknown = [name for name in parameters if name != "DEVICE_ID"]
        if unknown:
            raise PropertyError(f"{self.name}: a context has the parameter DEVICE_ID, found {shown(unknown[0])}")
        return self.get_context_of(str(parameters.get("DEVICE_ID", "")))

    def find_dtypes(self, model: Model, names: Sequence[str], config: Mapping[str, Any]) -> Mapping[str, np.dtype[Any]]:
        """onnxruntime knows the types of all values of a model that it supports whole."""
        return {} if contradictions(model) else inferred_dtypes(model, names)  # onnxruntime may end the process

    def compile_model(
        self, model: Model, config: Mapping[str, Any], context: RemoteContext | None = None
    ) -> CompiledModel:
        settings = self.full_config(config)
        target = self._target(settings["DEVICE_ID"])
        device = self.device_name(settings["DEVICE_ID"])
        own = settings["ORT_PROVIDER_OPTIONS"]
        is_cpu = target.provider == CPU_PROVIDER
        memory = self._memory(target, own)
        if memory is None:
            self.check_host_context(context)
        elif context is not None and context is not memory:
            raise PropertyError(f"{device} computes in {memory!r}; found {shown(context)} as context")
        for port in (*model.inputs, *model.outputs):
            if port.is_stated and port.dtype is not None and not passes(port.dtype):
                self._refuse(model, device, refusals(model, target, own))
        self._refuse(model, device, wrong_results(model, target.provider))
        source = SessionSource(model)
        providers: list[Any] = [target.entry({**_OPTIONS.get(target.provider, {}), **own})]
        if not is_cpu:
            providers.append(CPU_PROVIDER)

        share = None
        if is_cpu and settings["ORT_SESSION_OPTIONS"].get("enable_cpu_mem_arena", True):
            share = lease()

        def plain_options() -> Any:
            return session_options(settings, share is not None, source.runs_in_integers)

        def new_options() -> Any:
            options = plain_options()
            if not model.outputs:  # onnxruntime would remove all nodes, and then fail
                options.graph_optimization_level = backend.load().GraphOptimizationLevel.ORT_DISABLE_ALL
            if not is_cpu:
                record_assignment(options)
            return options

        try:
            try:
                session = source.session(new_options(), providers)
            except Exception as error:
                if not backend.found_by_inference(error):
                    raise
                source.without_sizes()
                try:
                    session = source.session(new_options(), providers)
                except Exception:
                    raise error from None
            if not is_cpu and not takes_all(session, target.provider):
                # Otherwise, unsupported nodes would silently run on the CPU.
                self._refuse(model, device, refusals(model, target, own))
            counters = None
            if settings["PERF_COUNT"]:
                counters = Counters(model, source, plain_options, providers)
        except UnsupportedModel:
            raise
        except Exception as error:
            raise_out_of_memory(error)
            self._refuse(model, device, refusals(model, target, own), error)
            raise self._failure(model, device, error) from error
        properties = {
            **settings,
            "NETWORK_NAME": model.name,
            "NUM_STREAMS": num_streams(settings),
        }
        return OrtModel(device, model, properties, source, session, counters, memory, share)

    def check_import(self, reader: PayloadReader, config: Mapping[str, Any]) -> None:
        reader.require_version("payload", PAYLOAD_VERSION)

    def import_payload(self, reader: PayloadReader, config: Mapping[str, Any]) -> CompiledModel:
        from ...artifact.model import read_payload_model

        stored = reader.read_json("ort.json", dict[str, bool])
        shaping = {name: stored[name] for name in SHAPING if name in stored}
        return self.compile_model(read_payload_model(reader), {**shaping, **config})

    def _target(self, id_: str) -> Target:
        """The execution provider and its device for an id. Raises `DeviceUnavailable`."""
        id_ = id_ or "CPU"
        self.check_device_id(id_)
        if _PACKAGES.get(id_.partition(".")[0]) == "onnxruntime-gpu":
            backend.preload()
        return backend.targets()[id_]

    def _memory(self, target: Target, options: Mapping[str, Any]) -> OrtMemory | None:
        """The memory in which values can stay."""
        place = target.memory(options)
        return None if place is None else memory_at(*place)

    def _refuse(self, model: Model, device: str, refused: Mapping[int, str], cause: Exception | None = None) -> None:
        """Raise `UnsupportedModel` if ``refused`` is not empty."""
        if not refused:
            return
        reasons = {model.key_of(node): {device: why} for node, why in refused.items()}
        first, why = next(iter(reasons.items()))
        raise UnsupportedModel(
            f"{device} cannot compile {model.name!r}: {counted(len(reasons), 'node')} not supported, first {first!r}: "
            f"{why[device]}",
            reasons,
        ) from cause

    def _failure(self, model: Model, device: str, error: Exception) -> HeteroError:
        """The error for a model that onnxruntime cannot compile although it supports each of its nodes."""
        node, text = backend.failed_node(error), backend.error_text(error)
        if model.find_key(node) is not None:
            return UnsupportedModel(
                f"{device} failed to compile {model.name!r} at node {node!r}: {text}", {node: {device: text}}
            )
        return HeteroError(f"{device} failed to compile {model.name!r}: {text}")


def create_plugin() -> OrtPlugin:
    return OrtPlugin()
