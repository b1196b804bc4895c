"""Code that the models of ai.onnx.ml share: rows of features, and the transforms of their scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ....errors import InferenceError
from ....model.types import dtype_of
from ..registry import Contradiction, contradicting, stated_shape
from ..values import Context, Value
from .elementwise import binary, cast, unary, unary_code
from .network import reduced

if TYPE_CHECKING:
    from ....model.model import Model, NodeView
    from ..registry import ExaminedNode

__all__ = [
    "POST_TRANSFORMS",
    "both_scores",
    "class_labels",
    "extracted_trouble",
    "key_type_trouble",
    "label_above",
    "label_table",
    "labels_of_largest",
    "post_transformed",
    "rank_trouble",
    "rows_of",
    "sigmoid",
    "softmax",
    "stated_columns",
    "string_labels",
]

POST_TRANSFORMS = (b"NONE", b"SOFTMAX", b"LOGISTIC", b"SOFTMAX_ZERO", b"PROBIT")
_EXP, _LOG, _SQRT, _ABS, _SIGMOID = map(unary_code, ("EXP", "LOG", "SQRT", "ABS", "SIGMOID"))
_BOOL = np.dtype(np.bool_)
_INT64 = np.dtype(np.int64)
_TYPE_OF_LIST = {"keys_floats": "float32", "keys_int64s": "int64", "keys_strings": "object"}


def class_labels(attributes: Mapping[str, Any], integers: str) -> NDArray[Any] | str:
    """The class labels of a classifier: int64, or objects for strings; or the reason why they are not valid.
    ``integers``: the attribute of those that are numbers."""
    strings = attributes.get("classlabels_strings")
    if not strings:
        labels = np.array(attributes.get(integers, ()), np.int64)
        return labels if len(labels) else Contradiction(f"neither classlabels_strings nor {integers} has labels")
    if attributes.get(integers):
        return Contradiction(f"attributes classlabels_strings and {integers} are both given")
    table = np.empty(len(strings), object)
    try:
        table[:] = [label.decode() for label in strings]
    except UnicodeDecodeError as error:
        return Contradiction(f"attribute classlabels_strings has bytes that are not UTF-8: {error}")
    return table


def string_labels(attributes: Mapping[str, Any]) -> NDArray[Any] | None:
    """See `Operator.labels`. None if the labels are numbers."""
    labels = class_labels(attributes, "") if attributes.get("classlabels_strings") else None
    return labels if isinstance(labels, np.ndarray) else None


def label_table(context: Context, attributes: Mapping[str, Any], integers: str) -> Value:
    """The class labels as int64; of strings, their places, which plans use instead (`Operator.labels`)."""
    labels = class_labels(attributes, integers)
    assert not isinstance(labels, str), "checked when the model was examined"
    return context.constant(np.arange(len(labels)) if labels.dtype == object else labels)


@contradicting
def key_type_trouble(model: Model, view: ExaminedNode) -> str | None:
    """Why x does not have the type of a LabelEncoder's keys."""
    given = [name for name in view.stored_attributes if name.startswith("keys_")]
    found = view.type_of_input(0)
    if len(given) != 1 or found is None:
        return None
    dtype = _TYPE_OF_LIST.get(given[0]) or dtype_of(view.stored_attributes[given[0]].data_type)
    return None if dtype is None or dtype == found else f"LabelEncoder of {found} with {given[0]} of {dtype}"


@contradicting
def rank_trouble(model: Model, view: NodeView) -> str | None:
    """Why an input of the model is not rows of features; a vector is one row."""
    for value in model.node_inputs[view.index].tolist():
        shape = stated_shape(model, value)
        if shape is not None and len(shape) not in (1, 2):
            return f"{view.op_type} of an input of rank {len(shape)}; expected 1 or 2"
    return None


@contradicting
def extracted_trouble(model: Model, view: NodeView) -> str | None:
    """Why the constant columns of an ArrayFeatureExtractor are not columns of x."""
    value, places = model.node_inputs[view.index].tolist()[:2]
    if stated_shape(model, value) == ():
        return "ArrayFeatureExtractor of a scalar; expected rank 1 or more"
    if places < 0 or not model.is_constant[places]:
        return None
    columns, chosen = stated_columns(model, view), model.constant(places).reshape(-1).tolist()
    if not chosen:
        return "ArrayFeatureExtractor of no columns"
    outside = [place for place in chosen if place < 0 or (columns is not None and place >= columns)]
    if not outside:
        return None
    known = "" if columns is None else f"; x has the columns 0..{columns - 1}"
    return f"ArrayFeatureExtractor with column {outside[0]}{known}"


def stated_columns(model: Model, view: NodeView) -> int | None:
    """The columns of x, if it is an input of the model that states them."""
    shape = stated_shape(model, int(model.node_inputs[view.index][0]))
    columns = shape[-1] if shape else None
    return columns if isinstance(columns, int) else None


