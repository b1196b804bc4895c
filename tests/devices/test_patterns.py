"""Profiles of quantized devices: patterns, speeds by element type, limits on shapes, and the shipped profiles."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import hetero
from hetero.assign.costs import cost_table
from hetero.devices.patterns import Pattern, find_units
from hetero.devices.profile import load_profile
from hetero.errors import PropertyError, UnsupportedModel
from hetero.model.model import Model
from hetero.model.read import read_model
from hetero.plugin import CostSource, DeviceSpeed, LeastSubgraph

CORE = hetero.Core()
Q, DQ = "QuantizeLinear", "DequantizeLinear"
SHIPPED = ("NPU_INT8", "GPU_FP16", "DSP_INT8", "FPGA", "EDGE_TPU")
QUANTIZED = Pattern((("Conv",),), (DQ,), (Q,))
ACTIVATED = Pattern((("Conv",), ("Relu", "Clip")), (DQ,), (Q,))


class Quantized:
    """Builds QDQ models as onnxruntime.quantization writes them."""

    def __init__(self, size: int = 16, channels: int = 8, batch: int | str = 1) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, Any] = {"s": np.float32(0.02), "z": np.int8(0)}
        self.weights |= {"s32": np.float32(4e-4), "z32": np.int32(0)}
        self.shape, self.channels = (batch, 3, size, size), channels
        self.rng = np.random.default_rng(0)

    def node(self, op: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, list(inputs), [name], name, **attributes))
        return name

    def q(self, value: str) -> str:
        return self.node(Q, [value, "s", "z"], f"{value}_q")

    def dq(self, value: str, name: str | None = None) -> str:
        scale, zero = ("s32", "z32") if value in self.weights and self.weights[value].dtype == np.int32 else ("s", "z")
        return self.node(DQ, [value, scale, zero], name or f"{value}_dq")

    def conv(self, value: str, name: str, cin: int, relu: bool = True) -> str:
        self.weights[f"{name}_w"] = self.rng.integers(-127, 128, (self.channels, cin, 3, 3), np.int8)
        self.weights[f"{name}_b"] = self.rng.integers(-99, 99, self.channels).astype(np.int32)
        read = [self.dq(value, f"{name}_x"), self.dq(f"{name}_w"), self.dq(f"{name}_b")]
        made = self.node("Conv", read, name, pads=[1] * 4, kernel_shape=[3, 3])
        return self.q(self.node("Relu", [made], f"{name}_relu") if relu else made)

    def model(self, output: str) -> Model:
        graph = helper.make_graph(
            self.nodes,
            "quantized",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
            [helper.make_empty_tensor_value_info(output)],
            [numpy_helper.from_array(np.asarray(array), name) for name, array in self.weights.items()],
        )
        return read_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9))


def network(size: int = 56, batch: int | str = 1) -> Model:
    """Two residual convolutions, a pool and a Gemm; the input is quantized, and Softmax is in float32."""
    net = Quantized(size, 32, batch)
    value = net.conv(net.q("x"), "c0", 3)
    for i in (1, 2):
        new = net.conv(value, f"c{i}", 32)
        value = net.q(net.node("Add", [net.dq(value, f"a{i}_x"), net.dq(new, f"a{i}_y")], f"a{i}"))
    value = net.q(net.node("GlobalAveragePool", [net.dq(value)], "pool"))
    value = net.q(net.node("Flatten", [net.dq(value)], "flat"))
    net.weights["w"] = net.rng.integers(-127, 128, (10, 32), np.int8)
    value = net.q(net.node("Gemm", [net.dq(value), net.dq("w")], "gemm", transB=1))
    return net.model(net.node("Softmax", [net.dq(value)], "y", axis=-1))


def units_of(model: Model, *patterns: Pattern) -> list[list[str]]:
    return [[model.key_of(node) for node in unit.tolist()] for unit in find_units(model, patterns)]


# -- patterns ------------------------------------------------------------------------------------------------------


def test_a_unit_has_the_makers_the_chain_and_the_reader() -> None:
    net = Quantized()
    model = net.model(net.conv(net.q("x"), "c", 3, relu=False))
    assert units_of(model, QUANTIZED) == [["c_x", "c_w_dq", "c_b_dq", "c", "c_q"]]
    assert units_of(model, ACTIVATED) == []
    net = Quantized()
    model = net.model(net.conv(net.q("x"), "c", 3))
    assert units_of(model, QUANTIZED) == []
    assert units_of(model, QUANTIZED, ACTIVATED) == [["c_x", "c_w_dq", "c_b_dq", "c", "c_relu", "c_relu_q"]]
    assert units_of(model, Pattern((("Conv",), ("Relu",)))) == [["c", "c_relu"]]
    assert units_of(model, Pattern((("Relu",),))) == [["c_relu"]]


def test_identities_belong_to_a_unit() -> None:
    net = Quantized(112, 32)
    conv = net.conv(net.node("Identity", [net.q("x")], "i_x"), "c", 3, relu=False)
    passed = net.node("Identity", [net.node("Identity", [net.dq(conv, "d")], "i0")], "i1")
    quantized = net.q(net.node("Identity", [net.node("Relu", [passed], "relu")], "i2"))
    model = net.model(net.dq(quantized, "y"))
    assert [sorted(unit) for unit in units_of(model, Pattern((("Relu",),), (DQ,), (Q,)))] == [
        ["d", "i0", "i1", "i2", "i2_q", "relu"]
    ]
    assert units_of(model, Pattern((("Relu",), ("Identity",)), (DQ,), (Q,)))[0][:4] == ["d", "relu", "i2", "i2_q"]
    assert units_of(model, Pattern((("Relu",),), ("Identity",))) == [["i1", "relu"]]
    following = Pattern(((DQ,), ("Relu",)))
    assert units_of(model, following) == [["d", "relu", "i0", "i1"]]
    assert units_of(model.with_outputs(["i1"]), following) == []
    for device in ("NPU_INT8", "EDGE_TPU"):
        plan = CORE.plan(model, f"HETERO:{device},CPU")
        assert {key for key, chosen in plan.affinity.items() if chosen == "CPU"} == {"x_q", "y"}, device
    x = np.random.default_rng(1).standard_normal((1, 3, 112, 112)).astype(np.float32)
    np.testing.assert_array_equal(CORE.compile_model(model, plan)(x)[0], CORE.compile_model(model, "CPU")(x)[0])


def test_near_misses() -> None:
    def made(change: str) -> Model:
        net = Quantized()
        quantized = net.q("x")
        value = net.conv(quantized, "c", 3, relu=False)
        conv = next(node for node in net.nodes if node.op_type == "Conv")
        match change:
            case "float weights":
                net.weights["f"] = np.ones((8, 3, 3, 3), np.float32)
                conv.input[1] = "f"
            case "float bias":
                net.weights["f"] = np.ones(8, np.float32)
                conv.input[2] = "f"
            case "input of the model":
                conv.input[0] = "x"
            case "another reader":
                net.node("Exp", ["c"], "e")
                net.nodes[-1].input[0] = "c"
            case "two quantized readers":
                net.node(Q, ["c", "s", "z"], "again")
        model = net.model(value)
        return model.with_outputs(["c"]) if change == "output of the model" else model

    assert units_of(made("nothing"), QUANTIZED)
    assert [len(unit) for unit in units_of(made("float bias"), QUANTIZED)] == [4]
    assert [len(unit) for unit in units_of(made("two quantized readers"), QUANTIZED)] == [6]
    for change in ("float weights", "input of the model", "another reader", "output of the model"):
        assert units_of(made(change), QUANTIZED) == [], change


def test_operators_of_patterns_are_supported_only_in_them() -> None:
    model = network()
    refused = CORE.query_model(model, "NPU_INT8").reasons
    assert refused.keys() == {"x_q", "gemm_q_dq", "y"}
    assert "supports Softmax only in DequantizeLinear -> Softmax -> QuantizeLinear" in refused["y"]["NPU_INT8"]
    (warning,) = CORE.plan(model, "HETERO:NPU_INT8,CPU").warnings
    assert "NPU_INT8 does not support QuantizeLinear (1), DequantizeLinear (1)" in warning.message
    assert warning.message.endswith("Softmax (1) in these places")


@pytest.mark.parametrize("config", [{}, {"ASSIGNMENT": "COST"}, {"OBJECTIVE": "LATENCY"}])
@pytest.mark.parametrize("device", ["NPU_INT8", "EDGE_TPU"])
def test_a_quantized_model_goes_to_the_device_in_one_piece(device: str, config: dict[str, str]) -> None:
    model = network()
    plan = CORE.plan(model, f"HETERO:{device},CPU", config)
    assert plan.num_subgraphs == 3
    assert {key for key, name in plan.affinity.items() if name == "CPU"} == {"x_q", "gemm_q_dq", "y"}
    assert {value.dtype for value in plan.values} == {"int8"}


@pytest.mark.parametrize("device", ["NPU_INT8", "DSP_INT8", "EDGE_TPU"])
def test_residual_connections_may_be_sums(device: str) -> None:
    model = network()
    proto = model.to_proto()
    for node in proto.graph.node:
        node.op_type = {"Add": "Sum"}.get(node.op_type, node.op_type)
    plan = CORE.plan(read_model(proto), f"HETERO:{device},CPU")
    assert plan.num_subgraphs == CORE.plan(model, f"HETERO:{device},CPU").num_subgraphs


@pytest.mark.parametrize("device", SHIPPED)
def test_operators_of_onnxruntime_may_quantize(device: str) -> None:
    """As the option UseQDQContribOps of onnxruntime's quantizer."""
    model = network()
    proto = model.to_proto()
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    for node in proto.graph.node:
        node.domain = "com.microsoft" if node.op_type in (Q, DQ) else ""
    plan = CORE.plan(read_model(proto), f"HETERO:{device},CPU")
    assert dict(plan.affinity) == dict(CORE.plan(model, f"HETERO:{device},CPU").affinity)


