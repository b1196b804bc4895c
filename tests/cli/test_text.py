"""Tables on terminals and in pipes."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetero.cli.text import _fitted, _line_width, _wrapped, print_table

ROWS = [("CPU", 12, "a reason\nof two lines"), ("日本", None, "x")]


def printed(capsys: pytest.CaptureFixture[str], rows: Sequence[Sequence[object]], **options: object) -> str:
    print_table("Title", ("device", ">sub-\ngraphs", "reason"), rows, **options)  # type: ignore[arg-type]
    return capsys.readouterr().out


def test_a_table_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, ROWS, caption="below\x1b") == (
        "Title\n"
        "           sub-\n"
        "device   graphs   reason\n"
        "─────────────────────────────\n"
        "CPU          12   a reason\n"
        "                  of two lines\n"
        "日本              x\n"
        "below\\x1b\n"
        "\n"
    ).replace("─" * 29, "─" * 30)
    long = printed(capsys, [("x" * 5000, 1, "y")] * 41)
    assert "x" * 5000 in long  # not wrapped
    assert "… 1 more; --json has all" in long


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_table_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", terminal := Terminal())
    monkeypatch.setenv("COLUMNS", "40")
    reason = "words of a reason " * 4 + "/a/name/without/blanks" * 3
    print_table("Title", ("device", ">number", "reason"), [("CPU", 1, reason)], caption="below")
    text = terminal.getvalue()
    assert text.startswith("\x1b[1mTitle\x1b[0m\n\x1b[1mdevice   number   reason\x1b[0m\n─")
    assert "\x1b[2mbelow\x1b[0m" in text
    lines = re.sub("\x1b\\[[0-9]m", "", text).splitlines()
    assert max(map(len, lines)) == 40
    assert "".join("".join(line[18:] for line in lines[3:-2]).split()) == reason.replace(" ", "")


@given(st.text(st.sampled_from("ab日\u0301 ")), st.integers(2, 9))
def test_wrapping_keeps_the_text(text: str, width: int) -> None:
    lines = _wrapped(text, width)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert max(map(_line_width, lines)) <= width
    if _line_width(text) <= width:
        assert lines == [text]


@given(st.lists(st.tuples(st.integers(0, 60), st.booleans()), min_size=1, max_size=6), st.integers(-5, 120))
def test_columns_fit_if_they_can(columns: list[tuple[int, bool]], total: int) -> None:
    widths, is_fixed = zip(*columns, strict=True)
    fitted = _fitted(widths, is_fixed, total)
    for old, new, fixed in zip(widths, fitted, is_fixed, strict=True):
        assert new == old if fixed else min(old, 8) <= new <= old
    least = sum(width if fixed else min(width, 8) for width, fixed in columns)
    assert sum(fitted) == min(sum(widths), max(total, least))
