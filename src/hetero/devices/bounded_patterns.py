"""Regular expressions from untrusted models.

Python's engine backtracks, so some patterns take exponential time. ONNX's patterns are those of RE2, which has no such
patterns; those that Python could not match in polynomial time are refused.
"""

from __future__ import annotations

import re
from typing import Any

from ..errors import InferenceError

__all__ = ["bounded_pattern"]

_MOST_PATTERN = 1 << 12


def bounded_pattern(name: str, pattern: str) -> re.Pattern[str]:
    """A compiled pattern. Python's engine backtracks, so patterns that could take unbounded time are refused."""
    if len(pattern) > _MOST_PATTERN:
        raise InferenceError(f"attribute {name} has {len(pattern)} characters; at most {_MOST_PATTERN} are supported")
    if "[:" in pattern or "{," in pattern:  # a class and literal characters in RE2, other things in Python
        raise InferenceError(f"attribute {name}, {pattern!r}, has a POSIX class or '{{,', which are not supported")
    trouble = _backtracks(pattern)
    if trouble:
        raise InferenceError(f"attribute {name}, {pattern!r}, {trouble}")
    return re.compile(pattern, re.ASCII)  # as RE2: only ASCII characters are in \w, \d and \s


def _backtracks(pattern: str) -> str | None:
    """Why matching ``pattern`` may take more than quadratic time, or is not RE2's syntax; None if neither."""
    from re import _parser as parser  # type: ignore[attr-defined]

    try:
        parsed = parser.parse(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"is not supported: {error}"
    repeats = 0

    def visit(items: Any, inside: bool) -> str | None:
        nonlocal repeats
        for op, argument in items:
            name = str(op)
            if name in ("GROUPREF", "GROUPREF_EXISTS", "ASSERT", "ASSERT_NOT", "ATOMIC_GROUP", "POSSESSIVE_REPEAT"):
                return f"has {name.lower()}, which RE2 does not know"
            if name in ("MAX_REPEAT", "MIN_REPEAT"):
                low, high, inner = argument
                if inside:
                    return "repeats a repetition, which can take exponential time"
                if high != low:
                    repeats += 1
                many = high != low or int(low) > 1
                trouble = visit(inner, inside or many)
            elif name == "SUBPATTERN":
                trouble = visit(argument[-1], inside)
            elif name == "BRANCH":
                if inside:
                    return "repeats alternatives, which can take exponential time"
                trouble = next(filter(None, (visit(branch, inside) for branch in argument[1])), None)
            else:
                trouble = None
            if trouble:
                return trouble
        return None

    trouble = visit(parsed, False)
    if trouble is None and repeats > 6:
        return f"has {repeats} repetitions; at most 6 are supported, because each may multiply the time"
    return trouble