@pytest.mark.parametrize("device", SHIPPED)
def test_weights_may_be_quantized_in_the_model(device: str) -> None:
    """As the option AddQDQPairToWeight of onnxruntime's quantizer, with weights that are not one image at a time."""
    model = network()
    proto = model.to_proto()
    weights = {value.name: value for value in proto.graph.initializer if value.name in ("c0_w", "c1_w", "c2_w", "w")}
    for name, value in weights.items():
        proto.graph.node.insert(0, helper.make_node(Q, [f"{name}_float", "s", "z"], [name], f"{name}_q"))
        float_weights = numpy_helper.to_array(value).astype(np.float32) * np.float32(0.02)
        value.CopyFrom(numpy_helper.from_array(float_weights, f"{name}_float"))
    plan = CORE.plan(read_model(proto), f"HETERO:{device},CPU")
    expected = CORE.plan(model, f"HETERO:{device},CPU")
    assert plan.num_subgraphs == expected.num_subgraphs
    assert dict(plan.affinity) == dict(expected.affinity) | {f"{name}_q": device for name in weights}
    for found_totals, totals in zip(plan.totals, expected.totals, strict=True):  # devices hold the int8 weights
        assert found_totals.weight_bytes == totals.weight_bytes
        assert found_totals.activation_bytes == totals.activation_bytes
    x = np.random.default_rng(1).standard_normal((1, 3, 56, 56)).astype(np.float32)
    found = CORE.compile_model(read_model(proto), f"HETERO:{device},CPU")({"x": x})["y"]
    np.testing.assert_array_equal(found, CORE.compile_model(model, f"HETERO:{device},CPU")({"x": x})["y"])


