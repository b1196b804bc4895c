"""The device MULTI: the whole model on each device of a list, and each request on the one that is least busy.

``MULTI:CPU,ORT`` is for throughput: requests in flight are spread over the devices, in proportion to how many each runs
at one time. A device whose runs fail where another's succeed is taken out, with one warning, and the request that found
it out is run on the other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..assign.request import query_all
from ..base.warn import warn
from ..compiling.device_list import DeviceListPlugin, optimal_requests
from ..compiling.on_device import compile_on
from ..errors import (
    Cancelled,
    Corrupt,
    HeteroError,
    PropertyError,
    UnsupportedModel,
    inference_error,
    raise_out_of_memory,
)
from ..plugin.caller import query
from ..plugin.cancellation import Cancellation
from ..plugin.contract import CompiledModel, Port, RemoteContext, Runner, Support
from ..plugin.executor import ExecutorManager
from ..plugin.profile import Profile, ProfileRow, Span

if TYPE_CHECKING:
    from ..artifact.payload import PayloadReader, PayloadWriter
    from ..model.model import Model

__all__ = ["MultiCompiledModel", "MultiPlugin", "create_plugin"]

_PAYLOAD_VERSION = "1"

# A device is left alone while a run of it takes longer than this, and than so many times the longest one before.
_HANG_SECONDS, _HANG_TIMES = 1.0, 10


class MultiPlugin(DeviceListPlugin):
    """Spreads requests over several devices, each of which has the whole model."""

    name = "MULTI"

    def query_model(self, model: Model, config: Mapping[str, Any]) -> Support:
        """A node is taken by the device that takes most of the model's."""
        settings = self.full_config(self.own(config))
        devices, _ = self.available(config, settings)
        answers = query_all(self.name, devices, model, settings)
        return max(answers, key=lambda answer: int(answer.mask.sum()))

    def compile_model(
        self, model: Model, config: Mapping[str, Any], context: RemoteContext | None = None
    ) -> MultiCompiledModel:
        """Compile on each device that supports the whole model and has memory for it. Each other device gives a
        warning, or its error if ``STRICT`` is set or no device remains."""
        settings = self.full_config(self.own(config))
        compiled: list[CompiledModel] = []
        failures: list[HeteroError] = []
        for device in self.available(config, settings)[0]:
            try:
                refused = query(device, model).reasons
                if refused:
                    node, reason = next(iter(refused.items()))
                    first = f"the first {model.key_of(node)!r}: {reason}"
                    raise UnsupportedModel(
                        f"{device.name} supports all of {model.name!r} but {len(refused)} nodes, {first}",
                        {model.key_of(node): {device.name: reason} for node, reason in refused.items()},
                    )
                limit = device.plugin.memory_bytes(device.name)
                if limit is not None:
                    from ..assign.within_memory import check_whole

                    check_whole(model, device.name, int(limit))
                compiled.append(compile_on(device, model))
            except PropertyError:
                raise
            except HeteroError as error:
                raise_out_of_memory(error)
                if settings["STRICT"]:
                    raise
                failures.append(error)
        if not compiled:
            raise failures[0]
        for failure in failures:
            warn(f"MULTI goes without a device: {failure}")
        ports = (model.inputs, model.outputs)
        return MultiCompiledModel(ports, model.name, compiled, settings, self.executors)

    def check_import(self, reader: PayloadReader, config: Mapping[str, Any]) -> None:
        reader.require_version("payload", _PAYLOAD_VERSION)
        self.check_parts(reader, config)

    def import_payload(self, reader: PayloadReader, config: Mapping[str, Any]) -> MultiCompiledModel:
        compiled = self.import_parts(reader, config)
        names = [[port.name for port in (*reader.inputs, *reader.outputs)] for reader in (reader, *reader.parts)]
        if not compiled or any(found != names[0] for found in names):
            raise Corrupt(f"{reader.label}: the parts for {reader.device} have not all the ports of the whole")
        settings = self.full_config(self.own(config))
        return MultiCompiledModel((reader.inputs, reader.outputs), reader.name, compiled, settings, self.executors)


