"""Cost-aware assignment: which device should do which node, so that work, transfers and launches take least time.

`AssignmentProblem` in, `CostAssignment` out (`assign_by_cost`); `least_latency` also cuts the graph and counts what the
cut adds. As the partitioner, this room knows no ONNX, no plugin and no string: nodes, devices and values are numbers,
costs are seconds.
"""

from __future__ import annotations

from .latency import LatencyAssignment, Prediction, least_latency, predict
from .problem import AssignmentProblem, Cost
from .solve import CostAssignment, assign_by_cost

__all__ = [
    "AssignmentProblem",
    "Cost",
    "CostAssignment",
    "LatencyAssignment",
    "Prediction",
    "assign_by_cost",
    "least_latency",
    "predict",
]