@pytest.mark.parametrize(("device", "num_subgraphs"), [("NPU_INT8", 3), ("DSP_INT8", 1), ("GPU_FP16", 1)])
def test_a_channel_shuffle_stays_on_the_device(device: str, num_subgraphs: int) -> None:
    net = Quantized(56, 8)
    net.weights |= {"split": np.int64([1, 2, 4, 56, 56]), "join": np.int64([1, 8, 56, 56])}
    value = net.conv(net.conv(net.q("x"), "c0", 3), "c1", 8)
    value = net.q(net.node("Reshape", [net.dq(value), "split"], "split_out"))
    value = net.q(net.node("Transpose", [net.dq(value)], "turned", perm=[0, 2, 1, 3, 4]))
    value = net.q(net.node("Reshape", [net.dq(value), "join"], "joined"))
    plan = CORE.plan(net.model(net.dq(net.conv(value, "c2", 8))), f"HETERO:{device},CPU")
    assert {plan.affinity[key] for key in ("split_out", "turned", "joined")} == {device}
    assert plan.num_subgraphs == num_subgraphs


@pytest.mark.parametrize("device", ["NPU_INT8", "EDGE_TPU"])
def test_the_qoperator_format(device: str) -> None:
    net = Quantized(96, 32)
    net.weights["w"] = net.rng.integers(-127, 128, (32, 3, 3, 3), np.int8)
    conv = net.node("QLinearConv", [net.q("x"), "s", "z", "w", "s", "z", "s", "z"], "c", pads=[1] * 4)
    pool = net.node("MaxPool", [conv], "p", kernel_shape=[2, 2], strides=[2, 2])
    floating = net.node("MaxPool", [net.dq(pool)], "y", kernel_shape=[2, 2])
    plan = CORE.plan(net.model(floating), f"HETERO:{device},CPU")
    assert [plan.affinity[key] for key in ("x_q", "c", "p", "p_dq", "y")] == ["CPU", device, device, "CPU", "CPU"]
    assert "or MaxPool of uint8 or int8" in plan.reasons["y"]


def test_the_npu_lists_what_onnxruntime_quantizes() -> None:
    registry = pytest.importorskip("onnxruntime.quantization.registry")
    # Their results are indices, or inputs that no DequantizeLinear makes.
    others = {"ArgMax", "TopK", "CumSum", "GatherElements", "Where", "EmbedLayerNormalization"}
    quantized = {*registry.QDQRegistry, *registry.QLinearOpsRegistry} - others
    assert quantized <= load_profile(Path(hetero.__file__).parent / "profiles" / "npu_int8.toml").ops.keys()


def test_a_device_of_float32_converts_quantized_models() -> None:
    plan = CORE.plan(network(), "HETERO:FPGA,CPU")
    assert plan.num_subgraphs == 2
    assert {key for key, name in plan.affinity.items() if name == "CPU"} == {"y"}


@pytest.mark.parametrize("device", SHIPPED)
def test_shipped_profiles_compute_the_same(device: str) -> None:
    model = network(16)
    x = np.random.default_rng(1).standard_normal((1, 3, 16, 16)).astype(np.float32)
    expected = ReferenceEvaluator(model.to_proto()).run(None, {"x": x})[0]
    for config in ({}, {"ASSIGNMENT": "COST"}):
        found = CORE.compile_model(model, f"HETERO:{device},CPU", config)({"x": x})["y"]
        np.testing.assert_allclose(found, expected, atol=2e-2)  # one step of quantization, where rounding differs


