"""Corrections of onnx.reference that the fuzzer of operators led to: TEMPLATE against onnxruntime, or known results."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper

from hetero import Core, InferenceError
from sessions import onnxruntime_session


def _model(op: str, feeds: dict[str, np.ndarray], outputs: int = 1, **attributes: Any) -> onnx.ModelProto:
    domain, _, op_type = op.rpartition("::")
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    names = [f"y{n}" for n in range(outputs)]
    node = helper.make_node(op_type, list(feeds), names, domain=domain, **attributes)
    graph = helper.make_graph([node], "one", inputs, [helper.make_empty_tensor_value_info(name) for name in names])
    imports = [helper.make_opsetid("", 23), helper.make_opsetid("ai.onnx.ml", 3)]
    return onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=imports, ir_version=10))


def _run(op: str, feeds: dict[str, np.ndarray], outputs: int = 1, **attributes: Any) -> list[np.ndarray]:
    core = Core()
    model = core.read_model(_model(op, feeds, outputs, **attributes))
    return list(core.compile_model(model, "TEMPLATE")(feeds).arrays())


def _as_onnxruntime(op: str, feeds: dict[str, np.ndarray], outputs: int = 1, **attributes: Any) -> None:
    session = onnxruntime_session(_model(op, feeds, outputs, **attributes))
    for mine, theirs in zip(_run(op, feeds, outputs, **attributes), session.run(None, feeds), strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("start", "end"), [(-3, -3), (-9, -2), (1, -2), (0, 9), (2, 1)])
def test_shape_with_ends_beyond_the_rank(start: int, end: int) -> None:
    _as_onnxruntime("Shape", {"x": np.zeros((2, 3), np.float32)}, start=start, end=end)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, 3])
def test_flatten_of_nothing(axis: int) -> None:
    _as_onnxruntime("Flatten", {"x": np.zeros((0, 2, 3), np.float32)}, axis=axis)


@pytest.mark.parametrize("size", [(1, 3, 1, 3), (1, 3, 1, 2, 1), (2, 3, 4, 5)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_affine_grid(size: tuple[int, ...], dtype: type) -> None:
    axes = len(size) - 2
    theta = np.random.default_rng(1).random((size[0], axes, axes + 1)).astype(dtype)
    for align_corners in (0, 1):
        _as_onnxruntime("AffineGrid", {"theta": theta, "size": np.array(size)}, align_corners=align_corners)


@pytest.mark.parametrize("aggregate", ["SUM", "MIN", "MAX"])
@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_trees(aggregate: str, dtype: type) -> None:
    """Leaves keep their fractions for integer inputs, and a target without leaves is 0, as in onnxruntime."""
    x = np.array([[0, 3], [2, -1]], dtype)
    (found,) = _run(
        "ai.onnx.ml::TreeEnsembleRegressor", {"x": x}, n_targets=2, aggregate_function=aggregate,
        nodes_treeids=[0, 0, 0], nodes_nodeids=[0, 1, 2], nodes_featureids=[0, 0, 0],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"], nodes_values=[1.0, 0.0, 0.0], nodes_truenodeids=[1, 0, 0],
        nodes_falsenodeids=[2, 0, 0], target_treeids=[0, 0], target_nodeids=[1, 2], target_ids=[0, 0],
        target_weights=[0.75, -1.5],
    )  # fmt: skip
    np.testing.assert_array_equal(found, [[0.75, 0], [-1.5, 0]])


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_linear_classifiers(transform: str, rows: int, dtype: type) -> None:
    _as_onnxruntime(
        "ai.onnx.ml::LinearClassifier", {"x": np.array([[0.5], [-1]]).astype(dtype)}, 2, classlabels_ints=[3, 4],
        coefficients=[-2.4, 1.1][:rows], intercepts=[-0.1, 0.2][:rows], post_transform=transform,
    )  # fmt: skip


def test_features_become_float32() -> None:
    feeds = {"a": np.array([[1, 2], [3, 4]]), "b": np.array([[5], [6]])}
    (found,) = _run("ai.onnx.ml::FeatureVectorizer", feeds, inputdimensions=[2, 1])
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, [[1, 2, 5], [3, 4, 6]])


def test_lrn_keeps_nan_within_its_window() -> None:
    x = np.array([1, 2, np.nan, 3, 1, 2], np.float32).reshape(1, 6, 1, 1)
    (found,) = _run("LRN", {"x": x}, size=3)
    np.testing.assert_array_equal(np.isnan(found.ravel()), [False, True, True, True, False, False])


@pytest.mark.parametrize("opset", [14, 20])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_the_largest_of_no_booleans_is_false(opset: int, keepdims: int) -> None:
    result = "bool[1,1]" if keepdims else "bool"
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": {opset}]> g (bool[n,m] x) => ({result} y) '
        f"{{ y = ReduceMax<keepdims = {keepdims}>(x) }}"
    )
    compiled = Core().compile_model(model, "TEMPLATE")
    for x in (np.zeros((3, 0), bool), np.zeros((2, 2), bool), np.eye(2, dtype=bool)):
        found = compiled({"x": x})["y"]
        assert found.dtype == bool
        np.testing.assert_array_equal(found, x.any(keepdims=bool(keepdims)))


@pytest.mark.parametrize(
    ("op", "expected"), [("ReduceSum", 400.0), ("ReduceL1", 400.0), ("ReduceMean", 1.0), ("ReduceL2", 20.0)]
)
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_half_precision_adds_in_float32(op: str, expected: float, dtype: type) -> None:
    """In bfloat16 a sum of ones ends at 256."""
    (found,) = _run(op, {"x": np.ones(400).astype(dtype)})
    assert found.dtype == dtype
    assert float(found[0]) == pytest.approx(expected, rel=4e-3)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float64])
def test_statistics_of_layer_normalization_are_float32(dtype: type) -> None:
    x = np.array([[1, 2, 3, 6]]).astype(dtype)
    y, mean, inverse = _run("LayerNormalization", {"x": x, "scale": np.ones(4).astype(dtype)}, 3)
    assert (y.dtype, mean.dtype, inverse.dtype) == (np.dtype(dtype), np.float32, np.float32)
    np.testing.assert_allclose(mean, [[3]])
    np.testing.assert_allclose(inverse, [[1 / np.sqrt(3.5)]], rtol=1e-5)


@pytest.mark.parametrize(
    "pads", [{"pads": [1, 0, 2, 3]}, {"auto_pad": "SAME_UPPER"}, {"auto_pad": "SAME_LOWER"}, {"auto_pad": "VALID"}, {}]
)
@pytest.mark.parametrize("dilations", [[2, 1], [2, 3]])
@pytest.mark.parametrize("strides", [[1, 1], [2, 3]])
def test_nan_reaches_only_the_windows_of_a_dilated_convolution(
    pads: dict[str, Any], dilations: list[int], strides: list[int]
) -> None:
    x = np.random.default_rng(0).standard_normal((2, 4, 9, 11)).astype(np.float32)
    x[0, 1, 4, 5], x[1, 3, 0, 10] = np.nan, np.inf
    w = np.random.default_rng(1).standard_normal((6, 2, 2, 3)).astype(np.float32)
    b = np.arange(6, dtype=np.float32)
    feeds, attributes = {"x": x, "w": w, "b": b}, {"dilations": dilations, "strides": strides, "group": 2, **pads}
    if "auto_pad" not in pads:
        _as_onnxruntime("Conv", feeds, **attributes)
    core = Core()
    (wanted,) = core.compile_model(_model("Conv", feeds, **attributes), "CPU")(feeds).arrays()
    np.testing.assert_allclose(_run("Conv", feeds, **attributes)[0], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.spread(2)
@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize(("least", "skips"), [(1, 0), (1, 3), (2, 1)])
@pytest.mark.parametrize(
    ("counts", "indexes"),
    [([0, 3], [4, 0, 3, 1, 2]), ([0, 3, 7, 7], [0, 1, 2, 3, 6]), ([0, 1], [3, 1, 2, 0]), ([0, 7], [*range(6, -1, -1)])],
)
def test_tf_idf_weighs_ngrams_by_their_place_in_the_pool(
    mode: str, least: int, skips: int, counts: list[int], indexes: list[int]
) -> None:
    pool = [1, 2, 3, 1, 2, 2, 2]
    weights = [2.0, 5.0, 7.0, 11.0, 13.0, 17.0, 19.0][: len(indexes)]
    shared = {"pool_int64s": pool, "ngram_counts": counts, "ngram_indexes": indexes, "weights": weights, "mode": mode}
    if counts == [0, 7]:  # no n-grams of two; onnxruntime refuses one that is given twice
        shared |= {"pool_int64s": [1, 2, 3, 4, 5, 6, 7]}
    rng = np.random.default_rng(least)
    for x in (rng.integers(0, 5, (3, 6)), rng.integers(0, 5, 6), np.zeros((2, 0), np.int64)):
        _as_onnxruntime(
            "TfIdfVectorizer", {"x": x}, min_gram_length=least, max_gram_length=2, max_skip_count=skips, **shared
        )


def _loop(trips: int, shape: list[int] | None) -> np.ndarray:
    """A Loop whose body declares this shape for its scanned output of shape (2, 3)."""

    def info(name: str, dtype: int, dims: Any) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, dtype, dims)

    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["more"]), helper.make_node("Neg", ["x"], ["s"])],
        "body",
        [info("i", onnx.TensorProto.INT64, []), info("go", onnx.TensorProto.BOOL, [])],
        [info("more", onnx.TensorProto.BOOL, []), info("s", onnx.TensorProto.FLOAT, shape)],
    )
    node = helper.make_node("Loop", ["n", ""], ["y"], body=body)
    inputs = [info("n", onnx.TensorProto.INT64, []), info("x", onnx.TensorProto.FLOAT, [2, 3])]
    graph = helper.make_graph([node], "g", inputs, [info("y", onnx.TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    feeds = {"n": np.array(trips), "x": np.ones((2, 3), np.float32)}
    return Core().compile_model(model, "TEMPLATE")(feeds).arrays()[0]


def test_a_loop_without_iterations_and_without_a_known_rank() -> None:
    assert _loop(0, [2, 3]).shape == (0, 2, 3)
    assert _loop(2, None).shape == (2, 2, 3)
    with pytest.raises(InferenceError, match="cannot determine the rank of the scanned output 's'"):
        _loop(0, None)


def test_a_loop_whose_body_declares_a_number_and_a_condition_of_rank_1() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (int64 n, bool[1] go) => (int64[k, 1] numbers, bool[k, 1] flags) {
            numbers, flags = Loop (n, go) <body = b (int64[1] i, bool[1] c) => (bool[1] c, int64[1] j, bool[1] d)
                { j = Identity (i)  d = Not (c) }>
        }""")
    feeds = {"n": np.array(3), "go": np.array([True])}
    session = onnxruntime_session(model)
    core = Core()
    found = core.compile_model(core.read_model(model), "TEMPLATE")(feeds).arrays()
    for mine, theirs in zip(found, session.run(None, feeds), strict=True):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("batch", [0, 2])
