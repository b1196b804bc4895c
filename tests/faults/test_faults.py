"""Operations with a failure at the n-th allocation of the core, or at the n-th call that writes or makes files, and
operations that are interrupted."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from faults import shim
from faults.operations import IN_MEMORY, ON_FILES
from hetero.partition import POLICIES

CORE = ("schedule", "minimum_cuts", "memory")
FINE = (
    *CORE,
    "graph",
    "checked",
    "refused",
    "closure",
    "partition_quick",
    *(f"partition_{policy}" for policy in POLICIES),
)
"""Operations that are interrupted at many points, because they take about a millisecond."""
QUICK = (
    "read",
    "read_everything",
    "keys",
    *(name for name in IN_MEMORY if name.startswith("skeletons")),
    "graph",
    "checked",
    "refused",
    "closure",
    "partition_quick",
    *CORE,
    *(f"partition_{policy}" for policy in POLICIES),
)
READS = ("read", "read_everything", "keys", "skeletons")
SOLVERS = ("assign", "makespan")
STEPS = {"limited": 23, "weighted": 11, **dict.fromkeys(SOLVERS, 61)}
SLOW_STEPS = {"import_": 7, "compile_cpu": 11, "compile_dynamic": 11, "plan": 127, "plan_latency": 257}
"""Operations that solve hundreds of small problems alike, or take long: every n-th of their allocations fails."""


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[shim.Program]:
    with contextlib.closing(shim.Program(shim.build(tmp_path_factory.mktemp("shim")))) as program:
        yield program


@pytest.mark.parametrize("operation", QUICK)
def test_each_allocation_may_fail(operation: str, program: shim.Program) -> None:
    found = program.run(operation, "memory")
    assert found["problems"] == []
    assert found["failures"] > 0


@pytest.mark.parametrize("operation", [*STEPS, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW_STEPS)])
def test_some_allocations_may_fail(operation: str, program: shim.Program) -> None:
    found = program.run(operation, "memory", step=(STEPS | SLOW_STEPS)[operation])
    assert found["problems"] == []
    assert found["failures"] > 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("operation", [*STEPS, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW_STEPS)])
def test_each_allocation_of_long_operations_may_fail(operation: str, program: shim.Program) -> None:
    """Those of `SOLVERS` and plans take minutes."""
    found = program.run(operation, "memory")
    assert found["problems"] == []
    assert found["failures"] > 0


@pytest.mark.parametrize("finest", [4, pytest.param(32, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(
    "operation", [*(name for name in QUICK if not name.startswith(READS)), "limited", "weighted", *SOLVERS]
)
def test_each_computation_may_be_interrupted(operation: str, finest: int, program: shim.Program) -> None:
    """As by a signal handler that raises, at points that are spread over its work: nothing is kept, and the next run is
    right."""
    found = program.run(operation, "interrupts", step=finest if operation in FINE else finest // 4)
    assert found["problems"] == []
    assert found["failures"] > 0


@pytest.mark.parametrize("operation", ["schedule_large", "partition_large"])
def test_computations_on_many_nodes_may_be_interrupted(operation: str, program: shim.Program) -> None:
    """At fewer points."""
    found = program.run(operation, "interrupts", step=1)
    assert found["problems"] == []
    assert found["failures"] > 0


@pytest.mark.parametrize("operation", ON_FILES)
def test_each_call_for_files_may_fail(operation: str, program: shim.Program) -> None:
    """The error is documented; neither a temporary nor an incomplete file is left."""
    found = program.run(operation, "files")
    assert found["problems"] == []
    assert found["runs"] > 0
    assert found["failures"] > 0 or operation == "cache"  # a cache that cannot be written is not an error


@pytest.mark.parametrize("operation", ON_FILES)
def test_each_write_may_be_short(operation: str, program: shim.Program) -> None:
    found = program.run(operation, "short")
    assert found["problems"] == []
    assert found["runs"] > 0


@pytest.mark.parametrize(
    ("operation", "kind", "problem"),
    [
        ("leaking", "memory", "leaks in each run"),
        ("swallowing", "memory", "returned something else"),
        ("raising", "memory", "RuntimeError"),
        ("going_on", "interrupts", "returned something else"),
        ("hoarding", "interrupts", "leaks where it is interrupted"),
        ("unfinished", "files", "left file"),
        ("unfinished", "short", "returned something else"),
    ],
)
def test_the_harness_finds_defects(operation: str, kind: str, problem: str, program: shim.Program) -> None:
    found = program.run(operation, kind)
    assert any(problem in each for each in found["problems"])