def quantize(folder: Path, nodes: str, weights: dict[str, tuple[int, ...]], size: int, **options: Any) -> Path:
    """A model quantized by onnxruntime, without its quant_pre_process. ``nodes``: of x to y, in onnx's text format.
    ``weights``: name -> shape of float32 weights. ``options``: extra options of the quantizer."""
    quantization = pytest.importorskip("onnxruntime.quantization")
    rng = np.random.default_rng(0)
    graph = helper.make_graph(
        onnx.parser.parse_graph(f"g () => () {{ {nodes} }}").node,
        "float",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, size, size))],
        [helper.make_empty_tensor_value_info("y")],
        [
            numpy_helper.from_array((rng.standard_normal(shape) / shape[-1]).astype(np.float32), name)
            for name, shape in weights.items()
        ]
        + [numpy_helper.from_array(np.int64([number]), f"i{number}") for number in (0, 1, 2)],
    )
    for node in graph.node:
        node.name = node.output[0]
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "f.onnx")

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = 2

        def get_next(self) -> dict[str, Any] | None:
            self.left -= 1
            return {"x": rng.standard_normal((1, 3, size, size)).astype(np.float32)} if self.left >= 0 else None

    quantization.quantize_static(
        str(folder / "f.onnx"),
        str(folder / "q.onnx"),
        Reader(),
        quant_format=quantization.QuantFormat.QDQ,
        extra_options=options,
    )
    return folder / "q.onnx"


def test_models_of_onnxruntime_quantization(tmp_path: Path) -> None:
    nodes = """c = Conv<pads = [1, 1, 1, 1]>(x, w) r = Relu(c) p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r)
        y = Conv<pads = [1, 1, 1, 1]>(p, v)"""
    plan = CORE.plan(quantize(tmp_path, nodes, {"w": (16, 3, 3, 3), "v": (16, 16, 3, 3)}, 64), "HETERO:NPU_INT8,CPU")
    assert all(plan.affinity[key] == "NPU_INT8" for key in ("c", "y", "p"))
    assert plan.num_subgraphs == 3
    assert sum(device == "CPU" for device in plan.affinity.values()) == 2  # quantizes x, dequantizes y


SHUFFLED = """c = Conv<pads = [1, 1, 1, 1]>(x, w) r = Relu(c) s = Shape(r) n = Gather(s, i1) m = Add(n, i1)
    h = Div(m, i2) e = Mul(h, i2) left = Slice(r, i0, h, i1) right = Slice(r, h, e, i1)
    d = Conv<pads = [1, 1, 1, 1]>(right, v) a = Relu(d) j = Concat<axis = 1>(left, a)
    y = Conv<pads = [1, 1, 1, 1]>(j, u)"""
"""A block of a ShuffleNet: half of the channels pass a convolution."""


def test_sizes_that_the_quantizer_leaves_open_are_inferred(tmp_path: Path) -> None:
    path = quantize(tmp_path, SHUFFLED, {"w": (32, 3, 3, 3), "v": (16, 16, 3, 3), "u": (8, 32, 3, 3)}, 32)
    model = CORE.read_model(path)
    declared = ("unk__0", "unk__1", "unk__2", "unk__3")
    assert model.type_of(model.value_id("left")).shape == declared
    device = "HETERO:NPU_INT8,CPU"
    plan = CORE.plan(model, device)
    assert plan.num_subgraphs == 3
    assert sum(name == "CPU" for name in plan.affinity.values()) == 2  # quantizes x, dequantizes y
    assert {key for key, name in plan.affinity.items() if name == "NPU_INT8"} >= set("snmhe")
    assert [totals.unknown_activations for totals in plan.totals] == [0, 0]
    x = np.random.default_rng(1).standard_normal((1, 3, 32, 32)).astype(np.float32)
    expected = CORE.compile_model(model, "CPU")({"x": x})[0]
    np.testing.assert_array_equal(CORE.compile_model(model, plan)({"x": x})[0], expected)
    pinned = CORE.plan(model, device, pins={"d": "CPU"})  # two subgraphs with halves of one size
    assert pinned.affinity["left"] == pinned.affinity["right"] == "NPU_INT8"
    np.testing.assert_array_equal(CORE.compile_model(model, pinned)({"x": x})[0], expected)
    # A GPU has Slice without a pattern, and the nodes that compute its bounds go along.
    plan = CORE.plan(model, "HETERO:GPU_FP16,CPU")
    assert plan.num_subgraphs == 1
    pinned = CORE.plan(model, "HETERO:GPU_FP16,CPU", pins={"right": "CPU"})
    quantizing = {"r_DequantizeLinear/right", "right_QuantizeLinear"}  # so that only int8 values pass
    assert {key for key, name in pinned.affinity.items() if name == "CPU"} == {
        "right",
        "e",
        *quantizing,
    }  # e: its bound
    np.testing.assert_array_equal(CORE.compile_model(model, pinned)({"x": x})[0], expected)
    pinned = CORE.plan(model, "HETERO:GPU_FP16,CPU", pins={"left|right": "CPU"})
    quantizing = {"r_DequantizeLinear", "left_QuantizeLinear", "right_QuantizeLinear"}
    assert {key for key, name in pinned.affinity.items() if name == "CPU"} == {"left", "right", *"snmhe", *quantizing}
    # Neither the model nor what is compiled from it depends on whether these sizes were inferred.
    assert model.type_of(model.value_id("left")).shape == declared
    for name in ("CPU", device):
        files = []
        for read in (model, CORE.read_model(path)):
            read.type_table()  # exported models contain undeclared types if they were inferred
            CORE.compile_model(read, name).export_model(tmp_path / "m.hetero")
            files.append((tmp_path / "m.hetero").read_bytes())
        assert files[0] == files[1]


