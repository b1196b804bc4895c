"""Prints the results of `hetero bench` as tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .counters import as_json, print_counters
from .text import print_table

__all__ = ["as_plain", "print_results"]


def print_results(results: Sequence[dict[str, Any]]) -> None:
    """Prints a table of the latencies, and the counters, if any."""
    rows: list[tuple[str, Callable[[dict[str, Any]], str]]] = [
        ("inferences", lambda result: str(result["inferences"])),
        ("in flight", lambda result: str(result["in_flight"])),
        ("median ms", lambda result: _digits(result["latency_ms"]["p50"])),
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
            ("CPU time, ratio to the first", lambda result: f"{result['ratio']['cpu']:.3f}"),
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


def _digits(number: float) -> str:
    """A number with four significant digits; from 1000 on, a whole number."""
    return f"{number:.0f}" if number >= 1000 else f"{number:.4g}"


def as_plain(result: dict[str, Any]) -> dict[str, Any]:
    """A result for JSON output."""
    if "counters" not in result:
        return result
    return {**result, "counters": as_json(result["counters"]["rows"], result["counters"]["devices"])}
