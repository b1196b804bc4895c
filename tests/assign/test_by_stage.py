"""Plans of pipelines: ``MODEL_DISTRIBUTION_POLICY=PIPELINE_PARALLEL``."""

from __future__ import annotations

import json

import numpy as np
import pytest
from onnx import TensorProto, helper

import hetero
from chains import chain_proto, costs_of
from hetero.assign.affinity import Origin
from hetero.assign.costs.measured import WrongModel
from hetero.assign.pipeline import PipelineError, TooManyStages
from hetero.errors import PropertyError
from model_zoo import make_model, minilm
from quantized_blocks import residual

PIPELINE = {"MODEL_DISTRIBUTION_POLICY": "PIPELINE_PARALLEL"}
CORE = hetero.Core()


def chain(count=6, shape=(64, 64)):
    return CORE.read_model(chain_proto(count, shape))


def stages_of(plan):
    return [plan.affinity[f"n{i}"] for i in range(plan.num_nodes)]


def test_the_property():
    assert "MODEL_DISTRIBUTION_POLICY" in CORE.get_property("HETERO", "SUPPORTED_PROPERTIES")
    assert CORE.get_property("HETERO", "MODEL_DISTRIBUTION_POLICY") == ""
    model = chain()
    assert CORE.plan(model, "HETERO:CPU,TEMPLATE", {"MODEL_DISTRIBUTION_POLICY": ""}).pipeline is None
    for wrong in ("TENSOR_PARALLEL", "pipeline_parallel", None, 1):
        with pytest.raises(PropertyError, match="MODEL_DISTRIBUTION_POLICY"):
            CORE.plan(model, "HETERO:CPU,TEMPLATE", {"MODEL_DISTRIBUTION_POLICY": wrong})
    with pytest.raises(PropertyError, match="set only one of them"):
        CORE.plan(model, "HETERO:CPU,TEMPLATE", {**PIPELINE, "ASSIGNMENT": "COST"})


def test_measured_costs_decide():
    model = chain()
    costs = costs_of(model, CPU=[5, 1, 1, 1, 1, 1], TEMPLATE=[9] * 6)
    plan = CORE.plan(model, "HETERO:CPU,TEMPLATE", {**PIPELINE, "COSTS": costs})
    assert stages_of(plan) == ["CPU"] * 5 + ["TEMPLATE"]
    assert plan.pipeline.interval_s == pytest.approx(9e-6)
    assert plan.pipeline.latency_s == pytest.approx(18e-6)
    first, last = plan.pipeline.stages
    assert (first.device, first.subgraphs, first.nodes, dict(first.sources)) == ("CPU", (1,), 5, {"measured": 5})
    assert last.received_bytes == 64 * 64 * 4
    assert plan.latency is None
    assert plan.assignment.affinity.origin.tolist() == [Origin.STAGE] * 6
    assert plan.reasons["n5"] == "stage 2 of 2 of the pipeline; 9 µs (measured) here"
    assert plan.warnings == ()


def test_the_order_of_devices_is_that_of_stages():
    model = chain()
    costs = costs_of(model, CPU=[1] * 6, TEMPLATE=[3] * 6)
    plan = CORE.plan(model, "HETERO:TEMPLATE,CPU", {**PIPELINE, "COSTS": costs})
    assert stages_of(plan) == ["TEMPLATE"] + ["CPU"] * 5


def test_pins_and_affinities_hold():
    model = chain().with_affinity({"n3": "CPU.0"})
    plan = CORE.plan(model, "HETERO:CPU.0,CPU.1", PIPELINE, pins={"n4": "CPU.1"})
    assert stages_of(plan) == ["CPU.0"] * 4 + ["CPU.1"] * 2
    assert plan.reasons["n4"] == "pinned to CPU.1 by 'n4'"
    with pytest.raises(
        PipelineError, match=r"node 'n3' \(Exp\) can be only in stage 1 \(CPU.0\): affinity CPU.0 in the"
    ):
        CORE.plan(model, "HETERO:CPU.0,CPU.1", PIPELINE, pins={"n1": "CPU.1"})


