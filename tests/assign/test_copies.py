"""A DequantizeLinear for each reader: plans in which no float32 value passes, and their files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import hetero
from hetero.assign.copies import wide_cuts
from hetero.model.copies import copies_named, may_copy, with_copies
from hetero.model.read import read_model
from quantized_blocks import residual

CORE = hetero.Core()
DQ = "DequantizeLinear"
LIST = "HETERO:NPU_INT8,CPU"
X = {"x": np.random.default_rng(0).standard_normal((1, 32, 24, 24)).astype(np.float32)}


@pytest.mark.parametrize("config", [{}, {"ASSIGNMENT": "COST"}, {"OBJECTIVE": "LATENCY"}])
def test_values_pass_in_the_quantized_type(config: dict[str, str], tmp_path: Path) -> None:
    model = residual(2)
    plan = CORE.plan(model, LIST, config, pins={"op:Conv": "NPU_INT8"})  # also where costs prefer the CPU
    assert {value.dtype for value in plan.values} == {"int8"}
    assert plan.affinity["shared0"] == "NPU_INT8"
    assert plan.affinity["shared0/mish0"] == plan.affinity["mish0"] == "CPU"
    assert plan.affinity["sum0"] == "NPU_INT8"
    assert plan.num_nodes == model.num_nodes + 2
    expected = CORE.compile_model(model, "CPU")(X)["y"]
    path = tmp_path / "plan.json"
    plan.save(path)
    loaded = hetero.Plan.load(path)
    for one in (plan, loaded):
        np.testing.assert_array_equal(CORE.compile_model(model, one)(X)["y"], expected)
    again = CORE.plan(model, loaded)
    assert (again.affinity, again.subgraphs) == (plan.affinity, plan.subgraphs)
    assert str(plan.explain("shared0/mish0")).startswith("'shared0/mish0' (DequantizeLinear) is on CPU")
    compiled = CORE.compile_model(model, plan)
    compiled.export_model(tmp_path / "m.hetero")
    np.testing.assert_array_equal(CORE.import_model(tmp_path / "m.hetero")(X)["y"], expected)
    if "ASSIGNMENT" in config:
        assert plan.latency is not None
        total = plan.assignment.predict(plan.assignment.partition).total
        assert plan.latency.total_s == pytest.approx(total)


def test_weights_that_two_devices_read_have_two_dequantizers() -> None:
    model = residual(2, shared_weights=True)
    plan = CORE.plan(model, LIST, pins={"conv0": "CPU"})
    assert plan.affinity["conv1"] == plan.affinity["weight0/conv1"] == "NPU_INT8"
    expected = CORE.compile_model(model, "CPU")(X)["y"]
    np.testing.assert_array_equal(CORE.compile_model(model, plan)(X)["y"], expected)


def test_nodes_that_the_user_places_and_lists_without_units_have_no_copies() -> None:
    model = residual()
    assert CORE.plan(model, LIST).num_nodes == model.num_nodes + 1
    pinned = CORE.plan(model, LIST, pins={"shared0": "NPU_INT8"})
    grouped = CORE.plan(model, LIST, {"STAY_TOGETHER": [["shared0", "conv0"]]})
    annotated = CORE.plan(model.with_affinity({"shared0": "NPU_INT8"}), LIST)
    without_units = CORE.plan(model, "HETERO:CPU,TEMPLATE", pins={"mish0": "TEMPLATE"})
    assert {plan.num_nodes for plan in (pinned, grouped, annotated, without_units)} == {model.num_nodes}


DSP = "HETERO:DSP_INT8,CPU"


@pytest.mark.parametrize("pins", [{}, {"op:Conv": "CPU"}])
def test_the_smaller_value_passes_where_a_device_quantizes_alone(pins: dict[str, str], tmp_path: Path) -> None:
    model = residual(2)
    plan = CORE.plan(model, DSP, pins=pins)
    assert {value.dtype for value in plan.values} == {"int8"}
    assert plan.affinity["left0"] == plan.affinity["sum0"] == "DSP_INT8"
    assert plan.affinity["mish0"] == plan.affinity["mish0_q"] == "CPU"
    assert plan.affinity["conv0"] == plan.affinity["conv0_q"] == pins.get("op:Conv", "DSP_INT8")
    assert plan.reasons["mish0_q"].endswith("DSP_INT8: its input is made on CPU and is larger than its result")
    expected = CORE.compile_model(model, "CPU")(X)["y"]
    plan.save(tmp_path / "plan.json")
    for one in (plan, hetero.Plan.load(tmp_path / "plan.json")):
        np.testing.assert_array_equal(CORE.compile_model(model, one)(X)["y"], expected)


def test_nodes_that_stay_at_a_wide_cut() -> None:
    model, pins = residual(), {"conv0": "CPU"}
    assert CORE.plan(model, DSP, pins={**pins, "conv0_q": "DSP_INT8"}).affinity["conv0_q"] == "DSP_INT8"
    grouped = CORE.plan(model, DSP, {"STAY_TOGETHER": [["conv0_q", "left0"]]}, pins=pins)
    assert grouped.affinity["conv0_q"] == grouped.affinity["left0"]
    stated = CORE.plan(model.with_affinity({"conv0_q": "DSP_INT8"}), DSP, pins=pins)
    assert stated.affinity["conv0_q"] == "DSP_INT8"
    # The float32 result of the Mish also passes to a Relu of the DSP, so its QuantizeLinear gains nothing elsewhere.
    proto = onnx.load_from_string(model.to_bytes())
    proto.graph.node.append(helper.make_node("Relu", ["mish0"], ["relu_y"], "relu"))
    proto.graph.output.append(helper.make_empty_tensor_value_info("relu_y"))
    read = CORE.plan(proto, DSP, pins=pins)
    assert (read.affinity["relu"], read.affinity["mish0_q"]) == ("DSP_INT8", "DSP_INT8")
    assert read.affinity["conv0_q"] == "CPU"


@pytest.mark.parametrize(("quantized", "place"), [("int8", "CPU"), ("int16", "ANY")])
def test_a_cut_is_wide_only_if_the_other_value_is_smaller(quantized: str, place: str, tmp_path: Path) -> None:
    """A QuantizeLinear and a DequantizeLinear on ANY, of float16 values that the CPU makes and reads."""
    (tmp_path / "any.toml").write_text(
        """
        name = "ANY"
        runs_on = "TEMPLATE"
        [ops]
        Abs = {}
        DequantizeLinear = {}
        QuantizeLinear = {}
        [[patterns]]
        chain = ["Abs"]
        """
    )
    core = hetero.Core()
    core.register_plugin("ANY", str(tmp_path / "any.toml"))
    nodes = [
        helper.make_node("Mish", ["x"], ["a"], "mish"),
        helper.make_node("QuantizeLinear", ["a", "scale", "zero"], ["b"], "q"),
        helper.make_node("Abs", ["b"], ["c"], "abs"),
        helper.make_node(DQ, ["c", "scale", "zero"], ["d"], "dq"),
        helper.make_node("Mish", ["d"], ["y"], "last"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, (64,))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, (64,))],
        [
            numpy_helper.from_array(np.array(0.5, np.float16), "scale"),
            numpy_helper.from_array(np.array(0, quantized), "zero"),
        ],
    )
    model = read_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10))
    plan = core.plan(model, "HETERO:ANY,CPU")
    assert plan.affinity == {"mish": "CPU", "q": place, "abs": "ANY", "dq": place, "last": "CPU"}
    assert list(wide_cuts(plan.assignment)) == []


@pytest.mark.parametrize("size", [24, "n"])
def test_copies_without_known_sizes(size: int | str, tmp_path: Path) -> None:
    (tmp_path / "any.toml").write_text(
        """
        name = "ANY"
        runs_on = "CPU"
        [ops]
        Conv = {}
        Add = {}
        DequantizeLinear = {}
        QuantizeLinear = {}
        [[patterns]]
        before = "DequantizeLinear"
        chain = ["Conv|Add"]
        after = "QuantizeLinear"
        """
    )
    core = hetero.Core()
    core.register_plugin("ANY", str(tmp_path / "any.toml"))
    proto = onnx.load_from_string(residual().to_bytes())
    del proto.graph.value_info[:]
    proto.graph.input[0].type.tensor_type.shape.dim[3].dim_param = "n"
    if size != "n":
        proto.graph.input[0].type.tensor_type.shape.dim[3].dim_value = 24
    plan = core.plan(proto, "HETERO:ANY,CPU")
    assert plan.affinity["shared0/mish0"] == "CPU"
    assert {value.dtype for value in plan.values} == {"int8"}
    expected = core.compile_model(proto, "CPU")(X)["y"]
    np.testing.assert_array_equal(core.compile_model(proto, plan)(X)["y"], expected)


def test_plans_of_other_models_and_edited_plans() -> None:
    model = residual()
    data = json.loads(CORE.plan(model, LIST).to_json())
    data["affinity"]["shared0/nothing"] = "CPU"
    with pytest.raises(hetero.PropertyError, match="places node 'shared0/nothing', which model 'residual' does not"):
        CORE.plan(model, hetero.Plan.from_json(json.dumps(data).encode(), "p.json"))
    del data["affinity"]["shared0/nothing"], data["affinity"]["shared0/mish0"]
    data["subgraphs"] = []
    data["affinity"].update(dict.fromkeys(["left0", "right0", "sum0", "sum0_q"], "CPU"))
    bound = CORE.plan(
        model, hetero.Plan.from_json(json.dumps(data).encode(), "p.json")
    )  # the float32 value passes again
    assert bound.num_nodes == model.num_nodes


def test_copies_of_a_chain_and_names() -> None:
    """A copied node may read a copy, keys may contain slashes, and names that are taken are not used."""
    nodes = [
        helper.make_node(DQ, ["x", "s"], ["/a/d"], "/a/d"),
        helper.make_node("Neg", ["/a/d"], ["/a/e"], "/a/e"),
        helper.make_node("Add", ["/a/e", "/a/e"], ["t"], "/b/f"),
        helper.make_node("Abs", ["/a/e"], ["/a/e//c/g"], "/c/g"),
        helper.make_node("Mul", ["t", "/a/e//c/g"], ["u"]),
        helper.make_node("Sub", ["/a/d", "u"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.INT8, (3,))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (3,))],
        [numpy_helper.from_array(np.float32(0.5), "s")],
    )
    model = read_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9))
    assert not may_copy(model, 1, 3)  # a value has the name of the copy
    assert not may_copy(model, 0, 2)  # does not read it
    pairs = [(0, 1), (1, 2)]
    copied, source = with_copies(model, pairs)
    assert source.tolist() == [0, 0, 1, 1, 2, 3, 4, 5]
    assert copies_named(model, ["/a/d//a/e", "/a/e//b/f", "/b/f", "/a/d//b/f", "/" * 100_000]) == pairs
    onnx.checker.check_model(copied.to_bytes(), full_check=True)
    x = {"x": np.array([-4, 0, 5], np.int8)}
    expected = CORE.compile_model(model, "TEMPLATE")(x)["y"]
    np.testing.assert_array_equal(CORE.compile_model(copied, "TEMPLATE")(x)["y"], expected)
