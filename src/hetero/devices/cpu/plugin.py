"""The plugin of the device CPU."""

from __future__ import annotations

import os
import platform
import threading
import weakref
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ... import _kernels
from ...base import system
from ...base.formatting import counted
from ...base.machine import DeviceMemory, host_memory
from ...base.properties import STREAM_PROPERTIES, streams_and_threads
from ...errors import NotSupported, UnsupportedModel
from ...extension.table import CUSTOM_OPS, CustomOps, describe_ops, require_ops
from ...model.types import dtype_of
from ...plugin.contract import CompiledModel, Plugin, RemoteContext, Runner, Support
from .hosted import Ends, HostedRunner
from .labels import in_plans
from .operators.custom import Expansions
from .planner import Planner
from .registry import NodePlan, examine
from .runner import CpuRunner, PlanCache
from .values import Packed

if TYPE_CHECKING:
    from ...artifact.payload import PayloadReader, PayloadWriter
    from ...extension.elsewhere import OpDescription
    from ...model.model import Model
    from .stored import StoredModel

__all__ = ["CpuModel", "CpuPlugin", "create_plugin"]


MAX_THREADS = _kernels.constant("MAX_THREADS")
_SHAPING = ("DISABLE_TRANSFORMATIONS", "INFERENCE_PRECISION_HINT")  # properties that change results; exported
_STORAGE = {"f32": 0, "bf16": 16, "f16": 10}  # of packed weights, as onnx.TensorProto.DataType; 0: float32


