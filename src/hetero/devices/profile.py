"""Profile devices: simulated hardware, described by a TOML file and executed by another device.

A profile states what a device supports, how fast it is, and which device executes its models::

    name = "FPGA"
    runs_on = "CPU"

    [ops]                         # operator -> constraints; other operators are not supported
    Conv = { dtypes = ["float32"], max_rank = 4, group = 1 }
    Relu = {}
    "com.example::Swap" = {}      # with a domain

    [[patterns]]                  # optional: operators that the device supports only together
    before = "DequantizeLinear"
    chain = ["Conv", "Relu|Clip"]
    after = "QuantizeLinear"
    dtypes = ["float32"]          # of the first input of the chain

    [subgraph]                    # optional: the subgraphs that HETERO gives the device
    min_nodes = 3
    min_flops = 1e6
    max_count = 1                 # optional: only the first subgraph of a model, in running order

    [cost]                        # all keys optional
    flops_per_s = { int8 = 4e12, float32 = 2e12 }  # or one number for all types
    bytes_per_s = 5e10
    launch_s = 2e-5
    link_bytes_per_s = 8e9
    link_latency_s = 1e-5
    memory_bytes = "512MiB"       # or a number

Constraints: ``dtypes`` (element types of the data), ``max_rank``, ``min_opset``, ``max_opset``, ``static = true`` (all
sizes are known), ``max_size = { 0 = 1 }`` and ``align = { 1 = 8 }`` (axis -> largest size, and a number of which the
size is a multiple; of data that is not made from constants and has the axis; negative axes count from the end). Every
other key is an attribute of the operator, with its required value or a list of allowed values. The data of a node are
the inputs and outputs that have the type parameter of its first input or first output in the operator's schema; this
excludes, for example, a shape in an int64 tensor. If a type or size is unknown, a constraint on it is not satisfied.

An operator that occurs in patterns is supported only where one of them matches (`Pattern`). A pattern with a chain of
one operator and nothing else also allows it alone. Nodes that depend on constants only, such as QuantizeLinear of
weights, are computed when the model is compiled: they are supported wherever a node that reads them is. Nodes that
compute known sizes belong to each supported node that needs their results. With
``flops_per_s`` per element type, other types take the lowest; a unit of nodes that matches a pattern computes in the
type of its first node's first input.

The device is always labeled *simulated*: in its full name, its type, and the execution type of every counter.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
import threading
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..assign.constraint_settings import least_size
from ..assign.memory.limits import parse_bytes
from ..base.file_kinds import other_than_text
from ..base.properties import PropertyTable, without
from ..compiling.on_device import compile_on
from ..errors import (
    Corrupt,
    HeteroError,
    PropertyError,
    UnsupportedModel,
    WrongDevice,
    did_you_mean,
    file_error,
    raise_out_of_memory,
)
from ..model.constant_nodes import constant_nodes, inner_constant_nodes
from ..model.size_nodes import makes_sizes, size_nodes
from ..model.types import dtype_of
from ..plugin.caller import ConfiguredDevice, configure
from ..plugin.contract import CompiledModel, LeastSubgraph, Plugin, RemoteContext, Runner, Support
from ..plugin.profile import ProfileRow
from ..plugin.request import ScratchRunner
from .constraints import OpConstraints, refusals
from .patterns import Pattern, find_units, sizes_before

if TYPE_CHECKING:
    import onnx.defs

    from ..artifact.payload import PayloadReader, PayloadWriter
    from ..extension.elsewhere import OpDescription
    from ..model.model import Model, NodeView
    from ..plugin.speed import DeviceSpeed

__all__ = ["Cost", "OpConstraints", "Profile", "ProfilePlugin", "load_profile"]


_FEW_PATTERNS = 3  # that a reason names
_NEWEST = 10_000  # above all opset versions


@dataclasses.dataclass(frozen=True, slots=True)
class Cost:
    """A device's speed, link and memory, for planning. None: not stated. ``flops_per_s_of``: element type -> speed."""

    flops_per_s: float | None = None
    bytes_per_s: float | None = None
    launch_s: float | None = None
    link_bytes_per_s: float | None = None
    memory_bytes: float | None = None
    link_latency_s: float | None = None
    flops_per_s_of: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Profile:
    """A device described by a file. ``ops``: operator (``Op`` or ``domain::Op``) -> constraints."""

    name: str
    runs_on: str
    ops: Mapping[str, OpConstraints]
    cost: Cost = Cost()
    path: Path | None = None
    patterns: tuple[Pattern, ...] = ()
    least: LeastSubgraph = dataclasses.field(default_factory=LeastSubgraph)
    most_subgraphs: int | None = None


