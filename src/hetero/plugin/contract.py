"""All that a device author reads: what a plugin must give and what it gets.

A device is a `Plugin` subclass and a factory ``create_plugin()`` named in the entry-point group ``hetero.plugins``
(or handed to `Core.register_plugin`). Required: `Plugin.name`, `Plugin.query_model`, `Plugin.compile_model`. The
compiled model gives a `Runner` per request; everything a user touches around it (`InferRequest`, input checks,
`__call__`) is made here once for all devices.

The smallest device::

    class MyPlugin(Plugin):
        name = "MINE"
        def query_model(self, model, config):
            return Support.from_reasons(model.num_nodes, {i: "only Relu" for i in ... })
        def compile_model(self, model, config, context=None):
            return MyCompiledModel(self.name, model.inputs, model.outputs)

    class MyCompiledModel(CompiledModel):
        def create_runner(self):
            return self                      # stateless: the model is its own runner
        def run(self, inputs): ...
        def profile(self): return ()
"""

from __future__ import annotations

import abc
import dataclasses
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..base.properties import Property, PropertyTable
from ..errors import DeviceUnavailable, NotSupported
from ..model.types import Port
from .compiled_model import CompiledModel
from .executor import ExecutorManager
from .profile import ProfileRow
from .remote import RemoteContext, RemoteTensor
from .request import InferRequest, PlacingRunner, RepeatingRunner, Runner

if TYPE_CHECKING:
    from ..artifact.payload import PayloadReader
    from ..extension.elsewhere import OpDescription
    from ..model.model import Model
    from .speed import DeviceSpeed

