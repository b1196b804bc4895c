"""The line that shows progress, as a terminal shows it."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr

import click
import pytest

from hetero.cli.progress import progress, working


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        """What remains on the screen."""
        lines = []
        for written in self.getvalue().split("\n"):
            line = ""
            for text in written.split("\r"):
                line = text + line[len(text) :]
            lines.append(line.rstrip())
        return lines


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hetero.cli.progress._INTERVAL_S", 0.001)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "70")


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_a_bar() -> None:
    with redirect_stderr(Terminal()) as terminal:
        with progress("Measuring\x1b") as tell:
            wait_for(lambda: f"Measuring\\x1b {'─' * 40} -:--:--" in terminal.getvalue())
            tell(0.5)
            wait_for(lambda: f"{'━' * 20}{'─' * 20} 0:00:0" in terminal.getvalue())
            with working("within"):  # not shown: the bar is
                pass
        assert sys.stderr is terminal
    assert terminal.lines() == [""]
    assert "within" not in terminal.getvalue()


def test_other_output_stays_above() -> None:
    with redirect_stderr(Terminal()) as terminal, working("Planning"):
        wait_for(lambda: "⠋ Planning 0:00:00" in terminal.getvalue())
        click.echo("Warning: one", err=True)
        print("two", "words", file=sys.stderr, end="")
        before = len(terminal.getvalue())
        time.sleep(0.01)
        assert len(terminal.getvalue()) == before  # the line has not ended
        print(file=sys.stderr)
        wait_for(lambda: "Planning 0:00:" in terminal.lines()[-1])
    assert terminal.lines() == ["Warning: one", "two words", ""]


def test_an_error_ends_the_line() -> None:
    with redirect_stderr(Terminal()) as terminal:
        with pytest.raises(ZeroDivisionError), working("Planning"):
            raise ZeroDivisionError
        assert sys.stderr is terminal
    assert terminal.lines() == [""]


def test_nothing_is_shown_in_a_pipe_or_on_a_dumb_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    with redirect_stderr(io.StringIO()) as pipe, progress("Planning") as tell:
        tell(1.0)
    monkeypatch.setenv("TERM", "dumb")
    with redirect_stderr(Terminal()) as terminal, working("Planning"):
        assert sys.stderr is terminal
    assert pipe.getvalue() + terminal.getvalue() == ""
