"""Tree ensembles: TreeEnsembleRegressor, TreeEnsembleClassifier and TreeEnsemble of ai.onnx.ml.

The attributes are checked and packed into the layout of kernels/tree_ensemble.c, once when support is asked and once
per compiled model. Where onnxruntime contradicts the specification, the node is rejected, so that the result does not
depend on the device; the reasons are in `_regressor_refusal` and `_classifier_refusal`.

Integer inputs are compared as float32, as onnxruntime does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .... import _kernels
from ....errors import InferenceError
from ....model.constants import array_of
from ..registry import Contradiction, Node, operator
from ..values import Context, Value
from .elementwise import _required, cast
from .scores import (
    POST_TRANSFORMS,
    both_scores,
    class_labels,
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

_INT64 = np.dtype(np.int64)
_FLOAT32 = np.dtype(np.float32)
_EQUAL, _NAN_FIRST = _kernels.constant("TREE_EQUAL"), _kernels.constant("TREE_NAN_FIRST")
_AGGREGATES = {name: _kernels.constant(f"TREE_{name.decode()}") for name in (b"SUM", b"AVERAGE", b"MIN", b"MAX")}
Find = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.int64]]
_MODES = (b"LEAF", b"BRANCH_LEQ", b"BRANCH_LT", b"BRANCH_GTE", b"BRANCH_GT", b"BRANCH_EQ", b"BRANCH_NEQ")
_LEAF, _LEQ, _LT, _GTE, _GT, _EQ, _NEQ = range(len(_MODES))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Trees:
    """An ensemble in the kernel's layout. ``base``: None if absent. ``features``: the minimum number of columns.
    ``flags``: as the kernel's parameter.

    ``scored``: for each target, whether some tree gives it a weight in every leaf. ``every_row``: whether some tree
    gives a weight to some target in every leaf. ``every_leaf``: whether all trees do."""

    nodes: NDArray[np.int64]
    roots: NDArray[np.int32]
    depths: NDArray[np.int32]
    starts: NDArray[np.int32]
    ids: NDArray[np.int32]
    weights: NDArray[Any]
    base: NDArray[Any] | None
    features: int
    flags: int
    dense: bool
    scored: NDArray[np.bool_]
    every_row: bool
    every_leaf: bool


class _Unsupported(InferenceError):
    """Trees that are valid, but not for kernels."""


def _numbers(attributes: Mapping[str, Any], name: str, dtype: Any, count: int | None = None) -> NDArray[Any] | None:
    """An attribute, or its form as a tensor; None if both are absent or empty."""
    value = attributes.get(name)
    tensor = attributes.get(f"{name}_as_tensor")
    if tensor is not None:
        if value:
            raise InferenceError(f"attributes {name} and {name}_as_tensor are both given")
        value = array_of(tensor).reshape(-1)
    if value is None or not len(value):
        return None
    array = np.asarray(value)
    if count is not None and len(array) != count:
        raise InferenceError(f"attribute {name} has {len(array)} entries; expected {count}")
    return array.astype(dtype)


def _needed(attributes: Mapping[str, Any], name: str, dtype: Any, count: int | None = None) -> NDArray[Any]:
    array = _numbers(attributes, name, dtype, count)
    if array is None:
        raise InferenceError(f"attribute {name} is missing or empty")
    return array


def pack(attributes: Mapping[str, Any], kind: str, targets: int, dtype: np.dtype[Any], extreme: bool) -> Trees:
    """Check an ensemble and pack it. ``kind``: ``target`` or ``class``, the prefix of the attributes of leaf weights.
    ``dtype``: the type to compare and sum in. ``extreme``: leaves combine by MIN or MAX.

    Raises `InferenceError` if the attributes do not describe trees: every tree has one root, every child exists, and no
    node is its own descendant. A node may have several parents, as LightGBM's converter writes for sets."""
    tree_ids = _needed(attributes, "nodes_treeids", np.int64)
    count = len(tree_ids)
    node_ids = _needed(attributes, "nodes_nodeids", np.int64, count)
    names = attributes.get("nodes_modes", ())
    if len(names) != count:
        raise InferenceError(f"attribute nodes_modes has {len(names)} entries; expected {count}")
    unknown = sorted(set(names) - set(_MODES))
    if unknown:
        error = _Unsupported if b"BRANCH_MEMBER" in unknown else InferenceError
        raise error(f"attribute nodes_modes has {unknown[0].decode(errors='replace')!r}; "
                    f"kernels support {', '.join(mode.decode() for mode in _MODES)}")  # fmt: skip
    number_of = {name: number for number, name in enumerate(_MODES)}
    modes = np.array([number_of[name] for name in names], np.int8)
    leaf = modes == _LEAF
    features = _needed(attributes, "nodes_featureids", np.int64, count)
    used = np.where(leaf, 0, features)
    if used.min() < 0 or used.max() >= _EQUAL:
        raise InferenceError(f"attribute nodes_featureids has {used[(used < 0) | (used >= _EQUAL)][0]}; "
                             f"expected 0 to {_EQUAL - 1}")  # fmt: skip
    values = _needed(attributes, "nodes_values", np.float64, count)
    tracks = _numbers(attributes, "nodes_missing_value_tracks_true", np.int64, count)
    tracks = np.zeros(count, bool) if tracks is None else tracks != 0

    find, repeated = _finder(tree_ids, node_ids)
    if repeated:
        raise InferenceError(f"{repeated} of {count} nodes have the tree and node id of another node")
    inner = np.flatnonzero(~leaf)
    children = np.zeros((count, 2), np.int64)
    for side, name in enumerate(("nodes_truenodeids", "nodes_falsenodeids")):
        ids = _needed(attributes, name, np.int64, count)
        found = find(tree_ids[inner], ids[inner])
        if (found < 0).any():
            at = inner[np.argmax(found < 0)]
            raise InferenceError(
                f"tree {tree_ids[at]}: node {node_ids[at]} has the child {ids[at]} ({name}), which does not exist"
            )
        children[inner, side] = found
    depths_of = _depths(children, inner, tree_ids, node_ids)

    parents = np.bincount(children[inner].reshape(-1), minlength=count)
    roots = np.flatnonzero(parents == 0)
    roots_of_tree = np.unique(tree_ids[roots], return_counts=True)
    if (roots_of_tree[1] > 1).any():
        raise InferenceError(f"tree {roots_of_tree[0][roots_of_tree[1] > 1][0]} has several roots; expected one")
    # Every acyclic tree has a root, so none is missing here. Trees count in the order of their first node.
    numbers, firsts = np.unique(tree_ids, return_index=True)
    roots = roots[np.argsort(firsts[np.searchsorted(numbers, tree_ids[roots])], kind="stable")]

    # Slots: the roots, then for each inner node its two children, side by side.
    first_child = np.zeros(count, np.int64)
    first_child[inner] = len(roots) + 2 * np.arange(len(inner))
    values, swapped = _as_less_or_equal(values, modes, dtype)
    ordered = np.where(swapped[:, None], children[:, ::-1], children)
    node_of_slot = np.concatenate([roots, ordered[inner].reshape(-1)])
    if len(node_of_slot) >= 1 << 31:
        raise _Unsupported(f"{count} nodes are more than kernels support")
    slots = np.arange(len(node_of_slot))
    # NaN fails every test but !=, unless the node tracks missing values; then it goes to the true branch.
    nan_true = tracks | (modes == _NEQ)
    nan_first = ~leaf & (nan_true != swapped)
    equal = (modes == _EQ) | (modes == _NEQ)
    flags = used | np.where(equal, _EQUAL, 0) | np.where(nan_first, _NAN_FIRST, 0)
    packed = np.zeros(len(slots), np.dtype({"names": ["value", "feature", "child"],
                                            "formats": [dtype, np.uint32, np.int32],
                                            "offsets": [0, 8, 12], "itemsize": 16}))  # fmt: skip
    packed["value"] = values[node_of_slot]
    packed["feature"] = flags[node_of_slot]
    packed["child"] = np.where(leaf[node_of_slot], slots - 1, first_child[node_of_slot])

    entry_starts, entry_ids, entry_weights = _entries(attributes, kind, targets, find, leaf, dtype, extreme)
    counts = np.diff(entry_starts)
    dense = targets == 1 and not extreme and bool((counts[leaf] == 1).all())
    slot_counts = counts[node_of_slot]
    starts = np.concatenate([[0], np.cumsum(slot_counts)])
    if starts[-1] >= 1 << 31:
        raise _Unsupported(f"{starts[-1]} leaf weights are more than kernels support")
    entries = np.repeat(entry_starts[:-1][node_of_slot] - starts[:-1], slot_counts) + np.arange(starts[-1])
    if dense:
        weights = np.zeros(len(slots), dtype)
        weights[slot_counts > 0] = entry_weights[entries]
        starts, ids = np.zeros(0, np.int64), np.zeros(0, np.int32)
    else:
        weights, ids = entry_weights[entries], entry_ids[entries]

    base = _numbers(attributes, "base_values", dtype)
    if base is not None and not np.isfinite(base).all():
        raise _Unsupported("attribute base_values has infinities or NaN")
    scored, every_row = _coverage(tree_ids, leaf, counts, entry_starts, entry_ids, targets)
    return Trees(
        packed.view(np.int64).reshape(-1, 2),
        np.arange(len(roots), dtype=np.int32),
        depths_of[roots].astype(np.int32),
        starts.astype(np.int32),
        ids,
        weights,
        base,
        int(used.max()) + 1,
        2 if equal.any() else int(nan_first.any()),
        dense,
        scored,
        every_row,
        bool((counts[leaf] > 0).all()),
    )


