"""Finds the fastest plan for a list of devices by measuring: the candidates, their agreement, and their times."""

from __future__ import annotations

import dataclasses
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..assign.costs.measured import Costs
from ..base.device_string import CONTROL_FLOW
from ..base.difference import Difference, difference
from ..base.formatting import counted, duration
from ..core import Core
from ..errors import HeteroError, raise_out_of_memory
from ..measure import measure_costs
from ..model.model import Model
from ..plan import Plan
from ..plugin.contract import CompiledModel
from .measuring import Contender, measure

__all__ = ["Trial", "Tuning", "summary"]

_COST_SHARE = 0.35  # of the time, for measuring the costs of nodes
_COST_RUNS = 3
_ALONE_SECONDS = 1.0  # for the only candidate that is left
_LEAST_RUNS = 5  # of each candidate that is not left out
_MORE_RUNS = 2  # of a candidate that seems hopeless: one run may be slow because of another process
_HOPELESS = 3.0  # a candidate whose fastest warm-up run takes this many times the best one is not measured further
# Candidates within this factor of the fastest count as equal, because medians of a busy machine vary by as much; of
# these, the plan with the fewest subgraphs is the best.
_EQUAL = 1.03
_DEVICES_WITH_ORDERS = 4  # of more devices, only the given order is tried


@dataclasses.dataclass(slots=True)
class Trial:
    """A candidate. ``name``: how the plan was made. ``state``: ``measured``, ``slow`` (not measured further), ``same``
    as another one, ``differs`` from the reference, ``failed``, or ``no time``. ``reason``: one line, for all
    states but the first and the last."""

    name: str
    state: str = "no time"
    reason: str = ""
    plan: Plan | None = None
    compiled: CompiledModel | None = None
    contender: Contender | None = None
    worst: Difference | None = None

    @property
    def median_s(self) -> float | None:
        """The median latency in seconds, or of a slow candidate the only run."""
        if self.contender is None:
            return None
        times = self.contender.latencies
        return statistics.median(times) if times else self.contender.first

    def as_json(self) -> dict[str, Any]:
        median = self.median_s
        return {
            "plan": self.name,
            "state": self.state,
            "reason": self.reason or None,
            "subgraphs": None if self.plan is None else self.plan.num_subgraphs,
            "nodes": None if self.plan is None else {total.device: total.nodes for total in self.plan.totals},
            "runs": 0 if self.contender is None else self.contender.count,
            "median_ms": None if median is None else 1000 * median,
            "difference": None if self.worst is None else self.worst.as_json(),
        }


