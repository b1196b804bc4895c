"""Markdown table of a benchmark run: `python bench/table.py figures.json [--wide]`.

Within each group of the run, a row per benchmark: its median CPU time, and the ratio to the group's reference (the
benchmark that marks itself with ``extra_info["reference"]``). ``--wide``: a row per group that has a reference, with
the reference's time of one run and a column of ratios for each other benchmark.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from hetero.base.formatting import duration


def rows(run: dict[str, Any]) -> list[str]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for entry in run["benchmarks"]:
        groups.setdefault(entry["group"] or entry["name"], []).append(entry)
    lines = ["| group | benchmark | median CPU time | ratio |", "|---|---|---|---|"]
    for group, entries in groups.items():
        references = [entry["stats"]["median"] for entry in entries if entry["extra_info"].get("reference")]
        for entry in entries:
            median = entry["stats"]["median"]
            ratio = f"{median / references[0]:.2f}" if references else ""
            lines.append(f"| {group} | {label(entry)} | {duration(median)} | {ratio} |")
            group = ""
    return lines


def label(entry: dict[str, Any]) -> str:
    return str(entry["extra_info"].get("label") or entry["name"].removeprefix("bench_"))


def wide_rows(run: dict[str, Any]) -> list[str]:
    groups: dict[str, dict[str, float]] = {}
    references: dict[str, str] = {}
    columns: dict[str, None] = {}
    for entry in run["benchmarks"]:
        name, _, runs = label(entry).partition(", ")
        groups.setdefault(entry["group"], {})[name] = entry["stats"]["median"] / int(runs.partition(" ")[0] or 1)
        if entry["extra_info"].get("reference"):
            references[entry["group"]] = name
        else:
            columns[name] = None
    lines = [f"| | {next(iter(references.values()))} | {' | '.join(columns)} |", f"|---|---|{'---|' * len(columns)}"]
    for group, reference in references.items():
        times = groups[group]
        ratios = [f"{times[name] / times[reference]:.2f}" if name in times else "" for name in columns]
        lines.append(f"| {group} | {duration(times[reference])} | {' | '.join(ratios)} |")
    return lines


if __name__ == "__main__":
    make = wide_rows if "--wide" in sys.argv[2:] else rows
    print("\n".join(make(json.loads(Path(sys.argv[1]).read_text()))))
