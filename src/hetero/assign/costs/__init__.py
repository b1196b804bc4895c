"""What nodes cost on devices, and where each figure comes from: counters, a device's stated speed, or shapes.

`Costs` keeps measured times, mergeable over runs and shapes, in a file; `estimate_work` counts operations and bytes
from shapes; `cost_table` puts them together for a model and a list of devices, as `hetero.assign` takes them.
"""

from __future__ import annotations

from .estimate import NodeWork, estimate_work
from .measured import Costs, LinkTimes, Measurement, NodeTimes
from .table import CostTable, cost_table

__all__ = [
    "CostTable",
    "Costs",
    "LinkTimes",
    "Measurement",
    "NodeTimes",
    "NodeWork",
    "cost_table",
    "estimate_work",
]