def load_profile(path: str | Path) -> Profile:
    """Read and check a profile. Raises `PropertyError` with the file, the key and the most similar valid key."""
    path = Path(path)
    content = b""
    try:
        content = path.read_bytes()
        data = tomllib.loads(content.decode("utf-8-sig"))
    except OSError as error:
        raise file_error(PropertyError, f"profile {path}: cannot be read: {error.strerror}", error) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        other = other_than_text(content)
        trouble = f"invalid TOML: {error}" if other is None else f"expected a profile in TOML, found {other}"
        raise PropertyError(f"profile {path}: {trouble}") from error
    return _Reader(path).profile(data)


class _Reader:
    """Converts parsed TOML to a `Profile`. Every error names the file and the key."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def profile(self, data: Mapping[str, Any]) -> Profile:
        self._known(data, ("name", "runs_on", "ops", "patterns", "subgraph", "cost"), "")
        name = self._name(data, "name")
        runs_on = self._name(data, "runs_on")
        if runs_on.partition(".")[0] == name:
            raise self._error("runs_on", f"expected a device other than {name} itself")
        ops = self._table(data, "ops")
        if not ops:
            raise self._error("ops", "expected at least one operator that the device supports")
        constraints = {op: self._constraints(op, self._table(ops, op, "ops.")) for op in ops}
        cost, subgraph = self._cost(self._table(data, "cost")), self._table(data, "subgraph")
        least, most = self._least(subgraph), self._most(subgraph)
        return Profile(name, runs_on, constraints, cost, self._path, self._patterns(data, ops), least, most)

    def _patterns(self, data: Mapping[str, Any], ops: Mapping[str, Any]) -> tuple[Pattern, ...]:
        tables = data.get("patterns", [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise self._error("patterns", f"expected tables [[patterns]], found {tables!r}")
        patterns = []
        for number, table in enumerate(tables, 1):
            where = f"patterns {number}."
            self._known(table, ("before", "chain", "after", "dtypes"), where)
            steps = table.get("chain")
            if not isinstance(steps, list) or not steps:
                raise self._error(f"{where}chain", f'expected a list such as ["Conv", "Relu"], found {steps!r}')
            chain = tuple(self._alternatives(step, ops, f"{where}chain") for step in steps)
            before, after = (
                self._alternatives(table[key], ops, where + key) if key in table else () for key in ("before", "after")
            )
            dtypes = self._dtypes(table["dtypes"], where + "dtypes") if "dtypes" in table else ()
            patterns.append(Pattern(chain, before, after, dtypes))
        return tuple(patterns)

    def _alternatives(self, value: Any, ops: Mapping[str, Any], key: str) -> tuple[str, ...]:
        """The operators of ``"Relu|Clip"``."""
        names = tuple(value.split("|")) if isinstance(value, str) else ()
        if not names:
            raise self._error(key, f'expected an operator, or several such as "Relu|Clip", found {value!r}')
        for name in names:
            if name not in ops:
                raise self._error(key, f"{name!r} is not listed under [ops]{did_you_mean(name, ops)}")
        return names

    def _least(self, table: Mapping[str, Any]) -> LeastSubgraph:
        self._known(table, ("min_nodes", "min_flops", "max_count"), "subgraph.")
        sizes = {key.removeprefix("min_"): value for key, value in table.items() if key.startswith("min_")}
        try:
            return least_size(sizes, "subgraph")
        except PropertyError as error:
            raise self._error("subgraph", str(error).partition(": ")[2]) from None

    def _most(self, table: Mapping[str, Any]) -> int | None:
        count = table.get("max_count")
        if count is not None and (type(count) is not int or count < 1):
            raise self._error("subgraph.max_count", f"expected an integer of at least 1, found {count!r}")
        return count

    def _constraints(self, op: str, table: Mapping[str, Any]) -> OpConstraints:
        where = f"ops.{op}."
        definitions = self._attribute_definitions(op)
        limits: dict[str, Any] = {}
        attributes: dict[str, tuple[Any, ...]] = {}
        for key, value in table.items():
            if key == "dtypes":
                limits[key] = self._dtypes(value, where + key)
            elif key in ("max_rank", "min_opset", "max_opset"):
                if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                    raise self._error(where + key, f"expected an integer of at least 0, found {value!r}")
                limits[key] = value
            elif key == "static":
                if not isinstance(value, bool):
                    raise self._error(where + key, f"expected true or false, found {value!r}")
                limits[key] = value
            elif key in ("max_size", "align"):
                limits[key] = self._axes(value, where + key)
            elif definitions is None or key in definitions:
                takes_list = definitions is not None and definitions[key]
                attributes[key] = self._allowed(value, takes_list, where + key)
            else:
                known = ("dtypes", "max_rank", "min_opset", "max_opset", "static", "max_size", "align", *definitions)
                raise self._error(
                    where + key, f"neither a constraint nor an attribute of {op}{did_you_mean(key, known)}"
                )
        return OpConstraints(**limits, attributes=attributes)

    def _attribute_definitions(self, op: str) -> dict[str, bool] | None:
        """Attribute name -> whether it is a list, over all versions of ``op``; None for another domain's operator."""
        domain, _, op_type = op.rpartition("::")
        history = _schema_history(domain, op_type)
        if history:
            lists = ("INTS", "FLOATS", "STRINGS")
            return {
                name: attribute.type.name in lists
                for schema in history
                for name, attribute in dict[str, Any](schema.attributes).items()
            }
        names = _operators_of(domain)
        if names:
            raise self._error(f"ops.{op}", f"ONNX has no such operator{did_you_mean(op_type, names)}")
        return None

    def _dtypes(self, value: Any, key: str) -> tuple[np.dtype[Any], ...]:
        if not isinstance(value, list) or not value:
            raise self._error(key, f'expected a list such as ["float32"], found {value!r}')
        known = _dtype_names()
        for name in value:
            if name not in known:
                raise self._error(key, f"{name!r} is not an element type{did_you_mean(str(name), known)}")
        return tuple(known[name] for name in value)

    def _axes(self, value: Any, key: str) -> dict[int, int]:
        """Axis -> number of at least 1."""
        wrong = self._error(key, f"expected axes and numbers such as {{ 1 = 8 }}, found {value!r}")
        if not isinstance(value, dict) or not value:
            raise wrong
        axes = {}
        for axis, number in value.items():
            if not re.fullmatch(r"-?[0-9]{1,2}", axis, re.ASCII) or type(number) is not int or number < 1:
                raise wrong
            axes[int(axis)] = number
        return axes

    def _allowed(self, value: Any, takes_list: bool, key: str) -> tuple[Any, ...]:
        """The allowed values of an attribute. If the attribute is a list, several values are a list of lists."""
        several = isinstance(value, list) and (not takes_list or (bool(value) and isinstance(value[0], list)))
        values = [tuple(item) if isinstance(item, list) else item for item in (value if several else [value])]
        for item in values:
            entries = item if isinstance(item, tuple) else (item,)
            if not all(isinstance(entry, (int, float, str)) for entry in entries):
                raise self._error(key, f"expected numbers or strings, found {value!r}")
        return tuple(values)

    def _cost(self, table: Mapping[str, Any]) -> Cost:
        known = [field.name for field in dataclasses.fields(Cost) if field.name != "flops_per_s_of"]
        self._known(table, known, "cost.")
        numbers, by_type = dict(table), dict[str, float]()
        if isinstance(table.get("flops_per_s"), dict) and table["flops_per_s"]:
            by_type = {
                name: self._number(value, f"cost.flops_per_s.{name}") for name, value in table["flops_per_s"].items()
            }
            for name in by_type:
                if name not in _dtype_names():
                    raise self._error(
                        f"cost.flops_per_s.{name}", f"not an element type{did_you_mean(name, _dtype_names())}"
                    )
            numbers["flops_per_s"] = min(by_type.values())
        if isinstance(table.get("memory_bytes"), str):
            try:
                numbers["memory_bytes"] = parse_bytes(table["memory_bytes"], "cost.memory_bytes")
            except PropertyError as error:
                raise PropertyError(f"profile {self._path}: {error}") from None
        costs = {key: self._number(value, f"cost.{key}") for key, value in numbers.items()}
        return Cost(**costs, flops_per_s_of=by_type)

    def _number(self, value: Any, key: str) -> float:
        """A positive number; 0 is one for a latency."""
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < float("inf")
        if not is_number or (value == 0 and key not in ("cost.launch_s", "cost.link_latency_s")):
            raise self._error(key, f"expected a positive number, found {value!r}")
        return float(value)

    def _name(self, data: Mapping[str, Any], key: str) -> str:
        value = data.get(key)
        if not isinstance(value, str) or not value.replace("_", "a").replace(".", "a" * (key == "runs_on")).isalnum():
            raise self._error(key, f"expected the name of a device, found {value!r}")
        return value

    def _table(self, data: Mapping[str, Any], key: str, where: str = "") -> Mapping[str, Any]:
        value = data.get(key, {})
        if not isinstance(value, dict):
            raise self._error(where + key, f"expected a table, found {value!r}")
        return value

    def _known(self, table: Mapping[str, Any], known: Sequence[str], where: str) -> None:
        for key in table:
            if key not in known:
                raise self._error(where + key, f"unknown key{did_you_mean(key, known)}; known: {', '.join(known)}")

    def _error(self, key: str, problem: str) -> PropertyError:
        return PropertyError(f"profile {self._path}: {key}: {problem}")


