"""TEMPLATE against onnxruntime, operator set version by operator set version.

This is how the corrections in hetero/devices/template/corrections were found, and what keeps them right: ONNX's node
tests stamped as every older version in which their operators exist with the same signature, and the operator cases of
tests/helpers/operator_cases.py in every version that takes them. Where onnxruntime refuses a version older than 7, the
model is converted upwards by onnx's version converter and judged there.
"""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import numpy as np
import onnx
import onnx.defs
import pytest
from onnx import version_converter

from operator_cases import Case, models
from sessions import onnxruntime_session
from template_runs import difference, node_tests, run_on_template, telling, value_of

NEWEST = 25
"""Newest operator set version that the judge knows; later ones are covered by the node tests' own data."""


def run_on_onnxruntime(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    session = onnxruntime_session(model, optimized=False)
    results: list[Any] = session.run(None, feeds)
    return results


# -- the node tests in older versions ------------------------------------------------------------------------------


def since(op_type: str, version: int) -> int | None:
    if not onnx.defs.has(op_type, version, ""):
        return None
    schema = onnx.defs.get_schema(op_type, version, "")
    return None if schema.deprecated else int(schema.since_version)


def older_versions(model: onnx.ModelProto) -> list[int]:
    """The last and the first version of each range in which all operators of ``model`` keep their schemas."""
    declared = {entry.domain: entry.version for entry in model.opset_import}
    if set(declared) != {""}:
        return []
    last: dict[tuple[int, ...], int] = {}
    first: dict[tuple[int, ...], int] = {}
    for version in range(declared[""], 0, -1):
        schemas = [since(node.op_type, version) for node in model.graph.node]
        if None in schemas:
            break
        key = tuple(schema for schema in schemas if schema is not None)
        last.setdefault(key, version)
        first[key] = version
    return sorted({*last.values(), *first.values()}, reverse=True)


def stamped(model: onnx.ModelProto, version: int) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.opset_import[0].version = version
    return copy


@pytest.mark.slow
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_node_tests_in_older_versions(every: bool) -> None:
    tally: Counter[str] = Counter()
    failures = {}
    cases = [case for case in node_tests() if not case.name.endswith("_expanded") and case.data_sets is not None]
    for case in cases if every else telling(cases, by_type=False):
        if "bernoulli" in case.name:
            continue
        inputs, outputs = case.data_sets[0]
        feeds = dict(
            zip((port.name for port in case.model.graph.input), (value_of(item) for item in inputs), strict=False)
        )
        atol = max(case.atol, 1e-6)
        for version in older_versions(case.model):
            model = stamped(case.model, version)
            try:
                wanted = run_on_onnxruntime(model, feeds)
            except Exception:
                tally["onnxruntime refuses"] += 1
                continue
            if version == case.model.opset_import[0].version:
                pairs = zip(wanted, outputs, strict=True)
                if any(difference(mine, theirs, case.rtol, atol) for mine, theirs in pairs):
                    # The data of the test itself says otherwise, and TEMPLATE agrees with that (test_template_backend).
                    tally["onnxruntime is no judge"] += 1
                    break
            tally["compared"] += 1
            try:
                found = run_on_template(model, list(feeds.values()))
                for result, expected in zip(found, wanted, strict=True):
                    text = difference(result, expected, case.rtol, atol)
                    assert text is None, text
            except Exception as error:
                failures[case.name, version] = f"{type(error).__name__}: {error}"
    assert not failures
    assert tally["compared"] > (2000 if every else 900), tally


# -- operator cases ------------------------------------------------------------------------------------------------


def no_judge(case: Case, version: int) -> str | None:
    """Where onnxruntime departs from the specification, or the specification leaves the result open."""
    attributes = case.attributes
    same = str(attributes.get("auto_pad")).startswith("SAME")
    if case.op_type in ("MaxPool", "AveragePool", "LpPool") and same and "dilations" in attributes:
        return "onnxruntime pads as if the kernel had no dilations, so that outputs are missing"
    if case.op_type == "Dropout" and version < 12 and case.outputs == 2:
        return "the mask of an inference is not specified; onnxruntime gives zeros"
    if case.op_type == "NonZero" and case.inputs[0] is not None and case.inputs[0].ndim == 0:
        return "the specification asks for [0, n] and not NumPy's [1, n], which onnxruntime gives"
    if case.domain == "ai.onnx.ml" and case.outputs == 2 and _one_score_for_two(case):
        return "the specification does not say how one score becomes those of two classes; backends differ"
    if case.op_type == "LinearClassifier" and attributes.get("post_transform") == "PROBIT":
        return "scores outside of 0 to 1 have no probit, and the label is chosen among NaN"
    if case.op_type == "SVMRegressor" and "post_transform" in attributes:
        return "onnxruntime leaves the scores as they are"
    return None


def _one_score_for_two(case: Case) -> bool:
    attributes = case.attributes
    labels = attributes.get("classlabels_strings") or attributes.get("classlabels_ints") or ()
    if case.op_type == "SVMClassifier":
        return len(labels) == 2 and "prob_a" not in attributes and "post_transform" in attributes
    scores = len(attributes.get("intercepts", ())) if case.op_type == "LinearClassifier" else 1
    return len(labels) == 2 and scores == 1


def judged(case: Case, version: int) -> list[Any] | None:
    model = case.model(version)
    targets = [version] + ([target for target in (7, 8, 9, 13) if target > version] if version < 13 else [])
    for target in targets:
        try:
            converted = model if target == version else version_converter.convert_version(model, target)
            return run_on_onnxruntime(converted, case.feeds())
        except Exception:
            continue
    return None


@pytest.mark.slow
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_operator_cases(every: bool) -> None:
    tally: Counter[str] = Counter()
    failures = {}
    operators: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pairs = list(models(NEWEST, every))
    for case, version in pairs:
        if no_judge(case, version):
            tally["excluded"] += 1
            continue
        wanted = judged(case, version)
        if wanted is None:
            tally["onnxruntime refuses"] += 1
            continue
        tally["compared"] += 1
        operators.add(case.op_type)
        try:
            found = run_on_template(case.model(version), list(case.feeds().values()))
            for result, expected in zip(found, wanted, strict=True):
                half = isinstance(expected, np.ndarray) and expected.dtype == np.float16
                text = difference(result, expected, 1e-3, 1e-2 if half else 1e-5)
                assert text is None, text
        except Exception as error:
            failures[str(case), version] = f"{type(error).__name__}: {error}"
    assert not failures
    assert tally["compared"] > (6700 if every else 800), tally
    assert len(operators) > 170, {case.op_type for case, _ in pairs} - operators
