"""The predicted schedule of a pipeline: when each stage works on each request, as a table and as text."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

__all__ = ["Run", "draw_runs", "draw_timeline", "timeline"]


class Run(NamedTuple):
    """Stage ``stage`` works on request ``request`` (both from 0) from ``begin`` to ``end``, in seconds."""

    stage: int
    request: int
    begin: float
    end: float


def timeline(stages: Sequence[float], requests: int) -> list[Run]:
    """The runs if all requests arrive at once, ordered by request and stage. ``stages``: seconds of each stage.

    A stage works on one request at a time, and on a request as soon as the previous stage has finished it.
    """
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
    """`draw_runs` of `timeline`."""
    return draw_runs(names, timeline(stages, requests), width)


def draw_runs(names: Sequence[str], runs: Sequence[Run], width: int = 60) -> list[str]:
    """One line per stage, in which each column is a slice of time. A run is its request, from 1, followed by dashes, or
    plus signs if it is too short for this number. Dots are idle time. ``names``: the label of each line."""
    end = max((run.end for run in runs), default=0.0)
    rows = [[0] * width for _ in names]
    if 0 < end < math.inf:  # a plan file may hold times whose sum overflows
        for run in runs:
            # A column shows the run at its middle; a run shorter than a column is shown where it begins.
            first, last = (round(time / end * width) for time in (run.begin, run.end))
            first = min(first, width - 1)
            last = max(last, first + 1)
            rows[run.stage][first:last] = [run.request + 1] * (last - first)
    name_width = max((len(name) for name in names), default=0)
    return [f"{name:<{name_width}}  |{''.join(_parts(row))}|" for name, row in zip(names, rows, strict=True)]


def _parts(row: Sequence[int]) -> Iterator[str]:
    """The text of each run and each idle time. ``row``: the number of the run in each column; 0 for idle time."""
    parts = [(number, len(list(columns))) for number, columns in itertools.groupby(row)]
    for (number, length), (following, _) in itertools.pairwise([*parts, (0, 0)]):
        if not number:
            yield "." * length
        elif len(str(number)) + (following > 0) <= length:  # so that it is apart from the next number
            yield str(number).ljust(length, "-")
        else:
            yield "+" * length