def test_a_unit_is_not_split_by_a_pin() -> None:
    model = network()
    plan = CORE.plan(model, "HETERO:NPU_INT8,CPU", pins={"c1": "CPU"})
    on_cpu = {key for key, device in plan.affinity.items() if device == "CPU"}
    # c0_relu_q still belongs to the unit of c0, and c1_relu_q_dq to that of the Add.
    assert {"c1", "c1_x", "c1_w_dq", "c1_b_dq", "c1_relu", "c1_relu_q"} <= on_cpu
    assert "c0" not in on_cpu
    assert "operation that it belongs to is elsewhere" in plan.reasons["c1_w_dq"]


def test_a_unit_that_the_cut_would_split_moves_as_a_whole(tmp_path: Path) -> None:
    """Relu and Exp are a unit of the device; a node between the two, of another device, keeps them apart."""
    path = tmp_path / "p.toml"
    path.write_text(
        'name = "P"\nruns_on = "CPU"\n[ops]\nRelu = {}\nAdd = {}\n[[patterns]]\nbefore = "Relu"\nchain = ["Add"]\n'
    )
    core = hetero.Core()
    core.register_plugin("P", path)
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "a"),
        helper.make_node("Exp", ["a"], ["b"], "b"),
        helper.make_node("Relu", ["b"], ["c"], "c"),
        helper.make_node("Add", ["a", "c"], ["y"], "y"),
    ]
    port = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (4,))], [helper.make_empty_tensor_value_info("y")]
    model = core.read_model(helper.make_model(helper.make_graph(nodes, "g", *port), ir_version=8))
    assert core.query_model(model, "P").keys() == {"a", "c", "y"}
    plan = core.plan(model, "HETERO:P,CPU")
    assert set(plan.affinity.values()) == {"CPU"}
    assert "P runs it only together with nodes that are in another subgraph" in plan.reasons["y"]


@pytest.mark.parametrize("config", [{}, {"ASSIGNMENT": "COST"}])
def test_matches_in_two_subgraphs_may_share_a_node(config: dict[str, str]) -> None:
    """A residual connection around a node of the CPU: the DequantizeLinear before it is with the first convolution."""
    net = Quantized(128, 32)
    start = net.conv(net.q("x"), "c0", 3)
    shared = net.dq(start, "shared")
    net.weights["w"] = net.rng.integers(-127, 128, (32, 32, 3, 3), np.int8)
    inner = net.q(net.node("Conv", [shared, net.dq("w")], "inner", pads=[1] * 4))
    other = net.q(net.node("Mish", [net.dq(inner)], "other"))
    total = net.q(net.node("Add", [shared, net.dq(other)], "total"))
    model = net.model(net.dq(net.conv(total, "c2", 32)))
    plan = CORE.plan(model, "HETERO:NPU_INT8,CPU", config)
    assert plan.affinity["other"] == "CPU"
    assert {plan.affinity[key] for key in ("shared", "inner", "total", "c2")} == {"NPU_INT8"}
    assert plan.num_subgraphs == 5
    x = np.random.default_rng(1).standard_normal((1, 3, 128, 128)).astype(np.float32)
    expected = CORE.compile_model(model, "CPU")({"x": x})[0]
    np.testing.assert_array_equal(CORE.compile_model(model, plan)({"x": x})[0], expected)
    # If the convolution is on the CPU, the sum gets its own DequantizeLinear.
    pinned = CORE.plan(model, "HETERO:NPU_INT8,CPU", config, pins={"inner": "CPU"})
    assert (pinned.affinity["shared"], pinned.affinity["shared/total"]) == ("CPU", "NPU_INT8")
    assert pinned.affinity["total"] == "NPU_INT8"
    # If the DequantizeLinear is pinned, no match is complete where it is.
    pinned = CORE.plan(model, "HETERO:NPU_INT8,CPU", config, pins={"inner": "CPU", "shared": "CPU"})
    assert pinned.affinity["shared"] == pinned.affinity["total"] == "CPU"


def parts(tail: int) -> Model:
    """Convolutions before and after a node that no accelerator supports."""
    net = Quantized(128, 32)
    value = net.q(net.node("Mish", [net.dq(net.conv(net.q("x"), "c0", 3))], "mish"))
    for i in range(tail):
        value = net.conv(value, f"c{i + 1}", 32)
    return net.model(net.dq(value, "y"))


