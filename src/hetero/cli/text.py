"""Output of commands: tables, JSON, and names from models, escaped for terminals."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from ..base.formatting import counted, shape_text

if TYPE_CHECKING:
    from rich.console import Console

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
_UNLIMITED = 10_000  # columns, where output goes to a file or a pipe
_MOST_DRAWN = 200  # rows


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
    cells = [["" if cell is None else clean_lines(str(cell)) for cell in row] for row in rows]
    if len(cells) > _MOST_DRAWN:
        _print_plainly(title, columns, cells)
        return
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    table.show_edge = table.pad_edge = False
    for heading in columns:
        right = heading.startswith(">")
        name = Text(heading.removeprefix(">"))
        table.add_column(name, justify="right" if right else "left", overflow="fold", no_wrap=right)
    for row in cells:
        table.add_row(*map(Text, row))
    console = _console()
    # Not rich's own title and caption, which wrap at the table's width.
    lines = [Text(clean(title), style="bold"), table]
    if caption is not None:
        lines.append(Text(clean(caption), style="dim"))
    if console.is_terminal:
        console.print(*lines, "", sep="\n")
        return
    with console.capture() as captured:
        console.print(*lines, "", sep="\n")
    click.echo("\n".join(line.rstrip() for line in captured.get().split("\n")), nl=False)


def _print_plainly(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table of many rows, for which rich is slow."""
    headings = [heading.removeprefix(">") for heading in columns]
    ways = [">" if heading.startswith(">") else "<" for heading in columns]
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    click.echo(clean(title))
    for row in (headings, *rows):
        cells = (f"{cell:{way}{width}}" for cell, way, width in zip(row, ways, widths, strict=True))
        click.echo("  ".join(cells).rstrip())
    click.echo()


def _console() -> Console:
    from rich.console import Console

    plain = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    if plain.is_terminal:
        return plain
    return Console(file=sys.stdout, highlight=False, markup=False, emoji=False, width=_UNLIMITED)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(entry) for entry in value]
    return value
