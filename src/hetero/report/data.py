"""The data of the report, as columns of numbers and strings for JSON.

Nodes are renumbered by subgraph and then in topological order, so the nodes of a subgraph are a range. Repeated strings
(operators, reasons, types) are stored once. `docs/pictures.md` describes the columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..assign.affinity import Affinity
from ..base.names import clean
from ..plan import BoundaryValue, Plan, PlanRecord
from ..plugin.profile import EXECUTED, Profile, ProfileRow

if TYPE_CHECKING:
    from ..model.model import Model

__all__ = ["report_data"]


def report_data(plan: PlanRecord, profile: Profile | None = None) -> dict[str, Any]:
    """The columns of a plan and, with a profile, of a run; without, of the run that the plan predicts, if it does.

    If a loaded plan is not bound to a model, edges are missing, and so are operators that the profile does not contain.
    """
    from ..base.version import __version__

    table = _Strings()
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
    }
    if not isinstance(plan, Plan):
        keys = [key for part in plan.subgraphs for key in part.nodes]
        rows = {row.node: row for row in profile or ()}
        reasons = plan.reasons
        data["nodes"] = {
            "key": [clean(key) for key in keys],
            "op": [table.number(rows[key].layer_type) if key in rows else -1 for key in keys],
            "reason": [table.number(reasons[key]) if key in reasons else -1 for key in keys],
        }
        data["subgraphs"] = {
            "device": [plan.devices.index(part.device) for part in plan.subgraphs],
            "size": [len(part.nodes) for part in plan.subgraphs],
        }
        data["edges"] = None
    else:
        assignment = plan.assignment
        model, affinity, partition = assignment.model, assignment.affinity, assignment.partition
        order = np.argsort(partition.subgraph_of, kind="stable")
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        keys = [model.keys[node] for node in order.tolist()]
        ops = np.array([table.number(op) for op in model.op_types], np.int64)
        reasons_of = _reasons(affinity, table)
        data["nodes"] = {
            "key": [clean(key) for key in keys],
            "op": ops[model.op_type_of[order]].tolist() if len(ops) else [],
            "reason": reasons_of[order].tolist(),
        }
        data["subgraphs"] = {
            "device": partition.device_of.tolist(),
            "size": np.bincount(partition.subgraph_of, minlength=partition.num_subgraphs).tolist(),
        }
        data["edges"] = _edges(model, order, place)
    data["values"] = _values(plan.values, table)
    if profile:
        data["run"] = _run(profile, keys, data["subgraphs"]["size"], plan.devices, table)
    else:
        data["run"] = _predicted_run(plan, len(keys))
    data["strings"] = table.strings
    return data


class _Strings:
    """A table of distinct strings with their numbers."""

    def __init__(self) -> None:
        self.strings: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self.strings)
            self.strings.append(clean(text))
        return number


def _reasons(affinity: Affinity, table: _Strings) -> NDArray[np.int64]:
    """int64[nodes]: the number of the reason for each node's device. All nodes on the first device by priority share
    one reason, which is computed only once."""
    numbers = np.empty(len(affinity.device_of), np.int64)
    plain = (affinity.device_of == 0) & (affinity.origin == 0)
    first = int(np.argmax(plain)) if plain.any() else -1
    if first >= 0:
        numbers[plain] = table.number(affinity.reason(first))
    for node in np.flatnonzero(~plain).tolist():
        numbers[node] = table.number(affinity.reason(node))
    return numbers


def _edges(model: Model, order: NDArray[np.intp], place: NDArray[np.int64]) -> dict[str, list[int]]:
    """For each node, the number of its readers, and the readers as differences from the node, which are short in
    JSON."""
    graph = model.graph
    counts = np.diff(graph.indptr)[order]
    starts = graph.indptr[:-1][order]
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    readers = place[graph.indices[np.repeat(starts, counts) + within]]
    return {
        "count": counts.tolist(),
        "to": (readers - np.repeat(np.arange(len(order)), counts)).tolist(),
    }


def _values(values: Iterable[BoundaryValue], table: _Strings) -> dict[str, list[Any]]:
    """Boundary values. Subgraphs count from 0 here, and unknown sizes are -1."""
    columns: dict[str, list[Any]] = {"name": [], "type": [], "bytes": [], "source": [], "count": [], "reader": []}
    types: dict[tuple[Any, ...], int] = {}
    for value in values:
        kind = (value.dtype, value.shape)
        number = types.get(kind)
        if number is None:
            number = types[kind] = table.number(_type_text(value))
        columns["name"].append(clean(value.name))
        columns["type"].append(number)
        columns["bytes"].append(-1 if value.bytes is None else value.bytes)
        columns["source"].append(value.source - 1)
        columns["count"].append(len(value.readers))
        columns["reader"] += [reader - 1 for reader in value.readers]
    return columns


def _type_text(value: BoundaryValue) -> str:
    if value.dtype is None:
        return "type unknown"
    if value.shape is None:
        return f"{value.dtype} of unknown rank"
    return f"{value.dtype}[{', '.join('?' if dim is None else str(dim) for dim in value.shape)}]"


def _run(
    profile: Profile, keys: Sequence[str], sizes: Sequence[int], devices: Sequence[str], table: _Strings
) -> dict[str, Any]:
    """The time spans of the subgraphs, in ns from the start, and the time of each node; -1 if it was not measured or
    did not run separately.

    Devices that only the run names (because a subgraph moved to another device) follow the devices of the plan.
    """
    spans = profile.timed_spans()
    start = min((span.begin_ns for span in spans), default=0)
    named = list(dict.fromkeys([*devices, *(span.device for span in spans)]))
    lanes = list(dict.fromkeys((span.device, span.thread) for span in spans))
    lanes.sort(key=lambda lane: (named.index(lane[0]), lane[1]))
    rows = _rows_by_place(profile, keys, sizes)
    moved: dict[str, int] = {transfer.value: transfer.nbytes for transfer in profile.transfers}
    return {
        "devices": [clean(device) for device in named],
        "lanes": [[named.index(device), clean(thread.removeprefix("hetero "))] for device, thread in lanes],
        "spans": {
            "subgraph": [span.subgraph - 1 for span in spans],
            "lane": [lanes.index((span.device, span.thread)) for span in spans],
            "begin": [span.begin_ns - start for span in spans],
            "end": [span.end_ns - start for span in spans],
        },
        "real": [round(1000 * row.real_us) if row is not None and row.status == EXECUTED else -1 for row in rows],
        "cpu": [round(1000 * row.cpu_us) if row is not None and row.status == EXECUTED else -1 for row in rows],
        "how": [-1 if row is None else table.number(_how(row)) for row in rows],
        "bytes": [[clean(name), size] for name, size in moved.items()],
    }


def _predicted_run(plan: PlanRecord, num_nodes: int) -> dict[str, Any] | None:
    """As `_run`, of the predicted times of the subgraphs; None if the plan has none."""
    latency = plan.latency
    if latency is None or not latency.begin_s:
        return None
    device_of = [plan.devices.index(part.device) for part in plan.subgraphs]
    used = sorted(set(device_of))
    unknown = [-1] * num_nodes
    return {
        "predicted": True,
        "devices": [clean(device) for device in plan.devices],
        "lanes": [[device, "predicted"] for device in used],
        "spans": {
            "subgraph": list(range(len(device_of))),
            "lane": [used.index(device) for device in device_of],
            "begin": [round(begin * 1e9) for begin in latency.begin_s],
            "end": [round(end * 1e9) for end in latency.end_s],
        },
        "real": unknown,
        "cpu": unknown,
        "how": unknown,
        "bytes": [],
    }


def _rows_by_place(profile: Profile, keys: Sequence[str], sizes: Sequence[int]) -> list[ProfileRow | None]:
    """The row of each node. If the profile has subgraphs, keys are looked up within their subgraph."""
    by_key = {(row.subgraph, row.node): row for row in profile}
    rows: list[ProfileRow | None] = []
    at = 0
    for subgraph, size in enumerate(sizes, start=1):
        rows += [by_key.get((subgraph, key)) or by_key.get((0, key)) for key in keys[at : at + size]]
        at += size
    return rows


def _how(row: ProfileRow) -> str:
    return row.exec_type if row.status == EXECUTED else f"{row.status.lower().replace('_', ' ')} ({row.exec_type})"
