"""The costs of nodes on devices, and the source of each: measured times, a device's stated speed, or an assumption.

`Costs` holds measured times, which can be merged over runs and shapes and saved. `estimate_work` counts operations and
bytes from shapes. `cost_table` combines both for a model and a list of devices, as input for `hetero.assign`.
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
