"""Operators of the domain ai.onnx.ml."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops.aionnxml import load_op

from .table import Corrections

__all__ = ["CORRECTIONS"]

UpstreamLinearClassifier: Any = load_op("ai.onnx.ml", "LinearClassifier", None)
UpstreamSVMRegressor: Any = load_op("ai.onnx.ml", "SVMRegressor", None)
UpstreamTreeEnsembleClassifier: Any = load_op("ai.onnx.ml", "TreeEnsembleClassifier", None)


class _MlOperator(OpRun):
    op_domain = "ai.onnx.ml"


class ArrayFeatureExtractor(_MlOperator):
    # onnx.reference counts negative columns from the end, and accepts none. These are errors, as in onnxruntime.

    def _run(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray]:
        columns = y.reshape(-1)
        if not columns.size or not 0 <= columns.min() <= columns.max() < x.shape[-1]:
            raise ValueError(f"columns {columns[:8].tolist()} are empty or outside x of shape {list(x.shape)}")
        return (np.take(np.atleast_2d(x), columns, axis=-1),)


class CategoryMapper(_MlOperator):
    # Missing in onnx.reference. Maps strings to integers and back by two lists.

    def _run(
        self,
        x: np.ndarray,
        cats_int64s: Sequence[int] | None = None,
        cats_strings: Sequence[str] | None = None,
        default_int64: int = -1,
        default_string: str = "_Unused",
    ) -> tuple[np.ndarray]:
        cats_int64s, cats_strings = cats_int64s or (), cats_strings or ()
        if x.dtype == object:
            numbers = dict(zip(cats_strings, cats_int64s, strict=True))
            return (np.array([numbers.get(item, default_int64) for item in x.flat], np.int64).reshape(x.shape),)
        texts = dict(zip(cats_int64s, cats_strings, strict=True))
        return (np.array([texts.get(int(i), default_string) for i in x.flat], object).reshape(x.shape),)


class OneHotEncoder(_MlOperator):
    # onnx.reference fails without rows, and with more than two axes. As in onnxruntime, floats are truncated.

    def _run(
        self,
        x: np.ndarray,
        cats_int64s: Sequence[int] | None = None,
        cats_strings: Sequence[str] | None = None,
        zeros: int = 1,
    ) -> tuple[np.ndarray]:
        categories = list(cats_strings or cats_int64s or ())
        items = x.astype(np.int64) if x.dtype.kind == "f" else x
        made = np.array([[item == key for key in categories] for item in items.reshape(-1).tolist()], np.float32)
        unknown = np.flatnonzero(~made.any(axis=1)) if made.size else np.zeros(0, int)
        if not zeros and len(unknown):
            raise ValueError(f"{x.reshape(-1)[unknown[0]]!r} is not a category, and zeros is 0")
        return (made.reshape(*x.shape, len(categories)),)


class ZipMap(_MlOperator):
    # Missing in onnx.reference. A row of scores becomes a map from class to score; the result is a sequence of maps.

    def _run(
        self,
        x: np.ndarray,
        classlabels_int64s: Sequence[int] | None = None,
        classlabels_strings: Sequence[str] | None = None,
    ) -> tuple[list[dict[Any, Any]]]:
        labels = list(classlabels_strings or classlabels_int64s or ())
        return ([dict(zip(labels, row, strict=True)) for row in np.atleast_2d(x)],)


class CastMap(_MlOperator):
    # Missing in onnx.reference. A map from integers to values becomes a row: the values in the order of their keys, or
    # each at the index given by its key.

    def _run(
        self, x: dict[int, Any], cast_to: str = "TO_FLOAT", map_form: str = "DENSE", max_map: int = 1
    ) -> tuple[np.ndarray]:
        dtype: Any = {"TO_FLOAT": np.float32, "TO_INT64": np.int64, "TO_STRING": object}[cast_to]
        convert = str if dtype is object else float
        if map_form == "DENSE":
            return (np.array([[convert(x[key]) for key in sorted(x)]]).astype(dtype),)
        row = np.zeros((1, max_map), dtype) if dtype is not object else np.full((1, max_map), "", object)
        for key, value in x.items():
            if 0 <= key < max_map:
                row[0, key] = convert(value)
        return (row,)


class LabelEncoder_1(_MlOperator):
    # The first version has a single list; onnx.reference supports only the later lists of keys and values.

    def _run(
        self,
        x: np.ndarray,
        classes_strings: Sequence[str] | None = None,
        default_int64: int = -1,
        default_string: str = "_Unused",
    ) -> tuple[np.ndarray]:
        classes_strings = classes_strings or ()
        if x.dtype == object:
            numbers = {text: number for number, text in enumerate(classes_strings)}
            return (np.array([numbers.get(item, default_int64) for item in x.flat], np.int64).reshape(x.shape),)
        known = range(len(classes_strings))
        texts = [classes_strings[int(i)] if int(i) in known else default_string for i in x.flat]
        return (np.array(texts, object).reshape(x.shape),)


class LabelEncoder(_MlOperator):
    # onnx.reference never finds the key NaN, and returns "" if the default string is needed and absent. Compared with
    # onnxruntime over key and value types.

    def _run(
        self,
        x: np.ndarray,
        default_float: float = -0.0,
        default_int64: int = -1,
        default_string: str = "_Unused",
        default_tensor: np.ndarray | None = None,
        keys_floats: Any = None,
        keys_int64s: Any = None,
        keys_strings: Any = None,
        keys_tensor: np.ndarray | None = None,
        values_floats: Any = None,
        values_int64s: Any = None,
        values_strings: Any = None,
        values_tensor: np.ndarray | None = None,
    ) -> tuple[np.ndarray]:
        keys = next(k for k in (keys_floats, keys_int64s, keys_strings, keys_tensor) if k is not None)
        values, dtype, default = next(
            (v, kind, d)
            for v, kind, d in (
                (values_floats, np.float32, default_float),
                (values_int64s, np.int64, default_int64),
                (values_strings, object, default_string),
                (values_tensor, None if values_tensor is None else values_tensor.dtype, default_tensor),
            )
            if v is not None
        )
        table = {self.key(key): value for key, value in zip(keys, values, strict=True)}
        if isinstance(default, np.ndarray):
            default = default.reshape(-1)[0]
        elif values_tensor is not None and default is None:
            default = {"f": default_float, "i": default_int64}.get(values_tensor.dtype.kind, default_string)
        mapped = np.empty(x.size, dtype)
        for place, item in enumerate(x.flat):
            mapped[place] = table.get(self.key(item), default)
        return (mapped.reshape(x.shape),)

    def key(self, value: Any) -> Any:
        """A dictionary key: bytes become text, and all NaN become the same key."""
        if isinstance(value, bytes):
            return value.decode()
        return "NaN" if isinstance(value, (float, np.floating)) and math.isnan(value) else value


class LabelEncoder_2(LabelEncoder):
    # Before version 4 NaN equals no value. Compared with onnxruntime.

    def key(self, value: Any) -> Any:
        return value.decode() if isinstance(value, bytes) else value


class Normalizer(_MlOperator):
    # MAX divides by the maximum; onnx.reference divides by the largest absolute value. According to the schema, and
    # compared with onnxruntime.

    def _run(self, x: np.ndarray, norm: str = "MAX") -> tuple[np.ndarray]:
        wide = x.astype(np.float32)
        match norm:
            case "MAX":
                divisor = wide.max(axis=-1, keepdims=True)
            case "L1":
                divisor = np.abs(wide).sum(axis=-1, keepdims=True)
            case "L2":
                divisor = np.sqrt(np.square(wide).sum(axis=-1, keepdims=True))
            case _:
                raise ValueError(f"expected norm MAX, L1 or L2, found {norm!r}")
        return (np.divide(wide, divisor, out=wide.copy(), where=divisor != 0),)


class Scaler(_MlOperator):
    # The result is float32 for any input type; onnx.reference keeps integers. According to the schema.

    def _run(
        self, x: np.ndarray, offset: Sequence[float] | None = None, scale: Sequence[float] | None = None
    ) -> tuple[np.ndarray]:
        centered = x - np.array(offset or [0], np.float32)
        return ((centered * np.array(scale or [1], np.float32)).astype(np.float32),)


# -- regressors: onnx.reference implements no post_transform for them -----------------------------------------------


def _softmax(scores: np.ndarray) -> np.ndarray:
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))


def _softmax_zero(scores: np.ndarray) -> np.ndarray:
    """Softmax over the nonzero scores; zero scores stay zero."""
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True)) * (np.abs(scores) > 1e-7)
    return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))


def _probit(scores: np.ndarray) -> np.ndarray:
    """The inverse of the normal distribution, by Winitzki's approximation of the inverse error function."""
    odds = 2 * scores - 1
    logarithm = np.log((1 - odds) * (1 + odds))
    half = 2 / (np.pi * 0.147) + logarithm / 2
    return np.asarray(np.sqrt(2) * np.sign(odds) * np.sqrt(np.sqrt(half**2 - logarithm / 0.147) - half))


