"""CPU time on a shared machine: medians of interleaved rounds, so that what slows one slows all."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

Work = Callable[[], Any]


def medians(works: Mapping[str, Work], rounds: int = 7, seconds: float = 10.0) -> dict[str, float]:
    """Median CPU seconds of each work: one warm-up, then rounds of each in turn.

    At least three rounds; no more are begun once the rounds have taken ``seconds``. What takes longer than ``seconds``
    by itself is run once.
    """
    times = {name: [_cpu_time(work)] for name, work in works.items()}
    short = {name: work for name, work in works.items() if times[name][0] <= seconds}
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
                times[name].append(_cpu_time(work))
    finally:
        gc.enable()
    return {name: statistics.median(found) for name, found in times.items()}


def _cpu_time(work: Work) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def repeated(work: Work, calls: int) -> Work:
    """``calls`` calls in one, for what is shorter than the clock can tell."""

    def loop() -> None:
        for _ in range(calls):
            work()

    return loop
