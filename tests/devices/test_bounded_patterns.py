"""Matches that are found by a table instead of the engine of regular expressions."""

from __future__ import annotations

import random
import sys

import pytest

from hetero.devices.bounded_patterns import _white_space, all_matches, bounded_pattern

CHARACTERS = [*"abcXYZ019_-.,;# \n\t\r\0'", *"\x1c\x85\u00a0\u2003\u2028\u3000éÄſİ\u212a\U0001f600\ud800"]


@pytest.mark.parametrize("pattern", [
    "[a-zA-Z0-9_]+", r"\w+", r"\S+", r"[^\s]+", "[^a]+", "[^ ]", ".", ".+", "(?s).", "(?s).+", r"\w", r"\W+", "a", "a+",
    "[^a ]+", r"[\w\s]+", r"[\x85a]+", "(?i)[a-k]+", "(?i)k+", "(?i)[s]", "[a-z]*", "[a-z]{2,}", "[a-z]+?", "(ab)",
    "(a)+", "a|b", "(?m)^", r"\b\w", "",
])  # fmt: skip
def test_all_matches(pattern: str) -> None:
    compiled = bounded_pattern("tokenexp", pattern)
    matches = all_matches(compiled)
    source = random.Random(0)
    for _ in range(500):
        text = "".join(source.choices(CHARACTERS, k=source.randrange(14)))
        assert matches(text) == [match.group() for match in compiled.finditer(text)]


def test_white_space() -> None:
    assert _white_space() == [c for c in map(chr, range(sys.maxunicode + 1)) if c.isspace()]
    assert all(f"a{c}b".split() == ["a", "b"] for c in _white_space())
