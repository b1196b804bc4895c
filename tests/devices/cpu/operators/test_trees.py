"""Tree ensembles against onnxruntime and a walk in Python."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import hetero
from hetero import Core
from tree_ensembles import ml_model, on_cpu, on_onnxruntime, random_trees, with_open_columns

Array = np.ndarray[Any, Any]
ALL_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
PROBIT_ERROR = 2e-3  # near 0, PROBIT is the root of a difference of nearly equal numbers, of about 4 in float32
SIZES = (0, 1, 7, 8, 1000)


def inputs(rng: np.random.Generator, features: int, dtype: str, *, special: bool = True) -> list[Array]:
    made = []
    for rows in SIZES:
        x = rng.integers(-10, 11, (rows, features)) / 4
        if special and dtype.startswith("float"):
            places = rng.random(x.shape)
            x[places < 0.1], x[places > 0.95], x[(places > 0.9) & (places < 0.95)] = np.nan, np.inf, -np.inf
        made.append(x.astype(dtype))
    return made


def leaf_weights(
    rng: np.random.Generator, leaves: list[tuple[int, int]], kind: str, targets: list[int], low: float = -2.0
) -> dict[str, Any]:
    """Each leaf weighs all targets."""
    entries = [(tree, node, target) for tree, node in leaves for target in targets]
    return {
        f"{kind}_treeids": [entry[0] for entry in entries],
        f"{kind}_nodeids": [entry[1] for entry in entries],
        f"{kind}_ids": [entry[2] for entry in entries],
        f"{kind}_weights": np.float32(rng.uniform(low, 2, len(entries))).tolist(),
    }


def compare(model: Any, xs: list[Array], rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """On CPU, and few rows also on TEMPLATE, which walks in Python."""
    nonempty = [x for x in xs if len(x)]
    wanted = on_onnxruntime(model, *nonempty)
    template = Core().compile_model(Core().read_model(model), "TEMPLATE")
    walked = [(list(template(x).values()), results) for x, results in zip(nonempty, wanted, strict=True) if len(x) < 10]
    for found, expected in [*zip(on_cpu(model, *nonempty), wanted, strict=True), *walked]:
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == other.dtype
            if other.dtype.kind == "f":
                np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)
            else:
                np.testing.assert_array_equal(one, other)
    (found,) = on_cpu(model, *[x for x in xs if not len(x)])
    assert [len(array) for array in found] == [0] * len(found)


@pytest.mark.spread(2)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("tracks", [False, True])
@pytest.mark.parametrize("mode", [*ALL_MODES, "all"])
def test_modes_and_missing_values(mode: str, tracks: bool, dtype: str) -> None:
    rng = np.random.default_rng(len(mode) + tracks)
    modes = ALL_MODES if mode == "all" else (mode,)
    nodes, leaves = random_trees(rng, 9, 5, 4, modes=modes, tracks=tracks)
    model = ml_model("TreeEnsembleRegressor", np.zeros((1, 4), dtype), n_targets=1, **nodes,
                     **leaf_weights(rng, leaves, "target", [0]))  # fmt: skip
    compare(model, inputs(rng, 4, dtype))


@pytest.mark.spread(2)
@pytest.mark.parametrize("base", [False, True])
@pytest.mark.parametrize("targets", [1, 2, 5])
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_aggregates(aggregate: str, targets: int, base: bool) -> None:
    rng = np.random.default_rng(targets)
    nodes, leaves = random_trees(rng, 11, 4, 3)
    attributes = leaf_weights(rng, leaves, "target", list(range(targets)))
    if base:
        attributes["base_values"] = rng.normal(size=targets).tolist()
    model = ml_model("TreeEnsembleRegressor", np.zeros((1, 3), np.float32), n_targets=targets,
                     aggregate_function=aggregate, **nodes, **attributes)  # fmt: skip
    compare(model, inputs(rng, 3, "float32"))


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_leaves_without_a_weight(aggregate: str) -> None:
    rng = np.random.default_rng(3)
    nodes, leaves = random_trees(rng, 5, 3, 3)
    for targets in (1, 3):
        attributes = leaf_weights(rng, leaves, "target", [0])
        attributes["target_ids"] = rng.integers(0, targets, len(leaves)).tolist()
        attributes = {name: values[::2] for name, values in attributes.items()}
        model = ml_model("TreeEnsembleRegressor", np.zeros((1, 3), np.float32), n_targets=targets,
                         aggregate_function=aggregate, **nodes, **attributes)  # fmt: skip
        if targets == 1 and aggregate in ("MIN", "MAX"):
            with pytest.raises(hetero.UnsupportedModel, match="leaves do not all have a weight"):
                on_cpu(model)
        else:
            compare(model, inputs(rng, 3, "float32"))


@pytest.mark.spread(3)
@pytest.mark.parametrize("classes", [3, 4, 17])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("transform", list(TRANSFORMS))
def test_many_classes(classes: int, dtype: str, transform: str) -> None:
    rng = np.random.default_rng(classes)
    nodes, leaves = random_trees(rng, 6, 4, 3, modes=ALL_MODES, tracks=True)
    low, scale = (0.0, 1 / 12.5) if transform == "PROBIT" else (-2.0, 1)
    attributes = leaf_weights(rng, leaves, "class", list(range(classes)), low)
    attributes["class_weights"] = [weight * scale for weight in attributes["class_weights"]]
    for base in ({}, {"base_values": rng.uniform(0, 0.01, classes).tolist()}):
        model = ml_model("TreeEnsembleClassifier", np.zeros((1, 3), dtype), 2, post_transform=transform,
                         classlabels_int64s=(np.arange(classes) * 3 - 5).tolist(), **nodes, **attributes,
                         **base)  # fmt: skip
        compare(model, inputs(rng, 3, dtype), atol=PROBIT_ERROR if transform == "PROBIT" else 1e-6)


@pytest.mark.parametrize("trees", [1, 8, 30])
def test_ties_go_to_the_first_class(trees: int) -> None:
    """One class per leaf, all weights equal: many rows have several largest scores, and classes without a score."""
    rng = np.random.default_rng(trees)
    nodes, leaves = random_trees(rng, trees, 4, 3)
    attributes = leaf_weights(rng, leaves, "class", [0])
    attributes["class_ids"] = rng.integers(0, 5, len(leaves)).tolist()
    attributes["class_weights"] = [0.25] * len(leaves)
    model = ml_model("TreeEnsembleClassifier", np.zeros((1, 3), np.float32), 2, classlabels_int64s=[4, 3, 2, 1, 0],
                     **nodes, **attributes)  # fmt: skip
    compare(model, inputs(rng, 3, "float32"))


@pytest.mark.spread(2)
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("base", [[], [0.25], [-0.5]])
@pytest.mark.parametrize("low", [0.0, -2.0])
@pytest.mark.parametrize("column", [0, 1])
def test_two_classes_with_weights_of_one(column: int, low: float, base: list[float], transform: str) -> None:
    rng = np.random.default_rng(5)
    nodes, leaves = random_trees(rng, 3, 3, 3)
    attributes = leaf_weights(rng, leaves, "class", [column], low)
    attributes["class_weights"] = [weight / 6.5 for weight in attributes["class_weights"]]
    if base:
        attributes["base_values"] = base
    model = ml_model("TreeEnsembleClassifier", np.zeros((1, 3), np.float32), 2, post_transform=transform,
                     classlabels_int64s=[7, -9], **nodes, **attributes)  # fmt: skip
    if (column == 0 and transform == "PROBIT") or (column == 1 and base):
        with pytest.raises(hetero.UnsupportedModel, match="two classes"):
            on_cpu(model)
    else:
        compare(model, inputs(rng, 3, "float32"), atol=PROBIT_ERROR if transform == "PROBIT" else 1e-6)


@pytest.mark.parametrize("order", [[4, 3, 1, 2, 0], [1, 0, 2, 3, 4]])
@pytest.mark.parametrize("device", ["CPU", "TEMPLATE"])
def test_the_root_is_the_node_without_a_parent(device: str, order: list[int]) -> None:
    """onnxruntime starts at the first node."""
    nodes = {
        "nodes_treeids": [0] * 5,
        "nodes_nodeids": [0, 1, 2, 3, 4],
        "nodes_featureids": [0, 1, 0, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "BRANCH_LEQ", "LEAF", "LEAF", "LEAF"],
        "nodes_values": [0.5, -0.5, 0.0, 0.0, 0.0],
        "nodes_truenodeids": [1, 2, 0, 0, 0],
        "nodes_falsenodeids": [4, 3, 0, 0, 0],
    }
    moved = {name: [values[at] for at in order] for name, values in nodes.items()}
    x = np.array([[0, -1], [0, 0], [1, 0], [np.nan, 0], [0, np.nan]], np.float32)
    model = ml_model("TreeEnsembleRegressor", x, n_targets=1, target_treeids=[0] * 3, target_nodeids=[2, 3, 4],
                     target_ids=[0] * 3, target_weights=[1.0, 2.0, 3.0], **moved)  # fmt: skip
    (y,) = Core().compile_model(Core().read_model(model), device)(x).values()
    np.testing.assert_array_equal(y.ravel(), [1, 2, 3, 3, 2])


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms_of_regressors(transform: str) -> None:
    rng = np.random.default_rng(6)
    nodes, leaves = random_trees(rng, 3, 3, 3)
    for targets in (1, 4):
        attributes = leaf_weights(rng, leaves, "target", list(range(targets)), 0.0)
        attributes["target_weights"] = [weight / 6.5 for weight in attributes["target_weights"]]
        model = ml_model("TreeEnsembleRegressor", np.zeros((1, 3), np.float32), n_targets=targets,
                         post_transform=transform, **nodes, **attributes)  # fmt: skip
        if targets == 1 and transform not in ("NONE", "PROBIT"):
            with pytest.raises(hetero.UnsupportedModel, match=f"one target with post_transform {transform}"):
                on_cpu(model)
        else:
            compare(model, inputs(rng, 3, "float32"), atol=PROBIT_ERROR if transform == "PROBIT" else 1e-6)


COMPARE = {"BRANCH_LEQ": operator.le, "BRANCH_LT": operator.lt, "BRANCH_GTE": operator.ge, "BRANCH_GT": operator.gt,
           "BRANCH_EQ": operator.eq, "BRANCH_NEQ": operator.ne}  # fmt: skip


@pytest.mark.spread(2)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("tracks", [0, 1])
@pytest.mark.parametrize("mode", ALL_MODES)
def test_extreme_thresholds(mode: str, tracks: int, dtype: str) -> None:
    """Every threshold with every x: infinities, NaN, zeros of both signs, the least and largest numbers."""
    kind = np.finfo(dtype)
    numbers = np.array([0.0, -0.0, kind.tiny, -kind.tiny, kind.smallest_subnormal, kind.max, kind.min, np.inf, -np.inf,
                        np.nan, 1.0, np.nextafter(np.array(1, dtype), np.array(2, dtype))], dtype)  # fmt: skip
    with np.errstate(over="ignore"):
        thresholds = np.float32(numbers)
    for threshold in thresholds:
        model = ml_model("TreeEnsembleRegressor", np.zeros((1, 1), dtype), n_targets=1, nodes_treeids=[0, 0, 0],
                         nodes_nodeids=[0, 1, 2], nodes_featureids=[0, 0, 0], nodes_values=[float(threshold), 0.0, 0.0],
                         nodes_modes=[mode, "LEAF", "LEAF"], nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0],
                         nodes_missing_value_tracks_true=[tracks, 0, 0], target_treeids=[0, 0], target_nodeids=[1, 2],
                         target_ids=[0, 0], target_weights=[1.0, -1.0])  # fmt: skip
        ((found,),) = on_cpu(model, numbers[:, None])
        taken = [COMPARE[mode](x, threshold) or (bool(tracks) and np.isnan(x)) for x in numbers]
        np.testing.assert_array_equal(found[:, 0], np.where(taken, 1, -1), err_msg=f"{mode} {threshold}")


def stump(**changes: Any) -> dict[str, Any]:
    attributes = {
        "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0],
        "nodes_values": [0.5, 0.0, 0.0], "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0], "target_weights": [1.0, -1.0],
        "n_targets": 1,
    }  # fmt: skip
    return {name: value for name, value in (attributes | changes).items() if value is not None}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"nodes_truenodeids": [0, 0, 0]}, "tree 0: node 0 is its own descendant"),
        ({"nodes_modes": ["BRANCH_LEQ", "BRANCH_LEQ", "LEAF"], "nodes_truenodeids": [1, 1, 0],
          "nodes_falsenodeids": [2, 2, 0], "target_nodeids": [2, 2], "target_ids": [0, 1], "n_targets": 2},
         "tree 0: node 1 is its own descendant"),
        ({"nodes_falsenodeids": [3, 0, 0]}, r"node 0 has the child 3 \(nodes_falsenodeids\), which does not exist"),
        ({"nodes_falsenodeids": [1, 0, 0]}, "tree 0 has several roots"),
        ({"nodes_nodeids": [0, 1, 1]}, "1 of 3 nodes have the tree and node id of another node"),
        ({"nodes_values": [0.5]}, "nodes_values has 1 entries; expected 3"),
        ({"nodes_modes": ["BRANCH_LEQ", "LEAF"]}, "nodes_modes has 2 entries; expected 3"),
        ({"nodes_modes": ["BRANCH_MEMBER", "LEAF", "LEAF"]}, "nodes_modes has 'BRANCH_MEMBER'"),
        ({"nodes_featureids": [-1, 0, 0]}, "nodes_featureids has -1"),
        ({"nodes_treeids": None}, "nodes_treeids is missing or empty"),
        ({"target_ids": [0, 1]}, "target_ids has 1; expected 0 to 0"),
        ({"target_nodeids": [1, 0]}, "node 0 of tree 0, which is not a leaf"),
        ({"target_treeids": [0, 4]}, "node 2 of tree 4, which does not exist"),
        ({"target_nodeids": [1, 1]}, "a leaf has several weights for one target"),
        ({"target_nodeids": [1, 1], "target_weights": [1.0, 1.0], "n_targets": 2},
         "a leaf has several weights for one target"),
        ({"target_weights": [1.0]}, "target_ids has 2 entries; expected 1"),
        ({"base_values": [1.0, 2.0]}, "base_values has 2 entries; expected 1"),
        ({"base_values": [float("nan")]}, "base_values has infinities or NaN"),
        ({"n_targets": 0}, "n_targets = 0"),
        ({"aggregate_function": "MEDIAN"}, "aggregate_function = b'MEDIAN'"),
        ({"aggregate_function": "MIN", "target_weights": [1.0, float("nan")]}, "target_weights has infinities or NaN"),
    ],
)  # fmt: skip
def test_malformed_trees_are_refused_when_compiling(changes: dict[str, Any], reason: str) -> None:
    model = ml_model("TreeEnsembleRegressor", np.zeros((1, 2), np.float32), **stump(**changes))
    core = Core()
    with pytest.raises(hetero.UnsupportedModel, match=reason) as caught:
        core.compile_model(core.read_model(model), "CPU")
    assert "'node'" in str(caught.value)


@pytest.mark.parametrize(
    ("labels", "ids", "changes", "reason"),
    [
        ({"classlabels_int64s": [1]}, [0, 0], {}, "1 class labels"),
        ({"classlabels_int64s": [1, 2]}, [0, 2], {}, "class_ids has 2; expected 0 to 1"),
        ({"classlabels_int64s": [1, 2]}, [0, 1], {}, "two classes that both have weights"),
        ({"classlabels_int64s": [1, 2]}, [0, 0], {"base_values": [1.0, 2.0]}, "base_values has 2 entries"),
        ({"classlabels_int64s": [1, 2, 3]}, [0, 1], {"base_values": [1.0]}, "base_values has 1 entries; expected 3"),
        ({"classlabels_int64s": [1, 2, 3]}, [0, 1], {}, "do not weigh all classes"),
        ({"classlabels_strings": [b"\xff", b"b"]}, [0, 0], {}, "not UTF-8"),
    ],
)
def test_class_counts_that_disagree(labels: dict[str, Any], ids: list[int], changes: Any, reason: str) -> None:
    attributes = {name.replace("target", "class"): value for name, value in stump().items() if name != "n_targets"}
    attributes |= {"class_ids": ids, **labels, **changes}
    model = ml_model("TreeEnsembleClassifier", np.zeros((1, 2), np.float32), 2, **attributes)
    with pytest.raises(hetero.UnsupportedModel, match=reason):
        on_cpu(model)


@pytest.mark.parametrize("base", [[0.5], [0.5, 0.25]])
def test_base_values_and_weights_of_the_second_class(base: list[float]) -> None:
    """The schema, onnx.reference and onnxruntime give three results."""
    attributes = {name.replace("target", "class"): value for name, value in stump().items() if name != "n_targets"}
    attributes |= {"class_ids": [1, 1], "classlabels_int64s": [1, 2], "base_values": base}
    model = ml_model("TreeEnsembleClassifier", np.zeros((1, 2), np.float32), 2, **attributes)
    for device in ("CPU", "TEMPLATE", "HETERO:TEMPLATE,CPU"):
        with pytest.raises(hetero.UnsupportedModel, match="base_values and weights of the second class"):
            hetero.compile(model, device)


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("trees", [1, 2])
def test_a_weight_that_a_leaf_has_several_times(aggregate: str, trees: int) -> None:
    """skl2onnx writes such trees for ``decision_path``."""
    numbers = range(trees)
    attributes = stump(
        **{name: value * trees for name, value in stump().items() if name.startswith("nodes")},
        target_nodeids=[1, 2, 1, 2, 2] * trees, target_ids=[0] * 5 * trees,
        target_weights=[7.0, 9.0, 7.0, 9.0, 9.0] * trees, aggregate_function=aggregate,
    )  # fmt: skip
    attributes["nodes_treeids"] = [tree for tree in numbers for _ in range(3)]
    attributes["target_treeids"] = [tree for tree in numbers for _ in range(5)]
    model = ml_model("TreeEnsembleRegressor", np.zeros((1, 1), np.float32), **attributes)
    x = np.array([[0], [1], [0.5]], np.float32)
    ((wanted,),) = on_onnxruntime(model, x)
    for device in ("CPU", "TEMPLATE"):
        (found,) = hetero.compile(model, device)(x).values()
        np.testing.assert_array_equal(found, wanted, err_msg=device)


def test_a_node_with_several_parents() -> None:
    """LightGBM's converter writes a set as a chain of equalities with a common child."""
    attributes = stump(
        nodes_treeids=[0] * 4, nodes_nodeids=[0, 1, 2, 3], nodes_featureids=[0] * 4, nodes_values=[1.0, 3.0, 0.0, 0.0],
        nodes_modes=["BRANCH_EQ", "BRANCH_EQ", "LEAF", "LEAF"], nodes_truenodeids=[2, 2, 0, 0],
        nodes_falsenodeids=[1, 3, 0, 0], target_nodeids=[2, 3],
    )  # fmt: skip
    model = ml_model("TreeEnsembleRegressor", np.zeros((1, 1), np.float32), **attributes)
    ((found,),) = on_cpu(model, np.array([[0], [1], [2], [3], [np.nan]], np.float32))
    np.testing.assert_array_equal(found, [[-1], [1], [-1], [1], [-1]])


