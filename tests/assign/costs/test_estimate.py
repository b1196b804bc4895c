"""Operations and bytes from shapes, against counting by hand."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import hetero
from hetero.assign.costs import estimate_work
from hetero.assign.costs.sizes import ASSUMED_DIM, value_sizes
from model_zoo import make_model

CORE = hetero.Core()


def work_of(nodes, inputs, weights=None, outputs=("y",), **options):
    sizes = options.pop("sizes", None)
    return estimate_work(CORE.read_model(make_model(nodes, inputs, outputs, weights, **options)), sizes)


def floats(*shape):
    return np.zeros(shape, np.float32)


CASES = {
    "conv": (
        helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1]),
        {"x": [1, 8, 10, 12]},
        {"w": floats(16, 8, 3, 3)},
        2 * 16 * 10 * 12 * 8 * 9,
    ),
    "grouped conv": (
        helper.make_node("Conv", ["x", "w"], ["y"], group=8),
        {"x": [1, 8, 10, 12]},
        {"w": floats(8, 1, 3, 3)},
        2 * 8 * 8 * 10 * 9,
    ),
    "transposed conv": (
        helper.make_node("ConvTranspose", ["x", "w"], ["y"]),
        {"x": [1, 8, 10, 12]},
        {"w": floats(8, 4, 3, 3)},
        2 * 8 * 10 * 12 * 4 * 9,
    ),
    "gemm": (
        helper.make_node("Gemm", ["x", "w"], ["y"], transB=1),
        {"x": [5, 7]},
        {"w": floats(11, 7)},
        2 * 5 * 7 * 11,
    ),
    "gemm, other way round": (
        helper.make_node("Gemm", ["x", "w"], ["y"], transA=1),
        {"x": [7, 5]},
        {"w": floats(7, 11)},
        2 * 5 * 7 * 11,
    ),
    "matmul": (
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        {"x": [3, 5, 7]},
        {"w": floats(7, 11)},
        2 * 3 * 5 * 7 * 11,
    ),
    "einsum": (
        helper.make_node("Einsum", ["x", "w"], ["y"], equation="ij,jk->ik"),
        {"x": [5, 7]},
        {"w": floats(7, 11)},
        2 * 5 * 7 * 11,
    ),
    "max pool": (
        helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[3, 2]),
        {"x": [1, 4, 10, 12]},
        {},
        4 * 8 * 11 * 6,
    ),
    "add": (helper.make_node("Add", ["x", "w"], ["y"]), {"x": [4, 1]}, {"w": floats(1, 6)}, 24),
    "sum over an axis": (
        helper.make_node("ReduceMean", ["x"], ["y"], axes=[1], keepdims=0),
        {"x": [4, 9]},
        {},
        36,
    ),
    "transpose": (helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0]), {"x": [4, 9]}, {}, 0),
}


@pytest.mark.parametrize("case", CASES)
def test_operations(case):
    node, inputs, weights, expected = CASES[case]
    found = work_of([node], inputs, weights)
    assert found.flops[0] == pytest.approx(expected)
    assert not found.assumed.any()


def test_recurrent_layers_meet_their_weights_in_each_step():
    steps, batch, width, hidden = 6, 2, 50, 64
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=hidden)
    weights = {"w": floats(1, 4 * hidden, width), "r": floats(1, 4 * hidden, hidden)}
    found = work_of([node], {"x": [steps, batch, width]}, weights)
    products = 2 * steps * batch * 4 * hidden * (width + hidden)
    assert products < found.flops[0] < 2 * products


def test_bytes_are_what_is_read_and_made():
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    assert work_of([node], {"x": [3, 5]}, {"w": floats(5, 7)}).bytes[0] == 4 * (15 + 35 + 21)


def test_views_cost_nothing_and_slices_only_what_they_take():
    reshape = helper.make_node("Reshape", ["x", "shape"], ["y"])
    assert work_of([reshape], {"x": [4, 6]}, {"shape": np.array([24])}).bytes[0] == 0
    gather = helper.make_node("Gather", ["table", "x"], ["y"])
    found = work_of([gather], {"x": [3]}, {"table": floats(100_000, 8)})
    assert found.bytes[0] < 1000


def test_symbols_are_assumed_or_given():
    node = helper.make_node("Relu", ["x"], ["y"])
    assumed = work_of([node], {"x": ["batch", "length"]})
    assert assumed.flops[0] == ASSUMED_DIM
    assert assumed.assumed.all()
    given = work_of([node], {"x": ["batch", "length"]}, sizes={"batch": 3, "length": 5})
    assert given.flops[0] == 15
    assert not given.assumed.any()


def test_what_is_not_known_says_so():
    node = helper.make_node("Strange", ["x"], ["y"], domain="org.example")
    model = make_model([node], {"x": [4]})
    model.opset_import.append(helper.make_opsetid("org.example", 1))
    found = estimate_work(CORE.read_model(model))
    assert found.assumed.all()
    assert np.isfinite(found.bytes).all()


def test_elements_of_other_sizes():
    graph = helper.make_graph(
        [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.INT8)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, [10])],
        [helper.make_tensor_value_info("y", TensorProto.INT8, [10])],
    )
    model = CORE.read_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    sizes = value_sizes(model)
    assert sizes.bytes[model.value_id("x")] == 20
    assert sizes.bytes[model.value_id("y")] == 10
    assert estimate_work(model).bytes[0] == 30


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "flops"),
    [
        (
            "com.microsoft::MatMulNBits",
            {"x": [3, 5, 64], "w": [11, 2, 16], "s": [11, 2]},
            {"K": 64, "N": 11, "bits": 4, "block_size": 32},
            2 * 3 * 5 * 64 * 11,
        ),
        ("com.microsoft::FusedGemm", {"x": [5, 7], "w": [11, 7]}, {"transB": 1}, 2 * 5 * 7 * 11),
        ("com.microsoft::FusedMatMul", {"x": [3, 5, 7], "w": [11, 7]}, {"transB": 1}, 2 * 3 * 5 * 7 * 11),
        (
            "com.microsoft::QGemm",
            {"a": [3, 5], "as": [], "az": [], "b": [5, 7], "bs": [], "bz": []},
            {},
            2 * 3 * 5 * 7,
        ),
        (
            "com.microsoft::GroupQueryAttention",
            {"x": [1, 1, 64], "k": [1, 1, 32], "v": [1, 1, 32], "p": [1, 2, 99, 16], "q": [1, 2, 99, 16]},
            {"num_heads": 4, "kv_num_heads": 2},
            4 * 64 * 100 + 10 * 64,
        ),
        (
            "ai.onnx.ml::TreeEnsembleRegressor",
            {"x": [5, 8]},
            {"nodes_treeids": [0] * 7 + [1] * 7, "nodes_modes": ["LEAF"] * 14},
            5 * 4 * 2 * 3,
        ),
        ("ai.onnx.ml::SVMRegressor", {"x": [5, 8]}, {"support_vectors": [0.0] * 24}, 2 * 5 * 24),
    ],
)
def test_operations_of_other_domains(op, inputs, attributes, flops):
    """Their results have no known shapes, so the formulas use the inputs."""
    domain, _, name = op.partition("::")
    graph = helper.make_graph(
        [helper.make_node(name, list(inputs), ["y"], domain=domain, **attributes)],
        "one",
        [helper.make_tensor_value_info(key, TensorProto.FLOAT, shape) for key, shape in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    opsets = [
        helper.make_opsetid("", 17),
        helper.make_opsetid("com.microsoft", 1),
        helper.make_opsetid("ai.onnx.ml", 3),
    ]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    assert estimate_work(CORE.read_model(model)).flops.tolist() == [flops]
