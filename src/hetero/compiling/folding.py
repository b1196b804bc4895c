"""Folds constants that pass between subgraphs.

A device folds the nodes of its submodel that depend on constants only. If the reader of such a node is in another
subgraph, the device of the node would compute it again in each inference, and the device of the reader could not pack
it. These nodes therefore run once, on their planned devices, when the model is compiled; their results become constants
of the model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import HeteroError, UnsupportedModel, raise_out_of_memory
from ..model.constant_nodes import constant_nodes
from ..model.model import Model
from ..model.types import element_bits, onnx_dtype_of

__all__ = ["Folded", "fold_between"]

# Results may take this many bytes per byte of the constants that they depend on (4-bit weights become float32), or up
# to the second limit, in B. Larger ones, such as the result of a ConstantOfShape, would only take memory.
_GROWTH = 16
_SMALL_BYTES = 16 << 20

Run = Callable[[int, Model, Mapping[str, NDArray[Any]]], Mapping[str, Any]]
"""The number of a subgraph, a part of it, and the part's inputs -> the part's outputs."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Folded:
    """``model``: without the folded nodes. ``nodes``: the remaining nodes of each subgraph, in numbers of ``model``."""

    model: Model
    nodes: list[NDArray[np.int32]]


def fold_between(model: Model, subgraphs: Sequence[NDArray[np.int32]], run: Run) -> Folded | None:
    """Fold the nodes whose results are constant and pass between subgraphs, and the nodes that they depend on.

    ``subgraphs``: the nodes of each, in running order. ``run``: runs a part of one on its device. Returns None if there
    is nothing to fold, if running fails, or if a result is too large or of a type that cannot be folded.
    """
    if len(subgraphs) < 2:
        return None
    folds = _nodes_to_fold(model, subgraphs)
    if folds is None:
        return None
    try:
        results = _results(model, subgraphs, folds, run)
    except HeteroError as error:  # reported by the inference that reaches the node, if any does
        raise_out_of_memory(error)
        return None
    if results is None:
        return None
    position = np.cumsum(~folds, dtype=np.int32) - 1
    remaining = [position[nodes[~folds[nodes]]] for nodes in subgraphs]
    return Folded(model.with_folded(np.flatnonzero(folds).tolist(), results), remaining)


def _nodes_to_fold(model: Model, subgraphs: Sequence[NDArray[np.int32]]) -> NDArray[np.bool_] | None:
    """bool[num_nodes], or None if there are none."""
    constant = constant_nodes(model)
    if constant is None:
        return None
    graph = model.graph
    subgraph_of = np.empty(model.num_nodes, np.int32)
    for number, nodes in enumerate(subgraphs):
        subgraph_of[nodes] = number
    source = np.repeat(np.arange(model.num_nodes), np.diff(graph.indptr))
    passing = constant[source] & (subgraph_of[source] != subgraph_of[graph.indices])
    pending = np.unique(source[passing]).tolist()
    if not pending:
        return None
    folds = np.zeros(model.num_nodes, np.bool_)
    folds[_with_makers(model, pending)] = True
    return folds


def _with_makers(model: Model, nodes: Iterable[int]) -> NDArray[np.intp]:
    """These nodes and all that they depend on, ascending."""
    reached = np.zeros(model.num_nodes, np.bool_)
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if not reached[node]:
            reached[node] = True
            read = model.node_inputs[node]
            pending += [maker for maker in model.producer[read[read >= 0]].tolist() if maker >= 0]
    return np.flatnonzero(reached)


def _reads(model: Model) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
    """Each node with each value that it or its nested graphs read."""
    nodes, values = [], []
    for ragged in (model.node_inputs, model.node_captures):
        present = ragged.values >= 0
        nodes.append(np.repeat(np.arange(model.num_nodes), np.diff(ragged.indptr))[present])
        values.append(ragged.values[present])
    return np.concatenate(nodes), np.concatenate(values)


def _results(
    model: Model, subgraphs: Sequence[NDArray[np.int32]], folds: NDArray[np.bool_], run: Run
) -> dict[str, NDArray[Any]] | None:
    """Name -> array, for the results of folded nodes that other nodes or the model's outputs need."""
    reader, value = _reads(model)
    made = model.producer >= 0
    made[made] = folds[model.producer[made]]
    needed = np.zeros(model.num_values, np.bool_)
    needed[value[~folds[reader]]] = True
    needed[list(model.output_ids)] = True
    names = {model.value_name(one) for one in np.flatnonzero(needed & made).tolist()}
    allowed = max(_SMALL_BYTES, _GROWTH * _bytes_of(model, np.unique(value[folds[reader] & model.is_constant[value]])))
    known: dict[str, NDArray[Any]] = {}
    for number, nodes in enumerate(subgraphs):
        inside = nodes[folds[nodes]]
        if not len(inside):
            continue
        part = model.extract(inside, f"{model.name}_constants{number + 1}")
        try:
            found = run(number, part, {port.name: known[port.name] for port in part.inputs})
        except UnsupportedModel:
            if not part.inputs:
                raise
            # A device may support nodes only if their operands are constants, so it runs the nodes before as well.
            whole = run(number, model.extract(_with_makers(model, inside), part.name), {})
            found = {port.name: whole[port.name] for port in part.outputs}
        for name, result in found.items():
            if not isinstance(result, np.ndarray) or not _is_plain(result.dtype):
                return None
            known[name] = np.ascontiguousarray(result).reshape(result.shape).copy()
        if sum(array.nbytes for array in known.values()) > allowed:
            return None
    return {name: known[name] for name in names}


def _is_plain(dtype: np.dtype[Any]) -> bool:
    """Whether arrays have the same layout in NumPy and ONNX."""
    number = onnx_dtype_of(dtype)
    return number > 0 and not dtype.hasobject and dtype.kind not in "US" and element_bits(number) >= 8


def _bytes_of(model: Model, constants: NDArray[np.int32]) -> int:
    """The size of these constants, without strings."""
    total = 0
    for value in constants.tolist():
        known = model.constant_type(value)
        if known.dtype is not None and not known.dtype.hasobject:
            total += model.constants.nbytes(int(model.file.value_constant[model.file_value(value)]))
    return total
