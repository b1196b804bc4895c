"""Actors as the application sees them, and a pool of actors without a model."""

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

_START_SECONDS = 60.0  # time limit for Ray to start an actor; far more than it needs if the resources are free
_RELEASE_SECONDS = 5.0  # time limit for an actor to release its model
_POLL_SECONDS = 0.05  # interval of checks for cancellation
_CONCURRENCY = 16  # concurrent calls per actor, which overlap transfers; its model runs one inference per stream
_MAX_IDLE = 2  # actors without a model in each place
_MIN_AMOUNT = 0.001  # amount of a resource that only selects the node

Stop = Callable[[], bool]


@dataclasses.dataclass(frozen=True)
class Place:
    """The place of an actor: a node (Ray's id), or any node with a resource; without either, any node.

    ``reserved``: resource -> amount that the actor reserves. ``runtime_env``: Ray's runtime environment.
    """

    name: str
    node: str = ""
    resource: str = ""
    reserved: tuple[tuple[str, float], ...] = ()
    runtime_env: tuple[tuple[str, Any], ...] = ()

    @property
    def is_exclusive(self) -> bool:
        """Whether an idle actor in the same place would use up resources."""
        return bool(self.reserved) or self.resource == "GPU"

    @property
    def key(self) -> str:
        return repr((self.node, self.resource, self.runtime_env))

    def options(self) -> dict[str, Any]:
        """The arguments for Ray's ``options()``."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        options: dict[str, Any] = {"num_cpus": 0}
        amounts = dict(self.reserved)
        if self.resource:
            amounts.setdefault(self.resource, 1 if self.resource == "GPU" else _MIN_AMOUNT)
        for name, ray_name in (("CPU", "num_cpus"), ("GPU", "num_gpus"), ("memory", "memory")):
            if name in amounts:
                options[ray_name] = amounts.pop(name)
        if amounts:
            options["resources"] = amounts
        if self.node:
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(self.node, soft=False)
        if self.runtime_env:
            options["runtime_env"] = dict(self.runtime_env)
        return options


class Actor:
    """A process on a node that compiles and runs one model at a time. Thread-safe."""

    def __init__(self, place: Place) -> None:
        """Request the actor from Ray, without waiting. `greet` waits for it and reports errors."""
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
        """Wait for the actor and compare versions. Raises `DeviceUnavailable`, `VersionMismatch` or `WorkerLost`."""
        import ray

        limit = timeout or _START_SECONDS
        try:
            versions = ray.get(self._greeting, timeout=limit)
        except ray.exceptions.GetTimeoutError:
            self.kill()
            raise DeviceUnavailable(
                f"{self.name}: Ray did not start an actor within {limit:g} s ({_description(self.place)}); "
                "`ray status` shows the reason"
            ) from None
        except ray.exceptions.RuntimeEnvSetupError as error:
            raise DeviceUnavailable(
                f"{self.name}: Ray cannot set up the runtime environment: {_text(error)}"
            ) from error
        except ray.exceptions.ActorUnschedulableError as error:
            raise DeviceUnavailable(f"{self.name}: Ray cannot start an actor: {_text(error)}") from error
        except ray.exceptions.RayError as error:
            raise self.lost("exited during its start", error) from error
        except SystemExit as error:  # Ray raises it in threads that wait while it shuts down; nothing is left to kill
            self.is_lost = True
            raise WorkerLost(f"{self.name}: its actor was not started, because Ray shuts down") from error
        self.node, self.process, self.host = versions["node"], versions["process"], versions["host"]
        _compare(self.name, versions)

    def ask(self, method: str, *arguments: Any, timeout: float | None = None) -> Any:
        """Call a method and wait for its result. Raises `WorkerLost` if the actor exits. If it does not answer within
        ``timeout`` seconds, kills it and raises `WorkerLost`."""
        import ray

        call = getattr(self._handle, method)
        try:
            return ray.get(call.remote(*arguments), timeout=timeout)
        except ray.exceptions.GetTimeoutError:
            self.kill()
            raise self.lost(f"did not answer within {timeout:g} s and was killed") from None
        except ray.exceptions.RayTaskError as error:
            raise HeteroError(f"{self.name}: {method} failed on {self.where}: {_text(error)}") from error
        except ray.exceptions.RayError as error:
            raise self.lost("exited", error) from error

    def expect_results(self, count: int) -> None:
        """Set the number of results of `run`. Must be called first."""
        self._run = self._handle.run.options(num_returns=count + 1)

    def run(
        self, arguments: list[Any], timeout: float | None, streams: int, stop: Stop, fetched: list[int]
    ) -> tuple[Any, list[Any], list[Any]]:
        """Run an inference. Returns the answer, the results at the positions ``fetched``, and all references.

        ``timeout``: in seconds, for this inference and for each inference that it must wait for. While ``stop()``
        returns True, the actor is asked to cancel the inference. Raises `WorkerLost`.
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
            awaited = [answer, *(references[position] for position in fetched)]
            while True:
                wait = _POLL_SECONDS if end is None else min(_POLL_SECONDS, max(0.0, end - time.monotonic()))
                try:
                    values = ray.get(awaited, timeout=wait)
                    break
                except ray.exceptions.GetTimeoutError:
                    if stop():
                        self._control("cancel").remote(number)
                    if end is not None and time.monotonic() >= end:
                        self.kill()
                        raise self.lost(f"did not answer within {timeout:g} s and was killed") from None
        except ray.exceptions.ObjectLostError as error:
            raise ValueLost(f"{self.name}: a value is lost: {_text(error)}") from error
        except ray.exceptions.RayTaskError as error:
            cause = error.cause if isinstance(error.cause, ray.exceptions.ObjectLostError) else None
            if cause is not None:
                raise ValueLost(f"{self.name}: a value is lost: {_text(cause)}") from error
            raise HeteroError(f"{self.name}: an inference failed on {self.where}: {_text(error)}") from error
        except ray.exceptions.RayError as error:
            raise self.lost("exited", error) from error
        finally:
            with self._lock:
                self._under_way -= 1
        return values[0], values[1:], references

    @property
    def where(self) -> str:
        return f"node {self.node[:8]}, process {self.process} of {self.host or 'a host'}" if self.node else "a node"

    def lost(self, what: str, error: BaseException | None = None) -> WorkerLost:
        """Kill the actor. Returns the error for its caller."""
        self.kill()
        why = "" if error is None else f": {_text(error)}"
        return WorkerLost(f"{self.name}: its actor ({self.where}) {what}{why}")

    def kill(self) -> None:
        """Kill the actor. Running calls raise `WorkerLost`."""
        import ray

        self.is_lost = True
        if ray.is_initialized():  # otherwise ray.kill would start a cluster
            with contextlib.suppress(
                ray.exceptions.RayError, ValueError
            ):  # the actor has exited, or the connection was closed
                ray.kill(self._handle)

    def release(self) -> bool:
        """Release the model. Returns whether the actor confirmed this."""
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
    """An argument or a result of an inference is lost, although the actor may be alive."""


