"""The process's connection to a Ray cluster, and the nodes of the cluster.

`ray.init` waits for minutes if an address does not answer. Therefore, the address is tested first, and `ray.init` runs
in a thread with a time limit. Errors of Ray become `DeviceUnavailable`.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import ipaddress
import logging
import os
import re
import socket
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import DeviceUnavailable, NotSupported, PropertyError, VersionMismatch

__all__ = ["INSTALL", "Cluster", "Node", "connect", "connected", "is_installed", "running_address"]

INSTALL = "pip install 'hetero[ray]'"
_ANSWER_SECONDS = 5.0  # time limit for opening a connection
_CONNECT_SECONDS = 60.0  # time limit for `ray.init`, enough to start a cluster on a busy machine
_HEAD = "node:__internal_head__"
_RESOURCE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_PLACES = frozenset(("CPU", "memory", "object_store_memory"))


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """A node of the cluster. ``number``: the id of the device ``RAY.<number>``. ``id``: Ray's id. ``resources``: name
    -> total amount."""

    number: int
    id: str
    address: str
    name: str
    is_head: bool
    resources: Mapping[str, float]

    def __str__(self) -> str:
        where = self.address if self.name in ("", self.address) else f"{self.name} ({self.address})"
        return f"node {self.id[:8]} at {where}"


def is_installed() -> bool:
    """Whether the package ``ray`` is installed. A folder with that name is not enough."""
    spec = importlib.util.find_spec("ray")
    return spec is not None and spec.origin is not None


class Cluster:
    """A connection to a cluster. ``address``: the address of its head."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._key = _connection_key()
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._numbered: list[Node] = []  # by number; a dead node keeps its number until a new node takes it

    @property
    def is_over(self) -> bool:
        """Whether the connection was closed, or this process is a fork of the connected one."""
        import ray

        return self._pid != os.getpid() or not ray.is_initialized() or _connection_key() != self._key

    def nodes(self) -> tuple[Node, ...]:
        """The nodes that are alive, ordered by number.

        On the first call, the head gets number 0, and the others follow in the order of address, name and id. While
        this process is connected, nodes keep their numbers. A new node gets the number of a dead node with the same
        address and name, or else the next number.
        """
        import ray

        alive = sorted((_node(entry) for entry in ray.nodes() if entry["Alive"]), key=_order)
        with self._lock:
            by_id = {node.id: node for node in alive}
            known = {node.id for node in self._numbered}
            for number, node in enumerate(self._numbered):
                if node.id in by_id:
                    self._numbered[number] = dataclasses.replace(by_id[node.id], number=number)
            for node in alive:
                if node.id in known:
                    continue
                free = next(
                    (
                        dead.number
                        for dead in self._numbered
                        if dead.id not in by_id and (dead.address, dead.name) == (node.address, node.name)
                    ),
                    len(self._numbered),
                )
                self._numbered[free : free + 1] = [dataclasses.replace(node, number=free)]
            return tuple(node for node in self._numbered if node.id in by_id)

    def ids(self) -> tuple[str, ...]:
        """The valid device ids: numbers of nodes that are alive, then names of their resources."""
        nodes = self.nodes()
        names = {name for node in nodes for name in node.resources if _is_place(name)}
        return (*(str(node.number) for node in nodes), *sorted(names))

    def node_of(self, id_: str) -> Node | None:
        """The node with a number, alive or dead; None if there is none."""
        self.nodes()
        with self._lock:
            return self._numbered[int(id_)] if id_.isdigit() and int(id_) < len(self._numbered) else None


