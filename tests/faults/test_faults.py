"""Operations with a failure at the n-th allocation of the core, or at the n-th call that writes or makes files."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults import shim
from faults.operations import ON_FILES
from hetero.partition import POLICIES

QUICK = (
    "read",
    "read_everything",
    "keys",
    "skeletons",
    "graph",
    "checked",
    "closure",
    "limited",
    *(f"partition_{policy}" for policy in POLICIES),
)
LONG = ("plan", "plan_latency", "import_", "compile_cpu", "compile_dynamic")


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shim.build(tmp_path_factory.mktemp("shim"))


@pytest.mark.parametrize("operation", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in LONG)])
def test_each_allocation_may_fail(operation: str, library: Path) -> None:
    found = shim.run(library, operation, "memory")
    assert found["problems"] == []
    assert found["failures"] > 0


@pytest.mark.parametrize("operation", ON_FILES)
def test_each_call_for_files_may_fail(operation: str, library: Path) -> None:
    """The error is documented; neither a temporary nor an incomplete file is left."""
    found = shim.run(library, operation, "files")
    assert found["problems"] == []
    assert found["runs"] > 0
    assert found["failures"] > 0 or operation == "cache"  # a cache that cannot be written is not an error


@pytest.mark.parametrize("operation", ON_FILES)
def test_each_write_may_be_short(operation: str, library: Path) -> None:
    found = shim.run(library, operation, "short")
    assert found["problems"] == []
    assert found["runs"] > 0


@pytest.mark.parametrize(
    ("operation", "kind", "problem"),
    [
        ("leaking", "memory", "leaks in each run"),
        ("swallowing", "memory", "returned something else"),
        ("raising", "memory", "RuntimeError"),
        ("unfinished", "files", "left file"),
        ("unfinished", "short", "returned something else"),
    ],
)
def test_the_harness_finds_defects(operation: str, kind: str, problem: str, library: Path) -> None:
    found = shim.run(library, operation, kind)
    assert any(problem in each for each in found["problems"])
