"""The device CONTROL_FLOW: runs If, Loop and Scan, whose nested graphs run on several devices.

In ``HETERO:NPU,CONTROL_FLOW,CPU``, the device stands for the list that it is in: it plans and compiles each nested
graph (body) of a node for this list, as HETERO does with a whole model. An accelerator that does not support Loop can
thus run the convolutions in its body. A body can hold further control flow, which goes to a device of the list in turn,
maybe to this one.

`hetero.devices.template.control_flow` has ONNX's rules of trip counts, conditions, carried values and scans. Values
that a body reads from outside are further inputs of its model; see `hetero.model.bodies`.
"""

from __future__ import annotations

import collections
import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..assign.assigning import assign_model
from ..assign.constraint_settings import parse_groups
from ..assign.constraints import groups_of_body
from ..assign.memory.footprint import footprint
from ..assign.memory.values import values_of
from ..assign.pins import pins_of_body
from ..assign.request import Request, with_device_types
from ..base.device_string import CONTROL_FLOW, parse_device_list
from ..base.formatting import counted, duration
from ..base.properties import Property, without
from ..compiling.compile import compile_model
from ..compiling.device_list import DeviceListPlugin, optimal_requests, shared_property
from ..compiling.hetero_model import HeteroCompiledModel
from ..compiling.requests import CuttingPlugin, with_control_flow
from ..errors import (
    Cancelled,
    HeteroError,
    InferenceError,
    PropertyError,
    UnsupportedModel,
    inference_error,
    raise_out_of_memory,
    shown,
)
from ..model.bodies import BODY_ATTRIBUTES, Body, bodies_of
from ..plugin.caller import query
from ..plugin.cancellation import Cancellation
from ..plugin.contract import CompiledModel, Plugin, RemoteContext, Runner, Support
from ..plugin.profile import EXECUTED, Profile, ProfileRow, total_us
from ..plugin.speed import CostSource
from ..plugin.tensor import bind_inputs

if TYPE_CHECKING:
    import onnx

    from ..artifact.payload import PayloadReader, PayloadWriter
    from ..assign.assignment import Assignment
    from ..model.model import Model
    from ..model.types import Port

__all__ = ["NOT_IN_BODIES", "PINS", "ControlFlowModel", "ControlFlowPlugin", "create_plugin"]

PINS = Property(
    "PINS", Mapping, {}, doc="{pin: device} for the nodes of bodies; HETERO sets it to the pins of the whole model"
)
TOGETHER = "STAY_TOGETHER"
NOT_IN_BODIES = frozenset({
    "CACHE_DIR",
    "CACHE_ENCRYPTION_CALLBACKS",
    "EXCLUSIVE_ASYNC_REQUESTS",
    "HETERO_DUMP_GRAPH_DOT",
    "MODEL_DISTRIBUTION_POLICY",
    "OUTPUTS_ON_DEVICE",
    "QUEUE_LIMIT",
    TOGETHER,
})  # fmt: skip
"""Properties of HETERO that bodies do not get, or get in part."""

_RUN_S = 1e-5
"""Seconds for a run of a cut body besides its subgraphs. Measured: 10 to 20 µs with two subgraphs on the CPU."""

_PAYLOAD_VERSION = "1"
_SETTINGS = "settings.json"
_STORED = (
    "INFERENCE_PRECISION_HINT", "EXECUTION_MODE_HINT", "MULTI_DEVICE_PRIORITIES", "ASSIGNMENT", "OBJECTIVE",
    TOGETHER,
)  # fmt: skip
"""Properties that affect results, and therefore are exported."""