def test_devices_that_do_not_take_what_comes_late(tmp_path):
    core = hetero.Core()
    for name, op in (("EXPS", "Exp"), ("TANHS", "Tanh")):
        profile = tmp_path / f"{name}.toml"
        profile.write_text(f'name = "{name}"\nruns_on = "CPU"\n[ops]\n{op} = {{}}\n[cost]\nflops_per_s = 1e9\n')
        core.register_plugin(name, profile)
    nodes = [
        helper.make_node("Exp", ["x"], ["a"], "exp"),
        helper.make_node("Tanh", ["a"], ["b"], "tanh"),
        helper.make_node("Tanh", ["b"], ["y"], "last"),
    ]
    model = core.read_model(make_model(nodes, {"x": [512, 512]}))
    plan = core.plan(model, "HETERO:EXPS,TANHS", PIPELINE)
    assert plan.affinity == {"exp": "EXPS", "tanh": "TANHS", "last": "TANHS"}
    with pytest.raises(PipelineError) as caught:
        core.plan(model, "HETERO:TANHS,EXPS", PIPELINE)
    text = str(caught.value)
    assert "node 'tanh' (Tanh) can be only in stage 1 (TANHS): EXPS: the profile of EXPS does not list Tanh" in text
    assert "in stage 2 (EXPS) or later, because node 'exp' (Exp) can be only in stage 2 (EXPS)" in text
    assert "List the devices in another order" in text


def test_more_stages_than_nodes():
    with pytest.raises(TooManyStages, match=r"3 stages, model 'graph' only 2 nodes; list at most"):
        CORE.plan(chain(2), "HETERO:CPU.0,CPU.1,TEMPLATE", PIPELINE)
    assert CORE.plan(chain(2), "HETERO:CPU.0,CPU.1", PIPELINE).num_subgraphs == 2


def test_devices_without_a_stage_are_told():
    model = chain(4)
    costs = costs_of(model, CPU=[1] * 4, TEMPLATE=[50] * 4)
    plan = CORE.plan(model, "HETERO:CPU,TEMPLATE", {**PIPELINE, "COSTS": costs})
    assert set(plan.affinity.values()) == {"CPU"}
    (warning,) = plan.warnings
    assert (warning.kind, warning.device) == ("unused", "TEMPLATE")
    assert "TEMPLATE has no stage: with all devices in use the slowest stage would take 50 µs, not 4 µs" in str(warning)
    plan = CORE.plan(chain(4), "HETERO:CPU,TEMPLATE", PIPELINE, pins={".*": "CPU"})
    assert "it supports only nodes that are pinned to other devices" in str(plan.warnings[0])


@pytest.mark.parametrize("devices", ["NPU_INT8,CPU", "CPU,NPU_INT8"])
def test_a_device_that_only_the_order_of_the_list_keeps_idle(devices):
    model = residual(2)
    (warning,) = CORE.plan(model, f"HETERO:{devices}", PIPELINE).warnings
    assert "depends on nodes of other devices, such as 'x_q' (QuantizeLinear)" in str(warning)
    assert "such as 'y' (DequantizeLinear), depend on each node that it supports" in str(warning)
    assert str(warning).endswith("list a device for these nodes before it and another one after it")


@pytest.mark.parametrize("pin", ["conv0", "conv1", "op:Conv"])
def test_a_pinned_node_has_its_unit_with_it(pin):
    """With both convolutions, only with a DequantizeLinear for each reader."""
    model, devices = residual(2), "HETERO:CPU.0,NPU_INT8,CPU.1"
    plan = CORE.plan(model, devices, PIPELINE, pins={pin: "NPU_INT8"})
    assert [stage.device for stage in plan.pipeline.stages] == ["CPU.0", "NPU_INT8", "CPU.1"]
    for node in ("conv0", "conv1"):
        if pin in (node, "op:Conv"):
            assert plan.affinity[node] == plan.affinity[f"{node}_q"] == "NPU_INT8"
    x = {"x": np.random.default_rng(0).standard_normal((1, 32, 24, 24)).astype(np.float32)}
    expected = CORE.compile_model(model, "CPU")(x)["y"]
    np.testing.assert_array_equal(CORE.compile_model(model, plan)(x)["y"], expected)


