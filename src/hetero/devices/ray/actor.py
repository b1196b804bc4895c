"""One actor, as the application sees it, and those that wait for a model."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...errors import DeviceUnavailable, HeteroError, VersionMismatch, WorkerLost
from .cluster import INSTALL, Cluster
from .reaper import reaper

__all__ = ["Actor", "Place", "Pool", "ValueLost"]

_START_SECONDS = 60.0  # for Ray to have an actor: far more than it takes where there is room for one
_RELEASE_SECONDS = 5.0  # for an actor to forget its model
_LOOK_SECONDS = 0.05  # between two looks at whether an inference is to be cancelled
_CONCURRENCY = 16  # calls of an actor whose tensors come and go at one time; its model runs as many as it has streams
_MOST_WAITING = 2  # actors without a model, in each place
_PINCH = 0.001  # of a resource that only says where

Stop = Callable[[], bool]


@dataclasses.dataclass(frozen=True)
class Place:
    """Where an actor goes: a node by Ray's id, or where a resource is (``resource``); anywhere without either.

    ``reserved``: resource -> how much of it the actor has for itself. ``runtime_env``: Ray's.
    """

    name: str
    node: str = ""
    resource: str = ""
    reserved: tuple[tuple[str, float], ...] = ()
    runtime_env: tuple[tuple[str, Any], ...] = ()

    @property
    def is_exclusive(self) -> bool:
        """Whether another actor in the same place takes something away."""
        return bool(self.reserved) or self.resource == "GPU"

    @property
    def key(self) -> str:
        return repr((self.node, self.resource, self.runtime_env))

    def options(self) -> dict[str, Any]:
        """Of Ray's ``options()``."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        options: dict[str, Any] = {"num_cpus": 0}
        wanted = dict(self.reserved)
        if self.resource:
            wanted.setdefault(self.resource, 1 if self.resource == "GPU" else _PINCH)
        for name, ray_name in (("CPU", "num_cpus"), ("GPU", "num_gpus"), ("memory", "memory")):
            if name in wanted:
                options[ray_name] = wanted.pop(name)
        if wanted:
            options["resources"] = wanted
        if self.node:
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(self.node, soft=False)
        if self.runtime_env:
            options["runtime_env"] = dict(self.runtime_env)
        return options


