"""Prints the results of `hetero bench` as tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .counters import as_json, print_counters
from .text import print_line, print_table

__all__ = ["as_plain", "print_changes", "print_results"]


def print_results(results: Sequence[dict[str, Any]]) -> None:
    """Prints a table of the latencies, and the counters, if any."""
    rows: list[tuple[str, Callable[[dict[str, Any]], str]]] = [
        ("inferences", lambda result: str(result["inferences"])),
        ("in flight", lambda result: str(result["in_flight"])),
        ("median ms", lambda result: _digits(result["latency_ms"]["p50"])),
        ("  95 % interval", lambda result: _interval(result["median_interval"], _digits)),
        ("mean ms", lambda result: _digits(result["latency_ms"]["mean"])),
        ("90th percentile ms", lambda result: _digits(result["latency_ms"]["p90"])),
        ("99th percentile ms", lambda result: _digits(result["latency_ms"]["p99"])),
        ("min ms", lambda result: _digits(result["latency_ms"]["min"])),
        ("max ms", lambda result: _digits(result["latency_ms"]["max"])),
        ("inferences per second", lambda result: _digits(result["throughput_per_s"])),
        ("CPU ms per inference", lambda result: _digits(result["cpu_ms"])),
        ("first inference ms", lambda result: _digits(result["first_ms"])),
        ("compiling ms", lambda result: _digits(result["compile_ms"])),
    ]
    if len(results) > 1:
        rows += [
            ("time, ratio to the first", lambda result: f"{result['ratio']['wall']:.3f}"),
            ("  95 % interval", lambda result: _interval(result["wall_ratio_interval"], "{:.3f}".format)),
            ("CPU time, ratio to the first", lambda result: f"{result['ratio']['cpu']:.3f}"),
            ("  95 % interval", lambda result: _interval(result["cpu_ratio_interval"], "{:.3f}".format)),
        ]
    print_table(
        "Latency and throughput",
        ("", *(f">{result['device']}" for result in results)),
        [(name, *map(text_of, results)) for name, text_of in rows],
    )
    for result in results:
        if "counters" in result:
            counters = result["counters"]
            print_counters(counters["rows"], counters["devices"], f"Counters of {result['device']}")


def print_changes(changes: Sequence[dict[str, Any]]) -> None:
    """Prints the comparison with the last runs in a history."""
    if not changes:
        print_line("The history has no earlier run of this model on these devices")
        return
    verdicts = {True: "differs", False: "within the intervals", None: "unknown: too few inferences"}
    rows = [
        (
            change["device"],
            change["time"] + ("" if change["same_host"] else ", another host"),
            _digits(change["before_ms"]),
            _digits(change["after_ms"]),
            "" if change["ratio"] is None else f"{change['ratio']:.3f}",
            verdicts[change["differs"]],
        )
        for change in changes
    ]
    columns = ("device", "last run", ">median ms then", ">now", ">ratio", "95 % intervals")
    print_table("Since the last run", columns, rows)


def _interval(interval: Sequence[float] | None, text_of: Callable[[float], str]) -> str:
    return "" if interval is None else f"{text_of(interval[0])} to {text_of(interval[1])}"


def _digits(number: float) -> str:
    """A number with four significant digits; from 1000 on, a whole number."""
    return f"{number:.0f}" if number >= 1000 else f"{number:.4g}"


def as_plain(result: dict[str, Any]) -> dict[str, Any]:
    """A result for JSON output."""
    if "counters" not in result:
        return result
    return {**result, "counters": as_json(result["counters"]["rows"], result["counters"]["devices"])}