def _finder(trees: NDArray[np.int64], nodes: NDArray[np.int64]) -> tuple[Find, int]:
    """A function from ids of trees and nodes to the places of the nodes, -1 for ids that do not exist; and how many
    nodes have the ids of another."""
    tree_ids, node_ids = np.unique(trees), np.unique(nodes)

    def ranks(ids: NDArray[np.int64], known: NDArray[np.int64]) -> NDArray[np.int64]:
        rank = np.minimum(np.searchsorted(known, ids), len(known) - 1)
        return np.where(known[rank] == ids, rank, -1)

    def key(tree: NDArray[np.int64], node: NDArray[np.int64]) -> NDArray[np.int64]:
        tree, node = ranks(tree, tree_ids), ranks(node, node_ids)
        return np.where((tree < 0) | (node < 0), -1, tree * len(node_ids) + node)

    keys = key(trees, nodes)
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]

    def find(tree: NDArray[np.int64], node: NDArray[np.int64]) -> NDArray[np.int64]:
        wanted = key(tree, node)
        place = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
        return np.where(ordered[place] == wanted, order[place], -1)

    return find, int((ordered[1:] == ordered[:-1]).sum())


def _depths(children: NDArray[Any], inner: NDArray[Any], trees: NDArray[Any], nodes: NDArray[Any]) -> NDArray[Any]:
    """For each node, the steps to its deepest leaf. Raises `InferenceError` if a node is its own descendant."""
    depths = np.zeros(len(children), np.int64)
    left = inner
    unknown = np.zeros(len(children), bool)
    unknown[inner] = True
    while len(left):  # each round resolves the nodes whose children are resolved: as many rounds as levels
        ready = ~unknown[children[left]].any(axis=1)
        if not ready.any():
            at = left[0]
            for _ in range(len(children)):  # from a node above a cycle into the cycle
                at = children[at][np.argmax(unknown[children[at]])]
            raise InferenceError(
                f"tree {trees[at]}: node {nodes[at]} is its own descendant (nodes_truenodeids, nodes_falsenodeids)"
            )
        done = left[ready]
        depths[done] = depths[children[done]].max(axis=1) + 1
        unknown[done] = False
        left = left[~ready]
    return depths