def test_rows_of_too_few_columns() -> None:
    model = ml_model("TreeEnsembleRegressor", np.zeros((1, 2), np.float32), **stump(nodes_featureids=[2, 0, 0]))
    with pytest.raises(hetero.UnsupportedModel, match="x has 2 columns; the trees read column 2"):
        hetero.Core().compile_model(model, "CPU")
    with pytest.raises(hetero.InferenceError, match=r"shape \[3, 2\] has too few columns; the trees read column 2"):
        on_cpu(with_open_columns(model), np.zeros((3, 2), np.float32))


def test_a_chain_of_a_thousand_levels() -> None:
    depth = 1000
    inner, count = list(range(depth)), 2 * depth + 1
    attributes = stump(
        nodes_treeids=[0] * count, nodes_nodeids=list(range(count)), nodes_featureids=[0] * count,
        nodes_values=[float(i) for i in inner] + [0.0] * (depth + 1),
        nodes_modes=["BRANCH_LEQ"] * depth + ["LEAF"] * (depth + 1),
        nodes_truenodeids=[depth + i for i in inner] + [0] * (depth + 1),
        nodes_falsenodeids=[i + 1 for i in inner[:-1]] + [2 * depth] + [0] * (depth + 1),
        target_treeids=[0] * (depth + 1), target_ids=[0] * (depth + 1),
        target_nodeids=[depth + i for i in range(depth + 1)], target_weights=[float(i) for i in range(depth + 1)],
    )  # fmt: skip
    model = ml_model("TreeEnsembleRegressor", np.zeros((1, 1), np.float32), **attributes)
    x = np.array([[-1.0], [0.5], [500], [998.5], [999], [2000]], np.float32)
    ((found,),) = on_cpu(model, x)
    np.testing.assert_array_equal(found[:, 0], np.clip(np.ceil(x[:, 0]), 0, depth))


