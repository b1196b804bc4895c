"""Operators that the CPU plans as the function of others that ONNX defines them by."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from hetero import Core, InferenceError
from hetero.devices.cpu.control_flow.bodies import Bodies
from hetero.devices.cpu.planner import Planner
from hetero.devices.cpu.registry import examine
from single_node import assert_as_onnxruntime, model, run
from template_runs import difference, run_on_template

_rng = np.random.default_rng(5)


def f(*shape: int) -> np.ndarray:
    return _rng.standard_normal(shape).astype(np.float32)


def refusal(proto: onnx.ModelProto) -> str:
    core = Core()
    (reasons,) = core.query_model(core.read_model(proto), "CPU").reasons.values()
    return reasons["CPU"]


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("ignore_index", [None, 1, -5])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_body_within_a_body(reduction: str, ignore_index: int | None, weighted: bool) -> None:
    labels = np.array([[0, 1, 2], [3, 1, 1]])
    if ignore_index is not None:
        labels[0, 0] = ignore_index
    arrays = [f(2, 4, 3), labels] + ([np.abs(f(4))] if weighted else [])
    attributes: dict[str, Any] = {"reduction": reduction}
    if ignore_index is not None:
        attributes["ignore_index"] = ignore_index
    assert_as_onnxruntime("SoftmaxCrossEntropyLoss", arrays, 2, opset=13, **attributes)


def test_a_label_outside_the_classes_names_the_node() -> None:
    feeds = {"x": f(2, 4), "t": np.array([0, 4])}
    node = helper.make_node("NegativeLogLikelihoodLoss", ["x", "t"], ["y"], name="loss")
    with pytest.raises(InferenceError, match="loss.*index"):
        run(model([node], feeds, ["y"], 13), feeds)


def test_an_output_left_out_in_the_middle() -> None:
    feeds = {name: f(1, 2, 3, 4) for name in "qkv"}
    node = helper.make_node("Attention", ["q", "k", "v"], ["y", "", "", "products"])
    graph = helper.make_graph(
        [node],
        "graph",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 2, 3, 4)) for name in feeds],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "products")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    for found, wanted in zip(run(proto, feeds), run_on_template(proto, list(feeds.values())), strict=True):
        assert difference(found, wanted, 1e-4, 1e-5) is None


def test_a_body_that_waits_for_data_goes_on_where_it_stopped() -> None:
    """CenterCropPad pads and cuts to a shape that depends on data; what comes before in the plan is kept."""
    x = f(5, 6)
    nodes = [
        helper.make_node("ReduceMax", ["sizes"], ["large"], keepdims=0),
        helper.make_node("ReduceMin", ["sizes"], ["small"], keepdims=0),
        helper.make_node("Unsqueeze", ["large", "zero"], ["rows"]),
        helper.make_node("Unsqueeze", ["small", "zero"], ["columns"]),
        helper.make_node("Concat", ["rows", "columns"], ["shape"], axis=0),
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("CenterCropPad", ["e", "shape"], ["c"]),
        helper.make_node("Neg", ["c"], ["y"]),
    ]
    feeds = {"x": x, "sizes": np.array([3, 8, 4]), "zero": np.zeros(1, np.int64)}
    proto = model(nodes, feeds, ["y"], 18)
    for sizes in ([3, 8, 4], [2, 2, 3], [7, 9, 7]):
        feeds["sizes"] = np.array(sizes)
        (wanted,) = run_on_template(proto, list(feeds.values()))
        assert difference(run(proto, feeds)[0], wanted, 1e-5, 1e-6) is None


def test_shapes_and_constants_of_a_body_make_no_call() -> None:
    proto = model([helper.make_node("Attention", ["q", "k", "v"], ["y"])], {n: f(1, 2, 3, 4) for n in "qkv"}, ["y"], 23)
    core = Core()
    read = core.read_model(proto)
    plans, reasons = examine(read, Bodies())
    assert not reasons
    segment = Planner(read, plans).first([(1, 2, 3, 4)] * 3, [np.dtype(np.float32)] * 3)
    assert not segment.needs
    assert segment.program.num_calls <= 12  # of 66 nodes


def test_equal_nodes_share_a_body() -> None:
    nodes = [
        helper.make_node("MeanVarianceNormalization", ["x"], ["a"]),
        helper.make_node("MeanVarianceNormalization", ["a"], ["b"]),
        helper.make_node("MeanVarianceNormalization", ["b"], ["y"], axes=[1]),
    ]
    bodies = Bodies()
    plans, reasons = examine(Core().read_model(model(nodes, {"x": f(2, 3, 4, 5)}, ["y"], 13)), bodies)
    assert not reasons
    assert plans[0].operator is plans[1].operator is not plans[2].operator


def test_the_reason_names_the_operator_within() -> None:
    feeds = {"x": f(1, 4), "target": np.zeros(1, np.int8)}
    text = refusal(model([helper.make_node("NegativeLogLikelihoodLoss", list(feeds), ["y"])], feeds, ["y"], 13))
    assert text.startswith("no kernel for NegativeLogLikelihoodLoss; GatherElements in its definition: ")


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (helper.make_node("CenterCropPad", ["x"], ["y"]), "without its input 1 (shape)"),
        (helper.make_node("CenterCropPad", ["x", ""], ["y"]), "without its input 1 (shape)"),
        (helper.make_node("CenterCropPad", ["x", "s"], ["y"], axes="text"), "of type STRING; expected INTS"),
        (helper.make_node("CenterCropPad", ["x", "s"], ["y"], other=1), "with attribute 'other'"),
        (
            helper.make_node("CausalConvWithState", ["x", "x", ""], ["y", "z"], activation=1),
            "of type INT; expected STRING",
        ),
        (helper.make_node("CausalConvWithState", ["x", "x"], ["y"], activation="other"), "CausalConvWithState"),
        (helper.make_node("HannWindow", ["s"], ["y"], output_datatype=-(1 << 63)), "HannWindow"),
        (helper.make_node("SoftmaxCrossEntropyLoss", ["x", "s"], ["", "y"]), "without its output output"),
    ],
)
def test_nodes_that_do_not_fit_their_schema_never_reach_onnx(node: onnx.NodeProto, expected: str) -> None:
    feeds = {"x": f(2, 4), "s": np.array([1, 2])}
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    graph = helper.make_graph([node], "graph", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    text = refusal(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 27)], ir_version=8))
    assert expected in text
