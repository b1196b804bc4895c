"""Plans that keep to memory limits."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from onnx import helper

import hetero
from chains import costs_of
from hetero.assign.affinity import Origin
from hetero.assign.memory import moves
from hetero.errors import PropertyError
from model_zoo import light, make_model

CORE = hetero.Core()
DEVICES = "HETERO:CPU.0,CPU.1"


def matmuls(count=6, width=64):
    """A chain of matrix products: 16 KiB of weights each, activations of 256 bytes."""
    nodes = [
        helper.make_node(
            "MatMul", ["x" if i == 0 else f"v{i}", f"w{i}"], ["y" if i == count - 1 else f"v{i + 1}"], f"n{i}"
        )
        for i in range(count)
    ]
    weights = {f"w{i}": np.full((width, width), 0.01 * (i + 1), np.float32) for i in range(count)}
    return CORE.read_model(make_model(nodes, {"x": [1, width]}, weights=weights))


# ---- plans


def test_what_does_not_fit_goes_on_and_says_why():
    plan = CORE.plan(matmuls(), DEVICES, max_memory={"CPU.0": "50KiB"})
    assert [plan.affinity[f"n{i}"] for i in range(6)] == ["CPU.0"] * 3 + ["CPU.1"] * 3
    assert plan.assignment.affinity.origin.tolist() == [Origin.PRIORITY] * 3 + [Origin.MEMORY] * 3
    assert plan.reasons["n3"].startswith(
        "CPU.1 because of memory limits: CPU.0 is limited to 51.2 kB, and its other nodes need 49.2 kB of weights"
    )
    totals = plan.totals
    assert [total.limit_bytes for total in totals] == [51200, None]
    assert [total.weight_bytes for total in totals] == [3 * 16384] * 2
    assert totals[0].weight_bytes + totals[0].activation_bytes <= 51200
    assert "limit" in str(plan)
    assert plan.explain("n3").origin == "memory"
    assert "CPU.0: supports it" in str(plan.explain("n3"))


def test_without_limits_nothing_changes():
    plan = CORE.plan(matmuls(), DEVICES)
    assert set(plan.affinity.values()) == {"CPU.0"}
    assert "limit" not in str(plan)
    assert plan.totals[0].activation_bytes == 3 * 256  # x, which the caller holds, and two more


def test_results_within_limits_are_right():
    proto, inputs = light("light_squeezenet")
    model = CORE.read_model(proto.SerializeToString())
    compiled = CORE.compile_model(model, DEVICES, max_memory={"CPU.0": "8MB"})
    assert len({part.device for part in compiled.plan.subgraphs}) == 2
    expected = CORE.compile_model(model, "CPU")(inputs)[0]
    np.testing.assert_allclose(compiled(inputs)[0], expected, rtol=1e-4, atol=1e-5)


def test_limits_are_a_property_too(tmp_path):
    model = matmuls()
    for config in ({"MAX_MEMORY": {"CPU.0": "50KiB"}}, {"MAX_MEMORY": "CPU.0=50KiB"}):
        assert CORE.plan(model, DEVICES, config).limits == {"CPU.0": 51200}
    plan = CORE.plan(model, DEVICES, {"MAX_MEMORY": {"CPU.0": 1}}, max_memory={"CPU.0": "50KiB"})
    assert plan.limits == {"CPU.0": 51200}  # the argument goes before
    core = hetero.Core()
    core.set_property("HETERO", {"MAX_MEMORY": {"CPU.0": "50KiB", "ORT": 5}})
    assert core.plan(model, DEVICES).limits == {"CPU.0": 51200}  # others may be in other lists
    with pytest.raises(PropertyError, match="'ORT', which is not in the list"):
        core.plan(model, DEVICES, {"MAX_MEMORY": {"ORT": 5}})
    with pytest.raises(PropertyError, match="-5 is negative"):
        core.set_property("HETERO", {"MAX_MEMORY": {"CPU.0": -5}})
    config = {"CACHE_DIR": str(tmp_path)}
    for size in ("50KiB", 51200, "40KiB"):  # the same limit is the same model
        core.compile_model(model, DEVICES, config, max_memory={"CPU.0": size})
    assert len(list(tmp_path.glob("*.hetero"))) == 2


def test_pins_hold_and_count():
    plan = CORE.plan(matmuls(), DEVICES, pins={"n5": "CPU.0"}, max_memory={"CPU.0": "50KiB"})
    assert [plan.affinity[f"n{i}"] for i in range(6)] == ["CPU.0"] * 2 + ["CPU.1"] * 3 + ["CPU.0"]
    with pytest.raises(
        hetero.InsufficientMemory, match="no assignment can fit, because 98.3 kB of weights can only be on"
    ):
        CORE.plan(matmuls(), DEVICES, pins={"n.": "CPU.0"}, max_memory={"CPU.0": "50KiB"})


def test_what_is_short_is_told():
    with pytest.raises(hetero.InsufficientMemory) as raised:
        CORE.plan(matmuls(), DEVICES, max_memory={"CPU": "40KiB"})
    error = raised.value
    assert isinstance(error, hetero.UnsupportedModel)
    assert error.shortfall == {"CPU.1": 4 * 16384 + 512 + 256 - 40960}
    assert "98.3 kB of weights can only be on CPU.0, CPU.1, which have 81.9 kB in total" in str(error)
    with pytest.raises(hetero.InsufficientMemory, match=r"'n0' .MatMul. alone reads and makes 16\.9 kB") as raised:
        CORE.plan(matmuls(), DEVICES, max_memory={"CPU": "10KiB"})
    assert set(raised.value.unsupported) == {"n0"}
    assert set(raised.value.unsupported["n0"]) == {"CPU.0", "CPU.1"}


def test_what_filling_misses_is_found_and_what_is_impossible_is_proven():
    """Three constants of 16 KiB share no device of 24 KiB, although two devices have more than 48 KiB in total. A node
    that reads the constant of another joins it where it is."""
    for config in ({}, {"ASSIGNMENT": "COST"}):
        with pytest.raises(hetero.InsufficientMemory, match="no assignment can fit: each possible one was tried"):
            CORE.plan(matmuls(3), DEVICES, config, max_memory={"CPU": "25KiB"})
        nodes = [
            helper.make_node("MatMul", ["x" if i == 0 else f"v{i}", f"w{i % 2}"], [f"v{i + 1}"], f"n{i}")
            for i in range(4)
        ]
        weights = {f"w{i}": np.full((64, 64), 0.01, np.float32) for i in range(2)}
        model = CORE.read_model(make_model(nodes, {"x": [1, 64]}, ["v4"], weights=weights))
        plan = CORE.plan(model, DEVICES, config, max_memory={"CPU": "25KiB"})
        assert plan.affinity["n0"] == plan.affinity["n2"] != plan.affinity["n1"] == plan.affinity["n3"]


def test_not_finding_one_proves_nothing(monkeypatch):
    monkeypatch.setattr(moves, "MAX_ASSIGNMENTS", 0)
    with pytest.raises(hetero.InsufficientMemory, match="no assignment was found that fits: raise a limit"):
        CORE.plan(matmuls(3), DEVICES, max_memory={"CPU": "25KiB"})


def test_a_device_alone_is_checked():
    assert CORE.plan(matmuls(), "CPU", max_memory={"CPU": "1MB"}).limits == {"CPU": 1_000_000}
    for ask in (CORE.plan, CORE.compile_model):
        with pytest.raises(hetero.InsufficientMemory, match=r"CPU would need 99\.1 kB"):
            ask(matmuls(), "CPU", max_memory={"CPU": "50KiB"})
        with pytest.raises(PropertyError, match="'CPU.1', which is not in the list CPU"):
            ask(matmuls(), "CPU", max_memory={"CPU.1": "50KiB"})
    assert CORE.compile_model(matmuls(), "CPU", max_memory={"CPU": "1MB"})(np.ones((1, 64), np.float32))[0].shape == (
        1,
        64,
    )


def profile(tmp_path, memory):
    path = tmp_path / "npu.toml"
    path.write_text(
        f'name = "NPU"\nruns_on = "CPU"\n[ops]\nMatMul = {{}}\nExp = {{}}\n[cost]\nmemory_bytes = {memory}\n'
    )
    core = hetero.Core()
    core.register_plugin("NPU", path)
    return core


def test_the_memory_of_a_profile_is_a_limit(tmp_path):
    core = profile(tmp_path, 51200)
    assert list(core.plan(matmuls(), "HETERO:NPU,CPU").affinity.values()) == ["NPU"] * 3 + ["CPU"] * 3
    plan = core.plan(matmuls(), "HETERO:NPU,CPU", max_memory={"NPU": "20KiB"})
    assert list(plan.affinity.values()) == ["NPU"] + ["CPU"] * 5
    plan = core.plan(matmuls(), "HETERO:NPU,CPU", max_memory={"NPU": "1GiB"})
    assert plan.limits == {"NPU": 51200}
    with pytest.raises(hetero.InsufficientMemory):
        core.compile_model(matmuls(), "NPU")


def open_model():
    """Two Exp over x [batch, 4], whose batch is unknown: 16 bytes each per row."""
    nodes = [helper.make_node("Exp", ["x"], ["a"], "n0"), helper.make_node("Exp", ["a"], ["y"], "n1")]
    return CORE.read_model(make_model(nodes, {"x": ["batch", 4]}))


UNKNOWN = (
    r"may exceed its limit of .. B: with 'batch' = 1, it needs .. B \(weights 0 B, activations .. B\); "
    r"set 'batch', as in shapes={'batch': 1} or --dim batch=1"
)


def test_unknown_sizes_are_warned_of():
    model = open_model()
    with pytest.warns(RuntimeWarning, match=f"CPU.0 {UNKNOWN}"):
        plan = CORE.plan(model, DEVICES, max_memory={"CPU.0": 40})
    (warning,) = [warning for warning in plan.warnings if warning.kind == "memory"]
    assert warning.device == "CPU.0"
    assert re.search(UNKNOWN, warning.message)
    assert not [warning for warning in CORE.plan(model, DEVICES).warnings if warning.kind == "memory"]
    sized = model.with_types({"x": (np.float32, (2, 4))})
    with pytest.raises(hetero.InsufficientMemory):
        CORE.plan(sized, DEVICES, max_memory={"CPU": 40})


def test_a_batch_of_one_that_fits_is_not_warned_of():
    """Not so for another open size, whose least value says little."""
    plan = CORE.plan(open_model(), DEVICES, max_memory={"CPU.0": 48})
    assert [warning.kind for warning in plan.warnings] == ["unused"]
    CORE.compile_model(open_model(), "CPU.0", max_memory={"CPU.0": 48})
    nodes = [helper.make_node("Exp", ["x"], ["a"], "n0"), helper.make_node("Add", ["a", "z"], ["y"], "n1")]
    for shapes in ({"x": ["batch", "n"], "z": [1]}, {"x": ["n"], "z": [1]}, {"x": ["n", 4], "z": ["m", 1]}):
        model = CORE.read_model(make_model(nodes, shapes))
        with pytest.warns(RuntimeWarning, match="have unknown sizes"):
            CORE.plan(model, DEVICES, max_memory={"CPU.0": 4096})


def test_sizes_that_depend_on_data_are_set_in_the_model():
    """`--dim` is not suggested, because it cannot set such a size."""
    nodes = [helper.make_node("NonZero", ["x"], ["i"], "n0"), helper.make_node("Cast", ["i"], ["y"], "n1", to=1)]
    model = CORE.read_model(make_model(nodes, {"x": [2, 3]}))
    cannot = r"\('i' and 1 more\) have unknown sizes; the others need 24 B .* cannot set them; Model.with_types can"
    with pytest.warns(RuntimeWarning, match=cannot):
        CORE.plan(model, DEVICES, max_memory={"CPU.0": 200})
    sized = model.with_types({"i": (np.int64, (2, 6)), "y": (np.float32, (2, 6))})
    CORE.plan(sized, DEVICES, max_memory={"CPU.0": 200})  # no warning
    with pytest.raises(hetero.InsufficientMemory):
        CORE.plan(sized, DEVICES, max_memory={"CPU": 100})


@pytest.mark.parametrize(
    ("device", "config"),
    [
        (DEVICES, {}),
        (DEVICES, {"ASSIGNMENT": "COST"}),
        (DEVICES, {"MODEL_DISTRIBUTION_POLICY": "PIPELINE_PARALLEL"}),
        ("CPU.0", {}),
    ],
)
def test_compiling_warns_and_refuses_as_planning_does(device, config):
    model, limits = open_model(), {"CPU.0": 30}
    for call in (CORE.plan, CORE.compile_model):
        with pytest.warns(RuntimeWarning, match=f"CPU.0 {UNKNOWN}"):
            call(model, device, config, max_memory=limits)
        with pytest.raises(hetero.InsufficientMemory):
            call(model, device, config, max_memory={"CPU": 40}, shapes={"x": (2, 4)})
        call(model, device, config, max_memory={"CPU": 50}, shapes={"x": (1, 4)})  # no warning
    with pytest.warns(RuntimeWarning, match=f"CPU.0 {UNKNOWN}"):
        plan = CORE.plan(model, device, config, max_memory=limits)
    for call in (CORE.plan, CORE.compile_model):
        with pytest.raises(hetero.InsufficientMemory):
            call(model, plan, max_memory={"CPU": 40}, shapes={"x": (2, 4)})


def test_shapes_hold_for_what_is_compiled():
    model = open_model()
    compiled = CORE.compile_model(model, DEVICES, shapes={"x": [3, 4]})
    assert compiled.inputs[0].shape == (3, 4)
    assert compiled(np.zeros((3, 4), np.float32))["y"].shape == (3, 4)
    with pytest.raises(hetero.InferenceError, match=r"expected float32 \[3, 4\]"):
        compiled(np.zeros((2, 4), np.float32))
    plan = CORE.plan(model, DEVICES, shapes={"x": (3, 4)})
    assert CORE.compile_model(model, plan).inputs[0].shape == (3, 4)  # the plan's own reading of the model
    assert CORE.compile_model(model, CORE.plan(model, DEVICES), shapes={"x": (3, 4)}).inputs[0].shape == (3, 4)
    assert CORE.compile_model(model, DEVICES, shapes={}).inputs[0].shape == ("batch", 4)


def test_a_symbol_in_shapes_holds_for_all_inputs():
    node = helper.make_node("Add", ["x", "z"], ["y"], "n0")
    model = CORE.read_model(make_model([node], {"x": ["batch", 4], "z": ["batch", 1]}))
    ports = CORE.compile_model(model, "CPU", shapes={"z": (7, 1)}).inputs
    assert [port.shape for port in ports] == [(7, 4), (7, 1)]
    ports = CORE.compile_model(model, "CPU", shapes={model.inputs[1]: (7, 1)}).inputs
    assert [port.shape for port in ports] == [(7, 4), (7, 1)]
    with pytest.raises(PropertyError, match="batch = 6 in input 'z', and batch = 7 in 'x'"):
        CORE.plan(model, "CPU", shapes={"x": (7, 4), "z": (6, 1)})


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([(1, 4), (1, 4)], "shapes: expected a shape for each"),
        ({"X": (1, 4)}, r"no input 'X' \(did you mean x\?\); its inputs: x"),
        ({1: (1, 4)}, "no input 1"),
        ({"x": "1x4"}, "expected a sequence of sizes"),
        ({"x": 4}, "expected a sequence of sizes"),
        ({"x": (1, 5)}, r"\[1, 5\] does not fit input 'x', whose shape is \[batch, 4\]"),
        ({"x": (1, 4, 1)}, "does not fit input 'x'"),
        ({"x": (-2, 4)}, "does not fit input 'x'"),
        ({"x": (1.5, 4)}, "does not fit input 'x'"),
        ({"x": (float("nan"), 4)}, "does not fit input 'x'"),
        ({"x": (10**5000, 4)}, "does not fit input 'x'"),
    ],
)
def test_shapes_that_are_none(shapes, message):
    for call in (CORE.plan, CORE.compile_model):
        with pytest.raises(PropertyError, match=message):
            call(open_model(), DEVICES, shapes=shapes)


def test_the_limit_of_a_profile_is_not_passed_over_in_silence(tmp_path):
    core = profile(tmp_path, 40)
    for device in ("NPU", "HETERO:NPU,CPU", "MULTI:NPU,CPU"):
        with pytest.warns(RuntimeWarning, match=f"NPU {UNKNOWN}"):
            core.compile_model(open_model(), device)
    with pytest.raises(hetero.InsufficientMemory):
        core.compile_model(open_model(), "NPU", shapes={"x": (2, 4)})
    with pytest.warns(RuntimeWarning, match="MULTI does not use a device: .* NPU would need"):
        compiled = core.compile_model(open_model(), "MULTI:NPU,CPU", shapes={"x": (2, 4)})
    assert compiled.get_property("EXECUTION_DEVICES") == ("CPU",)


def test_limits_given_with_a_plan_hold_though_it_has_its_model():
    model = matmuls()
    plan = CORE.plan(model, DEVICES)
    with pytest.raises(hetero.InsufficientMemory, match="does not fit as placed: CPU.0 would need"):
        CORE.compile_model(model, plan, max_memory={"CPU.0": "50KiB"})
    CORE.compile_model(model, plan, max_memory={"CPU.0": "500KiB"})


def test_saved_plans_keep_what_they_say_and_are_checked(tmp_path):
    model = matmuls()
    plan = CORE.plan(model, DEVICES, max_memory={"CPU.0": "50KiB"})
    path = tmp_path / "plan.json"
    plan.save(path)
    loaded = hetero.Plan.load(path)
    assert loaded.totals == plan.totals
    assert loaded.limits == {"CPU.0": 51200}
    assert str(loaded) == str(plan)
    bound = CORE.plan(model, loaded, max_memory={"CPU.0": "50KiB"})
    assert bound.totals == plan.totals
    data = json.loads(path.read_text())
    data["affinity"]["n3"] = "CPU.0"
    path.write_text(json.dumps(data))
    edited = hetero.Plan.load(path)
    with pytest.raises(hetero.InsufficientMemory, match="does not fit as placed: CPU.0 would need"):
        CORE.plan(model, edited, max_memory={"CPU.0": "50KiB"})
    assert CORE.plan(model, edited).totals[0].weight_bytes == 4 * 16384


# ---- by cost


def test_by_cost_within_limits_the_nodes_that_gain_most_stay():
    """CPU is five times as fast, and a hundred times for the last two nodes, but has room for three."""
    model = matmuls()
    costs = costs_of(model, CPU=[10, 10, 10, 10, 10, 10], TEMPLATE=[50, 50, 50, 50, 1000, 1000])
    config = {"ASSIGNMENT": "COST", "COSTS": costs}
    free = CORE.plan(model, "HETERO:TEMPLATE,CPU", config)
    assert set(free.affinity.values()) == {"CPU"}
    assert not free.latency.memory_binds
    plan = CORE.plan(model, "HETERO:TEMPLATE,CPU", config, max_memory={"CPU": "50KiB"})
    assert [plan.affinity[f"n{i}"] for i in range(4, 6)] == ["CPU"] * 2
    assert sorted(plan.affinity.values()) == ["CPU"] * 3 + ["TEMPLATE"] * 3
    assert plan.latency.total_s == pytest.approx(180e-6)
    assert plan.latency.memory_binds
    assert plan.latency.lower_bound_s == pytest.approx(60e-6)
    assert "without memory limits" in str(plan)
    moved = plan.subgraphs[0].nodes[-1] if plan.subgraphs[0].device == "TEMPLATE" else plan.subgraphs[1].nodes[0]
    assert "TEMPLATE because of memory limits: CPU is limited to 51.2 kB" in plan.reasons[moved]
    assert "CPU by cost" in plan.reasons["n5"]


def test_by_cost_limits_that_do_not_bind_change_nothing():
    model = matmuls()
    config = {"ASSIGNMENT": "COST", "COSTS": costs_of(model, CPU=[1] * 6, TEMPLATE=[5] * 6)}
    free = CORE.plan(model, "HETERO:TEMPLATE,CPU", config)
    plan = CORE.plan(model, "HETERO:TEMPLATE,CPU", config, max_memory={"CPU": "1MB"})
    assert plan.affinity == free.affinity
    assert plan.latency == free.latency


def test_by_cost_what_cannot_fit_is_an_error():
    model = matmuls()
    config = {"ASSIGNMENT": "COST", "COSTS": costs_of(model, CPU=[1] * 6, TEMPLATE=[5] * 6)}
    with pytest.raises(hetero.InsufficientMemory, match="no assignment can fit"):
        CORE.plan(model, "HETERO:TEMPLATE,CPU", config, max_memory={"CPU": "40KiB", "TEMPLATE": "40KiB"})


def test_what_if_keeps_to_limits():
    plan = CORE.plan(matmuls(), DEVICES, max_memory={"CPU.0": "50KiB"})
    assert not plan.what_if().moved
    difference = plan.what_if(pins={"n5": "CPU.0"})
    assert {move.node: move.after for move in difference.moved} == {"n2": "CPU.1", "n5": "CPU.0"}
    with pytest.raises(hetero.InsufficientMemory):
        plan.what_if(pins={"n.": "CPU.0"})
