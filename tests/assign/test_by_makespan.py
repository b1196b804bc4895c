"""Plans that let devices work at the same time: ``OBJECTIVE=LATENCY``."""

from __future__ import annotations

import contextlib
import re

import numpy as np
import pytest
from onnx import helper

import hetero
from hetero.assign.affinity import Origin
from hetero.assign.costs import Costs, Measurement, NodeTimes
from hetero.assign.memory import footprint, values_of
from hetero.assign.request import ProcessorUse
from hetero.base.formatting import duration
from hetero.errors import PropertyError
from hetero.partition import check_partition
from hetero.plugin import Plugin, Support
from model_zoo import make_model

LATENCY = {"OBJECTIVE": "LATENCY"}
X = np.float32([[1, -2, 3, -4]])


class Other(Plugin):
    """Devices with hardware of their own, which never run; the first id does not support Tanh."""

    name = "OTHER"

    def query_model(self, model, config):
        refused = {}
        if config.get("DEVICE_ID") == "0":
            refused = {i: "no Tanh" for i, node in enumerate(model.nodes) if node.op_type == "Tanh"}
        return Support.from_reasons(model.num_nodes, refused)

    def compile_model(self, model, config, context=None):
        raise NotImplementedError

    def device_ids(self):
        return tuple(map(str, range(256)))


@pytest.fixture(scope="module")
def core():
    core = hetero.Core()
    core.register_plugin("OTHER", Other)
    return core


def towers(core, count=2, length=4, op="Relu"):
    """Chains side by side whose ends are added: nodes n0_0.. and join."""
    nodes = []
    for tower in range(count):
        for i in range(length):
            before = f"v{tower}_{i - 1}" if i else "x"
            nodes.append(helper.make_node(op, [before], [f"v{tower}_{i}"], f"n{tower}_{i}"))
    nodes.append(helper.make_node("Sum", [f"v{tower}_{length - 1}" for tower in range(count)], ["y"], "join"))
    return core.read_model(make_model(nodes, {"x": [1, 4]}))


def costs_of(model, devices, us=1000.0, launch_us=5.0):
    """The microseconds of every node: a number, or by device."""
    times = us if isinstance(us, dict) else dict.fromkeys(devices, us)
    return Costs.of_model(
        model,
        [
            Measurement(
                device,
                {},
                {node.key: NodeTimes(1, times[device], times[device]) for node in model.nodes},
                None,
                launch_us,
            )
            for device in devices
        ],
    )


def plan_of(core, model, devices=("OTHER.1", "OTHER.2"), config=None, us=1000.0, **options):
    settings = {**LATENCY, "COSTS": costs_of(model, devices, us), **(config or {})}
    return core.plan(model, f"HETERO:{','.join(devices)}", settings, **options)


def test_towers_go_to_different_devices(core, tmp_path):
    model = towers(core)
    plan = plan_of(core, model)
    tower = [{plan.affinity[f"n{t}_{i}"] for i in range(4)} for t in range(2)]
    assert [len(devices) for devices in tower] == [1, 1]
    assert tower[0] != tower[1]
    latency = plan.latency
    assert latency.overlaps
    assert latency.total_s == pytest.approx(5e-3, rel=0.05)
    assert latency.lower_bound_s == pytest.approx(5e-3, rel=0.01)
    assert latency.by_priority_s == pytest.approx(9e-3, rel=0.01)
    assert latency.work_s == pytest.approx(9e-3)
    assert len(latency.begin_s) == len(latency.end_s) == plan.num_subgraphs == 3
    assert list(latency.begin_s) == sorted(latency.begin_s)
    assert max(latency.end_s) == pytest.approx(latency.total_s, abs=1e-4)
    text = str(plan)
    assert "predicted: 5.1" in text
    assert "devices in parallel" in text
    assert "subgraphs by time, 5.11 ms (dots are idle time):" in text
    assert "predicted: 5.1" in plan._repr_svg_()
    assert plan.warnings == ()
    moved = [node for node, reason in plan.reasons.items() if "1 ms (measured) here" in reason]
    assert len(moved) == 4
    plan.save(tmp_path / "plan.json")
    again = core.plan(model, hetero.Plan.load(tmp_path / "plan.json"))
    assert again.latency == latency
    assert again.subgraphs == plan.subgraphs


