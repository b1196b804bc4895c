"""Formats names from a model for display. Names are untrusted: they may contain quotes, markup, control characters and
lone surrogates, and be megabytes long.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["clean", "file_stem", "first_few", "short", "shortened", "xml_text"]

_MAX_WIDTH = 40  # characters of a name in a message

# C0 and C1 controls, lone surrogates, and characters that change the writing direction of the text around the name.
_HARMFUL = re.compile(
    "[\x00-\x1f\x7f-\x9f\ud800-\udfff\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufffe\uffff]"
)


def clean(name: str) -> str:
    """``name`` on one line of valid Unicode: lone surrogates become U+FFFD, and control characters become their visible
    symbols."""
    if name.isascii() and name.isprintable():
        return name
    return _HARMFUL.sub(_picture, name)


def shortened(name: str, width: int) -> str:
    """`clean`, shortened in the middle to ``width`` characters, because both ends distinguish names."""
    shown = clean(name if len(name) <= 4 * width else f"{name[: 2 * width]}{name[-2 * width :]}")
    if len(shown) <= width:
        return shown
    head = (width - 1) // 2
    return f"{shown[:head]}…{shown[len(shown) - (width - 1 - head) :]}"


def short(name: str) -> str:
    """`shortened` to the width of a name in a message."""
    return shortened(name, _MAX_WIDTH)


def first_few(names: Sequence[str], limit: int = 5, total: int | None = None) -> str:
    """The first ``limit`` names, quoted, and the number of further names out of ``total``."""
    count = len(names) if total is None else total
    text = ", ".join(repr(short(name)) for name in names[:limit])
    listed = min(len(names), limit)
    return f"{text} and {count - listed:,} more" if count > listed else text


def xml_text(name: str) -> str:
    """`clean`, escaped for text and for quoted attributes of XML and HTML."""
    shown = clean(name).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return shown.replace('"', "&quot;").replace("'", "&#39;")


def file_stem(name: str) -> str:
    """A part of a file name made from ``name``: only letters, digits, ``_`` and ``-``, at most 100 characters."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", name)[:100] or "model"


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else "\ufffd"
