"""The interface that a device author implements: `Plugin`, `CompiledModel` and `Runner`.

A device is a `Plugin` subclass and a function that creates it, named in the entry-point group ``hetero.plugins`` or
passed to `Core.register_plugin`. A plugin requires `Plugin.name`, `Plugin.query_model` and `Plugin.compile_model`. Its
compiled models create a `Runner` per request; the base classes provide the rest of `CompiledModel` and `InferRequest`.

The smallest device runs single Relu nodes; the page "Write a device plugin" of the documentation builds one that runs
any graph of its operators::

    class ReluPlugin(Plugin):
        name = "RELU"

        def query_model(self, model, config):
            fits = model.num_nodes == 1 and model.nodes[0].op_type == "Relu"
            return Support.from_reasons(model.num_nodes, {} if fits else dict.fromkeys(range(model.num_nodes), "..."))

        def compile_model(self, model, config, context=None):
            return ReluModel(self.name, model.inputs, model.outputs)

    class ReluModel(CompiledModel):
        def create_runner(self):
            return ReluRunner()

    class ReluRunner(Runner):
        def run(self, inputs):
            return [np.maximum(inputs[0], 0)]
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..base.device_string import LIST_DEVICES
from ..base.machine import DeviceMemory
from ..base.properties import Property, PropertyTable
from ..errors import DeviceUnavailable, NotSupported, PropertyError, shown
from ..model.types import Port
from .compiled_model import CompiledModel
from .executor import ExecutorManager
from .profile import ProfileRow
from .remote import HostContext, RemoteContext, RemoteTensor
from .request import InferRequest, PlacingRunner, RepeatingRunner, Runner

if TYPE_CHECKING:
    from ..artifact.payload import PayloadReader
    from ..extension.elsewhere import OpDescription
    from ..model.model import Model
    from .speed import DeviceSpeed

__all__ = [
    "CompiledModel",
    "InferRequest",
    "LeastSubgraph",
    "PlacingRunner",
    "Plugin",
    "Port",
    "ProfileRow",
    "RemoteContext",
    "RemoteTensor",
    "RepeatingRunner",
    "Runner",
    "Support",
]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Support:
    """The nodes of a model that a device supports, and the reason for each node that it rejects.

    ``mask``: bool[num_nodes], True where the device supports the node. ``reasons``: node index -> reason, one entry for
    every False. ``units``: sets of supported nodes that the device runs as one operation, such as a Conv between
    DequantizeLinear and QuantizeLinear. Plans give the device a node of a unit only in a subgraph that contains one of
    its units as a whole. The only exception are nodes whose results are also read outside of the unit: a unit may read
    such a result from another subgraph of the device that contains a whole unit of the node. ``notes``: node index ->
    how the device runs the node, for users to see in plans.
    """

    mask: NDArray[np.bool_]
    reasons: Mapping[int, str]
    units: Sequence[NDArray[np.int32]] = ()
    notes: Mapping[int, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def from_reasons(
        cls,
        num_nodes: int,
        reasons: Mapping[int, str],
        units: Sequence[NDArray[np.int32]] = (),
        notes: Mapping[int, str] | None = None,
    ) -> Support:
        """Supports every node without an entry in ``reasons``."""
        mask = np.ones(num_nodes, np.bool_)
        mask[list(reasons)] = False
        return cls(mask, reasons, units, notes or {})


@dataclasses.dataclass(frozen=True, slots=True)
class LeastSubgraph:
    """The minimum size of a subgraph: ``nodes``, and ``flops``, operations as estimated from shapes."""

    nodes: int = 1
    flops: float = 0.0

    def __or__(self, other: LeastSubgraph) -> LeastSubgraph:
        """The size that satisfies both."""
        return LeastSubgraph(max(self.nodes, other.nodes), max(self.flops, other.flops))

    @property
    def is_any(self) -> bool:
        """Whether every subgraph is large enough."""
        return self.nodes <= 1 and self.flops <= 0


class Plugin(abc.ABC):
    """The object behind a device name.

    If the backend is missing, the constructor raises `DeviceUnavailable` and says what to install. Several threads may
    call the methods at the same time.
    """

    name: str
    """The device name, such as ``CPU``, without an id. `Core.register_plugin` replaces it by the registered name, so
    build the names of models and messages from ``self.name`` (`device_name`)."""

    registered_names: tuple[str, ...] = ()
    """The names that the plugin is registered under: several if a factory returns one plugin for several names."""

    properties: ClassVar[Sequence[str | Property]] = (
        "SUPPORTED_PROPERTIES",
        "AVAILABLE_DEVICES",
        "FULL_DEVICE_NAME",
        "DEVICE_ARCHITECTURE",
        "DEVICE_TYPE",
        "OPTIMIZATION_CAPABILITIES",
        "DEVICE_ID",
        "CACHE_DIR",
        "CACHE_ENCRYPTION_CALLBACKS",
        "LOG_LEVEL",
        "PLUGIN_TIMEOUT_MS",
        "OUTPUTS_ON_DEVICE",
        "ISOLATION",
        "WORKER_TIMEOUT_MS",
        "WORKER_RETRIES",
    )
    """The properties of the device: names from `PROPERTIES`, or `Property` objects. Add ``PERF_COUNT`` if the device's
    runners return counters."""

    refuses_when_compiling: ClassVar[bool] = False
    """Whether `compile_model` raises `UnsupportedModel` for a model with a node that `query_model` rejects. If False,
    hetero calls `query_model` before `compile_model`."""

    compiles_beside_others: ClassVar[bool] = False
    """Whether `compile_model` releases the GIL most of the time. HETERO then compiles several submodels in parallel."""

    computes_on_host: ClassVar[bool] = False
    """Whether the device computes in this machine's memory, so that its contexts are `HostContext` objects."""

    extended_by_another: ClassVar[bool] = False
    """Whether another device compiles the models of this device. Extensions for all devices then go to that device
    only."""

    def __init__(self) -> None:
        self._table = PropertyTable(self.properties)
        self._property_lock = threading.Lock()
        self._plugin_of: Callable[[str], Plugin] | None = None
        self.registrations: Callable[[str], Sequence[tuple[str, str]]] = _not_registered
        """Device name -> what another process must register to create the device (`Registry.registrations`)."""
        self.device_names: Callable[[], Sequence[str]] = tuple
        """The names of all devices of the `Core`, available or not."""
        self.knows_device: Callable[[str], bool] = lambda name: False
        """Whether a name is one of ``device_names``."""
        self.executors = ExecutorManager()
        """The threads of models compiled by this plugin. They end with the plugin and the last of its models."""
        weakref.finalize(self, self.executors.clear).atexit = False

    # -- what a device must implement ---------------------------------------------------------------------------------

    @abc.abstractmethod
    def query_model(self, model: Model, config: Mapping[str, Any]) -> Support:
        """The nodes of ``model`` that this device supports. Ignores affinities.

        The answer is about the nodes as given: a device that fuses nodes supports each node of the group or none. A
        call of a model-local function is one node. If the device rejects it, hetero replaces the call by the nodes of
        the function and calls `query_model` again. ``config`` has passed `check_config`.
        """

    @abc.abstractmethod
    def compile_model(
        self, model: Model, config: Mapping[str, Any], context: RemoteContext | None = None
    ) -> CompiledModel:
        """Compile the whole of ``model``. ``config`` has passed `check_config`; `full_config` adds the defaults."""

    # -- what a device may override -----------------------------------------------------------------------------------

    def find_dtypes(self, model: Model, names: Sequence[str], config: Mapping[str, Any]) -> Mapping[str, np.dtype[Any]]:
        """The element types of values that hetero cannot infer, as far as the device knows them: name -> dtype.

        hetero calls this before `query_model` if it plans the model for several devices, and states the types in the
        model. ``names``: values whose element type is unknown.
        """
        return {}

    def read_only_property(self, name: str) -> Any:
        """The value of a declared read-only property. An override ends with ``return super()...``."""
        if name == "SUPPORTED_PROPERTIES":
            return self._table.names
        if name == "AVAILABLE_DEVICES":
            return self.device_ids()
        if name in ("FULL_DEVICE_NAME", "DEVICE_ARCHITECTURE"):
            return self.name
        return self._table.get(name, self.name)

    def device_ids(self) -> tuple[str, ...]:
        """The ids that may follow the dot in a device name; empty if the device has no ids."""
        return ()

    def speed(self, device: str) -> DeviceSpeed:
        """The speed that assignment by cost assumes if no costs were measured. ``device``: the requested name."""
        from .speed import default_speed

        return default_speed(getattr(type(self), "name", device))  # speeds are listed by the author's name

    def memory_bytes(self, device: str) -> float | None:
        """The memory that the device has for a model, in bytes. Plans stay within it. None: no limit."""
        return None

    def least_subgraph(self, device: str) -> LeastSubgraph:
        """The minimum size of a subgraph of the device. Plans of HETERO give it no smaller one."""
        return LeastSubgraph()

    def most_subgraphs(self, device: str) -> int | None:
        """The largest number of subgraphs of a model on the device. Plans of HETERO give it only the first ones, in
        running order. None: no limit."""
        return None

    def device_memory(self, device: str) -> DeviceMemory | None:
        """The memory that the device has, for users to see; it limits nothing. ``device``: the requested name. None:
        unknown."""
        limit = self.memory_bytes(device)
        return None if limit is None else DeviceMemory(int(limit))

    def available_bytes(self, device: str) -> int | None:
        """The free memory of the device, or its whole memory if the free memory is unknown; for the limit
        ``available``."""
        memory = self.device_memory(device)
        return None if memory is None else memory.total if memory.free is None else memory.free

    def inner_bytes(self, model: Model, nodes: Sequence[int], config: Mapping[str, Any]) -> Mapping[str, int]:
        """Device -> bytes that ``nodes`` need on other devices of the list, because this device runs their nested
        graphs there. Plans of HETERO count them against the limits of those devices."""
        return {}

    def version_descriptor(self, config: Mapping[str, Any]) -> Mapping[str, str]:
        """The versions that compiled models depend on besides the model and the properties. ``CACHE_DIR`` reuses a
        compiled model only if they are equal."""
        from ..base.version import __version__

        return {"hetero": __version__, "architecture": str(self.get_property("DEVICE_ARCHITECTURE"))}

    def settings_of(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """All properties of a model compiled with ``config``, including properties of other devices that it runs on."""
        return self.full_config(config)

    def check_config(self, config: Mapping[str, Any]) -> None:
        """Raise `PropertyError` for a wrong ``config``. hetero calls this once for a configuration, before
        `query_model`, `compile_model` and `import_payload`."""
        self.full_config(config)

    def import_payload(self, reader: PayloadReader, config: Mapping[str, Any]) -> CompiledModel:
        """Read a compiled model that `CompiledModel.export_payload` wrote. The digests of the file are checked, but the
        file may come from an untrusted source. Raises `NotSupported` unless overridden."""
        raise NotSupported(f"{self.name} cannot import compiled models")

    def check_import(self, reader: PayloadReader, config: Mapping[str, Any]) -> None:  # noqa: B027  nothing to check
        """Raise `WrongVersion` if this plugin cannot read the payload version ``reader.version``. This method must not
        read files of the payload. It checks the parts with `hetero.compiling.importing.check_part`."""

    def create_context(self, parameters: Mapping[str, Any]) -> RemoteContext:
        """Create a context on this device. Raises `PropertyError` for unknown ``parameters``."""
        if not self.computes_on_host:
            raise self._no_contexts()
        for name in parameters:
            raise PropertyError(f"contexts of {self.name} accept no parameters, found {shown(name)}")
        return HostContext(self.name)

    def get_default_context(self) -> RemoteContext:
        """The context of the device's own memory. Every call returns the same object."""
        if not self.computes_on_host:
            raise self._no_contexts()
        return self._host_context

    def _no_contexts(self) -> NotSupported:
        instead = ""
        if self.name in LIST_DEVICES:
            instead = ": use the context of one device, or of a list such as 'HETERO:FPGA,CPU'"
        return NotSupported(f"{self.name} has no remote contexts{instead}")

    def get_context_of(self, id_: str) -> RemoteContext:
        """`get_default_context` of the device with an id, for plugins whose devices have memories of their own."""
        return self.get_default_context()

    def add_extension(self, extension: Any) -> None:
        """Add an extension, such as a `hetero.CustomOp`, for later queries and compilations.

        An override raises `NotSupported` for an unknown kind of extension and `ExtensionError` for an extension that
        contradicts an earlier one. It accepts the same object twice. Raises `NotSupported` unless overridden.
        """
        raise NotSupported(f"{self.name} does not support extensions")

    def bound_to_process(self, model: Model) -> str:
        """A description of what the model requires from this process, such as a custom operator; empty if other
        processes can run the model as well."""
        return ""

    def described_ops(self, model: Model) -> Sequence[OpDescription]:
        """The custom operators that the model requires, in a form that another process of this machine can load, such
        as a worker of ``ISOLATION=PROCESS``. Raises `NotSupported` for an operator that exists only in this process."""
        bound = self.bound_to_process(model)
        if bound:
            raise NotSupported(f"{bound} is code of this process, so no worker process can load it")
        return ()

    @functools.cached_property
    def _host_context(self) -> HostContext:
        return HostContext(self.name)

    def check_host_context(self, context: RemoteContext | None) -> None:
        """Raise `PropertyError` for a context of memory other than this machine's."""
        if context is not None and not isinstance(context, HostContext):
            raise PropertyError(
                f"{self.name} uses this machine's memory and accepts only a HostContext, found {shown(context)}"
            )

    # -- what a device uses -------------------------------------------------------------------------------------------

    def full_config(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Every writable property: the value of ``config``, else of `set_property`, else the default. Raises
        `PropertyError`."""
        with self._property_lock:
            layered = self._table.layered(config, self.name)
        if "DEVICE_ID" in config:
            self._check_own_id(config)
        return layered

    def setting(self, name: str, config: Mapping[str, Any]) -> Any:
        """One writable property, as in `full_config`. None if this device does not declare it."""
        if name not in self._table:
            return None
        value = config.get(name, self._table.get(name, self.name))
        return self._table.declared(name, self.name).check(value)

    def device_name(self, id_: str = "") -> str:
        """The name of the device with an id: ``CPU`` or ``CPU.1``."""
        return f"{self.name}.{id_}" if id_ else self.name

    def check_device_id(self, id_: str) -> None:
        """Raise `DeviceUnavailable` unless ``id_`` is one of `device_ids`."""
        known = self.device_ids()
        if id_ not in known:
            ids = f"; ids here: {', '.join(known)}" if known else "; it has no ids"
            raise DeviceUnavailable(f"there is no device {self.name}.{id_}{ids}")

    def declared(self, name: str) -> Property:
        """The declaration of a property of this device. Raises `PropertyError`, with the nearest name, if the device
        does not declare it."""
        return self._table.declared(name, self.name)

    def declares(self, name: str) -> bool:
        """Whether ``name`` is a writable property of this device. HETERO forwards only these properties."""
        return name in self._table and self._table.declared(name, self.name).writable

    @property
    def is_simulated(self) -> bool:
        """Whether the device simulates other hardware (``DEVICE_TYPE``)."""
        return "DEVICE_TYPE" in self._table and self.read_only_property("DEVICE_TYPE") == "simulated"

    def plugin_of(self, device: str) -> Plugin:
        """The plugin of another device of the same `Core`. Raises `DeviceUnavailable`."""
        if self._plugin_of is None:
            raise DeviceUnavailable(f"{self.name} runs over other devices; register it with a Core first")
        return self._plugin_of(device)

    # -- what hetero calls --------------------------------------------------------------------------------------------

    def get_property(self, name: str) -> Any:
        """The value of a read-only property, or the default of a writable one for models compiled later. Raises
        `PropertyError`."""
        with self._property_lock:
            if self._table.declared(name, self.name).writable:
                return self._table.get(name, self.name)
        return self.read_only_property(name)

    def set_property(self, values: Mapping[str, Any]) -> None:
        """Set defaults for models compiled later: all of ``values``, or none if one is wrong. Raises
        `PropertyError`."""
        if "DEVICE_ID" in values:
            self._check_own_id(values)
        with self._property_lock:
            self._table.update(values, self.name)

    def timeout_ms(self, config: Mapping[str, Any]) -> int:
        """``PLUGIN_TIMEOUT_MS`` of a call, in ms; 0: no limit."""
        return self.setting("PLUGIN_TIMEOUT_MS", config) or 0

    def connect(self, plugin_of: Callable[[str], Plugin]) -> None:
        """Called once after construction. ``plugin_of`` returns the plugin of another device by name."""
        self._plugin_of = plugin_of

    def _check_own_id(self, config: Mapping[str, Any]) -> None:
        """Raise `DeviceUnavailable` for an unknown ``DEVICE_ID``."""
        id_ = self._table.checked({"DEVICE_ID": config["DEVICE_ID"]}, self.name)["DEVICE_ID"]
        if id_:
            self.check_device_id(id_)


def _not_registered(name: str) -> Sequence[tuple[str, str]]:
    raise NotSupported(f"{name} runs in worker processes only if it is registered with a Core")