@pytest.mark.parametrize("count", [8, 40])
def test_the_timeline_numbers_subgraphs_that_are_wide_enough(core, count):
    plan = plan_of(core, towers(core, count, 1), [f"OTHER.{i}" for i in range(1, count + 1)])
    assert plan.num_subgraphs == count + 1
    (at,) = (i for i, line in enumerate(str(plan).splitlines()) if line.startswith("subgraphs by time"))
    lines = str(plan).splitlines()[at:]
    assert "dots are idle time" in lines[0]
    drawn = "".join(line.split("|")[1] for line in lines[1 : count + 1])
    assert ("+ is a subgraph too short for its number" in lines[0]) == ("+" in drawn)
    shown = {int(number) for number in re.findall(r"\d+", drawn)}
    assert {1, count + 1} <= shown <= set(range(1, count + 2))


def test_devices_by_priority_stay(core):
    """The join goes into a subgraph of its own, so that the pinned tower does not wait for the other."""
    model = towers(core)
    pins = {"n1_[0-9]": "OTHER.2"}
    plan = plan_of(core, model, config={"ASSIGNMENT": "PRIORITY"}, pins=pins)
    assert {node for node, device in plan.affinity.items() if device == "OTHER.2"} == {f"n1_{i}" for i in range(4)}
    assert plan.latency.overlaps
    assert plan.latency.total_s == pytest.approx(5e-3, rel=0.05)
    assert plan.num_subgraphs == 3
    fewest = core.plan(model, "HETERO:OTHER.1,OTHER.2", pins=pins)
    assert fewest.num_subgraphs == 2
    assert not np.isin(plan.assignment.affinity.origin, (Origin.COST, Origin.MEMORY)).any()


def test_pins_and_support_hold(core):
    model = towers(core, op="Tanh")
    plan = plan_of(core, model, ("OTHER.0", "OTHER.1"), pins={"join": "OTHER.1"})
    assert set(plan.affinity.values()) == {"OTHER.1"}
    assert not plan.latency.overlaps
    assert plan.latency.total_s == pytest.approx(9.005e-3)
    serial = towers(core, 1, 6)
    pins = {f"n0_{i}": f"OTHER.{1 + i % 2}" for i in range(6)}
    plan = plan_of(core, serial, pins={**pins, "join": "OTHER.1"})
    assert plan.num_subgraphs == 7
    assert not plan.latency.overlaps
    assert plan.latency.total_s == pytest.approx(plan.latency.work_s + plan.latency.launches_s)


def test_unequal_devices(core):
    """A device that is ten times as fast as the other gains nothing from it."""
    model = towers(core)
    plan = plan_of(core, model, us={"OTHER.1": 10_000.0, "OTHER.2": 1000.0})
    assert set(plan.affinity.values()) == {"OTHER.2"}
    assert plan.num_subgraphs == 1


def test_small_nodes_stay_with_their_neighbors(core):
    """Relu after Gemm, and the Reshape of a weight: apart, the device could neither fuse nor fold them."""
    nodes = []
    for tower in range(2):
        weight, shaped = f"w{tower}", f"s{tower}"
        nodes.append(helper.make_node("Reshape", [weight, "shape"], [shaped], f"reshape{tower}"))
        nodes.append(helper.make_node("MatMul", ["x", shaped], [f"p{tower}"], f"product{tower}"))
        nodes.append(helper.make_node("Relu", [f"p{tower}"], [f"r{tower}"], f"relu{tower}"))
    nodes.append(helper.make_node("Add", ["r0", "r1"], ["y"], "join"))
    weights = {"shape": np.array([4, 4], np.int64), "w0": np.ones(16, np.float32), "w1": np.ones(16, np.float32)}
    model = core.read_model(make_model(nodes, {"x": [1, 4]}, weights=weights))
    us = {"Reshape": 1.0, "MatMul": 1000.0, "Relu": 30.0, "Add": 30.0}
    measurements = [
        Measurement(
            device, {}, {node.key: NodeTimes(1, us[node.op_type], us[node.op_type]) for node in model.nodes}, None, 1.0
        )
        for device in ("OTHER.1", "OTHER.2")
    ]
    plan = plan_of(core, model, config={"COSTS": Costs.of_model(model, measurements)})
    assert plan.latency.overlaps
    assert sorted(sorted(part.nodes) for part in plan.subgraphs if len(part.nodes) > 1) == [
        [f"product{tower}", f"relu{tower}", f"reshape{tower}"] for tower in range(2)
    ]
    assert plan.num_subgraphs == 3