class _State:
    """The connection of this process. ``is_fork``: whether this process was forked from a connected one."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.current: Cluster | None = None
        self.attempt: _Attempt | None = None
        self.is_fork = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._in_child)

    def _in_child(self) -> None:
        self.is_fork = self.is_fork or self.current is not None
        self.lock, self.current, self.attempt = threading.RLock(), None, None


_state = _State()


def connected() -> Cluster | None:
    """The current connection, including one that the application opened; None without one."""
    import sys

    if "ray" not in sys.modules:
        return None
    import ray

    with _state.lock:
        if _state.is_fork:
            raise DeviceUnavailable(
                "RAY: this process was forked from a process that is connected to a Ray cluster, and cannot use Ray; "
                "fork before connecting, or start processes with 'spawn'"
            )
        if not ray.is_initialized():
            return None
        if _state.current is None or _state.current.is_over:
            if _is_client():
                raise NotSupported(_NO_CLIENT)
            _state.current = Cluster(str(ray.get_runtime_context().gcs_address))
        return _state.current


def running_address(requested: str = "") -> str:
    """The address of the running cluster to which `connect` would connect; empty if it would start a new cluster.

    ``requested``: see `connect`. Raises `DeviceUnavailable` if a requested address does not answer."""
    requested = requested or os.environ.get("RAY_ADDRESS", "")
    if requested == "local":
        return ""
    if requested not in ("", "auto"):
        if "://" in requested:
            raise NotSupported(_NO_CLIENT)
        _check_answers(requested)
        return requested
    local = _local_address()
    if local:
        try:
            _check_answers(local)
        except (DeviceUnavailable, PropertyError):
            local = ""  # the cluster no longer runs
    if requested == "auto" and not local:
        raise DeviceUnavailable("RAY: no Ray cluster runs on this machine (RAY_ADDRESS=auto): ray start --head")
    return local


def connect(requested: str = "", init: Mapping[str, Any] | None = None) -> Cluster:
    """The connection of this process. Connects if there is none.

    ``requested``: ``host:port`` of a cluster's head, ``auto`` for the cluster on this machine, or ``local`` for a new
    cluster. If empty, uses the environment variable ``RAY_ADDRESS``, or else the cluster on this machine, or else a new
    cluster. ``init``: additional arguments of `ray.init` for a new cluster.

    Raises `DeviceUnavailable` if the address does not answer, `VersionMismatch` if the cluster has another version of
    Ray or Python, and `PropertyError` if the address is invalid or differs from the existing connection.
    """
    with _state.lock:
        existing = connected()
        if existing is not None:
            if requested not in ("", "auto", "local") and not _same_place(requested, existing.address):
                raise PropertyError(
                    f"RAY_ADDRESS: this process is already connected to {existing.address} and cannot connect to "
                    f"{requested!r}; ray.shutdown() closes the connection"
                )
            return existing
        attempt = _state.attempt
        if attempt is not None and not attempt.is_done.is_set():
            raise DeviceUnavailable(f"RAY: an earlier attempt to connect to {attempt.where} has not finished")
        address = running_address(requested)
        attempt = _state.attempt = _Attempt(address, dict(init or {}))
        attempt.start()
        if not attempt.is_done.wait(_CONNECT_SECONDS):
            raise DeviceUnavailable(
                f"RAY: {attempt.where} accepts connections, but does not answer within {_CONNECT_SECONDS:g} s; it may "
                "not be the head of a Ray cluster"
            )
        _state.attempt = None
        if attempt.error is not None:
            raise _refusal(address, attempt.error) from attempt.error
        import ray

        _state.current = Cluster(str(ray.get_runtime_context().gcs_address))
        return _state.current


class _Attempt(threading.Thread):
    """One call of `ray.init`. If it starts a cluster, the thread keeps running, because Linux ends the processes of the
    cluster when the thread that started them exits."""

    def __init__(self, address: str, init: dict[str, Any]) -> None:
        super().__init__(name="hetero connects to Ray", daemon=True)
        self.where = address or "a new cluster on this machine"
        self.error: BaseException | None = None
        self.is_done = threading.Event()
        self._starts = not address
        self._arguments: dict[str, Any] = {"address": address or "local", "log_to_driver": False}
        self._arguments["logging_level"] = logging.CRITICAL  # errors are raised instead
        if not address:
            self._arguments |= {"include_dashboard": False, **init}

    def run(self) -> None:
        os.environ.setdefault(
            "RAY_USAGE_STATS_ENABLED", "0"
        )  # Ray sends usage statistics only if the user enables this
        try:
            import ray

            ray.init(**self._arguments)
        except BaseException as error:
            self.error = error
        finally:
            self.is_done.set()
        if self._starts and self.error is None:
            threading.Event().wait()


def _refusal(address: str, error: BaseException) -> Exception:
    """An exception of `ray.init` as an error of hetero."""
    text = " ".join(str(part) for part in (error, error.__cause__) if part is not None)
    text = " ".join(text.split())
    if "Version mismatch" in text:
        return VersionMismatch(f"RAY: {text}: install the same versions of Ray and Python on all hosts ({INSTALL})")
    if not address:
        return DeviceUnavailable(f"RAY: cannot start a cluster on this machine: {type(error).__name__}: {text}")
    remedy = ""
    if "IP address" in text or "raylet" in text.lower():
        remedy = f"; this host must be a node of the cluster: ray start --address={address}"
    return DeviceUnavailable(f"RAY: cannot connect to {address}: {type(error).__name__}: {text}{remedy}")


def _check_answers(address: str) -> None:
    host, port = _host_and_port(address)
    try:
        socket.create_connection((host, port), timeout=_ANSWER_SECONDS).close()
    except OSError as error:
        raise DeviceUnavailable(
            f"RAY: {address} does not answer ({error}): `ray start --head` on that host starts a cluster and prints "
            "its address"
        ) from error


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise PropertyError(
            f"RAY_ADDRESS: expected host:port of the head of a cluster, auto or local, found {address!r}"
        )
    return host, int(port)


def _same_place(requested: str, address: str) -> bool:
    (host, port), (own_host, own_port) = _host_and_port(requested), _host_and_port(address)
    if port != own_port:
        return False
    try:
        return host == own_host or not {entry[4][0] for entry in socket.getaddrinfo(host, None)}.isdisjoint(
            {own_host, "127.0.0.1", "::1"}
        )
    except OSError:
        return False


def _local_address() -> str:
    """The address that `ray start` stored on this machine, where Ray looks for it too; empty if there is none."""
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    try:
        with open(os.path.join(folder, "ray", "ray_current_cluster"), encoding="utf-8") as file:
            return file.read(1000).strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _connection_key() -> tuple[str, str]:
    import ray

    context = ray.get_runtime_context()
    return context.get_job_id(), context.get_node_id()


def _is_client() -> bool:
    import ray.util.client

    return bool(ray.util.client.ray.is_connected())


_NO_CLIENT = (
    "RAY: Ray Client (ray://) is not supported, because tensors pass through the object store of a node. Make this "
    "host a node of the cluster with `ray start --address=HEAD:6379`, and use that address"
)


def _is_place(resource: str) -> bool:
    return bool(_RESOURCE.fullmatch(resource)) and resource not in _NOT_PLACES


def _node(entry: Mapping[str, Any]) -> Node:
    resources = dict(entry["Resources"])
    return Node(-1, entry["NodeID"], entry["NodeManagerAddress"], entry["NodeName"], _HEAD in resources, resources)


def _order(node: Node) -> tuple[bool, Sequence[Any], str, str]:
    try:
        address = ipaddress.ip_address(node.address)
        where: Sequence[Any] = (address.version, int(address), "")
    except ValueError:
        where = (9, 0, node.address)
    return not node.is_head, where, node.name, node.id
