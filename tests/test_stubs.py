"""The hand-written stubs say what the compiled modules are, and the package type-checks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MODULES = (
    "hetero._onnx",
    "hetero._graph",
    "hetero._partition",
    "hetero._assign",
    "hetero._schedule",
    "hetero._closure",
    "hetero._kernels",
    "hetero._program",
    "hetero._workspace",
    "hetero._checksum",
)


@pytest.mark.slow
def test_stubs_match_the_compiled_modules(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", *MODULES, "--ignore-disjoint-bases"],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_package_type_checks(tmp_path: Path) -> None:
    config = Path(__file__).parents[1] / "pyproject.toml"
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", str(config), "--cache-dir", str(tmp_path), "-p", "hetero"],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