@pytest.mark.parametrize("us", [0.0, 1e-3])
def test_costs_of_nothing(core, us):
    plan = plan_of(core, towers(core), us=us)
    assert plan.num_subgraphs == 1
    assert not plan.latency.overlaps


def test_one_node_and_many_devices(core):
    one = core.read_model(make_model([helper.make_node("Relu", ["x"], ["y"], "n")], {"x": [1, 4]}))
    plan = plan_of(core, one)
    assert plan.latency.total_s == pytest.approx(1.005e-3)
    devices = [f"OTHER.{i}" for i in range(1, 256)]
    plan = plan_of(core, towers(core, 30, 2), devices)
    assert plan.latency.total_s == pytest.approx(3e-3, rel=0.1)
    assert len(set(plan.affinity.values())) >= 30


def test_more_devices_than_a_list_may_have(core):
    listed = "HETERO:" + ",".join(f"OTHER.{i}" for i in range(256))
    for config in ({}, {"ASSIGNMENT": "COST"}, LATENCY, {"MODEL_DISTRIBUTION_POLICY": "PIPELINE_PARALLEL"}):
        with pytest.raises(PropertyError, match="has 256 devices: expected at most 255"):
            core.plan(towers(core), listed, config)


def test_pins_that_cost_time(core):
    """All nodes on one device, also where it is the slower one."""
    model = towers(core)
    listed = ("OTHER.1", "OTHER.2")
    chain = {f"n{tower}_{i}": listed[tower] for tower in range(2) for i in range(4)}
    assert plan_of(core, model, pins={**chain, "join": "OTHER.1"}).warnings == ()
    plan = plan_of(core, model, pins={".*": "OTHER.1"})
    assert not plan.latency.overlaps
    unused, pins = plan.warnings
    assert (unused.kind, pins.kind) == ("unused", "pin")
    assert pins.message == "pins (9 nodes) cost time: predicted 9 ms with, 5.11 ms without"
    assert len(pins.nodes) == 5
    by_priority = plan_of(core, model, config={"ASSIGNMENT": "PRIORITY"}, pins={".*": "OTHER.2"})
    assert "pin" not in [warning.kind for warning in by_priority.warnings]
    slow = {"OTHER.1": 1000.0, "OTHER.2": 3000.0}
    by_priority = plan_of(core, model, config={"ASSIGNMENT": "PRIORITY"}, us=slow, pins={".*": "OTHER.2"})
    assert "cost time: predicted 27 ms with, 9 ms without" in by_priority.warnings[-1].message


@pytest.mark.parametrize("pins", [{}, {"n0_1": "OTHER.2", "n1_2": "OTHER.2"}])
@pytest.mark.parametrize("assignment", ["", "PRIORITY"])
@pytest.mark.parametrize(
    "groups",
    [[["n0_0", "n0_2"], ["n0_1", "n0_3"]], [["n0_0", "n1_3"], ["n1_0", "n0_3"]], [["n0_0", "join"]], [["n.*"]]],
)
def test_groups_that_wait_for_each_other(core, groups, assignment, pins):
    """Nodes that stay together, before and after those of another group: on one device, in several subgraphs."""
    model = towers(core)
    plan = plan_of(core, model, config={"ASSIGNMENT": assignment, "STAY_TOGETHER": groups}, pins=pins)
    for group in groups:
        nodes = [node for node in plan.affinity if node != "join"] if group == ["n.*"] else group
        assert len({plan.affinity[node] for node in nodes}) == 1
    assert all(plan.affinity[node] == device for node, device in pins.items())
    partition = plan.assignment.partition
    check_partition(model.graph, plan.assignment.affinity.device_of, partition.subgraph_of, ordered=True)
    assert plan.latency.lower_bound_s <= plan.latency.total_s
    sequential = plan.latency.work_s + plan.latency.launches_s + plan.latency.transfers_s
    assert plan.latency.total_s <= sequential * (1 + 1e-9)


