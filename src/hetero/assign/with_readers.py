"""Nodes that depend on constants only go where their results are read.

A device folds such nodes of its submodel when it compiles it, and `hetero.compiling.folding` folds those whose results
pass between subgraphs. So they cost nothing in an inference, and a subgraph of their own gains nothing: a
DequantizeLinear of weights belongs with the MatMul that reads it, even if another device comes first in the list.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..model.constant_nodes import inner_constant_nodes
from .affinity import Affinity, Origin

if TYPE_CHECKING:
    from ..model.model import Model

__all__ = ["WithReaders"]


class WithReaders:
    """Moves nodes of a model to the devices of their readers.

    A node moves if it depends on constants only and makes no output of the model (`inner_constant_nodes`); if no pin,
    affinity in the model or group determines its device; if a node reads it; and if the device supports it. If its
    readers are on several devices, it goes to the first reader, in running order, whose device supports it: there it
    needs no subgraph of its own, because no other reader runs before. If none of them supports it, it stays.
    """

    def __init__(self, model: Model, affinity: Affinity) -> None:
        self._graph = model.graph
        self._supported = np.stack([support.mask for support in affinity.supports])
        self._nodes: list[int] = []
        movable = inner_constant_nodes(model)
        if movable is not None and len(affinity.devices) > 1:
            movable &= affinity.origin == Origin.PRIORITY
            for group in affinity.groups:
                movable[group] = False
            movable &= np.diff(self._graph.indptr) > 0
            self._nodes = np.flatnonzero(movable)[::-1].tolist()  # readers first: nodes are in topological order

    def place(self, device_of: NDArray[np.int32], in_order: bool = False) -> NDArray[np.int32]:
        """The assignment with these nodes moved; the same array if none moves. ``in_order``: devices are the stages of
        a pipeline, so a node moves only to the first stage that reads it."""
        graph, placed = self._graph, device_of
        for node in self._nodes:
            readers = graph.indices[graph.indptr[node] : graph.indptr[node + 1]]
            devices = [int(placed[readers].min())] if in_order else placed[np.sort(readers)].tolist()
            device = next((one for one in devices if self._supported[one, node]), None)
            if device is not None and device != placed[node]:
                if placed is device_of:
                    placed = device_of.copy()
                placed[node] = device
        return placed

    def first(self, affinity: Affinity) -> Affinity:
        """An assignment by priority with these nodes moved."""
        device_of = self.place(affinity.device_of)
        device_of.setflags(write=False)
        return affinity if device_of is affinity.device_of else dataclasses.replace(affinity, device_of=device_of)

    def with_reasons(self, affinity: Affinity) -> Affinity:
        """The affinity in which neither costs nor memory limits are the reason for the devices of nodes that are with
        a reader."""
        graph, device_of = self._graph, affinity.device_of
        placed = [
            node
            for node in self._nodes
            if device_of[node] in device_of[graph.indices[graph.indptr[node] : graph.indptr[node + 1]]]
        ]
        if not placed:
            return affinity
        origin = affinity.origin.copy()
        origin[placed] = Origin.PRIORITY
        origin.setflags(write=False)
        return dataclasses.replace(affinity, origin=origin)
