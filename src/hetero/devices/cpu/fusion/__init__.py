"""Fusion passes: rewrite rules over the kernel calls of a segment, applied before its memory is laid out.

Shapes and readers are known at this point, so a pass looks at calls and never at ONNX nodes. Each pass states its
conditions in the header of its file. No pass removes a value that is read after the segment. In errors and counters, a
fused call stands for the node that does most of its work.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..values import Call, Context
from . import (
    activations,
    attention,
    chains,
    conversions,
    epilogues,
    gathered,
    layer_norm,
    padding,
    pointwise_depthwise,
    transposed,
    views,
)
from .graph import CallGraph

__all__ = ["PASSES", "fuse"]

PASSES = (
    activations.recognize,
    layer_norm.recognize,
    attention.recognize,
    transposed.absorb_transposes,
    padding.absorb,
    epilogues.absorb,
    pointwise_depthwise.join,
    layer_norm.add_before,
    chains.fuse_elementwise,
    views.join_copies,
)


def fuse(context: Context, calls: Sequence[Call], kept: Collection[int]) -> list[Call]:
    """Return ``calls`` after all passes, without those of branches. ``kept``: storages that are read after them."""
    placed = conversions.place_conversions(calls, kept, chains.may_join, context.new_storage)
    graph = CallGraph(placed, kept)
    gathered.multiply_in_place(graph, context)
    for run in PASSES:
        run(graph)
    return graph.result()