@pytest.mark.parametrize("objective", ["SUBGRAPHS", "LATENCY"])
@pytest.mark.parametrize("assignment", ["PRIORITY", "COST"])
def test_no_nodes(core, objective, assignment):
    model = core.read_model(make_model([], {"x": [1, 4]}, ["x"]))
    config = {"OBJECTIVE": objective, "ASSIGNMENT": assignment, "INFERENCE_NUM_THREADS": 1}
    plan = core.plan(model, "HETERO:CPU.0,CPU.1", config)
    assert plan.num_subgraphs == 0
    assert plan.latency is None or (plan.latency.total_s, plan.latency.overlaps) == (0, False)
    np.testing.assert_array_equal(core.compile_model(model, plan)(X)[0], X)


def random_model(core, rng, count):
    nodes = []
    for i in range(count):
        sources = {"x" if i == 0 else f"v{int(rng.integers(max(0, i - 4), i))}" for _ in range(int(rng.integers(1, 3)))}
        nodes.append(helper.make_node("Sum", sorted(sources), [f"v{i}"], f"n{i}"))
    read = {name for node in nodes for name in node.input}
    outputs = [node.output[0] for node in nodes if node.output[0] not in read]
    return core.read_model(make_model(nodes, {"x": [1, 64]}, outputs))


@pytest.mark.parametrize("seed", range(25))
def test_never_slower_than_the_plan_by_cost(core, seed):
    rng = np.random.default_rng(seed)
    model = random_model(core, rng, int(rng.integers(2, 20)))
    devices = [f"OTHER.{i}" for i in range(1, 1 + int(rng.integers(2, 5)))]
    measurements = []
    for device in devices:
        times = {f"n{i}": NodeTimes(1, us, us) for i, us in enumerate(rng.integers(1, 2000, model.num_nodes).tolist())}
        measurements.append(Measurement(device, {}, times, None, float(rng.integers(0, 100))))
    costs = Costs.of_model(model, measurements)
    listed, config = f"HETERO:{','.join(devices)}", {"COSTS": costs}
    plan = core.plan(model, listed, {**config, **LATENCY})
    by_cost = core.plan(model, listed, {**config, "ASSIGNMENT": "COST"})
    assert plan.latency.total_s <= by_cost.latency.total_s * (1 + 1e-9)
    assert plan.latency.lower_bound_s <= plan.latency.total_s
    assignment = plan.assignment
    check_partition(model.graph, assignment.affinity.device_of, assignment.partition.subgraph_of, ordered=True)
    explained = plan.explain("n0")
    here = next(cost for cost in explained.costs if cost.device == plan.affinity["n0"])
    assert here.total_s <= plan.latency.total_s * (1 + 1e-9)


@pytest.mark.parametrize("assignment", ["", "PRIORITY"])
@pytest.mark.parametrize("seed", range(8))
def test_memory_limits_hold(core, seed, assignment):
    rng = np.random.default_rng(seed)
    model = random_model(core, rng, int(rng.integers(4, 14)))
    values = values_of(model)
    total = footprint(values, np.zeros(model.num_nodes), [0], 1).total[0]
    limits = {"OTHER.1": int(total * rng.uniform(0.3, 1)), "OTHER.2": int(total * 1.5)}
    try:
        plan = plan_of(core, model, config={"MAX_MEMORY": limits, "ASSIGNMENT": assignment})
    except hetero.errors.InsufficientMemory:
        core_plan = {"MAX_MEMORY": limits, "ASSIGNMENT": "COST", "COSTS": costs_of(model, ("OTHER.1", "OTHER.2"))}
        with pytest.raises(hetero.errors.InsufficientMemory):
            core.plan(model, "HETERO:OTHER.1,OTHER.2", core_plan)
        return
    partition, latency = plan.assignment.partition, plan.latency
    times = (latency.begin_s, latency.end_s) if latency.overlaps else None
    needs = footprint(values, partition.subgraph_of, partition.device_of, 2, times)
    assert (needs.total <= list(limits.values())).all()
    assert [total.activation_bytes for total in plan.totals] == needs.activations.tolist()


