"""What `hetero bench` found, as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .counters import print_counters
from .text import print_table

__all__ = ["print_results"]


def print_results(results: Sequence[dict[str, Any]]) -> None:
    """A table of the latencies, and counters where there are any. ``results``: as `hetero bench --json` has them."""
    several = len(results) > 1
    columns = ["device", ">inferences", ">in flight", ">median ms", ">mean", ">p90", ">p99", ">min", ">max"]
    columns += [">per second", ">CPU ms", ">first ms", ">compile ms"]
    if several:
        columns += [">time ratio", ">CPU ratio"]
    rows = []
    for result in results:
        latency = result["latency_ms"]
        row = [result["device"], result["inferences"], result["in_flight"]]
        row += [_digits(latency[key]) for key in ("p50", "mean", "p90", "p99", "min", "max")]
        row += [_digits(result[key]) for key in ("throughput_per_s", "cpu_ms", "first_ms", "compile_ms")]
        if several:
            row += [f"{result['ratio'][what]:.3f}" for what in ("wall", "cpu")]
        rows.append(row)
    caption = f"Ratios: time per inference to {results[0]['device']}'s, medians over rounds" if several else None
    print_table("Latency of an inference, in milliseconds", columns, rows, caption=caption)
    for result in results:
        if "counters" in result:
            counters = result["counters"]
            print_counters(counters["rows"], counters["devices"], f"Counters of {result['device']}")


def _digits(number: float) -> str:
    """Four digits."""
    return f"{number:.0f}" if number >= 1000 else f"{number:.4g}"
