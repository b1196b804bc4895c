"""The device AUTO: starts on the CPU, compiles for the other devices in the background, and keeps what is fastest.

``AUTO:ORT,CPU`` compares each device of its list alone, and a split by cost. Requests run on the CPU until another
candidate is compiled. Then the next requests take turns between the candidates, and the fastest one stays. If a
candidate fails, to compile or to run, requests run on the device that AUTO started with, and a warning is issued. If
that device fails, another compiled candidate takes its place. The first request on each candidate also runs on the
device that AUTO started with, and a candidate with other results is not used.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..assign.assigning import resolve_model
from ..assign.request import Request, with_device_types
from ..base.device_string import CONTROL_FLOW, LIST_DEVICES, parse_device, parse_device_list
from ..base.difference import difference
from ..base.formatting import duration
from ..base.log import tell
from ..base.properties import Property, up_to, without
from ..base.warn import CallSite, warn
from ..compiling.compile import compile_model
from ..compiling.device_list import COSTS, DeviceListPlugin, optimal_requests, shared_property
from ..compiling.requests import resolve_request
from ..errors import (
    Cancelled,
    DeviceUnavailable,
    HeteroError,
    NotSupported,
    PropertyError,
    UnknownDevice,
    UnsupportedModel,
    WorkerLost,
    did_you_mean,
    raise_out_of_memory,
)
from ..plan import Plan, make_plan
from ..plugin.cancellation import Cancellation
from ..plugin.contract import CompiledModel, Port, RemoteContext, Runner, Support
from ..plugin.executor import ExecutorManager, StreamExecutor
from ..plugin.profile import ProfileRow

if TYPE_CHECKING:
    from ..model.model import Model

__all__ = ["AutoCandidate", "AutoChoice", "AutoCompiledModel", "AutoPlugin", "create_plugin"]

_MOST_TRIALS = 1000
_TRIAL_RUNS = Property(
    "TRIAL_RUNS",
    int,
    5,
    accepts=up_to(_MOST_TRIALS),
    doc=f"0 to {_MOST_TRIALS}: requests that AUTO times on each candidate; 0 = AUTO decides by predicted latency",
)
_CHOICE = Property("AUTO_CHOICE", str, "", writable=False, doc="the device that AUTO chose, and why")

# A candidate whose prediction is within this factor of the best is compiled and timed. Without measured costs, ORT and
# OPENVINO are predicted to be as fast as the CPU, and ResNet-18 took 2.2 times as long on one as on another.
_DOUBT = 4.0
# The background waits until the first inference has ended, so that the two do not share the processors. If no inference
# begins within _HEAD_START s, or _HEAD_START_FACTOR times as long as the start device compiled, it does not wait.
_HEAD_START = 0.25
_HEAD_START_FACTOR = 5.0
# max |difference| / max |result| up to which the results of two devices agree: for float32 and wider types, and for
# narrow ones, 16 units of their precision. An integer of 8 bits, which may be quantized, can be one step off.
_AGREEING = 1e-3
_AGREEING_OF = {"float16": 2.0**-6, "bfloat16": 2.0**-3, "float8": 1.0}
# Requests with other shapes than those under trial, after which the trial starts again with their shapes.
_MOST_OTHER_SHAPES = 20
# CPU comes first; TEMPLATE is a reference; RAY needs a cluster; CONTROL_FLOW runs over others
_NOT_BY_DEFAULT = ("CPU", "TEMPLATE", "RAY", CONTROL_FLOW)


class AutoPlugin(DeviceListPlugin):
    """Chooses among the devices of its list, and splits over them."""

    name = "AUTO"
    properties = (*without(DeviceListPlugin.properties, "CACHE_DIR"), COSTS, _TRIAL_RUNS, _CHOICE)
    not_forwarded = DeviceListPlugin.not_forwarded | {COSTS.name, _TRIAL_RUNS.name}
    plans = False

    def query_model(self, model: Model, config: Mapping[str, Any]) -> Support:
        """Supports a node if any device of the list supports it."""
        return resolve_model(model.with_affinity({}), self._split_request(self._all_names(config), config)).support()

    def compile_model(
        self, model: Model, config: Mapping[str, Any], context: RemoteContext | None = None
    ) -> AutoCompiledModel:
        """Compile on the CPU, or else on the first device of the list that succeeds, and for the other candidates in
        the background. With ``STRICT``, compile all of them before returning, and raise the first error."""
        if context is not None:
            raise PropertyError(f"{self.name} does not support a remote context: it chooses the device later")
        settings = self.full_config(self.own(config))
        names = self._names(config)
        if settings["STRICT"] and names is not None:
            self.available(config, settings)
        begin = time.perf_counter()
        start, refused = self._compiled_start(model, config, settings, names)
        head_start = max(_HEAD_START, _HEAD_START_FACTOR * (time.perf_counter() - begin))
        choice = _Choice(start, refused, settings)
        whole = self.name if names is None else f"{self.name}:{','.join(names)}"
        compiled = AutoCompiledModel(whole, (model.inputs, model.outputs), model.name, choice, settings, self.executors)
        tried = [start.device, *(candidate.device for candidate in refused)]
        steps = self._challengers(model, config, names, tried)
        if settings["STRICT"]:
            _Compiling(choice, steps, 0.0).compile_all(strict=True)
        else:
            choice.executor.submit(_Compiling(choice, steps, head_start))
        return compiled

    def check_config(self, config: Mapping[str, Any]) -> None:
        """Check its own properties and the names of the list, without creating the plugins of the devices."""
        super().check_config(config)
        listed = self._names(config)
        for name in listed or ():
            if not self.knows_device(parse_device(name).name):
                known = self.device_names()
                raise UnknownDevice(
                    f"unknown device {name!r} in {self.name}:{','.join(listed or ())}{did_you_mean(name, known)}; "
                    f"known devices: {', '.join(known)}"
                )
        start = self.plugin_of("CPU")
        unknown = [key for key in config if not self.declares(key) and not start.declares(key)]
        if unknown or config.get("DEVICE_PROPERTIES"):  # only then the other plugins are needed
            names = listed or self._all_names(config)
            self._check_list(names, config)
            for name in names:  # here, because AUTO continues without a device that fails later
                with contextlib.suppress(DeviceUnavailable):
                    self.device_of(name, config)

    # -- the list -----------------------------------------------------------------------------------------------

    def _names(self, config: Mapping[str, Any]) -> tuple[str, ...] | None:
        """The given list; None: every suitable device."""
        listed = self.full_config(self.own(config))["MULTI_DEVICE_PRIORITIES"]
        return parse_device_list(listed, f"{self.name}:{listed}") if listed else None

    def _all_names(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        """The given list, or every available device that is neither simulated nor a reference nor another host.
        Creates the plugins of these devices."""
        names = self._names(config)
        if names is not None:
            return names
        found = []
        for name in self.device_names():
            if name in LIST_DEVICES or name in _NOT_BY_DEFAULT:
                continue
            with contextlib.suppress(HeteroError):  # not available
                plugin = self.plugin_of(name)
                if not plugin.is_simulated:
                    ids = plugin.device_ids()
                    found += [f"{name}.{id_}" for id_ in ids] if len(ids) > 1 else [name]
        return (*found, "CPU")

    def _request(self, name: str, config: Mapping[str, Any]) -> Request:
        device = self.device_of(name, config)
        return resolve_request(parse_device(name), device.plugin, device.config)

    def _split_request(self, names: Sequence[str], config: Mapping[str, Any]) -> Request:
        """The request for a split over the devices, or for one device, with nodes assigned by cost."""
        with self._property_lock:
            given = {**self._table.assigned, **config}
        hetero = self.plugin_of("HETERO")
        plain = {parse_device(name).name for name in names}
        taken = {
            key: value
            for key, value in given.items()
            if (key not in self.not_forwarded or key == COSTS.name)
            and (hetero.declares(key) or any(self.plugin_of(name).declares(key) for name in plain))
        }
        per_device = given.get("DEVICE_PROPERTIES", {})
        taken["DEVICE_PROPERTIES"] = {key: value for key, value in per_device.items() if key in plain or key in names}
        taken["MULTI_DEVICE_PRIORITIES"] = ",".join(names)
        taken["ASSIGNMENT"] = "COST"
        return resolve_request(parse_device(f"HETERO:{','.join(names)}"), hetero, taken)

    # -- candidates ---------------------------------------------------------------------------------------------

    def _compiled_start(
        self, model: Model, config: Mapping[str, Any], settings: Mapping[str, Any], names: tuple[str, ...] | None
    ) -> tuple[_Entry, list[AutoCandidate]]:
        """The model on the CPU of the list, or else on the first device that succeeds, or else split over all of them;
        and the devices that failed before. Raises the errors of the split if everything fails."""
        ordered = sorted(names or ("CPU",), key=lambda name: parse_device(name).name != "CPU")
        refused: list[AutoCandidate] = []
        for name in ordered:
            try:
                return _Entry(name, _compile(model, self._request(name, config)), None), refused
            except PropertyError:
                raise
            except HeteroError as error:
                raise_out_of_memory(error)
                if settings["STRICT"] and isinstance(error, DeviceUnavailable):
                    raise
                is_error = names is not None and not isinstance(error, UnsupportedModel)  # a split may still use it
                refused.append(AutoCandidate(name, "failed", reason=str(error), is_error=is_error))
        request = self._split_request(self._all_names(config), config)
        compiled = _compile(with_device_types(model, request.devices), request)
        return _Entry(compiled.device, compiled, None), refused

    def _challengers(
        self, model: Model, config: Mapping[str, Any], names: tuple[str, ...] | None, tried: Sequence[str]
    ) -> Iterator[_Challenger | AutoCandidate]:
        """The prediction of the first of ``tried``, then the other candidates, those with the minimum predicted latency
        first; and candidates that are out of the question, with the reason."""
        start = tried[0]
        devices = names if names is not None else self._all_names(config)
        predicted: dict[str, tuple[float, bool]] = {}
        partial: set[str] = set()
        for name in devices:
            is_refused = name in tried and name != start  # and reported
            try:
                self.device_of(name, config)  # its error has the reason, which an empty split has not
                request = self._split_request([name], config)
                prediction = _prediction(make_plan(with_device_types(model, request.devices), request))
                if not is_refused:
                    predicted[name] = prediction
            except UnsupportedModel as error:  # it can have a part of a split
                partial.add(name)
                if name != start and not is_refused:
                    yield AutoCandidate(name, "failed", reason=str(error))
            except HeteroError as error:
                raise_out_of_memory(error)
                if name != start and not is_refused:
                    yield AutoCandidate(name, "failed", reason=str(error), is_error=names is not None)
        if start in predicted:
            yield _Challenger(start, predicted[start][0], None)
        usable = [name for name in devices if name in predicted or name in partial]
        whole = {name: self._compiles(name, model, config) for name in predicted if name != start}
        if len(usable) > 1:
            request = self._split_request(usable, config)
            typed = with_device_types(model, request.devices)
            plan = make_plan(typed, request)
            split = f"HETERO:{','.join(usable)}"
            is_cut = len({part.device for part in plan.subgraphs}) > 1
            if plan.latency is not None and is_cut and split != start:
                predicted[split] = _prediction(plan)
                whole[split] = lambda: _compile(typed, request, plan)
        best = min((seconds for seconds, _ in predicted.values()), default=0.0)
        for name in sorted(whole, key=lambda name: predicted[name][0]):
            seconds, is_measured = predicted[name]
            bound = best * (1.0 if is_measured and predicted.get(start, (0.0, False))[1] else _DOUBT)
            if seconds > bound:
                reason = f"predicted {duration(seconds)}, {seconds / best:.3g} times the best prediction"
                yield AutoCandidate(name, "not tried", seconds, reason=reason)
            else:
                yield _Challenger(name, seconds, whole[name])

    def _compiles(self, name: str, model: Model, config: Mapping[str, Any]) -> Callable[[], CompiledModel]:
        return lambda: _compile(model, self._request(name, config))


def _compile(model: Model, request: Request, plan: Plan | None = None) -> CompiledModel:
    """Compile a candidate, with ``CACHE_DIR`` if it is set. ``plan``: the one that follows from the request.

    A model with custom operators is compiled again, because only `Core` knows their versions.
    """
    compile_anew = functools.partial(compile_model, model, request, plan)
    if not request.settings.get("CACHE_DIR") or _has_custom_ops(model, request):
        return compile_anew()
    from ..compiling.cache import cached

    return cached(model, request, [None, []], compile_anew)  # `Core.compile_model` finds the same entries


def _has_custom_ops(model: Model, request: Request) -> bool:
    try:
        return any(device.plugin.described_ops(model) for device in request.devices)
    except NotSupported:  # one that cannot be described
        return True


def _prediction(plan: Plan) -> tuple[float, bool]:
    """The predicted latency of a plan in s, and whether all its costs were measured."""
    latency = plan.latency
    if latency is None:
        return 0.0, False
    return latency.total_s, not any(count for source, count in latency.sources.items() if source != "measured")


@dataclasses.dataclass(frozen=True, slots=True)
class AutoCandidate:
    """A device or split that AUTO considered.

    ``state``: ``runs``, ``on trial``, ``slower``, ``differs``, ``failed`` or ``not tried``. ``predicted_s``,
    ``measured_s``: the predicted latency, and the minimum of the trial, in s; None if unknown. ``reason``: why it
    failed or was not tried, or how its results differ from those of the device that AUTO started with.
    """

    device: str
    state: str
    predicted_s: float | None = None
    measured_s: float | None = None
    reason: str = ""
    is_error: bool = dataclasses.field(default=False, repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class AutoChoice:
    """The choice of AUTO. ``device``: the device on which requests run now. ``is_final``: whether this can still
    change. ``reason``: one sentence. ``candidates``: all devices and splits that were considered so far."""

    device: str
    is_final: bool
    reason: str
    candidates: tuple[AutoCandidate, ...]

    def __str__(self) -> str:
        return f"{self.device}: {self.reason}"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Challenger:
    """A candidate that is to be compiled. ``compiles``: None for the start device, which is compiled."""

    device: str
    predicted_s: float
    compiles: Callable[[], CompiledModel] | None


class _Entry:
    """A compiled candidate. ``times``: of its trial runs in s, without the first one, which warms up."""

    __slots__ = ("agrees", "begun", "compiled", "device", "predicted_s", "times")

    def __init__(self, device: str, compiled: CompiledModel, predicted_s: float | None) -> None:
        self.device = device
        self.compiled = compiled
        self.predicted_s = predicted_s
        self.agrees = False  # its results were compared with those of the start device
        self.begun = 0
        self.times: list[float] = []


class _FirstRun:
    """Lets the background wait for the first inference."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self.has_ended = threading.Event()

    def wait(self, head_start: float) -> None:
        """Wait until the first inference has ended, or until ``head_start`` s have passed and none has begun."""
        if self.has_begun.wait(head_start):
            self.has_ended.wait()

    def skip(self) -> None:
        """Do not wait any more."""
        self.has_ended.set()
        self.has_begun.set()


