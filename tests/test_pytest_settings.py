"""The settings of pytest in pyproject.toml."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from spread import choose

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


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(1, 4))
def test_combinations_that_remain(sizes: list[int], every: int) -> None:
    """Each value, and two values of any two parameters where a third one has enough values to choose among."""
    combinations = [dict(zip("abcd", places, strict=False)) for places in itertools.product(*map(range, sizes))]
    remain = list(itertools.compress(combinations, choose(combinations, every)))
    for count in (1, 2):
        for names in itertools.combinations("abcd"[: len(sizes)], count):
            if count == 1 or any(size >= every for name, size in zip("abcd", sizes, strict=False) if name not in names):
                expected = {tuple(places[name] for name in names) for places in combinations}
                assert {tuple(places[name] for name in names) for places in remain} == expected
    if sum(size % every == 0 for size in sizes) > 1:
        assert len(remain) * every == len(combinations)


SPREAD = """
import pytest

pytestmark = pytest.mark.spread(2)


@pytest.mark.parametrize("word", ["a", "b", "c", "d"])
@pytest.mark.parametrize(("number", "half"), [([1], 0.5), ([2], 1)])
def test_two(word, number, half):
    pass


@pytest.mark.parametrize("word", ["a", "b", "c"])
def test_one(word):
    pass


@pytest.mark.spread(1)
@pytest.mark.parametrize("word", ["a", "b", "c"])
@pytest.mark.parametrize("number", [1, 2])
def test_whole(word, number):
    pass
"""

HOOK = """
from spread import spread


def pytest_collection_modifyitems(config, items):
    spread(items)
    config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("exhaustive")])
    items[:] = [item for item in items if not item.get_closest_marker("exhaustive")]
"""


def test_marks_of_combinations(tmp_path: Path) -> None:
    (tmp_path / "test_spread.py").write_text(SPREAD)
    (tmp_path / "conftest.py").write_text(HOOK)
    settings = Path(__file__).parents[1] / "pyproject.toml"
    command = [sys.executable, "-m", "pytest", "-c", str(settings), "--rootdir", str(tmp_path), "-v"]
    path = os.pathsep.join([str(Path(__file__).with_name("helpers")), os.environ.get("PYTHONPATH", "")])
    ran = subprocess.run(
        [*command, "test_spread.py"], cwd=tmp_path, text=True, capture_output=True, check=False,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert "13 passed, 4 deselected" in ran.stdout, ran.stdout + ran.stderr
    for name in ("number0-0.5-a", "number1-1-b", "number1-1-c", "number0-0.5-d"):
        assert f"::test_two[{name}] PASSED" in ran.stdout
