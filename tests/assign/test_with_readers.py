"""Nodes that depend on constants only go where their results are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import hetero
from hetero.assign.affinity import Origin, assign
from hetero.assign.assigning import assign_and_cut
from hetero.assign.assignment import Assignment
from hetero.assign.memory import footprint, values_of
from hetero.assign.request import AssignmentRules, Objective
from hetero.errors import InsufficientMemory
from hetero.model.constant_nodes import inner_constant_nodes
from hetero.model.model import Model
from hetero.model.read import read_model
from hetero.partition.check import broken_rule
from hetero.plugin import DeviceSpeed, Support
from model_zoo import make_model

CORE = hetero.Core()
W = np.arange(16, dtype=np.float32).reshape(4, 4) / 8
SPEEDS = [DeviceSpeed(1e9, 1e9), DeviceSpeed(1e8, 1e8), DeviceSpeed(1e7, 1e7)]


def make(nodes: Sequence[tuple[str, str, str]], outputs: Sequence[str] = ("y",)) -> Model:
    """A model of x and the constants w and v; each node is an operator, its inputs and its output, its name."""
    protos = [helper.make_node(op, inputs.split(), [output], output) for op, inputs, output in nodes]
    return read_model(make_model(protos, {"x": (4, 4)}, outputs, {"w": W, "v": W + 1}))


def place(
    model: Model,
    supports: Mapping[str, str],
    pins: Mapping[str, str] | None = None,
    devices: str = "AB",
    rules: AssignmentRules | None = None,
) -> Assignment:
    """``supports``: device -> the first letters of the nodes that it supports, * for all."""
    answers = [
        Support.from_reasons(
            model.num_nodes,
            {
                node: f"not on {device}"
                for node in range(model.num_nodes)
                if supports[device] != "*" and model.key_of(node)[0] not in supports[device]
            },
        )
        for device in devices
    ]
    affinity = assign(model, tuple(devices), answers, pins)
    return assign_and_cut(model, model, affinity, rules or AssignmentRules(speeds=SPEEDS[: len(devices)]))


def placed(assignment: Assignment) -> str:
    """Each node with its device."""
    model, affinity = assignment.model, assignment.affinity
    return " ".join(f"{model.key_of(i)}{affinity.devices[d]}" for i, d in enumerate(affinity.device_of.tolist()))


ONE = [("Neg", "w", "c"), ("MatMul", "x c", "m"), ("Relu", "m", "y")]


def test_a_node_goes_with_its_reader_and_says_why() -> None:
    assignment = place(make(ONE), {"A": "cy", "B": "*"})
    assert placed(assignment) == "cB mB yA"
    assert assignment.partition.num_subgraphs == 2
    assert assignment.affinity.origin.tolist() == [Origin.PRIORITY] * 3
    assert assignment.affinity.reason(0) == "it depends on constants only, and its results are read on B"
    assert assignment.affinity.reason(2) == "A is the first device of the list that supports it"


def test_a_pin_holds() -> None:
    assert placed(place(make(ONE), {"A": "*", "B": "*"}, {"c": "B"})) == "cB mA yA"
    assert placed(place(make(ONE), {"A": "cy", "B": "*"}, {"c": "A"})) == "cA mB yA"


def test_an_affinity_in_the_model_holds() -> None:
    assert placed(place(make(ONE).with_affinity({"c": "A"}), {"A": "cy", "B": "*"})) == "cA mB yA"


def test_a_device_that_does_not_support_the_node_does_not_get_it() -> None:
    assert placed(place(make(ONE), {"A": "cy", "B": "my"})) == "cA mB yA"


def test_a_chain_of_constant_nodes() -> None:
    nodes = [("Neg", "w", "a"), ("Add", "a v", "b"), ("Transpose", "b", "c"), *ONE[1:]]
    assert placed(place(make(nodes), {"A": "abcy", "B": "*"})) == "aB bB cB mB yA"
    # Where the reader's device lacks a link of the chain, the rest goes with that link.
    assert placed(place(make(nodes), {"A": "abcy", "B": "acmy"})) == "aA bA cB mB yA"


def test_a_chain_is_read_in_its_middle() -> None:
    nodes = [("Neg", "w", "a"), ("Abs", "a", "b"), ("MatMul", "x b", "m"), ("Add", "m a", "n"), ("Relu", "n", "y")]
    assert placed(place(make(nodes), {"A": "aby", "B": "*"})) == "aB bB mB nB yA"


@pytest.mark.parametrize(("supports", "expected"), [("cn", "cB mB nA yB"), ("cm", "cA mA nB yB")])
def test_readers_on_several_devices(supports: str, expected: str) -> None:
    """The first reader in running order decides, so no subgraph is added."""
    nodes = [("Neg", "w", "c"), ("MatMul", "x c", "m"), ("MatMul", "m c", "n"), ("Relu", "n", "y")]
    assignment = place(make(nodes), {"A": supports, "B": "*"})
    assert placed(assignment) == expected
    without = [("MatMul", "x w", "m"), ("MatMul", "m w", "n"), ("Relu", "n", "y")]
    assert assignment.partition.num_subgraphs == place(make(without), {"A": supports, "B": "*"}).partition.num_subgraphs


def test_the_first_reader_that_supports_the_node_decides() -> None:
    nodes = [("Neg", "w", "c"), ("MatMul", "x c", "m"), ("MatMul", "m c", "n"), ("Relu", "n", "y")]
    assert placed(place(make(nodes), {"A": "cy", "B": "m", "C": "*"}, devices="ABC")) == "cC mB nC yA"


@pytest.mark.parametrize("outputs", [("y", "c"), ("c", "y")])
def test_an_output_of_the_model_stays(outputs: Sequence[str]) -> None:
    assert placed(place(make(ONE, outputs), {"A": "cy", "B": "*"})) == "cA mB yA"
    nodes = [("Neg", "w", "b"), ("Abs", "b", "c"), *ONE[1:]]
    assert placed(place(make(nodes, outputs), {"A": "bcy", "B": "*"})) == "bA cA mB yA"  # b goes with c


def test_a_shared_constant_does_not_tie_its_readers() -> None:
    nodes = [("Neg", "w", "a"), ("Abs", "w", "b"), ("MatMul", "x a", "m"), ("MatMul", "m b", "n"), ("Relu", "n", "y")]
    assert placed(place(make(nodes), {"A": "abny", "B": "*"})) == "aB bA mB nA yA"


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("Mul", ["w", "x"], ["c"], "c"),
        helper.make_node("RandomNormalLike", ["w"], ["c"], "c"),
        helper.make_node("RandomNormal", [], ["c"], "c", shape=[4, 4]),
    ],
)
def test_near_misses(node: onnx.NodeProto) -> None:
    rest = [helper.make_node(op, inputs.split(), [output], output) for op, inputs, output in ONE[1:]]
    model = read_model(make_model([node, *rest], {"x": (4, 4)}, weights={"w": W}))
    assert placed(place(model, {"A": "cy", "B": "*"})) == "cA mB yA"


def test_a_node_that_nothing_reads() -> None:
    assert placed(place(make([("Neg", "w", "c"), ("Relu", "x", "y")]), {"A": "c", "B": "*"})) == "cA yB"


def test_groups_hold() -> None:
    core = hetero.Core()
    proto = make_model(
        [helper.make_node(op, i.split(), [o], o) for op, i, o in [("Identity", "w", "c"), *ONE[1:]]],
        {"x": (4, 4)},
        weights={"w": W},
    )
    pins = {"m": "CPU"}
    assert core.plan(proto, "HETERO:FPGA,CPU", pins=pins).affinity["c"] == "CPU"
    config = {"STAY_TOGETHER": [["c", "y"]]}
    assert core.plan(proto, "HETERO:FPGA,CPU", config, pins=pins).affinity == {"c": "FPGA", "m": "CPU", "y": "FPGA"}


def test_memory_limits_count_the_node_where_it_is() -> None:
    """B has room for the product, not for the constant that it reads and the result."""
    model = make(ONE)

    def rules(limit: int) -> AssignmentRules:
        return AssignmentRules(speeds=SPEEDS[:2], limits={"B": limit})

    whole = place(model, {"A": "cy", "B": "*"}, rules=rules(1000))
    assert placed(whole) == "cB mB yA"
    need = footprint(values_of(model), whole.partition.subgraph_of, whole.partition.device_of, 2).total[1]
    assert placed(place(model, {"A": "cy", "B": "*"}, rules=rules(int(need)))) == "cB mB yA"
    assert placed(place(model, {"A": "cy", "B": "*"}, rules=rules(int(need) - 1))) == "cA mB yA"


def test_nodes_follow_a_reader_that_a_limit_moved() -> None:
    nodes = [
        ("Neg", "w", "a"),
        ("Abs", "v", "b"),
        ("MatMul", "x a", "m"),
        ("MatMul", "m b", "n"),
        ("Relu", "n", "y"),
    ]
    rules = AssignmentRules(speeds=SPEEDS[:2], limits={"A": 300})
    assignment = place(make(nodes), {"A": "*", "B": "*"}, rules=rules)
    affinity = dict(pair for pair in zip("abmny", assignment.affinity.device_of.tolist(), strict=True))
    assert affinity["a"] == affinity["m"]
    assert affinity["b"] == affinity["n"]
    assert 1 in affinity.values()


# -- at random -----------------------------------------------------------------------------------------------------

OBJECTIVES = tuple(Objective)


def random_model(rng: np.random.Generator, count: int) -> Model:
    """Nodes that read the input, constants and each other's results."""
    made, nodes = ["x", "w", "v"], []
    for i in range(count):
        inputs = [str(rng.choice(made[:3] if rng.random() < 0.4 else made)) for _ in range(int(rng.integers(1, 3)))]
        nodes.append(helper.make_node("Abs" if len(inputs) == 1 else "Add", inputs, [f"n{i}"], f"n{i}"))
        made.append(f"n{i}")
    read = {name for node in nodes for name in node.input}
    outputs = [name for name in made[3:] if name not in read or rng.random() < 0.1]
    return read_model(make_model(nodes, {"x": (4, 4)}, outputs, {"w": W, "v": W + 1}))