class _Choice:
    """The compiled candidates, their times, and the one that requests use. Shared by all requests of a model."""

    def __init__(self, start: _Entry, refused: Sequence[AutoCandidate], settings: Mapping[str, Any]) -> None:
        self.start = start
        self.done = threading.Event()  # no more candidates will be compiled
        self.first_run = _FirstRun()
        self.is_stopped = False
        self.compiled_at = CallSite.current()
        self.executor = StreamExecutor("AUTO compiling", 1)
        self._settings = settings
        self._trial_runs = int(settings[_TRIAL_RUNS.name])
        self._entries = [start]
        self._current = start
        self._out: list[AutoCandidate] = []
        self._shapes: Hashable = None
        self._other_shapes = 0
        self._waiting = ""  # the candidate that is being compiled
        self._lock = threading.Lock()
        for candidate in refused:
            self.drop(candidate)

    # -- candidates, from the background -------------------------------------------------------------------------

    def begin_compiling(self, device: str) -> None:
        self._waiting = device

    def predict_start(self, predicted_s: float) -> None:
        self.start.predicted_s = predicted_s

    def add(self, entry: _Entry) -> None:
        with self._lock:
            self._entries.append(entry)
            self._waiting = ""
            if not self._trial_runs and (entry.predicted_s or 0.0) < (self.start.predicted_s or np.inf):
                best = self._current.predicted_s if self._current is not self.start else None
                if best is None or (entry.predicted_s or 0.0) < best:
                    self._current = entry
        self._tell("INFO", f"{entry.device} is compiled: {self.describe()}")

    def drop(self, candidate: AutoCandidate) -> None:
        """Note a candidate that cannot be used."""
        with self._lock:
            self._out.append(candidate)
        if candidate.state == "failed":
            text = f"AUTO continues without {candidate.device}: {candidate.reason}"
            self._tell("WARNING" if candidate.is_error else "INFO", text)
            if candidate.is_error:
                with contextlib.suppress(RuntimeWarning):  # the filter of the program makes it an error
                    warn(text, otherwise=self.compiled_at)

    def finish(self) -> None:
        """No more candidates will come."""
        with self._lock:
            self._waiting = ""
            self.done.set()
            told = self._settle()
        if told:
            self._tell("INFO", f"AUTO chose {self.describe()}")

    # -- runs ---------------------------------------------------------------------------------------------------

    def begin_run(self, inputs: Sequence[Any]) -> tuple[_Entry, bool]:
        """The candidate for a run, and whether the run is timed."""
        if self._is_settled:
            return self._current, False
        shapes = tuple(getattr(array, "shape", None) for array in inputs)
        with self._lock:
            if len(self._entries) == 1 or not self._trial_runs:
                return self._current, False
            if self._shapes != shapes:
                self._other_shapes += 1
                if self._shapes is not None and self._other_shapes <= _MOST_OTHER_SHAPES:
                    return self._current, False
                self._shapes, self._other_shapes = shapes, 0
                for entry in self._entries:
                    entry.begun, entry.times = 0, []
            entry = min(self._entries, key=lambda entry: entry.begun)
            if entry.begun > self._trial_runs:
                return self._current, False
            entry.begun += 1
            return entry, True

    def end_run(self, entry: _Entry, shapes: Hashable, seconds: float | None) -> None:
        """Count a timed run. ``seconds``: None if it did not succeed."""
        with self._lock:
            if shapes != self._shapes or entry not in self._entries:
                return
            if seconds is None:
                entry.begun -= 1  # runs again
                return
            entry.times.append(seconds)
            told = self._settle()
        if told:
            self._tell("INFO", f"AUTO chose {self.describe()}")

    def exclude(self, entry: _Entry, error: Exception) -> bool:
        """Stop using a candidate that failed to run. Returns False if it was excluded before."""
        with self._lock:
            if entry not in self._entries:
                return False
            self._entries.remove(entry)
            if isinstance(error, _Disagreement):
                candidate = AutoCandidate(entry.device, "differs", entry.predicted_s, None, str(error))
            else:
                reason = f"failed to run: {type(error).__name__}: {error}"
                candidate = AutoCandidate(entry.device, "failed", entry.predicted_s, None, reason)
            self._out.append(candidate)
            if self._current is entry:
                others = [other for other in self._entries if other.times]
                self._current = min(others, key=lambda other: min(other.times)) if others else self.start
            self._settle()
            return True

    def others(self, entry: _Entry) -> list[_Entry]:
        """The other compiled candidates, the fastest first as far as that is known."""
        with self._lock:
            found = [other for other in self._entries if other is not entry]
        return sorted(found, key=_by_time)

    def replace_start(self, by: _Entry, failed: _Entry, error: Exception) -> bool:
        """Stop using the device that AUTO started with, which failed to run; ``by`` takes its place. Returns False if
        it was excluded before."""
        with self._lock:
            if failed not in self._entries:
                return False
            self._entries.remove(failed)
            reason = f"failed to run: {type(error).__name__}: {error}"
            self._out.append(AutoCandidate(failed.device, "failed", failed.predicted_s, None, reason))
            self.start = by
            if self._current is failed:
                self._current = by
            self._settle()
            return True

    _is_settled = False

    def _settle(self) -> bool:
        """Use the fastest candidate that finished its trial. Returns whether the choice is now final."""
        if self._trial_runs:
            timed = [entry for entry in self._entries if len(entry.times) > self._trial_runs]
            if timed:
                self._current = min(timed, key=lambda entry: min(entry.times[1:]))
            finished = len(timed) == len(self._entries)
        else:
            finished = True
        is_final = self.done.is_set() and (finished or len(self._entries) == 1)
        if is_final and not self._is_settled:
            self._is_settled = True
            kept = {self._current.device, self.start.device}  # the start device runs what the choice cannot
            if self._current is self.start and not _is_cpu(self.start):
                kept |= {other.device for other in sorted(self._entries, key=_by_time)[:2]}
            for entry in self._entries:
                if entry.device not in kept:
                    self._out.append(AutoCandidate(entry.device, "slower", entry.predicted_s, _least(entry)))
            self._entries = [entry for entry in self._entries if entry.device in kept]
            return True
        return False

    # -- what it says -------------------------------------------------------------------------------------------

    @property
    def current(self) -> _Entry:
        return self._current

    def describe(self) -> AutoChoice:
        with self._lock:
            current, waiting, final = self._current, self._waiting, self._is_settled
            rows = []
            for entry in self._entries:
                state = "runs" if entry is current else "slower" if final else "on trial"
                rows.append(AutoCandidate(entry.device, state, entry.predicted_s, _least(entry)))
            rows += self._out
        trials = [row for row in rows if row.state == "on trial"]
        others = [row for row in rows if row.state == "slower"]
        if waiting:
            reason = f"while {waiting} compiles"
        elif not self.done.is_set():
            reason = "while other devices are considered"
        elif trials and not final:
            reason = f"on trial beside {', '.join(row.device for row in trials)}"
        elif final and others and _least(current) is not None:
            slower = ", ".join(f"{row.device} {_time(row.measured_s)}" for row in others)
            reason = f"{_time(_least(current))} per inference, {slower}"
        elif final and others:
            slower = ", ".join(f"{row.device} {_time(row.predicted_s)}" for row in others)
            reason = f"predicted {_time(current.predicted_s)} per inference, {slower}"
        else:
            out = "; ".join(f"{row.device} {row.state}: {_first_line(row.reason)}" for row in self._out if row.reason)
            reason = f"the only candidate{f' ({out})' if out else ''}"
        return AutoChoice(current.device, final, reason, tuple(rows))

    def _tell(self, level: str, text: str) -> None:
        tell(self._settings, "AUTO", level, text)


