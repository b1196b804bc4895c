"""Operators of the CPU over attributes, types and all opsets, against TEMPLATE (which is held against onnxruntime)."""

from __future__ import annotations

import warnings
from collections import Counter

import pytest

from hetero import Core, HeteroError
from operator_cases import Case, models
from template_runs import difference, run_on_template

NEWEST_OPSET = 23

# ONNX casts OneHot's indices to int64, cutting fractions off; its reference compares them as they are.
REFERENCE_IS_WRONG = {"OneHot(float32[3],float32[],int64[2]) "}


def outcome_of(core: Core, case: Case, version: int) -> str:
    proto = case.model(version)
    model = core.read_model(proto)
    if len(core.query_model(model, "CPU")) < model.num_nodes:
        return "refused"
    feeds = case.feeds()
    try:
        # The runner itself: a request holds results against types that ONNX infers, and for old operator versions
        # (Squeeze with negative axes, AveragePool with ceil_mode) it infers wrong ones.
        found = core.compile_model(model, "CPU").create_runner().run(list(feeds.values()))
    except HeteroError as error:
        # Shapes that only planning sees: onnxruntime refuses these as well.
        unfit = case.op_type in ("Split", "GroupNormalization") and " fit " in str(error)
        return "refused" if unfit else f"error: {error}"
    for position, wanted in enumerate(run_on_template(proto, list(feeds.values()))):
        text = difference(found[position], wanted, 1e-4, 1e-5)
        if text:
            return f"output {position}: {text}"
    return "same"


@pytest.mark.slow
def test_operators_agree_with_the_reference() -> None:
    core = Core()
    outcomes: dict[tuple[str, int], str] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the reference divides by zero and overflows where the cases ask for it
        for case, version in models(NEWEST_OPSET):
            if str(case) in REFERENCE_IS_WRONG:
                continue
            outcomes[str(case), version] = outcome_of(core, case, version)
    assert not {key: text for key, text in outcomes.items() if text not in ("same", "refused")}
    assert Counter(outcomes.values())["same"] > 4900
