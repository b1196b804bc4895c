"""The plugin behind the name CPU."""

from __future__ import annotations

import os
import platform
import threading
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from ... import _kernels
from ...errors import UnsupportedModel
from ...plugin import CompiledModel, Plugin, RemoteContext, Runner, Support
from .bodies import Bodies
from .planner import Planner
from .registry import NodePlan, examine
from .runner import CpuRunner, PlanCache
from .values import Packed

if TYPE_CHECKING:
    from ...model.model import Model

__all__ = ["CpuModel", "CpuPlugin", "create_plugin"]


MAX_THREADS = 1024
_STORAGE = {"f32": None, "bf16": np.dtype(ml_dtypes.bfloat16), "f16": np.dtype(np.float16)}  # of packed weights


class CpuPlugin(Plugin):
    """Runs models on this machine's processor.

    Models compiled for the same device id and number of threads share a team of threads, which ends with the last of
    them. One request at a time uses it; others run on their own thread alone.
    """

    name = "CPU"
    refuses_when_compiling = True
    properties = (*Plugin.properties, "INFERENCE_NUM_THREADS", "INFERENCE_PRECISION_HINT", "DISABLE_TRANSFORMATIONS")

    def __init__(self) -> None:
        super().__init__()
        self._teams: weakref.WeakValueDictionary[tuple[str, int], _kernels.Team] = weakref.WeakValueDictionary()
        self._teams_lock = threading.Lock()

    def query_model(self, model: Model, config: Mapping[str, Any]) -> Support:
        self.full_config(config)
        return Support.from_reasons(model.num_nodes, examine(model, Bodies())[1])

    def compile_model(
        self, model: Model, config: Mapping[str, Any], context: RemoteContext | None = None
    ) -> CompiledModel:
        settings = self.full_config(config)
        plans, trouble = examine(model, Bodies())
        if trouble:
            refused = {model.key_of(i): {"CPU": why} for i, why in trouble.items()}
            first, reasons = next(iter(refused.items()))
            raise UnsupportedModel(
                f"CPU cannot compile {model.name!r}: {len(refused)} nodes are refused, the first is {first!r}: "
                f"{reasons['CPU']}",
                refused,
            )
        device = f"CPU.{settings['DEVICE_ID']}" if settings["DEVICE_ID"] else "CPU"
        return CpuModel(device, model, plans, settings, self._team(settings))

    def _team(self, settings: Mapping[str, Any]) -> _kernels.Team | None:
        """Threads for a model; None for one alone."""
        threads = settings["INFERENCE_NUM_THREADS"] or len(os.sched_getaffinity(0))
        if threads == 1:
            return None
        with self._teams_lock:
            team = self._teams.get((settings["DEVICE_ID"], threads))
            if team is None:
                team = self._teams[settings["DEVICE_ID"], threads] = _kernels.Team(min(threads, MAX_THREADS))
            return team

    def device_ids(self) -> tuple[str, ...]:
        return tuple(str(i) for i in range(os.cpu_count() or 1))

    def read_only_property(self, name: str) -> Any:
        match name:
            case "FULL_DEVICE_NAME":
                return f"{_processor_name()} ({_kernels.variant()} kernels)"
            case "DEVICE_ARCHITECTURE":
                return f"{platform.machine()}-{_kernels.variant()}"
            case "DEVICE_TYPE":
                return "integrated"
            case "OPTIMIZATION_CAPABILITIES":
                return ("FP32",)
        return super().read_only_property(name)


class CpuModel(CompiledModel):
    """A planned model. Plans are made per set of input shapes, when those first occur."""

    def __init__(
        self,
        device: str,
        model: Model,
        nodes: list[NodePlan],
        settings: Mapping[str, Any],
        team: _kernels.Team | None,
    ) -> None:
        super().__init__(device, model.inputs, model.outputs, {**settings, "NETWORK_NAME": model.name})
        self._timed = settings["PERF_COUNT"]
        self._team = team
        packed = Packed(_STORAGE[settings["INFERENCE_PRECISION_HINT"]])
        self._plans = PlanCache(Planner(model, nodes, not settings["DISABLE_TRANSFORMATIONS"], packed=packed))

    def create_runner(self) -> Runner:
        return CpuRunner(self._plans, self._timed, self._team)


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