class ProfilePlugin(Plugin):
    """A simulated device. ``resolve``: returns the plugin of a device name, to find the executing device.

    A node is supported if it satisfies the profile's constraints, or depends on constants only and a supported node
    reads it, and if the executing device supports it. The executing device compiles and runs models. The device also
    has the executing device's properties.
    """

    properties = (*without(Plugin.properties, "DEVICE_ID"), "PERF_COUNT", "EXECUTION_DEVICES")

    extended_by_another = True

    def __init__(self, profile: Profile, resolve: Callable[[str], Plugin]) -> None:
        super().__init__()
        self._set: dict[str, Any] = {}
        self.name = profile.name
        self.profile = profile
        self._resolve = resolve
        self._executing: Plugin | None = None
        self._executing_lock = threading.Lock()

    def executing_plugin(self) -> Plugin:
        """The plugin that runs this device's models. Found on first use, so that profiles may load in any order."""
        with self._executing_lock:
            if self._executing is None:
                executing = self._find_executing()
                known = executing._table
                inherited = [
                    known.declared(name, executing.name)
                    for name in known.names
                    if executing.declares(name) and name != "DEVICE_ID"  # the profile selects the id
                ]
                own = PropertyTable(self.properties)
                self._table = PropertyTable(
                    [*(entry for entry in inherited if entry.name not in own), *self.properties]
                )
                self._executing = executing
            return self._executing

    def _find_executing(self) -> Plugin:
        chain = [self.name]
        plugin: Plugin = self
        while isinstance(plugin, ProfilePlugin):
            runs_on = plugin.profile.runs_on.partition(".")[0]
            if runs_on in chain:
                raise PropertyError(
                    f"profile {self.profile.path}: runs_on: the chain {' -> '.join([*chain, runs_on])} does not end at "
                    f"a real device"
                )
            chain.append(runs_on)
            try:
                plugin = self._resolve(runs_on)
            except HeteroError as error:
                raise_out_of_memory(error)
                raise PropertyError(f"profile {self.profile.path}: runs_on: {error}") from error
        return self._resolve(chain[1])

    def speed(self, device: str) -> DeviceSpeed:
        """The speed in the profile; missing values come from the executing device."""
        from ..plugin.speed import CostSource, DeviceSpeed

        cost = self.profile.cost
        executing = self.executing_plugin().speed(self.profile.runs_on)
        launch, link = cost.launch_s, cost.link_bytes_per_s
        is_stated = cost.flops_per_s is not None or cost.bytes_per_s is not None
        return DeviceSpeed(
            cost.flops_per_s or executing.flops_per_s,
            cost.bytes_per_s or executing.bytes_per_s,
            executing.launch_s if launch is None else launch,
            0.0 if is_stated else executing.node_s,
            executing.link_bytes_per_s if link is None else link,
            executing.link_latency_s if cost.link_latency_s is None else cost.link_latency_s,
            source=CostSource.PROFILE if is_stated else executing.source,
            flops_per_s_of=executing.flops_per_s_of if cost.flops_per_s is None else cost.flops_per_s_of,
        )

    def memory_bytes(self, device: str) -> float | None:
        """The memory in the profile, in B."""
        return self.profile.cost.memory_bytes

    def least_subgraph(self, device: str) -> LeastSubgraph:
        """The minimum size in the profile."""
        return self.profile.least

    def most_subgraphs(self, device: str) -> int | None:
        """The largest number of subgraphs in the profile."""
        return self.profile.most_subgraphs

    def read_only_property(self, name: str) -> Any:
        match name:
            case "FULL_DEVICE_NAME":
                return f"{self.name} (simulated on {self.profile.runs_on})"
            case "DEVICE_TYPE":
                return "simulated"
            case "EXECUTION_DEVICES":
                return (self.profile.runs_on,)
            case "OPTIMIZATION_CAPABILITIES":
                dtypes = (dtype.name for entry in self.profile.ops.values() for dtype in entry.dtypes or ())
                return tuple(dict.fromkeys(dtypes))
        return super().read_only_property(name)

    def get_property(self, name: str) -> Any:
        self.executing_plugin()
        return super().get_property(name)

    def set_property(self, values: Mapping[str, Any]) -> None:
        self.executing_plugin()
        super().set_property(values)
        with self._property_lock:
            self._set.update(values)

    def full_config(self, config: Mapping[str, Any]) -> dict[str, Any]:
        self.executing_plugin()
        return super().full_config(config)

    def declares(self, name: str) -> bool:
        self.executing_plugin()
        return super().declares(name)

    def _delegated(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The configuration for the executing device."""
        executing = self.executing_plugin()
        self.full_config(config)
        with self._property_lock:  # without defaults, because the executing device has its own
            chosen = {**self._set, **config}
        kept = {key: value for key, value in chosen.items() if executing.declares(key)}
        device_id = self.profile.runs_on.partition(".")[2]
        return {**kept, "DEVICE_ID": device_id} if device_id else kept

    def _configured(self, config: Mapping[str, Any]) -> ConfiguredDevice:
        """The executing device with its part of the configuration."""
        return configure(self.executing_plugin(), self._delegated(config))

    def add_extension(self, extension: Any) -> None:
        """Add the extension to the executing device. The profile must list its operators."""
        self.executing_plugin().add_extension(extension)

    def bound_to_process(self, model: Model) -> str:
        return self.executing_plugin().bound_to_process(model)

    def described_ops(self, model: Model) -> Sequence[OpDescription]:
        return self.executing_plugin().described_ops(model)

    def query_model(self, model: Model, config: Mapping[str, Any]) -> Support:
        executed = self.executing_plugin().query_model(model, self._delegated(config))
        reasons = {
            index: f"{self.profile.runs_on}, which executes the simulated {self.name}, does not support it: {reason}"
            for index, reason in executed.reasons.items()
        }
        found = constant_nodes(model)
        constant = np.zeros(model.num_nodes, np.bool_) if found is None else found
        # Only a unit keeps the nodes that compute sizes with their reader; alone they gain nothing on the device.
        sizes = size_nodes(model, constant)
        is_fixed = model.is_constant | np.append(constant | sizes, False)[model.producer]  # -1 selects the last entry
        texts: dict[tuple[str, str | None], str] = {}  # equal reasons share a string
        for index, (name, required) in refusals(model, self.profile.ops, is_fixed).items():
            why = texts.get((name, required))
            if why is None:
                limits = f"does not list {name}" if required is None else f"supports {name} only with {required}"
                why = texts[name, required] = f"the profile of {self.name} {limits}"
            reasons[index] = why
        own = {
            index: reasons.pop(index)
            for index in np.flatnonzero(sizes).tolist()
            if index in reasons and index not in executed.reasons
        }
        units = self._units(model, executed, reasons, sizes)
        if own:
            in_unit = frozenset(np.concatenate(units).tolist()) if units else frozenset()
            reasons.update({index: why for index, why in own.items() if index not in in_unit})
        for index in np.flatnonzero(_computed_when_compiled(model))[::-1].tolist():  # readers first
            if index not in executed.reasons and not reasons.keys() >= set(model.graph.successors(index).tolist()):
                reasons.pop(index, None)
        return Support.from_reasons(model.num_nodes, dict(sorted(reasons.items())), units)

    def _units(
        self, model: Model, executed: Support, reasons: dict[int, str], sizes: NDArray[np.bool_]
    ) -> list[NDArray[np.int32]]:
        """Where the patterns match supported nodes. Adds the other nodes of their operators to ``reasons``. ``sizes``:
        the nodes that compute sizes.

        Without patterns, the units of the executing device, whose answer is ``executed``. With patterns, these are
        ignored: its results do not depend on them.
        """
        patterns = self.profile.patterns
        if not patterns and not executed.units and not sizes.any():
            return []
        is_refused = np.zeros(model.num_nodes, np.bool_)
        is_refused[list(reasons)] = True
        found = find_units(model, patterns, sizes) if patterns else executed.units
        units = [unit for unit in found if not is_refused[unit].any()]
        if sizes.any():
            units += self._units_of_sizes(model, is_refused, sizes)
        lone = ~is_refused
        if units:
            lone[np.concatenate(units)] = False
        for number, name in enumerate(model.op_types):
            listed = [entry.with_operator(name) for entry in patterns if name in entry.operators]
            if listed:
                where = " or ".join(list(dict.fromkeys(listed))[:_FEW_PATTERNS])
                why = f"the profile of {self.name} supports {name} only in {where}"
                reasons.update(dict.fromkeys(np.flatnonzero((model.op_type_of == number) & lone).tolist(), why))
        if not patterns and executed.units:
            in_unit = np.zeros(model.num_nodes, np.bool_)
            in_unit[np.concatenate(executed.units)] = True
            why = f"{self.profile.runs_on} runs it only together with nodes that {self.name} does not support"
            reasons.update(dict.fromkeys(np.flatnonzero(in_unit & lone).tolist(), why))
        return units

    def _units_of_sizes(
        self, model: Model, is_refused: NDArray[np.bool_], sizes: NDArray[np.bool_]
    ) -> Iterator[NDArray[np.int32]]:
        """Each supported node whose operator is in no pattern, with the nodes that compute sizes for it."""
        in_pattern = frozenset().union(*(entry.operators for entry in self.profile.patterns))
        is_alone = np.array([name not in in_pattern for name in model.op_types], np.bool_)[model.op_type_of]
        makers = np.flatnonzero(sizes).tolist()
        readers = {reader for maker in makers for reader in model.graph.successors(maker).tolist()}
        for node in sorted(reader for reader in readers if is_alone[reader] and not (is_refused | sizes)[reader]):
            unit = [node, *sizes_before(model, [node], sizes)]
            if not is_refused[unit].any():
                yield np.array(unit, np.int32)

    def create_context(self, parameters: Mapping[str, Any]) -> RemoteContext:
        return self.executing_plugin().create_context(parameters)

    def get_default_context(self) -> RemoteContext:
        executing = self.executing_plugin()
        id_ = self.profile.runs_on.partition(".")[2]
        return executing.get_context_of(id_) if id_ else executing.get_default_context()

    def compile_model(
        self, model: Model, config: Mapping[str, Any], context: RemoteContext | None = None
    ) -> CompiledModel:
        is_listed = np.array([name in self.profile.ops for name in model.op_types], np.bool_)[model.op_type_of]
        # Nodes that are inside the whole model may make outputs of a submodel, which HETERO then folds.
        is_constant = None if is_listed.all() else constant_nodes(model)
        lacking = np.flatnonzero(~is_listed if is_constant is None else ~(is_listed | is_constant)).tolist()
        # The nodes that compute a size may be in several subgraphs.
        lacking = [index for index in lacking if not makes_sizes(model, index)]
        if lacking:
            unlisted = [model.nodes[index] for index in lacking]
            reasons = {node.key: {self.name: f"the profile does not list {_op_name(node)}"} for node in unlisted}
            keys = ", ".join(f"{node.key!r} ({_op_name(node)})" for node in unlisted)
            raise UnsupportedModel(
                f"{self.name} cannot compile {model.name!r}: its profile does not list {keys}", reasons
            )
        try:
            inner = compile_on(self._configured(config), model, context)
        except UnsupportedModel as error:
            raise UnsupportedModel(f"{self.name} (simulated): {error}", error.unsupported) from error
        return SimulatedModel(self.name, inner, {"NETWORK_NAME": model.name, **self.full_config(config)})

    def version_descriptor(self, config: Mapping[str, Any]) -> Mapping[str, str]:
        """The profile's digest and the version of the executing device."""
        inner = self.executing_plugin().version_descriptor(self._delegated(config))
        profile = dataclasses.replace(self.profile, path=None)
        return {**inner, "profile": hashlib.sha256(repr(profile).encode()).hexdigest()}

    def settings_of(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        executing = self.executing_plugin()
        return {**super().settings_of(config), "RUNS_ON": dict(executing.settings_of(self._delegated(config)))}

    def check_import(self, reader: PayloadReader, config: Mapping[str, Any]) -> None:
        from ..compiling.importing import check_part

        executing = self.executing_plugin()
        if len(reader.parts) != 1:
            raise Corrupt(f"{reader.label}: the payload for {self.name} has {len(reader.parts)} parts, expected one")
        part = reader.parts[0]
        if part.device.partition(".")[0] != executing.name:
            raise WrongDevice(
                f"{reader.label}: was compiled for {self.name} on {part.device}, but here {self.name} runs on "
                f"{self.profile.runs_on}: compile and export the model again"
            )
        check_part(part, self._configured(config))

    def import_payload(self, reader: PayloadReader, config: Mapping[str, Any]) -> CompiledModel:
        from ..compiling.importing import import_part

        inner = import_part(reader.parts[0], self._configured(config))
        return SimulatedModel(self.name, inner, {"NETWORK_NAME": reader.name, **self.full_config(config)})


class SimulatedModel(CompiledModel):
    """A compiled model of the executing device, under the profile device's name."""

    checks_results = False  # the executing device's results are checked

    def __init__(self, device: str, inner: CompiledModel, properties: Mapping[str, Any]) -> None:
        # The values that the executing device chose.
        streams = {key: inner.settings[key] for key in ("NUM_STREAMS",) if key in properties and key in inner.settings}
        name = "OPTIMAL_NUMBER_OF_INFER_REQUESTS"
        super().__init__(device, inner.inputs, inner.outputs, {**properties, **streams, name: inner.get_property(name)})
        self._inner = inner

    def export_payload(self, writer: PayloadWriter) -> None:
        writer.add_part(self._inner)

    def create_runner(self) -> Runner:
        return SimulatedRunner(self._inner.new_runner())


class SimulatedRunner:
    """The executing device's runner, with counters labeled *simulated*."""

    def __init__(self, inner: Runner) -> None:
        self._inner = inner
        self.run = inner.run

    def share_scratch(self, other: SimulatedRunner) -> None:
        """See `hetero.plugin.request.ScratchRunner`."""
        if isinstance(self._inner, ScratchRunner) and type(self._inner) is type(other._inner):
            self._inner.share_scratch(other._inner)

    def profile(self) -> Sequence[ProfileRow]:
        rows = self._inner.profile()
        return tuple(dataclasses.replace(row, exec_type=f"simulated_{row.exec_type}") for row in rows)


def _computed_when_compiled(model: Model) -> NDArray[np.bool_]:
    """bool[num_nodes]: the nodes that the executing device folds, whatever a profile says of their operators."""
    constant = inner_constant_nodes(model)
    return np.zeros(model.num_nodes, np.bool_) if constant is None else constant


def _op_name(node: NodeView) -> str:
    """The operator as in `Model.op_types`."""
    return f"{node.domain}::{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type


@functools.cache
def _schema_history(domain: str, op_type: str) -> tuple[onnx.defs.OpSchema, ...]:
    """All versions of an operator, newest first; empty if ONNX does not have it."""
    import onnx.defs

    history: list[onnx.defs.OpSchema] = []
    version = _NEWEST
    while version > 0 and onnx.defs.has(op_type, version, domain):
        history.append(onnx.defs.get_schema(op_type, version, domain))
        version = history[-1].since_version - 1
    return tuple(history)


def _operators_of(domain: str) -> list[str]:
    """The operators of a domain that ONNX defines."""
    import onnx.defs

    return list(dict.fromkeys(schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == domain))


@functools.cache
def _dtype_names() -> dict[str, np.dtype[Any]]:
    """Name -> element type, as in NumPy and ml_dtypes; ``string`` for strings."""
    dtypes = [dtype for number in range(1, 64) if (dtype := dtype_of(number)) is not None]
    return {"string" if dtype.hasobject else dtype.name: dtype for dtype in dtypes}
