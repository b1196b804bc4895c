"""Counters of inferences: averaged over several, added up per subgraph, and printed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from ..plugin.contract import CompiledModel
from ..plugin.profile import EXECUTED, ProfileRow
from .text import MOST_ROWS, print_table, shorten

__all__ = ["SubgraphTotal", "as_json", "devices_of", "mean_rows", "print_counters", "subgraph_totals"]

_MOST_ROWS = 20


@dataclasses.dataclass(frozen=True, slots=True)
class SubgraphTotal:
    """Total times of the nodes of one subgraph. ``subgraph`` 0: the whole model, on one device."""

    subgraph: int
    device: str
    executed: int
    real_us: float
    cpu_us: float
    slowest: ProfileRow


def devices_of(compiled: CompiledModel) -> list[str]:
    """The device of each subgraph, in order, or the device of a model that is not cut."""
    parts: Sequence[CompiledModel] = getattr(compiled, "submodels", ())
    return [part.device for part in parts] or [compiled.device]


def mean_rows(profiles: Sequence[Sequence[ProfileRow]]) -> list[ProfileRow]:
    """The mean times of several inferences of one compiled model, per row. Inferences whose rows differ from the last
    one (another branch of an ``If``) are ignored."""
    last = list(profiles[-1])
    names = [(row.subgraph, row.node) for row in last]
    alike = [profile for profile in profiles if [(row.subgraph, row.node) for row in profile] == names]
    return [
        dataclasses.replace(
            row,
            real_us=sum(profile[i].real_us for profile in alike) / len(alike),
            cpu_us=sum(profile[i].cpu_us for profile in alike) / len(alike),
        )
        for i, row in enumerate(last)
    ]


def subgraph_totals(rows: Sequence[ProfileRow], devices: Sequence[str]) -> list[SubgraphTotal]:
    """The rows added up, subgraph by subgraph. ``devices``: as `devices_of` gives them."""
    by_subgraph: dict[int, list[ProfileRow]] = {}
    for row in rows:
        by_subgraph.setdefault(row.subgraph, []).append(row)
    return [
        SubgraphTotal(
            number,
            devices[max(number - 1, 0)],
            sum(row.status == EXECUTED for row in subgraph_rows),
            sum(row.real_us for row in subgraph_rows),
            sum(row.cpu_us for row in subgraph_rows),
            max(subgraph_rows, key=lambda row: row.real_us),
        )
        for number, subgraph_rows in sorted(by_subgraph.items())
    ]


def as_json(rows: Sequence[ProfileRow], devices: Sequence[str]) -> dict[str, Any]:
    """``subgraphs`` and ``nodes``, times in microseconds."""
    return {
        "subgraphs": [
            {
                "subgraph": total.subgraph,
                "device": total.device,
                "executed": total.executed,
                "real_us": total.real_us,
                "cpu_us": total.cpu_us,
            }
            for total in subgraph_totals(rows, devices)
        ],
        "nodes": [dataclasses.asdict(row) for row in rows],
    }


def print_counters(rows: Sequence[ProfileRow], devices: Sequence[str], title: str) -> None:
    """Prints a table of the subgraphs and a table of the slowest nodes."""
    if not rows:
        print_table(f"{title}: not supported by the device", ("node",), [])
        return
    total = sum(row.real_us for row in rows) or 1.0
    if any(row.subgraph for row in rows):
        totals = subgraph_totals(rows, devices)
        which = "by subgraph"
        if len(totals) > MOST_ROWS:
            totals.sort(key=lambda entry: -entry.real_us)
            which = "slowest subgraphs"
        print_table(
            f"{title}, {which}",
            (">subgraph", "device", ">executed", ">real µs", ">cpu µs", ">share", "slowest node", ">its µs"),
            [
                (
                    entry.subgraph,
                    entry.device,
                    entry.executed,
                    f"{entry.real_us:.1f}",
                    f"{entry.cpu_us:.1f}",
                    f"{100 * entry.real_us / total:.1f} %",
                    shorten(f"{entry.slowest.node} ({entry.slowest.layer_type})"),
                    f"{entry.slowest.real_us:.1f}",
                )
                for entry in totals
            ],
        )
    executed = sorted((row for row in rows if row.status == EXECUTED), key=lambda row: -row.real_us)
    shown = executed[:_MOST_ROWS]
    left = len(executed) - len(shown)
    caption = f"Total {total:.1f} µs" + (f"; {left} more nodes, all in --json" if left else "")
    print_table(
        f"{title}, slowest nodes",
        ("node", "operator", "runs as", ">subgraph", ">real µs", ">cpu µs", ">share"),
        [
            (
                shorten(row.node),
                shorten(row.layer_type),
                shorten(row.exec_type, 40),
                row.subgraph or "",
                f"{row.real_us:.1f}",
                f"{row.cpu_us:.1f}",
                f"{100 * row.real_us / total:.1f} %",
            )
            for row in shown
        ],
        caption=caption,
    )
