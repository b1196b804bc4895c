"""ONNX's own node tests on TEMPLATE: all of them pass, but those listed here."""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any

import numpy as np
import pytest

from template_runs import difference, run_on_template, value_of

# Test -> why it cannot pass. A test that passes all the same fails the comparison below, so that the list stays true.
EXCLUDED = {
    name: "draws random numbers; shapes and types are compared in test_template.py"
    for name in (
        "test_bernoulli",
        "test_bernoulli_double",
        "test_bernoulli_double_expanded",
        "test_bernoulli_expanded",
        "test_bernoulli_seed",
        "test_bernoulli_seed_expanded",
    )
}


def node_tests() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite divides by zero on purpose while it makes its data
        from onnx.backend.test.loader import load_model_tests

        return list(load_model_tests(kind="node"))


def failure_of(case: Any) -> str | None:
    try:
        for inputs, outputs in case.data_sets:
            found = run_on_template(case.model, [value_of(item) for item in inputs])
            for position, (result, wanted) in enumerate(zip(found, outputs, strict=True)):
                text = difference(result, wanted, case.rtol, case.atol)
                if text:
                    return f"output {position}: {text}"
    except Exception as error:  # collected and reported together
        return f"{type(error).__name__}: {error}"
    return None


@pytest.mark.slow
def test_node_tests_pass() -> None:
    cases = node_tests()
    assert len(cases) > 1000
    if importlib.util.find_spec("PIL") is None:
        cases = [case for case in cases if not case.name.startswith("test_image_decoder")]  # they need Pillow
    failures = {case.name: text for case in cases if (text := failure_of(case))}
    unexpected = {name: text for name, text in failures.items() if name not in EXCLUDED}
    assert not unexpected
    present = {case.name for case in cases}
    assert {name for name in EXCLUDED if name in present} == set(failures)


def test_image_decoder_without_pillow_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from onnx import TensorProto, helper

    from hetero.devices.template import create_plugin
    from hetero.model.read import read_model

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    graph = helper.make_graph(
        [helper.make_node("ImageDecoder", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, ["h", "w", 3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    support = create_plugin().query_model(read_model(model), {})
    assert "pip install pillow" in support.reasons[0]


def test_difference_sees_what_differs() -> None:
    one = np.ones(2, np.float32)
    assert difference(one, one, 0, 0) is None
    assert difference(one, one * 1.1, 1e-3, 0)
    assert difference(one, one.astype(np.float64), 1, 1)
    assert difference(one[:1], one, 1, 1)
    assert difference([one], [one, one], 1, 1)
    assert difference(None, one, 1, 1)