def test_costs_of_another_model():
    with pytest.raises(WrongModel):
        CORE.plan(chain(4), "HETERO:CPU.0,CPU.1", {**PIPELINE, "COSTS": costs_of(chain(5), CPU=[1] * 5)})


def test_as_text_and_file(tmp_path):
    model = chain(8)
    plan = CORE.plan(model, "HETERO:CPU.0,CPU.1", PIPELINE)
    text = str(plan)
    assert "pipeline of 2 stages: a result every" in text
    assert "1 CPU.0  |1-" in text
    assert "2 CPU.1  |....." in text
    plan.save(tmp_path / "plan.json")
    assert len(json.loads((tmp_path / "plan.json").read_text())["pipeline"]["stages"]) == 2
    loaded = hetero.Plan.load(tmp_path / "plan.json")
    assert loaded.pipeline == plan.pipeline
    assert str(loaded) == text
    assert CORE.plan(model, loaded).pipeline == plan.pipeline
    with pytest.raises(PropertyError, match="pipeline"):
        plan.what_if(pins={"n1": "CPU.1"})
    assert plan.missing_ops() == ()
    assert "stage 1 of 2 of the pipeline" in str(plan.explain("n0"))


def test_an_edited_plan_is_no_pipeline(tmp_path):
    model = chain(8)
    plan = CORE.plan(model, "HETERO:CPU.0,CPU.1", PIPELINE)
    plan.save(tmp_path / "plan.json")
    data = json.loads((tmp_path / "plan.json").read_text())
    data["affinity"]["n0"] = "CPU.1"
    (tmp_path / "plan.json").write_text(json.dumps(data))
    edited = CORE.plan(model, hetero.Plan.load(tmp_path / "plan.json"))
    assert edited.pipeline is None
    assert edited.num_subgraphs == 3


def test_a_stage_in_pieces_is_one_submodel():
    """Two towers that only join in the end: each stage holds pieces that no edge joins."""
    nodes = []
    for tower in "ab":
        last = "x"
        for i in range(4):
            nodes.append(helper.make_node("Exp", [last], [f"{tower}{i}"], f"n{tower}{i}"))
            last = f"{tower}{i}"
    nodes.append(helper.make_node("Add", ["a3", "b3"], ["y"], "join"))
    model = CORE.read_model(make_model(nodes, {"x": [32, 32]}))
    pins = {"na0": "CPU.0", "nb0": "CPU.0", "na3": "CPU.1", "nb3": "CPU.1"}
    plan = CORE.plan(model, "HETERO:CPU.0,CPU.1", PIPELINE, pins=pins)
    assert plan.num_subgraphs == 3
    assert [stage.subgraphs for stage in plan.pipeline.stages] == [(1, 2), (3,)]
    compiled = CORE.compile_model(model, plan)
    assert compiled.get_property("HETERO_NUMBER_OF_SUBMODELS") == 2
    x = np.random.default_rng(0).random((32, 32), np.float32) * 1e-3
    np.testing.assert_allclose(compiled(x)[0], CORE.compile_model(model, "CPU")(x)[0], rtol=1e-6)


