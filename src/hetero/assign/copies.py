"""A DequantizeLinear for each reader, so that values pass between devices in the quantized type.

A DequantizeLinear that nodes on two devices read is on one of them, so its float32 result passes to the other, and
units that contain it (`Support.units`) may be incomplete there. With a copy for each reader, each device dequantizes
what it reads. Copies are made only for lists with a device that has units, because other devices compute the
DequantizeLinear as a node of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..model.copies import copy_key, may_copy
from .affinity import Affinity, Origin
from .memory.values import DEQUANTIZING, nodes_of, values_of

if TYPE_CHECKING:
    from ..model.model import Model
    from ..partition import Partition
    from .assignment import Assignment

__all__ = ["copies_apart", "is_better", "reads_to_copy"]


def reads_to_copy(model: Model, first: Affinity, partition: Partition | None) -> Iterator[tuple[int, int]]:
    """Pairs of a DequantizeLinear and a reader that would gain from a copy: the readers of the node go to several
    devices or subgraphs, and its result is larger than what it reads. The readers that are with the node keep it; if
    none is, the first reader does. Nodes in groups, pinned ones and those with an affinity in the model are left out.

    ``first``: the devices by priority and pins, before constraints moved nodes from incomplete units. ``partition``:
    the subgraphs, if an assignment was found.
    """
    graph = model.graph
    subgraph_of = first.device_of if partition is None else partition.subgraph_of
    is_fixed = np.isin(first.origin, (Origin.PIN, Origin.MODEL))
    for group in first.groups:
        is_fixed[group] = True
    shared = nodes_of(model, DEQUANTIZING)
    shared = shared[(np.diff(graph.indptr)[shared] > 1) & ~is_fixed[shared]]
    size = values_of(model).bytes if len(shared) else np.zeros(0)
    for node in shared.tolist():
        readers = graph.successors(node)
        source, made = int(model.node_inputs[node][0]), int(model.node_outputs[node][0])
        if source < 0 or made < 0 or size[made] <= size[source]:
            continue
        places = np.stack([subgraph_of[readers], first.device_of[readers]])
        with_node = places[0] == subgraph_of[node]
        home = places[:, np.argmax(with_node)] if with_node.any() else places[:, 0]
        for reader in readers[(places != home[:, None]).any(axis=0)].tolist():
            if may_copy(model, node, reader):
                yield node, reader


def copies_apart(model: Model, reads: Sequence[tuple[int, int]], assignment: Assignment) -> list[tuple[int, int]]:
    """The ``reads`` of ``model`` whose copy is in another subgraph than the node that it copies. ``assignment``: of the
    model with the copies."""
    find, subgraph_of = assignment.model.index_of, assignment.partition.subgraph_of
    return [
        (node, reader)
        for node, reader in reads
        if subgraph_of[find(copy_key(model, node, reader))] != subgraph_of[find(model.key_of(node))]
    ]


def is_better(new: Assignment, old: Assignment) -> bool:
    """Whether an assignment with copies of nodes is better: predicted to be faster, if the nodes are assigned by costs;
    otherwise, if more nodes are on earlier devices, or as many and fewer bytes pass between subgraphs."""
    if new.latency is not None and old.latency is not None:
        return new.latency.total_s < old.latency.total_s
    if new.pipeline is not None and old.pipeline is not None:
        return new.pipeline.interval_s < old.pipeline.interval_s
    return _rank(new) < _rank(old)


def _rank(assignment: Assignment) -> tuple[int, float]:
    model, device_of = assignment.model, assignment.affinity.device_of
    counted = np.ones(model.num_nodes, np.bool_)
    counted[nodes_of(model, DEQUANTIZING)] = False
    values, subgraph_of = values_of(model), assignment.partition.subgraph_of
    maker = values.producer[values.read_value]
    passes = (maker >= 0) & (subgraph_of[maker] != subgraph_of[values.read_node])
    return int(device_of[counted].sum()), float(values.bytes[np.unique(values.read_value[passes])].sum())