def big_values(core):
    """a on OTHER.1 makes 4 kB, which b on OTHER.2 reads; c and d on OTHER.1 make 4 kB each in the meantime."""
    nodes = [
        helper.make_node("Expand", ["x", "shape"], ["big"], "a"),
        helper.make_node("ReduceSum", ["big"], ["y"], "b", keepdims=0),
        helper.make_node("Expand", ["x", "shape"], ["bigger"], "c"),
        helper.make_node("ReduceSum", ["bigger"], ["z"], "d", keepdims=0),
    ]
    return core.read_model(make_model(nodes, {"x": [1]}, ["y", "z"], weights={"shape": np.array([1000], np.int64)}))


@pytest.mark.parametrize("assignment", ["", "PRIORITY"])
def test_memory_of_devices_at_the_same_time(core, assignment):
    """What another device still reads stays where it was made while the next subgraph runs there."""
    model, pins = big_values(core), {"[acd]": "OTHER.1", "b": "OTHER.2"}
    config = {"ASSIGNMENT": assignment}
    free = plan_of(core, model, config=config, pins=pins)
    assert free.latency.overlaps
    assert free.latency.total_s == pytest.approx(3e-3, rel=0.1)
    assert free.totals[0].activation_bytes > 8000
    tight = plan_of(core, model, config={**config, "MAX_MEMORY": {"OTHER.1": 6000}}, pins=pins)
    assert not tight.latency.overlaps
    assert tight.latency.memory_binds
    assert tight.latency.total_s == pytest.approx(4e-3, rel=0.1)
    assert tight.totals[0].activation_bytes < 6000
    roomy = plan_of(core, model, config={**config, "MAX_MEMORY": {"OTHER.1": 10_000}}, pins=pins)
    assert roomy.latency.overlaps
    assert not roomy.latency.memory_binds
    with pytest.raises(hetero.errors.InsufficientMemory):
        core.compile_model(model, free, {"MAX_MEMORY": {"OTHER.1": 6000}})


def test_subgraphs_with_limits_run_one_after_the_other(core):
    """Unless the plan counts the memory of subgraphs at the same time."""
    model, pins = big_values(core), {"[acd]": "CPU.0", "b": "CPU.1"}
    for config, overlaps in (
        ({}, None),
        ({"MAX_MEMORY": {"CPU.0": 6000}}, False),
        ({**LATENCY, "INFERENCE_NUM_THREADS": 1, "MAX_MEMORY": {"CPU.0": 6000}}, False),
        ({**LATENCY, "INFERENCE_NUM_THREADS": 1, "MAX_MEMORY": {"CPU.0": 10_000}}, True),
    ):
        settings = {"COSTS": costs_of(model, ("CPU.0", "CPU.1")), **config}
        compiled = core.compile_model(model, "HETERO:CPU.0,CPU.1", settings, pins=pins)
        runner = compiled.create_runner()
        assert (runner._graph is not None) == (overlaps is not False)
        assert runner._in_parallel == (overlaps is True)
        results = compiled(np.float32([2]))
        assert [float(result) for result in (results["y"], results["z"])] == [2000, 2000]


def test_what_if(core):
    plan = plan_of(core, towers(core))
    difference = plan.what_if(pins={".*": "OTHER.1"})
    assert difference.latency_before_s == plan.latency.total_s
    assert difference.latency_after_s == pytest.approx(9.005e-3)


def test_a_loaded_plan(core):
    """A plan from a file has no costs: it does not count its devices as pins, and cannot predict other plans."""
    model = towers(core)
    plan = plan_of(core, model)
    again = core.plan(model, hetero.Plan.from_json(plan.to_json(), "plan"))
    assert again.num_subgraphs == 3
    assert again.warnings == ()
    with pytest.raises(PropertyError, match="OBJECTIVE=LATENCY.*its costs were not kept; plan the model again"):
        again.what_if(pins={"n0_0": "OTHER.2"})
    edited = core.plan(model, "HETERO:OTHER.1,OTHER.2", pins={"n1_[0-9]": "OTHER.2"})
    again = core.plan(model, hetero.Plan.from_json(edited.to_json(), "plan"))
    assert [warning.kind for warning in again.warnings] == ["pin"]
    assert again.what_if(pins={"n0_0": "OTHER.2"}).subgraphs_after == 3