class Actor:
    """A process of a node that compiles and runs one model at a time. Thread-safe."""

    def __init__(self, place: Place) -> None:
        """Ask Ray for it; it is there when `greet` returns. Nothing is raised before that."""
        self.place = place
        self.name = place.name
        self.node = ""
        self.process = 0
        self.host = ""
        self.is_lost = False
        self._handle = _actor_class().options(**place.options()).remote()
        self._greeting = self._control("versions").remote()
        self._control("prepare").remote()
        self._run: Any = None
        self._lock = threading.Lock()
        self._last = 0
        self._under_way = 0

    def greet(self, timeout: float | None = None) -> None:
        """Wait until it is there, and compare versions. Raises `DeviceUnavailable`, `VersionMismatch`, `WorkerLost`."""
        import ray

        limit = timeout or _START_SECONDS
        try:
            found = ray.get(self._greeting, timeout=limit)
        except ray.exceptions.GetTimeoutError:
            self.kill()
            raise DeviceUnavailable(
                f"{self.name}: Ray has started no actor within {limit:g} s ({_wants(self.place)}): `ray status` tells "
                "what it waits for"
            ) from None
        except ray.exceptions.RuntimeEnvSetupError as error:
            raise DeviceUnavailable(
                f"{self.name}: Ray cannot set up the runtime environment: {_text(error)}"
            ) from error
        except ray.exceptions.ActorUnschedulableError as error:
            raise DeviceUnavailable(f"{self.name}: no actor can be there: {_text(error)}") from error
        except ray.exceptions.RayError as error:
            raise self.lost("ended while it started", error) from error
        self.node, self.process, self.host = found["node"], found["process"], found["host"]
        _compare(self.name, found)

    def ask(self, method: str, *arguments: Any, timeout: float | None = None) -> Any:
        """Call a method and wait. Raises `WorkerLost` if it ends meanwhile, or does not answer within ``timeout``
        seconds: then it is killed."""
        import ray

        call = getattr(self._handle, method)
        try:
            return ray.get(call.remote(*arguments), timeout=timeout)
        except ray.exceptions.GetTimeoutError:
            self.kill()
            raise self.lost(f"did not answer within {timeout:g} s, and was killed") from None
        except ray.exceptions.RayTaskError as error:
            raise HeteroError(f"{self.name}: {method} failed on {self.where}: {_text(error)}") from error
        except ray.exceptions.RayError as error:
            raise self.lost("ended", error) from error

    def expect_results(self, count: int) -> None:
        """How many results `run` gives. Before it."""
        self._run = self._handle.run.options(num_returns=count + 1)

    def run(
        self, arguments: list[Any], timeout: float | None, streams: int, stop: Stop, wanted: list[int]
    ) -> tuple[Any, list[Any], list[Any]]:
        """One inference: the answer, the results at the positions ``wanted``, and references to all results.

        ``timeout``: seconds for each inference that it may have to wait for, and its own. As long as ``stop()`` says
        so, the actor is asked to cancel it. Raises `WorkerLost`.
        """
        import ray

        with self._lock:
            self._last += 1
            number = self._last
            turns = 1 + self._under_way // streams
            self._under_way += 1
        end = None if timeout is None else time.monotonic() + timeout * turns
        try:
            answer, *references = self._run.remote(number, *arguments)
            needed = [answer, *(references[position] for position in wanted)]
            while True:
                wait = _LOOK_SECONDS if end is None else min(_LOOK_SECONDS, max(0.0, end - time.monotonic()))
                try:
                    given = ray.get(needed, timeout=wait)
                    break
                except ray.exceptions.GetTimeoutError:
                    if stop():
                        self._control("cancel").remote(number)
                    if end is not None and time.monotonic() >= end:
                        self.kill()
                        raise self.lost(f"did not answer within {timeout:g} s, and was killed") from None
        except ray.exceptions.ObjectLostError as error:
            raise ValueLost(f"{self.name}: a value is lost: {_text(error)}") from error
        except ray.exceptions.RayTaskError as error:
            cause = error.cause if isinstance(error.cause, ray.exceptions.ObjectLostError) else None
            if cause is not None:
                raise ValueLost(f"{self.name}: a value is lost: {_text(cause)}") from error
            raise HeteroError(f"{self.name}: an inference failed on {self.where}: {_text(error)}") from error
        except ray.exceptions.RayError as error:
            raise self.lost("ended", error) from error
        finally:
            with self._lock:
                self._under_way -= 1
        return given[0], given[1:], references

    @property
    def where(self) -> str:
        return f"node {self.node[:8]}, process {self.process} of {self.host or 'a host'}" if self.node else "a node"

    def lost(self, what: str, error: BaseException | None = None) -> WorkerLost:
        """Note that it is of no use any longer; the error that says so."""
        self.kill()
        why = "" if error is None else f": {_text(error)}"
        return WorkerLost(f"{self.name}: its actor ({self.where}) {what}{why}")

    def kill(self) -> None:
        """End it, whatever it does. Whoever waits for it gets `WorkerLost`."""
        import ray

        self.is_lost = True
        if ray.is_initialized():  # or Ray would start a cluster for that
            with contextlib.suppress(ray.exceptions.RayError, ValueError):  # it has ended, or the connection has
                ray.kill(self._handle)

    def release(self) -> bool:
        """Have it forget its model; whether it did."""
        import ray

        if self.is_lost or not ray.is_initialized():
            return False
        try:
            ray.get(self._handle.release.remote(), timeout=_RELEASE_SECONDS)
        except (ray.exceptions.RayError, ConnectionError):
            return False
        return True

    def _control(self, method: str) -> Any:
        return getattr(self._handle, method).options(concurrency_group="control")


