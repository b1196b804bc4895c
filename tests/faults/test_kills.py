"""Processes that are killed at random moments."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("kills.py")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def killed(name: str, times: int, **environment: str) -> str:
    """What the program prints; in a process of its own, because it forks."""
    command = [sys.executable, str(PROGRAM), name, "--times", str(times)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=600, env={**os.environ, **environment}
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ["export", "save", "split", "save_plan", "cache"])
@pytest.mark.parametrize("times", [10, pytest.param(20, marks=pytest.mark.exhaustive)])
def test_files_after_a_kill(name: str, times: int) -> None:
    told = killed(name, times)
    assert told.endswith(", 0 problems\n"), told
    assert "interrupted while writing" in told, "no kill interrupted it: the test tests nothing"


@pytest.mark.slow
@pytest.mark.parametrize("times", [2, pytest.param(4, marks=pytest.mark.exhaustive)])
def test_workers_after_a_kill(times: int) -> None:
    told = killed("worker", times)
    assert told.endswith(", 0 problems\n"), told


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("torn", "left what cannot be used"),
        ("leaving", "left .x.hetero-part"),
        ("orphans", "process "),
        ("ending", "ended before it was killed"),
    ],
)
def test_the_harness_finds_defects(name: str, problem: str) -> None:
    assert problem in killed(name, 6, ENDING_SECONDS="0.5")
