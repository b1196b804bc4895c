"""The plugin of ``OPENCL``: devices, query, compile."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...base.formatting import counted
from ...base.machine import DeviceMemory
from ...base.properties import STREAM_PROPERTIES, Property, streams_and_threads
from ...errors import InsufficientMemory, PropertyError, UnsupportedModel, shown
from ...plugin.contract import CompiledModel, Plugin, RemoteContext, Support
from ...plugin.speed import CostSource, DeviceSpeed
from . import backend, blas
from .context import OpenclContext, context_of
from .device import Device, shared_device
from .model import PAYLOAD_VERSION, SHAPING, OpenclModel
from .planner import Planner, Settings
from .support import Examination, examine

if TYPE_CHECKING:
    from ...artifact.payload import PayloadReader
    from ...model.model import Model

__all__ = ["OpenclPlugin", "create_plugin"]

_USUAL_STREAMS = 4
"""Streams for throughput: enough for copies and kernels of several requests to overlap."""
_LINK = 1e10
"""B/s: assumed for the link to a GPU with its own memory; PCIe 3 with 16 lanes reaches this."""


class OpenclPlugin(Plugin):
    """Runs models on OpenCL devices. The id counts them: GPUs first."""

    name = "OPENCL"
    refuses_when_compiling = True
    properties = (
        *Plugin.properties,
        "PERF_COUNT",
        *STREAM_PROPERTIES,
        Property(
            "OPENCL_CLBLAST",
            str,
            "AUTO",
            choices=("AUTO", "YES", "NO"),
            doc="whether CLBlast multiplies float32 matrices; AUTO: on GPUs, if it is installed",
        ),
    )

    def __init__(self) -> None:
        super().__init__()
        self._found = backend.find_devices()
        self._examined: weakref.WeakKeyDictionary[Model, Examination] = weakref.WeakKeyDictionary()

    def device_ids(self) -> tuple[str, ...]:
        return tuple(str(at) for at in range(len(self._found)))

    def query_model(self, model: Model, config: Mapping[str, Any]) -> Support:
        return Support.from_reasons(model.num_nodes, self._examination(model).reasons)

    def compile_model(
        self, model: Model, config: Mapping[str, Any], context: RemoteContext | None = None
    ) -> CompiledModel:
        settings = self.full_config(config)
        device = self._device(settings["DEVICE_ID"])
        name = self.device_name(settings["DEVICE_ID"])
        if context is not None and not (isinstance(context, OpenclContext) and context.device is device):
            raise PropertyError(f"{name} accepts only a context of {device.name}, found {shown(context)}")
        examination = self._examination(model)
        if examination.reasons:
            refused = {model.key_of(node): {name: why} for node, why in examination.reasons.items()}
            first, reasons = next(iter(refused.items()))
            raise UnsupportedModel(
                f"{name} cannot compile {model.name!r}: it does not support {counted(len(refused), 'node')}; the first "
                f"is {first!r}: {reasons[name]}",
                refused,
            )
        streams = _num_streams(settings)
        chosen = settings["OPENCL_CLBLAST"]
        if chosen == "YES" and not blas.is_installed():
            raise PropertyError("property OPENCL_CLBLAST: CLBlast is not installed (Debian: apt install libclblast1)")
        uses_clblast = chosen == "YES" or (chosen == "AUTO" and device.is_gpu and blas.is_installed())
        planner = Planner(model, device, Settings(uses_clblast, chosen != "YES", settings["CACHE_DIR"]), examination)
        try:
            return OpenclModel(name, model, {**settings, "NUM_STREAMS": streams}, device, planner)
        except InsufficientMemory as error:
            error.add_note(f"in compiling {model.name!r} for {name}")
            raise

    def check_import(self, reader: PayloadReader, config: Mapping[str, Any]) -> None:
        reader.require_version("payload", PAYLOAD_VERSION)

    def import_payload(self, reader: PayloadReader, config: Mapping[str, Any]) -> CompiledModel:
        from ...artifact.model import read_payload_model

        stored = reader.read_json("opencl.json", dict[str, str])
        shaping = {name: stored[name] for name in SHAPING if name in stored}
        return self.compile_model(read_payload_model(reader), {**shaping, **config})

    def create_context(self, parameters: Mapping[str, Any]) -> OpenclContext:
        """``parameters``: ``DEVICE_ID``."""
        for name in parameters:
            if name != "DEVICE_ID":
                raise PropertyError(f"contexts of {self.name} accept the parameter 'DEVICE_ID', found {name!r}")
        id_ = parameters.get("DEVICE_ID", "")
        if id_:
            self.check_device_id(id_)
        return context_of(self._device(id_))

    def get_default_context(self) -> OpenclContext:
        return context_of(self._device(""))

    def device_memory(self, device: str) -> DeviceMemory | None:
        return DeviceMemory(int(self._hardware(device).global_mem_size))

    def speed(self, device: str) -> DeviceSpeed:
        """An estimate from the number and the clock of the compute units."""
        hardware = self._hardware(device)
        is_gpu = self._device_of(device).is_gpu
        cycles = max(1, hardware.max_compute_units) * max(1, hardware.max_clock_frequency) * 1e6
        link = None if hardware.host_unified_memory else _LINK
        return DeviceSpeed(
            cycles * (64 if is_gpu else 4),
            cycles * (2 if is_gpu else 1),
            launch_s=3e-5,
            node_s=1e-5,
            link_bytes_per_s=link,
            link_latency_s=0.0 if link is None else 2e-5,
            source=CostSource.ESTIMATE,
            memory="" if link is None else f"opencl-{self._device_of(device).identity}",
        )

    def version_descriptor(self, config: Mapping[str, Any]) -> Mapping[str, str]:
        return {**super().version_descriptor(config), "payload": PAYLOAD_VERSION}

    def read_only_property(self, name: str) -> Any:
        hardware = self._hardware(self._table.get("DEVICE_ID", self.name))
        match name:
            case "FULL_DEVICE_NAME":
                return f"{hardware.name.strip()} ({hardware.platform.name.strip()})"
            case "DEVICE_ARCHITECTURE":
                return f"opencl-{hardware.vendor.strip()}-{hardware.name.strip()}"
            case "DEVICE_TYPE":
                return "integrated" if hardware.host_unified_memory else "discrete"
            case "OPTIMIZATION_CAPABILITIES":
                return ("FP32", "FP16")
            case "RANGE_FOR_STREAMS":
                return (1, _USUAL_STREAMS)
            case "RANGE_FOR_ASYNC_INFER_REQUESTS":
                return (1, _USUAL_STREAMS, 1)
            case "OPTIMAL_NUMBER_OF_INFER_REQUESTS":
                return _num_streams(self.full_config({}))
        return super().read_only_property(name)

    def _examination(self, model: Model) -> Examination:
        examination = self._examined.get(model)
        if examination is None:
            examination = self._examined[model] = examine(model)
        return examination

    def _hardware(self, device: str) -> Any:
        """The hardware of ``OPENCL``, ``OPENCL.1`` or ``1``."""
        id_ = device.rpartition(".")[2]
        return self._found[int(id_) if id_ in self.device_ids() else 0]

    def _device_of(self, device: str) -> Device:
        id_ = device.rpartition(".")[2]
        return self._device(id_ if id_ in self.device_ids() else "")

    def _device(self, id_: str) -> Device:
        """A device by its id; the first if the id is empty. It is created on first use."""
        if id_:
            self.check_device_id(id_)
        id_ = id_ or "0"
        return shared_device(self._found[int(id_)], self.device_name(id_))


def _num_streams(settings: Mapping[str, Any]) -> int:
    return streams_and_threads({**settings, "INFERENCE_NUM_THREADS": 0}, _USUAL_STREAMS)[0]


def create_plugin() -> OpenclPlugin:
    return OpenclPlugin()