_POST_TRANSFORMS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "NONE": lambda scores: scores,
    "SOFTMAX": _softmax,
    "LOGISTIC": lambda scores: 1 / (1 + np.exp(-scores)),
    "SOFTMAX_ZERO": _softmax_zero,
    "PROBIT": _probit,
}


def _transformed(scores: np.ndarray, post_transform: str) -> tuple[np.ndarray]:
    return (_POST_TRANSFORMS[post_transform](scores).astype(np.float32),)


class LinearRegressor(_MlOperator):
    # onnx.reference returns NaN if the intercepts are absent. Compared with onnxruntime.

    def _run(
        self,
        x: np.ndarray,
        coefficients: Sequence[float] = (),
        intercepts: Sequence[float] | None = None,
        post_transform: str = "NONE",
        targets: int = 1,
    ) -> tuple[np.ndarray]:
        scores = np.atleast_2d(x).astype(np.float32) @ np.array(coefficients, np.float32).reshape(targets, -1).T
        if intercepts:
            scores = scores + np.array(intercepts, np.float32)
        return _transformed(scores, post_transform)


class LinearClassifier(UpstreamLinearClassifier):  # type: ignore[misc]
    # onnx.reference keeps float64 and fails without intercepts. Where two classes share one row of coefficients,
    # onnxruntime, and so this, applies no transform but LOGISTIC, and adds 1 to the first class's score otherwise.

    def _run(
        self,
        x: np.ndarray,
        classlabels_ints: Sequence[int] | None = None,
        classlabels_strings: Sequence[str] | None = None,
        coefficients: Sequence[float] = (),
        intercepts: Sequence[float] | None = None,
        multi_class: int = 0,
        post_transform: str = "NONE",
    ) -> tuple[np.ndarray, np.ndarray]:
        x = np.atleast_2d(x).astype(np.float32)
        shares = len(coefficients) == x.shape[1] and len(classlabels_ints or classlabels_strings or ()) == 2
        label, scores = super()._run(
            x,
            classlabels_ints=classlabels_ints,
            classlabels_strings=classlabels_strings,
            coefficients=coefficients,
            intercepts=intercepts or [0.0],
            post_transform="NONE" if shares and post_transform != "LOGISTIC" else post_transform,
        )
        if shares and post_transform != "LOGISTIC":
            scores = scores + np.array([1, 0], np.float32)
        return label, scores.astype(np.float32)


