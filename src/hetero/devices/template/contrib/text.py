"""Operators on text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...bounded_patterns import bounded_pattern
from .table import Array, definition

__all__: list[str] = []


@definition("Tokenizer", accepted={"mark": (0, 1)})
def tokenizer(
    x: Array,
    *,
    mark: int,
    mincharnum: int,
    pad_value: bytes,
    separators: Sequence[bytes] | None = None,
    tokenexp: bytes | None = None,
) -> Array:
    """The tokens of each string along a new axis: matches of ``tokenexp``, what lies between separators, or characters
    if the only separator is empty. No strings have no new axis."""

    def tokens(text: str) -> list[str]:
        if tokenexp not in (None, b"."):  # in onnxruntime, "." is any character, also a line end
            pattern = bounded_pattern("tokenexp", tokenexp.decode(), longest=True)
            found = [match.group() for match in pattern.finditer(text)]
        elif separators is None or [*separators] == [b""]:
            found = list(text)
        else:
            found = [text]
            for separator in separators:
                pattern = bounded_pattern("separators", separator.decode(), longest=True)
                marked = [pattern.sub("\0", part) for part in found]
                found = [piece for part in marked for piece in part.split("\0")]
        return [token for token in found if len(token) >= mincharnum]

    if not x.size:
        return np.empty((*x.shape[:-1], 0), object)
    rows = [tokens(text) for text in x.reshape(-1)]
    if mark and any(rows):  # no marks if no row has a token
        rows = [["\x02", *row, "\x03"] for row in rows]
    width = max(map(len, rows), default=0)
    made = np.full((len(rows), width), pad_value.decode(), object)
    for line, row in zip(made, rows, strict=True):
        line[: len(row)] = row
    return made.reshape(*x.shape, width)
