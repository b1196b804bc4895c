"""Support vector machines: SVMClassifier and SVMRegressor of ai.onnx.ml.

Where onnxruntime contradicts itself or ignores an attribute, the node is rejected; `_refusal` and `_regressor_refusal`
have the reasons. All inputs are converted to float32, as in onnxruntime.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .... import _kernels
from ....errors import InferenceError
from ..registry import Contradiction, Node, contradicting, operator
from ..values import Context, Value
from .elementwise import _required, binary, cast, unary, unary_code
from .scores import (
    POST_TRANSFORMS,
    class_labels,
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

_FLOAT32, _INT64, _BOOL = np.dtype(np.float32), np.dtype(np.int64), np.dtype(np.bool_)
_EXP, _TANH = unary_code("EXP"), unary_code("TANH")
_KERNELS = (b"LINEAR", b"POLY", b"RBF", b"SIGMOID")
_MAX_CLASSES = _kernels.constant("SVM_MAX_CLASSES")
_TYPES = ("float32", "float64", "int32", "int64")


@contradicting
def _expect(attributes: Mapping[str, Any], name: str, count: int) -> str | None:
    found = len(attributes.get(name, ()))
    return None if found == count else f"attribute {name} has {found} entries; expected {count}"


def _linear_trouble(model: Model, view: NodeView, rows: int) -> str | None:
    """Why the coefficients of a model without support vectors do not fit the columns that the model states."""
    columns = stated_columns(model, view)
    return None if columns is None else _expect(view.attributes, "coefficients", rows * columns)


def _common_trouble(model: Model, view: NodeView, vectors: int) -> str | None:
    attributes, columns = view.attributes, stated_columns(model, view)
    parameters = attributes.get("kernel_params", ())
    if len(parameters) not in (0, 3):
        return Contradiction(
            f"attribute kernel_params has {len(parameters)} entries; expected 3: gamma, coef0 and degree"
        )
    supports = len(attributes.get("support_vectors", ()))
    if vectors and (not supports or supports % vectors):
        return Contradiction(
            f"attribute support_vectors has {supports} entries; expected a multiple of {vectors}, the support vectors"
        )
    if vectors and columns is not None and supports != vectors * columns:
        return Contradiction(
            f"attribute support_vectors has {supports} entries; expected {vectors * columns} for {columns} columns"
        )
    for name in ("kernel_params", "coefficients", "rho", "support_vectors", "prob_a", "prob_b"):
        if not np.isfinite(np.asarray(attributes.get(name, ()), np.float32)).all():
            return f"attribute {name} has infinities or NaN"
    return rank_trouble(model, view)


def _kernel(context: Context, node: Node, x: Value, vectors: int) -> Value:
    """The kernel function of each row of ``x`` and each support vector: float32 [rows, vectors]."""
    supports = np.array(node.get("support_vectors", ()), np.float32).reshape(vectors, -1)
    return _kernel_of(context, node, x, supports, node.get("kernel_type", b"LINEAR"))


def _kernel_of(context: Context, node: Node, x: Value, supports: np.ndarray[Any, Any], kind: bytes) -> Value:
    vectors, features = supports.shape
    if x.shape[1] != features:
        raise InferenceError(f"x of shape {list(x.shape)} does not fit support vectors of {features} features")
    gamma, coef0, degree = node.get("kernel_params", None) or (0.0, 0.0, 0.0)
    weights, rows = context.constant(np.ascontiguousarray(supports.T)), x.shape[0]

    def number(value: float) -> Value:
        return context.scalar(value, _FLOAT32)

    if kind == b"RBF":
        distances = context.call("squared_distances", [x, weights], (rows, vectors), _FLOAT32)
        return unary(context, _EXP, binary(context, "mul", distances, number(-gamma)))
    ints = [rows, vectors, features, 0, 0, 0, 0, 0, 0]
    products = context.call("gemm", [x, weights, None, None], (rows, vectors), _FLOAT32, ints, [1.0, 1.0, 0.0, 0.0])
    if kind == b"LINEAR":
        return products
    shifted = binary(context, "add", binary(context, "mul", products, number(gamma)), number(coef0))
    if kind == b"SIGMOID":
        return unary(context, _TANH, shifted)
    if degree in (2, 3):
        square = binary(context, "mul", shifted, shifted)
        return square if degree == 2 else binary(context, "mul", square, shifted)
    return binary(context, "pow", shifted, number(degree))


def _scores(
    context: Context, node: Node, x: Value, coefficients: np.ndarray[Any, Any], starts: np.ndarray[Any, Any]
) -> Value:
    """The score of each pair of classes: [rows, pairs]. ``coefficients`` [classes - 1, vectors]; ``starts``: the first
    vector of each class, and the end."""
    classes, vectors = len(starts) - 1, coefficients.shape[1]
    rho, rows = np.array(node.get("rho", ()), np.float32), x.shape[0]
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    supports = np.array(node.get("support_vectors", ()), np.float32).reshape(vectors, -1)
    if node.get("kernel_type", b"LINEAR") == b"LINEAR" and len(pairs) <= 4 * vectors:
        # A sum of products with support vectors is a product with the sum of the support vectors.
        wide, weights = coefficients.astype(np.float64), []
        for i, j in pairs:
            mine, others = slice(starts[i], starts[i + 1]), slice(starts[j], starts[j + 1])
            weights.append(wide[j - 1, mine] @ supports[mine] + wide[i, others] @ supports[others])
        made = _kernel_of(context, node, x, np.array(weights, np.float32), b"LINEAR")
        return binary(context, "add", made, context.constant(rho[: len(pairs)]))
    operands = [_kernel(context, node, x, vectors), *map(context.constant, (coefficients, starts, rho[: len(pairs)]))]
    return context.call("svm_scores", operands, (rows, len(pairs)), _FLOAT32, [classes])


_COMMON = dict.fromkeys(("coefficients", "kernel_params", "rho", "support_vectors"))


def _refusal(model: Model, view: NodeView) -> str | None:
    attributes = view.attributes
    labels = class_labels(attributes, "classlabels_ints")
    if isinstance(labels, str):
        return labels
    count, vectors = len(labels), sum(attributes.get("vectors_per_class", ()))
    if not 2 <= count <= _MAX_CLASSES:
        return f"SVMClassifier of {count} class labels; kernels support 2 to {_MAX_CLASSES}"
    if min(attributes.get("vectors_per_class", ()), default=0) < 0:
        return Contradiction("attribute vectors_per_class has a negative entry")
    transform, pairs = attributes.get("post_transform", b"NONE"), count * (count - 1) // 2
    num_a, coefficients = len(attributes.get("prob_a", ())), len(attributes.get("coefficients", ()))
    if not vectors:
        if count == 2:
            return "SVMClassifier of two classes without support vectors"  # onnxruntime's labels contradict the scores
        if not coefficients or coefficients % count:
            return Contradiction(
                f"attribute coefficients has {coefficients} entries; expected a multiple of {count}, the classes"
            )
        if not attributes.get("rho"):
            return Contradiction("attribute rho is missing or empty")
        return _linear_trouble(model, view, count) or _common_trouble(model, view, 0)
    if count == 2 and not num_a and transform != b"NONE":  # onnxruntime does not apply it
        return f"SVMClassifier of two classes without prob_a and with post_transform {transform.decode()}"
    return (
        _expect(attributes, "vectors_per_class", count)
        or _expect(attributes, "coefficients", (count - 1) * vectors)
        or _expect(attributes, "rho", pairs)
        or (_expect(attributes, "prob_a", pairs) if num_a else None)
        or _expect(attributes, "prob_b", num_a)
        or _common_trouble(model, view, vectors)
    )


@operator("ai.onnx.ml::SVMClassifier", dtypes=_TYPES, attributes=_COMMON | {
    "classlabels_ints": None, "classlabels_strings": None, "kernel_type": _KERNELS, "post_transform": POST_TRANSFORMS,
    "prob_a": None, "prob_b": None, "vectors_per_class": None,
}, check=_refusal, result="int64", further=("float32",), labels=string_labels)  # fmt: skip
def _classifier(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    """Scores: the probabilities of the classes; without prob_a those of the pairs, or -s and s for two classes."""
    x = cast(context, rows_of(context, _required(inputs[0])), _FLOAT32)
    table = label_table(context, node.attributes, "classlabels_ints")
    count, rows, transform = table.size, x.shape[0], node.get("post_transform", b"NONE")
    per_class = node.get("vectors_per_class", ())
    vectors = sum(per_class)
    if not vectors:
        coefficients = np.array(node.get("coefficients", ()), np.float32).reshape(count, -1)
        scores = _kernel_of(context, node, x, coefficients, b"LINEAR")
        scores = binary(context, "add", scores, context.scalar(node.get("rho", (0,))[0], _FLOAT32))
        return [labels_of_largest(context, scores, table), post_transformed(context, scores, transform)]
    coefficients = np.array(node.get("coefficients", ()), np.float32).reshape(count - 1, vectors)
    scores = _scores(context, node, x, coefficients, np.concatenate([[0], np.cumsum(per_class)]).astype(np.int64))
    parameters = [np.array(node.get(name, ()), np.float32) for name in ("prob_a", "prob_b")]
    if parameters[0].size:
        types: list[tuple[tuple[int, ...], np.dtype[Any]]] = [((rows,), _INT64), ((rows, count), _FLOAT32)]
        place, made = context.call_many("svm_votes", [scores, *map(context.constant, parameters)], types, [count])
        made = post_transformed(context, made, transform)
    else:
        place = context.call("svm_votes", [scores, None, None], (rows,), _INT64, [count])
        made = post_transformed(context, scores, transform)
        if count == 2:
            opposite = binary(context, "sub", context.scalar(0, _FLOAT32), scores)
            made = context.call("concat", [opposite, scores], (rows, 2), _FLOAT32, [1])
    return [context.call("gather", [table, place], (rows,), _INT64, [0]), made]


def _regressor_refusal(model: Model, view: NodeView) -> str | None:
    attributes = view.attributes
    vectors = attributes.get("n_supports", 0)
    if vectors < 0:
        return Contradiction(f"SVMRegressor with n_supports = {vectors}")
    if (transform := attributes.get("post_transform", b"NONE")) != b"NONE":  # onnxruntime ignores it
        return f"SVMRegressor with post_transform {transform.decode()}"
    if not attributes.get("rho"):
        return Contradiction("attribute rho is missing or empty")
    if not attributes.get("coefficients"):
        return Contradiction("attribute coefficients is missing or empty")
    trouble = _common_trouble(model, view, vectors)
    return trouble or (_expect(attributes, "coefficients", vectors) if vectors else _linear_trouble(model, view, 1))


@operator("ai.onnx.ml::SVMRegressor", dtypes=_TYPES, attributes=_COMMON | {
    "kernel_type": _KERNELS, "n_supports": None, "one_class": (0, 1),
    "post_transform": POST_TRANSFORMS,
}, check=_regressor_refusal, result="float32")  # fmt: skip
def _regressor(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = cast(context, rows_of(context, _required(inputs[0])), _FLOAT32)
    coefficients = np.array(node.get("coefficients", ()), np.float32)
    vectors, rows = node.get("n_supports", 0), x.shape[0]
    if vectors:
        # As a pair of classes, of which the second has no vectors.
        score = _scores(context, node, x, coefficients.reshape(1, -1), np.array([0, vectors, vectors]))
    else:
        score = _kernel_of(context, node, x, coefficients.reshape(1, -1), b"LINEAR")
        score = binary(context, "add", score, context.scalar(node.get("rho", (0,))[0], _FLOAT32))
    if not node.get("one_class", 0):
        return [score]
    inside = binary(context, "greater", score, context.scalar(0, _FLOAT32), _BOOL)
    return [
        context.call("where", [inside, context.scalar(1, _FLOAT32), context.scalar(-1, _FLOAT32)], (rows, 1), _FLOAT32)
    ]