class MultiCompiledModel(CompiledModel):
    """One model compiled on several devices."""

    checks_results = False  # those of each device are

    def __init__(
        self,
        ports: tuple[Sequence[Port], Sequence[Port]],
        name: str,
        compiled: Sequence[CompiledModel],
        settings: Mapping[str, Any],
        executors: ExecutorManager,
    ) -> None:
        streams = list(map(optimal_requests, compiled))
        super().__init__(
            f"MULTI:{','.join(entry.device for entry in compiled)}",
            *ports,
            {
                **settings,
                "EXECUTION_DEVICES": tuple(entry.device for entry in compiled),
                "NUM_STREAMS": sum(streams),
                "NETWORK_NAME": name,
            },
        )
        self.lease_executors(executors)
        self.compiled = tuple(compiled)
        self._balance = _Balance([entry.device for entry in compiled], streams)

    def export_payload(self, writer: PayloadWriter) -> None:
        writer.version["payload"] = _PAYLOAD_VERSION
        for compiled in self.compiled:
            writer.add_part(compiled)

    def create_runner(self) -> Runner:
        timed = bool(self._properties["PERF_COUNT"])
        return MultiRunner([entry.new_runner() for entry in self.compiled], self._balance, timed)


class _Balance:
    """Which devices are how busy, and which are out; shared by all requests of a model."""

    def __init__(self, devices: Sequence[str], streams: Sequence[int]) -> None:
        self.devices = tuple(devices)
        self._streams = tuple(max(1, count) for count in streams)
        self._under_way: list[list[float]] = [[] for _ in devices]  # when each run began
        self._longest = [0.0] * len(devices)  # run that came to its end
        self._is_out = [False] * len(devices)
        self._lock = threading.Lock()

    def enter(self, failed: Mapping[int, Exception]) -> tuple[int, float] | None:
        """The least busy device that is not out and not among ``failed``, and what `leave` takes; of those that are
        equal, the first. One that seems to hang is the last resort."""
        with self._lock:
            now = time.monotonic()
            candidates = [
                (self._hangs(number, now), len(under_way) / streams, number)
                for number, (under_way, streams) in enumerate(zip(self._under_way, self._streams, strict=True))
                if not self._is_out[number] and number not in failed
            ]
            if not candidates:
                return None
            _, _, number = min(candidates)
            self._under_way[number].append(now)
            return number, now

    def _hangs(self, number: int, now: float) -> bool:
        """Whether a run of the device takes far longer than any did before."""
        begun = self._under_way[number]
        return bool(begun) and now - begun[0] > max(_HANG_SECONDS, _HANG_TIMES * self._longest[number])

    def leave(self, number: int, begun: float) -> None:
        with self._lock:
            self._under_way[number].remove(begun)
            self._longest[number] = max(self._longest[number], time.monotonic() - begun)

    def take_out(self, number: int) -> bool:
        """False if it was out already."""
        with self._lock:
            was_in, self._is_out[number] = not self._is_out[number], True
            return was_in


class MultiRunner:
    """One request, on whichever device is free; see `hetero.plugin.request.Runner`."""

    def __init__(self, runners: Sequence[Runner], balance: _Balance, timed: bool = False) -> None:
        self._runners = runners
        self._timed = timed
        self._span: Span | None = None
        self._balance = balance
        self._last = runners[0]
        flags = [getattr(runner, "cancellation", None) for runner in runners]
        self.cancellation = Cancellation(flag for flag in flags if flag is not None)

    def run(self, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        balance = self._balance
        failed: dict[int, Exception] = {}
        while (entered := balance.enter(failed)) is not None:
            number, begun = entered
            self._last = self._runners[number]
            begin = time.perf_counter_ns() if self._timed else 0
            try:
                results = self._last.run(inputs)
            except Cancelled:
                raise
            except Exception as error:
                failed[number] = error
                self.cancellation.check()
                continue
            finally:
                balance.leave(number, begun)
            if self._timed:
                thread = threading.current_thread().name
                self._span = Span(0, balance.devices[number], thread, begin, time.perf_counter_ns())
            for other, failure in failed.items():  # it was the device, not the model or the inputs
                # A lack of memory passes.
                if not isinstance(failure, MemoryError) and balance.take_out(other):
                    warn(
                        f"{balance.devices[other]} is taken out of MULTI: {balance.devices[number]} can do what failed "
                        f"there: {type(failure).__name__}: {failure}"
                    )
            return results
        first, failure = next(iter(failed.items()))
        if isinstance(failure, HeteroError):
            failure.add_note(f"on {balance.devices[first]}, and on each other device of MULTI")
            raise failure
        raise inference_error(
            f"{balance.devices[first]} failed, and each other device of MULTI: {type(failure).__name__}: {failure}",
            failure,
        ) from failure

    def profile(self) -> Sequence[ProfileRow]:
        """Counters of the device that ran last."""
        rows = self._last.profile()
        if isinstance(rows, Profile) or self._span is None or not rows:
            return rows
        return Profile(rows, [self._span])


def create_plugin() -> MultiPlugin:
    return MultiPlugin()
