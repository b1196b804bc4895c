"""Adds the values between subgraphs to the outputs of a model, to compare devices value by value."""

from __future__ import annotations

from ..model.model import Model
from ..plan import Plan

__all__ = ["with_boundaries"]


def with_boundaries(plan: Plan) -> tuple[Model, dict[str, int]]:
    """Returns the planned model with the values between its subgraphs as outputs, and for each output the subgraph that
    computes it, counted from 1."""
    model, partition = plan.assignment.model, plan.assignment.partition
    boundary = plan.traffic.value.tolist()
    names = [model.value_name(value) for value in boundary if model.is_tensor(value)]
    maker = {value: int(model.producer[value]) for value in (*boundary, *model.output_ids)}
    sources = {
        model.value_name(value): int(partition.subgraph_of[node]) + 1 for value, node in maker.items() if node >= 0
    }
    return model.with_outputs(names), sources
