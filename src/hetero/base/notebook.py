"""Tables for notebooks, as HTML. Everything in them is escaped, because names come from untrusted models."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from .names import shortened, xml_text

__all__ = ["html_table"]

_MOST_ROWS = 40
_WIDEST = 200  # characters of a cell


def html_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[object]], total: int) -> str:
    """A table with a caption. Shows up to 40 of ``total`` rows, and reads no others. A cell that is None is empty."""
    shown = list(itertools.islice(rows, _MOST_ROWS))
    more = total - len(shown)
    head = "".join(f"<th>{_text(heading)}</th>" for heading in headings)
    body = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in shown)
    if more > 0:
        body += f'<tr><td colspan="{len(headings)}">… {more:,} more</td></tr>'
    return f"<table><caption>{_text(title)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _text(cell: object) -> str:
    return "" if cell is None else xml_text(shortened(str(cell), _WIDEST))
