"""Linear models, scalers and encoders of ai.onnx.ml, for numbers.

Where onnxruntime contradicts the specification, the node is rejected. `strings` has the operators on strings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ....errors import InferenceError
from ....model.constants import array_of
from ....model.types import dtype_of
from ..registry import FLOATS, NUMBERS, Contradiction, Node, contradicting, operator, stated_shape
from ..values import Context, Value
from .elementwise import _required, binary, cast, unary_code
from .network import reduced
from .scores import (
    POST_TRANSFORMS,
    both_scores,
    class_labels,
    extracted_trouble,
    key_type_trouble,
    label_above,
    label_table,
    labels_of_largest,
    post_transformed,
    rank_trouble,
    rows_of,
    stated_columns,
    string_labels,
)

if TYPE_CHECKING:
    from ....model.model import Model, NodeView
    from ..registry import ExaminedNode

_FLOAT32, _FLOAT64, _INT64, _BOOL = np.dtype("float32"), np.dtype("float64"), np.dtype("int64"), np.dtype("bool")
_ISNAN = unary_code("ISNAN")
_TYPES = (*FLOATS, "int32", "int64")
_STRING = 8  # of onnx.TensorProto.DataType


def _wide(x: Value) -> np.dtype[Any]:
    """The type to compute in: integers are converted to float32, as in onnxruntime."""
    return x.dtype if x.dtype == _FLOAT64 else _FLOAT32


def _columns(context: Context, node: Node, name: str, default: float, x: Value) -> Value:
    """An attribute with one number, or one for each column of ``x``."""
    numbers = np.array(node.get(name, [default]) or [default], x.dtype)
    if x.rank not in (1, 2) or numbers.size not in (1, x.shape[-1]):
        raise InferenceError(f"{name} has {numbers.size} entries, which do not fit x of shape {list(x.shape)}")
    return context.constant(numbers)


@contradicting
def _columns_trouble(model: Model, view: NodeView, *names: str) -> str | None:
    """Why attributes with one number, or one for each column, do not fit the columns that the model states."""
    columns = stated_columns(model, view)
    for name in names:
        count = len(view.attributes.get(name, ()))
        if columns is not None and count not in (0, 1, columns):
            return f"attribute {name} has {count} entries; expected 1 or {columns}, the columns of x"
    return rank_trouble(model, view)


def _scaler_refusal(model: Model, view: NodeView) -> str | None:
    return _columns_trouble(model, view, "offset", "scale")


@operator("ai.onnx.ml::Scaler", dtypes=_TYPES, attributes={"offset": None, "scale": None}, check=_scaler_refusal,
          result="float32")  # fmt: skip
def _scaler(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    x = cast(context, x, _wide(x))
    offset, scale = _columns(context, node, "offset", 0, x), _columns(context, node, "scale", 1, x)
    return [cast(context, binary(context, "mul", binary(context, "sub", x, offset), scale), _FLOAT32)]


@operator("ai.onnx.ml::Normalizer", dtypes=_TYPES, attributes={"norm": (b"MAX", b"L1", b"L2")}, check=rank_trouble,
          result="float32")  # fmt: skip
def _normalizer(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    """MAX divides by the largest element, not by the largest magnitude. A row whose divisor is 0 stays as it is."""
    x = cast(context, _required(inputs[0]), _FLOAT32)
    if x.rank not in (1, 2):
        raise InferenceError(f"expected rows of features, found shape {list(x.shape)}")
    operation = {b"MAX": "max", b"L1": "magnitudes", b"L2": "root"}[node.get("norm", b"MAX")]
    norm = reduced(context, x, operation, [x.rank - 1], keep=True)
    zero = binary(context, "equal", norm, context.scalar(0, _FLOAT32), _BOOL)
    norm = context.call("where", [zero, context.scalar(1, _FLOAT32), norm], norm.shape, _FLOAT32)
    return [binary(context, "div", x, norm)]


@operator("ai.onnx.ml::Binarizer", dtypes=_TYPES, attributes={"threshold": None})
def _binarizer(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    wide = _FLOAT32 if x.dtype == _FLOAT32 else _FLOAT64
    threshold = context.scalar(node.get("threshold", 0.0), wide)
    return [cast(context, binary(context, "greater", cast(context, x, wide), threshold, _BOOL), x.dtype)]


@contradicting
def _imputer_refusal(model: Model, view: ExaminedNode) -> str | None:
    kinds = [name for name in ("imputed_value_floats", "imputed_value_int64s") if view.attributes.get(name)]
    if len(kinds) != 1:
        return "Imputer needs either imputed_value_floats or imputed_value_int64s"
    dtype = view.type_of_input(0)
    if dtype is not None and ("float" in dtype) != ("float" in kinds[0]):
        return f"Imputer of {dtype} with {kinds[0]}"
    return _columns_trouble(model, view, *kinds)


@operator("ai.onnx.ml::Imputer", dtypes=_TYPES, attributes={
    "imputed_value_floats": None, "imputed_value_int64s": None, "replaced_value_float": None,
    "replaced_value_int64": None}, check=_imputer_refusal)  # fmt: skip
def _imputer(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    """A NaN to replace replaces every NaN."""
    x = _required(inputs[0])
    kind = "float" if x.dtype.kind == "f" else "int64"
    if not node.get(f"imputed_value_{kind}s", None):
        raise InferenceError(f"x is {x.dtype}, but imputed_value_{kind}s is absent")
    values = _columns(context, node, f"imputed_value_{kind}s", 0, x)
    replaced = node.get(f"replaced_value_{kind}", 0)
    if kind == "float" and math.isnan(replaced):
        missing = context.call("unary", [x], x.shape, _BOOL, [_ISNAN], [0.0, 0.0])
    else:
        missing = binary(context, "equal", x, context.scalar(replaced, x.dtype), _BOOL)
    return [context.call("where", [missing, values, x], x.shape, x.dtype)]


@operator("ai.onnx.ml::ArrayFeatureExtractor", dtypes=(NUMBERS, ("int64",)), check=extracted_trouble)
def _array_feature_extractor(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x, y = _required(inputs[0]), _required(inputs[1])
    if not x.rank or not y.size:
        raise InferenceError(f"cannot extract {y.size} columns of x of shape {list(x.shape)}")
    if x.rank == 1:
        x = context.reshaped(x, (1, x.size))
    if context.is_known(y):
        places = np.asarray(context.known(y)).reshape(-1)
        outside = [int(place) for place in places if not 0 <= place < x.shape[-1]]
        if outside:
            raise InferenceError(f"column {outside[0]} is outside 0..{x.shape[-1] - 1}, the columns of {list(x.shape)}")
    else:
        # Gather counts negative indices from the end; here they are errors. As the largest index they are one.
        negative = binary(context, "less", y, context.scalar(0, _INT64), _BOOL)
        largest = context.scalar(np.iinfo(np.int64).max, _INT64)
        y = context.call("where", [negative, largest, y], y.shape, _INT64)
    shape = (*x.shape[:-1], y.size)
    return [context.call("gather", [x, context.reshaped(y, (y.size,))], shape, x.dtype, [x.rank - 1])]


def _vectorizer_refusal(model: Model, view: NodeView) -> str | None:
    sizes = view.attributes.get("inputdimensions", ())
    if len(sizes) != len(view.inputs):
        return Contradiction(f"FeatureVectorizer of {len(view.inputs)} inputs with {len(sizes)} inputdimensions")
    if min(sizes) < 0:
        return Contradiction(f"FeatureVectorizer with inputdimensions = {list(sizes)}")
    for at, (value, size) in enumerate(zip(model.node_inputs[view.index].tolist(), sizes, strict=True)):
        shape = stated_shape(model, value)
        if shape and isinstance(shape[-1], int) and shape[-1] != size:
            return f"FeatureVectorizer with inputdimensions[{at}] = {size}; its input has {shape[-1]} columns"
    return rank_trouble(model, view)


@operator("ai.onnx.ml::FeatureVectorizer", dtypes=_TYPES, attributes={"inputdimensions": None},
          check=_vectorizer_refusal, result="float32")  # fmt: skip
def _feature_vectorizer(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    parts = [cast(context, rows_of(context, _required(value)), _FLOAT32) for value in inputs]
    for part, size in zip(parts, node.get("inputdimensions", ()), strict=True):
        if part.shape != (parts[0].shape[0], size):
            raise InferenceError(f"input {list(part.shape)} does not fit {parts[0].shape[0]} rows of {size} columns")
    shape = (parts[0].shape[0], sum(part.shape[1] for part in parts))
    return [context.call("concat", parts, shape, _FLOAT32, [1])]


# ---- encoders


def _tables(attributes: Mapping[str, Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]] | str:
    """Keys, values and the default of a LabelEncoder, or the reason why it is rejected."""
    found: dict[str, list[NDArray[Any]]] = {"keys": [], "values": []}
    for side, arrays in found.items():
        if attributes.get(f"{side}_strings") is not None:
            return "LabelEncoder of strings"  # `strings` has those
        for suffix, dtype in (("floats", _FLOAT32), ("int64s", _INT64)):
            if attributes.get(f"{side}_{suffix}") is not None:
                arrays.append(np.array(attributes[f"{side}_{suffix}"], dtype))
        if attributes.get(f"{side}_tensor") is not None:
            if attributes[f"{side}_tensor"].data_type == _STRING:
                return "LabelEncoder of strings"
            arrays.append(array_of(attributes[f"{side}_tensor"]))
        if len(arrays) != 1:
            return f"LabelEncoder needs one attribute with {side}, found {len(arrays)}"
    (keys,), (values,) = found["keys"], found["values"]
    for array in (keys, values):
        if array.dtype.name not in NUMBERS or array.ndim != 1:
            return f"LabelEncoder of {array.dtype}{list(array.shape)}"
    if len(keys) != len(values) or not len(keys):
        return f"LabelEncoder of {len(keys)} keys and {len(values)} values; kernels support 1 or more of each"
    if len(np.unique(keys)) != len(keys):  # onnxruntime takes the first, TEMPLATE the last
        return "LabelEncoder with a key that is given twice"
    tensor = attributes.get("default_tensor")
    if tensor is not None:
        default = array_of(tensor).reshape(-1)
        if default.size != 1 or default.dtype != values.dtype:
            return f"LabelEncoder with a default of {default.dtype}[{default.size}] for values of {values.dtype}"
    elif attributes.get("values_tensor") is not None:
        return "LabelEncoder with values_tensor and no default_tensor"
    else:
        number = (
            attributes.get("default_int64", -1) if values.dtype == _INT64 else attributes.get("default_float", -0.0)
        )
        default = np.array([number], values.dtype)
    return keys, values, default


def _label_encoder_refusal(model: Model, view: ExaminedNode) -> str | None:
    tables = _tables(view.stored_attributes)
    return tables if isinstance(tables, str) else key_type_trouble(model, view)


def encoded(
    context: Context, x: Value, keys: NDArray[Any], values: NDArray[Any], default: Any, *, has_nan: bool
) -> Value:
    """For each element the value of its key, or the default. ``has_nan``: whether NaN equals the first key that is NaN;
    otherwise it equals no key. The other keys must differ."""
    missing = np.isnan(keys) if keys.dtype.kind == "f" else np.zeros(len(keys), bool)
    order = np.argsort(keys[~missing])
    table = np.empty(len(order) + 2, values.dtype)
    table[:-2], table[-2:] = values[~missing][order], default
    if has_nan and missing.any():
        table[-1] = values[missing][0]
    operands = [x, context.constant(keys[~missing][order]), context.constant(table)]
    return context.call("encode", operands, x.shape, table.dtype)


def _label_encoder_result(attributes: Mapping[str, Any]) -> str | None:
    if attributes.get("values_tensor") is not None:
        dtype = dtype_of(attributes["values_tensor"].data_type)
        return None if dtype is None else dtype.name
    return "int64" if attributes.get("values_int64s") is not None else "float32"


@operator("ai.onnx.ml::LabelEncoder", dtypes=NUMBERS, attributes={
    f"{side}_{kind}": None for side in ("keys", "values") for kind in ("floats", "int64s", "strings", "tensor")
} | {"default_float": None, "default_int64": None, "default_string": None, "default_tensor": None},
    since=2, check=_label_encoder_refusal, result=_label_encoder_result)  # fmt: skip
def _label_encoder(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    """From opset 4 on, NaN equals the key NaN; before, it equals no key."""
    x = _required(inputs[0])
    tables = _tables(node.attributes)
    assert not isinstance(tables, str), "checked by _label_encoder_refusal"
    keys, values, default = tables
    if x.dtype != keys.dtype:
        raise InferenceError(f"x is {x.dtype}, but the keys are {keys.dtype}")
    return [encoded(context, x, keys, values, default[0], has_nan=node.opset >= 4)]


def _one_hot_refusal(model: Model, view: NodeView) -> str | None:
    categories = view.attributes.get("cats_int64s", ())
    if view.attributes.get("cats_strings"):
        return "OneHotEncoder of strings"
    if not categories or len(set(categories)) != len(categories):
        return f"OneHotEncoder of {len(categories)} categories, {len(set(categories))} of them different"
    return None


@operator("ai.onnx.ml::OneHotEncoder", dtypes=("int32", "int64"), attributes={
    "cats_int64s": None, "cats_strings": None, "zeros": (0, 1)}, check=_one_hot_refusal, result="float32")  # fmt: skip
def _one_hot_encoder(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    categories = np.array(node.get("cats_int64s", ()), np.int64)
    places = np.argsort(categories)
    operands = [x, context.constant(categories[places]), context.constant(places)]
    return [context.call("one_hot", operands, (*x.shape, len(places)), _FLOAT32, [node.get("zeros", 1)])]


# ---- linear models


def _linear(context: Context, node: Node, x: Value, rows: int) -> Value:
    """x times the coefficients, plus the intercepts: [batch, rows]."""
    x = rows_of(context, x)
    x = cast(context, x, _wide(x))
    coefficients = np.array(node.get("coefficients", ()), x.dtype)
    features = x.shape[1]
    if coefficients.size != rows * features:
        raise InferenceError(f"{coefficients.size} coefficients do not fit {rows} rows for x of shape {list(x.shape)}")
    weights = context.constant(np.ascontiguousarray(coefficients.reshape(rows, features).T))
    intercepts = node.get("intercepts", None)
    bias = context.constant(np.array(intercepts, x.dtype)) if intercepts else None
    m = x.shape[0]
    ints = [m, rows, features, 0, 0, 0, 0, int(bias is not None), 0]
    return context.call("gemm", [x, weights, bias, None], (m, rows), x.dtype, ints, [1.0, 1.0, 0.0, 0.0])


@contradicting
def _linear_trouble(model: Model, view: NodeView, rows: int) -> str | None:
    coefficients, intercepts = view.attributes.get("coefficients", ()), view.attributes.get("intercepts", ())
    columns = stated_columns(model, view)
    if not coefficients or len(coefficients) % rows:
        return f"attribute coefficients has {len(coefficients)} entries; expected a multiple of {rows}"
    if intercepts and len(intercepts) != rows:
        return f"attribute intercepts has {len(intercepts)} entries; expected {rows}"
    if columns is not None and len(coefficients) != rows * columns:
        return (
            f"attribute coefficients has {len(coefficients)} entries; expected {rows * columns} for {columns} columns"
        )
    return rank_trouble(model, view)


def _linear_regressor_refusal(model: Model, view: NodeView) -> str | None:
    targets, transform = view.attributes.get("targets", 1), view.attributes.get("post_transform", b"NONE")
    if targets < 1:
        return Contradiction(f"LinearRegressor with targets = {targets}")
    if targets == 1 and transform not in (b"NONE", b"PROBIT"):  # onnxruntime does not apply it
        return f"LinearRegressor of one target with post_transform {transform.decode()}"
    return _linear_trouble(model, view, targets)


@operator("ai.onnx.ml::LinearRegressor", dtypes=_TYPES, attributes={
    "coefficients": None, "intercepts": None, "post_transform": POST_TRANSFORMS, "targets": None,
}, check=_linear_regressor_refusal, result="float32")  # fmt: skip
def _linear_regressor(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    scores = _linear(context, node, _required(inputs[0]), node.get("targets", 1))
    return [cast(context, post_transformed(context, scores, node.get("post_transform", b"NONE")), _FLOAT32)]


def _linear_classifier_refusal(model: Model, view: NodeView) -> str | None:
    attributes = view.attributes
    labels = class_labels(attributes, "classlabels_ints")
    if isinstance(labels, str):
        return labels
    for name in ("coefficients", "intercepts"):
        if not np.isfinite(attributes.get(name, ())).all():  # onnxruntime's largest of scores with NaN is another
            return f"LinearClassifier with {name} that are not finite"
    classes = len(labels)
    if classes < 2:
        return f"LinearClassifier of {classes} class labels; kernels support two or more"
    if len(attributes.get("intercepts", ())) == 1:
        if classes > 2 or attributes.get("post_transform", b"NONE") == b"PROBIT":
            return f"LinearClassifier of {classes} classes with coefficients of one class, or with PROBIT then"
        return _linear_trouble(model, view, 1)
    return _linear_trouble(model, view, classes)


@operator("ai.onnx.ml::LinearClassifier", dtypes=_TYPES, attributes={
    "classlabels_ints": None, "classlabels_strings": None, "coefficients": None, "intercepts": None,
    "multi_class": None, "post_transform": POST_TRANSFORMS,
}, check=_linear_classifier_refusal, result="int64", further=("float32",), labels=string_labels)  # fmt: skip
def _linear_classifier(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    labels = label_table(context, node.attributes, "classlabels_ints")
    transform = node.get("post_transform", b"NONE")
    if len(node.get("intercepts", ())) == 1:  # of the second class
        score = _linear(context, node, _required(inputs[0]), 1)
        made = both_scores(context, score, transform, complement=True)
        return [label_above(context, score, 0, labels), cast(context, made, _FLOAT32)]
    scores = _linear(context, node, _required(inputs[0]), labels.size)
    made = post_transformed(context, scores, transform)
    return [labels_of_largest(context, scores, labels), cast(context, made, _FLOAT32)]
