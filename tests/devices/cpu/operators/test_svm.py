"""SVMClassifier and SVMRegressor against onnxruntime and against float64."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from hetero import Core, HeteroError
from tree_ensembles import ml_model, on_cpu, on_onnxruntime

Array = np.ndarray[Any, Any]
KINDS = ("LINEAR", "POLY", "RBF", "SIGMOID")


def random_classifier(rng: np.random.Generator, kind: str, classes: int, odds: bool, strings: bool) -> dict[str, Any]:
    per_class = [int(count) for count in rng.integers(1, 6, classes)]
    vectors, pairs = sum(per_class), classes * (classes - 1) // 2
    labels: dict[str, Any] = {"classlabels_ints": [3 * number - 4 for number in range(classes)]}
    if strings:
        labels = {"classlabels_strings": [f"klasse ö{number}" for number in range(classes)]}
    parameters = {"prob_a": (-rng.uniform(0.5, 2, pairs)).tolist(), "prob_b": rng.normal(size=pairs).tolist()}
    return labels | {
        "coefficients": rng.normal(size=(classes - 1) * vectors).tolist(),
        "kernel_params": [0.3, 0.1, 3.0],
        "kernel_type": kind,
        "rho": rng.normal(size=pairs).tolist(),
        "support_vectors": rng.normal(size=vectors * 4).tolist(),
        "vectors_per_class": per_class,
    } | (parameters if odds else {})  # fmt: skip


@pytest.mark.parametrize(("kind", "classes"), [*itertools.product(KINDS, (2, 3, 5))])
def test_classifier_as_onnxruntime(kind: str, classes: int) -> None:
    rng = np.random.default_rng(classes)
    for odds, strings in itertools.product((False, True), repeat=2):
        attributes = random_classifier(rng, kind, classes, odds, strings)
        inputs = [rng.normal(size=(rows, 4)).astype(np.float32) for rows in (1, 33, 5)]
        model = ml_model("SVMClassifier", inputs[0], 2, **attributes)
        for mine, theirs in zip(on_cpu(model, *inputs), on_onnxruntime(model, *inputs), strict=True):
            np.testing.assert_array_equal(mine[0], theirs[0])
            np.testing.assert_allclose(mine[1], theirs[1], rtol=1e-5, atol=1e-5)


def test_template_agrees() -> None:
    rng = np.random.default_rng(1)
    core = Core()
    for kind, classes, odds in itertools.product(KINDS, (2, 4), (False, True)):
        x = rng.normal(size=(6, 4)).astype(np.float32)
        model = ml_model("SVMClassifier", x, 2, **random_classifier(rng, kind, classes, odds, strings=odds))
        found, wanted = (list(core.compile_model(core.read_model(model), device)(x)) for device in ("CPU", "TEMPLATE"))
        np.testing.assert_array_equal(found[0], wanted[0])
        np.testing.assert_allclose(found[1], wanted[1], rtol=1e-5, atol=1e-5)


def test_linear_classifier_of_three_classes() -> None:
    x = np.random.default_rng(2).normal(size=(9, 4)).astype(np.float32)
    model = ml_model("SVMClassifier", x, 2, classlabels_ints=[5, 6, 7], rho=[0.5], kernel_params=[1.0, 0.0, 0.0],
                     coefficients=np.random.default_rng(3).normal(size=12).tolist())  # fmt: skip
    for mine, theirs in zip(on_cpu(model, x)[0], on_onnxruntime(model, x)[0], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_regressor_as_float64(kind: str) -> None:
    rng = np.random.default_rng(4)
    supports, coefficients = rng.normal(size=(40, 6)).astype(np.float32), rng.normal(size=40).astype(np.float32)
    x = rng.normal(size=(20, 6)).astype(np.float32)
    attributes: dict[str, Any] = {"coefficients": coefficients.tolist(), "rho": [0.25],
                  "support_vectors": supports.reshape(-1).tolist(),
                  "n_supports": 40, "kernel_type": kind, "kernel_params": [0.2, 0.1, 3.0]}  # fmt: skip
    gamma, coef0, degree = attributes["kernel_params"]
    products = x.astype(np.float64) @ supports.T.astype(np.float64)
    kernels = {
        "LINEAR": products,
        "POLY": (gamma * products + coef0) ** degree,
        "RBF": np.exp(-gamma * np.square(x[:, None].astype(np.float64) - supports).sum(axis=2)),
        "SIGMOID": np.tanh(gamma * products + coef0),
    }[kind]
    wanted = kernels @ coefficients.astype(np.float64) + 0.25
    model = ml_model("SVMRegressor", x, **attributes)
    np.testing.assert_allclose(on_cpu(model, x)[0][0][:, 0], wanted, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(on_onnxruntime(model, x)[0][0][:, 0], wanted, rtol=2e-4, atol=2e-4)
    inside = on_cpu(ml_model("SVMRegressor", x, one_class=1, **attributes), x)[0][0][:, 0]
    np.testing.assert_array_equal(inside, np.where(wanted > 0, 1, -1))


def test_no_rows_one_column_and_values_that_are_not_finite() -> None:
    attributes = {"coefficients": [1.0, -1.0], "support_vectors": [0.5, 2.0], "rho": [0.0], "n_supports": 2,
                  "kernel_type": "RBF", "kernel_params": [1.0, 0.0, 0.0]}  # fmt: skip
    x = np.array([[np.nan], [np.inf], [-np.inf], [0.5]], np.float32)
    model = ml_model("SVMRegressor", x, **attributes)
    (found,), (empty,) = on_cpu(model, x, x[:0])
    (wanted,) = on_onnxruntime(model, x)[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert empty.shape == (0, 1)


@pytest.mark.parametrize(("changed", "message"), [
    ({"coefficients": [1.0]}, "attribute coefficients has 1 entries; expected 8"),
    ({"support_vectors": [1.0] * 7}, "attribute support_vectors has 7 entries; expected a multiple of 4"),
    ({"rho": [1.0]}, "attribute rho has 1 entries; expected 3"),
    ({"prob_a": [1.0] * 3}, "attribute prob_b has 0 entries; expected 3"),
    ({"vectors_per_class": [2, 2]}, "attribute vectors_per_class has 2 entries; expected 3"),
    ({"vectors_per_class": [-1, 3, 2]}, "attribute vectors_per_class has a negative entry"),
    ({"vectors_per_class": [1 << 62] * 3}, "expected"),
    ({"kernel_params": [1.0]}, "attribute kernel_params has 1 entries"),
    ({"rho": [1.0, float("nan"), 1.0]}, "attribute rho has infinities or NaN"),
    ({"classlabels_ints": [1]}, "1 class labels"),
    ({"classlabels_ints": [], "classlabels_strings": [b"\xff", b"a", b"b"]}, "not UTF-8"),
])  # fmt: skip
def test_bad_attributes_are_refused_when_compiling(changed: dict[str, Any], message: str) -> None:
    attributes = {"coefficients": [1.0] * 8, "support_vectors": [1.0] * 8, "rho": [0.0] * 3, "kernel_type": "RBF",
                  "vectors_per_class": [1, 1, 2], "kernel_params": [1.0, 0.0, 0.0],
                  "classlabels_ints": [0, 1, 2]} | changed  # fmt: skip
    attributes = {name: value for name, value in attributes.items() if value != []}
    core = Core()
    with pytest.raises(HeteroError, match=message) as caught:
        core.compile_model(
            core.read_model(ml_model("SVMClassifier", np.zeros((1, 2), np.float32), 2, **attributes)), "CPU"
        )
    assert "'node'" in str(caught.value)
