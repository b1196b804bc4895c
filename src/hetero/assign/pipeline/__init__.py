"""Pipelines over graphs given as arrays: consecutive stages, one per device, that minimize the slowest stage's time.

With several requests in flight, each stage works on a different request, so the time between two results is the time of
the slowest stage. `balance_stages` finds the stages, `StageCosts` computes the times of given stages, and `timeline`
predicts when each stage runs. Nothing here knows ONNX; `hetero.assign.by_stage` works on a model and its devices.
"""

from __future__ import annotations

from .balance import StageAssignment, balance_stages
from .costs import StageCosts, StageTimes
from .errors import NoRoom, PipelineError, TooManyStages
from .timeline import Run, draw_timeline, timeline

__all__ = [
    "NoRoom",
    "PipelineError",
    "Run",
    "StageAssignment",
    "StageCosts",
    "StageTimes",
    "TooManyStages",
    "balance_stages",
    "draw_timeline",
    "timeline",
]
