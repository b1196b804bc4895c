"""Classic machine learning (ai.onnx.ml), cut over devices; results are those of onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import hetero

onnxruntime = pytest.importorskip("onnxruntime")

CLASSIC = "ai.onnx.ml"
node = helper.make_node
X = np.array([[0.1, 0.2, -0.3], [1, 2, 3], [4, -5, 6]], np.float32)

TREE: dict[str, Any] = {
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [0, 0, 0],
    "nodes_values": [0.5, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
}


def make(nodes: Sequence[onnx.NodeProto], outputs: Sequence[str]) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [onnx.ValueInfoProto(name=name) for name in outputs],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(CLASSIC, 3)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


MODELS = {
    "linear with a map": make(
        [
            node("Imputer", ["x"], ["a"], domain=CLASSIC, imputed_value_floats=[0.0]),
            node("Scaler", ["a"], ["b"], domain=CLASSIC, offset=[1.0, 2.0, 3.0], scale=[1.0, 2.0, 3.0]),
            node("Relu", ["b"], ["c"]),
            node("Normalizer", ["c"], ["d"], domain=CLASSIC, norm="L2"),
            node(
                "LinearClassifier",
                ["d"],
                ["label", "p"],
                domain=CLASSIC,
                coefficients=[1.0, 1.0, 1.0, -1.0, 2.0, -3.0],
                intercepts=[0.0, 0.1],
                classlabels_ints=[0, 1],
                post_transform="SOFTMAX",
            ),
            node("Identity", ["p"], ["q"]),
            node("ZipMap", ["q"], ["maps"], domain=CLASSIC, classlabels_int64s=[0, 1]),
        ],
        ["label", "maps"],
    ),
    "tree with text labels": make(
        [
            node("Abs", ["x"], ["a"]),
            node(
                "TreeEnsembleClassifier",
                ["a"],
                ["label", "p"],
                domain=CLASSIC,
                class_ids=[0, 1, 2],
                class_nodeids=[1, 2, 2],
                class_treeids=[0, 0, 0],
                class_weights=[1.0, 2.0, 0.5],
                classlabels_strings=["a", "b", "c"],
                **TREE,
            ),
            node("LabelEncoder", ["label"], ["e"], domain=CLASSIC, keys_strings=["a", "b"], values_floats=[1.0, 2.0]),
            node("Neg", ["e"], ["f"]),
            node("ZipMap", ["p"], ["maps"], domain=CLASSIC, classlabels_strings=["a", "b", "c"]),
        ],
        ["f", "maps", "label"],
    ),
    "regressors": make(
        [
            node(
                "SVMRegressor",
                ["x"],
                ["s"],
                domain=CLASSIC,
                coefficients=[1.0, 2.0],
                support_vectors=[1.0, 1.0, 1.0, 2.0, 2.0, 2.0],
                n_supports=2,
                rho=[0.0],
                kernel_type="LINEAR",
                kernel_params=[0.0, 0.0, 3.0],
            ),
            node("Abs", ["s"], ["t"]),
            node("FeatureVectorizer", ["t", "x"], ["v"], domain=CLASSIC, inputdimensions=[1, 3]),
            node("Relu", ["v"], ["w"]),
            node("LinearRegressor", ["w"], ["l"], domain=CLASSIC, coefficients=[1.0, -1.0, 2.0, 0.5], targets=1),
            node("Neg", ["l"], ["y"]),
        ],
        ["y"],
    ),
}


def check(model: onnx.ModelProto, compiled: hetero.CompiledModel) -> None:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for one, other in zip(compiled({"x": X}).values(), session.run(None, {"x": X}), strict=True):
        if isinstance(other, list):
            assert [list(row) for row in one] == [list(row) for row in other]
            for row, expected in zip(one, other, strict=True):
                np.testing.assert_allclose(list(row.values()), list(expected.values()), rtol=1e-5, atol=1e-6)
        elif other.dtype.kind == "f":
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("device", ["HETERO:CPU,ORT", "HETERO:CPU,TEMPLATE", "HETERO:TEMPLATE,ORT", "HETERO:ORT,CPU"])
@pytest.mark.parametrize("name", MODELS)
def test_runs(name: str, device: str) -> None:
    check(MODELS[name], hetero.compile(MODELS[name], device))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", MODELS)
def test_every_cut_has_a_known_type(name: str, seed: int) -> None:
    """Nodes on random devices, so that nearly every value is cut, text included."""
    core = hetero.Core()
    model = core.read_model(MODELS[name].SerializeToString())
    random = np.random.default_rng(seed)
    pins = {key: str(random.choice(["TEMPLATE", "ORT"])) for key in model.keys}
    compiled = core.compile_model(model, "HETERO:TEMPLATE,ORT", pins=pins)
    assert len(compiled.submodels) > 1
    check(MODELS[name], compiled)
