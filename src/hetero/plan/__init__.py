"""A plan: which node goes where and why, and how the model is cut, before anything is compiled.

Made by `Core.plan` from stage 2 and stage 3; printed, asked (`explain`, `what_if`), saved as JSON, edited by hand,
loaded, and handed to `Core.compile_model` in place of a device string. `docs/plan.md` tells it to users.

`plan` has the class, `make` makes it, `bind` puts a loaded one onto a model, `schema` and `file` are the JSON,
`traffic` what passes between subgraphs, `warning`, `explain` and `what_if` the questions, `table` how it is printed.
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
