"""Nodes that depend on constants only, and so have the same results in each inference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .element_types import has_rule

if TYPE_CHECKING:
    from .model import Model

__all__ = ["constant_nodes", "inner_constant_nodes", "may_fold"]

# Operators that may have another result each time.
_RANDOM_NAMES = (
    "Bernoulli Dropout Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike "
    "com.microsoft::BiasDropout com.microsoft::BitmaskBiasDropout com.microsoft::BitmaskDropout"
)
_RANDOM = frozenset(_RANDOM_NAMES.split())

# Operators with nested graphs, which may hold random operators.
_NAMES_WITH_GRAPHS = (
    "If Loop Scan SequenceMap com.microsoft::BeamSearch com.microsoft::GreedySearch com.microsoft::Sampling "
    "com.microsoft::WhisperBeamSearch"
)
_WITH_GRAPHS = frozenset(_NAMES_WITH_GRAPHS.split())


def constant_nodes(model: Model) -> NDArray[np.bool_] | None:
    """bool[num_nodes]: nodes that depend on constants only and always have the same results. None if there are none.

    Left out: nodes without inputs, with nested graphs, calls of functions, random operators, and operators of other
    domains whose results hetero does not know.
    """
    graph = model.graph
    folds = np.array([may_fold(model, name) for name in model.op_types], np.bool_)[model.op_type_of]
    folds &= np.diff(model.node_inputs.indptr) > 0
    for rows in (model.node_inputs, model.node_captures):
        reader = np.repeat(np.arange(model.num_nodes), np.diff(rows.indptr))[rows.values >= 0]
        value = rows.values[rows.values >= 0]
        folds[reader[(model.producer[value] < 0) & ~model.is_constant[value]]] = False
    missing = np.bincount(graph.indices, minlength=model.num_nodes)  # operands that are not known to be constant
    pending = np.flatnonzero(folds & (missing == 0)).tolist()
    if not pending:
        return None
    constant = np.zeros(model.num_nodes, np.bool_)
    while pending:
        node = pending.pop()
        constant[node] = True
        for reader_of_node in graph.indices[graph.indptr[node] : graph.indptr[node + 1]].tolist():
            missing[reader_of_node] -= 1
            if not missing[reader_of_node] and folds[reader_of_node]:
                pending.append(reader_of_node)
    return constant


def inner_constant_nodes(model: Model) -> NDArray[np.bool_] | None:
    """bool[num_nodes]: the nodes that depend on constants only, and make no output of the model. None if there are
    none."""
    constant = constant_nodes(model)
    if constant is None:
        return None
    producers = model.producer[list(model.output_ids)]
    constant[producers[producers >= 0]] = False
    return constant if constant.any() else None


def may_fold(model: Model, name: str) -> bool:
    """Whether an operator of `Model.op_types` always has the same results for the same operands, as far as its name
    says."""
    domain, _, op_type = name.rpartition("::")
    if name in _RANDOM or name in _WITH_GRAPHS or (domain, op_type) in model.functions:
        return False
    return not domain or has_rule(domain, op_type)