def test_tensors_of_float64() -> None:
    """Thresholds and weights that float32 does not represent."""

    def tensor(values: list[float]) -> Any:
        return helper.make_tensor("t", TensorProto.DOUBLE, [len(values)], values)

    step = 1 + 2.0**-40
    attributes = stump(
        nodes_values=None, nodes_values_as_tensor=tensor([step, 0.0, 0.0]),
        target_weights=None, target_weights_as_tensor=tensor([1.0, 2.0]),
        base_values_as_tensor=tensor([0.5]),
    )  # fmt: skip
    model = ml_model("TreeEnsembleRegressor", np.zeros((1, 1)), **attributes)
    compare(model, [np.array([[1], [step], [np.nextafter(step, 2)], [np.nan]]), np.zeros((0, 1))])
    # The same thresholds with float32 inputs: 1 is below, and the float32 after it above.
    rows = np.array([[1], [np.nextafter(np.float32(1), np.float32(2))]], np.float32)
    cases = {"LEQ": [1, 2], "LT": [1, 2], "GT": [2, 1], "GTE": [2, 1], "EQ": [2, 2], "NEQ": [1, 1]}
    for mode, expected in cases.items():
        changed = attributes | {"nodes_modes": [f"BRANCH_{mode}", "LEAF", "LEAF"]}
        ((found,),) = on_cpu(ml_model("TreeEnsembleRegressor", rows, **changed), rows)
        np.testing.assert_array_equal(found[:, 0], np.array(expected) + 0.5, err_msg=mode)


