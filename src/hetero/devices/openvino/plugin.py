"""The plugin of ``OPENVINO``, which runs models on OpenVINO. Device ids are its devices, as in ``OPENVINO.GPU``."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...base.formatting import counted
from ...base.machine import DeviceMemory, host_memory
from ...base.properties import Property
from ...errors import HeteroError, PropertyError, UnsupportedModel, WrongVersion, raise_out_of_memory, shown
from ...plugin.contract import CompiledModel, Plugin, RemoteContext, Support
from . import backend
from .differences import wrong_results
from .integers import limits_of
from .memory import OpenvinoMemory
from .model import PAYLOAD_VERSION, OpenvinoModel, Origins, copy_passed_inputs
from .support import originals, read, refusals

if TYPE_CHECKING:
    from ...artifact.payload import PayloadReader
    from ...model.model import Model

__all__ = ["OpenvinoPlugin", "create_plugin"]

# Properties with the same names in OpenVINO.
_PASSED_ON = (
    "PERF_COUNT",
    "NUM_STREAMS",
    "INFERENCE_NUM_THREADS",
    "INFERENCE_PRECISION_HINT",
    "ENABLE_CPU_PINNING",
    "EXECUTION_MODE_HINT",
    "PERFORMANCE_HINT",
    "PERFORMANCE_HINT_NUM_REQUESTS",
)
_BY_OPENVINO = "dynamic"  # INFERENCE_PRECISION_HINT: OpenVINO chooses
_ONLY_CPU = ("INFERENCE_NUM_THREADS", "ENABLE_CPU_PINNING")
_LOG_LEVELS = {"NO": "LOG_NONE", "ERR": "LOG_ERROR", "WARNING": "LOG_WARNING", "INFO": "LOG_INFO"}


class OpenvinoPlugin(Plugin):
    """OpenVINO. Without an id, uses its CPU device."""

    name = "OPENVINO"
    refuses_when_compiling = True
    computes_on_host = True  # unless a GPU or NPU has memory of its own
    properties = (
        *Plugin.properties,
        "RANGE_FOR_ASYNC_INFER_REQUESTS",
        "RANGE_FOR_STREAMS",
        "OPTIMAL_NUMBER_OF_INFER_REQUESTS",
        *_PASSED_ON,
        Property("OPENVINO_CONFIG", Mapping, {}, doc="additional properties for OpenVINO"),
    )

    def __init__(self) -> None:
        super().__init__()
        self._core = backend.core()
        self._memories: dict[str, OpenvinoMemory | None] = {}
        self._memory_lock = threading.Lock()

    def full_config(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """With ``EXECUTION_MODE_HINT`` PERFORMANCE, OpenVINO chooses the type of weights if none is set."""
        settings = super().full_config(config)
        name = "INFERENCE_PRECISION_HINT"
        if settings["EXECUTION_MODE_HINT"] == "PERFORMANCE" and name not in config and name not in self._table.assigned:
            settings[name] = _BY_OPENVINO
        return settings

    def device_ids(self) -> tuple[str, ...]:
        return tuple(sorted(self._devices(), key=lambda id_: id_ != "CPU"))

    def _devices(self) -> dict[str, str]:
        """Id -> OpenVINO's name; ``GPU_1`` for its ``GPU.1``."""
        return {name.replace(".", "_"): name for name in self._core.available_devices}

    def read_only_property(self, name: str) -> Any:
        match name:
            case "FULL_DEVICE_NAME":
                return f"OpenVINO {backend.load().__version__}"
            case "DEVICE_ARCHITECTURE":
                return f"openvino-{backend.load().__version__}"
            case "OPTIMIZATION_CAPABILITIES":
                return tuple(self._core.get_property(next(iter(self._devices().values()), "CPU"), name))
            case "OPTIMAL_NUMBER_OF_INFER_REQUESTS":
                return max(1, self.full_config({})["NUM_STREAMS"])
            case "RANGE_FOR_ASYNC_INFER_REQUESTS":
                return (1, 1024, 1)
            case "RANGE_FOR_STREAMS":
                return (1, 1024)
        return super().read_only_property(name)

    def device_memory(self, device: str) -> DeviceMemory | None:
        id_ = device.partition(".")[2] or "CPU"
        if id_ == "CPU":
            return host_memory()
        try:
            total = int(self._core.get_property(self._devices()[id_], "GPU_DEVICE_TOTAL_MEM_SIZE"))
        except Exception:  # not a GPU, or OpenVINO does not know
            return None
        return DeviceMemory(total) if total > 0 else None

    def query_model(self, model: Model, config: Mapping[str, Any]) -> Support:
        """Supports a node if OpenVINO can convert it and supports all resulting operations; see `support`."""
        settings = self.full_config(config)
        device = self._device(settings)
        return Support.from_reasons(model.num_nodes, refusals(self._core, model, device, {}))

    def compile_model(
        self, model: Model, config: Mapping[str, Any], context: RemoteContext | None = None
    ) -> CompiledModel:
        settings = self.full_config(config)
        device = self._device(settings)
        name = self.device_name(settings["DEVICE_ID"])
        memory = self._memory(device)
        if memory is None:
            self.check_host_context(context)
        elif context is not None and context is not memory:
            raise PropertyError(f"{name} computes in {memory!r}; found {shown(context)} as context")
        for port in (*model.inputs, *model.outputs):
            if not port.is_tensor or (port.dtype is not None and not backend.passes(port.dtype)):
                self._refuse(model, name, refusals(self._core, model, device, {}))
                raise UnsupportedModel(
                    f"{name} cannot compile {model.name!r}: {port.name!r} cannot be passed to OpenVINO"
                )
        inexact, limits = limits_of(model)
        self._refuse(model, name, inexact | wrong_results(model))
        try:
            converted = read(self._core, model)
            origins = Origins({node.key: node.op_type for node in model.nodes}, originals(model, converted))
            compiled = self._core.compile_model(converted, device, self._config(settings, device))
            if device == "CPU" and copy_passed_inputs(converted, compiled):
                compiled = self._core.compile_model(converted, device, self._config(settings, device))
        except Exception as error:
            raise_out_of_memory(error)
            self._refuse(model, name, refusals(self._core, model, device, {}), error)
            raise HeteroError(f"{name} failed to compile {model.name!r}: {backend.error_text(error)}") from error
        properties = {**settings, "NETWORK_NAME": model.name, "NUM_STREAMS": _streams(settings, compiled)}
        named = {model.value_name(value): limit for value, limit in limits.items()}
        return OpenvinoModel(name, model.inputs, model.outputs, properties, compiled, origins, named, memory)

    def check_import(self, reader: PayloadReader, config: Mapping[str, Any]) -> None:
        reader.require_version("payload", PAYLOAD_VERSION)
        reader.require_version("openvino", str(backend.load().__version__))

    def import_payload(self, reader: PayloadReader, config: Mapping[str, Any]) -> CompiledModel:
        import io

        settings = self.full_config(config)
        device = self._device(settings)
        stored = reader.read_json("openvino.json", dict[str, dict[str, str]])
        limits = reader.read_json("limits.json", dict[str, int])
        try:
            compiled = self._core.import_model(
                io.BytesIO(bytes(reader.read("blob"))), device, self._config(settings, device)
            )
        except Exception as error:
            raise_out_of_memory(error)
            raise WrongVersion(
                f"{reader.label}: OpenVINO cannot import its blob on {device}: {backend.error_text(error)}"
            ) from error
        properties = {**settings, "NETWORK_NAME": reader.name, "NUM_STREAMS": _streams(settings, compiled)}
        origins = Origins(stored.get("op_types", {}), stored.get("keys", {}))
        memory = self._memory(device)
        return OpenvinoModel(
            reader.device, reader.inputs, reader.outputs, properties, compiled, origins, limits, memory
        )

    def _device(self, settings: Mapping[str, Any]) -> str:
        id_ = settings["DEVICE_ID"] or "CPU"
        self.check_device_id(id_)
        return self._devices()[id_]

    def _memory(self, device: str) -> OpenvinoMemory | None:
        """The memory of a GPU or NPU where values can stay, as far as the package offers it. ``device``: OpenVINO's
        name."""
        if device.partition(".")[0] not in ("GPU", "NPU"):
            return None
        with self._memory_lock:
            if device not in self._memories:
                try:
                    inner = self._core.get_default_context(device)
                    self._memories[device] = OpenvinoMemory(self.device_name(device.replace(".", "_")), inner)
                except Exception as error:  # of a driver without shared memory
                    raise_out_of_memory(error)
                    self._memories[device] = None
            return self._memories[device]

    def get_default_context(self) -> RemoteContext:
        return self.get_context_of(str(self.full_config({})["DEVICE_ID"]))

    def get_context_of(self, id_: str) -> RemoteContext:
        return self._memory(self._device({"DEVICE_ID": id_})) or super().get_default_context()

    def create_context(self, parameters: Mapping[str, Any]) -> RemoteContext:
        unknown = [name for name in parameters if name != "DEVICE_ID"]
        if unknown:
            raise PropertyError(f"{self.name}: a context has the parameter DEVICE_ID, found {shown(unknown[0])}")
        return self._memory(self._device({"DEVICE_ID": parameters.get("DEVICE_ID", "")})) or super().create_context({})

    def _config(self, settings: Mapping[str, Any], device: str) -> dict[str, Any]:
        """The configuration for OpenVINO."""
        passed = {name: settings[name] for name in _PASSED_ON if device == "CPU" or name not in _ONLY_CPU}
        if settings["INFERENCE_PRECISION_HINT"] == _BY_OPENVINO:
            del passed["INFERENCE_PRECISION_HINT"]
        if _chooses_streams(settings):
            del passed["NUM_STREAMS"]
        else:
            passed["NUM_STREAMS"] = max(1, settings["NUM_STREAMS"])
        passed["LOG_LEVEL"] = _LOG_LEVELS.get(settings["LOG_LEVEL"], "LOG_DEBUG")
        return {**passed, **settings["OPENVINO_CONFIG"]}

    def _refuse(self, model: Model, name: str, refused: Mapping[int, str], cause: Exception | None = None) -> None:
        """Raise `UnsupportedModel` if ``refused`` is not empty."""
        if not refused:
            return
        reasons = {model.key_of(node): {name: why} for node, why in refused.items()}
        first, why = next(iter(reasons.items()))
        raise UnsupportedModel(
            f"{name} cannot compile {model.name!r}: {counted(len(reasons), 'node')} not supported, first {first!r}: "
            f"{why[name]}",
            reasons,
        ) from cause


def _chooses_streams(settings: Mapping[str, Any]) -> bool:
    """Whether OpenVINO chooses the number of streams."""
    return bool(settings["NUM_STREAMS"] == 0 and settings["PERFORMANCE_HINT"] == "THROUGHPUT")


def _streams(settings: Mapping[str, Any], compiled: Any) -> int:
    """The number of requests that OpenVINO runs in parallel."""
    if _chooses_streams(settings):
        return int(compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS"))
    return max(1, int(settings["NUM_STREAMS"]))


def create_plugin() -> OpenvinoPlugin:
    return OpenvinoPlugin()
