"""Measures inferences of several contenders in turn, so that other load on the machine affects all of them.

In each round, each contender runs for one slice of time. Rounds repeat until each contender reaches the requested time
and number of inferences. The ratio of two contenders is the median of their ratios per round.
"""

from __future__ import annotations

import dataclasses
import math
import queue
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from ..devices.auto import AutoCompiledModel
from ..plugin.contract import CompiledModel, InferRequest

__all__ = ["PERCENTILES", "Contender", "measure", "median_interval", "percentile"]

PERCENTILES = (50, 90, 95, 99)

_SLICE = 0.1  # seconds of one contender in a row
_SLICE_IN_FLIGHT = 0.5  # seconds with several requests in flight; longer, because the last ones of a slice run alone
_NORMAL_95 = 1.959964  # of 95 % of a normal distribution, in standard deviations
_LEAST_FOR_INTERVAL = 6  # values
_MOST_TRIAL_RUNS = 10_000  # of AUTO, which may be set to any number
_LATENCIES_PER_SLICE = 20  # with several requests in flight


@dataclasses.dataclass(frozen=True, slots=True)
class _Slice:
    wall: float
    cpu: float
    count: int


class Contender:
    """One compiled model under measurement. Times are in seconds."""

    def __init__(self, label: str, compiled: CompiledModel, inputs: Mapping[str, Any], in_flight: int) -> None:
        self.label = label
        self.compiled = compiled
        self.in_flight = in_flight
        self.first = 0.0
        self.latencies: list[float] = []
        self.slices: list[_Slice] = []
        self._inputs = dict(inputs)
        self._requests = [compiled.create_infer_request() for _ in range(in_flight)]

    @property
    def wall(self) -> float:
        return sum(entry.wall for entry in self.slices)

    @property
    def count(self) -> int:
        return len(self.latencies)

    @property
    def cpu_per_inference(self) -> float:
        return sum(entry.cpu for entry in self.slices) / self.count

    @property
    def choice(self) -> str | None:
        """The device that AUTO chose, and the reason; None for other devices."""
        return str(self.compiled.choice) if isinstance(self.compiled, AutoCompiledModel) else None

    def settle(self) -> None:
        """Let AUTO finish its choice: wait for its candidates, and run until the trial is over."""
        if isinstance(self.compiled, AutoCompiledModel):
            self.compiled.wait()
            for _ in range(_MOST_TRIAL_RUNS):
                if self.compiled.choice.is_final:
                    return
                self._requests[0].infer(self._inputs)

    def warm_up(self, runs: int) -> None:
        """Run each request ``runs`` times, at least once. Measures only the very first run."""
        for number, request in enumerate(self._requests):
            for run in range(max(runs, 1)):
                begin = time.perf_counter()
                request.infer(self._inputs)
                if not number and not run:
                    self.first = time.perf_counter() - begin

    def run_slice(self, is_enough: Callable[[float, int], bool]) -> None:
        """Run until ``is_enough(seconds, inferences)`` is true for this slice; at least one inference."""
        begin, cpu, before = time.perf_counter(), time.process_time(), self.count
        run = self._run_one if self.in_flight == 1 else self._run_many
        run(lambda: is_enough(time.perf_counter() - begin, self.count - before))
        self.slices.append(_Slice(time.perf_counter() - begin, time.process_time() - cpu, self.count - before))

    def _run_one(self, is_enough: Callable[[], bool]) -> None:
        (request,), inputs, latencies, clock = self._requests, self._inputs, self.latencies, time.perf_counter
        while True:
            begin = clock()
            request.infer(inputs)
            latencies.append(clock() - begin)
            if is_enough():
                return

    def _run_many(self, is_enough: Callable[[], bool]) -> None:
        finished: queue.SimpleQueue[tuple[InferRequest, float]] = queue.SimpleQueue()
        begun: dict[int, float] = {}

        def start(request: InferRequest) -> None:
            request.set_callback(lambda error: finished.put((request, time.perf_counter())))
            begun[id(request)] = time.perf_counter()
            request.start_async(self._inputs)

        for request in self._requests:
            start(request)
        under_way = len(self._requests)
        while under_way:
            request, end = finished.get()
            request.wait()  # raises the error of the inference
            self.latencies.append(end - begun[id(request)])
            if is_enough():
                under_way -= 1
            else:
                start(request)

    def ratio_to(self, other: Contender, what: Literal["wall", "cpu"]) -> float:
        """Median over the rounds of the time per inference (``wall`` or ``cpu``), divided by the other's."""
        return statistics.median(self._ratios(other, what))

    def ratio_interval(self, other: Contender, what: Literal["wall", "cpu"]) -> tuple[float, float] | None:
        """The 95 % confidence interval of `ratio_to`; None if there are too few rounds."""
        return median_interval(sorted(self._ratios(other, what)))

    def _ratios(self, other: Contender, what: Literal["wall", "cpu"]) -> list[float]:
        pairs = list(zip(self.slices, other.slices, strict=False))
        if what == "wall":
            return [(mine.wall / mine.count) / (theirs.wall / theirs.count) for mine, theirs in pairs]
        return [(mine.cpu / mine.count) / max(theirs.cpu / theirs.count, 1e-12) for mine, theirs in pairs]


def measure(contenders: Sequence[Contender], seconds: float, inferences: int, tell: Callable[[float], None]) -> None:
    """Run all contenders, each for at least ``seconds`` and ``inferences``. ``tell`` receives the progress, 0 to 1."""

    def share(contender: Contender) -> float:
        by_time = contender.wall / seconds if seconds else 1.0
        by_count = contender.count / inferences if inferences else 1.0
        return min(by_time, by_count, 1.0)

    alone = len(contenders) == 1
    running = list(contenders)
    while running:
        for contender in running:
            many = contender.in_flight > 1
            length = max(_SLICE_IN_FLIGHT, _LATENCIES_PER_SLICE * contender.first) if many else _SLICE
            wall, count = contender.wall, contender.count

            def is_enough(
                spent: float, done: int, wall: float = wall, count: int = count, limit: float = length
            ) -> bool:
                if wall + spent >= seconds and count + done >= inferences:
                    return True
                return spent >= (_SLICE_IN_FLIGHT if alone else limit)

            contender.run_slice(is_enough)
            tell(sum(map(share, contenders)) / len(contenders))
        running = [contender for contender in running if share(contender) < 1.0]


def percentile(sorted_times: Sequence[float], percent: float) -> float:
    """The percentile, by linear interpolation between neighbors."""
    position = (len(sorted_times) - 1) * percent / 100
    low = int(position)
    high = min(low + 1, len(sorted_times) - 1)
    return sorted_times[low] + (sorted_times[high] - sorted_times[low]) * (position - low)


def median_interval(sorted_values: Sequence[float]) -> tuple[float, float] | None:
    """A 95 % confidence interval of the median: two of the values, by the binomial distribution of how many lie below
    the median. It holds for any distribution of independent values. None for fewer than 6 values, whose whole range
    has less than 95 %."""
    count = len(sorted_values)
    if count < _LEAST_FOR_INTERVAL:
        return None
    below = int((count - _NORMAL_95 * math.sqrt(count)) / 2 - 0.5)
    return sorted_values[below], sorted_values[count - 1 - below]