class SVMRegressor(UpstreamSVMRegressor):  # type: ignore[misc]
    def _run(self, x: np.ndarray, post_transform: str = "NONE", **attributes: Any) -> tuple[np.ndarray]:
        (scores,) = super()._run(x, post_transform="NONE", **attributes)
        return _transformed(scores, post_transform)


_TESTS: dict[str, Callable[[float, float], bool]] = {
    "BRANCH_LEQ": operator.le,
    "BRANCH_LT": operator.lt,
    "BRANCH_GTE": operator.ge,
    "BRANCH_GT": operator.gt,
    "BRANCH_EQ": operator.eq,
    "BRANCH_NEQ": operator.ne,
}


def _tree_scores(
    x: np.ndarray, kind: str, targets: int, attributes: Mapping[str, Any], aggregate: str = "SUM"
) -> np.ndarray:
    """The combined weights of the leaves that each row reaches, plus base values: [rows, targets]. ``kind``: the prefix
    of the attributes of leaf weights. A tree's root is its node without a parent. If there is one target, a weight that
    a leaf has several times counts once, as in onnxruntime."""

    def given(name: str) -> list[Any]:
        tensor = attributes.get(f"{name}_as_tensor")
        return list(attributes.get(name) or () if tensor is None else tensor)

    nodes = list(zip(given("nodes_treeids"), given("nodes_nodeids"), strict=True))
    modes, features, values = (given(f"nodes_{name}") for name in ("modes", "featureids", "values"))
    children = list(zip(given("nodes_falsenodeids"), given("nodes_truenodeids"), strict=True))
    tracks = given("nodes_missing_value_tracks_true") or [0] * len(nodes)
    place = {node: at for at, node in enumerate(nodes)}
    inner = [at for at, mode in enumerate(modes) if mode != "LEAF"]
    with_parent = {(nodes[at][0], child) for at in inner for child in children[at]}
    roots = [at for at, node in enumerate(nodes) if node not in with_parent]
    weights: dict[tuple[int, int], list[tuple[int, float]]] = {}
    names = ("treeids", "nodeids", "ids", "weights")
    for tree, node, target, weight in zip(*(given(f"{kind}_{name}") for name in names), strict=True):
        of_leaf = weights.setdefault((tree, node), [])
        if kind != "target" or targets > 1 or (target, float(weight)) not in of_leaf:
            of_leaf.append((target, float(weight)))
    combine = {"MIN": min, "MAX": max}.get(aggregate, sum)
    x = np.atleast_2d(x if x.dtype == np.float64 else x.astype(np.float32))
    made = np.zeros((len(x), targets))
    for row, scores in zip(x, made, strict=True):
        found: dict[int, list[float]] = {}
        for at in roots:
            for _ in nodes:  # no more steps than nodes, so that cycles end
                if modes[at] == "LEAF":
                    break
                value = float(row[features[at]])
                test = _TESTS[modes[at]](value, float(values[at])) or (np.isnan(value) and tracks[at] != 0)
                at = place[nodes[at][0], children[at][bool(test)]]
            else:
                raise ValueError(f"tree {nodes[at][0]} has a cycle")
            for target, weight in weights.get(nodes[at], ()):
                found.setdefault(target, []).append(weight)
        for target, each in found.items():
            scores[target] = combine(each) / (len(roots) if aggregate == "AVERAGE" else 1)
    base = given("base_values")
    return made + np.array(base, np.float64) if base else made