def test_threads_do_not_change_results() -> None:
    rng = np.random.default_rng(8)
    nodes, leaves = random_trees(rng, 60, 7, 5, modes=ALL_MODES, tracks=True)
    model = ml_model("TreeEnsembleRegressor", np.zeros((1, 5), np.float32), n_targets=2, **nodes,
                     **leaf_weights(rng, leaves, "target", [0, 1]))  # fmt: skip
    core = Core()
    (x,) = (x for x in inputs(rng, 5, "float32") if len(x) == 1000)
    found = [
        core.compile_model(core.read_model(model), "CPU", {"INFERENCE_NUM_THREADS": threads})({"x": x})["y0"]
        for threads in (1, 2)
    ]
    np.testing.assert_array_equal(*found)


# ---- TreeEnsemble of opset 5


def random_ensemble(rng: np.random.Generator, trees: int, targets: int, *, members: bool) -> dict[str, Any]:
    """Attributes of random trees of up to four levels."""
    nodes: list[list[Any]] = []
    leaves: list[tuple[int, float]] = []
    sets: list[float] = []

    def grow(level: int) -> tuple[int, bool]:
        if level == 4 or (level and rng.random() < 0.3):
            leaves.append((int(rng.integers(targets)), float(np.float32(rng.normal()))))
            return len(leaves) - 1, True
        at = len(nodes)
        mode = int(rng.integers(7 if members else 6))
        if mode == 6:
            sets.extend([*map(float, rng.choice(np.arange(-3, 4), rng.integers(0, 4), replace=False)), np.nan])
        nodes.append([mode, int(rng.integers(3)), float(rng.integers(-3, 4)), int(rng.integers(2))])
        (yes, yes_leaf), (no, no_leaf) = grow(level + 1), grow(level + 1)
        nodes[at] += [yes, int(yes_leaf), no, int(no_leaf)]
        return at, False

    roots = [grow(0)[0] for _ in range(trees)]
    columns = [list(column) for column in zip(*nodes, strict=True)]
    attributes: dict[str, Any] = {
        "nodes_modes": helper.make_tensor("m", TensorProto.UINT8, [len(nodes)], columns[0]),
        "nodes_featureids": columns[1],
        "nodes_splits": helper.make_tensor("s", TensorProto.FLOAT, [len(nodes)], columns[2]),
        "nodes_missing_value_tracks_true": columns[3],
        "nodes_truenodeids": columns[4], "nodes_trueleafs": columns[5],
        "nodes_falsenodeids": columns[6], "nodes_falseleafs": columns[7],
        "leaf_targetids": [target for target, _ in leaves],
        "leaf_weights": helper.make_tensor("w", TensorProto.FLOAT, [len(leaves)], [weight for _, weight in leaves]),
        "tree_roots": roots, "n_targets": targets,
    }  # fmt: skip
    if sets:
        attributes["membership_values"] = helper.make_tensor("v", TensorProto.FLOAT, [len(sets)], sets)
    return attributes