def _is_cpu(entry: _Entry) -> bool:
    return parse_device(entry.device).name == "CPU"


def _by_time(entry: _Entry) -> float:
    return _least(entry) or entry.predicted_s or np.inf


def _least(entry: _Entry) -> float | None:
    return min(entry.times[1:], default=None)


def _time(seconds: float | None) -> str:
    return "unknown" if seconds is None else duration(seconds)


def _first_line(text: str) -> str:
    return text.partition("\n")[0].removesuffix(":")


class _Compiling:
    """Compiles the candidates one after the other, as work of an executor. It does not keep the compiled model alive:
    once that is garbage collected, no further candidate is compiled. ``head_start``: the most s to wait until the first
    inference begins."""

    def __init__(self, choice: _Choice, steps: Iterator[_Challenger | AutoCandidate], head_start: float) -> None:
        self._choice = weakref.ref(choice)
        self._first_run = choice.first_run
        self._head_start = head_start
        self._steps = steps
        self._context = contextvars.copy_context()  # of the call that compiles, where warnings point
        self._is_stopped = False

    def run(self) -> None:
        self._first_run.wait(self._head_start)
        try:
            self._context.run(self.compile_all)
        except Exception as error:
            choice = self._choice()
            if choice is not None:
                reason = f"{type(error).__name__}: {error}"
                choice.drop(AutoCandidate("the other devices", "failed", reason=reason, is_error=True))
        finally:
            choice = self._choice()
            if choice is not None:
                choice.finish()

    def compile_all(self, strict: bool = False) -> None:
        """Compile each candidate. ``strict``: raise the first error."""
        for step in self._steps:
            choice = self._choice()
            if choice is None or choice.is_stopped or self._is_stopped:
                return
            if isinstance(step, AutoCandidate):
                if strict and step.is_error:
                    raise HeteroError(f"AUTO: {step.device} {step.state}: {step.reason}")
                choice.drop(step)
                continue
            if step.compiles is None:
                choice.predict_start(step.predicted_s)
                continue
            choice.begin_compiling(step.device)
            del choice  # while it compiles, the model may be released
            try:
                entry = _Entry(step.device, step.compiles(), step.predicted_s)
            except HeteroError as error:
                raise_out_of_memory(error)
                if strict:
                    raise
                choice = self._choice()
                if choice is not None:
                    reason = f"it failed to compile: {error}"
                    choice.drop(AutoCandidate(step.device, "failed", step.predicted_s, None, reason, is_error=True))
                continue
            choice = self._choice()
            if choice is None or self._is_stopped:
                return
            choice.add(entry)
        if strict:
            choice = self._choice()
            if choice is not None:
                choice.finish()

    def abandon(self, why: str) -> None:
        self._is_stopped = True
        choice = self._choice()
        if choice is not None:  # after a fork, threads that no longer exist may hold the lock
            choice._lock = threading.Lock()
            choice.drop(AutoCandidate("the other devices", "not tried", reason=why))
            choice.finish()

    def interrupt(self) -> None:
        self._is_stopped = True
        self._first_run.skip()


