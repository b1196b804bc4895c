"""Fusion passes: rewrite rules over the kernel calls of a segment, applied before its memory is laid out.

Shapes and readers are known at this point, so a pass looks at calls and never at ONNX nodes. Each pass states its
conditions in the header of its file. No pass removes a value that is read after the segment. In errors and counters, a
fused call stands for the node that does most of its work.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ..values import Call
from . import activations, attention, chains, conversions, epilogues, layer_norm, padding, views
from .graph import CallGraph

__all__ = ["PASSES", "fuse"]

PASSES = (
    activations.recognize,
    layer_norm.recognize,
    attention.recognize,
    padding.absorb,
    epilogues.absorb,
    layer_norm.add_before,
    chains.fuse_elementwise,
    views.join_copies,
)


def fuse(calls: Sequence[Call], kept: Collection[int], new_storage: Callable[[], int]) -> list[Call]:
    """Return the calls after all passes. ``kept``: storages that are read after the segment. ``new_storage``: returns a
    number that no storage has."""
    placed = conversions.place_conversions(calls, kept, chains.may_join, new_storage)
    graph = CallGraph(placed, kept)
    for run in PASSES:
        run(graph)
    return graph.result()
