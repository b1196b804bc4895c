"""Stage 2: each node gets a device, from what the devices support, what the user pinned, costs, and memory limits.

`affinity` assigns by priority, `by_cost` for the least latency, `by_stage` for a pipeline, `within_memory` moves the
nodes that do not fit; `pins` and `calls` read the user's pins and resolve calls of model-local functions. The four
packages work on arrays and know no ONNX: `cuts` finds the cheapest assignment, `costs` says what each node costs,
`memory` what each device needs, `pipeline` balances stages.
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