class ControlFlowPlugin(DeviceListPlugin):
    """Runs control flow, with the nested graphs cut for the devices of a list."""

    name = CONTROL_FLOW
    can_be_listed = True
    properties = (
        *without(DeviceListPlugin.properties, "CACHE_DIR", "CACHE_ENCRYPTION_CALLBACKS", "EXCLUSIVE_ASYNC_REQUESTS"),
        PINS,
    )
    not_forwarded = DeviceListPlugin.not_forwarded | {PINS.name}

    def read_only_property(self, name: str) -> Any:
        if name == "FULL_DEVICE_NAME":
            return "If, Loop and Scan, with their bodies on the other devices of the list"
        return super().read_only_property(name)

    def query_model(self, model: Model, config: Mapping[str, Any]) -> Support:
        """Supports an If, Loop or Scan if the list supports all nodes of its bodies, and none of its devices would run
        all of them and supports the node as a whole. With ``ASSIGNMENT=COST``, also no device that supports the node as
        a whole is predicted to need less time."""
        self._listed(config)
        reasons: dict[int, str] = {}
        notes: dict[int, str] = {}
        for index in range(model.num_nodes):
            supported, text = self._answer(model, index, config)
            (notes if supported else reasons)[index] = text
        return Support.from_reasons(model.num_nodes, reasons, notes=notes)

    def compile_model(
        self, model: Model, config: Mapping[str, Any], context: RemoteContext | None = None
    ) -> ControlFlowModel:
        if context is not None:
            raise PropertyError(f"{self.name} has no memory of its own, found the context {shown(context)}")
        self._listed(config)
        ops = {model.key_of(i): model.op_types[op] for i, op in enumerate(model.op_type_of.tolist())}
        others = {key: f"{op} is not one of {', '.join(BODY_ATTRIBUTES)}" for key, op in ops.items()}
        others = {key: why for key, why in others.items() if ops[key] not in BODY_ATTRIBUTES}
        if others:
            listed = "\n".join(f"  {key!r}: {why}" for key, why in others.items())
            raise UnsupportedModel(
                f"{self.name} does not support {counted(len(others), 'node')} of {model.name!r}:\n{listed}",
                {key: {self.name: why} for key, why in others.items()},
            )
        nodes = [self._compiled_node(model, index, config) for index in range(model.num_nodes)]
        return ControlFlowModel(self, model, nodes, config)

    def inner_bytes(self, model: Model, nodes: Sequence[int], config: Mapping[str, Any]) -> Mapping[str, int]:
        """The sum over all bodies, because each is compiled and keeps its memory."""
        found: collections.Counter[str] = collections.Counter()
        for index in nodes:
            for _, body_model, request in self._bodies(model, index, config):
                assignment = assign_model(body_model.with_affinity({}), request)
                inner, names = assignment.model, assignment.affinity.devices
                partition = assignment.partition
                values = values_of(inner, units=assignment.affinity.units)
                needs = footprint(values, partition.subgraph_of, partition.device_of, len(names))
                found.update(dict(zip(names, map(int, needs.total), strict=True)))
                of_self = np.flatnonzero(assignment.affinity.device_of == _index(names, self.name)).tolist()
                if of_self:
                    found.update(self.inner_bytes(inner, of_self, config))
        return {name: count for name, count in found.items() if count and name != self.name}

    def check_config(self, config: Mapping[str, Any]) -> None:
        super().check_config(config)
        listed = self.full_config(self.own(config))["MULTI_DEVICE_PRIORITIES"]
        if listed:
            names = parse_device_list(listed, f"{self.name}:{listed}")
            known = {key: value for key, value in config.items() if not self._cutter.declares(key)}
            self._check_list(names, known)

    def settings_of(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        settings = self.full_config(self.own(config))
        others = [name for name in self._listed(config) if name != self.name]
        per_device = {key: value for key, value in settings["DEVICE_PROPERTIES"].items() if key != self.name}
        further = {"MULTI_DEVICE_PRIORITIES": ",".join(others), "DEVICE_PROPERTIES": per_device}
        own = {key: value for key, value in config.items() if key not in self.not_forwarded}
        return {**super().settings_of({**own, **further}), **settings} if others else settings

    def check_import(self, reader: PayloadReader, config: Mapping[str, Any]) -> None:
        reader.require_version("payload", _PAYLOAD_VERSION)

    def import_payload(self, reader: PayloadReader, config: Mapping[str, Any]) -> CompiledModel:
        from ..artifact.model import read_payload_model

        stored = reader.read_json(_SETTINGS, dict[str, dict[str, str]])
        settings = {key: value for key, value in stored.get("settings", {}).items() if key in _STORED}
        given = {key: value for key, value in config.items() if value or key != "MULTI_DEVICE_PRIORITIES"}
        merged = {**settings, PINS.name: stored.get("pins", {}), **given}
        if not merged[PINS.name]:
            merged[PINS.name] = stored.get("pins", {})
        self.check_config(merged)
        return self.compile_model(read_payload_model(reader), merged)

    # -- bodies ---------------------------------------------------------------------------------------------------

    @property
    def _cutter(self) -> CuttingPlugin:
        plugin: Plugin = self.plugin_of("HETERO")
        assert isinstance(plugin, CuttingPlugin)
        return plugin

    def _listed(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        listed = self.full_config(self.own(config))["MULTI_DEVICE_PRIORITIES"]
        if not listed:
            raise PropertyError(f"{self.name} requires a list with other devices: 'HETERO:ORT,{self.name},CPU'")
        return parse_device_list(listed, f"{self.name}:{listed}")

    def _bodies(self, model: Model, index: int, config: Mapping[str, Any]) -> list[tuple[Body, Model, Request]]:
        """Each body of a node, its model with the types that devices find, and the request for it."""
        pins, listed = self.full_config(self.own(config))[PINS.name], self._listed(config)
        further = {key: value for key, value in config.items() if key not in (PINS.name, *NOT_IN_BODIES)}
        groups = parse_groups(config.get(TOGETHER, ()))
        found = []
        for body in bodies_of(model, index):
            own_pins = pins_of_body(body.model, model.key_of(index), pins, listed)
            own = {**further, TOGETHER: groups_of_body(body.model, groups)} if groups else further
            request = with_control_flow(self._cutter.request(own, own_pins), body.model)
            found.append((body, with_device_types(body.model, request.devices), request))
        return found

    def _answer(self, model: Model, index: int, config: Mapping[str, Any]) -> tuple[bool, str]:
        """Whether the device supports a node; how its bodies would run, or the reason why not."""
        op_type = model.op_types[model.op_type_of[index]]
        if op_type not in BODY_ATTRIBUTES:
            return False, f"{op_type} is not one of {', '.join(BODY_ATTRIBUTES)}"
        devices: set[str] = set()
        notes = []
        assignments = []
        try:
            bodies = self._bodies(model, index, config)
            _check_rules(model, index, bodies)
            for body, body_model, request in bodies:
                assignment = assign_model(body_model.with_affinity({}), request)
                assignments.append(assignment)
                names = assignment.affinity.devices
                count = np.bincount(assignment.affinity.device_of, minlength=len(names)).tolist()
                devices.update(name for name, number in zip(names, count, strict=True) if number)
                per_device = [f"{number} on {name}" for name, number in zip(names, count, strict=True) if number]
                cut = counted(assignment.partition.num_subgraphs, "subgraph")
                where = f" ({', '.join(per_device)})" if per_device else ""
                notes.append(f"{body.attribute}: {counted(sum(count), 'node')}{where} in {cut}")
        except UnsupportedModel as error:
            key, reasons = next(iter(error.unsupported.items()), (model.key_of(index), {}))
            listed = "; ".join(f"{device}: {reason}" for device, reason in reasons.items())
            return False, f"its inner node {key!r}: {listed or error}"
        except PropertyError:
            raise
        except HeteroError as error:
            raise_out_of_memory(error)
            return False, str(error)
        costs = _costs_of(assignments)
        if any(request.pins for _, _, request in bodies) or (len(devices) > 1 and costs is None):
            return True, "; ".join(notes)
        node = model.extract([index])
        whole = [
            device.name
            for device in bodies[0][2].devices
            if device.name != self.name
            and (costs is not None or device.name in devices)
            and query(device, node).mask.all()
        ]
        if len(devices) == 1 and devices <= set(whole):
            return False, f"all nodes of its bodies would run on {whole[0]}, which supports the {op_type} as a whole"
        if costs is not None and whole:
            seconds, name = min((costs.whole_s[name], name) for name in whole)
            if seconds <= costs.cut_s:
                each = "its bodies take" if len(bodies) > 1 else "an iteration takes"
                return False, f"by cost, {each} {duration(costs.cut_s)} cut and {duration(seconds)} on {name} alone"
        return True, "; ".join(notes)

    def _compiled_node(self, model: Model, index: int, config: Mapping[str, Any]) -> _Node:
        key, op_type = model.key_of(index), model.op_types[model.op_type_of[index]]
        try:
            bodies = self._bodies(model, index, config)
            _check_rules(model, index, bodies)
            compiled = []
            for _, body_model, request in bodies:
                one = compile_model(body_model, request)
                assert isinstance(one, HeteroCompiledModel)
                compiled.append(one)
        except PropertyError:
            raise
        except UnsupportedModel as error:
            error.unsupported.setdefault(key, {self.name: str(error)})
            error.add_note(f"in {op_type} {key!r}, by {self.name}")
            raise
        except HeteroError as error:
            error.add_note(f"in {op_type} {key!r}, by {self.name}")
            raise
        return _Node(model, index, [body for body, _, _ in bodies], compiled)


def _index(names: Sequence[str], name: str) -> int:
    return names.index(name) if name in names else -1


class _Costs(NamedTuple):
    """The predicted seconds of one run of the bodies of a node. ``whole_s``: device -> the work of all nodes there,
    without transfers and launches, which it has once for all iterations."""

    cut_s: float
    whole_s: Mapping[str, float]


def _costs_of(assignments: Sequence[Assignment]) -> _Costs | None:
    """None without assignment by cost, and if sizes in a body are unknown: the costs then say nothing."""
    cut_s, whole_s = 0.0, dict[str, float]()
    for found in assignments:
        if found.costs is None or found.latency is None or found.latency.overlaps:
            return None
        if bool((found.costs.source == CostSource.ASSUMED).any()):
            return None
        cut_s += found.latency.total_s + _RUN_S
        for name, work in zip(found.costs.devices, found.costs.work.sum(axis=1).tolist(), strict=True):
            whole_s[name] = whole_s.get(name, 0.0) + work
    return _Costs(cut_s, whole_s)


class _Node:
    """A compiled node. ``bodies``, ``compiled``: its nested graphs, in the order of `BODY_ATTRIBUTES`."""

    def __init__(
        self, model: Model, index: int, bodies: Sequence[Body], compiled: Sequence[HeteroCompiledModel]
    ) -> None:
        view = model.nodes[index]
        self.key, self.op_type, self.version = view.key, view.op_type, view.opset
        self.bodies, self.compiled = bodies, compiled
        self.proto = _outline(view.proto(), bodies)
        self.reads = model.node_inputs[index].tolist()
        self.writes = model.node_outputs[index].tolist()
        self.captured = {name: model.value_id(name) for body in bodies for name in body.captures}


class ControlFlowModel(CompiledModel):
    """Control-flow nodes, which run one after the other. ``bodies``: key of a node and attribute -> compiled body."""

    checks_results = False  # the devices of the bodies check theirs

    def __init__(
        self, plugin: ControlFlowPlugin, model: Model, nodes: Sequence[_Node], config: Mapping[str, Any]
    ) -> None:
        inner = [compiled for node in nodes for compiled in node.compiled]
        devices = dict.fromkeys(name for one in inner for name in one.get_property("EXECUTION_DEVICES"))
        super().__init__(
            plugin.name,
            model.inputs,
            model.outputs,
            {
                **plugin.full_config(plugin.own(config)),
                "EXECUTION_DEVICES": tuple(devices) or (plugin.name,),
                "OPTIMAL_NUMBER_OF_INFER_REQUESTS": max(map(optimal_requests, inner), default=1),
                "NETWORK_NAME": model.name,
            },
        )
        self.lease_executors(plugin.executors)
        self.bodies = {
            f"{node.key}.{body.attribute}": one
            for node in nodes
            for body, one in zip(node.bodies, node.compiled, strict=True)
        }
        self._model, self._nodes, self._config = model, nodes, config
        self._constants = {
            value: model.constant(value)
            for value in np.flatnonzero(model.is_constant).tolist()
            if any(value in node.reads for node in nodes) or value in model.output_ids
        }

    def get_property(self, name: str) -> Any:
        """Also the properties that were passed on to the devices, if the bodies agree."""
        try:
            return super().get_property(name)
        except PropertyError as error:
            return shared_property(self.bodies.values(), name, error)

    def export_payload(self, writer: PayloadWriter) -> None:
        from ..artifact.model import write_payload_model

        writer.version["payload"] = _PAYLOAD_VERSION
        settings = {key: str(self._config[key]) for key in _STORED if key in self._config}
        if TOGETHER in settings:
            settings[TOGETHER] = json.dumps(parse_groups(self._config[TOGETHER]))
        pins = {str(pin): str(device) for pin, device in self._properties[PINS.name].items()}
        writer.add_json(_SETTINGS, {"settings": settings, "pins": pins})
        write_payload_model(writer, self._model)

    def create_runner(self) -> Runner:
        return ControlFlowRunner(self._model, self._nodes, self._constants, bool(self._properties["PERF_COUNT"]))


class ControlFlowRunner:
    """One request; see `hetero.plugin.request.Runner`."""

    def __init__(
        self, model: Model, nodes: Sequence[_Node], constants: Mapping[int, np.ndarray], measured: bool
    ) -> None:
        self._model, self._nodes, self._constants, self._measured = model, nodes, constants, measured
        self._rows: list[ProfileRow] = []
        flags: list[Cancellation] = []
        self._bodies: list[dict[str, _RunnableBody]] = []
        for node in nodes:
            own = {
                body.attribute: _RunnableBody(node, body, compiled)
                for body, compiled in zip(node.bodies, node.compiled, strict=True)
            }
            self._bodies.append(own)
            flags += [flag for body in own.values() if (flag := body.cancellation) is not None]
        self.cancellation = Cancellation(flags)
        self._calls = [_rules_of(node.proto, node.version, own) for node, own in zip(nodes, self._bodies, strict=True)]

    def run(self, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        values: dict[int, Any] = {**self._constants, **dict(zip(self._model.input_ids, inputs, strict=True))}
        self._rows = []
        for node, bodies, call in zip(self._nodes, self._bodies, self._calls, strict=True):
            self.cancellation.check()
            given = [values[value] if value >= 0 else None for value in node.reads]
            captured = [values[node.captured[name]] for name in call.captures]
            begin, cpu = time.perf_counter_ns(), time.thread_time_ns()
            for body in bodies.values():
                body.reset()
            try:
                results = call(*given, *captured)
            except (Cancelled, MemoryError):
                raise
            except HeteroError as error:
                error.add_note(f"in {node.op_type} {node.key!r}")
                raise
            except Exception as error:
                text = f"node {node.key!r} ({node.op_type}): {type(error).__name__}: {error}"
                raise inference_error(text, error) from error
            if len(results) < len(node.writes):
                raise InferenceError(
                    f"node {node.key!r} ({node.op_type}): expected {counted(len(node.writes), 'output')}, "
                    f"its bodies have {len(results)}"
                )
            for value, result in zip(node.writes, results, strict=False):
                if value >= 0:
                    values[value] = np.asarray(result) if isinstance(result, np.generic) else result
            if self._measured:
                real = time.perf_counter_ns() - begin
                self._note(node, bodies.values(), real, time.thread_time_ns() - cpu)
        return [values[value] for value in self._model.output_ids]

    def _note(self, node: _Node, bodies: Any, real_ns: int, cpu_ns: int) -> None:
        """Rows for a node and, below it, the nodes of its bodies. The node's own time is what theirs leave."""
        inner = [row for body in bodies for row in body.rows()]
        runs = sum(body.runs for body in bodies)
        own = max(0.0, real_ns / 1000 - total_us(inner))
        own_cpu = max(0.0, cpu_ns / 1000 - sum(row.cpu_us for row in inner))
        kind = (
            f"{CONTROL_FLOW}, {counted(runs, 'run')} of its bodies"
            if node.op_type == "If"
            else (f"{CONTROL_FLOW}, {counted(runs, 'iteration')}")
        )
        self._rows += [ProfileRow(node.key, EXECUTED, node.op_type, kind, own, own_cpu), *inner]

    def profile(self) -> Sequence[ProfileRow]:
        """The counters of the last run: the nodes of bodies are summed over all iterations."""
        return self._rows


class _RunnableBody:
    """A body in the form that the rules of `hetero.devices.template.control_flow` call."""

    def __init__(self, node: _Node, body: Body, compiled: HeteroCompiledModel) -> None:
        self._runner = compiled.new_runner()
        self.cancellation: Cancellation | None = getattr(self._runner, "cancellation", None)
        self._ports = compiled.inputs
        self._kinds: list[Any] = []  # of the inputs that were checked last
        self._timed = bool(compiled.get_property("PERF_COUNT"))
        self._what = f"{body.attribute!r} of {node.op_type} {node.key!r}"
        self._is_loop = node.op_type == "Loop"
        self.captures = body.captures
        names = [port.name for port in compiled.inputs]
        self.input_names = tuple(names[: len(names) - len(body.captures)])
        self.output_names = tuple(compiled.outputs[place].name for place in body.results)
        self._places = body.results
        self.reset()

    def reset(self) -> None:
        """Forget the counters."""
        self.runs = 0
        self._rows: dict[str, ProfileRow] = {}

    def run(self, inputs: Sequence[Any], captured: Sequence[Any]) -> Sequence[Any]:
        try:
            results = self._runner.run(self._checked([*inputs, *captured]))
            if self._timed:
                self._add(self._runner.profile())
        except HeteroError as error:
            error.add_note(f"in run {self.runs + 1} of {self._what}")
            raise
        self.runs += 1
        return [results[place] for place in self._places]

    def _checked(self, values: list[Any]) -> list[Any]:
        """The inputs with the types and shapes of the ports. Inputs like those of the last run need no check, because
        checks depend only on element types and shapes. Sequences are always checked."""
        if self._is_loop:
            for at, port in enumerate(self._ports[:2]):  # the iteration and the condition may be declared [1]
                if port.shape is not None and len(port.shape) == 1:
                    values[at] = values[at].reshape(1)
        kinds = [(value.dtype, value.shape) if isinstance(value, np.ndarray) else None for value in values]
        if kinds == self._kinds and None not in kinds:
            return values
        named = dict(zip((port.name for port in self._ports), values, strict=True))
        values = bind_inputs(self._ports, named)
        self._kinds = kinds if all(given is bound for given, bound in zip(named.values(), values, strict=True)) else []
        return values

    def _add(self, profile: Sequence[ProfileRow]) -> None:
        spans = profile.spans if isinstance(profile, Profile) else ()
        device_of = {span.subgraph: span.device for span in spans}
        for row in profile:
            before = self._rows.get(row.node)
            if before is None:
                kind = f"{row.exec_type} on {device_of[row.subgraph]}" if row.subgraph in device_of else row.exec_type
                real, cpu = row.real_us, row.cpu_us
            else:
                kind, real, cpu = before.exec_type, before.real_us + row.real_us, before.cpu_us + row.cpu_us
            self._rows[row.node] = ProfileRow(row.node, row.status, row.layer_type, kind, real, cpu)

    def rows(self) -> Sequence[ProfileRow]:
        return tuple(self._rows.values())


class _Scope:
    """Gives the rules of a node its compiled bodies in place of its graphs."""

    def __init__(self, bodies: Mapping[str, Any]) -> None:
        self._bodies = bodies

    def graph_program(self, graph: onnx.GraphProto) -> Any:
        return self._bodies[graph.name]


class _Outline:
    """A body that is not compiled, to check the node with."""

    def __init__(self, body: Body) -> None:
        names = [port.name for port in body.model.inputs]
        self.captures = body.captures
        self.input_names = tuple(names[: len(names) - len(body.captures)])
        self.output_names = tuple(body.model.outputs[place].name for place in body.results)


def _info(port: Port) -> onnx.ValueInfoProto:
    import onnx

    from ..model.types import onnx_dtype_of

    if not port.is_tensor or port.dtype is None:
        return onnx.ValueInfoProto(name=port.name)
    shape = None if port.shape is None else list(port.shape)
    return onnx.helper.make_tensor_value_info(port.name, onnx_dtype_of(port.dtype), shape)


def _outline(node: onnx.NodeProto, bodies: Sequence[Body]) -> onnx.NodeProto:
    """The node with graphs that have only a name, inputs and outputs: what its rules read."""
    import onnx

    outline = onnx.NodeProto(op_type=node.op_type, domain=node.domain, input=node.input, output=node.output)
    for attribute in node.attribute:
        if attribute.name not in BODY_ATTRIBUTES[node.op_type]:
            outline.attribute.append(attribute)
    for body in bodies:
        graph = onnx.GraphProto(name=body.attribute)
        own = body.model.inputs[: len(body.model.inputs) - len(body.captures)]
        graph.input.extend(map(_info, own))
        graph.output.extend(_info(body.model.outputs[place]) for place in body.results)
        outline.attribute.append(onnx.helper.make_attribute(body.attribute, graph))
    return outline


def _rules_of(outline: onnx.NodeProto, version: int, bodies: Mapping[str, Any]) -> Any:
    """The rules of a node, over its bodies. Raises `Refused`."""
    from .template.control_flow import RULES

    return RULES["", outline.op_type](outline, _Scope(bodies), version)


def _check_rules(model: Model, index: int, bodies: Sequence[tuple[Body, Model, Request]]) -> None:
    """Raise `HeteroError` for a node whose inputs and attributes do not match its bodies."""
    from .template.program import Refused

    view = model.nodes[index]
    only = [body for body, _, _ in bodies]
    for body in only:
        for port in body.model.inputs:
            if port.is_tensor and port.dtype is None:
                raise HeteroError(f"the element type of {port.name!r}, which its body reads, is unknown")
    try:
        _rules_of(_outline(view.proto(), only), view.opset, {body.attribute: _Outline(body) for body in only})
    except Refused as refused:
        raise HeteroError(refused.reason) from refused


def create_plugin() -> ControlFlowPlugin:
    return ControlFlowPlugin()
