"""CPU time on a shared machine: medians of interleaved rounds, so that what slows one slows all."""

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
    """CPU seconds outside the operating system: without page faults, which vary with the machine's state."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


def medians(works: Mapping[str, Work], rounds: int = 7, seconds: float = 10.0) -> dict[str, float]:
    """Median CPU seconds of each work: one warm-up, then rounds of each in turn.

    At least three rounds; no more are begun once the rounds have taken ``seconds``. What takes longer than ``seconds``
    by itself is run once.
    """
    (found,) = medians_by_clock(works, (time.process_time,), rounds, seconds)
    return found


def medians_by_clock(
    works: Mapping[str, Work], clocks: Sequence[Clock], rounds: int, seconds: float
) -> list[dict[str, float]]:
    """`medians` of the same runs by several clocks, of which the first counts for ``seconds``."""
    times = {name: [_elapsed(work, clocks)] for name, work in works.items()}
    short = {name: work for name, work in works.items() if times[name][0][0] <= seconds}
    for name in short:
        times[name].clear()
    gc.collect()
    gc.disable()
    try:
        begin = time.process_time()
        for done in range(rounds):
            if done >= 3 and time.process_time() - begin > seconds:
                break
            for name, work in short.items():
                times[name].append(_elapsed(work, clocks))
    finally:
        gc.enable()
    return [
        {name: statistics.median(run[which] for run in runs) for name, runs in times.items()}
        for which in range(len(clocks))
    ]


def _elapsed(work: Work, clocks: Sequence[Clock]) -> list[float]:
    start = [clock() for clock in clocks]
    work()
    return [clock() - before for clock, before in zip(clocks, start, strict=True)]


def repeated(work: Work, calls: int) -> Work:
    """``calls`` calls in one, for what is shorter than the clock can tell."""

    def loop() -> None:
        for _ in range(calls):
            work()

    return loop