@pytest.mark.parametrize("seed", range(150))
def test_random_models(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = random_model(rng, int(rng.integers(3, 9)))
    k = int(rng.integers(2, 4))
    masks = rng.random((k, model.num_nodes)) < 0.7
    masks[-1] = True
    supports = [
        Support.from_reasons(model.num_nodes, dict.fromkeys(np.flatnonzero(~mask).tolist(), "no")) for mask in masks
    ]
    devices = tuple("ABC"[:k])
    pins = {model.key_of(0): devices[-1]} if rng.random() < 0.3 else {}
    limits = {devices[0]: int(rng.integers(100, 900))} if rng.random() < 0.4 else {}
    rules = AssignmentRules(objective=OBJECTIVES[seed % len(OBJECTIVES)], speeds=SPEEDS[:k], limits=limits)
    affinity = assign(model, devices, supports, pins)
    try:
        found = assign_and_cut(model, model, affinity, rules)
    except InsufficientMemory:
        assert limits
        return
    device_of, partition = found.affinity.device_of, found.partition
    assert masks[device_of, np.arange(model.num_nodes)].all()
    assert (partition.device_of[partition.subgraph_of] == device_of).all()
    assert broken_rule(model.graph, device_of, partition.subgraph_of, maximal=False) is None
    if pins:
        assert devices[device_of[0]] == devices[-1]
    if limits and rules.objective is not Objective.OVERLAP:  # which counts subgraphs that run at the same time
        needs = footprint(values_of(model), partition.subgraph_of, partition.device_of, k)
        assert needs.total[0] <= limits[devices[0]]
    constant = inner_constant_nodes(model)
    if constant is None or limits:
        return
    for node in np.flatnonzero(constant).tolist():
        readers = model.graph.successors(node)
        if found.affinity.origin[node] == Origin.PIN or not len(readers):
            continue
        where = device_of[readers]
        if rules.objective is Objective.THROUGHPUT:
            where = where[where == where.min()]
        if masks[where, node].any():
            assert device_of[node] in where
        assert found.affinity.reason(node)


# -- whole models --------------------------------------------------------------------------------------------------


def quantized(batch: int | str = 2) -> onnx.ModelProto:
    """Two products of quantized weights with an Exp between them, which FPGA does not support."""
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["d"], "d"),
        helper.make_node("Identity", ["d"], ["i"], "i"),
        helper.make_node("MatMul", ["x", "i"], ["m"], "m"),
        helper.make_node("Exp", ["m"], ["e"], "e"),
        helper.make_node("Add", ["e", "i"], ["y"], "y"),
    ]
    weights: dict[str, Any] = {"q": np.arange(-8, 8, dtype=np.int8).reshape(4, 4), "s": np.float32(0.1)}
    return make_model(nodes, {"x": (batch, 4)}, weights=weights)


