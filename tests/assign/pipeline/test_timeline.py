"""The schedule of a pipeline as text."""

from __future__ import annotations

import pytest

from hetero.assign.pipeline.timeline import draw_timeline, timeline


def test_each_stage_has_a_line() -> None:
    assert draw_timeline(["a", "bb"], [1.0, 1.0], 2, width=6) == ["a   |1122..|", "bb  |..1122|"]


@pytest.mark.parametrize("stages", [[1e308, 1e308], [0.0, 0.0], []])
def test_times_that_cannot_be_drawn(stages: list[float]) -> None:
    """Their sum overflows, or is nothing."""
    assert draw_timeline(["x"] * len(stages), stages, 3, width=4) == ["x  |....|"] * len(stages)
    assert len(timeline(stages, 3)) == 3 * len(stages)
