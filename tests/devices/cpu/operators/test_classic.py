"""Linear models, scalers and encoders of ai.onnx.ml against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import hetero
from tree_ensembles import ML, ml_model, on_cpu, on_onnxruntime, with_open_columns

pytestmark = pytest.mark.spread(2)

Array = np.ndarray[Any, Any]
TYPES = ("float32", "float64", "int32", "int64")
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
PROBIT_ERROR = 2e-3  # near 0, PROBIT is the root of a difference of nearly equal numbers, of about 4 in float32


def batches(columns: int, dtype: str, *, special: bool = False) -> list[Array]:
    rng = np.random.default_rng(columns)
    made = []
    for rows in (1, 7, 1000):
        x = rng.integers(-8, 9, (rows, columns)) / (2 if dtype.startswith("float") else 1)
        if special:
            places = rng.random(x.shape)
            x[places < 0.1], x[places > 0.95], x[(places > 0.9) & (places < 0.95)] = np.nan, np.inf, -np.inf
        made.append(x.astype(dtype))
    return made


def compare(model: onnx.ModelProto, xs: list[Array], atol: float = 1e-5) -> None:
    for found, expected in zip(on_cpu(model, *xs), on_onnxruntime(model, *xs), strict=True):
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == other.dtype
            if other.dtype.kind == "f":
                np.testing.assert_allclose(one, other, rtol=1e-5, atol=atol)
            else:
                np.testing.assert_array_equal(one, other)
    for array in on_cpu(model, xs[0][:0])[0]:
        assert len(array) == 0


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("columns", [1, 3])
def test_scaler(columns: int, dtype: str) -> None:
    for size in {1, columns}:
        offset, scale = np.linspace(-1, 2, size).tolist(), np.linspace(0.5, 3, size).tolist()
        model = ml_model("Scaler", np.zeros((1, columns), dtype), offset=offset, scale=scale)
        compare(model, batches(columns, dtype, special=dtype.startswith("float")))
    model = with_open_columns(ml_model("Scaler", np.zeros((1, columns), dtype), scale=[1.0, 2.0]))
    with pytest.raises(hetero.InferenceError, match="scale has 2 entries, which do not fit x of shape"):
        on_cpu(model, np.zeros((2, columns), dtype))


@pytest.mark.parametrize(
    ("op", "attributes", "trouble"),
    [
        ("Scaler", {"offset": [1.0, 2.0]}, "attribute offset has 2 entries; expected 1 or 3, the columns of x"),
        ("Scaler", {"scale": [1.0] * 4}, "attribute scale has 4 entries; expected 1 or 3"),
        ("Imputer", {"imputed_value_floats": [1.0, 2.0]}, "imputed_value_floats has 2 entries; expected 1 or 3"),
        ("LinearRegressor", {"coefficients": [1.0, 2.0]}, "coefficients has 2 entries; expected 3 for 3 columns"),
        ("LinearRegressor", {"coefficients": [1.0] * 8, "targets": 2}, "has 8 entries; expected 6 for 3 columns"),
        (
            "LinearClassifier",
            {"coefficients": [1.0] * 4, "classlabels_ints": [0, 1]},
            "has 4 entries; expected 6 for 3 columns",
        ),
        (
            "SVMRegressor",
            {"support_vectors": [1.0] * 4, "coefficients": [1.0, 2.0], "n_supports": 2, "rho": [0.0]},
            "support_vectors has 4 entries; expected 6 for 3 columns",
        ),
    ],
)
def test_columns_that_the_model_states_are_checked_when_it_is_compiled(
    op: str, attributes: dict[str, Any], trouble: str
) -> None:
    model = ml_model(op, np.zeros((1, 3), np.float32), 2 if op.endswith("Classifier") else 1, **attributes)
    with pytest.raises(hetero.UnsupportedModel, match=trouble):
        hetero.Core().compile_model(model, "CPU")
    hetero.Core().compile_model(with_open_columns(model), "CPU")


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(norm: str, dtype: str) -> None:
    xs = batches(3, dtype)
    xs[1][2] = 0  # a row without a norm
    compare(ml_model("Normalizer", np.zeros((1, 3), dtype), norm=norm), xs)


@pytest.mark.parametrize("threshold", [0.0, 0.5, -3.0])
def test_binarizer(threshold: float) -> None:
    compare(ml_model("Binarizer", np.zeros((1, 3), np.float32), threshold=threshold), batches(3, "float32"))
    for dtype in TYPES:  # onnxruntime supports only float32, without NaN
        (x, *_) = xs = batches(3, dtype, special=dtype.startswith("float"))
        found = on_cpu(ml_model("Binarizer", x, threshold=threshold), *xs)
        for (one,), x in zip(found, xs, strict=True):
            np.testing.assert_array_equal(one, (x > threshold).astype(dtype))


@pytest.mark.parametrize("replaced", [float("nan"), 0.0, 1.5])
def test_imputer_of_floats(replaced: float) -> None:
    for values in ([4.25], [1.0, 2.0, 3.0]):
        model = ml_model(
            "Imputer", np.zeros((1, 3), np.float32), imputed_value_floats=values, replaced_value_float=replaced
        )
        compare(model, batches(3, "float32", special=True))


def test_imputer_of_integers() -> None:
    for values in ([4], [1, 2, 3]):
        model = ml_model("Imputer", np.zeros((1, 3), np.int64), imputed_value_int64s=values, replaced_value_int64=2)
        compare(model, batches(3, "int64"))
    with pytest.raises(hetero.UnsupportedModel, match="either imputed_value_floats or imputed_value_int64s"):
        on_cpu(ml_model("Imputer", np.zeros((1, 3), np.int64)))
    wrong = ml_model("Imputer", np.zeros((1, 3), np.int64), imputed_value_floats=[1.0])
    with pytest.raises(hetero.UnsupportedModel, match="Imputer of int64 with imputed_value_floats"):
        on_cpu(wrong)


def extractor(x: Array, places: list[int]) -> onnx.ModelProto:
    model = ml_model("ArrayFeatureExtractor", x)
    model.graph.node[0].input.append("places")
    model.graph.initializer.append(numpy_helper.from_array(np.array(places, np.int64), "places"))
    return model


@pytest.mark.parametrize("dtype", TYPES)
def test_array_feature_extractor(dtype: str) -> None:
    for places in ([0], [2, 0, 2]):
        compare(extractor(np.zeros((1, 3), dtype), places), batches(3, dtype))
    for place in (-1, 3):
        model = extractor(np.zeros((1, 3), dtype), [place])
        with pytest.raises(hetero.UnsupportedModel, match=f"column {place}; x has the columns 0..2"):
            on_cpu(model)
        model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "columns"
        refused = (hetero.UnsupportedModel, hetero.InferenceError)[place > 0]  # with any number of columns, or with 3
        with pytest.raises(refused, match=f"column {place}"):
            on_cpu(model, np.zeros((2, 3), dtype))
    with pytest.raises(hetero.UnsupportedModel, match="no columns"):
        on_cpu(extractor(np.zeros((1, 3), dtype), []))


@pytest.mark.parametrize("dtype", TYPES)
def test_array_feature_extractor_of_computed_columns(dtype: str) -> None:
    """The columns are data: one program computes them and the result, and a wrong one is an error of the run."""
    model = ml_model("ArrayFeatureExtractor", np.zeros((1, 3), dtype))
    model.graph.node[0].input.append("places")
    model.graph.input.append(helper.make_tensor_value_info("places", TensorProto.INT64, ["count"]))
    compiled = hetero.Core().compile_model(hetero.Core().read_model(model), "CPU")
    (rows,) = (batch for batch in batches(3, dtype)[:1])
    for places in ([0], [2, 0, 2], [1, 1], [0]):
        found = compiled({"x": rows, "places": np.array(places)})["y0"]
        np.testing.assert_array_equal(found, rows[:, places])
    assert len(compiled._plans.segments()) <= 2  # type: ignore[attr-defined]
    for place in (-1, -3, 3, 2**63 - 1, -(2**63)):
        with pytest.raises(hetero.InferenceError, match="ArrayFeatureExtractor"):
            compiled({"x": rows, "places": np.array([0, place])})


def test_feature_vectorizer() -> None:
    def make(sizes: list[int]) -> onnx.ModelProto:
        node = helper.make_node("FeatureVectorizer", ["x", "x"], ["y0"], domain=ML, inputdimensions=sizes)
        model = ml_model("Scaler", np.zeros((1, 3), np.float32))
        model.graph.node[0].CopyFrom(node)
        return model

    compare(make([3, 3]), batches(3, "float32", special=True))
    model = make([3, 2])
    with pytest.raises(hetero.UnsupportedModel, match=r"inputdimensions\[1\] = 2; its input has 3 columns"):
        on_cpu(model)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "columns"
    with pytest.raises(hetero.InferenceError, match="does not fit 2 rows of 2 columns"):
        on_cpu(model, np.zeros((2, 3), np.float32))
    with pytest.raises(hetero.UnsupportedModel, match="2 inputs with 1 inputdimensions"):
        on_cpu(make([3]))


@pytest.mark.parametrize("opset", [2, 4])
def test_label_encoder(opset: int) -> None:
    keys, numbers = [1.0, -2.5, float("nan"), 0.0], [3, -1, 2**40, 8]
    floats, ints = batches(3, "float32", special=True), batches(3, "int64")
    for values in ({"values_int64s": numbers, "default_int64": 5}, {"values_floats": [1.5, 2.5, 0.0, float("inf")]}):
        compare(ml_model("LabelEncoder", floats[0], opset=opset, keys_floats=keys, **values), floats)
        compare(ml_model("LabelEncoder", ints[0], opset=opset, keys_int64s=[5, -2, 0, 7], **values), ints)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("keys", [
    [5], [5, -2, 0, 7], [3, 2, 1], [0, (1 << 16) - 1], [0, 1 << 16], ["min", 0], [0, "max"], ["min + 1"],
    ["max - 1", 9],
])  # fmt: skip
def test_label_encoder_of_integers(dtype: str, keys: list[Any]) -> None:
    """Keys near each other and far from each other, also at the ends of their type."""
    limits = np.iinfo(dtype)
    named = {"min": limits.min, "min + 1": limits.min + 1, "max": limits.max, "max - 1": limits.max - 1}
    keys = [named.get(key, key) for key in keys]
    around = [place for key in keys for place in (key - 1, key, key + 1) if limits.min <= place <= limits.max]
    x = np.array([[*around, limits.min, limits.max, 0, 1, -1]], dtype)
    values = [2.5 * (i + 1) for i in range(len(keys))]
    model = ml_model(
        "LabelEncoder",
        x,
        opset=4,
        keys_tensor=numpy_helper.from_array(np.array(keys, dtype)),
        values_tensor=numpy_helper.from_array(np.array(values, np.float32)),
        default_tensor=numpy_helper.from_array(np.array([-7], np.float32)),
    )
    wanted = [[dict(zip(keys, values, strict=True)).get(int(item), -7.0) for item in x[0]]]
    for (found,), given in zip(on_cpu(model, x, x[:0], x), (wanted, wanted[:0], wanted), strict=True):
        np.testing.assert_array_equal(found, np.reshape(given, (-1, x.shape[1])))


def test_label_encoder_of_tensors() -> None:
    def tensor(values: list[float], kind: int) -> onnx.TensorProto:
        return helper.make_tensor("t", kind, [len(values)], values)

    double = TensorProto.DOUBLE
    xs = batches(3, "float64", special=True)
    model = ml_model("LabelEncoder", xs[0], opset=4, keys_tensor=tensor([1.0, 0.5], double),
                     values_tensor=tensor([2.5, 3.5], double), default_tensor=tensor([-7.0], double))  # fmt: skip
    compare(model, xs)


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"keys_strings": ["a", "a"], "values_int64s": [1, 2]}, "a key that is given twice"),
        ({"keys_strings": [b"\xff"], "values_int64s": [1]}, "keys_strings has bytes that are not UTF-8"),
        ({"keys_int64s": [1, 1], "values_int64s": [1, 2]}, "a key that is given twice"),
        ({"keys_int64s": [1, 2], "values_int64s": [1]}, "2 keys and 1 values"),
        ({"keys_int64s": [1], "keys_floats": [1.0], "values_int64s": [1]}, "one attribute with keys, found 2"),
        ({"keys_floats": [1.0], "values_int64s": [1]}, "LabelEncoder of int64 with keys_floats of float32"),
    ],
)
def test_label_encoders_that_are_refused(attributes: dict[str, Any], reason: str) -> None:
    x = np.full((1, 3), "a", object) if "keys_strings" in attributes else np.zeros((1, 3), np.int64)
    with pytest.raises(hetero.UnsupportedModel, match=reason):
        on_cpu(ml_model("LabelEncoder", x, **attributes))


@pytest.mark.parametrize(
    ("op", "attributes", "reason"),
    [
        ("ZipMap", {"classlabels_strings": ["a", "b"]}, "3 columns with 2 class labels"),
        ("ZipMap", {"classlabels_int64s": [1, 2, 3, 4]}, "3 columns with 4 class labels"),
        ("FeatureVectorizer", {"inputdimensions": [2]}, r"inputdimensions\[0\] = 2; its input has 3 columns"),
    ],
)
def test_columns_that_disagree_with_the_stated_shape(op: str, attributes: dict[str, Any], reason: str) -> None:
    with pytest.raises(hetero.UnsupportedModel, match=reason) as caught:
        on_cpu(ml_model(op, np.zeros((1, 3), np.float32), **attributes))
    assert "'node'" in str(caught.value)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_one_hot_encoder(dtype: str) -> None:
    model = ml_model("OneHotEncoder", np.zeros((1, 2), dtype), cats_int64s=[3, -1, 0])
    for (found,), x in zip(on_cpu(model, *batches(2, dtype)), batches(2, dtype), strict=True):
        np.testing.assert_array_equal(found, (x[..., None] == [3, -1, 0]).astype(np.float32))
    if dtype == "int64":
        compare(model, batches(2, dtype))
    for attributes, reason in [({"cats_int64s": [1, 1]}, "cats_int64s has 1 twice"),
                               ({"cats_strings": ["a"]}, f"OneHotEncoder of {dtype} with attribute cats_strings"),
                               ({"cats_int64s": [1], "zeros": 2}, "zeros = 2")]:  # fmt: skip
        with pytest.raises(hetero.UnsupportedModel, match=reason):
            on_cpu(ml_model("OneHotEncoder", np.zeros((1, 2), dtype), **attributes))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_one_hot_encoder_without_zeros(dtype: str) -> None:
    """A kernel runs the node, and names the first integer that is not a category."""
    model = ml_model("OneHotEncoder", np.zeros((1, 2), dtype), cats_int64s=[3, -1, 0], zeros=0)
    known, unknown = np.array([[3, 0], [-1, -1]], dtype), np.array([[0, 3], [2, -2]], dtype)
    (found,) = on_cpu(model, known)[0]
    np.testing.assert_array_equal(found, (known[..., None] == [3, -1, 0]).astype(np.float32))
    with pytest.raises(hetero.InferenceError, match="'node'.*: 2 is not a category, and zeros is 0"):
        on_cpu(model, unknown)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("targets", [1, 3])
def test_linear_regressor(targets: int, transform: str) -> None:
    rng = np.random.default_rng(targets)
    attributes = {"coefficients": rng.uniform(0, 0.02, 4 * targets).tolist(), "targets": targets}
    for extra in ({}, {"intercepts": rng.uniform(0.4, 0.6, targets).tolist()}):
        model = ml_model(
            "LinearRegressor", np.zeros((1, 4), np.float32), post_transform=transform, **attributes, **extra
        )
        if targets == 1 and transform not in ("NONE", "PROBIT"):
            with pytest.raises(hetero.UnsupportedModel, match=f"one target with post_transform {transform}"):
                on_cpu(model)
        elif transform != "PROBIT":
            compare(model, batches(4, "float32"))
        elif extra:
            compare(model, batches(4, "float32"), PROBIT_ERROR)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("classes", [2, 3, 9])
def test_linear_classifier(classes: int, dtype: str, transform: str) -> None:
    rng = np.random.default_rng(classes)
    attributes = {"classlabels_ints": rng.permutation(classes).tolist(), "post_transform": transform}
    attributes |= {"coefficients": rng.uniform(-0.02, 0.02, 4 * classes).tolist()}
    attributes |= {"intercepts": rng.uniform(0.4, 0.6, classes).tolist()}
    model = ml_model("LinearClassifier", np.zeros((1, 4), dtype), 2, **attributes)
    compare(model, batches(4, dtype), PROBIT_ERROR if transform == "PROBIT" else 1e-5)


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("dtype", TYPES)
def test_linear_classifier_with_coefficients_of_one_class(dtype: str, transform: str) -> None:
    model = ml_model("LinearClassifier", np.zeros((1, 2), dtype), 2, classlabels_ints=[7, -9], intercepts=[0.25],
                     coefficients=[0.5, -0.75], post_transform=transform)  # fmt: skip
    compare(model, batches(2, dtype))


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        (
            {"classlabels_ints": [1, 2, 3], "coefficients": [1.0] * 3, "intercepts": [0.0]},
            "coefficients of one class",
        ),
        (
            {"classlabels_ints": [1, 2], "coefficients": [1.0] * 3, "intercepts": [0.0], "post_transform": "PROBIT"},
            "coefficients of one class",
        ),
        ({"classlabels_ints": [1], "coefficients": [1.0] * 3}, "1 class labels"),
        (
            {"classlabels_ints": [1, 2], "coefficients": [1.0] * 7},
            "coefficients has 7 entries; expected a multiple of 2",
        ),
        ({"classlabels_ints": [1, 2], "coefficients": [1.0] * 6, "intercepts": [0.0] * 3}, "intercepts has 3 entries"),
        ({"classlabels_strings": [b"\xff", b"b"], "coefficients": [1.0] * 6}, "not UTF-8"),
        ({"classlabels_strings": ["a", "b"], "classlabels_ints": [1], "coefficients": [1.0] * 6}, "are both given"),
        ({"classlabels_ints": [1, 2], "coefficients": [*[1.0] * 5, float("nan")]}, "coefficients that are not finite"),
        (
            {"classlabels_ints": [1, 2], "coefficients": [1.0] * 6, "intercepts": [0.0, float("inf")]},
            "intercepts that are not finite",
        ),
    ],
)
def test_linear_classifiers_that_are_refused(attributes: dict[str, Any], reason: str) -> None:
    with pytest.raises(hetero.UnsupportedModel, match=reason):
        on_cpu(ml_model("LinearClassifier", np.zeros((1, 3), np.float32), 2, **attributes))
