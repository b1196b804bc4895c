"""ONNX's own node tests on TEMPLATE: all of them pass, but those listed here."""

from __future__ import annotations

import importlib.util
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from template_runs import difference, node_tests, run_on_template, value_of

# Tests that draw random numbers: nothing can give the expected ones. test_template.py compares shapes and types. One
# that passed all the same would fail the comparison below, so that the list stays true.
EXCLUDED = (
    "test_bernoulli",
    "test_bernoulli_double",
    "test_bernoulli_double_expanded",
    "test_bernoulli_expanded",
    "test_bernoulli_seed",
    "test_bernoulli_seed_expanded",
)


def _rounding(result: Any) -> float:
    """Twice the unit of rounding of a result in half precision: ONNX's Attention, which rounds its Softmax and its
    product, adds up in that type, TEMPLATE in float32."""
    dtype = getattr(result, "dtype", None)
    return 2 * float(ml_dtypes.finfo(dtype).eps) if dtype in (np.float16, ml_dtypes.bfloat16) else 0.0


def failure_of(case: Any) -> str | None:
    try:
        for inputs, outputs in case.data_sets:
            found = run_on_template(case.model, [value_of(item) for item in inputs])
            for position, (result, wanted) in enumerate(zip(found, outputs, strict=True)):
                text = difference(result, wanted, max(case.rtol, _rounding(result)), case.atol)
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
    # Random draws may agree by chance, but not every time.
    agreed = [case for case in cases if case.name in EXCLUDED and case.name not in failures]
    assert all(any(failure_of(case) for _ in range(9)) for case in agreed)


def test_image_decoder_without_pillow_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from hetero.devices.template.resolve import find

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    reason = find.__wrapped__("", "ImageDecoder", 20)  # past the cache, which may hold an earlier answer
    assert isinstance(reason, str)
    assert "pip install pillow" in reason


def test_difference_sees_what_differs() -> None:
    one = np.ones(2, np.float32)
    assert difference(one, one, 0, 0) is None
    assert difference(one, one * 1.1, 1e-3, 0)
    assert difference(one, one.astype(np.float64), 1, 1)
    assert difference(one[:1], one, 1, 1)
    assert difference([one], [one, one], 1, 1)
    assert difference(None, one, 1, 1)