class Pool:
    """Idle actors without a model, at most two in each place. Thread-safe. The actors exit with the pool.

    A new model, or a model that lost its actor, takes one and need not wait for Ray to start a process. Released actors
    are kept for the next model."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._lock = threading.Lock()
        self._idle: dict[str, list[Actor]] = {}
        self.later = reaper.get().later
        # An actor without running calls exits when its last handle is deleted.
        weakref.finalize(self, self.later, self._idle.clear).atexit = False

    def actor(self, place: Place, timeout: float | None) -> Actor:
        """A started actor with the same versions. Raises the errors of `Actor.greet`."""
        with self._lock:
            spare = [] if place.is_exclusive else self._idle.setdefault(place.key, [])
            idle = spare.pop() if spare else None
        if idle is not None and not idle.is_lost:
            idle.name = place.name
            try:
                idle.greet(timeout)
                return idle
            except WorkerLost:
                pass  # it was killed while it was idle
        actor = Actor(place)
        try:
            actor.greet(timeout)
        except BaseException:
            actor.kill()
            raise
        return actor

    def prepare(self, place: Place) -> None:
        """Start an idle actor in a place that has none. Does not wait."""
        if place.is_exclusive:
            return
        with self._lock:
            spare = self._idle.setdefault(place.key, [])
            if not spare:
                spare.append(Actor(place))

    def give_back(self, actor: Actor) -> None:
        """Return an actor whose model is no longer used."""
        keep = not actor.place.is_exclusive and not actor.is_lost and actor.release()
        with self._lock:
            spare = self._idle.setdefault(actor.place.key, [])
            keep = keep and len(spare) < _MAX_IDLE
            if keep:
                spare.append(actor)
        if not keep:
            actor.kill()


@functools.cache
def _actor_class() -> Any:
    """The actor's class. Ray does not restart actors: a new process would have no model, and `Pool` has idle ones."""
    import ray

    from . import host

    ray.cloudpickle.register_pickle_by_value(host)
    options = {"max_concurrency": _CONCURRENCY, "concurrency_groups": {"control": 1}, "max_restarts": 0}
    return ray.remote(**options)(host.HeteroHost)


def _compare(name: str, versions: Mapping[str, Any]) -> None:
    """Raise an error unless a node has the versions of this process."""
    from ...base.version import __version__

    where = f"node {versions['node'][:8]} ({versions['host']})"
    if versions["hetero"] is None:
        raise DeviceUnavailable(
            f"{name}: {where} does not have hetero ({versions['problem']}): {INSTALL} on that host, in the environment "
            "of Ray"
        )
    python = ".".join(map(str, sys.version_info[:2]))
    for what, theirs, mine in (
        ("hetero", versions["hetero"], __version__),
        ("Python", versions["python"], python),
        ("NumPy", str(versions["numpy"]).partition(".")[0], np.__version__.partition(".")[0]),
    ):
        if theirs != mine:
            raise VersionMismatch(
                f"{name}: {where} has {what} {theirs}, but this process has {mine}: install the same version on both"
            )


def _description(place: Place) -> str:
    parts = [f"{name}: {amount:g}" for name, amount in place.reserved]
    if place.resource:
        parts.append(f"the resource {place.resource}")
    if place.node:
        parts.append(f"node {place.node[:8]}")
    return ", ".join(parts) or "any node"


def _text(error: BaseException) -> str:
    """The message of a Ray error on one line."""
    lines = [line.strip() for line in str(error).splitlines()]
    return " ".join(line for line in lines if line)[:1000] or type(error).__name__
