"""Regular expressions from untrusted models.

Python's engine backtracks, so some patterns take exponential time. ONNX's patterns are those of RE2, which has no such
patterns; those that Python could not match in polynomial time are rejected.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from .._hosted import runs
from ..errors import InferenceError

__all__ = ["all_matches", "bounded_pattern"]

_MOST_PATTERN = 1 << 12


def bounded_pattern(name: str, pattern: str, longest: bool = False) -> re.Pattern[str]:
    """A compiled pattern. Python's engine backtracks, so patterns that could take unbounded time are rejected.

    ``longest``: reject patterns that may have a longer match where Python finds another one first."""
    if len(pattern) > _MOST_PATTERN:
        raise InferenceError(f"attribute {name} has {len(pattern)} characters; at most {_MOST_PATTERN} are supported")
    if "[:" in pattern or "{," in pattern:  # a class and literal characters in RE2, other things in Python
        raise InferenceError(f"attribute {name}, {pattern!r}, has a POSIX class or '{{,', which are not supported")
    trouble = _backtracks(pattern)
    if trouble:
        raise InferenceError(f"attribute {name}, {pattern!r}, {trouble}")
    if longest and _variable_parts(pattern) > 1:
        raise InferenceError(
            f"attribute {name}, {pattern!r}, has alternatives, or several repetitions, so Python may not find the "
            "longest match; at most one greedy repetition is supported"
        )
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


def _variable_parts(pattern: str) -> int:
    """The number of greedy repetitions. Alternatives and lazy repetitions count as two, because Python does not try the
    longest first. With at most one, Python's match at a place is the longest one there."""
    from re import _parser as parser  # type: ignore[attr-defined]

    def visit(items: Any) -> int:
        count = 0
        for op, argument in items:
            name = str(op)
            if name == "BRANCH":
                count += 2
            elif name in ("MAX_REPEAT", "MIN_REPEAT"):
                low, high, inner = argument
                if low != high:
                    count += 1 if name == "MAX_REPEAT" else 2
                count += visit(inner)
            elif name == "SUBPATTERN":
                count += visit(argument[-1])
        return count

    return visit(parser.parse(pattern))


def all_matches(pattern: re.Pattern[str]) -> Callable[[str], list[str]]:
    """A function that lists the matches of ``pattern`` in a string, as `re.finditer` does.

    A class of characters, and a run of one or more of them, which most tokenizers use, are faster: a table says for
    each character whether the class has it. If the class has white space, `str.split` would split runs.
    """
    kind = _class_or_run(pattern)
    if kind == "class":
        table = _Table(pattern, None)
        return lambda text: list(text.translate(table))
    if kind == "run":
        members = bytes(pattern.fullmatch(chr(code)) is not None for code in range(128))
        others, only_ascii = _all_runs(pattern), _is_only_ascii(pattern)

        def matches(text: str) -> list[str]:
            found = runs(text, members, only_ascii)
            return others(text) if found is None else found

        return matches
    if pattern.groups:
        return lambda text: [match.group() for match in pattern.finditer(text)]
    return pattern.findall


def _all_runs(pattern: re.Pattern[str]) -> Callable[[str], list[str]]:
    """`all_matches` of one or more characters of a class, for texts that are not ASCII."""
    if any(pattern.fullmatch(character) for character in _white_space()):
        return pattern.findall
    table = _Table(pattern, " ")
    return lambda text: text.translate(table).split()


def _class_or_run(pattern: re.Pattern[str]) -> str | None:
    """ "class": the pattern is one character of a class; "run": it is one or more of them, as many as possible."""
    from re import _parser as parser  # type: ignore[attr-defined]

    def is_class(items: Any) -> bool:
        return len(items) == 1 and str(items[0][0]) in ("IN", "ANY", "LITERAL", "NOT_LITERAL")

    items = parser.parse(pattern.pattern)
    if is_class(items):
        return "class"
    if len(items) == 1 and str(items[0][0]) == "MAX_REPEAT":
        low, high, inner = items[0][1]
        if low == 1 and high == parser.MAXREPEAT and is_class(inner):
            return "run"
    return None


def _is_only_ascii(pattern: re.Pattern[str]) -> bool:
    """Whether the class of a "run" certainly has no character beyond ASCII."""
    from re import _parser as parser  # type: ignore[attr-defined]

    ((_, (_, _, ((name, members),))),) = parser.parse(pattern.pattern)
    if str(name) != "IN" or pattern.flags & re.IGNORECASE:
        return False
    last: dict[str, Callable[[Any], int]] = {"LITERAL": lambda code: code, "RANGE": lambda bounds: bounds[1]}
    names = ("CATEGORY_DIGIT", "CATEGORY_SPACE", "CATEGORY_WORD")  # with re.ASCII
    return all(
        str(argument) in names if str(kind) == "CATEGORY" else str(kind) in last and last[str(kind)](argument) < 128
        for kind, argument in members
    )


@functools.cache
def _white_space() -> list[str]:
    """The white space at which `str.split` splits. No white space of Unicode has a larger code."""
    return [character for character in map(chr, range(0x3001)) if character.isspace()]


class _Table(dict[int, "int | str | None"]):
    """For `str.translate`: keeps characters that match, and replaces others. Filled as characters occur."""

    def __init__(self, pattern: re.Pattern[str], other: str | None) -> None:
        self._pattern = pattern
        self._other = other

    def __missing__(self, code: int) -> int | str | None:
        self[code] = made = code if self._pattern.fullmatch(chr(code)) else self._other
        return made
