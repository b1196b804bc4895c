"""Times on a shared machine: works run in interleaved rounds, so that a disturbance affects all of them."""

from __future__ import annotations

import gc
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Work = Callable[[], Any]
Clock = Callable[[], float]


def user_time() -> float:
    """CPU seconds of this process outside the operating system, so without page faults, whose cost depends on the state
    of the machine."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


def cpu_time_with_children() -> float:
    """CPU seconds of this process and of its child processes that ended."""
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in uses)


def medians(works: Mapping[str, Work], rounds: int = 7, seconds: float = 10.0) -> dict[str, float]:
    """Median CPU seconds of each work: one warm-up run, then rounds in which each work runs once.

    There are at least three rounds. After these, no round starts once the rounds have taken ``seconds``. A work that
    takes longer than ``seconds`` by itself runs only once.
    """
    return medians_by_clock(works, (time.process_time,), rounds, seconds)[0]


def medians_by_clock(
    works: Mapping[str, Work], clocks: Sequence[Clock], rounds: int, seconds: float
) -> list[dict[str, float]]:
    """`medians` of the same runs by several clocks. The first clock measures ``seconds``."""
    times = {name: [_elapsed(work, clocks)] for name, work in works.items()}
    short = {name: work for name, work in works.items() if times[name][0][0] <= seconds}
    for name in short:
        times[name].clear()
    gc.collect()
    gc.disable()
    try:
        begin = clocks[0]()
        for done in range(rounds):
            if done >= 3 and clocks[0]() - begin > seconds:
                break
            for name, work in short.items():
                times[name].append(_elapsed(work, clocks))
    finally:
        gc.enable()
    return [
        {name: statistics.median(run[which] for run in runs) for name, runs in times.items()}
        for which in range(len(clocks))
    ]


def elapsed_times(works: Mapping[str, Work], rounds: int, pause: float = 0.0) -> dict[str, list[float]]:
    """Elapsed seconds of each run, in interleaved rounds. ``pause``: seconds before each run, in which threads that
    busy-wait fall asleep."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            if pause:
                time.sleep(pause)
            times[name] += _elapsed(work, (time.perf_counter,))
    return times


def repeated_times(work: Work, count: int) -> Callable[[], list[float]]:
    """A function that runs ``work`` ``count`` times in a row; returns the elapsed seconds of each run."""
    return lambda: elapsed_times({"": work}, count)[""]


def median_elapsed(work: Work, seconds: float) -> float:
    """Median elapsed seconds of as many runs as fit into ``seconds``, at least three, after five runs to warm up."""
    for _ in range(5):
        work()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        times.append(_elapsed(work, (time.perf_counter,))[0])
    return statistics.median(times)


def _elapsed(work: Work, clocks: Sequence[Clock]) -> list[float]:
    start = [clock() for clock in clocks]
    work()
    return [clock() - before for clock, before in zip(clocks, start, strict=True)]


def repeated(work: Work, calls: int) -> Work:
    """``calls`` calls in one, for works that are shorter than the clock's resolution."""

    def loop() -> None:
        for _ in range(calls):
            work()

    return loop


def calls_within(work: Work, seconds: float) -> int:
    """How many calls of ``work`` take about ``seconds`` of CPU time; at least one."""
    first = repeated(work, 5)
    first()
    taken = _elapsed(first, (time.process_time,))[0]
    return max(1, round(5 * seconds / max(taken, 1e-6)))
