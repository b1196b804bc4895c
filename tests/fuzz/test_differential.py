"""Random models on CPU against TEMPLATE and onnxruntime: a short run of each differential fuzzer.

pytest -m fuzz tests/fuzz                          two minutes of each, with a new seed
python tests/fuzz/run.py graphs --minutes 30       as long as one likes
"""

from __future__ import annotations

import re
import time
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

from fuzz import differential, operators, pieces, run
from hetero.devices.cpu.registry import HOSTED, OPERATORS, load_all

ASKED_FOR = "two minutes: pytest -m fuzz tests/fuzz"
MANY_CALLS = ("sizes", "loops", "captures", "states")
"""The kinds whose cases make the most calls."""


@pytest.mark.parametrize("kind", run.KINDS)
@pytest.mark.parametrize("cases", [10, pytest.param(50, marks=pytest.mark.exhaustive)])
def test_some_cases(kind: str, cases: int) -> None:
    tally, told = run.fuzz(kind, cases=cases // 5 if kind in MANY_CALLS else cases, seed=1)
    assert not told, told[0]
    assert tally.seen["refused by CPU"] < tally.cases / 4, tally


def test_every_operator_of_the_cpu_is_drawn_or_tested_elsewhere() -> None:
    assert not set(operators.DRAWS) & set(operators.ELSEWHERE)
    load_all()
    assert set(operators.DRAWS) >= operators.FUNCTIONS
    assert set(operators.DRAWS) | set(operators.ELSEWHERE) == set(OPERATORS) | set(HOSTED) | operators.FUNCTIONS
    for reason in operators.ELSEWHERE.values():
        for path in re.findall(r"tests/[\w/.]+", reason):
            assert (Path(__file__).parents[2] / path).exists(), path


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", run.KINDS)
def test_for_two_minutes(kind: str, request: pytest.FixtureRequest) -> None:
    if "fuzz" not in (request.config.option.markexpr or ""):
        pytest.skip(ASKED_FOR)
    tally, told = run.fuzz(kind, seconds=120, seed=int(time.time()))
    assert not told, told[0]
    assert tally.cases > (30 if kind in MANY_CALLS else 100)


@pytest.mark.parametrize(
    ("mine", "theirs", "tolerance", "same"),
    [
        ([1.0, np.nan, np.inf], [1.0, np.nan, np.inf], 0.0, True),
        ([1.0, np.nan], [1.0, 0.0], 1e-3, False),
        ([1.0, np.inf], [1.0, -np.inf], 1e-3, False),
        ([1000.0, 1.0], [1000.0, 1.005], 1e-5, True),  # relative to the largest
        ([1000.0, 1.0], [1000.0, 1.05], 1e-5, False),
        ([1000.0, 1.0], [1000.0, 1.005], 0.0, False),
    ],
)
def test_what_is_a_difference(mine: list[float], theirs: list[float], tolerance: float, same: bool) -> None:
    one, two = np.array(mine, np.float32), np.array(theirs, np.float32)
    assert (not differential.difference(one, two, tolerance)) == same
    assert differential.difference(one, two.astype(np.float64), tolerance)
    assert differential.difference(one, two.reshape(1, -1), tolerance)


def test_a_case_shrinks_to_what_differs() -> None:
    """Shrinking removes everything that the difference does not need: outputs, calls, nodes before and after."""
    for number in range(100):
        case = run.case_of("graphs", 3, number)
        if any(node.op_type == "Concat" for node in case.model.graph.node):
            break
    small = differential.shrink(
        case, lambda candidate: any(node.op_type == "Concat" for node in candidate.model.graph.node)
    )
    assert [node.op_type for node in small.model.graph.node] == ["Concat"]
    assert len(small.calls) <= 1
    assert "Concat" in differential.reproduction(small)


def test_a_wrong_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a judge gives other answers, every case is a difference, unless the difference is known."""

    def wrong(case: differential.Case) -> differential.Answer:
        answer = differential.on_template(case)
        return differential.Answer(
            [
                call if isinstance(call, str) else [~a if a.dtype == bool else a + 1 for a in call]
                for call in answer.calls
            ]
        )

    monkeypatch.setitem(differential.JUDGES, "onnxruntime", wrong)
    case = next(
        case
        for case in (run.case_of("graphs", 1, number) for number in range(50))
        if all(output.type.tensor_type.elem_type for output in case.model.graph.output)
        and "N" not in str(case.model.graph.input)
    )
    assert any("onnxruntime" in line for line in differential.differences(case))
    tally = differential.Tally()
    known = differential.Known("onnxruntime", "it is made wrong", lambda _: True)
    assert not differential.differences(case, [known], tally)
    assert tally.seen["onnxruntime: it is made wrong"] == 1
    other = differential.Known(
        "onnxruntime", "it fails", lambda _: True, lambda case, difference: "fails" in difference
    )
    assert differential.differences(case, [other])

    def read(difference: str) -> bool:
        raise AssertionError("only differences of cases to which an entry applies have the form that it reads")

    elsewhere = differential.Known("onnxruntime", "it is another operator's", lambda _: False, read)
    assert differential.differences(case, [elsewhere])


@pytest.mark.parametrize(
    ("end", "step", "output", "is_known"),
    [
        (2**63 - 1, -1, "cut", True),
        (2**31 - 1, -1, "after", True),
        (2**63 - 1, -1, "other", False),
        (2**63 - 1, 1, "cut", False),
        (2**63 - 2, -1, "cut", False),
    ],
)
def test_slices_of_pieces_that_differ(end: int, step: int, output: str, is_known: bool) -> None:
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    g (float[n] x, int64[1] step) => (float[a] after, float[b] cut, float[n] other)
        <int64[1] begin = {{-1}}, int64[1] end = {{{end}}}, int64[1] axis = {{0}}> {{
        cut = Slice (x, begin, end, axis, step)
        after = Neg (cut)
        other = Neg (x)
    }}"""
    feeds = {"x": np.ones(3, np.float32), "step": np.array([step])}
    case = differential.Case(onnx.parser.parse_model(text), [feeds])
    told = f"call 0, output '{output}': CPU and onnxruntime: float32[0] and float32[3]"
    assert any(known.applies(case) and known.shows(case, told) for known in pieces.KNOWN) == is_known


@pytest.mark.parametrize(
    ("opset", "output", "is_known"), [(11, "mask", True), (11, "after", True), (11, "y", False), (12, "mask", False)]
)
def test_dropouts_of_pieces_that_differ(opset: int, output: str, is_known: bool) -> None:
    text = f"""<ir_version: 8, opset_import: ["": {opset}]>
    g (float[n] x) => (float[n] y, bool[n] mask, float[n] after) {{
        y, mask = Dropout (x)
        after = Cast <to = 1> (mask)
    }}"""
    case = differential.Case(onnx.parser.parse_model(text), [{"x": np.ones(3, np.float32)}])
    told = f"call 0, output '{output}': CPU and onnxruntime: 3 of 3 differ, at [0] True and False"
    assert any(known.applies(case) and known.shows(case, told) for known in pieces.KNOWN) == is_known


def test_the_largest_difference_is_told() -> None:
    one, two = np.array([1, 2, 3, 4], np.float32), np.array([1, 2.5, 9, 4.5], np.float32)
    assert differential.difference(one, two, 1e-5) == "3 of 4 differ, at [2] 3.0 and 9.0"
    two[3] = np.nan
    assert differential.difference(one, two, 1e-5) == "3 of 4 differ, at [3] 4.0 and nan"
    assert differential.difference(one, two, 0) == "3 of 4 differ, at [1] 2.0 and 2.5"
