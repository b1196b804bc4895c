"""The compiled model of a device."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...plugin.contract import CompiledModel, Runner
from .context import context_of
from .device import Device, Stream
from .planner import Planner
from .runner import OpenclRunner

if TYPE_CHECKING:
    from ...artifact.payload import PayloadWriter
    from ...model.model import Model

__all__ = ["PAYLOAD_VERSION", "SHAPING", "OpenclModel"]

PAYLOAD_VERSION = "1"
SHAPING = ("OPENCL_CLBLAST",)
"""Properties that an exported model stores."""


class OpenclModel(CompiledModel):
    """A model whose weights lie on the device. It is planned once for each set of input shapes of a request."""

    checks_results = False  # plans compute results of the types and shapes that they return

    def __init__(self, name: str, model: Model, settings: Mapping[str, Any], device: Device, planner: Planner) -> None:
        super().__init__(name, model.inputs, model.outputs, {**settings, "NETWORK_NAME": model.name})
        self.memory_space = context_of(device)
        self._model = model
        self._opencl_device = device
        self._planner = planner
        self._timed = bool(settings["PERF_COUNT"])
        self._streams: dict[int, Stream] = {}
        self._num_streams = int(settings["NUM_STREAMS"])
        self._next = itertools.count()
        folding = planner.folding()
        if folding is not None:
            plan, values = folding
            OpenclRunner(name, device, planner, Stream(device.context), False).run_plan(plan)
            planner.keep(values, plan)

    def export_payload(self, writer: PayloadWriter) -> None:
        """Export the model itself: kernels are valid only for this device and driver."""
        from ...artifact.model import write_payload_model

        writer.version["payload"] = PAYLOAD_VERSION
        write_payload_model(writer, self._model)
        writer.add_json("opencl.json", {name: self.get_property(name) for name in SHAPING})

    def create_runner(self) -> Runner:
        number = next(self._next) % self._num_streams
        stream = self._streams.get(number)
        if stream is None:
            stream = self._streams.setdefault(number, Stream(self._opencl_device.context, self._timed))
        return OpenclRunner(self.device, self._opencl_device, self._planner, stream, self._timed)
