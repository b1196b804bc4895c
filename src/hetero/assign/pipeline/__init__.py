"""Pipelines over graphs given as arrays: consecutive stages, one for each device, of which the slowest is least.

With requests in flight, each stage works on another one, so the time between results is that of the slowest stage.
`balance_stages` finds the stages, `StageCosts` says what given ones take, `timeline` when which of them runs. Nothing
here knows ONNX; `hetero.assign.by_stage` does it for a model and its devices.
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