__all__ = [
    "CompiledModel",
    "InferRequest",
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
    """A device's answer about a model: which nodes it takes, and why not the others.

    ``mask``: bool[num_nodes], True where the device takes the node. ``reasons``: node index -> why not, one entry for
    every False.
    """

    mask: NDArray[np.bool_]
    reasons: Mapping[int, str]

    @classmethod
    def from_reasons(cls, num_nodes: int, reasons: Mapping[int, str]) -> Support:
        """All nodes but those with a reason against them."""
        mask = np.ones(num_nodes, np.bool_)
        mask[list(reasons)] = False
        return cls(mask, reasons)


class Plugin(abc.ABC):
    """The object behind a device name.

    The constructor raises `DeviceUnavailable`, with what to install, when the backend is missing. Methods may be
    called from several threads.
    """

    name: str
    """The device name, e.g. ``CPU``, without an id. A plugin that is registered under another name gets that one, so
    build the names of models and messages from ``self.name`` (`device_name`)."""

    registered_names: tuple[str, ...] = ()
    """The names that it is registered under: several if a factory returns one plugin for all of them."""

    properties: ClassVar[Sequence[str | Property]] = (
        "SUPPORTED_PROPERTIES",
        "AVAILABLE_DEVICES",
        "FULL_DEVICE_NAME",
        "DEVICE_ARCHITECTURE",
        "DEVICE_TYPE",
        "OPTIMIZATION_CAPABILITIES",
        "DEVICE_ID",
        "PERF_COUNT",
        "CACHE_DIR",
        "CACHE_ENCRYPTION_CALLBACKS",
        "LOG_LEVEL",
        "PLUGIN_TIMEOUT_MS",
        "ISOLATION",
        "WORKER_TIMEOUT_MS",
        "WORKER_RETRIES",
    )
    """What `get_property` and `set_property` know: names from `PROPERTIES`, or `Property` objects."""

    refuses_when_compiling: ClassVar[bool] = False
    """Whether `compile_model` itself raises `UnsupportedModel` for a model with a node that `query_model` refuses. Then
    that is not asked before, which saves its time."""

    compiles_beside_others: ClassVar[bool] = False
    """Whether `compile_model` mostly works without Python's lock, so that HETERO compiles its parts at one time."""

    extended_by_another: ClassVar[bool] = False
    """Whether its models are those of another device, which is given the extensions for all devices itself."""

    def __init__(self) -> None:
        self._table = PropertyTable(self.properties)
        self._property_lock = threading.Lock()
        self._plugin_of: Callable[[str], Plugin] | None = None
        self.registrations: Callable[[str], Sequence[tuple[str, str]]] = _not_registered
        """Device name -> what another process has to register by hand to have it (`Registry.registrations`)."""
        self.executors = ExecutorManager()
        """The threads of models compiled by this plugin; they end with it, or with the model if that lives longer."""
        weakref.finalize(self, self.executors.clear).atexit = False

    def connect(self, plugin_of: Callable[[str], Plugin]) -> None:
        """Called once, after construction, with the look-up of other devices by name (HETERO needs it)."""
        self._plugin_of = plugin_of

    def plugin_of(self, device: str) -> Plugin:
        """The plugin of another device of the same `Core`. Raises `DeviceUnavailable`."""
        if self._plugin_of is None:
            raise DeviceUnavailable(f"{self.name} runs over other devices; register it with a Core first")
        return self._plugin_of(device)

    @abc.abstractmethod
    def query_model(self, model: Model, config: Mapping[str, Any]) -> Support:
        """Which nodes this device takes. Ignores affinities. Answers in the nodes of ``model`` as given.

        A fused group is supported only if each of its nodes is covered. A call of a model-local function is a node
        like others: refused, it is replaced by the function's nodes, and the device is asked about those.
        """

    @abc.abstractmethod
    def compile_model(
        self, model: Model, config: Mapping[str, Any], context: RemoteContext | None = None
    ) -> CompiledModel:
        """Compile the whole of ``model``. ``config`` is checked against `properties` by `full_config`."""

    def setting(self, name: str, config: Mapping[str, Any]) -> Any:
        """One writable property for a call: ``config``, over `set_property`, over its default. None if this device does
        not declare it."""
        if name not in self._table:
            return None
        value = config.get(name, self._table.get(name, self.name))
        return self._table.declared(name, self.name).check(value)

    def timeout_ms(self, config: Mapping[str, Any]) -> int:
        """``PLUGIN_TIMEOUT_MS`` for a call; 0 for no limit."""
        return self.setting("PLUGIN_TIMEOUT_MS", config) or 0

    def speed(self, device: str) -> DeviceSpeed:
        """What assignment by cost takes the device for (``device``: as it was asked for) where nothing was measured."""
        from .speed import default_speed

        return default_speed(getattr(type(self), "name", device))  # speeds are listed by the author's name

    def memory_bytes(self, device: str) -> float | None:
        """How much memory the device has for a model, which plans hold to; None where nothing is to be held to."""
        return None

    def device_name(self, id_: str = "") -> str:
        """The name of the device with an id: ``CPU`` or ``CPU.1``."""
        return f"{self.name}.{id_}" if id_ else self.name

    def device_ids(self) -> tuple[str, ...]:
        """Ids that may stand after the dot; empty if the device has no ids."""
        return ()

    def check_device_id(self, id_: str) -> None:
        """Raise `DeviceUnavailable` unless ``id_`` is one of `device_ids`."""
        known = self.device_ids()
        if id_ not in known:
            ids = f"; ids here: {', '.join(known)}" if known else "; it has no ids"
            raise DeviceUnavailable(f"there is no device {self.name}.{id_}{ids}")

    def read_only_property(self, name: str) -> Any:
        """Value of a declared read-only property. Override to add; end with ``return super()...``."""
        if name == "SUPPORTED_PROPERTIES":
            return self._table.names
        if name == "AVAILABLE_DEVICES":
            return self.device_ids()
        if name in ("FULL_DEVICE_NAME", "DEVICE_ARCHITECTURE"):
            return self.name
        return self._table.get(name, self.name)

    def set_property(self, values: Mapping[str, Any]) -> None:
        """Set defaults for models compiled later. All or nothing. Raises `PropertyError`."""
        if "DEVICE_ID" in values:
            self._check_own_id(values)
        with self._property_lock:
            self._table.update(values, self.name)

    def get_property(self, name: str) -> Any:
        """A property's default for models compiled later, or what is so of the device. Raises `PropertyError`."""
        with self._property_lock:
            if self._table.declared(name, self.name).writable:
                return self._table.get(name, self.name)
        return self.read_only_property(name)

    def full_config(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Every writable property: default < `set_property` < ``config``. Raises `PropertyError`."""
        with self._property_lock:
            layered = self._table.layered(config, self.name)
        if "DEVICE_ID" in config:
            self._check_own_id(config)
        return layered

    def _check_own_id(self, config: Mapping[str, Any]) -> None:
        """Nothing may be set and then play no part: an id must be there."""
        id_ = self._table.checked({"DEVICE_ID": config["DEVICE_ID"]}, self.name)["DEVICE_ID"]
        if id_:
            self.check_device_id(id_)

    def declared(self, name: str) -> Property:
        """A property of this device: its type, its default, whether it can be set. `PropertyError`, with the nearest
        name, if it has none of that name."""
        return self._table.declared(name, self.name)

    def declares(self, name: str) -> bool:
        """Whether ``name`` is a writable property of this device (HETERO forwards only those)."""
        return name in self._table and self._table.declared(name, self.name).writable

    def transform_model(self, model: Model) -> Model:
        """The model as this device will run it. `query_model` must still answer for the original nodes."""
        return model

    def version_descriptor(self, config: Mapping[str, Any]) -> Mapping[str, str]:
        """What compiled models depend on besides the model and the properties: with these the same, one compiled
        earlier may stand for one compiled now (``CACHE_DIR``)."""
        from ..base.version import __version__

        return {"hetero": __version__, "architecture": str(self.get_property("DEVICE_ARCHITECTURE"))}

    def settings_of(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """All properties that a model compiled with ``config`` has, those of other devices it runs on included."""
        return self.full_config(config)

    def check_import(self, reader: PayloadReader, config: Mapping[str, Any]) -> None:  # noqa: B027  nothing to check
        """Raise `WrongVersion` if this plugin cannot read what it once wrote, by ``reader.version``; no file of it is
        to be read yet. With parts, check those (`hetero.compiling.importing.check_part`)."""

    def import_payload(self, reader: PayloadReader, config: Mapping[str, Any]) -> CompiledModel:
        """Make a compiled model again from what its `CompiledModel.export_payload` wrote. Digests were checked; who
        wrote the file is not known. Raises `NotSupported` unless overridden."""
        raise NotSupported(f"{self.name} cannot import compiled models")

    def create_context(self, parameters: Mapping[str, Any]) -> RemoteContext:
        """A context on this device, as ``parameters`` say; `PropertyError` for some that it does not have."""
        raise NotSupported(f"{self.name} has no remote contexts")

    def get_default_context(self) -> RemoteContext:
        """The context of the device's own memory, always the same one."""
        raise NotSupported(f"{self.name} has no remote contexts")

    def add_extension(self, extension: Any) -> None:
        """Take an extension, such as a `hetero.CustomOp`, for models that are queried and compiled from now on.

        Overriders raise `NotSupported` for a kind of extension that they do not know, `ExtensionError` for one that
        contradicts another, and accept the same object twice. Raises `NotSupported` unless overridden.
        """
        raise NotSupported(f"{self.name} takes no extensions")

    def bound_to_process(self, model: Model) -> str:
        """What a model needs that no other process has by itself, such as a custom operator; empty if there is
        nothing."""
        return ""

    def described_ops(self, model: Model) -> Sequence[OpDescription]:
        """The custom operators that a model needs, as another process of this machine can make them: with
        ``ISOLATION=PROCESS`` a worker does. Raises `NotSupported` for what only this process has."""
        bound = self.bound_to_process(model)
        if bound:
            raise NotSupported(f"{bound} is code of this process, which no worker has")
        return ()


def _not_registered(name: str) -> Sequence[tuple[str, str]]:
    raise NotSupported(f"{name} runs in worker processes only if it is registered with a Core")
