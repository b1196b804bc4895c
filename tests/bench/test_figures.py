"""The pages of figures have the tables that bench/figures.py makes, and it replaces them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import figures
from table import Table

ROOT = Path(__file__).parents[2]


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "bench" / "figures.py"), *arguments], capture_output=True, text=True, check=False
    )


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    return figures.copied_pages(tmp_path)


def test_pages_and_tables_agree() -> None:
    assert figures.problems(ROOT) == []


@pytest.mark.parametrize("name", figures.TABLES)
def test_commands_exist(name: str) -> None:
    figure = figures.TABLES[name]
    for quick in (False, True):
        script, *arguments = figure.arguments(quick)
        source = (ROOT / script).read_text(encoding="utf-8")
        assert [option for option in arguments if option.startswith("--") and f'"{option}"' not in source] == []


def change(page: Path, old: str, new: str) -> None:
    text = page.read_text(encoding="utf-8")
    assert old in text
    page.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.mark.parametrize(
    ("page", "old", "new", "problem"),
    [
        (figures.FIGURES, "<!-- table: kernels -->", "<!-- table: kernel -->", "unknown table kernel"),
        (figures.FIGURES, "<!-- table: kernels -->", "", "needs its own"),
        (figures.FIGURES, "<!-- table: kernels -->", "<!-- table: models -->", "models is there twice"),
        (figures.FIGURES, "| relu |", "relu", "not a table"),
        (figures.FIGURES, "| light_resnet50 | ", "| light_resnet50 | | ", "a row of"),
        (figures.FIGURES, "| light_resnet50 | ", "| light_resnet50 | 1", "the summary differs"),
        (figures.FIGURES, "| light_resnet50 | ", "| light_resnet51 | ", "the table has no row light_resnet50"),
    ],
)
def test_problems_are_found(pages: Path, page: str, old: str, new: str, problem: str) -> None:
    if problem == "not a table":
        body = figures.bodies_of(pages)["kernels"]
        change(pages / page, body, "\nno table\n")
    else:
        change(pages / page, old, new)
    assert any(problem in line for line in figures.problems(pages))


def test_a_quick_table_replaces_that_of_the_copied_page(tmp_path: Path) -> None:
    done = command("--quick", "--only", "optimum", "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    before, after = figures.bodies_of(ROOT), figures.bodies_of(tmp_path)
    changed = after.pop("optimum")
    assert after == {name: body for name, body in before.items() if name != "optimum"}
    table = Table.parse(changed)
    assert table.columns == Table.parse(before["optimum"]).columns
    assert table.cell(("auto", "all"), "number") == "30"
    for condition in ("python bench/optimum.py --graphs 30", "commit", "core", "Python", "load average", "CPU time"):
        assert condition in " ".join(changed.split())


def test_what_is_missing_is_named_and_keeps_its_table(pages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(figures, "is_installed", lambda package: package != "torch")
    monkeypatch.setattr("machine.adopt_orphans", lambda: None)  # it would be for the whole process of the tests
    before = figures.bodies_of(pages)
    assert figures.make(["peers"], pages, quick=True, report=lines.append) == []
    assert figures.bodies_of(pages) == before
    assert lines[0] == "peers: skipped, missing: package torch"


def test_a_loaded_machine_is_named() -> None:
    load = figures.machine.Load(before=4.0, after=5.0, foreign=0.5, cpu_seconds=1.0, elapsed=2.0)
    table = Table("a", "b")
    table.add("1", "2")
    figure = figures.TABLES["optimum"]
    result = figures.Result(table, "", load)
    assert "**Made on a loaded machine.**" in figures.body(figure, result, "abc1234", quick=False)


def test_a_command_that_fails_keeps_the_table(pages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    failing = figures.Figure(figures.PARTITIONER, "optimum.py --graphs none", "--graphs none")
    monkeypatch.setattr(figures, "TABLES", {"optimum": failing})
    monkeypatch.setattr("machine.adopt_orphans", lambda: None)
    monkeypatch.setattr("machine.wait_for_orphans", lambda: True)
    before = figures.bodies_of(pages)
    assert figures.make(["optimum"], pages, quick=False, report=lines.append) == ["optimum"]
    assert figures.bodies_of(pages) == before
    assert "invalid int value" in lines[0]


def test_cells_of_a_table() -> None:
    table = Table.parse("| kind | nodes | x |\n|---|---|---|\n| a | 1 | p |\n|  | 2 | q |\n| b | 2 | r |")
    assert table.cell(("a", "2"), "x") == "q"
    assert Table.parse(str(table)).rows == table.rows
    with pytest.raises(KeyError, match="no row a, 3"):
        table.cell(("a", "3"), "x")
    with pytest.raises(ValueError, match="a row of 1 cells"):
        table.add("one")