def weighted_chain(count, wide=16):
    """Products by weights of [64, 64 * wide], means, and what makes them as wide as they were."""
    nodes, last = [], "x"
    weights = {f"w{i}": np.ones((64, 64 * wide), np.float32) for i in range(count)}
    for i in range(count):
        nodes.append(helper.make_node("MatMul", [last, f"w{i}"], [f"m{i}"], f"m{i}"))
        nodes.append(helper.make_node("ReduceMean", [f"m{i}", "axes"], [f"v{i}"], f"v{i}", keepdims=1))
        last = f"e{i}" if i + 1 < count else "y"
        nodes.append(helper.make_node("Expand", [f"v{i}", "shape"], [last], f"e{i}"))
    weights |= {"axes": np.array([1]), "shape": np.array([8, 64])}
    return CORE.read_model(make_model(nodes, {"x": [8, 64]}, weights=weights, opset=18))


def test_stages_stay_within_memory():
    model = weighted_chain(8)
    free = CORE.plan(model, "HETERO:CPU.0,CPU.1", PIPELINE)
    first, second = (entry.weight_bytes for entry in free.totals)
    assert 0.7 < first / second < 1.4
    limited = CORE.plan(model, "HETERO:CPU.0,CPU.1", {**PIPELINE, "MAX_MEMORY": {"CPU.0": "600KiB"}})
    first, second = (entry.weight_bytes for entry in limited.totals)
    assert 0 < first <= 600 * 1024 < second
    assert limited.pipeline.interval_s > free.pipeline.interval_s
    with pytest.raises(hetero.errors.InsufficientMemory, match=r"CPU\.[01]"):
        CORE.plan(model, "HETERO:CPU.0,CPU.1", {**PIPELINE, "MAX_MEMORY": {"CPU.0": "600KiB", "CPU.1": "1MiB"}})


def test_what_is_hard_about_models():
    """Unknown sizes, constants that two stages share, inputs of late stages, several outputs, control flow."""

    def branch(name, op):
        node = helper.make_node(op, ["c3"], [name])
        return helper.make_graph([node], name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)])

    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["c0"], "m0"),
        helper.make_node("MatMul", ["c0", "w"], ["c1"], "m1"),
        helper.make_node("MatMul", ["c1", "w"], ["c2"], "m2"),
        helper.make_node("Add", ["c2", "late"], ["c3"], "add"),
        helper.make_node("If", ["flag"], ["c4"], "if", then_branch=branch("t", "Exp"), else_branch=branch("e", "Neg")),
        helper.make_node("MatMul", ["c4", "w"], ["y"], "m3"),
    ]
    w = (np.random.default_rng(0).random((16, 16)) * 0.1).astype(np.float32)
    proto = make_model(nodes, {"x": ["n", 16], "late": ["n", 16]}, ("c1", "y"), {"w": w})
    proto.graph.input.append(helper.make_tensor_value_info("flag", TensorProto.BOOL, []))
    model = CORE.read_model(proto)
    plan = CORE.plan(
        model, "HETERO:CPU.0,TEMPLATE,CPU.1", PIPELINE, pins={"m0": "CPU.0", "add": "TEMPLATE", "m3": "CPU.1"}
    )
    assert [stage.device for stage in plan.pipeline.stages] == ["CPU.0", "TEMPLATE", "CPU.1"]
    compiled = CORE.compile_model(model, plan)
    whole = CORE.compile_model(model, "CPU")
    rng = np.random.default_rng(1)
    for rows in (1, 5, 3):
        for flag in (True, False):
            inputs = {"x": rng.random((rows, 16), np.float32), "late": rng.random((rows, 16), np.float32)}
            inputs["flag"] = np.array(flag)
            for found, expected in zip(compiled(inputs).values(), whole(inputs).values(), strict=True):
                np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_real_model():
    proto, inputs = minilm()
    model = CORE.read_model(proto)
    plan = CORE.plan(model, "HETERO:CPU.0,CPU.1", PIPELINE)
    assert plan.pipeline.interval_s < 1.1 * plan.pipeline.lower_bound_s
    found = CORE.compile_model(model, plan)(inputs)
    for name, expected in CORE.compile_model(model, "CPU")(inputs).items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-5)
