"""The settings of pytest in pyproject.toml."""

from __future__ import annotations

import os
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

PLUGIN = """
from lost_workers import LostWorkers


def pytest_configure(config):
    config.pluginmanager.register(LostWorkers())
"""

EXITS = """
import os


def test_exits():
    os.write(2, b"last words")
    os._exit(7)
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


def test_process_that_exits_is_explained(tmp_path: Path) -> None:
    """A library that ends the process leaves no message otherwise."""
    (tmp_path / "test_exits.py").write_text(EXITS)
    (tmp_path / "conftest.py").write_text(PLUGIN)
    command = [sys.executable, "-m", "pytest", "-n", "1", "--max-worker-restart", "0", "--rootdir", str(tmp_path)]
    helpers = {**os.environ, "PYTHONPATH": str(Path(__file__).parent / "helpers")}
    ran = subprocess.run(command, cwd=tmp_path, env=helpers, text=True, capture_output=True, check=False)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "exited with status 7\nCaptured last: last words" in ran.stdout
