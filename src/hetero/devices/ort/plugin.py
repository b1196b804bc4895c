"""The plugin of ``ORT``, which runs models on onnxruntime. ``ORT.CUDA`` and others select execution providers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.formatting import counted
from ...base.machine import DeviceMemory, host_memory
from ...base.properties import Property
from ...errors import DeviceUnavailable, HeteroError, UnsupportedModel, raise_out_of_memory
from ...plugin.contract import CompiledModel, Plugin, RemoteContext, Support
from . import backend
from .counters import Counters
from .runner import PAYLOAD_VERSION, SHAPING, OrtModel
from .session import CPU_PROVIDER, SessionSource, num_streams, session_options
from .support import inferred_dtypes, refusals
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
    properties = (
        *Plugin.properties,
        "PERF_COUNT",
        "RANGE_FOR_ASYNC_INFER_REQUESTS",
        "RANGE_FOR_STREAMS",
        "OPTIMAL_NUMBER_OF_INFER_REQUESTS",
        "NUM_STREAMS",
        "INFERENCE_NUM_THREADS",
        "DISABLE_TRANSFORMATIONS",
        Property("ORT_ALLOW_SPINNING", bool, False, doc="threads of a session also spin after a run, until the next"),
        Property("ORT_PROVIDER_OPTIONS", Mapping, {}, doc="onnxruntime's options for the execution provider"),
        Property("ORT_SESSION_CONFIG", Mapping, {}, doc="onnxruntime's config entries for the session"),
    )

    def __init__(self) -> None:
        super().__init__()
        backend.load()

    def device_ids(self) -> tuple[str, ...]:
        return tuple(backend.provider_ids())

    def check_device_id(self, id_: str) -> None:
        try:
            super().check_device_id(id_)
        except DeviceUnavailable as error:
            package = _PACKAGES.get(id_)
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
        """Known for onnxruntime's own kernels only."""
        return host_memory() if device.partition(".")[2] in ("", "CPU") else None

    def query_model(self, model: Model, config: Mapping[str, Any]) -> Support:
        """Supports a node if onnxruntime can create a session with it; see `support`."""
        settings = self.full_config(config)
        provider = self._provider(settings)
        return Support.from_reasons(model.num_nodes, refusals(model, provider, settings["ORT_PROVIDER_OPTIONS"]))

    def find_dtypes(self, model: Model, names: Sequence[str], config: Mapping[str, Any]) -> Mapping[str, np.dtype[Any]]:
        """onnxruntime knows the types of all values of a model that it supports whole."""
        return inferred_dtypes(model, names)

    def compile_model(
        self, model: Model, config: Mapping[str, Any], context: RemoteContext | None = None
    ) -> CompiledModel:
        settings = self.full_config(config)
        provider = self._provider(settings)
        device = self.device_name(settings["DEVICE_ID"])
        if provider != CPU_PROVIDER:  # otherwise, unsupported nodes would silently run on the CPU
            self._refuse(model, device, refusals(model, provider, settings["ORT_PROVIDER_OPTIONS"]))
        for port in (*model.inputs, *model.outputs):
            if port.is_stated and port.dtype is not None and not passes(port.dtype):
                self._refuse(model, device, refusals(model, provider, settings["ORT_PROVIDER_OPTIONS"]))
        source = SessionSource(model)
        providers: list[Any] = [(provider, {**_OPTIONS.get(provider, {}), **settings["ORT_PROVIDER_OPTIONS"]})]
        if provider != CPU_PROVIDER:
            providers.append(CPU_PROVIDER)
        try:
            session = source.session(session_options(settings), providers)
            counters = None
            if settings["PERF_COUNT"]:
                counters = Counters(model, source, lambda: session_options(settings), providers)
        except Exception as error:
            raise_out_of_memory(error)
            self._refuse(model, device, refusals(model, provider, settings["ORT_PROVIDER_OPTIONS"]), error)
            raise self._failure(model, device, error) from error
        properties = {
            **settings,
            "NETWORK_NAME": model.name,
            "OPTIMAL_NUMBER_OF_INFER_REQUESTS": num_streams(settings),
        }
        return OrtModel(device, model, properties, source, session, counters)

    def check_import(self, reader: PayloadReader, config: Mapping[str, Any]) -> None:
        reader.require_version("payload", PAYLOAD_VERSION)

    def import_payload(self, reader: PayloadReader, config: Mapping[str, Any]) -> CompiledModel:
        from ...artifact.model import read_payload_model

        stored = reader.read_json("ort.json", dict[str, bool])
        shaping = {name: stored[name] for name in SHAPING if name in stored}
        return self.compile_model(read_payload_model(reader), {**shaping, **config})

    def _provider(self, settings: Mapping[str, Any]) -> str:
        id_ = settings["DEVICE_ID"] or "CPU"
        self.check_device_id(id_)
        if _PACKAGES.get(id_) == "onnxruntime-gpu":
            backend.preload()
        return backend.provider_ids()[id_]

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
