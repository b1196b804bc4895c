"""Expressions are matched in bounded time, with the results of `re`."""

from __future__ import annotations

import re
import time

import pytest

import hetero
from hetero.base import expressions
from hetero.base.expressions import matching

NAMES = ["/a/b", "/a/b/c", "a.b", "", "нет", "line\nbreak", "nul\0byte", '"quoted"', "x" * 18, "(", "/a/B"]


@pytest.mark.parametrize(
    "pattern",
    ["/a/.*", ".*", "(/[a-z])+", "(?i)/a/b", "a.b", "a\\.b", "x{18}", "(x+x+)+", ".*\n.*", "\\(", "(.*)*e.*"],
)
def test_the_same_as_re(pattern: str) -> None:
    assert matching(pattern, NAMES) == [i for i, name in enumerate(NAMES) if re.fullmatch(pattern, name)]


def test_what_is_no_expression() -> None:
    with pytest.raises(re.error):
        matching("(", NAMES)


def test_an_expression_that_would_take_for_ever_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expressions, "_SECONDS", 0.5)
    begin = time.perf_counter()
    with pytest.raises(
        hetero.PropertyError, match=r"'\(a\+\)\+b' takes more than 0.5 s on .*remove nested repetitions"
    ):
        matching("(a+)+b", ["a" * 60])
    assert time.perf_counter() - begin < 30


def test_names_of_a_model_cannot_keep_a_pin_busy(
    core: hetero.Core, diamond: hetero.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expressions, "_SECONDS", 0.5)
    proto = diamond.to_proto()
    proto.graph.node[2].name = "/a" * 40 + "!"
    model = core.read_model(proto)
    with pytest.raises(hetero.PropertyError, match="takes more than"):
        core.plan(model, "HETERO:FPGA,CPU", pins={r"(/?\w+/?)+x": "CPU"})


def test_ordinary_expressions_need_no_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr("subprocess.run", refuse)
    names = [f"/encoder/layer.{i % 12}/attention/MatMul_{i}" for i in range(20_000)]
    assert len(matching("/encoder/.*", names)) == 20_000
    assert len(matching(r"/encoder/layer\.(0|1)/.*", names)) == 3334
    with pytest.raises(AssertionError, match="a process"):
        matching("(/[a-z]*)*", names)