class AutoCompiledModel(CompiledModel):
    """One model on the device that AUTO chose. ``choice`` says which one, and why."""

    checks_results = False  # the chosen device's results are checked

    def __init__(
        self,
        device: str,
        ports: tuple[Sequence[Port], Sequence[Port]],
        name: str,
        choice: _Choice,
        settings: Mapping[str, Any],
        executors: ExecutorManager,
    ) -> None:
        streams = optimal_requests(choice.start.compiled)
        super().__init__(device, *ports, {**settings, _CHOICE.name: "", "NUM_STREAMS": streams, "NETWORK_NAME": name})
        self.lease_executors(executors)
        self._choice = choice

    @property
    def choice(self) -> AutoChoice:
        """The device on which requests run now, the reason, and all candidates."""
        return self._choice.describe()

    def wait(self, timeout_ms: float | None = None) -> bool:
        """Wait until all candidates are compiled. Returns False if they are not within ``timeout_ms``. Their trial
        needs requests, so the choice may change afterwards."""
        self._choice.first_run.skip()
        return self._choice.done.wait(None if timeout_ms is None else timeout_ms / 1000)

    def get_property(self, name: str) -> Any:
        if name == _CHOICE.name:
            return str(self.choice)
        if name == "EXECUTION_DEVICES":
            return self._choice.current.compiled.get_property(name)
        try:
            return super().get_property(name)
        except PropertyError as error:  # maybe it was passed on to the devices
            return shared_property([self._choice.current.compiled], name, error)

    def close(self) -> None:
        """See `CompiledModel.close`. No further candidate is compiled."""
        super().close()
        self._choice.is_stopped = True
        self._choice.first_run.skip()

    def exported_model(self) -> CompiledModel:
        """Wait until all candidates are compiled. The model for the device on which requests run now; the file loads on
        that device."""
        self.wait()
        return self._choice.current.compiled

    def export_payload(self, writer: Any) -> None:
        raise NotSupported("AUTO exports the model of the device that it chose: call export_model")

    def create_runner(self) -> Runner:
        return AutoRunner(self._choice)

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}; runs on {self.choice}>"