@pytest.mark.parametrize("config", [{}, {"ASSIGNMENT": "COST"}, {"OBJECTIVE": "LATENCY"}])
def test_the_edge_tpu_runs_only_the_first_part_of_a_model(config: dict[str, str]) -> None:
    model = parts(2)
    plan = CORE.plan(model, "HETERO:EDGE_TPU,CPU", config)
    assert [part.device for part in plan.subgraphs].count("EDGE_TPU") == 1
    if not config:
        assert plan.affinity["c0"] == "EDGE_TPU"
        why = "CPU supports it; not on EDGE_TPU: EDGE_TPU runs only the first subgraph of a model"
        assert plan.reasons["c2"] == why
    x = np.random.default_rng(1).standard_normal((1, 3, 128, 128)).astype(np.float32)
    expected = CORE.compile_model(model, "CPU")({"x": x})[0]
    np.testing.assert_array_equal(CORE.compile_model(model, plan)({"x": x})[0], expected)
    # A pin to the CPU makes room for the second part.
    pinned = CORE.plan(model, "HETERO:EDGE_TPU,CPU", pins={"c0": "CPU"})
    assert pinned.affinity["c1"] == pinned.affinity["c2"] == "EDGE_TPU"


def test_plans_from_files_must_fit_the_edge_tpu(tmp_path: Path) -> None:
    model = parts(1)
    shipped = (Path(hetero.__file__).parent / "profiles" / "edge_tpu.toml").read_text()
    (tmp_path / "p.toml").write_text(shipped.replace("max_count = 1", "").replace("EDGE_TPU", "P"))
    core = hetero.Core()
    core.register_plugin("P", tmp_path / "p.toml")
    plan = core.plan(model, "HETERO:P,CPU")
    assert [part.device for part in plan.subgraphs] == ["CPU", "P", "CPU", "P", "CPU"]
    plan.save(tmp_path / "plan.json")
    text = (tmp_path / "plan.json").read_text().replace('"P"', '"EDGE_TPU"')
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(PropertyError, match="on EDGE_TPU: EDGE_TPU runs only the first subgraph of a model"):
        core.plan(model, hetero.Plan.load(tmp_path / "plan.json"))
    with pytest.raises(UnsupportedModel, match="'c1_relu' .*\n    EDGE_TPU: EDGE_TPU runs only the first subgraph"):
        core.plan(model, "HETERO:EDGE_TPU,CPU", pins={"c0": "EDGE_TPU", "c1": "EDGE_TPU"})


def beside_the_cpu() -> Model:
    """A convolution and a node of the CPU read one DequantizeLinear, and their results are added."""
    net = Quantized(64, 32)
    shared = net.dq(net.conv(net.q("x"), "c0", 3), "shared")
    net.weights["w"] = net.rng.integers(-127, 128, (32, 32, 3, 3), np.int8)
    inner = net.q(net.node("Conv", [shared, net.dq("w")], "inner", pads=[1] * 4))
    other = net.q(net.node("Mish", [shared], "other"))
    total = net.q(net.node("Add", [net.dq(inner, "left"), net.dq(other, "right")], "total"))
    return net.model(net.dq(net.conv(total, "c2", 32), "y"))


def test_a_unit_beside_a_node_of_the_cpu_is_not_split() -> None:
    """The convolution may be in the subgraph before or after the CPU's node, its DequantizeLinear only before."""
    model = beside_the_cpu()
    plan = CORE.plan(model, "HETERO:NPU_INT8,CPU")
    assert [key for key, name in plan.affinity.items() if name == "CPU"] == [
        *("x_q", "shared/other", "other", "other_q", "y")
    ]
    assert plan.num_subgraphs == plan.lower_bound == 5
    x = np.random.default_rng(1).standard_normal((1, 3, 64, 64)).astype(np.float32)
    expected = CORE.compile_model(model, "CPU")({"x": x})[0]
    np.testing.assert_array_equal(CORE.compile_model(model, plan)({"x": x})[0], expected)
    # Within a limit that the moved nodes would exceed, they leave the device instead.
    needed = plan.totals[0].weight_bytes + plan.totals[0].activation_bytes
    for limit in range(needed - 20_000, needed + 1, 5_000):
        limited = CORE.plan(model, "HETERO:NPU_INT8,CPU", max_memory={"NPU_INT8": limit})
        assert limited.totals[0].weight_bytes + limited.totals[0].activation_bytes <= limit


def test_a_profile_over_a_profile_keeps_its_units(tmp_path: Path) -> None:
    listed = "\n".join(f"{op} = {{}}" for op in (Q, DQ, "Conv", "Add", "GlobalAveragePool", "Flatten", "Gemm"))
    (tmp_path / "p.toml").write_text(f'name = "P"\nruns_on = "NPU_INT8"\n[ops]\n{listed}\n')
    core = hetero.Core()
    core.register_plugin("P", tmp_path / "p.toml")
    answer = core.query_model(network(), "P")
    assert "c0" not in answer  # its unit has a Relu
    assert {"a1", "pool", "flat", "gemm"} <= answer.keys()
    assert "runs it only together with nodes that P does not support" in answer.reasons["c0"]["P"]


# -- costs ---------------------------------------------------------------------------------------------------------


