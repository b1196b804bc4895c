"""Output of commands: tables, JSON, and names from models, escaped for terminals."""

from __future__ import annotations

import itertools
import json
import math
import shutil
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import click

from ..base.formatting import counted, shape_text

__all__ = [
    "MOST_ROWS",
    "clean",
    "clean_lines",
    "print_json",
    "print_line",
    "print_table",
    "shorten",
    "shown_shape",
]

MOST_ROWS = 40  # of a table, unless the command prints all
_WIDEST_NAME = 80  # where output goes to a file or a pipe
_GAP = "   "  # between columns
_NARROWEST = 8  # characters of a column that is wrapped


def clean(text: str) -> str:
    """``text`` with escaped control characters, terminal escapes and characters that change the text direction."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def clean_lines(text: str) -> str:
    """`clean` line by line."""
    return "\n".join(map(clean, text.split("\n")))


def shorten(name: str, width: int | None = None) -> str:
    """`clean`, and shortened in the middle to ``width`` characters, by default the width of a column."""
    if width is None:
        width = max(30, shutil.get_terminal_size().columns // 3) if sys.stdout.isatty() else _WIDEST_NAME
    name = clean(name if len(name) <= 4 * width else f"{name[: 2 * width]}{name[-2 * width :]}")
    return name if len(name) <= width else f"{name[: width // 2 - 1]}…{name[-(width - width // 2) :]}"


def shown_shape(value: Any) -> str:
    """The shape of an array, or the kind of another input or output."""
    if value is None:
        return "none"
    if isinstance(value, list):
        return counted(len(value), "array")
    return shape_text(value.shape, compact=True)


def print_line(text: str = "") -> None:
    """Prints a line on stdout."""
    click.echo(clean_lines(text))


def print_json(value: Mapping[str, Any]) -> None:
    """Prints one JSON object on stdout. NaN and infinite numbers become null."""
    click.echo(json.dumps(_finite(value), indent=1, allow_nan=False))


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    caption: str | None = None,
    max_rows: int | None = MOST_ROWS,
) -> None:
    """Prints a table on stdout. Columns whose heading begins with ``>`` are right-aligned and never wrapped.

    ``max_rows``: number of rows to show, with a line for the rest; None for all.
    """
    if max_rows is not None and len(rows) > max_rows:
        more = f"… {len(rows) - max_rows:,} more; --json has all"
        rows, caption = rows[:max_rows], more if caption is None else f"{more}. {caption}"
    is_right = [heading.startswith(">") for heading in columns]
    headings = [heading.removeprefix(">") for heading in columns]
    cells = [["" if cell is None else clean_lines(str(cell)) for cell in row] for row in rows]
    widths = [max(map(_width, column)) for column in zip(headings, *cells, strict=True)]
    is_terminal = sys.stdout.isatty()
    if is_terminal:
        widths = _fitted(widths, is_right, shutil.get_terminal_size().columns - len(_GAP) * (len(widths) - 1))
    head = [_wrapped(heading, width) for heading, width in zip(headings, widths, strict=True)]
    deepest = max(map(len, head))
    lines = [
        click.style(clean(title), bold=True),
        *(
            click.style(line, bold=True)
            for line in _lines([[""] * (deepest - len(cell)) + cell for cell in head], widths, is_right)
        ),
        "─" * (sum(widths) + len(_GAP) * (len(widths) - 1)),
    ]
    for row in cells:
        lines += _lines([_wrapped(cell, width) for cell, width in zip(row, widths, strict=True)], widths, is_right)
    if caption is not None:
        lines.append(click.style(clean(caption), dim=True))
    click.echo("\n".join([*lines, ""]))  # click removes the styles unless stdout is a terminal


def _lines(cells: Sequence[Sequence[str]], widths: Sequence[int], is_right: Sequence[bool]) -> list[str]:
    """The lines of a row whose cells have several lines."""
    return [
        _GAP.join(
            _padded(text, width, right) for text, width, right in zip(line, widths, is_right, strict=True)
        ).rstrip()
        for line in itertools.zip_longest(*cells, fillvalue="")
    ]


def _fitted(widths: Sequence[int], is_fixed: Sequence[bool], total: int) -> list[int]:
    """Widths of columns that take ``total`` characters if possible: the widest ones that are not fixed are narrowed."""
    fitted = list(widths)
    excess = sum(fitted) - total
    while excess > 0:
        width, at = max(
            ((0 if fixed else width), at) for at, (width, fixed) in enumerate(zip(fitted, is_fixed, strict=True))
        )
        if width <= _NARROWEST:
            break
        fitted[at] -= 1
        excess -= 1
    return fitted


def _width(text: str) -> int:
    """Of the longest line, in columns of a terminal."""
    return max(map(_line_width, text.split("\n")))


def _line_width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def _padded(text: str, width: int, right: bool) -> str:
    padding = " " * (width - _line_width(text))
    return padding + text if right else text + padding


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of at most ``width`` columns, broken at blanks where possible."""
    lines = []
    for paragraph in text.split("\n"):
        line = None
        for word in paragraph.split(" ") if _line_width(paragraph) > width else [paragraph]:
            joined = word if line is None else f"{line} {word}"
            if line is not None and _line_width(joined) > width:
                lines.append(line)
                joined = word
            while len(joined) > 1 and _line_width(joined) > width:
                ends = range(len(joined) - 1, 0, -1)
                fits = next((end for end in ends if _line_width(joined[:end]) <= width), 1)
                lines.append(joined[:fits])
                joined = joined[fits:]
            line = joined
        lines.append(line or "")
    return lines


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(entry) for entry in value]
    return value
