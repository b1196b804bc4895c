"""Benchmarks read the process's CPU time (the clock of a shared machine is noise) and are compared within one group
of one run. `python -m pytest bench --benchmark-enable --benchmark-json figures.json`, then `bench/table.py`."""

from __future__ import annotations

import time

import pytest
from pytest_benchmark.utils import NameWrapper


def pytest_configure(config: pytest.Config) -> None:
    config.option.benchmark_timer = NameWrapper(time.process_time)
    config.option.benchmark_disable_gc = True
    config.option.benchmark_warmup = True