@pytest.mark.spread(2)
@pytest.mark.parametrize("aggregate", range(4))
@pytest.mark.parametrize("members", [False, True])
def test_ensemble_as_definition(aggregate: int, members: bool) -> None:
    rng = np.random.default_rng(aggregate)
    core = Core()
    for targets in (2, 3):
        attributes = random_ensemble(rng, 5, targets, members=members) | {"aggregate_function": aggregate}
        x = rng.integers(-3, 4, (40, 3)).astype(np.float32)
        x[rng.random(x.shape) < 0.1] = np.nan
        for transform in (0, 1, 2):
            model = ml_model("TreeEnsemble", x, opset=5, post_transform=transform, **attributes)
            ((found,),) = on_cpu(model, x)
            (wanted,) = core.compile_model(core.read_model(model), "TEMPLATE")(x)
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
            if not members and not np.isnan(x).any():
                np.testing.assert_allclose(found, on_onnxruntime(model, x)[0][0], rtol=1e-5, atol=1e-6)


def test_tree_that_is_a_leaf() -> None:
    attributes = {
        "nodes_modes": helper.make_tensor("m", TensorProto.UINT8, [1], [0]),
        "nodes_featureids": [0], "nodes_splits": helper.make_tensor("s", TensorProto.FLOAT, [1], [0.0]),
        "nodes_truenodeids": [0], "nodes_falsenodeids": [0], "nodes_trueleafs": [1], "nodes_falseleafs": [1],
        "leaf_targetids": [0], "leaf_weights": helper.make_tensor("w", TensorProto.FLOAT, [1], [2.5]),
        "tree_roots": [0], "n_targets": 1,
    }  # fmt: skip
    x = np.array([[1], [-1], [np.nan]], np.float32)
    ((found,),) = on_cpu(ml_model("TreeEnsemble", x, opset=5, **attributes), x)
    assert found.tolist() == [[2.5]] * 3


