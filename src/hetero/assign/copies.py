"""Values that pass between devices in the quantized type.

A DequantizeLinear that nodes on two devices read is on one of them, so its float32 result passes to the other, and
units that contain it (`Support.units`) may be incomplete there. With a copy for each reader, each device dequantizes
what it reads. By priority, a QuantizeLinear or DequantizeLinear may also be on the wrong side of a cut: `wide_cuts`.
Both matter only for lists with a device that has units, because other devices compute these nodes as nodes of their
own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..model.copies import copy_key, may_copy
from ..model.types import element_bits, onnx_dtype_of
from .affinity import Affinity, Origin
from .memory.values import DEQUANTIZING, QUANTIZING, nodes_of, values_of

if TYPE_CHECKING:
    from ..model.model import Model
    from ..partition import Partition
    from .assignment import Assignment

__all__ = ["copies_apart", "is_better", "passing", "reads_to_copy", "wide_cuts"]


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
    for node in shared.tolist():
        readers = graph.successors(node)
        source, made = int(model.node_inputs[node][0]), int(model.node_outputs[node][0])
        if not 0 < _bits(model, source) < _bits(model, made):
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


def _rank(assignment: Assignment) -> tuple[int, float, float]:
    model, device_of = assignment.model, assignment.affinity.device_of
    counted = np.ones(model.num_nodes, np.bool_)
    counted[nodes_of(model, DEQUANTIZING)] = False
    return int(device_of[counted].sum()), *passing(assignment)


def passing(assignment: Assignment) -> tuple[float, float]:
    """The bytes of the values that pass between subgraphs; and the bits of an element of each of unknown size."""
    values, subgraph_of = values_of(assignment.model), assignment.partition.subgraph_of
    maker = values.producer[values.read_value]
    passes = (maker >= 0) & (subgraph_of[maker] != subgraph_of[values.read_node])
    passed = np.unique(values.read_value[passes])
    unknown = passed[~values.known[passed]].tolist()
    return float(values.bytes[passed].sum()), float(sum(_bits(assignment.model, value) for value in unknown))


def wide_cuts(assignment: Assignment) -> Iterator[tuple[int, int, str]]:
    """Device, node and the reason, for each QuantizeLinear and DequantizeLinear that should leave its device, because
    its larger value then does not pass to or from another device, which supports the node.

    Left out: nodes in groups, or that a pin or the model places; nodes with computed scales; results that are outputs;
    and inputs of QuantizeLinear that other nodes read across the cut, so that they pass in any case.
    """
    model, affinity, device_of = assignment.model, assignment.affinity, assignment.affinity.device_of
    is_free = affinity.origin == Origin.PRIORITY
    for group in affinity.groups:
        is_free[group] = False
    mask = np.stack([support.mask for support in affinity.supports])
    leaving: dict[int, tuple[int, int]] = {}  # QuantizeLinear -> value that it reads, device that makes it
    for node in nodes_of(model, QUANTIZING).tolist():
        source, made = int(model.node_inputs[node][0]), int(model.node_outputs[node][0])
        maker = int(model.producer[source]) if source >= 0 else -1
        if maker < 0 or not is_free[node] or device_of[maker] == device_of[node] or not mask[device_of[maker], node]:
            continue
        if model.graph.predecessors(node).tolist() == [maker] and 0 < _bits(model, made) < _bits(model, source):
            leaving[node] = source, int(device_of[maker])
    for node, (source, other) in leaving.items():
        readers = model.graph.successors(int(model.producer[source])).tolist()
        reads = (one for one in readers if source in model.node_inputs[one] or source in model.node_captures[one])
        if all(one in leaving or device_of[one] == other for one in reads):
            yield (
                int(device_of[node]),
                node,
                f"its input is made on {affinity.devices[other]} and is larger than its result",
            )
    for node in nodes_of(model, DEQUANTIZING).tolist():
        readers = model.graph.successors(node)
        if not is_free[node] or not len(readers) or (device_of[readers] != device_of[readers[0]]).any():
            continue
        source, made = int(model.node_inputs[node][0]), int(model.node_outputs[node][0])
        other = int(device_of[readers[0]])
        if other == device_of[node] or not mask[other, node] or made in model.output_ids or model.is_constant[source]:
            continue
        makers = [one for one in [int(model.producer[source])] if one >= 0]
        if model.graph.predecessors(node).tolist() == makers and 0 < _bits(model, source) < _bits(model, made):
            yield (
                int(device_of[node]),
                node,
                f"its result is read on {affinity.devices[other]} and is larger than its input",
            )


def _bits(model: Model, value: int) -> int:
    """The number of bits of a value's elements; 0 if the value is absent or its type is unknown."""
    dtype = model.type_of(value).dtype if value >= 0 else None
    return 0 if dtype is None else element_bits(onnx_dtype_of(dtype))
