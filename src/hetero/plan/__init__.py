"""A plan: which node goes where and why, and how the model is cut, before anything is compiled.

`Core.plan` makes a plan from stages 2 and 3. A plan can be printed, queried (`explain`, `what_if`), saved as JSON,
edited, loaded, and passed to `Core.compile_model` in place of a device string. The page "Plans" of the
documentation is the user's guide.

`plan` defines the plan of a model and `loaded` the plan in a file; `record` and `bound` hold their data. `make` creates
plans, `bind` applies a loaded plan to a model, `schema` and `file` define the JSON, `traffic` computes the values
between subgraphs, `warning`, `explain` and `what_if` answer questions, and `table` prints a plan.
"""

from __future__ import annotations

from ..assign.predictions import PredictedLatency
from .loaded import LoadedPlan
from .make import bind_plan, check_limits, make_plan
from .plan import Plan
from .record import PlanRecord
from .schema import (
    FORMAT_VERSION,
    BoundaryValue,
    DeviceTotals,
    ModelIdentity,
    PlannedSubgraph,
    PlanWarning,
    json_schema,
)

__all__ = [
    "FORMAT_VERSION",
    "BoundaryValue",
    "DeviceTotals",
    "LoadedPlan",
    "ModelIdentity",
    "Plan",
    "PlanRecord",
    "PlanWarning",
    "PlannedSubgraph",
    "PredictedLatency",
    "bind_plan",
    "check_limits",
    "json_schema",
    "make_plan",
]
