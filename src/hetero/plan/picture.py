"""A plan as a small picture for notebooks: its subgraphs in the order in which they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..base.formatting import counted
from ..base.lanes import Box, lanes_svg
from ..base.names import shortened
from .bound import BoundPlan

if TYPE_CHECKING:
    from .record import PlanRecord

__all__ = ["plan_svg"]


def plan_svg(plan: PlanRecord) -> str:
    """The subgraphs of a plan in running order, in a lane for each device. The width of a box depends on the number of
    its nodes. Arrows connect subgraphs that pass values."""
    parts = plan.subgraphs
    lanes = list(plan.devices)
    max_nodes = max((len(part.nodes) for part in parts), default=1)
    boxes, at = [], 0.0
    for number, part in enumerate(parts, start=1):
        width = 1.0 + 2.0 * len(part.nodes) / max_nodes
        count = counted(len(part.nodes), "node")
        tip = f"subgraph {number} on {part.device}: {count}, {part.nodes[0]} … {part.nodes[-1]}"
        boxes.append(Box(lanes.index(part.device), at, at + width, str(number), tip))
        at += width + 0.35
    counts = dict.fromkeys(lanes, 0)
    for part in parts:
        counts[part.device] += len(part.nodes)
    title = f"{shortened(plan.model_name, 60)}: {counted(len(parts), 'subgraph')}"
    notes = [f"{device} · {counted(counts[device], 'node')}" for device in lanes]
    return lanes_svg(title, notes, boxes, _edges_of(plan), "in the order in which they run")


def _edges_of(plan: PlanRecord) -> list[tuple[int, int]]:
    """Pairs of subgraphs between which values pass."""
    if not isinstance(plan, BoundPlan):
        return [(value.source - 1, reader - 1) for value in plan.values for reader in value.readers]
    traffic = plan.traffic
    source = np.repeat(traffic.source, np.diff(traffic.readers.indptr))
    return list(zip(source.tolist(), traffic.readers.values.tolist(), strict=True))
