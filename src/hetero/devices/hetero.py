"""Stage 4, compile, for the HETERO device: cut a model by its plan and compile each part on its device.

``HETERO:FPGA,CPU`` is a device like any other: it answers `query_model` for its list as a whole, and its compiled
model runs the submodels in the order of the partition, handing boundary values from one to the next.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..assign.calls import ResolvedModel, resolve_calls
from ..assign.costs.measured import Costs
from ..assign.memory.limits import limits_of, parse_limits
from ..base.device_string import parse_device, parse_device_list
from ..base.log import tell
from ..base.properties import MOST, PROPERTIES, Property, up_to
from ..base.warn import warn
from ..compiling.concurrent import ConcurrentCalls
from ..compiling.device_list import DeviceListPlugin
from ..compiling.free_memory import FreeMemory
from ..compiling.hetero_model import PAYLOAD_VERSION, Fallback, HeteroCompiledModel, schedule_of, wired_schedule
from ..compiling.on_device import compile_on
from ..errors import Corrupt, DeviceUnavailable, HeteroError, PropertyError, raise_out_of_memory, shown
from ..plan import Plan, bind_plan, make_plan
from ..plan.bind import place_plan, with_nested_calls_inlined
from ..plugin.caller import query
from ..plugin.contract import CompiledModel, RemoteContext, Support
from ..plugin.executor import DeviceExecutors
from ..plugin.remote import DeviceContexts
from ..report.dot import write_affinity_dot, write_subgraphs_dot
from ..runtime.pipelined import usable_processors

if TYPE_CHECKING:
    from ..artifact.payload import PayloadReader
    from ..assign.affinity import Affinity, SupportedNodes
    from ..assign.by_cost import CostAffinity
    from ..assign.by_stage import StagedAffinity
    from ..model.model import Model

__all__ = ["HeteroPlugin", "create_plugin"]

_THREADS = "INFERENCE_NUM_THREADS"
_PIPELINE = PROPERTIES["MODEL_DISTRIBUTION_POLICY"]
_POLICY = Property(
    "PARTITION_POLICY", str, "auto", choices=("auto", "linear", "greedy", "documented"), doc="how the model is cut"
)
_ASSIGNMENT = Property(
    "ASSIGNMENT",
    str,
    "PRIORITY",
    choices=("PRIORITY", "COST"),
    doc="PRIORITY: the first device of the list that takes a node; COST: where the predicted latency is least",
)
_COSTS = Property(
    "COSTS", (str, os.PathLike, Costs), "", doc="measured costs for ASSIGNMENT=COST: a `Costs`, or the path of a file"
)
_MAX_MEMORY = Property(
    "MAX_MEMORY",
    (Mapping, str),
    {},
    accepts=lambda given: parse_limits(given) is not None,  # which says what is wrong
    doc="{device: size}: what it may take for weights and activations, in bytes or as '512MiB'",
)
_QUEUE_LIMIT = Property(
    "QUEUE_LIMIT",
    int,
    0,
    accepts=up_to(MOST),
    doc=f"0 to {MOST}: how many requests may wait for the first stage of a pipeline before QueueFull; 0 = any number",
)


class HeteroPlugin(DeviceListPlugin):
    """Runs one model over several other devices."""

    name = "HETERO"
    properties = (
        *DeviceListPlugin.properties,
        "HETERO_DUMP_GRAPH_DOT",
        _PIPELINE,
        _QUEUE_LIMIT,
        _POLICY,
        _ASSIGNMENT,
        _COSTS,
        _MAX_MEMORY,
    )
    not_forwarded = DeviceListPlugin.not_forwarded | {
        "HETERO_DUMP_GRAPH_DOT",
        _PIPELINE.name,
        _QUEUE_LIMIT.name,
        _POLICY.name,
        _ASSIGNMENT.name,
        _COSTS.name,
        _MAX_MEMORY.name,
    }

    def query_model(self, model: Model, config: Mapping[str, Any]) -> Support:
        """A node is taken if any device of the list takes it; a call of a function also if all its nodes are taken."""
        return self._resolved(model.with_affinity({}), config).support()

    def query_devices(self, model: Model, config: Mapping[str, Any]) -> SupportedNodes:
        """Which device of the list takes each node, by priority, with every refusal."""
        return self._resolved(model.with_affinity({}), config).supported_nodes()

    def plan(self, model: Model, config: Mapping[str, Any], pins: Mapping[str, str] | None = None) -> Plan:
        """Assign and partition, without compiling."""
        settings = self.full_config(self.own(config))
        policy = settings[_POLICY.name]
        resolved = self._resolved(model, config, pins)
        limits = self._limits(resolved.devices, config)
        by_cost: Callable[[ResolvedModel, Affinity], CostAffinity | StagedAffinity] | None = None
        if settings[_PIPELINE.name] == "PIPELINE_PARALLEL":
            if settings[_ASSIGNMENT.name] == "COST":
                raise PropertyError(
                    "ASSIGNMENT=COST is for the least latency of one inference, MODEL_DISTRIBUTION_POLICY="
                    "PIPELINE_PARALLEL for the most inferences in a time: set one of them"
                )
            by_cost = functools.partial(self._by_stage, config=config, costs=_costs_of(settings), limits=limits)
        elif settings[_ASSIGNMENT.name] == "COST":
            by_cost = functools.partial(
                self._by_cost, config=config, costs=_costs_of(settings), policy=policy, limits=limits
            )
        return make_plan(resolved, pins, policy, self._skipped(config, resolved.devices), by_cost, limits)

    def _limits(self, devices: Sequence[str], config: Mapping[str, Any]) -> dict[str, int]:
        """Device -> bytes that it may take. Raises `PropertyError` for limits of devices that are not in the list."""
        settings = self.full_config(self.own(config))
        listed = parse_device_list(settings["MULTI_DEVICE_PRIORITIES"])
        stated = {device: self.device_of(device, config)[0].memory_bytes(device) for device in devices}
        return limits_of(
            devices,
            parse_limits(settings[_MAX_MEMORY.name]),
            stated,
            listed if _MAX_MEMORY.name in config else None,  # what was set for all models may be about others
        )

    def _by_cost(
        self,
        resolved: ResolvedModel,
        affinity: Affinity,
        config: Mapping[str, Any],
        costs: Costs | None,
        policy: str,
        limits: Mapping[str, int],
    ) -> CostAffinity:
        from ..assign.by_cost import assign_by_cost

        speeds = [self.device_of(device, config)[0].speed(device) for device in resolved.devices]
        return assign_by_cost(
            resolved.model,
            affinity,
            affinity.supports,
            speeds,
            costs=costs,
            original=resolved.original,
            policy=policy,
            limits=limits,
        )

    def _by_stage(
        self,
        resolved: ResolvedModel,
        affinity: Affinity,
        config: Mapping[str, Any],
        costs: Costs | None,
        limits: Mapping[str, int],
    ) -> StagedAffinity:
        from ..assign.by_stage import assign_stages

        speeds = [self.device_of(device, config)[0].speed(device) for device in resolved.devices]
        return assign_stages(
            resolved.model,
            affinity,
            resolved.supports,
            speeds,
            costs=costs,
            original=resolved.original,
            limits=limits,
        )

    def settings_of(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """With what the costs say, not where they are."""
        settings = dict(super().settings_of(config))
        costs = _costs_of(settings)
        limits = parse_limits(settings[_MAX_MEMORY.name])
        return {**settings, _COSTS.name: None if costs is None else costs.to_json(), _MAX_MEMORY.name: limits}

    def bind(self, model: Model, plan: Plan, config: Mapping[str, Any]) -> Plan:
        """A plan of this model from a loaded one, or one made for another reading of the model. Nodes of devices that
        cannot be used here go on to the next that takes them, with a warning, unless ``STRICT`` is set."""
        placed = place_plan(model, plan)
        available = list(self.available(config))
        devices = [device for device, _, _ in available]
        supports = self.ask(placed.model, available, config)
        as_asked = placed
        placed = with_nested_calls_inlined(placed, plan, devices, supports)
        if placed is not as_asked:
            supports = self.ask(placed.model, available, config)
        limits = self._limits(devices, config)
        return bind_plan(plan, placed, devices, supports, self._skipped(config, devices), limits)

    def check_limits(self, plan: Plan, config: Mapping[str, Any]) -> None:
        """Raise `InsufficientMemory` if a plan that is bound to its model needs more than ``config`` allows."""
        limits = self._limits(plan.devices, config)
        if limits != plan.limits:
            from ..assign.within_memory import check_limits

            model, _, partition = plan.require_bound()
            check_limits(model, plan.devices, partition, limits)

    def compile_model(
        self, model: Model, config: Mapping[str, Any], context: RemoteContext | None = None
    ) -> HeteroCompiledModel:
        return self.compile_plan(self.plan(model, config), config, context)

    def compile_plan(
        self, plan: Plan, config: Mapping[str, Any], context: RemoteContext | None = None
    ) -> HeteroCompiledModel:
        """Compile a plan made by `plan` (one with its model). ``context``: a `DeviceContexts`."""
        if context is not None and not isinstance(context, DeviceContexts):
            raise PropertyError(
                f"HETERO takes the contexts of its devices, found {shown(context)}; see Core.create_context"
            )
        contexts = {} if context is None else context.contexts
        model, _, partition = plan.require_bound()
        settings = self.full_config(self.own(config))
        folder = settings["HETERO_DUMP_GRAPH_DOT"]
        if folder:
            folder = "." if folder is True else folder
            write_affinity_dot(plan, folder)
            write_subgraphs_dot(plan, folder)
        devices = [plan.devices[number] for number in partition.device_of.tolist()]
        nodes = [partition.nodes(i) for i in range(len(devices))]
        if plan.pipeline is not None:
            # A stage is one run of its device, also where no edge joins all of it.
            parts = [[number - 1 for number in stage.subgraphs] for stage in plan.pipeline.stages]
            devices = [stage.device for stage in plan.pipeline.stages]
            nodes = [np.sort(np.concatenate([nodes[i] for i in part])) for part in parts]
            config = self._with_threads_shared(devices, config)
        elif len(set(devices)) == 1:
            # Nothing has to be cut. Subgraphs that no edge joins, such as an input that is an output, too, would be
            # calls of the device for nothing.
            devices, nodes = devices[:1], [np.arange(model.num_nodes, dtype=np.int32)]
        submodels = model.extract_all(nodes, [f"{model.name}_subgraph{i + 1}" for i in range(len(nodes))])
        fallbacks: list[Fallback] = []
        room = FreeMemory(plan, devices, nodes)

        def compile_part(i: int) -> CompiledModel:
            try:
                return self._compile_submodel(i, devices[i], submodels[i], config, contexts.get(devices[i]))
            except PropertyError:
                raise
            except HeteroError as error:
                raise_out_of_memory(error)
                following = () if settings["STRICT"] else plan.devices[plan.devices.index(devices[i]) + 1 :]
                compiled = self._compile_elsewhere(i, following, submodels[i], config, room)
                if compiled is None:
                    raise
                fallbacks.append(Fallback(i + 1, devices[i], compiled.device, str(error)))
                return compiled

        compiled = self._compile_all(compile_part, devices)
        fallbacks.sort(key=lambda entry: entry.subgraph)
        if fallbacks:
            text = "; ".join(map(str, fallbacks))
            tell(settings, self.name, "WARNING", text)
            warn(text)
        schedule = schedule_of(model, list(zip(submodels, compiled, strict=True)), DeviceExecutors(self.executors))
        ports = (model.inputs, model.outputs)
        return HeteroCompiledModel(plan, ports, model.name, compiled, schedule, settings, self.executors, fallbacks)

    def _with_threads_shared(self, devices: Sequence[str], config: Mapping[str, Any]) -> Mapping[str, Any]:
        """The configuration in which stages that would each use all processors, as nothing else was asked of them, get
        equal shares: they run at the same time."""
        greedy = []
        for device in devices:
            plugin, device_config = self.device_of(device, config)
            if plugin.declares(_THREADS) and not plugin.full_config(device_config)[_THREADS]:
                greedy.append(device)
        share = max(1, usable_processors() // max(1, len(greedy)))
        given: Mapping[str, Mapping[str, Any]] = config.get("DEVICE_PROPERTIES", {})
        shared = {device: {**given.get(device, {}), _THREADS: share} for device in greedy}
        return {**config, "DEVICE_PROPERTIES": {**given, **shared}}

    def _compile_all(self, compile_part: Callable[[int], CompiledModel], devices: Sequence[str]) -> list[CompiledModel]:
        """The parts in order; those of plugins that let others compute meanwhile at the same time."""
        beside = [
            i for i, device in enumerate(devices) if self.plugin_of(parse_device(device).name).compiles_beside_others
        ]
        if len(beside) < 2:
            return [compile_part(i) for i in range(len(devices))]
        position = {part: number for number, part in enumerate(beside)}
        begun = ConcurrentCalls([functools.partial(compile_part, part) for part in beside], os.cpu_count() or 1)
        try:
            return [begun.result(position[i]) if i in position else compile_part(i) for i in range(len(devices))]
        except BaseException as error:
            begun.stop(wait=isinstance(error, Exception))  # who presses Ctrl-C does not want to wait
            raise

    def check_import(self, reader: PayloadReader, config: Mapping[str, Any]) -> None:
        reader.require_version("payload", PAYLOAD_VERSION)
        self.check_parts(reader, config)

    def import_payload(self, reader: PayloadReader, config: Mapping[str, Any]) -> HeteroCompiledModel:
        from ..artifact.payload import ArrayRef

        stored = reader.schedule
        if stored is None:
            raise Corrupt(f"{reader.label}: the payload for {reader.device} has no schedule")
        plan = Plan.from_json(bytes(reader.read("plan.json")), f"{reader.label}: plan.json")
        constants = tuple(map(reader.array, reader.read_json("constants.json", list[ArrayRef])))
        submodels = self.import_parts(reader, config)
        wirings = [(step.inputs, step.outputs) for step in stored.steps]
        for compiled, (reads, fills) in zip(submodels, wirings, strict=True):
            if len(compiled.inputs) != len(reads) or len(compiled.outputs) != len(fills):
                raise Corrupt(f"{reader.label}: the schedule does not fit the submodel for {compiled.device}")
        if len(constants) != stored.num_constants:
            raise Corrupt(f"{reader.label}: there are {len(constants)} constants, expected {stored.num_constants}")
        executors = DeviceExecutors(self.executors)
        schedule = wired_schedule(stored.num_slots, constants, submodels, wirings, stored.outputs, executors)
        settings = self.full_config({_POLICY.name: plan.policy, **self.own(config)})
        ports = (reader.inputs, reader.outputs)
        return HeteroCompiledModel(plan, ports, reader.name, submodels, schedule, settings, self.executors)

    def _compile_submodel(
        self, i: int, device: str, submodel: Model, config: Mapping[str, Any], context: RemoteContext | None = None
    ) -> CompiledModel:
        plugin, device_config = self.device_of(device, config)
        try:
            return compile_on(plugin, submodel, device_config, context, device)
        except HeteroError as error:
            error.add_note(f"as subgraph {i + 1} on {device}")
            raise

    def _compile_elsewhere(
        self, i: int, devices: Sequence[str], submodel: Model, config: Mapping[str, Any], room: FreeMemory
    ) -> CompiledModel | None:
        """The submodel, compiled on the first of ``devices`` that supports it, has memory for it and compiles it; else
        None."""
        for device in devices:
            try:
                plugin, device_config = self.device_of(device, config)
                if query(plugin, submodel, device_config, device).mask.all() and room.move(i, device):
                    return self._compile_submodel(i, device, submodel, config)
            except HeteroError as error:
                raise_out_of_memory(error)
                continue  # the first failure is the one to report
        return None

    def _skipped(self, config: Mapping[str, Any], available: Sequence[str]) -> dict[str, str]:
        """The devices of the list that are not available, and why."""
        skipped = {}
        for device in parse_device_list(self.full_config(self.own(config))["MULTI_DEVICE_PRIORITIES"]):
            if device not in available:
                try:
                    self.device_of(device, config)
                except DeviceUnavailable as error:
                    skipped[device] = str(error)
        return skipped

    def _resolved(
        self, model: Model, config: Mapping[str, Any], pins: Mapping[str, str] | None = None
    ) -> ResolvedModel:
        """The answers of the available devices of the list, in order of priority, with calls of functions resolved."""
        available = list(self.available(config))

        def ask(asked: Model) -> list[Support]:
            return self.ask(asked, available, config)

        return resolve_calls(model, [device for device, _, _ in available], ask, pins)


def _costs_of(settings: Mapping[str, Any]) -> Costs | None:
    given = settings[_COSTS.name]
    if isinstance(given, Costs):
        return given
    return Costs.load(given) if os.fsdecode(given) else None


def create_plugin() -> HeteroPlugin:
    return HeteroPlugin()
