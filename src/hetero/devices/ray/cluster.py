"""The connection to a Ray cluster, of which a process has one, and the nodes of it.

`ray.init` waits for minutes where nobody answers, so an address is tried first, and the call is made in a thread that
is given up when its time is over. What else Ray says on the way becomes `DeviceUnavailable`.
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
_ANSWER_SECONDS = 5.0  # for somebody to accept a connection at an address
_CONNECT_SECONDS = 60.0  # for `ray.init`: starting a cluster on a machine that has other things to do
_HEAD = "node:__internal_head__"
_RESOURCE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_PLACES = frozenset(("CPU", "memory", "object_store_memory"))


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """A node of the cluster. ``number``: of the device ``RAY.<number>``. ``id``: Ray's. ``resources``: name -> how much
    it has in all."""

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
    """Whether there is a package ``ray``, and not just a folder of that name."""
    spec = importlib.util.find_spec("ray")
    return spec is not None and spec.origin is not None


class Cluster:
    """A connection. ``address``: of the cluster's head."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._key = _connection_key()
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._numbered: list[Node] = []  # by number; those that died keep theirs until another takes it

    @property
    def is_over(self) -> bool:
        """Whether somebody has ended it, or this process is a fork of the one that made it."""
        import ray

        return self._pid != os.getpid() or not ray.is_initialized() or _connection_key() != self._key

    def nodes(self) -> tuple[Node, ...]:
        """Those that are alive, by number.

        At first the head is 0, and the others follow by address, name and id. From then on a node keeps its number as
        long as this process is connected; one that comes takes the number of a dead one of its address and name, if
        there is one, else the next.
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
        """What may stand after the dot: numbers of nodes that are alive, then resources that one of them has."""
        nodes = self.nodes()
        names = {name for node in nodes for name in node.resources if _is_place(name)}
        return (*(str(node.number) for node in nodes), *sorted(names))

    def node_of(self, id_: str) -> Node | None:
        """The node of a number, alive or not."""
        self.nodes()
        with self._lock:
            return self._numbered[int(id_)] if id_.isdigit() and int(id_) < len(self._numbered) else None


class _State:
    """What this process has. ``is_fork``: of one that was connected."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.current: Cluster | None = None
        self.attempt: _Attempt | None = None
        self.is_fork = False
        os.register_at_fork(after_in_child=self._in_child)

    def _in_child(self) -> None:
        self.is_fork = self.is_fork or self.current is not None
        self.lock, self.current, self.attempt = threading.RLock(), None, None


_state = _State()


def connected() -> Cluster | None:
    """The connection that there is, also one that the program made itself; None without one."""
    import sys

    if "ray" not in sys.modules:
        return None
    import ray

    with _state.lock:
        if _state.is_fork:
            raise DeviceUnavailable(
                "RAY: this process was forked from one that is connected to a Ray cluster, and Ray cannot be used in "
                "it; fork before, or start processes by 'spawn'"
            )
        if not ray.is_initialized():
            return None
        if _state.current is None or _state.current.is_over:
            if _is_client():
                raise NotSupported(_NO_CLIENT)
            _state.current = Cluster(str(ray.get_runtime_context().gcs_address))
        return _state.current


def running_address(wanted: str = "") -> str:
    """Where a cluster is up that `connect` would go to; empty if it would start one here. Raises `DeviceUnavailable` if
    nobody answers at an address that is asked for, by ``wanted`` or the environment variable ``RAY_ADDRESS``."""
    wanted = wanted or os.environ.get("RAY_ADDRESS", "")
    if wanted == "local":
        return ""
    if wanted not in ("", "auto"):
        if "://" in wanted:
            raise NotSupported(_NO_CLIENT)
        _check_answers(wanted)
        return wanted
    noted = _noted_address()
    if noted:
        try:
            _check_answers(noted)
        except (DeviceUnavailable, PropertyError):
            noted = ""  # of a cluster that is no more
    if wanted == "auto" and not noted:
        raise DeviceUnavailable("RAY: no Ray cluster runs on this machine (RAY_ADDRESS=auto): ray start --head")
    return noted


