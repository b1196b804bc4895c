"""A disk that is full."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from faults.operations import ON_FILES


@pytest.mark.parametrize("operation", ON_FILES)
def test_a_full_disk_leaves_no_incomplete_file(operation: str) -> None:
    command = [sys.executable, str(Path(__file__).with_name("disk.py")), operation]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["problems"] == []
    assert found["failures"] > 0 or operation == "cache"  # a cache that cannot be written is not an error