class ValueLost(WorkerLost):
    """An argument or a result of an inference is no more; its actor may be well."""


class Pool:
    """Actors without a model, at most two in each place: one for a model that comes or loses its actor, so that it need
    not wait for Ray to start a process, and one whose model has gone, so that models that come and go start no process
    each time. Thread-safe. They end with it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._lock = threading.Lock()
        self._waiting: dict[str, list[Actor]] = {}
        self.later = reaper.get().later
        # Actors without a call under way end when nobody has a handle of them.
        weakref.finalize(self, self.later, self._waiting.clear).atexit = False

    def actor(self, place: Place, timeout: float | None) -> Actor:
        """One that is there, with this hetero. Raises as `Actor.greet` does."""
        with self._lock:
            spare = [] if place.is_exclusive else self._waiting.setdefault(place.key, [])
            waiting = spare.pop() if spare else None
        if waiting is not None and not waiting.is_lost:
            waiting.name = place.name
            try:
                waiting.greet(timeout)
                return waiting
            except WorkerLost:
                pass  # it was killed while it waited
        actor = Actor(place)
        try:
            actor.greet(timeout)
        except BaseException:
            actor.kill()
            raise
        return actor

    def prepare(self, place: Place) -> None:
        """Have one wait there, unless it does; returns at once."""
        if place.is_exclusive:
            return
        with self._lock:
            spare = self._waiting.setdefault(place.key, [])
            if not spare:
                spare.append(Actor(place))

    def give_back(self, actor: Actor) -> None:
        """An actor whose model has gone."""
        keep = not actor.place.is_exclusive and not actor.is_lost and actor.release()
        with self._lock:
            spare = self._waiting.setdefault(actor.place.key, [])
            keep = keep and len(spare) < _MOST_WAITING
            if keep:
                spare.append(actor)
        if not keep:
            actor.kill()


@functools.cache
def _actor_class() -> Any:
    """With no restarts by Ray: a new process would have no model, and `Pool` has one that is ready."""
    import ray

    from . import host

    ray.cloudpickle.register_pickle_by_value(host)
    options = {"max_concurrency": _CONCURRENCY, "concurrency_groups": {"control": 1}, "max_restarts": 0}
    return ray.remote(**options)(host.HeteroHost)


def _compare(name: str, found: Mapping[str, Any]) -> None:
    """Raise unless a node has what this process has."""
    from ...base.version import __version__

    where = f"node {found['node'][:8]} ({found['host']})"
    if found["hetero"] is None:
        raise DeviceUnavailable(
            f"{name}: {where} has no hetero ({found['trouble']}): {INSTALL} on that host, in the environment of Ray"
        )
    python = ".".join(map(str, sys.version_info[:2]))
    for what, theirs, mine in (
        ("hetero", found["hetero"], __version__),
        ("Python", found["python"], python),
        ("NumPy", str(found["numpy"]).partition(".")[0], np.__version__.partition(".")[0]),
    ):
        if theirs != mine:
            raise VersionMismatch(
                f"{name}: {where} has {what} {theirs}, and this process {mine}: install the same on both"
            )


def _wants(place: Place) -> str:
    wanted = [f"{name}: {amount:g}" for name, amount in place.reserved]
    if place.resource:
        wanted.append(f"the resource {place.resource}")
    if place.node:
        wanted.append(f"node {place.node[:8]}")
    return ", ".join(wanted) or "anywhere"


def _text(error: BaseException) -> str:
    """What Ray says, in a line."""
    lines = [line.strip() for line in str(error).splitlines()]
    return " ".join(line for line in lines if line)[:1000] or type(error).__name__
