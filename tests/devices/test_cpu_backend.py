"""ONNX's own node tests on the CPU: every model whose nodes it says it takes gives the right answer."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from hetero import Core, HeteroError
from template_runs import difference, node_tests, value_of

# How many of the node tests the CPU took when this was last counted: fewer means that an operator was lost.
LEAST_TAKEN = 1584

# The reference rounds halves after each step of an operator, the CPU once: they differ in the last places.
HALF_TOLERANCE = {"float16": 2.0**-9, "bfloat16": 2.0**-6}

# Their imaginary parts are the rounding errors of a transform in float32; the CPU's are smaller.
NOISY = ("test_dft_inverse", "test_dft_inverse_opset19")


def outcome_of(core: Core, case: Any) -> str | None:
    """ "refused", "passed", or what went wrong; None where a sequence or an optional goes in or out."""
    model = core.read_model(case.model)
    if len(core.query_model(model, "CPU")) < model.num_nodes:
        return "refused"
    compiled = core.compile_model(model, "CPU")
    for inputs, outputs in case.data_sets:
        arrays = [value_of(item) for item in inputs]
        if any(array is None or isinstance(array, list) for array in arrays):
            return None
        names = [port.name for port in compiled.inputs]
        found = compiled(dict(zip(names, arrays, strict=False)))
        for position, wanted in enumerate(outputs):
            rtol = max(case.rtol, HALF_TOLERANCE.get(np.asarray(found[position]).dtype.name, 0.0))
            text = difference(found[position], wanted, rtol, 1e-5 if case.name in NOISY else case.atol)
            if text:
                return f"output {position}: {text}"
    return "passed"


@pytest.mark.slow
def test_what_the_cpu_takes_is_right() -> None:
    core = Core()
    outcomes = {}
    for case in node_tests():
        try:
            outcomes[case.name] = outcome_of(core, case)
        except HeteroError as error:
            outcomes[case.name] = f"{type(error).__name__}: {error}"
    wrong = {name: text for name, text in outcomes.items() if text not in ("passed", "refused", None)}
    assert not wrong
    assert Counter(outcomes.values())["passed"] >= LEAST_TAKEN