class _Disagreement(HeteroError):
    """A candidate gives other results than the device that AUTO started with."""


def _differing(ports: Sequence[Port], results: Sequence[Any], expected: Sequence[Any]) -> dict[str, str]:
    """The outputs that differ by more than rounding, and how."""
    found = {}
    for port, one, other in zip(ports, results, expected, strict=True):
        entry = difference(port.name, one, other, 0.0, 0.0)
        kind = entry.dtype or ""
        tolerance = _AGREEING_OF.get(kind.partition("_")[0], _AGREEING)
        if entry.badness > tolerance and not (kind in ("int8", "uint8") and entry.largest <= 1):
            found[port.name] = f"output {port.name!r}: max |Δ| {entry.largest:.3g}, {entry.relative:.3g} of max |y|"
    return found


class AutoRunner:
    """One request, on the device that AUTO chose; see `hetero.plugin.request.Runner`."""

    def __init__(self, choice: _Choice) -> None:
        self._choice = choice
        self._runners: dict[_Entry, Runner] = {choice.start: choice.start.compiled.new_runner()}
        self._last: Runner = self._runners[choice.start]
        self.cancellation = Cancellation()

    def run(self, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        choice = self._choice
        is_first = not choice.first_run.has_ended.is_set()
        if is_first:
            choice.first_run.has_begun.set()
        entry, is_timed = choice.begin_run(inputs)
        shapes = tuple(getattr(array, "shape", None) for array in inputs) if is_timed else None
        seconds = None
        try:
            begin = time.perf_counter()
            results = self._run_on(entry, inputs)
            seconds = time.perf_counter() - begin
            return results if entry is choice.start or entry.agrees else self._compared(entry, inputs, results)
        except Cancelled:
            raise
        except Exception as error:
            self.cancellation.check()
            if entry is choice.start:
                return self._run_instead(entry, inputs, error)
            results = self._run_on(choice.start, inputs)  # raises if the request itself is at fault
            # A lack of memory may be temporary.
            if not isinstance(error, MemoryError) and choice.exclude(entry, error):
                warn(
                    f"AUTO no longer uses {entry.device}, because a request failed there and succeeded on "
                    f"{choice.start.device}: {type(error).__name__}: {error}",
                    otherwise=choice.compiled_at,
                )
            return results
        finally:
            if is_first:
                choice.first_run.has_ended.set()
            if is_timed:
                choice.end_run(entry, shapes, seconds)

    def _run_instead(self, failed: _Entry, inputs: Sequence[np.ndarray], error: Exception) -> Sequence[np.ndarray]:
        """The results of another candidate after the device that AUTO started with failed. Raises ``error`` if every
        other candidate fails too.

        If hetero's own CPU fails, the request is at fault, such as by an index out of range, for which other devices
        may return anything. Exceptions are a lost worker process and a lack of memory.
        """
        choice = self._choice
        if _is_cpu(failed) and not isinstance(error, (WorkerLost, MemoryError)):
            raise error
        for other in choice.others(failed):
            try:
                results = self._run_on(other, inputs)
            except Cancelled:
                raise
            except Exception:
                self.cancellation.check()
                continue
            # A lack of memory may be temporary.
            if not isinstance(error, MemoryError) and choice.replace_start(other, failed, error):
                warn(
                    f"AUTO no longer uses {failed.device}, because a request failed there and succeeded on "
                    f"{other.device}: {type(error).__name__}: {error}",
                    otherwise=choice.compiled_at,
                )
            return results
        raise error

    def _compared(self, entry: _Entry, inputs: Sequence[np.ndarray], results: Sequence[Any]) -> Sequence[Any]:
        """``results`` of a candidate, if they agree with those of the start device; otherwise the latter, and the
        candidate is no longer used. Results that change from run to run are not compared."""
        choice, last = self._choice, self._last
        try:
            expected = self._run_on(choice.start, inputs)
            differing = _differing(entry.compiled.outputs, results, expected)
            if differing:
                again = _differing(entry.compiled.outputs, self._run_on(choice.start, inputs), expected)
                differing = {name: text for name, text in differing.items() if name not in again}
        except Cancelled:
            raise
        except Exception:  # the candidate can run more than the start device: compare a later request
            self._last = last
            return results
        if not differing:
            entry.agrees = True
            self._last = last
            return results
        error = _Disagreement("; ".join(differing.values()))
        if choice.exclude(entry, error):
            warn(
                f"AUTO does not use {entry.device}, because its results differ from those of {choice.start.device}: "
                f"{error}",
                otherwise=choice.compiled_at,
            )
        return expected

    def _run_on(self, entry: _Entry, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        runner = self._runners.get(entry)
        if runner is None:
            kept = (self._choice.start, self._choice.current)
            self._runners = {other: runner for other, runner in self._runners.items() if other in kept}
            runner = self._runners[entry] = entry.compiled.new_runner()
        self._last = runner
        flag = getattr(runner, "cancellation", None)
        if flag is None:
            return runner.run(inputs)
        self.cancellation.lend(flag)
        try:
            return runner.run(inputs)
        finally:
            self.cancellation.take_back()

    def profile(self) -> Sequence[ProfileRow]:
        """The counters of the device that ran the last request."""
        return self._last.profile()


def create_plugin() -> AutoPlugin:
    return AutoPlugin()
