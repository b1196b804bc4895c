"""The trace made of the spans of a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import hetero
from hetero.plugin.profile import EXECUTED, Profile, ProfileRow, Span
from hetero.report.trace import node_times, to_trace, write_trace
from report_cases import HOSTILE_NAMES, chain

Run = Callable[[hetero.Model, str | hetero.Plan], Profile]


def test_a_trace(core: hetero.Core, diamond: hetero.Model, profile_of: Run, tmp_path: Path) -> None:
    profile = profile_of(diamond, "HETERO:FPGA,CPU")
    write_trace(profile, tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert sorted(processes.values()) == ["CPU", "FPGA"]
    subgraphs = {e["name"]: e for e in events if e.get("cat") == "subgraph"}
    assert {name: processes[e["pid"]] for name, e in subgraphs.items()} == {
        "subgraph 1": "FPGA",
        "subgraph 2": "CPU",
        "subgraph 3": "FPGA",
    }
    assert subgraphs["subgraph 1"]["ts"] == 0
    nodes = [e for e in events if e.get("cat") == "node"]
    assert {e["name"] for e in nodes} == {"one", "two", "three", "four", "five", "six", "seven"}
    for event in nodes:  # each within a subgraph of its device
        assert any(
            e["pid"] == event["pid"]
            and e["ts"] - 1e-2 <= event["ts"] <= event["ts"] + event["dur"] <= e["ts"] + e["dur"] + 1e-2
            for e in subgraphs.values()
        ), event
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert sorted(starts) == sorted(ends)
    passed = [(starts[i]["name"], starts[i]["args"]["from"], ends[i]["args"]["to"]) for i in sorted(starts)]
    assert passed == [("n2", 1, 2), ("n3", 1, 3), ("n4", 2, 3)]
    for i, start in starts.items():
        source = subgraphs[f"subgraph {start['args']['from']}"]
        assert source["ts"] <= start["ts"] < source["ts"] + source["dur"]
        assert ends[i]["ts"] == subgraphs[f"subgraph {start['args']['to']}"]["ts"]


def test_a_trace_of_several_inferences_has_one_axis(core: hetero.Core, diamond: hetero.Model, profile_of: Run) -> None:
    profiles = [profile_of(diamond, "HETERO:FPGA,CPU") for _ in range(2)]
    events = json.loads(to_trace(profiles))["traceEvents"]
    first, second = ([e for e in events if e.get("args", {}).get("inference") == i] for i in (1, 2))
    assert max(e["ts"] for e in first) <= min(e["ts"] for e in second)
    assert len({e["id"] for e in events if e["ph"] == "s"}) == 6


def dropped_by_perfetto(text: str, whole_ns: Callable[[float], int]) -> list[str]:
    """The slices that lie partly over another of their thread: Perfetto's trace processor leaves those out
    (slice_drop_overlapping_complete_event). ``whole_ns``: how microseconds become nanoseconds."""
    stacks: dict[tuple[int, int], list[int]] = {}
    dropped = []
    slices = [event for event in json.loads(text)["traceEvents"] if event["ph"] == "X"]
    for event in sorted(slices, key=lambda event: event["ts"]):
        begin, length = whole_ns(event["ts"]), whole_ns(event["dur"])
        stack = stacks.setdefault((event["pid"], event["tid"]), [])
        while stack and stack[-1] <= begin:
            stack.pop()
        if stack and begin + length > stack[-1]:
            dropped.append(event["name"])
        else:
            stack.append(begin + length)
    return dropped


@pytest.mark.parametrize("seed", range(8))
def test_slices_of_a_trace_nest(seed: int) -> None:
    rng = np.random.default_rng(seed)
    spans, rows, begin = [], [], 1_000_000_007
    for subgraph in range(1, 20):
        took = rng.integers(1, 5_000, 30)  # nanoseconds; of some subgraphs more than all of it, as of several threads
        length = int(took.sum() * rng.uniform(0.3, 1.2))
        spans.append(Span(subgraph, "CPU", "main", begin, begin + length))
        begin += length + 20
        rows += [
            ProfileRow(f"{subgraph} {i}", EXECUTED, "Relu", "f32", real_us=ns / 1000, cpu_us=0.0, subgraph=subgraph)
            for i, ns in enumerate(took.tolist())
        ]
    text = to_trace(Profile(rows, spans))
    assert text.count('"ph":"X"') == 19 * 31
    for whole_ns in (lambda us: int(us * 1000), lambda us: round(us * 1000)):
        assert dropped_by_perfetto(text, whole_ns) == []


def test_names_in_a_trace(core: hetero.Core, profile_of: Run) -> None:
    model = core.read_model(chain(HOSTILE_NAMES))
    text = to_trace(profile_of(model, "HETERO:FPGA,CPU"))
    assert text.isascii()
    names = [e["name"] for e in json.loads(text)["traceEvents"] if e.get("cat") == "node"]
    assert HOSTILE_NAMES[1] in names
    assert not any(c in name for name in names for c in "\n\r\0\u202e")


def test_nodes_fit_into_their_subgraph() -> None:
    rows = [ProfileRow(name, "EXECUTED", "Relu", "x", 6.0, 6.0, 1) for name in "ab"]
    rows.append(ProfileRow("c", "OPTIMIZED_OUT", "Relu", "fused", 0.0, 0.0, 1))
    placed = list(node_times(Span(1, "CPU", "t", 1000, 7000), rows))
    assert [(row.node, begin, duration) for row, begin, duration in placed] == [("a", 1000, 3000), ("b", 4000, 3000)]
    wide = list(node_times(Span(1, "CPU", "t", 1000, 90000), rows))
    assert [duration for _, _, duration in wide] == [6000, 6000]


def test_rows_of_a_device_that_is_not_timed() -> None:
    rows = [ProfileRow(name, "EXECUTED", "Relu", "x", 2.0, 2.0, number) for number, name in enumerate("ab", start=1)]
    assert [(span.subgraph, span.begin_ns, span.end_ns) for span in Profile(rows).timed_spans()] == [
        (1, 0, 2000),
        (2, 2000, 4000),
    ]
    assert json.loads(to_trace(Profile()))["traceEvents"] == []


def test_a_trace_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(hetero.HeteroError, match="cannot write"):
        write_trace(Profile(), tmp_path / "nowhere" / "trace.json")
