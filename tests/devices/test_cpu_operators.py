"""Operators of the CPU over attributes, types and all opsets, against TEMPLATE (which is held against onnxruntime)."""

from __future__ import annotations

import warnings
from collections import Counter

import pytest
from onnx import helper

from hetero import Core, HeteroError
from operator_cases import Case, models
from template_runs import difference, run_on_template

NEWEST_OPSET = 23

# ONNX casts OneHot's indices to int64, cutting fractions off; its reference compares them as they are.
REFERENCE_IS_WRONG = {"OneHot(float32[3],float32[],int64[2]) "}

# Relative and absolute: some units in the last place of operands, as the reference rounds after each step.
TOLERANCE = {"float16": (2e-3, 1e-2), "bfloat16": (1.6e-2, 8e-2)}

# From opset 21 on there is a scale per channel, not per group.
INVALID = {("GroupNormalization(float32[2, 4, 3, 3],float32[2],float32[2]) num_groups=2", 21)}


def outcome_of(core: Core, case: Case, version: int) -> str:
    proto = case.model(version)
    if len(core.query_model(core.read_model(proto), "CPU")) < len(proto.graph.node):
        return "refused"
    arrays = list(case.feeds().values())
    wanted = run_on_template(proto, arrays)
    for position, array in enumerate(wanted):
        # Stated, so that compiling needs no shape inference.
        name, dtype = proto.graph.output[position].name, helper.np_dtype_to_tensor_dtype(array.dtype)
        proto.graph.output[position].CopyFrom(helper.make_tensor_value_info(name, dtype, array.shape))
    try:
        # The runner itself: a request holds results against the types stated.
        found = core.compile_model(core.read_model(proto), "CPU").create_runner().run(arrays)
    except HeteroError as error:
        # Shapes that only planning sees: onnxruntime refuses these as well.
        return "refused" if case.op_type == "Split" and "does not fit" in str(error) else f"error: {error}"
    for position, expected in enumerate(wanted):
        text = difference(found[position], expected, *TOLERANCE.get(str(expected.dtype), (1e-4, 1e-5)))
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
            if str(case) in REFERENCE_IS_WRONG or (str(case), version) in INVALID:
                continue
            outcomes[str(case), version] = outcome_of(core, case, version)
    assert not {key: text for key, text in outcomes.items() if text not in ("same", "refused")}
    assert Counter(outcomes.values())["same"] > 4900
