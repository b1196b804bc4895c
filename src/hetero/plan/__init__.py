"""A plan: which node goes where and why, and how the model is cut, before anything is compiled.

`Core.plan` makes a plan from stages 2 and 3. A plan can be printed, queried (`explain`, `what_if`), saved as JSON,
edited, loaded, and passed to `Core.compile_model` in place of a device string. `docs/plan.md` is the user's guide.

`plan` defines the class, `make` creates plans, `bind` applies a loaded plan to a model, `schema` and `file` define the
JSON, `traffic` computes the values between subgraphs, `warning`, `explain` and `what_if` answer questions, and `table`
prints a plan.
"""

from __future__ import annotations

from ..assign.predictions import PredictedLatency
from .make import bind_plan, make_plan
from .plan import Plan
from .record import Bound
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
    "Bound",
    "BoundaryValue",
    "DeviceTotals",
    "ModelIdentity",
    "Plan",
    "PlanWarning",
    "PlannedSubgraph",
    "PredictedLatency",
    "bind_plan",
    "json_schema",
    "make_plan",
]
