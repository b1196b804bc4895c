"""Benchmarks read the process's CPU time (the clock of a shared machine is noise) and are compared within one group
of one run. `python -m pytest bench --benchmark-enable --benchmark-json figures.json`, then `bench/table.py`."""

from __future__ import annotations

import time

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        timer = next((mark.kwargs["timer"] for mark in item.iter_markers("benchmark") if "timer" in mark.kwargs), None)
        item.add_marker(
            pytest.mark.benchmark(timer=timer or time.process_time, disable_gc=True, warmup=True), append=False
        )
