"""A plan as text, for `print`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..base.formatting import byte_size, counted, duration
from ..base.names import short

if TYPE_CHECKING:
    from ..assign.predictions import PredictedLatency, PredictedPipeline
    from .record import PlanRecord
    from .schema import DeviceTotals

__all__ = ["plan_table"]

_HEAD, _TAIL = 20, 10  # subgraphs shown if there are many
_MOST_NOTES = _MOST_WARNINGS = 10


def plan_table(plan: PlanRecord) -> str:
    """Devices, subgraphs and warnings, without trailing blanks. Of many subgraphs, the first and last are shown."""
    return "\n".join(_lines(plan))


def _lines(plan: PlanRecord) -> Iterator[str]:
    num_values = len(plan.boundary.source)
    total, unknown = plan.boundary.total(np.arange(num_values))
    yield (
        f"{short(plan.model_name)} on {', '.join(plan.devices)}: {counted(plan.num_nodes, 'node')} in "
        f"{counted(plan.num_subgraphs, 'subgraph')}{_proof(plan)}; {counted(num_values, 'value')} cut, "
        f"{_amount(total, unknown)}"
    )
    if plan.latency is not None:
        yield _predicted(plan.latency)
    if plan.pipeline is not None:
        yield ""
        yield from _pipeline(plan.pipeline)
    yield ""
    columns = [
        ("device", [entry.device for entry in plan.totals]),
        ("nodes", [f"{entry.nodes:,}" for entry in plan.totals]),
        ("subgraphs", [f"{entry.subgraphs:,}" for entry in plan.totals]),
        ("weights", [byte_size(entry.weight_bytes) for entry in plan.totals]),
        ("activations", [_activations(entry) for entry in plan.totals]),
        ("limit", ["" if entry.limit_bytes is None else byte_size(entry.limit_bytes) for entry in plan.totals]),
        ("received", [byte_size(entry.received_bytes) for entry in plan.totals]),
        ("sent", [byte_size(entry.sent_bytes) for entry in plan.totals]),
        ("size unknown", [f"{entry.unknown_values:,}" if entry.unknown_values else "" for entry in plan.totals]),
    ]
    shown = [(heading, texts) for heading, texts in columns if any(texts)]
    rows = list(zip(*(texts for _, texts in shown), strict=True))
    yield from _table([heading for heading, _ in shown], rows, "<" + ">" * len(columns))
    yield ""
    yield from _subgraphs(plan)
    if plan.latency is not None and plan.latency.overlaps and len(plan.latency.begin_s) == plan.num_subgraphs:
        yield ""
        yield from _timeline(plan, plan.latency)
    notes = list(plan.notes.items())
    if notes:
        yield ""
        yield from (f"{short(key)}: {note}" for key, note in notes[:_MOST_NOTES])
        if len(notes) > _MOST_NOTES:
            yield f"and {counted(len(notes) - _MOST_NOTES, 'node')} more with notes"
    warnings = plan.warnings
    how = plan.unknown_sizes
    if how and not any(how in warning.message for warning in warnings):
        yield ""
        yield f"unknown sizes: {how}"
    if warnings:
        yield ""
        for warning in warnings[:_MOST_WARNINGS]:
            yield f"warning: {warning.message}"
        if len(warnings) > _MOST_WARNINGS:
            yield f"and {counted(len(warnings) - _MOST_WARNINGS, 'warning')} more"


def _proof(plan: PlanRecord) -> str:
    """How close the number of subgraphs is proved to be to the minimum for these devices per node."""
    if plan.lower_bound is None or plan.num_subgraphs < 2:
        return ""
    return " (proved minimum)" if plan.lower_bound == plan.num_subgraphs else f" (at least {plan.lower_bound:,} needed)"


def _activations(entry: DeviceTotals) -> str:
    if entry.activation_bytes is None:
        return ""
    return _amount(entry.activation_bytes, entry.unknown_activations or 0)


def _predicted(latency: PredictedLatency) -> str:
    sources = ", ".join(f"{count:,} {source}" for source, count in latency.sources.items())
    together = ", devices in parallel" if latency.overlaps else ""
    return (
        f"predicted: {duration(latency.total_s)}{together} (work {duration(latency.work_s)}, launches "
        f"{duration(latency.launches_s)}, transfers {duration(latency.transfers_s)}); by priority "
        f"{duration(latency.by_priority_s)}, at least {duration(latency.lower_bound_s)}"
        f"{' without memory limits' if latency.memory_binds else ''}; costs: {sources}"
    )


def _timeline(plan: PlanRecord, latency: PredictedLatency) -> Iterator[str]:
    """When each device works on which subgraph."""
    from ..assign.pipeline.timeline import Run, draw_runs

    devices = list(plan.devices)
    runs = [
        Run(devices.index(device), number, begin, end)
        for number, (device, begin, end) in enumerate(
            zip(plan.subgraph_devices, latency.begin_s, latency.end_s, strict=True)
        )
    ]
    used = sorted({run.stage for run in runs})
    lanes = [run._replace(stage=used.index(run.stage)) for run in runs]
    lines = draw_runs([devices[device] for device in used], lanes, width=100)
    yield f"subgraphs by time, {duration(latency.total_s)} ({_legend(lines, 'a subgraph')}):"
    yield from lines


def _legend(lines: Sequence[str], what: str) -> str:
    """The signs in a drawing of `draw_runs`."""
    return (
        f"dots are idle time{f', + is {what} too short for its number' if any('+' in line for line in lines) else ''}"
    )


def _pipeline(pipeline: PredictedPipeline) -> Iterator[str]:
    """The stages, and a timeline of the first requests."""
    from ..assign.pipeline.timeline import draw_timeline, timeline

    interval, stages = pipeline.interval_s, pipeline.stages
    rate = f" ({1 / interval:.3g} per second)" if interval > 0 else ""
    yield (
        f"pipeline of {counted(len(stages), 'stage')}: a result every {duration(interval)}{rate}, each after "
        f"{duration(pipeline.latency_s)}; no stages can be faster than {duration(pipeline.lower_bound_s)}"
    )
    yield ""
    rows = [
        (
            str(number),
            stage.device,
            str(stage.nodes),
            duration(stage.total_s),
            duration(stage.work_s),
            duration(stage.launch_s),
            duration(stage.transfers_s),
            byte_size(stage.received_bytes),
            f"{100 * stage.total_s / interval:.0f}%" if interval > 0 else "",
            ", ".join(f"{count:,} {source}" for source, count in stage.sources.items()),
        )
        for number, stage in enumerate(stages, 1)
    ]
    headings = ("stage", "device", "nodes", "takes", "work", "launch", "transfers", "receives", "busy", "costs")
    yield from _table(headings, rows, "><>>>>>>><")
    yield ""
    seconds = [stage.total_s for stage in stages]
    requests = len(stages) + 2
    end = timeline(seconds, requests)[-1].end if stages else 0.0
    lines = draw_timeline([f"{number} {stage.device}" for number, stage in enumerate(stages, 1)], seconds, requests)
    yield f"the first {requests} requests, {duration(end)} ({_legend(lines, 'a request')}):"
    yield from lines


def _subgraphs(plan: PlanRecord) -> Iterator[str]:
    count, devices, boundary = plan.num_subgraphs, plan.subgraph_devices, plan.boundary
    numbers = list(range(count))
    if count > _HEAD + _TAIL + 1:
        numbers = numbers[:_HEAD] + numbers[-_TAIL:]
    values = boundary.rows
    rows = []
    for number in numbers:
        num_nodes, first, last = plan.ends_of(number)
        received = _amount(*boundary.total(values[boundary.readers == number]))
        ends = short(first), short(last) if num_nodes > 1 else ""
        rows.append((str(number + 1), devices[number], f"{num_nodes:,}", received, *ends))
    lines = list(_table(("subgraph", "device", "nodes", "receives", "first node", "last node"), rows, "><>><<"))
    yield lines[0]
    yield from lines[1 : 1 + min(_HEAD, count)] if count > len(numbers) else lines[1:]
    if count > len(numbers):
        left = devices[_HEAD : count - _TAIL]
        by_device = Counter(left)
        device_counts = ", ".join(f"{number:,} on {device}" for device, number in by_device.items())
        yield f"     ... {len(left):,} more: {device_counts}"
        yield from lines[1 + _HEAD :]


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], align: str) -> Iterator[str]:
    widths = [max(len(row[i]) for row in (headings, *rows)) for i in range(len(headings))]
    for row in (headings, *rows):
        yield "  ".join(f"{text:{way}{width}}" for text, way, width in zip(row, align, widths, strict=False)).rstrip()


def _amount(known: int, unknown: int) -> str:
    if not unknown:
        return byte_size(known)
    return f"{byte_size(known)} + {unknown:,} unknown" if known else f"{unknown:,} unknown"