@pytest.mark.spread(2)
@pytest.mark.parametrize(
    "config",
    [
        {},
        {"ASSIGNMENT": "COST"},
        {"OBJECTIVE": "LATENCY"},
        {"MODEL_DISTRIBUTION_POLICY": "PIPELINE_PARALLEL"},
        {"MAX_MEMORY": {"FPGA": 300}},
    ],
)
@pytest.mark.parametrize("pins", [{}, {"d": "CPU"}, {"m": "CPU"}, {"i": "FPGA", "m": "CPU"}])
def test_results_are_those_of_one_device(config: dict[str, Any], pins: dict[str, str]) -> None:
    model = quantized(4)
    x = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)
    devices = "HETERO:FPGA,CPU"
    if "MODEL_DISTRIBUTION_POLICY" in config:
        devices, pins = "HETERO:CPU,TEMPLATE", {"m": "CPU", "y": "TEMPLATE"}
    compiled = CORE.compile_model(model, devices, config, pins=pins)
    assert all(compiled.plan.affinity[key] == device for key, device in pins.items())
    expected = CORE.compile_model(model, "CPU")({"x": x})["y"]
    for _ in range(2):
        np.testing.assert_allclose(compiled({"x": x})["y"], expected, rtol=1e-6)


def test_inside_a_body() -> None:
    """In a Loop whose body is cut, a constant of the body goes with its reader; a captured result is an input there."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["k"], ["c"], "c"),
            helper.make_node("MatMul", ["s_in", "c"], ["p"], "p"),
            helper.make_node("Exp", ["p"], ["e"], "e"),
            helper.make_node("Add", ["e", "o"], ["s_out"], "a"),
            helper.make_node("Identity", ["go_in"], ["go_out"], "g"),
        ],
        "body",
        [
            helper.make_tensor_value_info("t", TensorProto.INT64, []),
            helper.make_tensor_value_info("go_in", TensorProto.BOOL, []),
            helper.make_tensor_value_info("s_in", TensorProto.FLOAT, [4, 4]),
        ],
        [
            helper.make_tensor_value_info("go_out", TensorProto.BOOL, []),
            helper.make_tensor_value_info("s_out", TensorProto.FLOAT, [4, 4]),
        ],
        [onnx.numpy_helper.from_array(W / 8, "k")],
    )
    nodes = [
        helper.make_node("Identity", ["w"], ["o"], "o"),
        helper.make_node("Loop", ["n", "yes", "x"], ["y"], "loop", body=body),
    ]
    weights: dict[str, Any] = {"w": W, "n": np.int64(3), "yes": np.array(True)}
    model = make_model(nodes, {"x": (4, 4)}, weights=weights)
    expected = CORE.compile_model(model, "CPU")({"x": W})["y"]
    for pins in ({"loop/p": "CPU"}, {"loop/p": "FPGA"}, {"loop/p": "CPU", "loop/c": "FPGA"}):
        compiled = CORE.compile_model(model, "HETERO:FPGA,CONTROL_FLOW,CPU", pins=pins)
        np.testing.assert_allclose(compiled({"x": W})["y"], expected, rtol=1e-5)


def test_a_plan_is_kept_when_it_is_saved_and_loaded(tmp_path: Any) -> None:
    model = quantized()
    plan = CORE.plan(model, "HETERO:FPGA,CPU", pins={"m": "CPU"})
    assert set(plan.affinity.values()) == {"CPU"}
    plan.save(tmp_path / "plan.json")
    again = CORE.plan(model, hetero.Plan.load(tmp_path / "plan.json"))
    assert again.affinity == plan.affinity
    assert again.reasons == plan.reasons
    difference = plan.what_if(without_pins=["m"])
    assert {moved.node for moved in difference.moved} == {"d", "i", "m"}


@pytest.mark.parametrize(
    ("nodes", "devices"),
    [
        ([("Relu", "w", "c"), ("Max", "x c", "y")], ["CPU", "CPU"]),
        ([("Relu", "w", "c"), ("Add", "x c", "a"), ("Max", "a c", "y")], ["FPGA", "FPGA", "CPU"]),
        ([("Relu", "w", "c"), ("Relu", "c", "d"), ("Max", "x d", "y")], ["CPU"] * 3),
        ([("Relu", "w", "c"), ("Max", "x x", "y")], ["FPGA", "CPU"]),  # read by no node
    ],
)
def test_a_query_answers_as_a_plan_by_priority(nodes: Sequence[tuple[str, str, str]], devices: Sequence[str]) -> None:
    model = make(nodes)
    answer = CORE.query_model(model, "HETERO:FPGA,CPU")
    assert [answer[key] for key in model.keys] == devices
    plan = CORE.plan(model, "HETERO:FPGA,CPU")
    assert [plan.devices[device] for device in plan.assignment.affinity.device_of.tolist()] == devices


def test_a_query_with_a_reader_that_no_device_supports() -> None:
    model = make([("Relu", "w", "c"), ("Mean", "x c", "y")])
    assert dict(CORE.query_model(model, "HETERO:FPGA,DSP_INT8")) == {"c": "FPGA"}
