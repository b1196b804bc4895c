"""What passes between the subgraphs of a plan, as outputs of the model: for comparing devices value by value."""

from __future__ import annotations

import numpy as np

from ..model.model import Model
from ..plan import Plan

__all__ = ["with_boundaries"]


def with_boundaries(plan: Plan) -> tuple[Model, dict[str, int]]:
    """The planned model with all that passes between its subgraphs as outputs, and which subgraph, counted from 1,
    makes each."""
    assert plan.bound is not None
    model, _, partition = plan.bound
    subgraph_of = partition.subgraph_of
    reads = model.node_inputs, model.node_captures
    values = np.concatenate([rows.values for rows in reads])
    readers = np.concatenate([np.repeat(np.arange(len(rows)), np.diff(rows.indptr)) for rows in reads])
    readers, values = readers[values >= 0], values[values >= 0]
    made = model.producer[values] >= 0
    readers, values = readers[made], values[made]
    cut = np.unique(values[subgraph_of[model.producer[values]] != subgraph_of[readers]])
    names = [model.value_name(value) for value in cut.tolist() if model.is_tensor(value)]
    sources = {
        model.value_name(value): int(subgraph_of[model.producer[value]]) + 1
        for value in (*cut.tolist(), *model.output_ids)
        if model.producer[value] >= 0
    }
    return model.with_outputs(names), sources
