"""The digest of a model's graph, by which plans and files of costs know their model."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from .model import Model

__all__ = ["graph_digest"]


def graph_digest(model: Model) -> str:
    """SHA-256 over operators, node keys, the names of inputs and outputs, and which node reads what: the same for the
    same graph with other weights or attributes, however it was read. O(nodes + edges)."""
    digest = hashlib.sha256()

    def add(data: bytes) -> None:
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)

    used, operators = _by_occurrence(model.op_type_of)
    for names in ([model.op_types[op] for op in used.tolist()], model.keys):
        add("\0".join(names).encode("utf-8", "surrogatepass"))
    for ids in (model.input_ids, model.output_ids):
        add("\0".join(map(model.value_name, ids)).encode("utf-8", "surrogatepass"))
    add(operators.tobytes())
    rows = (model.node_outputs, model.node_inputs, model.node_captures)
    for part in rows:
        add(part.indptr.astype("<i4").tobytes())
    # Values by the order in which they occur, as their numbers depend on how the model was made.
    values = np.concatenate([*(part.values for part in rows), np.array(model.output_ids, np.int32)])
    add(_by_occurrence(values)[1].tobytes())
    return digest.hexdigest()


def _by_occurrence(numbers: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The distinct numbers in order of first occurrence, and the array as places in that order; -1 stays."""
    distinct, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty(len(distinct), "<i4")
    rank[order] = np.arange(len(distinct))
    ranked = rank[inverse.reshape(-1)]
    ranked[numbers < 0] = -1
    return distinct[order], ranked
