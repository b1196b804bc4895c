"""What passes between the subgraphs of a plan, as outputs of the model: for comparing devices value by value."""

from __future__ import annotations

from ..model.model import Model
from ..plan import Plan

__all__ = ["with_boundaries"]


def with_boundaries(plan: Plan) -> tuple[Model, dict[str, int]]:
    """The planned model with all that passes between its subgraphs as outputs, and which subgraph, counted from 1,
    makes each."""
    model, _, partition = plan.require_bound()
    boundary = plan.traffic.value.tolist()
    names = [model.value_name(value) for value in boundary if model.is_tensor(value)]
    maker = {value: int(model.producer[value]) for value in (*boundary, *model.output_ids)}
    sources = {
        model.value_name(value): int(partition.subgraph_of[node]) + 1 for value, node in maker.items() if node >= 0
    }
    return model.with_outputs(names), sources
