"""Operations with a failure at the n-th allocation of the core, or at the n-th call that writes or makes files."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults import shim
from faults.operations import ON_FILES

QUICK = ("read", "graph", "checked", "partition_linear", "partition_depth_height")


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shim.build(tmp_path_factory.mktemp("shim"))


@pytest.mark.parametrize("operation", QUICK)
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
