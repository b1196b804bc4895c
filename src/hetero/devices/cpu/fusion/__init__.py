"""Passes over the kernel calls of a segment, before its memory is laid out: several calls become one.

Shapes are known by then, and so is who reads what, so a pass looks at calls and never at ONNX nodes. What a segment
hands on is never fused away. A fused call counts as the node that does most of the work, in errors and
counters.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..values import Call
from . import activations, attention, chains, epilogues, layer_norm, views
from .graph import CallGraph

__all__ = ["PASSES", "fuse"]

PASSES = (
    activations.recognise,
    layer_norm.recognise,
    attention.recognise,
    epilogues.absorb,
    layer_norm.add_before,
    chains.fuse_elementwise,
    views.join_copies,
)


def fuse(calls: Sequence[Call], kept: Collection[int]) -> list[Call]:
    """The calls after all passes. ``kept``: storages that are read after the segment."""
    graph = CallGraph(calls, kept)
    for run in PASSES:
        run(graph)
    return graph.result()