class TreeEnsembleClassifier(UpstreamTreeEnsembleClassifier):  # type: ignore[misc]
    # onnx.reference fails on NaN unless the nodes state where it goes, on leaves without weights, and takes the first
    # node of a tree as its root. Where only one of two classes has weights, it ignores their signs, and the class if it
    # is the second; converters write such models for onnxruntime, whose labels are those of the trained library. For
    # weights of the second class and base values, onnxruntime, onnx.reference and the schema disagree.

    @staticmethod
    def refusal(attributes: Mapping[str, Any]) -> str | None:
        labels = attributes.get("classlabels_strings") or attributes.get("classlabels_int64s") or ()
        has_base = bool(attributes.get("base_values")) or "base_values_as_tensor" in attributes
        if len(labels) == 2 and has_base and set(attributes.get("class_ids", ())) == {1}:
            return "TreeEnsembleClassifier of two classes with base_values and weights of the second class"
        return None

    def _run(self, x: np.ndarray, post_transform: str = "NONE", **attributes: Any) -> tuple[np.ndarray, np.ndarray]:
        strings = attributes.get("classlabels_strings")
        ids: Sequence[int] = attributes.get("class_ids") or ()
        labels = np.array(strings or attributes.get("classlabels_int64s") or (), object if strings else np.int64)
        if len(labels) < 2:
            made: tuple[np.ndarray, np.ndarray] = super()._run(x, post_transform=post_transform, **attributes)
            return made
        if len(labels) > 2 or len(set(ids)) != 1:
            scores = _tree_scores(x, "class", len(labels), attributes)
            return labels[scores.argmax(axis=1)], *_transformed(scores, post_transform)
        score = _tree_scores(x, "class", 1, {**attributes, "class_ids": [0] * len(ids)})
        tensor = attributes.get("class_weights_as_tensor")
        positive = bool((np.array(attributes["class_weights"] if tensor is None else tensor) >= 0).all())
        label = labels[(score[:, 0] > (0.5 if positive else 0.0)).astype(int)]
        if ids[0] == 1:
            first = np.zeros_like(score)
        else:
            first = 1 - score if positive and post_transform != "LOGISTIC" else -score
            post_transform = "NONE" if post_transform.startswith("SOFTMAX") else post_transform
        return label, *_transformed(np.hstack([first, score]), post_transform)


class TreeEnsembleRegressor(_MlOperator):
    # onnx.reference sums in the type of the input, so it rounds each leaf's weight if that is an integer. The least and
    # the largest of no leaves is the end of the type there. As for classifiers, it fails on NaN. Compared with
    # onnxruntime.

    def _run(
        self,
        x: np.ndarray,
        n_targets: int = 0,
        post_transform: str = "NONE",
        aggregate_function: str = "SUM",
        **attributes: Any,
    ) -> tuple[np.ndarray]:
        return _transformed(_tree_scores(x, "target", n_targets, attributes, aggregate_function), post_transform)