def _as_less_or_equal(
    values: NDArray[Any], modes: NDArray[Any], dtype: np.dtype[Any]
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Thresholds of ``dtype`` for which each test on an x of ``dtype`` is ``x <= value`` or ``x == value``, and which
    nodes have their children swapped. NaN as a threshold fails every test.

    ``x < v`` is ``x <= the number before v``, and never holds for -inf. ``x > v`` and ``x >= v`` are the opposites of
    ``<=`` and ``<``, except for a NaN v, for which all comparisons fail. A v that ``dtype`` does not represent is
    rounded down, and equals no x."""
    with np.errstate(all="ignore"):
        rounded = values.astype(dtype)
        below = np.nextafter(rounded, dtype.type(-np.inf))
    nearest_down = np.where(rounded.astype(np.float64) > values, below, rounded)
    # The largest number of the type that is less than v.
    less = np.where(rounded.astype(np.float64) >= values, np.where(np.isneginf(rounded), np.nan, below), rounded)
    exact = np.where(rounded.astype(np.float64) == values, rounded, dtype.type(np.nan))
    result = np.select(
        [(modes == _LEQ) | (modes == _GT), (modes == _LT) | (modes == _GTE), (modes == _EQ) | (modes == _NEQ)],
        [nearest_down, less, exact],
        dtype.type(np.nan),
    ).astype(dtype)
    nan = np.isnan(values)
    result[nan] = np.nan
    swapped = (((modes == _GT) | (modes == _GTE)) & ~nan) | (modes == _NEQ)
    return result, swapped


def _entries(
    attributes: Mapping[str, Any],
    kind: str,
    targets: int,
    find: Find,
    leaf: NDArray[np.bool_],
    dtype: np.dtype[Any],
    extreme: bool,
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[Any]]:
    """The weights of each node as starts, targets and weights, sorted by node."""
    weights = _needed(attributes, f"{kind}_weights", dtype)
    count = len(weights)
    ids = _needed(attributes, f"{kind}_ids", np.int64, count)
    if ids.min() < 0 or ids.max() >= targets:
        raise InferenceError(f"attribute {kind}_ids has {ids[(ids < 0) | (ids >= targets)][0]}; "
                             f"expected 0 to {targets - 1}")  # fmt: skip
    if (extreme or kind == "class") and not np.isfinite(weights).all():
        raise _Unsupported(f"attribute {kind}_weights has infinities or NaN")
    trees = _needed(attributes, f"{kind}_treeids", np.int64, count)
    nodes = _needed(attributes, f"{kind}_nodeids", np.int64, count)
    at = find(trees, nodes)
    wrong = (at < 0) | ~leaf[at]
    if wrong.any():
        first = int(np.argmax(wrong))
        what = "which does not exist" if at[first] < 0 else "which is not a leaf"
        raise InferenceError(
            f"attribute {kind}_nodeids gives a weight to node {nodes[first]} of tree {trees[first]}, {what}"
        )
    order = np.lexsort((ids, at))
    at, ids, weights = at[order], ids[order], weights[order]
    repeated = np.concatenate([[False], (at[1:] == at[:-1]) & (ids[1:] == ids[:-1])])
    if repeated.any():
        # onnxruntime takes the first weight for the only target. skl2onnx relies on that: in a tree of decision_path,
        # each leaf has its number once for each class.
        if kind != "target" or targets > 1 or (weights[1:] != weights[:-1])[repeated[1:]].any():
            raise InferenceError(f"a leaf has several weights for one {kind}")
        at, ids, weights = at[~repeated], ids[~repeated], weights[~repeated]
    starts = np.concatenate([[0], np.cumsum(np.bincount(at, minlength=len(leaf)))])
    return starts, ids.astype(np.int32), weights


def _coverage(
    trees: NDArray[Any],
    leaf: NDArray[np.bool_],
    counts: NDArray[Any],
    starts: NDArray[Any],
    ids: NDArray[Any],
    targets: int,
) -> tuple[NDArray[np.bool_], bool]:
    """`Trees.scored` and `Trees.every_row`."""
    numbers = np.unique(trees, return_inverse=True)[1].reshape(-1)
    leaves = np.bincount(numbers[leaf], minlength=numbers.max() + 1)
    with_any = np.bincount(numbers[leaf & (counts > 0)], minlength=len(leaves))
    tree_of_entry = numbers[np.repeat(np.arange(len(leaf)), counts)]
    scored = np.zeros(targets, bool)
    pairs, entries = np.unique(tree_of_entry * np.int64(targets) + ids, return_counts=True)
    scored[pairs[entries == leaves[pairs // targets]] % targets] = True
    return scored, bool((with_any == leaves).any())


def _scores(context: Context, node: Node, x: Value, kind: str, targets: int) -> Value:
    """The sums of the leaves' weights, plus base values: [rows, targets] of the type in which they are added."""
    wide = x.dtype if x.dtype == np.float64 else _FLOAT32
    aggregate = node.get("aggregate_function", b"SUM")
    extreme = aggregate in (b"MIN", b"MAX")
    if node.prepared is None:
        node.prepared = {}
    if wide not in node.prepared:
        node.prepared[wide] = pack(node.attributes, kind, targets, wide, extreme)
    trees: Trees = node.prepared[wide]
    x = cast(context, rows_of(context, x), wide)
    if x.shape[1] < trees.features:
        raise InferenceError(
            f"x of shape {list(x.shape)} has too few columns; the trees read column {trees.features - 1}"
        )
    base = trees.base
    if base is not None and len(base) != targets:
        base = np.concatenate([base, np.zeros(targets - len(base), wide)])
    arrays = (trees.nodes, trees.roots, trees.depths, trees.starts, trees.ids, trees.weights)
    operands = [x, *(context.constant(array) for array in arrays), None if base is None else context.constant(base)]
    ints = [_AGGREGATES[aggregate], trees.flags, int(trees.dense)]
    return context.call("tree_ensemble", operands, (x.shape[0], targets), wide, ints)


def _refusing(check: Callable[[Mapping[str, Any]], str | None]) -> Callable[[Model, NodeView], str | None]:
    def refusal(model: Model, view: NodeView) -> str | None:
        try:
            trouble = check(view.stored_attributes)
        except _Unsupported as error:
            return str(error)
        except InferenceError as error:
            return Contradiction(str(error))
        trouble = trouble or rank_trouble(model, view)
        columns = stated_columns(model, view)
        if trouble is not None or columns is None:
            return trouble
        attributes = view.stored_attributes
        if view.op_type == "TreeEnsemble":
            attributes = as_regressor(attributes)
        leaves = np.array(attributes["nodes_modes"]) == b"LEAF"
        last = np.where(leaves, -1, attributes["nodes_featureids"]).max()
        return Contradiction(f"x has {columns} columns; the trees read column {last}") if last >= columns else None

    return refusal


_NODE_ATTRIBUTES = {
    f"nodes_{name}": None
    for name in ("treeids", "nodeids", "featureids", "modes", "values", "values_as_tensor", "truenodeids",
                 "falsenodeids", "missing_value_tracks_true", "hitrates", "hitrates_as_tensor")
} | {"base_values": None, "base_values_as_tensor": None, "post_transform": POST_TRANSFORMS}  # fmt: skip


def _leaf_attributes(kind: str) -> dict[str, None]:
    return {f"{kind}_{name}": None for name in ("ids", "nodeids", "treeids", "weights", "weights_as_tensor")}


def _regressor_refusal(attributes: Mapping[str, Any]) -> str | None:
    targets = attributes.get("n_targets", 0)
    if not 1 <= targets < 1 << 24:
        reason = f"TreeEnsembleRegressor with n_targets = {targets}"
        return Contradiction(reason) if targets < 1 else reason
    extreme = attributes.get("aggregate_function", b"SUM") in (b"MIN", b"MAX")
    trees = pack(attributes, "target", targets, np.dtype(np.float64), extreme)
    if extreme and targets == 1 and not trees.every_leaf:  # onnxruntime then uses 0 as the weight
        return "TreeEnsembleRegressor with MIN or MAX whose leaves do not all have a weight"
    if trees.base is not None and len(trees.base) != targets:
        return Contradiction(f"attribute base_values has {len(trees.base)} entries; expected {targets}")
    transform = attributes.get("post_transform", b"NONE")
    if targets == 1 and transform not in (b"NONE", b"PROBIT"):  # onnxruntime does not apply it
        return f"TreeEnsembleRegressor of one target with post_transform {transform.decode()}"
    return None


@operator(
    "ai.onnx.ml::TreeEnsembleRegressor",
    dtypes=("float32", "float64", "int32", "int64"),
    attributes=_NODE_ATTRIBUTES
    | _leaf_attributes("target")
    | {"n_targets": None, "aggregate_function": tuple(_AGGREGATES)},
    check=_refusing(_regressor_refusal),
    result="float32",
)
def _regressor(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    scores = _scores(context, node, _required(inputs[0]), "target", node.get("n_targets", 0))
    transform = node.get("post_transform", b"NONE")
    return [cast(context, post_transformed(context, scores, transform), _FLOAT32)]


# ---- TreeEnsemble of opset 5, which has the nodes of all trees in one list, and leaves in another


_AGGREGATE_NAMES = (b"AVERAGE", b"SUM", b"MIN", b"MAX")
_TRANSFORM_NAMES = (b"NONE", b"SOFTMAX", b"LOGISTIC", b"SOFTMAX_ZERO", b"PROBIT")
_MODES_5 = (b"BRANCH_LEQ", b"BRANCH_LT", b"BRANCH_GTE", b"BRANCH_GT", b"BRANCH_EQ", b"BRANCH_NEQ")
_MEMBER = len(_MODES_5)


def _named(attributes: Mapping[str, Any], name: str, names: Sequence[bytes], default: int) -> bytes:
    number = attributes.get(name, default)
    if not isinstance(number, int) or not 0 <= number < len(names):
        raise InferenceError(f"attribute {name} is {number}; expected 0 to {len(names) - 1}")
    return names[number]


def as_regressor(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a TreeEnsembleRegressor with the trees of a TreeEnsemble.

    A leaf becomes a node of each tree that reads it, numbered after the inner nodes. A test of membership becomes a
    chain of tests for equality. Raises `InferenceError` if a node belongs to several trees, or does not exist."""

    def numbers(name: str, count: int | None = None, dtype: Any = np.int64) -> NDArray[Any]:
        value = attributes.get(name)
        array = np.asarray(() if value is None else array_of(value) if hasattr(value, "data_type") else value)
        array = array.reshape(-1)
        if not len(array) or (count is not None and len(array) != count):
            raise InferenceError(f"attribute {name} has {len(array)} entries; expected {count or 'at least 1'}")
        return array.astype(dtype)

    modes = numbers("nodes_modes")
    count = len(modes)
    if modes.min() < 0 or modes.max() > _MEMBER:
        raise InferenceError(f"attribute nodes_modes has {modes[(modes < 0) | (modes > _MEMBER)][0]}; expected 0 to 6")
    features, splits = numbers("nodes_featureids", count), numbers("nodes_splits", count, np.float64)
    weights = numbers("leaf_weights", dtype=np.float64)
    leaves, targets = len(weights), numbers("leaf_targetids", len(weights))
    children = np.stack([numbers("nodes_truenodeids", count), numbers("nodes_falsenodeids", count)], 1)
    is_leaf = np.stack([numbers("nodes_trueleafs", count), numbers("nodes_falseleafs", count)], 1) != 0
    wrong = (children < 0) | (children >= np.where(is_leaf, leaves, count))
    if wrong.any():
        node, side = np.argwhere(wrong)[0].tolist()
        name = ("nodes_truenodeids", "nodes_falsenodeids")[side]
        raise InferenceError(f"node {node} has the child {children[node, side]} ({name}), which does not exist")
    tracks = attributes.get("nodes_missing_value_tracks_true")
    tracks = numbers("nodes_missing_value_tracks_true", count) if tracks else np.zeros(count, np.int64)
    roots = numbers("tree_roots")
    if roots.min() < 0 or roots.max() >= count:
        raise InferenceError(f"attribute tree_roots has {roots[(roots < 0) | (roots >= count)][0]}; "
                             f"expected 0 to {count - 1}")  # fmt: skip
    if len(np.unique(roots)) != len(roots):
        raise InferenceError("attribute tree_roots names a node twice")
    tree_of = np.full(count, -1, np.int64)
    tree_of[roots] = np.arange(len(roots))
    frontier = roots
    while len(frontier):
        inner = ~is_leaf[frontier]
        next_nodes, trees = children[frontier][inner], np.repeat(tree_of[frontier], inner.sum(1))
        new = tree_of[next_nodes] < 0
        tree_of[next_nodes[new]] = trees[new]
        if (tree_of[next_nodes] != trees).any():
            node = next_nodes[tree_of[next_nodes] != trees][0]
            raise InferenceError(f"node {node} belongs to several trees")
        frontier = np.unique(next_nodes[new])

    # Chains for tests of membership: the first node of a chain keeps its id.
    members = np.flatnonzero(modes == _MEMBER)
    sets = _member_sets(attributes, len(members))
    ids, owner = np.arange(count), np.arange(count)
    values, following = splits.copy(), np.full(count, -1, np.int64)
    extra_owner, extra_values, extra_following = [], [], []
    next_id = count
    for node, values_of_set in zip(members.tolist(), sets, strict=True):
        values[node] = values_of_set[0] if len(values_of_set) else np.nan
        rest = len(values_of_set) - 1
        if rest > 0:
            following[node] = next_id
            extra_owner += [node] * rest
            extra_values += values_of_set[1:].tolist()
            extra_following += [*range(next_id + 1, next_id + rest), -1]
            next_id += rest
    owner = np.concatenate([owner, np.array(extra_owner, np.int64)])
    values = np.concatenate([values, np.array(extra_values)])
    following = np.concatenate([following, np.array(extra_following, np.int64)])
    ids = np.arange(next_id)
    tests = np.where(modes == _MEMBER, _MODES_5.index(b"BRANCH_EQ"), modes)[owner]
    ids_of_children = np.where(is_leaf, next_id + children, children)[owner]
    ids_of_children[:, 1] = np.where(following >= 0, following, ids_of_children[:, 1])
    kept = tree_of[owner] >= 0
    leaf_pairs = np.unique(np.stack([np.repeat(tree_of[owner[kept]], 2), ids_of_children[kept].reshape(-1)], 1), axis=0)
    leaf_pairs = leaf_pairs[leaf_pairs[:, 1] >= next_id]
    nothing = [0] * len(leaf_pairs)
    places = leaf_pairs[:, 1] - next_id
    names = [_MODES_5[test] for test in tests[kept].tolist()] + [b"LEAF"] * len(leaf_pairs)
    return {
        "nodes_treeids": np.concatenate([tree_of[owner[kept]], leaf_pairs[:, 0]]),
        "nodes_nodeids": np.concatenate([ids[kept], leaf_pairs[:, 1]]),
        "nodes_modes": names,
        "nodes_featureids": np.concatenate([features[owner[kept]], nothing]),
        "nodes_values": np.concatenate([values[kept], nothing]),
        "nodes_truenodeids": np.concatenate([ids_of_children[kept, 0], nothing]),
        "nodes_falsenodeids": np.concatenate([ids_of_children[kept, 1], nothing]),
        "nodes_missing_value_tracks_true": np.concatenate([tracks[owner[kept]], nothing]),
        "target_treeids": leaf_pairs[:, 0],
        "target_nodeids": leaf_pairs[:, 1],
        "target_ids": targets[places],
        "target_weights": weights[places],
        "n_targets": attributes.get("n_targets", 0),
        "aggregate_function": _named(attributes, "aggregate_function", _AGGREGATE_NAMES, 1),
        "post_transform": _named(attributes, "post_transform", _TRANSFORM_NAMES, 0),
    }


def _member_sets(attributes: Mapping[str, Any], count: int) -> list[NDArray[np.float64]]:
    """The members of each set; sets end with NaN."""
    value = attributes.get("membership_values")
    numbers = np.zeros(0) if value is None else array_of(value).reshape(-1).astype(np.float64)
    ends = np.flatnonzero(np.isnan(numbers))
    if len(ends) != count or (len(ends) and ends[-1] != len(numbers) - 1) or (len(numbers) and not len(ends)):
        raise InferenceError(f"attribute membership_values has {len(ends)} sets, each with NaN at its end; "
                             f"expected {count}, as nodes_modes has 6 (BRANCH_MEMBER)")  # fmt: skip
    return [part[np.isfinite(part)] for part in np.split(numbers, ends + 1)[:-1]]


def _ensemble_refusal(attributes: Mapping[str, Any]) -> str | None:
    return _regressor_refusal(as_regressor(attributes))


@operator(
    "ai.onnx.ml::TreeEnsemble",
    dtypes=("float32", "float64"),
    attributes=dict.fromkeys((
        "aggregate_function", "leaf_targetids", "leaf_weights", "membership_values", "n_targets", "nodes_falseleafs",
        "nodes_falsenodeids", "nodes_featureids", "nodes_hitrates", "nodes_missing_value_tracks_true", "nodes_modes",
        "nodes_splits", "nodes_trueleafs", "nodes_truenodeids", "post_transform", "tree_roots",
    )),
    check=_refusing(_ensemble_refusal),
)  # fmt: skip
def _ensemble(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    if node.prepared is None:
        node.prepared = {"regressor": Node("TreeEnsembleRegressor", 3, as_regressor(node.attributes), 1)}
    regressor = node.prepared["regressor"]
    scores = _scores(context, regressor, x, "target", regressor.attributes["n_targets"])
    return [cast(context, post_transformed(context, scores, regressor.attributes["post_transform"]), x.dtype)]


def _classifier_refusal(attributes: Mapping[str, Any]) -> str | None:
    labels = class_labels(attributes, "classlabels_int64s")
    if isinstance(labels, str):
        return labels
    classes = len(labels)
    if classes < 2:
        # onnxruntime returns 0 or 1, whatever the label is.
        return f"TreeEnsembleClassifier of {classes} class labels; kernels support two or more"
    trees = pack(attributes, "class", classes, np.dtype(np.float64), False)
    ids = {int(i) for i in attributes["class_ids"]}
    base = 0 if trees.base is None else len(trees.base)
    if classes > 2:
        if base not in (0, classes):
            return Contradiction(f"attribute base_values has {base} entries; expected {classes}")
        # onnxruntime ignores classes without a weight in the leaves that a row reaches. That makes no difference if all
        # have one, or if all weights are positive and a row reaches at least one.
        weights = _needed(attributes, "class_weights", np.float64)
        if not (base or trees.scored.all() or (trees.every_row and (weights > 0).all())):
            return "TreeEnsembleClassifier whose leaves do not weigh all classes"
        return None
    if base > classes:
        return Contradiction(f"attribute base_values has {base} entries; expected 1 or {classes}")
    if len(ids) == 2:
        return "TreeEnsembleClassifier of two classes that both have weights"  # onnxruntime's labels are wrong
    transform = attributes.get("post_transform", b"NONE")
    if ids == {0}:
        if base > 1:
            return Contradiction(
                f"attribute base_values has {base} entries; expected 1, as the weights are of one class"
            )
        if transform == b"PROBIT":
            return "TreeEnsembleClassifier of two classes, weights of one and post_transform PROBIT"
    elif base:
        return "TreeEnsembleClassifier of two classes with base_values and weights of the second class"
    return None


@operator(
    "ai.onnx.ml::TreeEnsembleClassifier",
    dtypes=("float32", "float64", "int32", "int64"),
    attributes=_NODE_ATTRIBUTES | _leaf_attributes("class") | {"classlabels_int64s": None, "classlabels_strings": None},
    check=_refusing(_classifier_refusal),
    result="int64",
    further=("float32",),
    labels=string_labels,
)
def _classifier(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    labels = label_table(context, node.attributes, "classlabels_int64s")
    transform = node.get("post_transform", b"NONE")
    ids = np.array(node.get("class_ids", ()))
    x = _required(inputs[0])
    if labels.size > 2:
        scores = _scores(context, node, x, "class", labels.size)
        return [
            labels_of_largest(context, scores, labels),
            cast(context, post_transformed(context, scores, transform), _FLOAT32),
        ]
    # Two classes, weights of one: their sum s is the score of the second class.
    column = int(ids[0])
    both = _scores(context, node, x, "class", 2)
    rows = both.shape[0]
    score = context.call("gather", [both, context.integers([column])], (rows, 1), both.dtype, [1])
    weights = _needed(node.attributes, "class_weights", both.dtype)
    positive = bool((weights >= 0).all())
    label = label_above(context, score, 0.5 if positive else 0.0, labels)
    if column == 1:
        return [label, cast(context, post_transformed(context, both, transform), _FLOAT32)]
    made = both_scores(context, score, transform, complement=positive)
    return [label, cast(context, made, _FLOAT32)]