@pytest.mark.parametrize("name", ["OBJECTIVE", "ASSIGNMENT"])
def test_not_with_a_pipeline(core, name):
    config = {name: {"OBJECTIVE": "LATENCY", "ASSIGNMENT": "COST"}[name]}
    with pytest.raises(PropertyError, match=f"{name}=.*PIPELINE_PARALLEL.*set only one of them"):
        core.plan(towers(core), "HETERO:OTHER.1,OTHER.2", {**config, "MODEL_DISTRIBUTION_POLICY": "PIPELINE_PARALLEL"})
    with pytest.raises(PropertyError, match="expected one of"):
        core.plan(towers(core), "HETERO:OTHER.1,OTHER.2", {name: "FAST"})


def test_plans_in_which_devices_wait_say_so(core):
    model = towers(core, length=1500)
    listed = "HETERO:OTHER.1,OTHER.2"
    (unused, waiting) = core.plan(model, listed).warnings
    assert (unused.kind, waiting.kind) == ("unused", "overlap")
    assert "with OBJECTIVE=LATENCY, devices would run in parallel: predicted" in waiting.message
    assert waiting.message.endswith("(estimated costs)")
    assert core.plan(model, listed, LATENCY).warnings == ()
    chain = core.plan(towers(core, 1, 1500), listed)
    assert [warning.kind for warning in chain.warnings] == ["unused"]
    short = core.plan(towers(core, length=2), listed)  # a gain of less than 100 us
    assert [warning.kind for warning in short.warnings] == ["unused"]


def test_plans_within_limits_in_which_devices_wait(core):
    """Such a plan runs its subgraphs one after the other, even if they are on different devices. Only plans that fit
    are advised."""
    model, listed = towers(core), "HETERO:OTHER.1,OTHER.2"
    config, pins = {"COSTS": costs_of(model, ("OTHER.1", "OTHER.2"))}, {"n1_[0-9]": "OTHER.2"}
    fits = core.plan(model, listed, config, pins=pins, max_memory={"OTHER.2": "1MiB"})
    waiting = fits.warnings[-1]
    assert waiting.kind == "overlap"
    obeyed = plan_of(core, model, pins=pins, max_memory={"OTHER.2": "1MiB"})
    assert f"predicted {duration(obeyed.latency.total_s)} instead of " in waiting.message
    narrow = core.plan(model, listed, config, max_memory={"OTHER.2": 1})
    assert "overlap" not in [warning.kind for warning in narrow.warnings]


def test_plans_for_throughput(core):
    """They do not advise an objective that has no effect, and say that they take longer than predicted."""
    model, listed = towers(core, length=1500), "HETERO:OTHER.1,OTHER.2"
    throughput = {"PERFORMANCE_HINT": "THROUGHPUT"}
    assert [warning.kind for warning in core.plan(model, listed, throughput).warnings] == ["unused"]
    plan = core.plan(model, listed, {**throughput, **LATENCY})
    (in_turn,) = plan.warnings
    assert in_turn.kind == "overlap"
    assert "one after the other: predicted" in in_turn.message
    assert core.plan(towers(core, 1, 1500), listed, {**throughput, **LATENCY}).warnings[0].kind == "unused"


@pytest.mark.parametrize("us", [50.0, 500.0, 525.0])
def test_no_warning_if_one_device_is_about_as_fast_as_both_together(core, us):
    model, devices = towers(core, length=1), ("OTHER.1", "OTHER.2")
    times = {"OTHER.1": 1000.0, "OTHER.2": us}
    plan = core.plan(model, "HETERO:OTHER.1,OTHER.2", {"COSTS": costs_of(model, devices, times)})
    assert [warning.kind for warning in plan.warnings] == ["unused"]
    assert not plan_of(core, model, devices, us=times).latency.overlaps