class SVMClassifier(_MlOperator):
    # onnx.reference fails on labels that are strings and on two classes. By the schema, and compared with onnxruntime.

    def _run(
        self,
        x: np.ndarray,
        classlabels_ints: Sequence[int] | None = None,
        classlabels_strings: Sequence[str] | None = None,
        coefficients: Sequence[float] = (),
        kernel_params: Sequence[float] | None = None,
        kernel_type: str = "LINEAR",
        post_transform: str = "NONE",
        prob_a: Sequence[float] | None = None,
        prob_b: Sequence[float] | None = None,
        rho: Sequence[float] = (),
        support_vectors: Sequence[float] | None = None,
        vectors_per_class: Sequence[int] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        labels = np.array(classlabels_strings or classlabels_ints, object if classlabels_strings else np.int64)
        count, x = len(labels), np.atleast_2d(x).astype(np.float64)
        if not sum(vectors_per_class or ()):
            scores = x @ np.array(coefficients, np.float64).reshape(count, -1).T + rho[0]
            return labels[scores.argmax(axis=1)], *_transformed(scores, post_transform)
        ends = np.cumsum(vectors_per_class or ())
        supports = np.array(support_vectors, np.float64).reshape(ends[-1], -1)
        kernels = _kernels(x, supports, kernel_type, kernel_params or (0, 0, 0))
        weights = np.array(coefficients, np.float64).reshape(count - 1, -1)
        parts = [range(end - size, end) for end, size in zip(ends, vectors_per_class or (), strict=True)]
        pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
        scores = np.empty((len(x), len(pairs)))
        votes = np.zeros((len(x), count), np.int64)
        for number, (i, j) in enumerate(pairs):
            mine, others = kernels[:, parts[i]] @ weights[j - 1, parts[i]], kernels[:, parts[j]] @ weights[i, parts[j]]
            scores[:, number] = mine + others + rho[number]
            votes[:, i] += scores[:, number] > 0
            votes[:, j] += scores[:, number] <= 0
        chosen = labels[votes.argmax(axis=1)]
        if prob_a and prob_b:
            odds = np.clip(1 / (1 + np.exp(scores * np.array(prob_a) + np.array(prob_b))), 1e-7, 1 - 1e-7)
            scores = np.array([_coupled(row, pairs, count) for row in odds]).reshape(len(x), count)
        elif count == 2:
            if post_transform != "NONE":
                raise ValueError(f"post_transform {post_transform} of two classes without prob_a is not defined")
            scores = np.concatenate([-scores, scores], axis=1)
        return chosen, *_transformed(scores, post_transform)


def _kernels(x: np.ndarray, supports: np.ndarray, kind: str, parameters: Sequence[float]) -> np.ndarray:
    gamma, coef0, degree = parameters
    if kind == "RBF":
        return np.asarray(np.exp(-gamma * np.square(x[:, None, :] - supports[None]).sum(axis=2)))
    products = x @ supports.T
    if kind == "LINEAR":
        return np.asarray(products)
    shifted = gamma * products + coef0
    return np.asarray(np.tanh(shifted) if kind == "SIGMOID" else shifted**degree)


def _coupled(odds: np.ndarray, pairs: Sequence[tuple[int, int]], count: int) -> np.ndarray:
    """The probabilities of the classes from those of the pairs, by the second method of Wu, Lin and Weng, stopped like
    libsvm."""
    r = np.zeros((count, count))
    for (i, j), value in zip(pairs, odds, strict=True):
        r[i, j], r[j, i] = value, 1 - value
    q = -(r.T * r)
    np.fill_diagonal(q, np.square(r).sum(axis=0))
    p = np.full(count, 1 / count)
    for _ in range(100):
        product = q @ p
        total = p @ product
        if np.abs(product - total).max() < 0.005 / count:
            break
        for i in range(count):
            step = (total - product[i]) / q[i, i]
            p[i] += step
            total = (total + step * (step * q[i, i] + 2 * product[i])) / (1 + step) ** 2
            product = (product + step * q[i]) / (1 + step)
            p /= 1 + step
    return p


class TreeEnsemble(_MlOperator):
    # onnx.reference ignores post_transform, ends a set of members at 0, and recurses without end on cycles. By the
    # schema.

    def _run(
        self,
        x: np.ndarray,
        aggregate_function: int = 1,
        leaf_targetids: Any = (),
        leaf_weights: Any = (),
        membership_values: Any = None,
        n_targets: int = 0,
        nodes_falseleafs: Any = (),
        nodes_falsenodeids: Any = (),
        nodes_featureids: Any = (),
        nodes_hitrates: Any = None,
        nodes_missing_value_tracks_true: Any = None,
        nodes_modes: Any = (),
        nodes_splits: Any = (),
        nodes_trueleafs: Any = (),
        nodes_truenodeids: Any = (),
        post_transform: int = 0,
        tree_roots: Any = (),
    ) -> tuple[np.ndarray]:
        tests = {0: np.less_equal, 1: np.less, 2: np.greater_equal, 3: np.greater, 4: np.equal, 5: np.not_equal}
        modes = [int(mode) for mode in nodes_modes]
        sets = iter(np.split(np.array(membership_values), np.flatnonzero(np.isnan(membership_values)) + 1)
                    if membership_values is not None else ())  # fmt: skip
        members = {node: set(next(sets).tolist()) for node, mode in enumerate(modes) if mode == 6}
        combine = {2: min, 3: max}.get(aggregate_function, sum)
        made = np.zeros((len(x), n_targets))
        for row, scores in zip(x, made, strict=True):
            found: dict[int, list[float]] = {}
            for root in tree_roots:
                node = int(root)
                for _ in range(len(modes)):  # so that cycles end
                    value = row[nodes_featureids[node]]
                    mode = modes[node]
                    test = bool(float(value) in members[node] if mode == 6 else tests[mode](value, nodes_splits[node]))
                    if np.isnan(value) and nodes_missing_value_tracks_true:
                        test = test or bool(nodes_missing_value_tracks_true[node])
                    ids, leaves = (
                        (nodes_truenodeids, nodes_trueleafs) if test else (nodes_falsenodeids, nodes_falseleafs)
                    )
                    at, is_leaf = int(ids[node]), bool(leaves[node])
                    if is_leaf:
                        found.setdefault(int(leaf_targetids[at]), []).append(float(leaf_weights[at]))
                        break
                    node = at
                else:
                    raise ValueError(f"the tree with root {root} has a cycle")
            for target, weights in found.items():
                scores[target] = combine(weights) / (len(tree_roots) if aggregate_function == 0 else 1)
        transform = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")[post_transform]
        return (_POST_TRANSFORMS[transform](made).astype(x.dtype),)


class FeatureVectorizer(_MlOperator):
    # onnx.reference keeps the type of the inputs; the result is float32 by the schema. As in onnxruntime, a vector is
    # one row.

    def _run(self, *inputs: np.ndarray, inputdimensions: Sequence[int] = ()) -> tuple[np.ndarray]:
        columns = []
        for x, width in zip(inputs, inputdimensions, strict=False):
            rows = np.atleast_2d(x)[:, :width]
            columns.append(np.pad(rows, ((0, 0), (0, width - rows.shape[1]))).astype(np.float32))
        return (np.concatenate(columns, axis=1),)


CORRECTIONS: Corrections = (
    ("ai.onnx.ml", "ArrayFeatureExtractor", 1, None, ArrayFeatureExtractor),
    ("ai.onnx.ml", "FeatureVectorizer", 1, None, FeatureVectorizer),
    ("ai.onnx.ml", "LinearClassifier", 1, None, LinearClassifier),
    ("ai.onnx.ml", "SVMClassifier", 1, None, SVMClassifier),
    ("ai.onnx.ml", "TreeEnsemble", 5, None, TreeEnsemble),
    ("ai.onnx.ml", "TreeEnsembleClassifier", 1, None, TreeEnsembleClassifier),
    ("ai.onnx.ml", "CategoryMapper", 1, None, CategoryMapper),
    ("ai.onnx.ml", "OneHotEncoder", 1, None, OneHotEncoder),
    ("ai.onnx.ml", "ZipMap", 1, None, ZipMap),
    ("ai.onnx.ml", "CastMap", 1, None, CastMap),
    ("ai.onnx.ml", "LabelEncoder", 1, 1, LabelEncoder_1),
    ("ai.onnx.ml", "LabelEncoder", 2, 3, LabelEncoder_2),
    ("ai.onnx.ml", "LabelEncoder", 4, None, LabelEncoder),
    ("ai.onnx.ml", "Normalizer", 1, None, Normalizer),
    ("ai.onnx.ml", "Scaler", 1, None, Scaler),
    ("ai.onnx.ml", "LinearRegressor", 1, None, LinearRegressor),
    ("ai.onnx.ml", "SVMRegressor", 1, None, SVMRegressor),
    ("ai.onnx.ml", "TreeEnsembleRegressor", 1, None, TreeEnsembleRegressor),
)