class CpuPlugin(Plugin):
    """Runs models on this machine's processor.

    Models with the same device id, streams and threads share their teams of threads, one for each stream. The threads
    end with the last of these models. A request uses a free team; if all are in use, it runs on its own thread only.
    """

    name = "CPU"
    refuses_when_compiling = True
    computes_on_host = True
    properties = (
        *Plugin.properties,
        "PERF_COUNT",
        *STREAM_PROPERTIES,
        "INFERENCE_NUM_THREADS",
        "INFERENCE_PRECISION_HINT",
        "EXECUTION_MODE_HINT",
        "DISABLE_TRANSFORMATIONS",
        "ENABLE_CPU_PINNING",
        "CACHE_MODE",
    )

    def __init__(self) -> None:
        super().__init__()
        self._teams: weakref.WeakValueDictionary[Hashable, _kernels.Team] = weakref.WeakValueDictionary()
        self._teams_lock = threading.Lock()
        self._examined: weakref.WeakKeyDictionary[Model, Support] = weakref.WeakKeyDictionary()
        self._custom_ops = CustomOps(self.name)

    def device_memory(self, device: str) -> DeviceMemory | None:
        return host_memory()

    def query_model(self, model: Model, config: Mapping[str, Any]) -> Support:
        # Devices that run on this one, such as profile devices, ask again about the same model.
        examined = self._examined
        support = examined.get(model)
        if support is None:
            _, reasons = examine(model, Expansions(self._custom_ops), with_plans=False)
            support = examined[model] = Support.from_reasons(model.num_nodes, reasons)
        return support

    def add_extension(self, extension: Any) -> None:
        """Takes a `CustomOp`."""
        self._custom_ops.add(extension)
        self._examined = weakref.WeakKeyDictionary()  # queries in progress still write to the old dictionary

    def bound_to_process(self, model: Model) -> str:
        op = self._custom_ops.first_in(model)
        return "" if op is None else f"the custom operator {op.name}"

    def described_ops(self, model: Model) -> Sequence[OpDescription]:
        return self._custom_ops.described_in(model)

    def compile_model(
        self, model: Model, config: Mapping[str, Any], context: RemoteContext | None = None
    ) -> CompiledModel:
        self.check_host_context(context)
        return self._compiled(model, self.full_config(config))

    def _compiled(self, model: Model, settings: Mapping[str, Any], stored: StoredModel | None = None) -> CompiledModel:
        expansions = Expansions(self._custom_ops)
        plans, trouble = examine(model, expansions)
        if trouble:
            refused = {model.key_of(i): {self.name: why} for i, why in trouble.items()}
            first, reasons = next(iter(refused.items()))
            raise UnsupportedModel(
                f"{self.name} cannot compile {model.name!r}: it does not support {counted(len(refused), 'node')}; "
                f"the first is {first!r}: {reasons[self.name]}",
                refused,
            )
        device = self.device_name(settings["DEVICE_ID"])
        streams, threads = streams_and_threads(settings, len(_processors()))
        threads = min(threads, MAX_THREADS)
        processors = None
        if settings["ENABLE_CPU_PINNING"]:
            if not hasattr(os, "sched_setaffinity"):
                raise NotSupported(f"{self.name}: ENABLE_CPU_PINNING requires Linux")
            processors = _dealt_out(int(settings["DEVICE_ID"] or 0), streams, threads)
        team = self._team(settings["DEVICE_ID"], streams, threads, processors)
        needed = describe_ops(expansions.used) if expansions.used else ""
        return CpuModel(device, model, plans, {**settings, "NUM_STREAMS": streams}, team, processors, stored, needed)

    def full_config(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """With ``EXECUTION_MODE_HINT`` PERFORMANCE, ``INFERENCE_PRECISION_HINT`` defaults to bf16."""
        settings = super().full_config(config)
        name = "INFERENCE_PRECISION_HINT"
        if settings["EXECUTION_MODE_HINT"] == "PERFORMANCE" and name not in config and name not in self._table.assigned:
            settings[name] = "bf16"
        return settings

    def version_descriptor(self, config: Mapping[str, Any]) -> Mapping[str, str]:
        from .stored import version_descriptor

        return version_descriptor()

    def check_import(self, reader: PayloadReader, config: Mapping[str, Any]) -> None:
        from .stored import PAYLOAD_VERSION

        reader.require_version("payload", PAYLOAD_VERSION)
        require_ops(reader, self._custom_ops)

    def import_payload(self, reader: PayloadReader, config: Mapping[str, Any]) -> CompiledModel:
        from .stored import read_stored

        stored = read_stored(reader)
        shaping = {name: stored.settings[name] for name in _SHAPING if name in stored.settings}
        return self._compiled(stored.model, self.full_config({**shaping, **config}), stored)

    def _team(
        self, id_: str, streams: int, threads: int, processors: Sequence[Sequence[int]] | None
    ) -> _kernels.Team | None:
        """The team of threads for a model; None for one thread."""
        if threads == 1:
            return None
        key = (id_, streams, threads, repr(processors))
        with self._teams_lock:
            team = self._teams.get(key)
            if team is None:
                team = self._teams[key] = _kernels.Team(threads, streams, processors)
            return team

    def device_ids(self) -> tuple[str, ...]:
        return tuple(str(i) for i in range(os.cpu_count() or 1))

    def read_only_property(self, name: str) -> Any:
        match name:
            case "FULL_DEVICE_NAME":
                return f"{_processor_name()} ({_kernels.variant()} kernels)"
            case "DEVICE_ARCHITECTURE":
                return f"{platform.machine()}-{_kernels.variant()}"
            case "RANGE_FOR_STREAMS":
                return (1, len(_processors()))
            case "RANGE_FOR_ASYNC_INFER_REQUESTS":
                return (1, len(_processors()), 1)
            case "OPTIMAL_NUMBER_OF_INFER_REQUESTS":
                return streams_and_threads(self.full_config({}), len(_processors()))[0]
            case "OPTIMIZATION_CAPABILITIES":
                return ("FP64", "FP32", "INT8", "BIN")
        return super().read_only_property(name)


class CpuModel(CompiledModel):
    """A model that is planned once per set of input shapes, when the set first occurs."""

    checks_results = False  # kernels write to arrays of the planned type and shape

    def __init__(
        self,
        device: str,
        model: Model,
        nodes: list[NodePlan],
        settings: Mapping[str, Any],
        team: _kernels.Team | None,
        processors: Sequence[Sequence[int]] | None,
        stored: StoredModel | None = None,
        custom_ops: str = "",
    ) -> None:
        """``processors``: for each stream, the processor of each thread; None if threads are not pinned.
        ``custom_ops``: the custom operators that the model uses, as written by `describe_ops`."""
        super().__init__(device, model.inputs, model.outputs, {**settings, "NETWORK_NAME": model.name})
        self._timed = settings["PERF_COUNT"]
        self._team = team
        self._processors = processors
        self._custom_ops = custom_ops
        packed = Packed(dtype_of(_STORAGE[settings["INFERENCE_PRECISION_HINT"]]))
        transform = not settings["DISABLE_TRANSFORMATIONS"]
        nodes = in_plans(model, nodes) if transform else nodes
        self._ends = Ends.of(model, nodes)
        if stored is None:
            parts = {} if self._ends is None else self._ends.parts
            self._plans = PlanCache(Planner(model, nodes, transform, packed=packed, **parts))
        else:
            self._plans = PlanCache(stored.planner(nodes, transform, packed, self._ends))

    def export_payload(self, writer: PayloadWriter) -> None:
        from .stored import write_stored

        settings = {name: self.get_property(name) for name in _SHAPING}
        derived = self.get_property("CACHE_MODE") == "OPTIMIZE_SPEED"
        write_stored(writer, self._plans.planner, self._inputs, settings, derived)
        if self._custom_ops:
            writer.version[CUSTOM_OPS] = self._custom_ops

    def create_runner(self) -> Runner:
        runner = CpuRunner(self._plans, self._timed, self._team, self.device)
        return runner if self._ends is None else HostedRunner(runner, self._plans.planner, self._ends, self._timed)

    def stream_processors(self) -> Sequence[Sequence[int]] | None:
        """For each stream, the processor of its own thread, which is the first; the others belong to its team."""
        return None if self._processors is None else [processors[:1] for processors in self._processors]


def _dealt_out(device: int, streams: int, threads: int) -> list[list[int]]:
    """Assign processors to the threads of each stream round-robin, starting after those of the devices before."""
    processors = _processors()
    first = device * streams * threads
    return [
        [processors[(first + stream * threads + i) % len(processors)] for i in range(threads)]
        for stream in range(streams)
    ]


def _processors() -> list[int]:
    """The processors that this process may use."""
    return system.processors()


def _processor_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def create_plugin() -> CpuPlugin:
    return CpuPlugin()
