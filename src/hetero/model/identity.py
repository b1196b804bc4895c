"""The digest of a model's graph. Plans and cost files use it to identify their model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from .model import Model

__all__ = ["graph_digest"]


def graph_digest(model: Model) -> str:
    """The SHA-256 of operators, node keys, names of inputs and outputs, and edges. It does not depend on weights,
    attributes, or how the model was read. O(nodes + edges)."""
    import hashlib  # late: loads OpenSSL, 3 ms and 3 MB

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
    # Values are numbered by first occurrence, because value ids depend on how the model was created.
    values = np.concatenate([*(part.values for part in rows), np.array(model.output_ids, np.int32)])
    add(_by_occurrence(values)[1].tobytes())
    return digest.hexdigest()


def _by_occurrence(numbers: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The distinct numbers in order of first occurrence, and the array as indices into this order; -1 stays -1."""
    distinct, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty(len(distinct), "<i4")
    rank[order] = np.arange(len(distinct))
    ranked = rank[inverse.reshape(-1)]
    ranked[numbers < 0] = -1
    return distinct[order], ranked
