"""The settings of pytest in pyproject.toml."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FAILS = """
from hypothesis import given, strategies


@given(strategies.integers())
def test_fails(number):
    assert number < 5
"""

GROUPED = """
import os
import pytest


@pytest.mark.xdist_group("one process")
@pytest.mark.parametrize("number", range(8))
def test_process(number, pytestconfig):
    (pytestconfig.rootpath / os.environ["PYTEST_XDIST_WORKER"]).touch()
"""


def test_failing_property_is_reported(tmp_path: Path) -> None:
    """No warning inside Hypothesis, as an error, takes the place of the failure."""
    (tmp_path / "test_fails.py").write_text(FAILS)
    settings = Path(__file__).parents[1] / "pyproject.toml"
    command = [sys.executable, "-m", "pytest", "-c", str(settings), "--rootdir", str(tmp_path), "test_fails.py"]
    ran = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, check=False)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "1 failed" in ran.stdout


def test_groups_run_in_one_process(tmp_path: Path) -> None:
    """Clusters of RAY would meet each other otherwise."""
    (tmp_path / "test_grouped.py").write_text(GROUPED)
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup", "--rootdir", str(tmp_path)]
    ran = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert len(list(tmp_path.glob("gw*"))) == 1
