"""The plugin of ``RAY``, which runs submodels on the nodes of a Ray cluster. ``RAY.0`` is a node, ``RAY.fpga`` a
resource."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.device_string import parse_device
from ...base.log import tell
from ...base.properties import Property, without
from ...base.warn import warn
from ...errors import DeviceUnavailable, NotSupported, PropertyError, shown
from ...model.detached import detach
from ...plugin.caller import configure, query
from ...plugin.contract import CompiledModel, Plugin, RemoteContext, Support
from .actor import Place, Pool
from .cluster import INSTALL, Cluster, Node, connect, connected, is_installed, running_address
from .model import RayModel, RaySupervisor
from .stage import Request

if TYPE_CHECKING:
    from ...model.model import Model
    from ...plugin.speed import DeviceSpeed

__all__ = ["RayPlugin", "create_plugin"]

_PASSED_ON = ("PERF_COUNT", "LOG_LEVEL")

# Transfer rate to and from an actor, and time of a call, on one machine (bench/ray_hops.py). Networks may be slower.
_LINK_BYTES_PER_S, _CALL_SECONDS = 5e8, 1e-3


class RayPlugin(Plugin):
    """Nodes of a Ray cluster. Each runs another device of hetero: ``RAY_DEVICE``, by default CPU."""

    name = "RAY"
    compiles_beside_others = True
    extended_by_another = True
    properties = (
        # An actor is already a separate process, and its compiled models cannot be exported.
        *without(Plugin.properties, "ISOLATION", "CACHE_DIR", "CACHE_ENCRYPTION_CALLBACKS"),
        "PERF_COUNT",
        "STRICT",
        Property("RAY_ADDRESS", str, "", doc="host:port of a cluster's head, auto or local; empty: as ray.init()"),
        Property("RAY_DEVICE", str, "CPU", doc="the device that runs submodels on the nodes"),
        Property("RAY_DEVICE_PROPERTIES", Mapping, {}, doc="properties of RAY_DEVICE"),
        Property("RAY_RESOURCES", Mapping, {}, doc="resources that each actor reserves, such as {'GPU': 1}"),
        Property("RAY_RUNTIME_ENV", Mapping, {}, doc="Ray's runtime environment of the actors"),
        Property("RAY_INIT", Mapping, {}, doc="arguments of ray.init() for a cluster that this process starts"),
        Property("RAY_STANDBY", bool, True, doc="keep an idle actor on each node that runs a model"),
    )

    def __init__(self) -> None:
        super().__init__()
        if not is_installed():
            raise DeviceUnavailable(f"RAY requires the package ray: {INSTALL}")
        self._pool_lock = threading.Lock()
        self._pool: Pool | None = None

    # -- devices ------------------------------------------------------------------------------------------------

    def device_ids(self) -> tuple[str, ...]:
        """Numbers of nodes and names of resources. Raises `DeviceUnavailable` if no cluster runs."""
        cluster = connected()
        if cluster is None:
            with self._property_lock:
                requested = str(self._table.get("RAY_ADDRESS", self.name))
            address = running_address(requested)
            if not address:
                raise DeviceUnavailable(
                    "RAY: no Ray cluster is running. `ray start --head` starts one on this host, RAY_ADDRESS selects "
                    "another one, and compiling for RAY.0 starts one that ends with the process"
                )
            cluster = connect(address)
        return cluster.ids()

    def check_device_id(self, id_: str) -> None:
        """Without a connection, the id is checked when a model is compiled, because its configuration may select the
        cluster."""
        if connected() is not None:
            super().check_device_id(id_)

    def read_only_property(self, name: str) -> Any:
        match name:
            case "AVAILABLE_DEVICES":
                try:
                    return self.device_ids()
                except DeviceUnavailable:
                    return ()
            case "FULL_DEVICE_NAME":
                cluster = connected()
                where = "" if cluster is None else f", {len(cluster.nodes())} nodes at {cluster.address}"
                return f"Ray {_ray_version()}{where}"
            case "DEVICE_ARCHITECTURE":
                return f"ray-{_ray_version()}"
            case "DEVICE_TYPE":
                return "discrete"
        return super().read_only_property(name)

    def speed(self, device: str) -> DeviceSpeed:
        """The speed of the device on the nodes, with the cost of calls and transfers."""
        import dataclasses

        inner = parse_device(str(self.get_property("RAY_DEVICE")))
        try:
            own = self.plugin_of(inner.name).speed(f"{inner.name}.{inner.id}" if inner.id else inner.name)
        except DeviceUnavailable:
            own = super().speed(device)
        return dataclasses.replace(
            own, launch_s=own.launch_s + _CALL_SECONDS, link_bytes_per_s=_LINK_BYTES_PER_S, link_latency_s=0.0
        )

    # -- stages -------------------------------------------------------------------------------------------------

    def query_model(self, model: Model, config: Mapping[str, Any]) -> Support:
        """The nodes that the device on the nodes supports, except those that require code of this process."""
        settings = self.full_config(config)
        self._check_place(settings)
        inner = _Inner(self, settings)
        if inner.plugin is not None:
            return inner.query(model)
        cluster = connect(settings["RAY_ADDRESS"], settings["RAY_INIT"])
        pool = self._pool_of(cluster)
        place = self._places(self.device_name(settings["DEVICE_ID"]), cluster, settings)()
        actor = pool.actor(place, settings["PLUGIN_TIMEOUT_MS"] / 1000 or None)
        answer = actor.ask("query", inner.request(()), *_put(model))
        pool.later(pool.give_back, actor)
        if answer.failure is not None:
            raise answer.failure.error()
        support: Support = answer.support
        return support

    def compile_model(
        self, model: Model, config: Mapping[str, Any], context: RemoteContext | None = None
    ) -> CompiledModel:
        settings = self.full_config(config)
        name = self.device_name(settings["DEVICE_ID"])
        if context is not None:
            raise PropertyError(f"{name}: remote contexts are not supported, found {shown(context)}")
        inner = _Inner(self, settings)
        bound = "" if inner.plugin is None else inner.plugin.bound_to_process(model)
        if bound:
            raise NotSupported(f"{name}: {bound} exists only in this process, not in actors")
        self._check_place(settings)
        cluster = connect(settings["RAY_ADDRESS"], settings["RAY_INIT"])
        registered = () if inner.plugin is None else self.registrations(inner.device.name)
        request, places = inner.request(registered), self._places(name, cluster, settings)
        encoded, weights = _put(model.with_inferred_types())
        supervisor = RaySupervisor(
            name, self._pool_of(cluster), places, request, encoded, weights, settings, len(model.outputs)
        )
        return RayModel(model, supervisor, settings)

    def _pool_of(self, cluster: Cluster) -> Pool:
        with self._pool_lock:
            if self._pool is None or self._pool.cluster is not cluster:
                self._pool = Pool(cluster)
            return self._pool

    def _check_place(self, settings: Mapping[str, Any]) -> None:
        """Raise `DeviceUnavailable` if ``DEVICE_ID`` does not exist, also if it would not exist in a cluster that this
        process would start. Does not start a cluster."""
        id_ = settings["DEVICE_ID"]
        if connected() is None and not running_address(settings["RAY_ADDRESS"]):
            known: Sequence[str] = ("0", *settings["RAY_INIT"].get("resources", ()))
            where = " (in a cluster that this process starts; RAY_ADDRESS selects another one)"
        else:
            known, where = connect(settings["RAY_ADDRESS"], settings["RAY_INIT"]).ids(), ""
        if id_ and id_ not in known:
            raise DeviceUnavailable(f"there is no device RAY.{id_}; ids here: {', '.join(known)}{where}")

    def _places(self, name: str, cluster: Cluster, settings: Mapping[str, Any]) -> Callable[[], Place]:
        """A function that returns the place of the next actor: its node while that is alive, then another."""
        id_ = settings["DEVICE_ID"]
        reserved, environment = _reserved(settings["RAY_RESOURCES"]), tuple(settings["RAY_RUNTIME_ENV"].items())
        if not id_.isdigit():
            place = Place(name, resource=id_, reserved=reserved, runtime_env=environment)
            return lambda: place

        def place_now() -> Place:
            node, alive = cluster.node_of(id_), cluster.nodes()
            assert node is not None
            if all(node.id != other.id for other in alive):
                node = self._moved(name, node, alive, settings)
            return Place(name, node=node.id, reserved=reserved, runtime_env=environment)

        return place_now

    def _moved(self, name: str, dead: Node, alive: Sequence[Node], settings: Mapping[str, Any]) -> Node:
        """The node that replaces a dead node: the next one by number."""
        text = f"{name}: {dead} is dead"
        if settings["STRICT"] or not alive:
            raise DeviceUnavailable(f"{text}, and {'STRICT is set' if alive else 'there is no other node'}")
        node = next((node for node in alive if node.number > dead.number), alive[0])
        text = f"{text}; its models move to RAY.{node.number}, {node}"
        tell(settings, name, "WARNING", text)
        warn(text)
        return node


class _Inner:
    """The device on the nodes, as known in this process. ``plugin``: None if this process does not have it."""

    def __init__(self, ray: RayPlugin, settings: Mapping[str, Any]) -> None:
        self.device = parse_device(settings["RAY_DEVICE"])
        listed = self.device.devices or (str(self.device),)
        if any(parse_device(device).name == ray.name for device in listed):
            raise PropertyError(f"RAY_DEVICE: expected a device other than {ray.name}, found {self.device}")
        self._config = dict(settings["RAY_DEVICE_PROPERTIES"])
        self.plugin: Plugin | None
        try:
            self.plugin = ray.plugin_of(self.device.name)
            if self.device.id:
                self.plugin.check_device_id(self.device.id)
        except DeviceUnavailable:
            self.plugin = None
        for name in _PASSED_ON:
            if self.plugin is None or self.plugin.declares(name):
                self._config.setdefault(name, settings[name])
        if self.plugin is not None and self.device.devices is None:
            self.plugin.full_config(self._config)  # raises errors before anything is sent

    def request(self, registered: Sequence[tuple[str, str]]) -> Request:
        return Request(str(self.device), self._config, list(registered))

    def query(self, model: Model) -> Support:
        assert self.plugin is not None
        config = dict(self._config)
        if self.device.id:
            config["DEVICE_ID"] = self.device.id
        if self.device.devices is not None:
            config["MULTI_DEVICE_PRIORITIES"] = ",".join(self.device.devices)
        support = query(configure(self.plugin, config, str(self.device)), model)
        if not self.plugin.bound_to_process(model):
            return support
        reasons = dict(support.reasons)
        for node in np.flatnonzero(support.mask).tolist():
            bound = self.plugin.bound_to_process(model.extract(np.array([node], np.int32)))
            if bound:
                reasons[node] = f"{bound} exists only in this process, not in actors"
        return Support.from_reasons(model.num_nodes, reasons)


def _reserved(resources: Mapping[str, Any]) -> tuple[tuple[str, float], ...]:
    for name, amount in resources.items():
        if not isinstance(name, str) or not isinstance(amount, (int, float)) or not 0 <= amount < float("inf"):
            raise PropertyError(
                f"RAY_RESOURCES: expected resources with amounts, such as {{'GPU': 1}}, found {name!r}: {amount!r}"
            )
    return tuple(sorted(resources.items()))


def _put(model: Model) -> tuple[Any, Any]:
    """References to the encoded model and to its weights in the object store."""
    import ray

    encoded, weights = detach(model)
    return ray.put(np.frombuffer(encoded, np.uint8)), ray.put(weights)


def _ray_version() -> str:
    try:
        return metadata.version("ray")
    except metadata.PackageNotFoundError:  # not installed as a package
        return "of unknown version"


def create_plugin() -> RayPlugin:
    return RayPlugin()
