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


def test_failing_property_is_reported(tmp_path: Path) -> None:
    """No warning inside Hypothesis, as an error, takes the place of the failure."""
    (tmp_path / "test_fails.py").write_text(FAILS)
    settings = Path(__file__).parents[1] / "pyproject.toml"
    command = [sys.executable, "-m", "pytest", "-c", str(settings), "--rootdir", str(tmp_path), "test_fails.py"]
    ran = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, check=False)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "1 failed" in ran.stdout
