"""A run as a Chrome trace (JSON), for ``chrome://tracing``, https://ui.perfetto.dev and other viewers.

A process is a device, a thread is a thread that ran its subgraphs, and arrows are boundary values. Subgraphs, and
copies of values between memories, have their measured start and end. Devices measure the duration of a node but not its
start, so the nodes of a subgraph are shown one after the other from its start. If their sum is longer than the subgraph
(with several threads), they are scaled down in proportion.

The Chromium project's *Trace Event Format* defines the format.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..base.files import write_file
from ..base.names import clean
from ..plugin.profile import EXECUTED, Profile, ProfileRow, Span

# The gap around each node, in ns. Viewers round or truncate times in µs to whole ns. Perfetto drops a slice that then
# ends after its parent, or starts before the previous slice ends.
_ROOM_NS = 3

__all__ = ["node_times", "to_trace", "write_trace"]


def to_trace(profiles: Profile | Iterable[Profile]) -> str:
    """The trace of one inference, or of several on one time axis, as JSON text.

    ``profiles``: `InferRequest.profiling_info` of models compiled with ``PERF_COUNT``. Times are in µs from the start
    of the first inference.
    """
    runs = [profiles] if isinstance(profiles, Profile) else list(profiles)
    return json.dumps({"traceEvents": list(_events(runs)), "displayTimeUnit": "ms"}, separators=(",", ":"))


def write_trace(profiles: Profile | Iterable[Profile], path: str | os.PathLike[str]) -> None:
    """Write `to_trace` to a file atomically. Raises `HeteroError` if the file cannot be written."""
    write_file(path, [to_trace(profiles).encode()])


def node_times(span: Span, rows: Sequence[ProfileRow]) -> Iterator[tuple[ProfileRow, float, float]]:
    """The executed rows of a subgraph with their positions in its span: start and duration in ns."""
    executed = [row for row in rows if row.status == EXECUTED]
    total = 1000 * sum(row.real_us for row in executed)
    length = span.end_ns - span.begin_ns
    scale = min(1.0, length / total) if total else 1.0
    begin = float(span.begin_ns)
    for row in executed:
        duration = 1000 * row.real_us * scale
        yield row, begin, duration
        begin += duration


def _events(runs: Sequence[Profile]) -> Iterator[dict[str, Any]]:
    spans = [profile.timed_spans() for profile in runs]
    begins = [span.begin_ns for of_run in spans for span in of_run]
    start = min([*begins, *(move.begin_ns for profile in runs for move in profile.moves)], default=0)
    devices = list(dict.fromkeys(span.device for of_run in spans for span in of_run))
    threads = list(dict.fromkeys((span.device, span.thread) for of_run in spans for span in of_run))
    for number, device in enumerate(devices, start=1):
        yield _metadata("process_name", number, 0, name=clean(device))
        yield _metadata("process_sort_index", number, 0, sort_index=number)
    for number, (device, thread) in enumerate(threads, start=1):
        yield _metadata("thread_name", devices.index(device) + 1, number, name=clean(thread))
    flow = 0
    for run, (profile, of_run) in enumerate(zip(runs, spans, strict=True), start=1):
        place = {
            span.subgraph: (devices.index(span.device) + 1, threads.index((span.device, span.thread)) + 1)
            for span in of_run
        }
        rows = profile.by_subgraph()
        for span in of_run:
            yield from _span_events(span, rows.get(span.subgraph, ()), place[span.subgraph], start, run)
        for move in profile.moves:
            if move.subgraph in place:
                yield {
                    "name": clean(move.value),
                    "cat": "move",
                    "ph": "X",
                    **_at(place[move.subgraph]),
                    "ts": _us(move.begin_ns, start),
                    "dur": (move.end_ns - move.begin_ns) / 1000,
                    "args": {"bytes": move.nbytes, "from": move.origin, "to": move.target, "inference": run},
                }
        span_of = {span.subgraph: span for span in of_run}
        for transfer in profile.transfers:
            for target in transfer.readers:
                if transfer.source not in span_of or target not in span_of:
                    continue
                flow += 1
                value = {
                    "name": clean(transfer.value),
                    "cat": "boundary",
                    "id": flow,
                    "args": {"bytes": transfer.nbytes, "from": transfer.source, "to": target, "inference": run},
                }
                # A flow belongs to the slice that contains it, so it must end inside the slice, not at its end.
                source, reader = span_of[transfer.source], span_of[target]
                within = source.begin_ns + (source.end_ns - source.begin_ns) * 0.999
                yield {**value, "ph": "s", **_at(place[transfer.source]), "ts": _us(within, start)}
                yield {**value, "ph": "f", "bp": "e", **_at(place[target]), "ts": _us(reader.begin_ns, start)}


def _span_events(
    span: Span, rows: Sequence[ProfileRow], place: tuple[int, int], start: int, run: int
) -> Iterator[dict[str, Any]]:
    yield {
        "name": f"subgraph {span.subgraph}" if span.subgraph else "model",
        "cat": "subgraph",
        "ph": "X",
        **_at(place),
        "ts": _us(span.begin_ns, start),
        "dur": (span.end_ns - span.begin_ns) / 1000,
        "args": {"nodes": len(rows), "inference": run},
    }
    for row, begin, duration in node_times(span, rows):
        yield {
            "name": clean(row.node),
            "cat": "node",
            "ph": "X",
            **_at(place),
            "ts": _us(begin, start),
            "dur": round(max(duration - _ROOM_NS, 0.0) / 1000, 3),
            "args": {
                "operator": clean(row.layer_type),
                "runs as": clean(row.exec_type),
                "real us": round(row.real_us, 3),
                "cpu us": round(row.cpu_us, 3),
            },
        }


def _metadata(kind: str, process: int, thread: int, **args: Any) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": args}


def _at(place: tuple[int, int]) -> dict[str, int]:
    return {"pid": place[0], "tid": place[1]}


def _us(nanoseconds: float, start: int) -> float:
    return round((nanoseconds - start) / 1000, 3)
