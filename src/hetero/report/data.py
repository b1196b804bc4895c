"""The data of the report, as columns of numbers and strings for JSON.

Nodes are renumbered by subgraph and then in topological order, so the nodes of a subgraph are a range. Repeated strings
(operators, reasons, types) are stored once. `docs/pictures.md` describes the columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..assign.affinity import Affinity
from ..assign.predictions import PredictedPipeline
from ..base.names import clean
from ..plan import Plan, PlanRecord
from ..plan.traffic import Boundary
from ..plugin.profile import EXECUTED, Profile, ProfileRow, with_bodies_summed
from .model_columns import model_columns, type_text
from .numbers import Numbers

__all__ = ["report_data"]


def report_data(plan: PlanRecord, profiles: Profile | Iterable[Profile] | None = None) -> dict[str, Any]:
    """The columns of a plan and, with profiles, of a run; without, of the run that the plan predicts, if it does.

    ``profiles``: of one inference, or of several on one time axis. If a loaded plan is not bound to a model, tensors
    and attributes are missing, and so are operators that the profiles do not contain.
    """
    from ..base.version import __version__

    runs = [profiles] if isinstance(profiles, Profile) else list(profiles or ())
    runs = [profile for profile in runs if profile]
    table = Numbers[str]()
    data: dict[str, Any] = {
        "model": clean(plan.model_name),
        "policy": plan.policy,
        "generator": f"hetero {__version__}",
        "devices": [clean(device) for device in plan.devices],
        "totals": [
            [one.nodes, one.subgraphs, one.weight_bytes, one.received_bytes, one.sent_bytes, one.unknown_values]
            for one in plan.totals
        ],
        "warnings": [clean(warning.message) for warning in plan.warnings],
        "unknown_sizes": clean(plan.unknown_sizes),
    }
    if not isinstance(plan, Plan):
        keys = [key for part in plan.subgraphs for key in part.nodes]
        rows = {row.node: row.layer_type for profile in runs for row in profile}
        ops = Numbers[str]()
        reasons = plan.reasons
        data["nodes"] = {
            "key": [clean(key) for key in keys],
            "op": [ops[rows[key]] if key in rows else -1 for key in keys],
            "reason": [table[reasons[key]] if key in reasons else -1 for key in keys],
        }
        data["ops"] = [{"name": clean(op), "domain": "", "version": 0, "reads": [], "writes": []} for op in ops]
        data["subgraphs"] = {
            "device": [plan.devices.index(device) for device in plan.subgraph_devices],
            "size": [len(part.nodes) for part in plan.subgraphs],
        }
        data["tensors"] = None
        value_names: Iterable[str] = [value.name for value in plan.values]
    else:
        assignment = plan.assignment
        model, partition = assignment.model, assignment.partition
        order = np.argsort(partition.subgraph_of, kind="stable").astype(np.int32)
        keys = [model.key_of(node) for node in order.tolist()]
        data["nodes"] = {
            "key": [clean(key) for key in keys],
            "op": model.op_type_of[order].tolist(),
            "reason": _reasons(assignment.affinity, table)[order].tolist(),
        }
        data["subgraphs"] = {
            "device": partition.device_of.tolist(),
            "size": np.bincount(partition.subgraph_of, minlength=partition.num_subgraphs).tolist(),
        }
        data |= model_columns(model, order)
        value_names = model.value_names(plan.traffic.value)
    data["values"] = _values(value_names, plan.boundary, table)
    stages = () if plan.pipeline is None else plan.pipeline.stages
    data["stages"] = [[stage.subgraphs[0] - 1, len(stage.subgraphs)] for stage in stages] or None
    data["run"] = _run(runs, keys, plan, table) if runs else _predicted_run(plan)
    data["strings"] = [clean(text) for text in table]
    return data


def _reasons(affinity: Affinity, table: Numbers[str]) -> NDArray[np.int64]:
    """int64[nodes]: the number of the reason for each node's device. All nodes on the first device by priority share
    one reason, which is computed only once."""
    numbers = np.empty(len(affinity.device_of), np.int64)
    plain = (affinity.device_of == 0) & (affinity.origin == 0)
    first = int(np.argmax(plain)) if plain.any() else -1
    if first >= 0:
        numbers[plain] = table[affinity.reason(first)]
    for node in np.flatnonzero(~plain).tolist():
        numbers[node] = table[affinity.reason(node)]
    return numbers


def _values(names: Iterable[str], boundary: Boundary, table: Numbers[str]) -> dict[str, list[Any]]:
    """Boundary values. Subgraphs count from 0 here, and unknown sizes are -1."""
    types = np.array([table[type_text(dtype, shape)] for dtype, shape, _ in boundary.kinds], np.int64)
    sizes = np.array([-1 if size is None else size for *_, size in boundary.kinds], np.int64)
    return {
        "name": [clean(name) for name in names],
        "type": types[boundary.kind_of].tolist(),
        "bytes": sizes[boundary.kind_of].tolist(),
        "source": boundary.source.tolist(),
        "count": boundary.num_readers.tolist(),
        "reader": boundary.readers.tolist(),
    }


def _run(runs: Sequence[Profile], keys: Sequence[str], plan: PlanRecord, table: Numbers[str]) -> dict[str, Any]:
    """The time spans of the subgraphs, in ns from the start, and of the last inference the time of each node; -1 if it
    was not measured or did not run separately.

    Devices that only the run names (because a subgraph moved to another device) follow the devices of the plan.
    """
    spans = [(request, span) for request, profile in enumerate(runs) for span in profile.timed_spans()]
    start = min((span.begin_ns for _, span in spans), default=0)
    named = list(dict.fromkeys([*plan.devices, *(span.device for _, span in spans)]))
    lanes = sorted({(named.index(span.device), span.thread) for _, span in spans})
    lane_of = {lane: number for number, lane in enumerate(lanes)}
    # A stage of a pipeline runs, and is measured, as one subgraph.
    stages = () if plan.pipeline is None else plan.pipeline.stages
    subgraph_of = {number: stage.subgraphs[0] for number, stage in enumerate(stages, start=1)}
    rows = _rows_by_place(runs[-1], keys, plan)
    moved = {transfer.value: transfer.nbytes for transfer in runs[-1].transfers}
    return {
        "devices": [clean(device) for device in named],
        "lanes": [
            [device, clean(thread.removeprefix("hetero ").removeprefix(f"{named[device]} "))]
            for device, thread in lanes
        ],
        "spans": {
            "subgraph": [subgraph_of.get(span.subgraph, span.subgraph) - 1 for _, span in spans],
            "request": [request for request, _ in spans],
            "lane": [lane_of[named.index(span.device), span.thread] for _, span in spans],
            "begin": [span.begin_ns - start for _, span in spans],
            "end": [span.end_ns - start for _, span in spans],
        },
        "real": [round(1000 * row.real_us) if row is not None and row.status == EXECUTED else -1 for row in rows],
        "cpu": [round(1000 * row.cpu_us) if row is not None and row.status == EXECUTED else -1 for row in rows],
        "how": [-1 if row is None else table[_how(row)] for row in rows],
        "bytes": [[clean(name), size] for name, size in moved.items()],
    }


def _predicted_run(plan: PlanRecord) -> dict[str, Any] | None:
    """As `_run`, of the predicted times of the stages of a pipeline, or of the subgraphs; None if the plan has none."""
    if plan.pipeline is not None:
        spans = list(_predicted_stages(plan.pipeline))
    elif plan.latency is not None and plan.latency.begin_s:
        spans = [
            (s, 0, begin, end)
            for s, (begin, end) in enumerate(zip(plan.latency.begin_s, plan.latency.end_s, strict=True))
        ]
    else:
        return None
    device_of = [plan.devices.index(device) for device in plan.subgraph_devices]
    used = sorted(set(device_of))
    return {
        "predicted": True,
        "devices": [clean(device) for device in plan.devices],
        "lanes": [[device, "predicted"] for device in used],
        "spans": {
            "subgraph": [subgraph for subgraph, *_ in spans],
            "request": [request for _, request, *_ in spans],
            "lane": [used.index(device_of[subgraph]) for subgraph, *_ in spans],
            "begin": [round(begin * 1e9) for *_, begin, _ in spans],
            "end": [round(end * 1e9) for *_, end in spans],
        },
        "real": [-1] * plan.num_nodes,
        "cpu": [-1] * plan.num_nodes,
        "how": [-1] * plan.num_nodes,
        "bytes": [],
    }


def _predicted_stages(pipeline: PredictedPipeline) -> Iterator[tuple[int, int, float, float]]:
    """First subgraph, request, begin and end in seconds of each stage, for requests that are submitted at once.

    As at run time, a stage starts a request only if fewer than two wait for the next stage.
    """
    stages = pipeline.stages
    begins: list[list[float]] = []
    ends = [0.0] * len(stages)  # of the last request of each stage
    for request in range(len(stages) + 3):
        begins.append([])
        ready = 0.0
        for at, stage in enumerate(stages):
            begin = max(ready, ends[at])
            if request >= 2 and at + 1 < len(stages):
                begin = max(begin, begins[request - 2][at + 1])
            begins[request].append(begin)
            ready = ends[at] = begin + stage.total_s
            yield stage.subgraphs[0] - 1, request, begin, ready


def _rows_by_place(profile: Profile, keys: Sequence[str], plan: PlanRecord) -> list[ProfileRow | None]:
    """The row of each node. Keys are looked up within their subgraph, or if it did not run alone, anywhere."""
    own = with_bodies_summed(profile)
    anywhere = {row.node: row for row in own}
    by_key = {(row.subgraph, row.node): row for row in own}
    numbers = [number for number, part in enumerate(plan.subgraphs, start=1) for _ in part.nodes]
    return [by_key.get((number, key)) or anywhere.get(key) for number, key in zip(numbers, keys, strict=True)]


def _how(row: ProfileRow) -> str:
    return row.exec_type if row.status == EXECUTED else f"{row.status.lower().replace('_', ' ')} ({row.exec_type})"