def test_units_compute_in_the_quantized_type_and_move_no_floats() -> None:
    net = Quantized(64, 64)
    model = net.model(net.conv(net.q("x"), "c", 3, relu=False))
    speed = DeviceSpeed(1e9, 1e9, flops_per_s_of={"int8": 1e12}, source=CostSource.PROFILE)
    units = [list(find_units(model, [QUANTIZED]))]
    alone, in_unit = (cost_table(model, ["D"], [speed], units=given).work[0] for given in ([[]], units))
    node, maker = model.find_key("c"), model.find_key("c_x")
    assert node is not None
    assert maker is not None
    flops = 2 * 3 * 9 * 64 * 64 * 64
    assert alone[node] == pytest.approx(flops / 1e9, rel=0.1)
    assert in_unit[node] == pytest.approx(flops / 1e12, rel=0.1)  # reads and writes nothing outside of its unit
    assert in_unit[maker] == pytest.approx((3 * 64 * 64 + 5) / 1e9)  # the int8 values, a scale and a zero point


def test_types_choose_the_speed(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(
        'name = "P"\nruns_on = "CPU"\n[ops]\nMatMul = {}\n[cost]\nflops_per_s = { float16 = 8e9, float32 = 2e9 }\n'
        "bytes_per_s = 1e15\n"
    )
    core = hetero.Core()
    core.register_plugin("P", path)
    seconds = {}
    for dtype in (TensorProto.FLOAT16, TensorProto.FLOAT, TensorProto.DOUBLE):
        ports = [helper.make_tensor_value_info(name, dtype, (100, 100)) for name in "xwy"]
        graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"], "m")], "g", ports[:2], ports[2:])
        model = core.read_model(helper.make_model(graph, ir_version=8))
        latency = core.plan(model, "HETERO:P", {"ASSIGNMENT": "COST"}).latency
        assert latency is not None
        seconds[dtype] = latency.work_s
    assert seconds == {
        TensorProto.FLOAT16: pytest.approx(2e6 / 8e9),
        TensorProto.FLOAT: pytest.approx(2e6 / 2e9),
        TensorProto.DOUBLE: pytest.approx(2e6 / 2e9),  # not listed: the lowest
    }


# -- the file --------------------------------------------------------------------------------------------------------

HEAD = 'name = "P"\nruns_on = "CPU"\n[ops]\nConv = {}\nRelu = {}\n'


def test_every_key(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(
        HEAD.replace("Conv = {}", "Conv = { static = true, max_size = { 0 = 1 }, align = { 1 = 8, -1 = 4 } }")
        + '[[patterns]]\nbefore = "Relu"\nchain = ["Conv|Relu", "Relu"]\nafter = "Conv"\n[subgraph]\nmin_nodes = 3\n'
        + "min_flops = 1e6\nmax_count = 2\n[cost]\nflops_per_s = { int8 = 4e12, float32 = 1e12 }\n"
        + 'memory_bytes = "512MiB"\nlink_latency_s = 0\n'
    )
    profile = load_profile(path)
    conv = profile.ops["Conv"]
    assert (conv.static, conv.max_size, conv.align) == (True, {0: 1}, {1: 8, -1: 4})
    assert profile.patterns == (Pattern((("Conv", "Relu"), ("Relu",)), ("Relu",), ("Conv",)),)
    assert profile.least == LeastSubgraph(3, 1e6)
    assert profile.most_subgraphs == 2
    assert profile.cost.flops_per_s == 1e12
    assert profile.cost.flops_per_s_of == {"int8": 4e12, "float32": 1e12}
    assert profile.cost.memory_bytes == 512 << 20
    assert profile.cost.link_latency_s == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[cost]\nmemory_bytes = "512XB"', r"cost.memory_bytes: unknown unit 'XB'"),
        ("[cost]\nflops_per_s = { int9 = 1 }", r"cost.flops_per_s.int9: not an element type \(did you mean int"),
        ("[cost]\nflops_per_s = { int8 = -1 }", r"cost.flops_per_s.int8: expected a positive number, found -1"),
        ("[cost]\nflops_per_s = {}", r"cost.flops_per_s: expected a positive number, found {}"),
        ("[subgraph]\nmin_node = 3", r"subgraph.min_node: unknown key"),
        ("[subgraph]\nmin_nodes = 2.5", r"subgraph: nodes: expected a whole number of at least 0, found 2.5"),
        ("[subgraph]\nmax_count = 0", r"subgraph.max_count: expected an integer of at least 1, found 0"),
        ("[subgraph]\nmax_count = true", r"subgraph.max_count: expected an integer of at least 1, found True"),
        ("[patterns]\nchain = []", r"patterns: expected tables \[\[patterns\]\]"),
        ("[[patterns]]\nchain = []", r"patterns 1.chain: expected a list"),
        ('[[patterns]]\nchain = ["Gemm"]', r"patterns 1.chain: 'Gemm' is not listed under \[ops\]"),
        ('[[patterns]]\nchain = ["Conv"]\nbefor = "Relu"', r"patterns 1.befor: unknown key \(did you mean before"),
        ('[[patterns]]\nchain = ["Conv"]\nafter = 3', r"patterns 1.after: expected an operator"),
        ('[[patterns]]\nchain = ["Conv"]\ndtypes = ["int9"]', r"patterns 1.dtypes: 'int9' is not an element type"),
    ],
)
def test_wrong_keys(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "p.toml"
    path.write_text(HEAD + text)
    with pytest.raises(PropertyError, match=message):
        load_profile(path)


@pytest.mark.parametrize(
    "limits", ["static = 1", "align = 8", "align = { a = 8 }", "max_size = { 0 = 0 }", "align = {}"]
)
def test_wrong_limits(tmp_path: Path, limits: str) -> None:
    path = tmp_path / "p.toml"
    path.write_text(HEAD.replace("Conv = {}", f"Conv = {{ {limits} }}"))
    with pytest.raises(PropertyError, match=r"ops.Conv.(static|align|max_size): expected"):
        load_profile(path)


@pytest.mark.parametrize(
    ("limits", "shape", "refused"),
    [
        ("static = true", (1, 8, 4, 4), None),
        (
            "static = true",
            ("n", 8, 4, 4),
            r"only with known sizes \(set with shapes=.* or --shape\), found unknown ones in '",
        ),
        ("max_size = { 0 = 2 }", (2, 8, 4, 4), None),
        ("max_size = { 0 = 2 }", (3, 8, 4, 4), "at most 2 along axis 0, found 3"),
        ("max_size = { 0 = 2 }", ("n", 8, 4, 4), "at most 2 along axis 0, found an unknown one in '"),
        ("max_size = { 4 = 1 }", (3, 8, 4, 4), None),
        ("align = { 1 = 8 }", (1, 8, 4, 4), None),
        ("align = { 1 = 8 }", (1, 0, 4, 4), None),
        ("align = { 1 = 3 }", (1, 8, 4, 4), "a multiple of 3 along axis 1, found 8"),
        ("align = { -1 = 4 }", (1, 8, 5, 4), None),
        ("align = { -2 = 4 }", (1, 8, 5, 4), "a multiple of 4 along axis -2, found 5"),
    ],
)
def test_limits_on_shapes(tmp_path: Path, limits: str, shape: tuple[Any, ...], refused: str | None) -> None:
    path = tmp_path / "p.toml"
    path.write_text(f'name = "P"\nruns_on = "CPU"\n[ops]\nAdd = {{ {limits} }}\n')
    core = hetero.Core()
    core.register_plugin("P", path)
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    constant = numpy_helper.from_array(np.ones((1, 1, 1, 1), np.float32), "w")  # is not limited
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"], "a")], "g", ports[:1], ports[1:], [constant])
    answer = core.query_model(helper.make_model(graph, ir_version=8), "P")
    if refused is None:
        assert answer == {"a": "P"}
    else:
        assert re.search(refused, answer.reasons["a"]["P"]), answer.reasons


@pytest.mark.parametrize("device", SHIPPED)
def test_shipped_profiles_are_complete(device: str) -> None:
    folder = Path(hetero.__file__).parent / "profiles"
    path = folder / f"{device.lower()}.toml"
    profile = load_profile(path)
    assert profile.name == device
    cost = profile.cost
    assert None not in (cost.flops_per_s, cost.bytes_per_s, cost.launch_s, cost.link_bytes_per_s, cost.memory_bytes)
    head = path.read_text().partition("name =")[0]
    assert "estimate" in head  # says which figures are sourced and which are not
    assert device == "FPGA" or "https://" in head


def test_dynamic_sizes_are_refused_until_they_are_stated() -> None:
    model = network(batch="n")
    assert set(CORE.plan(model, "HETERO:NPU_INT8,CPU").affinity.values()) == {"CPU"}
    assert not CORE.query_model(model, "NPU_INT8")
    assert len(CORE.query_model(model, "NPU_INT8", shapes={"x": (1, 3, 56, 56)})) == model.num_nodes - 3
    plan = CORE.plan(model, "HETERO:NPU_INT8,CPU", shapes={"x": (1, 3, 56, 56)})
    assert "NPU_INT8" in plan.affinity.values()
    plan = CORE.plan(model, "HETERO:EDGE_TPU,CPU", shapes={"x": (2, 3, 56, 56)})  # takes one image at a time
    assert set(plan.affinity.values()) == {"CPU"}


def test_a_pattern_does_not_slow_down_large_models() -> None:
    """Linear in the number of nodes: five times the nodes take less than six times as many calls."""
    calls = []

    def count_call(*_: object) -> None:
        calls[-1] += 1

    for count in (1_000, 5_000):
        net = Quantized()
        value = net.q("x")
        for i in range(count):
            value = net.q(net.node("Relu", [net.dq(value, f"d{i}")], f"r{i}"))
        value = net.dq(value)
        for i in range(count):
            value = net.node("Identity", [value], f"i{i}")
        model = net.model(net.q(value))
        calls.append(0)
        before = sys.getprofile()
        sys.setprofile(count_call)
        try:
            units = list(find_units(model, [Pattern((("Relu", "Identity"),), (DQ,), (Q,))]))
        finally:
            sys.setprofile(before)
        assert len(units) == count
    assert 4 * calls[0] < calls[1] < 6 * calls[0]
