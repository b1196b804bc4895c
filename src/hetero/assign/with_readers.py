"""Nodes that depend on constants only go where their results are read.

A device folds such nodes of its submodel when it compiles it, and `hetero.compiling.folding` folds those whose results
pass between subgraphs. So they cost nothing in an inference, and a subgraph of their own gains nothing: a
DequantizeLinear of weights belongs with the MatMul that reads it, even if another device comes first in the list.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..model.constant_nodes import inner_constant_nodes
from .affinity import Affinity, Origin

if TYPE_CHECKING:
    from ..model.model import Model
    from ..partition import Graph
    from ..plugin.contract import Support

__all__ = ["WithReaders"]


class WithReaders:
    """Moves nodes of a model to the devices of their readers.

    A node moves if it depends on constants only and makes no output of the model (`inner_constant_nodes`); if no pin,
    affinity in the model or group determines its device; if a node reads it; and if the device supports it. If its
    readers are on several devices, it goes to the first reader, in running order, whose device supports it: there it
    needs no subgraph of its own, because no other reader runs before. If none of them supports it, it stays.
    """

    def __init__(self, model: Model, supports: Sequence[Support], is_free: NDArray[np.bool_] | None = None) -> None:
        """``is_free``: bool [num_nodes], the nodes whose device nothing else determines; None: all."""
        graph = model.graph
        self._supported = np.stack([support.mask for support in supports])
        self._levels: list[_Level] = []
        movable = inner_constant_nodes(model)
        if movable is not None and len(supports) > 1:
            if is_free is not None:
                movable &= is_free
            movable &= np.diff(graph.indptr) > 0
            self._levels = _levels(graph, movable)

    @classmethod
    def of(cls, model: Model, affinity: Affinity) -> WithReaders:
        """For the nodes of an assignment that are there by priority."""
        is_free = affinity.origin == Origin.PRIORITY
        for group in affinity.groups:
            is_free[group] = False
        return cls(model, affinity.supports, is_free)

    def place(self, device_of: NDArray[np.int32], in_order: bool = False) -> NDArray[np.int32]:
        """The assignment with these nodes moved; the same array if none moves. Nodes with device -1 are on none.
        ``in_order``: devices are the stages of a pipeline, so a node moves only to the first stage that reads it."""
        placed = device_of.copy()
        for level in self._levels:  # readers first
            devices = placed[level.readers]
            if in_order:
                devices = np.minimum.reduceat(devices, level.begins)[level.node_of_read]
            possible = (devices >= 0) & self._supported[devices, level.nodes[level.node_of_read]]
            first = np.minimum.reduceat(np.where(possible, np.arange(len(devices)), len(devices)), level.begins)
            moves = first < len(devices)
            placed[level.nodes[moves]] = devices[first[moves]]
        return device_of if np.array_equal(placed, device_of) else placed

    def first(self, affinity: Affinity) -> Affinity:
        """An assignment by priority with these nodes moved."""
        device_of = self.place(affinity.device_of)
        device_of.setflags(write=False)
        return affinity if device_of is affinity.device_of else dataclasses.replace(affinity, device_of=device_of)

    def with_reasons(self, affinity: Affinity) -> Affinity:
        """The affinity in which neither costs, memory limits nor a plan file are the reason for the devices of nodes
        that are with a reader."""
        if not self._levels:
            return affinity
        device_of, origin = affinity.device_of, affinity.origin.copy()
        for level in self._levels:
            beside = device_of[level.readers] == device_of[level.nodes[level.node_of_read]]
            origin[level.nodes[np.logical_or.reduceat(beside, level.begins)]] = Origin.PRIORITY
        origin.setflags(write=False)
        return dataclasses.replace(affinity, origin=origin)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Level:
    """Nodes whose readers do not move, or are in an earlier level. ``readers``: of each node, in running order, one
    node after the other; ``begins``: where those of each node begin; ``node_of_read``: the place of each reader's node
    in ``nodes``."""

    nodes: NDArray[np.intp]
    readers: NDArray[np.int32]
    begins: NDArray[np.intp]
    node_of_read: NDArray[np.intp]


def _levels(graph: Graph, movable: NDArray[np.bool_]) -> list[_Level]:
    """The movable nodes, each with a reader. O(reads log reads)."""
    height = np.zeros(len(movable), np.intp)
    source = np.repeat(np.arange(len(movable)), np.diff(graph.indptr))
    inner = np.flatnonzero(movable[source] & movable[graph.indices])  # reads among movable nodes
    for maker, reader in zip(source[inner[::-1]].tolist(), graph.indices[inner[::-1]].tolist(), strict=True):
        height[maker] = max(height[maker], height[reader] + 1)  # nodes are in topological order
    reads = np.flatnonzero(movable[source])
    reads = reads[np.lexsort((graph.indices[reads], source[reads], height[source[reads]]))]
    bounds = np.flatnonzero(np.diff(height[source[reads]], prepend=-1, append=-1))
    levels = []
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        part = reads[begin:end]
        nodes, begins, node_of_read = np.unique(source[part], return_index=True, return_inverse=True)
        levels.append(_Level(nodes, graph.indices[part], begins, node_of_read))
    return levels
