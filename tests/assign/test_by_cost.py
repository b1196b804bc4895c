"""Plans by cost: ``ASSIGNMENT=COST``."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from onnx import helper

import hetero
from chains import chain_proto, costs_of
from hetero.assign.affinity import Origin
from hetero.assign.costs import Costs, Measurement, NodeTimes, cost_table
from hetero.assign.costs.measured import WrongModel
from hetero.errors import PropertyError
from hetero.plugin import CostSource, DeviceSpeed
from model_zoo import light, make_model

CORE = hetero.Core()
BY_COST = {"ASSIGNMENT": "COST"}


def chain(count=6, shape=(64, 64)):
    return CORE.read_model(chain_proto(count, shape))


def test_priority_is_the_default():
    plan = CORE.plan(chain(), "HETERO:TEMPLATE,CPU")
    assert set(plan.affinity.values()) == {"TEMPLATE"}
    assert plan.latency is None


def test_measured_costs_decide():
    model = chain(4)
    costs = costs_of(model, CPU=[1, 9, 9, 1], TEMPLATE=[5, 5, 5, 5])
    plan = CORE.plan(model, "HETERO:TEMPLATE,CPU", {**BY_COST, "COSTS": costs})
    assert [plan.affinity[f"n{i}"] for i in range(4)] == ["CPU", "TEMPLATE", "TEMPLATE", "CPU"]
    assert plan.latency.total_s == pytest.approx(12e-6)
    assert plan.latency.by_priority_s == pytest.approx(20e-6)
    assert plan.latency.lower_bound_s == pytest.approx(12e-6)
    assert dict(plan.latency.sources) == {"measured": 4}
    assert "1 µs (measured) here, 5 µs (measured) on TEMPLATE" in plan.reasons["n0"]
    assert "predicted: 12 µs" in str(plan)


def test_launches_make_islands_vanish():
    model = chain(4)
    costs = costs_of(model, launch_us=10.0, CPU=[1, 9, 9, 1], TEMPLATE=[5, 5, 5, 5])
    plan = CORE.plan(model, "HETERO:TEMPLATE,CPU", {**BY_COST, "COSTS": costs})
    assert plan.num_subgraphs == 1
    assert plan.latency.launches_s == pytest.approx(10e-6)


def test_pins_and_affinities_hold():
    model = chain(4)
    costs = costs_of(model, CPU=[1, 1, 1, 1], TEMPLATE=[50, 50, 50, 50])
    config = {**BY_COST, "COSTS": costs}
    plan = CORE.plan(model.with_affinity({"n2": "TEMPLATE"}), "HETERO:TEMPLATE,CPU", config, pins={"n1": "TEMPLATE"})
    assert [plan.affinity[f"n{i}"] for i in range(4)] == ["CPU", "TEMPLATE", "TEMPLATE", "CPU"]
    assert plan.assignment.affinity.origin.tolist() == [Origin.COST, Origin.PIN, Origin.MODEL, Origin.COST]


def test_nodes_go_only_where_they_are_taken(tmp_path):
    profile = tmp_path / "npu.toml"
    profile.write_text(
        'name = "NPU"\nruns_on = "CPU"\n[ops]\nExp = {}\n[cost]\nflops_per_s = 1e15\nbytes_per_s = 1e15\n'
    )
    core = hetero.Core()
    core.register_plugin("NPU", profile)
    nodes = [
        helper.make_node("Exp", ["x"], ["a"], "exp"),
        helper.make_node("Tanh", ["a"], ["b"], "tanh"),
        helper.make_node("Exp", ["b"], ["y"], "last"),
    ]
    model = core.read_model(make_model(nodes, {"x": [512, 512]}))
    plan = core.plan(model, "HETERO:CPU,NPU", BY_COST)
    assert plan.affinity == {"exp": "NPU", "tanh": "CPU", "last": "NPU"}
    assert plan.latency.sources == {"profile": 2, "estimate": 1}


def test_links_count_with_what_comes_from_the_host(tmp_path):
    """An NPU ten times as fast behind a link: worth it for many nodes, not for one."""
    profile = tmp_path / "npu.toml"
    profile.write_text(
        'name = "NPU"\nruns_on = "CPU"\n[ops]\nExp = {}\n[cost]\nflops_per_s = 1e12\nbytes_per_s = 2e11\n'
        "launch_s = 1e-6\nlink_bytes_per_s = 2e9\n"
    )
    core = hetero.Core()
    core.register_plugin("NPU", profile)
    found = {}
    for count in (1, 200):
        plan = core.plan(chain(count, (1024, 1024)), "HETERO:NPU,CPU", BY_COST)
        found[count] = set(plan.affinity.values()), plan.latency.transfers_s
    assert found[1] == ({"CPU"}, 0)
    assert found[200][0] == {"NPU"}
    assert found[200][1] == pytest.approx(2 * 4 * 1024**2 / 2e9)


@pytest.mark.parametrize("devices", ["HETERO:TEMPLATE,CPU", "HETERO:CPU,TEMPLATE"])
def test_results_are_right_and_never_predicted_worse(devices):
    proto, inputs = light("light_squeezenet")
    model = CORE.read_model(proto.SerializeToString())
    compiled = CORE.compile_model(model, devices, BY_COST)
    expected = CORE.compile_model(model, "CPU")(inputs)[0]
    np.testing.assert_allclose(compiled(inputs)[0], expected, rtol=1e-4, atol=1e-5)
    latency = compiled.plan.latency
    assert latency.total_s <= latency.by_priority_s
    assert latency.total_s == pytest.approx(latency.work_s + latency.launches_s + latency.transfers_s)
    assert set(compiled.plan.affinity.values()) == {"CPU"}


def test_a_small_gain_changes_nothing():
    model = chain(4)
    costs = costs_of(model, CPU=[99, 99, 99, 99], TEMPLATE=[100, 100, 100, 100])
    plan = CORE.plan(model, "HETERO:TEMPLATE,CPU", {**BY_COST, "COSTS": costs})
    assert set(plan.affinity.values()) == {"TEMPLATE"}


def test_saved_plans_keep_what_was_predicted(tmp_path):
    model = chain()
    plan = CORE.plan(model, "HETERO:TEMPLATE,CPU", BY_COST)
    plan.save(tmp_path / "plan.json")
    loaded = hetero.Plan.load(tmp_path / "plan.json")
    assert loaded.latency == plan.latency
    assert CORE.plan(model, loaded).latency == plan.latency
    assert CORE.compile_model(model, loaded).plan.affinity == plan.affinity


def test_costs_come_from_a_file(tmp_path):
    model = chain(4)
    costs_of(model, CPU=[1] * 4, TEMPLATE=[5] * 4).save(tmp_path / "costs.json")
    config = {**BY_COST, "COSTS": tmp_path / "costs.json"}
    assert CORE.plan(model, "HETERO:TEMPLATE,CPU", config).latency.total_s == pytest.approx(4e-6)


def test_the_cache_knows_costs_by_what_they_say(tmp_path):
    model = chain(4)
    path = tmp_path / "costs.json"
    config = {**BY_COST, "COSTS": str(path), "CACHE_DIR": str(tmp_path / "cache")}
    loaded, placed = [], []
    for cpu in (1, 1, 100):
        costs_of(model, CPU=[cpu] * 4, TEMPLATE=[5] * 4).save(path)
        compiled = CORE.compile_model(model, "HETERO:TEMPLATE,CPU", config)
        loaded.append(compiled.get_property("LOADED_FROM_CACHE"))
        placed.append(compiled.submodels[0].device)
    assert loaded == [False, True, False]
    assert placed == ["CPU", "CPU", "TEMPLATE"]


def test_errors():
    model = chain(4)
    other = costs_of(chain(5), CPU=[1] * 5)
    with pytest.raises(WrongModel):
        CORE.plan(model, "HETERO:TEMPLATE,CPU", {**BY_COST, "COSTS": other})
    with pytest.raises(PropertyError, match="has none of these"):
        CORE.plan(model, "HETERO:TEMPLATE,CPU", {**BY_COST, "COSTS": costs_of(model, FPGA=[1] * 4)})
    with pytest.raises(PropertyError, match="ASSIGNMENT"):
        CORE.plan(model, "HETERO:TEMPLATE,CPU", {"ASSIGNMENT": "CHEAP"})
    with pytest.raises(PropertyError, match="COSTS"):
        CORE.plan(model, "HETERO:TEMPLATE,CPU", {**BY_COST, "COSTS": 3})
    with pytest.raises(PropertyError, match="ASSIGNMENT"):
        CORE.compile_model(model, "CPU", BY_COST)


@pytest.mark.parametrize("field", ["flops_per_s", "bytes_per_s", "launch_s", "link_bytes_per_s", "node_s"])
def test_speeds_that_are_none(field):
    good = DeviceSpeed(1e9, 1e9)
    for value in (-1.0, float("nan"), float("inf")):
        with pytest.raises(PropertyError, match=field):
            dataclasses.replace(good, **{field: value})


def test_the_time_of_a_fused_group_is_shared_by_its_nodes():
    """The counter of n0 covers n1 and n2; in proportion to their estimates all three have a part."""
    model = chain(4)
    nodes = {
        "n0": NodeTimes(1, 12.0, 12.0),
        "n1": NodeTimes(1, 0.0, 0.0, fused=True),
        "n2": NodeTimes(1, 0.0, 0.0, fused=True),
        "n3": NodeTimes(1, 5.0, 5.0),
    }
    costs = Costs.of_model(model, [Measurement("CPU", {}, nodes)])
    table = cost_table(model, ["CPU"], [DeviceSpeed(1e9, 1e9)], costs)
    np.testing.assert_allclose(table.work[0], [4e-6, 4e-6, 4e-6, 5e-6])
    assert (table.source == CostSource.MEASURED).all()


def test_a_fused_group_at_the_start_goes_with_its_readers():
    model = chain(3)
    nodes = {
        "n0": NodeTimes(1, 0.0, 0.0, fused=True),
        "n1": NodeTimes(1, 0.0, 0.0, fused=True),
        "n2": NodeTimes(1, 9.0, 9.0),
    }
    table = cost_table(model, ["CPU"], [DeviceSpeed(1e9, 1e9)], Costs.of_model(model, [Measurement("CPU", {}, nodes)]))
    np.testing.assert_allclose(table.work[0], [3e-6, 3e-6, 3e-6])


def test_minima_are_scaled_to_the_least_inference():
    model = chain(2)
    nodes = {"n0": NodeTimes(2, 3.0, 2.0), "n1": NodeTimes(2, 3.0, 2.0)}
    table = cost_table(
        model, ["CPU"], [DeviceSpeed(1e9, 1e9)], Costs.of_model(model, [Measurement("CPU", {}, nodes, total_us=6.0)])
    )
    np.testing.assert_allclose(table.work[0], [3e-6, 3e-6])


def test_explain_tells_what_an_inference_would_take_elsewhere():
    model = chain(4)
    costs = costs_of(model, launch_us=1.0, CPU=[1, 9, 9, 1], TEMPLATE=[50, 50, 50, 50])
    plan = CORE.plan(model, "HETERO:TEMPLATE,CPU", {**BY_COST, "COSTS": costs}, pins={"n3": "TEMPLATE"})
    assert list(plan.affinity.values()) == ["CPU"] * 3 + ["TEMPLATE"]
    found = plan.explain("n2")
    assert found.origin == "cost"
    template, cpu = found.costs
    assert (template.device, template.work_s, template.source) == ("TEMPLATE", pytest.approx(50e-6), "measured")
    assert cpu.total_s == pytest.approx(plan.latency.total_s) == pytest.approx((19 + 50 + 2) * 1e-6)
    assert template.total_s == pytest.approx((10 + 100 + 2) * 1e-6)
    middle = plan.explain("n1").costs[0]  # which would be an island: two more launches
    assert middle.total_s == pytest.approx((10 + 100 + 4) * 1e-6)
    text = str(found)
    assert "  TEMPLATE: 50 µs (measured), in total 112 µs\n" in text
    assert "  CPU: 9 µs (measured), in total 71 µs (it is there)\n" in text
    assert plan.explain("n3").costs[1].total_s == pytest.approx((20 + 1) * 1e-6)  # a pin tells what it costs
    assert CORE.plan(model, "HETERO:TEMPLATE,CPU").explain("n2").costs == ()


def test_explained_costs_are_those_of_plans_with_that_node_pinned():
    proto, _ = light("light_squeezenet")
    model = CORE.read_model(proto.SerializeToString())
    plan = CORE.plan(model, "HETERO:TEMPLATE,CPU", BY_COST)
    pins = dict(plan.affinity)
    for node in list(pins)[3:60:19]:
        for cost in plan.explain(node).costs:
            there = CORE.plan(model, "HETERO:TEMPLATE,CPU", BY_COST, pins={**pins, node: cost.device})
            assert cost.total_s == pytest.approx(there.latency.total_s)


def test_what_if_assigns_by_cost_again():
    model = chain(4)
    costs = costs_of(model, launch_us=10.0, CPU=[1, 9, 9, 1], TEMPLATE=[5, 5, 5, 5])
    config = {**BY_COST, "COSTS": costs}
    plan = CORE.plan(model, "HETERO:CPU,TEMPLATE", config)
    assert not plan.what_if().moved
    for pins in ({"n1": "TEMPLATE"}, {"n1": "TEMPLATE", "n2": "CPU"}, {"n.": "CPU"}):
        difference = plan.what_if(pins=pins)
        there = CORE.plan(model, "HETERO:CPU,TEMPLATE", config, pins=pins)
        assert difference.latency_after_s == pytest.approx(there.latency.total_s)
        assert difference.subgraphs_after == there.num_subgraphs
        moved = {move.node: move.after for move in difference.moved}
        assert {**plan.affinity, **moved} == there.affinity
        assert f"predicted   30 µs -> {there.latency.total_s * 1e6:.3g} µs" in str(difference)
    plan = CORE.plan(model, "HETERO:CPU,TEMPLATE", config, pins={"n0": "CPU"})
    assert plan.what_if(without_pins=["n0"]).latency_after_s == pytest.approx(30e-6)


def test_what_if_a_device_took_more_goes_by_cost(tmp_path):
    """An NPU that takes Exp; if it took Tanh, too, nothing would have to come back for that."""
    profile = tmp_path / "npu.toml"
    profile.write_text(
        'name = "NPU"\nruns_on = "CPU"\n[ops]\nExp = {}\n[cost]\nflops_per_s = 1e13\nbytes_per_s = 1e12\n'
        "link_bytes_per_s = 8e9\n"
    )
    core = hetero.Core()
    core.register_plugin("NPU", profile)
    nodes = [helper.make_node(op, [f"v{i}"], [f"v{i + 1}"], f"n{i}") for i, op in enumerate(["Exp", "Tanh"] * 10)]
    model = core.read_model(make_model(nodes, {"v0": [512, 512]}, ["v20"]))
    plan = core.plan(model, "HETERO:CPU,NPU", BY_COST)
    assert set(plan.affinity.values()) == {"CPU"}
    difference = plan.what_if(device_supports={"NPU": ["Tanh"]})
    assert len(difference.moved) == 20
    assert difference.latency_after_s < 0.8 * difference.latency_before_s
