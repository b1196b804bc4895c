"""Markdown tables, as benchmarks print them and pages hold them."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["Table"]


class Table:
    """Columns and rows of text."""

    def __init__(self, *columns: str) -> None:
        self.columns = columns
        self.rows: list[tuple[str, ...]] = []

    def add(self, *cells: str) -> None:
        """Add a row. On a terminal, also report it on stderr, because some tables take minutes."""
        if len(cells) != len(self.columns):
            raise ValueError(f"a row of {len(cells)} cells in a table of {len(self.columns)} columns: {cells}")
        self.rows.append(cells)
        if sys.stderr.isatty():
            print(f"\r\033[K{len(self.rows)}: {' '.join(cells)[:70]}", end="", file=sys.stderr, flush=True)

    def print(self) -> None:
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        print(self)

    def __str__(self) -> str:
        lines = [f"| {' | '.join(line)} |" for line in (self.columns, *self.rows)]
        return "\n".join([lines[0], "|" + "---|" * len(self.columns), *lines[1:]])

    @classmethod
    def parse(cls, text: str) -> Table:
        """The table in a Markdown text that has only one."""
        lines = [line for line in text.splitlines() if line.startswith("|")]
        if len(lines) < 3 or set(lines[1]) - set("|- "):
            raise ValueError(f"not a table with rows: {text.strip()[:200]!r}")
        cells = [tuple(cell.strip() for cell in line.strip().strip("|").split("|")) for line in lines]
        table = cls(*cells[0])
        for row in cells[2:]:
            if len(row) != len(table.columns):
                raise ValueError(f"a row of {len(row)} cells in a table of {len(table.columns)} columns: {row}")
            table.rows.append(row)
        return table

    def cell(self, row: Sequence[str], column: str) -> str:
        """The cell in the first column of that name, in the row that begins with the cells ``row``. An empty cell in
        one of the columns of ``row`` stands for the cell above it."""
        at = self.columns.index(column)
        above = [""] * len(row)
        for cells in self.rows:
            above = [cell or last for cell, last in zip(cells, above, strict=False)]
            if above == list(row):
                return cells[at]
        raise KeyError(f"the table has no row {', '.join(row)}")
