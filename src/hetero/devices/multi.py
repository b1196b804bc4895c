"""The device MULTI: compiles the whole model on each device of a list, and runs each request on the least busy one.

``MULTI:CPU,ORT`` increases throughput: requests are distributed over the devices in proportion to the number of
requests that each runs at a time. If a request fails on one device and succeeds on another, the first device is no
longer used, and a warning is issued.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..assign.request import query_all
from ..base.formatting import counted
from ..base.warn import CallSite, warn
from ..compiling.device_list import DeviceListPlugin, optimal_requests, shared_property
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

# A device seems to hang while a run takes longer than this, in s, and this many times its longest run so far.
_HANG_SECONDS, _HANG_FACTOR = 1.0, 10


class MultiPlugin(DeviceListPlugin):
    """Distributes requests over several devices, each of which has the whole model."""

    name = "MULTI"

    def query_model(self, model: Model, config: Mapping[str, Any]) -> Support:
        """The answer of the device that supports the most nodes."""
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
                support = query(device, model)
                refused = support.reasons
                if refused:
                    node, reason = next(iter(refused.items()))
                    first = f"first {model.key_of(node)!r}: {reason}"
                    raise UnsupportedModel(
                        f"{device.name} does not support {counted(len(refused), 'node')} of {model.name!r}, {first}",
                        {model.key_of(node): {device.name: reason} for node, reason in refused.items()},
                    )
                limit = device.plugin.memory_bytes(device.name)
                if limit is not None:
                    from ..assign.within_memory import check_whole

                    check_whole(model, device.name, int(limit), support.units)
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
            warn(f"MULTI does not use a device: {failure}")
        ports = (model.inputs, model.outputs)
        return MultiCompiledModel(ports, model.name, compiled, settings, self.executors)

    def check_import(self, reader: PayloadReader, config: Mapping[str, Any]) -> None:
        reader.require_version("payload", _PAYLOAD_VERSION)
        self.check_parts(reader, config)

    def import_payload(self, reader: PayloadReader, config: Mapping[str, Any]) -> MultiCompiledModel:
        compiled = self.import_parts(reader, config)
        names = [[port.name for port in (*reader.inputs, *reader.outputs)] for reader in (reader, *reader.parts)]
        if not compiled or any(part_names != names[0] for part_names in names):
            raise Corrupt(f"{reader.label}: the parts for {reader.device} do not have the ports of the whole model")
        settings = self.full_config(self.own(config))
        return MultiCompiledModel((reader.inputs, reader.outputs), reader.name, compiled, settings, self.executors)


class MultiCompiledModel(CompiledModel):
    """One model compiled on several devices."""

    checks_results = False  # each device's results are checked

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

    def get_property(self, name: str) -> Any:
        """Also the properties that were passed on to the devices, if they agree."""
        try:
            return super().get_property(name)
        except PropertyError as error:
            return shared_property(self.compiled, name, error)

    def export_payload(self, writer: PayloadWriter) -> None:
        writer.version["payload"] = _PAYLOAD_VERSION
        for compiled in self.compiled:
            writer.add_part(compiled)

    def create_runner(self) -> Runner:
        timed = bool(self._properties["PERF_COUNT"])
        return MultiRunner([entry.new_runner() for entry in self.compiled], self._balance, timed)


class _Balance:
    """How busy each device is, and which devices are excluded. Shared by all requests of a model."""

    def __init__(self, devices: Sequence[str], streams: Sequence[int]) -> None:
        self.devices = tuple(devices)
        self._streams = tuple(max(1, count) for count in streams)
        self._under_way: list[list[float]] = [[] for _ in devices]  # start time of each run
        self._longest = [0.0] * len(devices)  # duration of the longest finished run, in s
        self._is_excluded = [False] * len(devices)
        self.compiled_at = CallSite.current()
        self._lock = threading.Lock()

    def begin_run(self, failed: Mapping[int, Exception]) -> tuple[int, float] | None:
        """The number of the least busy device and the start time, for `end_run`; None if no device is left.

        Ignores excluded devices and those in ``failed``. Devices that seem to hang come last; ties go to the first.
        """
        with self._lock:
            now = time.monotonic()
            candidates = [
                (self._hangs(number, now), len(under_way) / streams, number)
                for number, (under_way, streams) in enumerate(zip(self._under_way, self._streams, strict=True))
                if not self._is_excluded[number] and number not in failed
            ]
            if not candidates:
                return None
            _, _, number = min(candidates)
            self._under_way[number].append(now)
            return number, now

    def _hangs(self, number: int, now: float) -> bool:
        """Whether a run of the device takes far longer than all before."""
        started = self._under_way[number]
        return bool(started) and now - started[0] > max(_HANG_SECONDS, _HANG_FACTOR * self._longest[number])

    def end_run(self, number: int, begun: float) -> None:
        with self._lock:
            self._under_way[number].remove(begun)
            self._longest[number] = max(self._longest[number], time.monotonic() - begun)

    def exclude(self, number: int) -> bool:
        """Stop using a device. Returns False if it was already excluded."""
        with self._lock:
            was_in, self._is_excluded[number] = not self._is_excluded[number], True
            return was_in


class MultiRunner:
    """One request, on the least busy device; see `hetero.plugin.request.Runner`."""

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
        while (entered := balance.begin_run(failed)) is not None:
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
                balance.end_run(number, begun)
            if self._timed:
                thread = threading.current_thread().name
                self._span = Span(0, balance.devices[number], thread, begin, time.perf_counter_ns())
            for other, failure in failed.items():  # caused by the device, because another one succeeded
                # A lack of memory may be temporary.
                if not isinstance(failure, MemoryError) and balance.exclude(other):
                    warn(
                        f"MULTI no longer uses {balance.devices[other]}, because a request failed there and succeeded "
                        f"on {balance.devices[number]}: {type(failure).__name__}: {failure}",
                        otherwise=balance.compiled_at,
                    )
            return results
        first, failure = next(iter(failed.items()))
        if isinstance(failure, HeteroError):
            failure.add_note(f"on {balance.devices[first]}, and also on every other device of MULTI")
            raise failure
        raise inference_error(
            f"every device of MULTI failed; {balance.devices[first]}: {type(failure).__name__}: {failure}",
            failure,
        ) from failure

    def profile(self) -> Sequence[ProfileRow]:
        """The counters of the device that ran the last request."""
        rows = self._last.profile()
        if isinstance(rows, Profile) or self._span is None or not rows:
            return rows
        return Profile(rows, [self._span])


def create_plugin() -> MultiPlugin:
    return MultiPlugin()
