"""The schedule of a pipeline as text."""

from __future__ import annotations

import pytest

from hetero.assign.pipeline.timeline import Run, draw_runs, draw_timeline, timeline


def test_each_stage_has_a_line() -> None:
    assert draw_timeline(["a", "bb"], [1.0, 1.0], 2, width=6) == ["a   |1-2-..|", "bb  |..1-2-|"]


def test_a_number_stands_apart_or_is_a_sign() -> None:
    """Of three runs of one column each, only the last is not followed by a run, and 10 does not fit."""
    runs = [Run(0, request, begin, begin + length) for request, begin, length in
            [(0, 0, 1), (1, 1, 1), (2, 2, 1), (9, 4, 1), (10, 6, 2), (11, 9, 2), (12, 11, 3)]]  # fmt: skip
    assert draw_runs(["a"], runs, width=14) == ["a  |++3.+.11.++13-|"]


def test_a_run_that_is_shorter_than_a_column() -> None:
    """It is shown unless a later run begins in its column."""
    runs = [Run(0, 0, 0, 4), Run(0, 1, 4, 4.1), Run(0, 2, 4.1, 8), Run(0, 3, 9.9, 10)]
    assert draw_runs(["a"], runs, width=10) == ["a  |1---3---.4|"]


@pytest.mark.parametrize("stages", [[1e308, 1e308], [0.0, 0.0], []])
def test_times_that_cannot_be_drawn(stages: list[float]) -> None:
    """Their sum overflows, or is nothing."""
    assert draw_timeline(["x"] * len(stages), stages, 3, width=4) == ["x  |....|"] * len(stages)
    assert len(timeline(stages, 3)) == 3 * len(stages)