@pytest.mark.parametrize(("changes", "reason"), [
    ({"nodes_truenodeids": [0, 0], "nodes_trueleafs": [0, 1]}, "its own descendant"),
    ({"nodes_truenodeids": [7, 0]}, r"node 0 has the child 7 \(nodes_truenodeids\), which does not exist"),
    ({"nodes_falsenodeids": [-1, 1]}, r"has the child -1 \(nodes_falsenodeids\)"),
    ({"tree_roots": [2]}, "attribute tree_roots has 2"),
    ({"tree_roots": [0, 0]}, "attribute tree_roots names a node twice"),
    ({"tree_roots": [0, 1]}, "belongs to several trees"),
    ({"leaf_targetids": [0, 3, 0]}, "ids has 3"),
    ({"leaf_targetids": [0]}, "attribute leaf_targetids has 1 entries; expected 3"),
    ({"nodes_featureids": [0, 1 << 40]}, "nodes_featureids"),
    ({"n_targets": 1 << 40}, "n_targets"),
    ({"aggregate_function": 9}, "attribute aggregate_function is 9"),
    ({"membership_values": helper.make_tensor("v", TensorProto.FLOAT, [2], [1.0, 2.0])}, "membership_values"),
])  # fmt: skip
def test_bad_ensembles_are_refused_when_compiling(changes: dict[str, Any], reason: str) -> None:
    attributes = {
        "nodes_modes": helper.make_tensor("m", TensorProto.UINT8, [2], [0, 0]),
        "nodes_featureids": [0, 1], "nodes_splits": helper.make_tensor("s", TensorProto.FLOAT, [2], [0.0, 1.0]),
        "nodes_truenodeids": [1, 0], "nodes_trueleafs": [0, 1], "nodes_falsenodeids": [2, 1],
        "nodes_falseleafs": [1, 1], "leaf_targetids": [0, 0, 0], "tree_roots": [0], "n_targets": 1,
        "leaf_weights": helper.make_tensor("w", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0]),
    } | changes  # fmt: skip
    with pytest.raises(hetero.UnsupportedModel, match=reason):
        on_cpu(ml_model("TreeEnsemble", np.zeros((1, 2), np.float32), opset=5, **attributes))


def test_labels_that_are_strings() -> None:
    rng = np.random.default_rng(5)
    for classes, ids in ((3, [0, 1, 2]), (2, [0]), (2, [1])):
        nodes, leaves = random_trees(rng, 4, 3, 4)
        attributes = nodes | leaf_weights(rng, leaves, "class", ids)
        labels = ["rot", "grün", "blau"][:classes]
        model = ml_model(
            "TreeEnsembleClassifier", np.zeros((1, 4), np.float32), 2, classlabels_strings=labels, **attributes
        )
        compare(model, inputs(rng, 4, "float32", special=False))