class Tuning:
    """The measurement of all candidates for one model and list of devices.

    ``seconds``: the time for everything. A step that has begun is finished, so a slow compiler takes as long as it
    takes. ``tell``: receives the progress, 0 to 1.
    """

    def __init__(
        self,
        core: Core,
        model: Model,
        devices: Sequence[str],
        config: Mapping[str, Any],
        arrays: Mapping[str, Any],
        *,
        seconds: float,
        tolerances: tuple[float, float],
        tell: Callable[[float], None] = lambda done: None,
    ) -> None:
        self.trials: list[Trial] = []
        self.unstable: list[str] = []
        """Outputs that differ between two runs of the reference, and are therefore not compared."""
        self._core, self._model, self._devices = core, model, tuple(devices)
        self._config, self._arrays = dict(config), dict(arrays)
        self._seconds, self._tolerances, self._tell = seconds, tolerances, tell
        self._begin = time.perf_counter()

    @property
    def elapsed_s(self) -> float:
        return time.perf_counter() - self._begin

    def run(self) -> Trial | None:
        """Measure all candidates. Returns the best one, or None if none of them can run."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of plans that are not chosen
            costs = self._costs()
            reference: dict[str, Any] | None = None
            for trial, make in self._candidates(costs):
                self.trials.append(trial)
                if reference is not None and self.elapsed_s > self._seconds:
                    continue
                self._tell(min(0.99, self.elapsed_s / self._seconds))
                if self._prepare(trial, make, reference) and reference is None:
                    assert trial.compiled is not None
                    reference = self._reference(trial.compiled)
            self._measure()
        return self._best()

    # -- costs --------------------------------------------------------------------------------------------------

    def _costs(self) -> Costs | None:
        """Measured costs of the nodes on each device, as far as the time allows."""
        costs: Costs | None = None
        for device in self._devices:
            if self.elapsed_s > self._seconds * _COST_SHARE:
                break
            try:
                own = self._own_config(device)
                found = measure_costs(self._core, self._model, device, self._arrays, runs=_COST_RUNS, config=own)
            except HeteroError as error:  # no counters, or it does not support the whole model
                raise_out_of_memory(error)
                continue
            costs = found if costs is None else costs.merge(found)
            self._tell(min(0.99, self.elapsed_s / self._seconds))
        return costs

    def _own_config(self, device: str) -> dict[str, Any]:
        """The part of the configuration for one device alone."""
        base = device.partition(".")[0]
        known = self._core.get_property(base, "SUPPORTED_PROPERTIES")
        own = {key: value for key, value in self._config.items() if key in known}
        for name, values in self._config.get("DEVICE_PROPERTIES", {}).items():
            if name in (base, device):
                own.update(values)
        return own

    # -- candidates ---------------------------------------------------------------------------------------------

    def _candidates(self, costs: Costs | None) -> Iterator[tuple[Trial, Callable[[], Plan]]]:
        """The plans to try: each device alone, CPU first, then the splits. CONTROL_FLOW only runs in lists."""
        measured = {} if costs is None else {"COSTS": costs}
        alone = (device for device in self._devices if device != CONTROL_FLOW)
        for device in sorted(alone, key=lambda name: name.partition(".")[0] != "CPU"):
            yield Trial(f"{device} alone"), self._planner([device], {})
        if len(self._devices) == 1:
            return
        orders = [list(self._devices)]
        if len(self._devices) <= _DEVICES_WITH_ORDERS:
            orders += [[first, *(other for other in self._devices if other != first)] for first in self._devices[1:]]
        for order in orders:
            yield Trial(f"by priority {', '.join(order)}"), self._planner(order, {})
        yield Trial("by cost"), self._planner(self._devices, {"ASSIGNMENT": "COST", **measured})
        yield Trial("in parallel"), self._planner(self._devices, {"OBJECTIVE": "LATENCY", **measured})

    def _planner(self, devices: Sequence[str], settings: Mapping[str, Any]) -> Callable[[], Plan]:
        config = {**self._config_for(devices), **settings}
        return lambda: self._core.plan(self._model, f"HETERO:{','.join(devices)}", config)

    def _config_for(self, devices: Sequence[str]) -> dict[str, Any]:
        """The configuration for a list of some of the devices: HETERO rejects what none of them accepts."""
        known = set(self._core.get_property("HETERO", "SUPPORTED_PROPERTIES"))
        for device in devices:
            known.update(self._core.get_property(device.partition(".")[0], "SUPPORTED_PROPERTIES"))
        config = {key: value for key, value in self._config.items() if key in known}
        names = {*devices, *(device.partition(".")[0] for device in devices)}
        per_device = config.get("DEVICE_PROPERTIES", {})
        return {**config, "DEVICE_PROPERTIES": {name: per_device[name] for name in per_device if name in names}}

    def _prepare(self, trial: Trial, make: Callable[[], Plan], reference: Mapping[str, Any] | None) -> bool:
        """Plan, compile and compare. Returns whether the candidate can be measured."""
        try:
            plan = trial.plan = make()
            same = next((other for other in self.trials if other is not trial and _is_same(other.plan, plan)), None)
            if same is not None:
                trial.state, trial.reason = "same", f"the same plan as {same.name!r}"
                return False
            trial.compiled = self._core.compile_model(self._model, plan, self._config_for(plan.devices))
            outputs = trial.compiled(self._arrays)
        except HeteroError as error:
            raise_out_of_memory(error)
            trial.state, trial.reason = "failed", str(error).partition("\n")[0].removesuffix(":")
            return False
        if reference is not None:
            found = [difference(name, outputs[name], value, *self._tolerances) for name, value in reference.items()]
            if found:
                trial.worst = max(found, key=lambda entry: (not entry.passes, entry.badness))
                if not trial.worst.passes:
                    trial.state = "differs"
                    trial.reason = (
                        f"{trial.worst.name!r} differs from that of {self.trials[self._judge()].name!r}: "
                        f"max |Δ| {trial.worst.largest:.3g}, {counted(trial.worst.off, 'element')} off"
                    )
                    return False
        trial.contender = Contender(trial.name, trial.compiled, self._arrays, 1)
        trial.state = "measured"
        return True

    def _judge(self) -> int:
        """The number of the trial whose results are the reference: the first that ran."""
        return next(number for number, trial in enumerate(self.trials) if trial.contender is not None)

    def _reference(self, compiled: CompiledModel) -> dict[str, Any]:
        """The results to compare with, without outputs that are random."""
        first, second = compiled(self._arrays), compiled(self._arrays)
        stable = {}
        for name, value in first.items():
            if difference(name, second[name], value, *self._tolerances).passes:
                stable[name] = value
            else:
                self.unstable.append(name)
        return stable

    # -- times --------------------------------------------------------------------------------------------------

    def _measure(self) -> None:
        """Measure the candidates in turns for the rest of the time, without those that are far slower."""
        running = [trial for trial in self.trials if trial.contender is not None]
        fastest: dict[int, float] = {}
        for trial in running:
            assert trial.contender is not None
            trial.contender.warm_up(1)
            fastest[id(trial)] = _seconds_of_a_run(trial)
        if not running:
            return
        best = min(fastest.values())
        for trial in running:
            for _ in range(_MORE_RUNS):
                if fastest[id(trial)] > _HOPELESS * best and self.elapsed_s + fastest[id(trial)] < self._seconds:
                    fastest[id(trial)] = min(fastest[id(trial)], _seconds_of_a_run(trial))
            if fastest[id(trial)] > _HOPELESS * best:
                assert trial.contender is not None
                trial.state, trial.contender.first = "slow", fastest[id(trial)]
                trial.reason = f"slow: its fastest run takes {fastest[id(trial)] / best:.1f} times as long as the best"
        contenders = [trial.contender for trial in running if trial.state == "measured" and trial.contender is not None]
        spent = self.elapsed_s / self._seconds
        share = max(0.0, self._seconds - self.elapsed_s) / len(contenders)
        if len(contenders) == 1:  # its time is shown, but decides nothing
            share = min(share, _ALONE_SECONDS)
        measure(contenders, share, _LEAST_RUNS, lambda done: self._tell(min(1.0, spent + (1 - spent) * done)))

    def _best(self) -> Trial | None:
        measured = [trial for trial in self.trials if trial.state == "measured" and trial.contender is not None]
        if not measured:
            return None
        first = measured[0].contender
        assert first is not None

        def ratio(trial: Trial) -> float:
            assert trial.contender is not None
            return trial.contender.ratio_to(first, "wall")

        least = min(map(ratio, measured))
        equal = [trial for trial in measured if ratio(trial) <= least * _EQUAL]
        return min(equal, key=lambda trial: (0 if trial.plan is None else trial.plan.num_subgraphs, ratio(trial)))


def _seconds_of_a_run(trial: Trial) -> float:
    assert trial.contender is not None
    begin = time.perf_counter()
    trial.contender.warm_up(1)
    return time.perf_counter() - begin


def _is_same(one: Plan | None, other: Plan) -> bool:
    """Whether two plans run the same subgraphs on the same devices in the same way."""
    if one is None:
        return False
    overlaps = [plan.latency is not None and plan.latency.overlaps for plan in (one, other)]
    return overlaps[0] == overlaps[1] and [*one.settings()[1:]] == [*other.settings()[1:]]


def summary(best: Trial, first: Trial, trials: Sequence[Trial]) -> str:
    """One line about the best of ``trials``. ``first``: the candidate that it is compared with."""
    assert best.median_s is not None
    assert best.contender is not None
    faster = [
        repr(trial.name)
        for trial in trials
        if trial.state == "measured" and trial.contender and trial.contender.ratio_to(best.contender, "wall") < 1
    ]
    text = f"The {'best' if faster else 'fastest'} is {best.name!r}: {duration(best.median_s)} per inference"
    if first is not best and first.contender is not None and first.state == "measured":
        text += f", {best.contender.ratio_to(first.contender, 'wall'):.3f} times that of {first.name!r}"
    if faster:
        are = "is" if len(faster) == 1 else "are"
        text += f"; {', '.join(faster)} {are} less than {100 * (_EQUAL - 1):.0f} % faster, with more subgraphs"
    return text