def test_dilated_convolution_of_a_batch(batch: int) -> None:
    x, w = np.ones((batch, 4, 6, 6), np.float32), np.ones((2, 2, 3, 3), np.float32)
    (y,) = _run("Conv", {"x": x, "w": w}, dilations=[2, 2], group=2, pads=[2, 2, 2, 2])
    assert y.shape == (batch, 2, 6, 6)


def test_attention_returns_the_product_without_the_softcap() -> None:
    x = np.random.default_rng(1).normal(size=(1, 1, 3, 4)).astype(np.float32)
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 23]> g (float[1, 1, 3, 4] x) => (y, z) {'
        "y, , , z = Attention <softcap = 0.5> (x, x, x) }"
    )
    core = Core()
    _, product = core.compile_model(core.read_model(model), "TEMPLATE")({"x": x}).arrays()
    np.testing.assert_allclose(product, x @ np.swapaxes(x, 2, 3) / 2, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize(
    ("op", "shapes", "attributes"),
    [
        ("Softmax", [(2, 4000)], {}),
        ("LogSoftmax", [(2, 4000)], {}),
        ("LpNormalization", [(2, 4000)], {}),
        ("GlobalAveragePool", [(1, 2, 4000)], {}),
        ("RMSNormalization", [(2, 4000), (4000,)], {}),
        ("InstanceNormalization", [(1, 2, 4000), (2,), (2,)], {}),
        ("MeanVarianceNormalization", [(1, 2, 2000, 2)], {}),
        ("Attention", [(1, 1, 2, 8), (1, 1, 4000, 8), (1, 1, 4000, 8)], {"scale": 4.0}),
    ],
)
def test_sums_of_half_precision_are_those_of_float32(
    op: str, shapes: list[tuple[int, ...]], attributes: dict[str, Any], dtype: type
) -> None:
    """Within the rounding of the result: in half precision, a sum of thousands of ones is 256 or 2048."""
    rng = np.random.default_rng(1)
    feeds = {f"x{at}": (1 + rng.uniform(0, 0.1, shape)).astype(dtype) for at, shape in enumerate(shapes)}
    (found,) = _run(op, feeds, **attributes)
    (exact,) = _run(op, {name: x.astype(np.float32) for name, x in feeds.items()}, **attributes)
    assert found.dtype == dtype
    unit = float(ml_dtypes.finfo(dtype).eps)
    np.testing.assert_allclose(found.astype(np.float32), exact, rtol=unit, atol=unit * float(np.abs(exact).max()))


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_running_sums_of_half_precision(dtype: type) -> None:
    (y,) = _run("CumSum", {"x": np.ones(4096, dtype), "axis": np.array(0)})
    assert y.dtype == dtype
    assert y[-1] == 4096


@pytest.mark.parametrize("mode", ["linear", "cubic", "nearest"])
def test_resize_counts_axes_from_the_end(mode: str) -> None:
    x = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    core = Core()
    for axes in ([-1], [-1, 0], [1, -2]):
        results = []
        for each in (axes, [axis % 2 for axis in axes]):
            model = onnx.parser.parse_model(
                f'<ir_version: 10, opset_import: ["": 21]> g (float[5, 4] x) => (y) <int64[{len(axes)}] s = '
                f"{{{', '.join(['7', '3'][: len(axes)])}}}> "
                f'{{ y = Resize <axes = {each}, mode = "{mode}"> (x, , , s) }}'
            )
            results += core.compile_model(core.read_model(model), "TEMPLATE")({"x": x}).arrays()
        np.testing.assert_array_equal(*results)
