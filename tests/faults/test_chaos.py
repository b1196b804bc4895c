"""Threads that use shared models at random; see chaos.py."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_eight_threads_on_shared_models() -> None:
    command = [sys.executable, str(Path(__file__).with_name("chaos.py")), "--seconds", "5"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    for action in ("asynchronous", "cancel", "compile", "export", "infer", "properties"):
        assert f"'{action}'" in done.stdout
