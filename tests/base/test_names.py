"""Names made fit to show."""

from __future__ import annotations

from hetero.base.names import clean, shortened


def test_names_made_fit_to_show() -> None:
    assert clean("plain") == "plain"
    assert clean("a\nb\x00\x7f\ud800\u202e") == "a␊b␀␡\ufffd\ufffd"
    assert shortened("abcdefghij", 5) == "ab…ij"
    assert len(shortened("x" * 10_000_000, 20)) == 20
