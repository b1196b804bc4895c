"""A plan as a small picture for notebooks: its subgraphs in the order in which they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..base.formatting import counted, duration
from ..base.lanes import Box, lanes_svg
from ..base.names import shortened
from .bound import BoundPlan

if TYPE_CHECKING:
    from .record import PlanRecord

__all__ = ["plan_svg"]


def plan_svg(plan: PlanRecord) -> str:
    """The subgraphs of a plan in running order, in a lane for each device. Boxes show the predicted times if the plan
    has them; otherwise their width depends on the number of nodes. Arrows connect subgraphs that pass values."""
    parts = plan.subgraphs
    lanes = list(plan.devices)
    max_nodes = max((len(part.nodes) for part in parts), default=1)
    boxes, at = [], 0.0
    latency = plan.latency
    times = [] if latency is None else list(zip(latency.begin_s, latency.end_s, strict=True))
    is_timed = bool(times) and len(times) == len(parts)
    for number, part in enumerate(parts, start=1):
        count = counted(len(part.nodes), "node")
        tip = f"subgraph {number} on {part.device}: {count}, {part.nodes[0]} … {part.nodes[-1]}"
        if is_timed:
            begin, end = times[number - 1]
            tip += f"; {duration(end - begin)}"
        else:
            begin, end = at, at + 1.0 + 2.0 * len(part.nodes) / max_nodes
            at = end + 0.35
        boxes.append(Box(lanes.index(part.device), begin, end, str(number), tip))
    counts = dict.fromkeys(lanes, 0)
    for part in parts:
        counts[part.device] += len(part.nodes)
    title = f"{shortened(plan.model_name, 60)}: {counted(len(parts), 'subgraph')}"
    notes = [f"{device} · {counted(counts[device], 'node')}" for device in lanes]
    below = "in the order in which they run"
    if latency is not None and is_timed:
        below = f"predicted: {duration(latency.total_s)}"
    return lanes_svg(title, notes, boxes, _edges_of(plan), below)


def _edges_of(plan: PlanRecord) -> list[tuple[int, int]]:
    """Pairs of subgraphs between which values pass."""
    if not isinstance(plan, BoundPlan):
        return [(value.source - 1, reader - 1) for value in plan.values for reader in value.readers]
    traffic = plan.traffic
    source = np.repeat(traffic.source, np.diff(traffic.readers.indptr))
    return list(zip(source.tolist(), traffic.readers.values.tolist(), strict=True))