def connect(wanted: str = "", init: Mapping[str, Any] | None = None) -> Cluster:
    """The connection of this process; made now if there is none.

    ``wanted``: ``host:port`` of a cluster's head, ``auto`` for the one that runs on this machine, ``local`` for a new
    one; empty: the environment variable ``RAY_ADDRESS``, or the one that runs on this machine, or a new one. ``init``:
    further arguments of `ray.init` for a new one.

    Raises `DeviceUnavailable` if nobody answers, `VersionMismatch` if the cluster has another Ray or Python, and
    `PropertyError` for an address that is none, or another one than this process is connected to.
    """
    with _state.lock:
        found = connected()
        if found is not None:
            if wanted not in ("", "auto", "local") and not _same_place(wanted, found.address):
                raise PropertyError(
                    f"RAY_ADDRESS: this process is connected to {found.address} and cannot be to {wanted!r} as well: "
                    "ray.shutdown() ends the connection"
                )
            return found
        attempt = _state.attempt
        if attempt is not None and not attempt.is_done.is_set():
            raise DeviceUnavailable(f"RAY: an earlier attempt to connect to {attempt.where} has not ended yet")
        address = running_address(wanted)
        attempt = _state.attempt = _Attempt(address, dict(init or {}))
        attempt.start()
        if not attempt.is_done.wait(_CONNECT_SECONDS):
            raise DeviceUnavailable(
                f"RAY: {attempt.where} accepts connections, but gives no answer within {_CONNECT_SECONDS:g} s: is it "
                "the head of a Ray cluster?"
            )
        _state.attempt = None
        if attempt.error is not None:
            raise _refusal(address, attempt.error) from attempt.error
        import ray

        _state.current = Cluster(str(ray.get_runtime_context().gcs_address))
        return _state.current


class _Attempt(threading.Thread):
    """One call of `ray.init`. The thread stays if that starts a cluster: Linux ends the processes of it, which are to
    end with this one, already with the thread that started them."""

    def __init__(self, address: str, init: dict[str, Any]) -> None:
        super().__init__(name="hetero connects to Ray", daemon=True)
        self.where = address or "a new cluster on this machine"
        self.error: BaseException | None = None
        self.is_done = threading.Event()
        self._starts = not address
        self._arguments: dict[str, Any] = {"address": address or "local", "log_to_driver": False}
        self._arguments["logging_level"] = logging.CRITICAL  # what goes wrong is raised
        if not address:
            self._arguments |= {"include_dashboard": False, **init}

    def run(self) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to anybody unless that is asked for
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
    """What `ray.init` raised, as an error of hetero."""
    text = " ".join(str(part) for part in (error, error.__cause__) if part is not None)
    text = " ".join(text.split())
    if "Version mismatch" in text:
        return VersionMismatch(f"RAY: {text}: install the same Ray and Python on all hosts ({INSTALL})")
    if not address:
        return DeviceUnavailable(f"RAY: no cluster could be started on this machine: {type(error).__name__}: {text}")
    remedy = ""
    if "IP address" in text or "raylet" in text.lower():
        remedy = f"; this host has to be a node of the cluster: ray start --address={address}"
    return DeviceUnavailable(f"RAY: no connection to {address}: {type(error).__name__}: {text}{remedy}")


def _check_answers(address: str) -> None:
    host, port = _host_and_port(address)
    try:
        socket.create_connection((host, port), timeout=_ANSWER_SECONDS).close()
    except OSError as error:
        raise DeviceUnavailable(
            f"RAY: nobody answers at {address} ({error}): ray start --head on that host begins a cluster, and tells "
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


def _same_place(wanted: str, address: str) -> bool:
    (host, port), (own_host, own_port) = _host_and_port(wanted), _host_and_port(address)
    if port != own_port:
        return False
    try:
        return host == own_host or not {entry[4][0] for entry in socket.getaddrinfo(host, None)}.isdisjoint(
            {own_host, "127.0.0.1", "::1"}
        )
    except OSError:
        return False


def _noted_address() -> str:
    """The address that `ray start` left on this machine; empty if there is none. Where Ray itself looks."""
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
    "RAY: this host has to be a node of the cluster, since tensors pass through its object store; an address of ray:// "
    "goes by Ray Client, which has none: ray start --address=HEAD:6379 on this host, then that address"
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