def rows_of(context: Context, x: Value) -> Value:
    """``x`` as rows of features; a vector is one row."""
    if x.rank == 1:
        x = context.reshaped(x, (1, x.size))
    if x.rank != 2 or x.shape[1] == 0:
        raise InferenceError(f"expected rows of features, found shape {list(x.shape)}")
    return x


def sigmoid(context: Context, x: Value) -> Value:
    return unary(context, _SIGMOID, x)


def softmax(context: Context, scores: Value) -> Value:
    rows, classes = scores.shape
    return context.call("softmax", [scores], scores.shape, scores.dtype, [rows, classes, 1, 0])


def post_transformed(context: Context, scores: Value, transform: bytes) -> Value:
    """``scores`` [rows, classes] after a ``post_transform``."""
    if transform == b"SOFTMAX":
        return softmax(context, scores)
    if transform == b"LOGISTIC":
        return sigmoid(context, scores)
    if transform == b"SOFTMAX_ZERO":
        return _softmax_of_nonzero(context, scores)
    return _probit(context, scores) if transform == b"PROBIT" else scores


def _softmax_of_nonzero(context: Context, scores: Value) -> Value:
    """Softmax over the scores above 1e-7 in magnitude. The others stay about zero: they are multiplied by what divides
    the rest. Constants as in onnxruntime."""
    top = reduced(context, scores, "max", [1], keep=True)
    powers = unary(context, _EXP, binary(context, "sub", scores, top))
    least = context.scalar(1e-7, scores.dtype)
    counts = binary(context, "greater", unary(context, _ABS, scores), least, _BOOL)
    zero = context.scalar(0, scores.dtype)
    scale = unary(context, _EXP, binary(context, "sub", zero, top))
    parts = context.call("where", [counts, powers, zero], scores.shape, scores.dtype)
    rest = binary(context, "mul", scores, scale)
    kept = context.call("where", [counts, powers, rest], scores.shape, scores.dtype)
    return binary(context, "div", kept, reduced(context, parts, "sum", [1], keep=True))


def _probit(context: Context, scores: Value) -> Value:
    """The inverse of the normal distribution, by Winitzki's approximation of the inverse error function, with the
    constants and the order of operations of onnxruntime."""

    def number(value: float | np.float32) -> Value:
        return context.scalar(float(np.float32(value)), scores.dtype)

    one = number(1)
    odds = binary(context, "sub", binary(context, "mul", number(2), scores), one)
    product = binary(context, "mul", binary(context, "sub", one, odds), binary(context, "add", one, odds))
    logarithm = unary(context, _LOG, product)
    constant = np.float32(2) / (np.float32(3.14159) * np.float32(0.147))
    half = binary(context, "add", number(constant), binary(context, "mul", number(0.5), logarithm))
    other = binary(context, "mul", number(np.float32(1) / np.float32(0.147)), logarithm)
    root = unary(context, _SQRT, binary(context, "sub", binary(context, "mul", half, half), other))
    size = unary(context, _SQRT, binary(context, "sub", root, half))
    below = binary(context, "less", odds, number(0), _BOOL)
    sign = context.call("where", [below, number(-1), one], scores.shape, scores.dtype)
    return binary(context, "mul", number(1.41421356), binary(context, "mul", sign, size))


def labels_of_largest(context: Context, scores: Value, labels: Value) -> Value:
    """For each row of scores, the label of its largest; of equal ones the first."""
    rows, classes = scores.shape
    place = context.call("arg_extreme", [scores], (rows,), _INT64, [rows, classes, 1, 0, 0])
    return context.call("gather", [labels, place], (rows,), _INT64, [0])


def label_above(context: Context, score: Value, threshold: float, labels: Value) -> Value:
    """For each row of one score, the second of two labels if the score is above the threshold, else the first."""
    rows = score.shape[0]
    above = binary(context, "greater", score, context.scalar(threshold, score.dtype), _BOOL)
    place = context.reshaped(cast(context, above, _INT64), (rows,))
    return context.call("gather", [labels, place], (rows,), _INT64, [0])


def both_scores(context: Context, score: Value, transform: bytes, *, complement: bool) -> Value:
    """The scores of two classes, given that of the second, as onnxruntime defines them. The first is 1 - s with
    ``complement``, else -s. LOGISTIC gives sigmoid(-s) and sigmoid(s); the softmaxes leave the pair as it is."""
    zero, one = context.scalar(0, score.dtype), context.scalar(1, score.dtype)
    if transform == b"LOGISTIC":
        pair = [sigmoid(context, binary(context, "sub", zero, score)), sigmoid(context, score)]
    else:
        pair = [binary(context, "sub", one if complement else zero, score), score]
    return context.call("concat", pair, (score.shape[0], 2), score.dtype, [1])
