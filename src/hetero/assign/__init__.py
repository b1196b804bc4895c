"""Stage 2: each node gets a device, based on device support, pins, costs, and memory limits.

`affinity` assigns by priority, `by_cost` and `by_makespan` for the minimum latency, `by_stage` for a pipeline,
`within_memory` moves the nodes that do not fit; `pins` and `calls` read the user's pins and resolve calls of
model-local functions. The packages work on arrays, independent of ONNX: `cuts` finds the cheapest assignment,
`schedule` the fastest with devices in parallel, `costs` estimates the cost of each node, `memory`
computes the needs of each device, and `pipeline` balances stages.
"""

from __future__ import annotations

from .cuts import (
    AssignmentProblem,
    Cost,
    CostAssignment,
    LatencyAssignment,
    Prediction,
    assign_by_cost,
    least_latency,
    predict,
)

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
