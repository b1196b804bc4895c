"""The device HETERO: runs one model over several other devices.

``HETERO:FPGA,CPU`` is a device like any other: it answers `query_model` for its list as a whole, and its compiled
model runs the submodels in the order of the partition, handing boundary values from one to the next. This module
declares its properties; `hetero.assign`, `hetero.plan` and `hetero.compiling` do the work.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..assign.assigning import resolve_model
from ..assign.constraint_settings import least_of, parse_groups, parse_least
from ..assign.costs.measured import Costs
from ..assign.memory.limits import limits_of, parse_limits
from ..assign.request import AssignmentRules, Objective, ProcessorUse, Request
from ..base.device_string import CONTROL_FLOW
from ..base.machine import usable_processors
from ..base.properties import MOST, PROPERTIES, Property, up_to
from ..compiling.compile import compile_model
from ..compiling.device_list import COSTS, DeviceListPlugin
from ..compiling.hetero_model import PAYLOAD_VERSION, HeteroCompiledModel, wired_schedule
from ..compiling.requests import CuttingPlugin
from ..errors import Corrupt, PropertyError
from ..plan import LoadedPlan
from ..plugin.caller import ConfiguredDevice, configure
from ..plugin.contract import CompiledModel, RemoteContext, Support
from ..plugin.executor import DeviceExecutors
from .profile import ProfilePlugin

if TYPE_CHECKING:
    from ..artifact.payload import PayloadReader
    from ..model.model import Model

__all__ = ["HeteroPlugin", "create_plugin"]

_PIPELINE = PROPERTIES["MODEL_DISTRIBUTION_POLICY"]
_POLICY = Property(
    "PARTITION_POLICY",
    str,
    "auto",
    choices=("auto", "linear", "documented"),
    doc="algorithm that cuts the model into subgraphs",
)
_OBJECTIVE = Property(
    "OBJECTIVE",
    str,
    "SUBGRAPHS",
    choices=("SUBGRAPHS", "LATENCY"),
    doc="SUBGRAPHS: minimizes the number of subgraphs; LATENCY: minimizes the predicted latency with devices "
    "that run in parallel",
)
_ASSIGNMENT = Property(
    "ASSIGNMENT",
    str,
    "",
    choices=("", "PRIORITY", "COST"),
    doc="PRIORITY: each node goes to the first device in the list that supports it; COST: minimizes the predicted "
    "latency; '' = COST with OBJECTIVE=LATENCY, else PRIORITY",
)
_THREADS = "INFERENCE_NUM_THREADS"
_MAX_MEMORY = Property(
    "MAX_MEMORY",
    (Mapping, str),
    {},
    accepts=lambda given: parse_limits(given) is not None,  # which says what is wrong
    doc="{device: size}: memory limit for weights and activations, in bytes, such as '512MiB', or 'available'",
)
_MIN_SUBGRAPH = Property(
    "MIN_SUBGRAPH",
    (Mapping, str),
    {},
    accepts=lambda given: parse_least(given) is not None,  # which says what is wrong
    doc="{device: nodes} or {device: {'nodes': …, 'flops': …}}: nodes of a smaller subgraph go to the next device",
)
_STAY_TOGETHER = Property(
    "STAY_TOGETHER",
    (Sequence, str),
    (),
    accepts=lambda given: parse_groups(given) is not None,  # which says what is wrong
    doc="groups of nodes; the nodes of a group go to one device. A group is written like a pin, or as a list of these",
)
_QUEUE_LIMIT = Property(
    "QUEUE_LIMIT",
    int,
    0,
    accepts=up_to(MOST),
    doc=f"0 to {MOST}: number of requests that may wait for the first stage before QueueFull; 0 = no limit",
)

_MOST_DEVICES = 255  # a node's device is one byte, and one number is for the host


class HeteroPlugin(CuttingPlugin):
    """Runs one model over several other devices."""

    name = "HETERO"
    properties = (
        *DeviceListPlugin.properties,
        "PERFORMANCE_HINT",
        "HETERO_DUMP_GRAPH_DOT",
        _PIPELINE,
        _QUEUE_LIMIT,
        _POLICY,
        _OBJECTIVE,
        _ASSIGNMENT,
        COSTS,
        _MAX_MEMORY,
        _MIN_SUBGRAPH,
        _STAY_TOGETHER,
    )
    not_forwarded = DeviceListPlugin.not_forwarded | {
        "HETERO_DUMP_GRAPH_DOT",
        _PIPELINE.name,
        _QUEUE_LIMIT.name,
        _POLICY.name,
        _OBJECTIVE.name,
        _ASSIGNMENT.name,
        COSTS.name,
        _MAX_MEMORY.name,
        _MIN_SUBGRAPH.name,
        _STAY_TOGETHER.name,
    }

    def query_model(self, model: Model, config: Mapping[str, Any]) -> Support:
        """Supports a node if any device of the list supports it, and a call of a function also if all its nodes are
        supported."""
        return resolve_model(model.with_affinity({}), self.request(config)).support()

    def compile_model(
        self, model: Model, config: Mapping[str, Any], context: RemoteContext | None = None
    ) -> CompiledModel:
        return compile_model(model, self.request(config), context=context)

    def request(self, config: Mapping[str, Any], pins: Mapping[str, str] | None = None) -> Request:
        settings = self.full_config(self.own(config))
        objective = _objective_of(settings)
        devices, skipped = self.available(config, settings)
        if len(devices) > _MOST_DEVICES:
            raise PropertyError(f"the list of {self.name} has {len(devices)} devices: expected at most {_MOST_DEVICES}")
        devices = [self._with_pins(device, pins or {}) for device in devices]
        limits = limits_of(
            [device.name for device in devices],
            parse_limits(settings[_MAX_MEMORY.name]),
            {device.name: device.plugin.memory_bytes(device.name) for device in devices},
            # Limits that were set for all models may be about other devices.
            [*(device.name for device in devices), *skipped] if _MAX_MEMORY.name in config else None,
            lambda name: next(device for device in devices if device.name == name).plugin.available_bytes(name),
        )
        listed = [*(device.name for device in devices), *skipped] if _MIN_SUBGRAPH.name in config else None
        by_user = parse_least(settings[_MIN_SUBGRAPH.name])
        by_device = {device.name: device.plugin.least_subgraph(device.name) for device in devices}
        least = least_of(by_device, by_user, listed)
        counts = {device.name: device.plugin.most_subgraphs(device.name) for device in devices}
        most = {name: count for name, count in counts.items() if count is not None}
        together = parse_groups(settings[_STAY_TOGETHER.name])
        in_turn = settings["PERFORMANCE_HINT"] == "THROUGHPUT"
        rules = AssignmentRules(
            settings[_POLICY.name], objective, limits=limits, least=least, most=most, together=together, in_turn=in_turn
        )
        if objective is not Objective.PRIORITY or len(devices) > 1:  # plans by priority warn of devices that wait
            speeds = [device.plugin.speed(device.name) for device in devices]
            processors = _processors_of(devices)
            rules = dataclasses.replace(rules, costs=_costs_of(settings), speeds=speeds, processors=processors)
        whole = ConfiguredDevice(f"{self.name}:{settings['MULTI_DEVICE_PRIORITIES']}", self, config)
        return Request(whole, settings, tuple(devices), rules, pins or {}, skipped, cuts=True)

    def device_of(self, name: str, config: Mapping[str, Any]) -> ConfiguredDevice:
        """CONTROL_FLOW runs over the same list, with the same properties."""
        if name != CONTROL_FLOW:
            return super().device_of(name, config)
        plugin = self.plugin_of(name)
        with self._property_lock:
            merged = {**self._table.assigned, **config}
        own = merged.get("DEVICE_PROPERTIES", {}).get(name, {})
        return configure(plugin, {**merged, **own}, name)

    def _with_pins(self, device: ConfiguredDevice, pins: Mapping[str, str]) -> ConfiguredDevice:
        if device.name != CONTROL_FLOW or "PINS" in device.config:
            return device
        return dataclasses.replace(device, config={**device.config, "PINS": dict(pins)})

    def check_import(self, reader: PayloadReader, config: Mapping[str, Any]) -> None:
        reader.require_version("payload", PAYLOAD_VERSION)
        self.check_parts(reader, config)

    def import_payload(self, reader: PayloadReader, config: Mapping[str, Any]) -> HeteroCompiledModel:
        from ..artifact.payload import ArrayRef

        stored = reader.schedule
        if stored is None:
            raise Corrupt(f"{reader.label}: the payload for {reader.device} has no schedule")
        plan = LoadedPlan.from_json(bytes(reader.read("plan.json")), f"{reader.label}: plan.json")
        constants = tuple(map(reader.array, reader.read_json("constants.json", list[ArrayRef])))
        submodels = self.import_parts(reader, config)
        wirings = [(step.inputs, step.outputs) for step in stored.steps]
        for compiled, (reads, fills) in zip(submodels, wirings, strict=True):
            if len(compiled.inputs) != len(reads) or len(compiled.outputs) != len(fills):
                raise Corrupt(f"{reader.label}: the schedule does not fit the submodel for {compiled.device}")
        if len(constants) != stored.num_constants:
            raise Corrupt(f"{reader.label}: there are {len(constants)} constants, expected {stored.num_constants}")
        executors = DeviceExecutors(self.executors)
        numbers = [step.subgraph or part + 1 for part, step in enumerate(stored.steps)]
        schedule = wired_schedule(stored.num_slots, constants, submodels, wirings, stored.outputs, executors, numbers)
        settings = self.full_config({_POLICY.name: plan.policy, **self.own(config)})
        ports = (reader.inputs, reader.outputs)
        return HeteroCompiledModel(plan, ports, reader.name, submodels, schedule, settings, self.executors)


def _objective_of(settings: Mapping[str, Any]) -> Objective:
    """What a plan optimizes. Raises `PropertyError` for settings that contradict each other."""
    assignment, overlap = settings[_ASSIGNMENT.name], settings[_OBJECTIVE.name] == "LATENCY"
    if settings[_PIPELINE.name] == "PIPELINE_PARALLEL":
        for name, value, is_set in (("ASSIGNMENT", "COST", assignment == "COST"), ("OBJECTIVE", "LATENCY", overlap)):
            if is_set:
                raise PropertyError(
                    f"{name}={value} minimizes the latency of one inference, but MODEL_DISTRIBUTION_POLICY="
                    "PIPELINE_PARALLEL maximizes the throughput: set only one of them"
                )
        return Objective.THROUGHPUT
    if overlap:
        return Objective.OVERLAP_BY_PRIORITY if assignment == "PRIORITY" else Objective.OVERLAP
    return Objective.COST if assignment == "COST" else Objective.PRIORITY


def _processors_of(devices: Sequence[ConfiguredDevice]) -> ProcessorUse:
    """The processors that devices use. A simulated device counts as the hardware that it simulates."""
    processors = usable_processors()
    threads = []
    for device in devices:
        plugin = device.plugin
        if isinstance(plugin, ProfilePlugin) or not plugin.declares(_THREADS):
            threads.append(0)
        else:
            threads.append(plugin.setting(_THREADS, device.config) or processors)
    return ProcessorUse(tuple(threads), processors)


def _costs_of(settings: Mapping[str, Any]) -> Costs | None:
    costs = settings[COSTS.name]
    if isinstance(costs, Costs):
        return costs
    return Costs.load(costs) if os.fsdecode(costs) else None


def create_plugin() -> HeteroPlugin:
    return HeteroPlugin()
