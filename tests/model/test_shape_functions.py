"""Shapes of the results of onnxruntime's operators: those of onnxruntime, or unknown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from contrib_nodes import CONTRIB, Array, floats, given, model_of
from hetero import Core, Model
from hetero.model.shape_functions import _texts
from onnxruntime_models import run_directly

RANDOM = np.random.default_rng(0)


def numbers(*shape: int) -> Array:
    return RANDOM.integers(0, 255, shape).astype(np.uint8)


ONE, ZERO = np.array(0.5, np.float32), np.array(3, np.uint8)
IMAGE, IDS, X = numbers(2, 3, 7, 6), np.ones((2, 5), np.int32), floats(2, 5, 16)
HEADS = {"num_heads": 2}
UNARY = {"x": IMAGE, "xs": ONE, "xz": ZERO, "ys": ONE, "yz": ZERO}
BINARY = {
    "a": numbers(2, 3),
    "as": ONE,
    "az": ZERO,
    "b": numbers(4, 1, 3),
    "bs": ONE,
    "bz": ZERO,
    "cs": ONE,
    "cz": ZERO,
}
JOINED = {"ys": ONE, "yz": ZERO}
GEMM = {
    "a": numbers(5, 4), "as": ONE, "az": ZERO, "b": numbers(5, 6), "bs": ONE, "bz": ZERO,
    "c": np.zeros(6, np.int32), "ys": ONE, "yz": ZERO,
}  # fmt: skip
ATTENTION = {"x": X, "w": floats(16, 48), "b": floats(48)}
Q_ATTENTION = {"x": numbers(2, 5, 16), "w": numbers(16, 48), "b": floats(48), "xs": ONE, "ws": ONE}
WINDOW = {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1]}
CASES: list[tuple[str, Mapping[str, Array], dict[str, Any]]] = [
    *((op, {"x": X}, {}) for op in ("Gelu", "QuickGelu", "FastGelu")),
    ("BiasGelu", {"x": X, "b": floats(16)}, {}),
    (
        "RotaryEmbedding",
        {"x": X, "p": np.zeros((2, 5), np.int64), "c": floats(8, 4), "s": floats(8, 4)},
        {},
    ),
    ("QLinearSigmoid", UNARY, {}),
    ("QLinearLeakyRelu", UNARY, {}),
    ("QLinearSoftmax", UNARY, {"opset": 13}),
    ("QLinearGlobalAveragePool", UNARY, {}),
    ("QLinearGlobalAveragePool", UNARY, {"channels_last": 1}),
    ("QLinearAveragePool", UNARY, WINDOW | {"ceil_mode": 1}),
    ("QLinearAveragePool", UNARY, {"kernel_shape": [2, 2], "auto_pad": "SAME_UPPER"}),
    ("SkipLayerNormalization", {"x": X, "s": X, "g": floats(16)}, {"outputs": 1}),
    ("SkipLayerNormalization", {"x": X, "s": X, "g": floats(16)}, {"outputs": 4}),
    ("SkipSimplifiedLayerNormalization", {"x": X, "s": X, "g": floats(16)}, {"outputs": 4}),
    ("QuantizeLinear", {"x": X, "s": ONE, "z": ZERO}, {}),
    ("DequantizeLinear", {"x": IMAGE, "s": ONE, "z": ZERO}, {}),
    ("QLinearAdd", BINARY, {}),
    ("QLinearMul", BINARY, {}),
    ("QLinearWhere", {"c": np.ones((4, 2, 1), bool)} | BINARY, {}),
    ("DynamicQuantizeMatMul", {"a": X, "b": numbers(16, 3), "s": ONE, "z": ZERO}, {}),
    ("MatMulIntegerToFloat", {"a": numbers(2, 5, 16), "b": numbers(16, 3), "as": ONE, "bs": ONE}, {}),
    ("FusedConv", {"x": floats(2, 4, 7, 6), "w": floats(8, 2, 3, 2)}, WINDOW | {"group": 2, "activation": "Relu"}),
    ("GroupQueryAttention", {
        "q": floats(1, 1, 32), "k": floats(1, 1, 16), "v": floats(1, 1, 16), "pk": floats(1, 1, 3, 16),
        "pv": floats(1, 1, 3, 16), "n": np.array([3], np.int32), "t": np.array(4, np.int32),
    }, {"num_heads": 2, "kv_num_heads": 1, "outputs": 3}),
    ("GroupQueryAttention", {
        "q": floats(1, 1, 64), "-k": X, "-v": X, "pk": floats(1, 1, 3, 16),
        "pv": floats(1, 1, 3, 16), "n": np.array([3], np.int32), "t": np.array(4, np.int32),
    }, {"num_heads": 2, "kv_num_heads": 1, "outputs": 3}),
    ("Attention", ATTENTION, HEADS),
    ("Attention", ATTENTION | {"w": floats(16, 40), "b": floats(40)}, HEADS | {"qkv_hidden_sizes": [16, 16, 8]}),
    ("QAttention", Q_ATTENTION, HEADS),
    ("EmbedLayerNormalization", {
        "i": IDS, "s": IDS, "w": floats(3, 8), "p": floats(5, 8), "t": floats(2, 8), "g": floats(8), "b": floats(8)
    }, {"outputs": 3, "constants": ("w", "p", "t", "g", "b")}),
    *(("FusedMatMul", {"a": floats(2, 1, *a), "b": floats(3, *b)}, {"transA": ta, "transB": tb, "alpha": 0.5})
      for ta, a in ((0, (4, 5)), (1, (5, 4))) for tb, b in ((0, (5, 6)), (1, (6, 5)))),
    ("FusedMatMul", {"a": floats(4, 5), "b": floats(5, 6)}, {}),
    ("FusedGemm", {"a": floats(5, 4), "b": floats(6, 5)}, {"transA": 1, "transB": 1, "activation": "Relu"}),
    ("FusedMatMul", {"a": floats(2, 4, 5), "b": floats(2, 5, 6)}, {"transBatchA": 0}),
    ("QLinearConcat", JOINED | {"a": numbers(2, 3), "as": ONE, "az": ZERO}, {"axis": 1}),
    ("QLinearConcat", JOINED | {
        "a": numbers(2, 3), "as": ONE, "az": ZERO, "b": numbers(4, 3), "bs": ONE, "bz": ZERO
    }, {"axis": 0}),
    *(("GatherBlockQuantized", {"t": numbers(7, width), "i": np.ones((2, 3), np.int64), "s": floats(7, 2)},
       {"bits": bits, "block_size": 16, "constants": ("t", "s")}) for bits, width in ((4, 16), (8, 32))),
    ("QGemm", GEMM, {"transA": 1}),
    ("QGemm", GEMM | {"a": numbers(4, 5), "b": numbers(6, 5)}, {"transB": 1, "alpha": 2.0}),
    ("MultiHeadAttention", {"q": X, "k": floats(2, 7, 16), "v": floats(2, 7, 8)}, HEADS),
    ("MultiHeadAttention", {"q": X, "k": floats(2, 2, 7, 8), "v": floats(2, 2, 7, 8)}, HEADS),
    ("MatMulNBits", {"a": X, "b": numbers(6, 1, 8), "s": floats(6)}, {"K": 16, "N": 6, "block_size": 16, "bits": 4}),
]  # fmt: skip
UNKNOWN = {("QLinearGlobalAveragePool", "channels_last"), ("Attention", "qkv_hidden_sizes")}


def read(model: onnx.ModelProto) -> Model:
    return Core().read_model(model)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(("op", "inputs", "options"), CASES)
def test_as_onnxruntime(op: str, inputs: Mapping[str, Array], options: dict[str, Any], symbolic: bool) -> None:
    model = model_of(op, dict(inputs), **({"outputs": 1} | options), symbolic=symbolic)
    wanted = run_directly(model, given(model, dict(inputs)))
    found = [port.shape for port in read(model).outputs]
    for shape, array in zip(found, wanted, strict=True):
        if shape is not None:
            assert len(shape) == array.ndim
            assert all(not isinstance(dim, int) or dim == size for dim, size in zip(shape, array.shape, strict=True))
    if symbolic:
        return
    if any((op, name) in UNKNOWN for name in options) or "-k" in inputs:
        assert found[0] is None
    else:
        assert found[0] == wanted[0].shape


def test_every_operator_has_a_case() -> None:
    assert {op for op, _, _ in CASES} == set(_texts())


def test_nodes_of_one_operator_with_fewer_outputs() -> None:
    """onnx refuses inference if a node has fewer outputs than its function infers."""
    nodes = [
        helper.make_node("SkipLayerNormalization", ["x", "x", "g"], ["a", "", "", "b"], domain=CONTRIB),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("SkipLayerNormalization", ["c", "x", "g"], ["y"], domain=CONTRIB),
    ]
    given = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", (2, 3)), ("g", (3,)))
    ]
    graph = helper.make_graph(nodes, "g", given, [onnx.ValueInfoProto(name=name) for name in ("y", "a")])
    model = read(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(CONTRIB, 1)]))
    assert [port.shape for port in model.outputs] == [None, (2, 3)]  # only the sum of the first node is not known


def test_malformed_nodes_leave_other_types_known() -> None:
    """More inputs than any of the operators has, and attributes of other types."""
    x = floats(2, 3)
    for op, count, attributes in (("Gelu", 30, {}), ("MatMulNBits", 3, {"K": "no", "N": 2.5})):
        names = ["x"] * count
        graph = helper.make_graph(
            [
                helper.make_node(op, names, ["y"], domain=CONTRIB, **attributes),
                helper.make_node("Relu", ["x"], ["z"]),
            ],
            "g",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)],
            [onnx.ValueInfoProto(name=name) for name in ("y", "z")],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(CONTRIB, 1)])
        assert read(model).outputs[1].shape == (2, 3)


def test_a_function_of_the_model_comes_first() -> None:
    own = onnx.parser.parse_function(
        '<domain: "com.microsoft", opset_import: ["": 17]> Gelu (x) => (y) { y = Transpose (x) }'
    )
    graph = helper.make_graph(
        [helper.make_node("Gelu", ["x"], ["y"], domain=CONTRIB)],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (2, 3))],
        [onnx.ValueInfoProto(name="y")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(CONTRIB, 1)]
    assert read(helper.make_model(graph, opset_imports=opsets, functions=[own])).outputs[0].shape == (3, 2)


def test_nodes_of_one_operator_that_need_different_functions() -> None:
    parts = ["a", "s", "z"]
    nodes = [
        helper.make_node("QLinearConcat", ["s", "z", *parts * count], [f"y{count}"], domain=CONTRIB, axis=0)
        for count in (2, 3)
    ]
    infos = [
        helper.make_tensor_value_info("a", 2, [2, 3]),
        helper.make_tensor_value_info("s", 1, []),
        helper.make_tensor_value_info("z", 2, []),
    ]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(CONTRIB, 1)]

    def shapes(chosen: list[onnx.NodeProto]) -> list[Any]:
        outputs = [onnx.ValueInfoProto(name=node.output[0]) for node in chosen]
        model = helper.make_model(helper.make_graph(chosen, "g", infos, outputs), opset_imports=opsets, ir_version=8)
        return [port.shape for port in read(model).outputs]

    assert shapes(nodes[:1]) == [(4, 3)]
    assert shapes(nodes) == [None, None]


@pytest.mark.parametrize(("a", "b"), [((3,), (3, 4)), ((2, 3), (3,)), ((3,), (3,)), ((2, 3), (4, 5)), ((), (2, 2))])
def test_products_of_other_ranks_and_of_sizes_that_do_not_fit(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    """The shape is unknown or the same as NumPy's, and the other nodes have shapes."""
    nodes = [
        helper.make_node("FusedMatMul", ["a", "b"], ["y"], domain=CONTRIB),
        helper.make_node("Relu", ["a"], ["z"]),
    ]
    infos = [helper.make_tensor_value_info(name, 1, shape) for name, shape in (("a", a), ("b", b))]
    outputs = [onnx.ValueInfoProto(name=name) for name in ("y", "z")]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(CONTRIB, 1)]
    model = helper.make_model(helper.make_graph(nodes, "g", infos, outputs), opset_imports=opsets, ir_version=8)
    found = [port.shape for port in read(model).outputs]
    assert found[1] == a
    try:
        assert found[0] in (None, np.matmul(np.zeros(a), np.zeros(b)).shape)
    except ValueError:
        assert found[0] is None
