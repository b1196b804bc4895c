"""When which stage works on which request, as predicted: a table of times, and as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Run", "draw_timeline", "timeline"]

_MARKS = "0123456789abcdefghijklmnopqrstuvwxyz"


class Run(NamedTuple):
    """Stage ``stage`` works on request ``request`` (both from 0) from ``begin`` to ``end``, in seconds."""

    stage: int
    request: int
    begin: float
    end: float


def timeline(stages: Sequence[float], requests: int) -> list[Run]:
    """What happens if ``requests`` are there at once, by request. ``stages``: the seconds of each stage. A stage works
    on one request at a time, and on each when the stage before it is done with it."""
    free = [0.0] * len(stages)
    runs = []
    for request in range(requests):
        ready = 0.0
        for stage, seconds in enumerate(stages):
            begin = max(ready, free[stage])
            ready = free[stage] = begin + seconds
            runs.append(Run(stage, request, begin, ready))
    return runs


def draw_timeline(names: Sequence[str], stages: Sequence[float], requests: int, width: int = 60) -> list[str]:
    """Lines, one for each stage: a column is a slice of time, a digit or letter the request that it is spent on (from
    1), a dot none. ``names``: what stands before each."""
    runs = timeline(stages, requests)
    end = max((run.end for run in runs), default=0.0)
    rows = [["."] * width for _ in stages]
    if end > 0:
        for run in runs:
            # A slice shows who has its middle; a run shorter than a slice shows where it begins.
            first, last = (round(at / end * width) for at in (run.begin, run.end))
            first = min(first, width - 1)
            for column in range(first, max(last, first + 1)):
                rows[run.stage][column] = _MARKS[(run.request + 1) % len(_MARKS)]
    widest = max((len(name) for name in names), default=0)
    return [f"{name:<{widest}}  |{''.join(row)}|" for name, row in zip(names, rows, strict=True)]
