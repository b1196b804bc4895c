"""Forged exported files, plans, costs and manifests: only errors of hetero, no crash, bounded time and memory."""

from __future__ import annotations

import hashlib
import random
from typing import Any

import numpy as np
import onnx
import pytest

from hostile import forgeries
from hostile.mutations import change_bytes, change_json, change_message, places_of


@pytest.mark.parametrize("kind", forgeries.KINDS)
@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.exhaustive)])
def test_some_forgeries(kind: str, times: int) -> None:
    ended, problems = forgeries.fuzz(kind, seed=1, seconds=120, cases=times * forgeries.EACH)
    assert not problems, problems[0]
    assert ended.total() >= times * forgeries.EACH


@pytest.mark.slow
@pytest.mark.fuzz
@pytest.mark.parametrize("kind", forgeries.KINDS)
def test_forgeries_for_ten_seconds(kind: str, request: pytest.FixtureRequest) -> None:
    if "fuzz" not in (request.config.option.markexpr or ""):
        pytest.skip("a minute: pytest -m fuzz tests/hostile")
    seed = int.from_bytes(hashlib.sha256(kind.encode()).digest()[:4])
    _, problems = forgeries.fuzz(kind, seed=seed, seconds=10)
    assert not problems, problems[0]


class _Broken:
    """A subject whose forgeries do what no forgery may do."""

    size = 100

    def __init__(self, choose: random.Random) -> None:
        self.kept = bytearray()

    def raw(self) -> None:
        raise KeyError("x")

    def slow(self) -> None:
        end = forgeries.time.process_time() + forgeries.CPU_S + 0.2
        while forgeries.time.process_time() < end:
            pass

    def large(self) -> None:
        self.kept = bytearray(forgeries.GROWTH + (8 << 20))
        self.kept[:] = b"x" * len(self.kept)


@pytest.mark.parametrize(("what", "words"), [("raw", "KeyError"), ("slow", "CPU time"), ("large", "MiB for 100 bytes")])
def test_the_harness_finds_defects(what: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, which no timer may end."""
    monkeypatch.setattr(forgeries, "CPU_S", 0.5)
    told: list[Any] = []
    subject = _Broken(random.Random(0))
    subject.steps = lambda choose: [("import", getattr(subject, what))]  # type: ignore[attr-defined]
    forgeries.attempt(subject, random.Random(0), lambda *each: told.append(each), lambda seconds: None)
    assert any(each[0] == "problem" and words in each[1] for each in told)


def test_a_crash_is_found() -> None:
    _, problems = forgeries.fuzz("crashing", seed=0, seconds=60, cases=2)
    assert problems
    assert "the process ended with -11 in import" in problems[0]


def test_changes_of_documents() -> None:
    """Every kind of place is reached, and the document that was given stays JSON."""
    choose = random.Random(1)
    seen = set()
    for _ in range(400):
        document: dict[str, Any] = {"a": [1, 2, {"b": "text", "c": 0.5}], "d": None, "e": True}
        seen.add(change_json(choose, document).partition(":")[0])
        list(places_of(document))
    assert seen == {"a", "b", "c", "d", "e", "[]"}


def test_changes_of_models_and_arrays() -> None:
    choose = random.Random(1)
    model = onnx.ModelProto()
    changed = 0
    for _ in range(200):
        model.ParseFromString(forgeries.operations.model_bytes())
        change_message(choose, model)
        changed += model.SerializeToString() != forgeries.operations.model_bytes()
        data = np.arange(16).tobytes()
        changed += change_bytes(choose, data) != data
    assert changed > 300
