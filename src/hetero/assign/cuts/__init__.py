"""Assignment by cost: a device for each node that minimizes the time of work, transfers and launches.

`assign_by_cost` minimizes the work and transfers of an `AssignmentProblem`. `least_latency` also partitions the graph
and counts the launches of subgraphs. Like the partitioner, this package knows no ONNX, plugins or strings: nodes,
devices and values are numbers, costs are seconds.
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
