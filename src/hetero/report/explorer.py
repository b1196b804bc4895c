"""Overlays for Model Explorer (google-ai-edge): the device and the time of each node, as "node data" JSON.

In Model Explorer, open the ONNX model and choose *View on node > Add per-node data*. A file contains the data of one
graph (``results`` at the top). Each key is a node's id, which the ONNX adapter takes from the node's name, or the name
of one of the node's output tensors. Nodes without a matching key get no color.

``node_data_builder.py`` of the package ai-edge-model-explorer defines the format.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.files import write_file
from ..base.names import file_stem
from ..base.palette import device_color, tint
from ..plugin.profile import EXECUTED, ProfileRow

if TYPE_CHECKING:
    from ..plan import PlanRecord

__all__ = ["device_overlay", "latency_overlay", "write_overlays"]

# From light to dark, so that the order is visible without colors too.
_GRADIENT = ((0.0, "#fff7ec"), (0.25, "#fdd49e"), (0.5, "#fc8d59"), (0.75, "#d7301f"), (1.0, "#7f0000"))


def device_overlay(plan: PlanRecord) -> str:
    """JSON text: node key -> device, in the colors of the other pictures."""
    colors = {device: tint(device_color(number), 0.6) for number, device in enumerate(plan.devices)}
    results = {key: {"value": device, "bgColor": colors[device]} for key, device in plan.affinity.items()}
    return _text(
        {
            "name": "device",
            "results": results,
            "showExpandedSummaryOnGroupNode": True,
            "showLabelCountColumnsInChildrenStatsTable": True,
        }
    )


def latency_overlay(profile: Iterable[ProfileRow]) -> str:
    """JSON text: node key -> time in µs of the nodes that ran, colored from the fastest to the slowest."""
    results: dict[str, dict[str, float]] = {}
    for row in profile:
        if row.status == EXECUTED:
            entry = results.setdefault(row.node, {"value": 0.0})
            entry["value"] = round(entry["value"] + row.real_us, 3)
    return _text(
        {
            "name": "latency (microseconds)",
            "results": results,
            "gradient": [{"stop": stop, "bgColor": color} for stop, color in _GRADIENT],
        }
    )


def write_overlays(
    plan: PlanRecord, profile: Iterable[ProfileRow] | None = None, folder: str | os.PathLike[str] = "."
) -> tuple[Path, ...]:
    """Write ``hetero_device_<model>.json`` and, with a profile, ``hetero_latency_<model>.json``. Returns their paths.

    Raises `HeteroError` if a file cannot be written.
    """
    texts = {"device": device_overlay(plan)}
    if profile is not None:
        texts["latency"] = latency_overlay(profile)
    stem = file_stem(plan.model_name)
    paths = []
    for kind, text in texts.items():
        path = Path(folder) / f"hetero_{kind}_{stem}.json"
        write_file(path, [text.encode()])
        paths.append(path)
    return tuple(paths)


def _text(data: dict[str, Any]) -> str:
    return json.dumps(data, separators=(",", ":"))
