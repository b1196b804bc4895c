"""What the tests of the command line share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from click.testing import Result

__all__ = ["NASTY", "Invoke", "Json"]

NASTY = 'a"b<script>[red]x[/red]\n\x1b[31m../../etc/passwd'
"""A name that is hostile to terminals, to rich's markup, to HTML and to paths."""

Invoke = Callable[..., Result]
Json = Callable[..., dict[str, Any]]