def test_the_warning_uses_measured_costs(core):
    """Also in a plan by priority, if they fit the model."""
    model, listed = towers(core), "HETERO:OTHER.1,OTHER.2"
    pins = {"n1_[0-9]": "OTHER.2"}
    assert [warning.kind for warning in core.plan(model, listed, pins=pins).warnings] == ["pin"]
    costs = costs_of(model, ("OTHER.1", "OTHER.2"))
    pin, waiting = core.plan(model, listed, {"COSTS": costs}, pins=pins).warnings
    assert (pin.kind, waiting.kind) == ("pin", "overlap")
    assert "predicted 5.11 ms instead of 9.01 ms for one inference (measured costs)" in waiting.message
    of_others = costs_of(towers(core, 3), ("OTHER.1", "OTHER.2"))
    for unsuitable in (of_others, costs_of(model, ["OTHER.9"])):
        assert [warning.kind for warning in core.plan(model, listed, {"COSTS": unsuitable}, pins=pins).warnings] == [
            "pin"
        ]
    huge = costs_of(model, ("OTHER.1", "OTHER.2"), 1e308)
    assert [warning.kind for warning in core.plan(model, listed, {"COSTS": huge}, pins=pins).warnings] == ["pin"]


def test_never_slower_than_the_plan_by_priority_as_it_is_numbered(core):
    """Subgraphs in the order of their numbers can be faster than those of the longest paths first."""
    slower = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        model = random_model(core, rng, 24)
        devices = [f"OTHER.{i}" for i in range(1, 5)]
        times = [
            {f"n{i}": NodeTimes(1, us, us) for i, us in enumerate(rng.integers(1, 900, 24).tolist())} for _ in devices
        ]
        costs = Costs.of_model(
            model,
            [Measurement(device, {}, of_device, None, 5.0) for device, of_device in zip(devices, times, strict=True)],
        )
        pins = {f"n{i}": devices[int(rng.integers(4))] for i in range(24)}
        listed, config = f"HETERO:{','.join(devices)}", {"COSTS": costs}
        default = core.plan(model, listed, config, pins=pins).assignment.partition
        for assignment in ("", "PRIORITY"):
            plan = core.plan(model, listed, {**config, **LATENCY, "ASSIGNMENT": assignment}, pins=pins)
            scheduler, latency = plan.assignment.scheduler, plan.latency
            as_numbered = scheduler.run(default).latency
            assert latency.total_s <= min(as_numbered, latency.by_priority_s) * (1 + 1e-9)
            assert list(latency.begin_s) == sorted(latency.begin_s)
            slower.append(scheduler.in_start_order(default).latency > as_numbered)
    assert any(slower)


def test_devices_on_the_same_processors(core):
    """Two CPU devices that each use all processors are planned one after the other, with a word about it."""
    model = towers(core)
    devices = ("CPU.0", "CPU.1")
    plan = plan_of(core, model, devices)
    use = plan.rules.processors
    assert use == ProcessorUse((use.processors,) * 2, use.processors)
    assert use.is_crowded
    assert not plan.latency.overlaps
    assert "CPU.0, CPU.1 have" in plan.warnings[-1].message
    if use.processors > 1:
        plan = plan_of(core, model, devices, {"INFERENCE_NUM_THREADS": 1})
        assert plan.latency.overlaps
        assert plan.latency.total_s == pytest.approx(5.6e-3, rel=0.02)  # they share a memory bus and caches


@pytest.mark.parametrize("hint", ["LATENCY", "THROUGHPUT"])
def test_results(core, hint):
    model = towers(core, 3)
    plan = plan_of(core, model, ("CPU.0", "CPU.1"), {"INFERENCE_NUM_THREADS": 1}, pins={"n1_0": "CPU.1"})
    with pytest.warns(match="one after the other") if hint == "THROUGHPUT" else contextlib.nullcontext():
        compiled = core.compile_model(model, plan, {"PERFORMANCE_HINT": hint})
    request = compiled.create_infer_request()
    for _ in range(4):
        np.testing.assert_array_equal(request.infer(X)[0], 3 * np.maximum(X, 0))
