"""Boundary values, totals per device and warnings."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import hetero
from hetero.base.formatting import byte_size as size
from hetero.plan import BoundaryValue, DeviceTotals
from hetero.plan.traffic import Boundary
from model_zoo import make_model

DEVICES = "HETERO:FPGA,CPU"


def node(op: str, inputs: str, output: str, name: str = "") -> object:
    return helper.make_node(op, inputs.split(), [output], name or output)


def test_values_are_told_once_with_all_their_readers(core: hetero.Core, diamond: hetero.Model) -> None:
    plan = core.plan(diamond, DEVICES, {"PARTITION_POLICY": "documented"})
    assert plan.values == (
        BoundaryValue("n2", "float32", (2, 3), 24, 1, (2, 3)),
        BoundaryValue("n4", "float32", (2, 3), 24, 2, (3,)),
    )
    assert plan.totals == (
        DeviceTotals("FPGA", 6, 2, 0, 24, 24, 0, 96, 0, 4_000_000_000),
        DeviceTotals("CPU", 1, 1, 0, 24, 24, 0, 48, 0, None),
    )


@pytest.mark.filterwarnings("ignore:FPGA may exceed its limit")
def test_sizes_that_are_not_known(core: hetero.Core) -> None:
    nodes = [node("Relu", "x", "a"), node("Exp", "a", "b"), node("Relu", "b", "y")]
    model = core.read_model(make_model(nodes, inputs={"x": ["batch", 3]}))
    plan = core.plan(model, DEVICES)
    assert plan.values[0] == BoundaryValue("a", "float32", ("batch", 3), None, 1, (2,))
    assert plan.totals[1] == DeviceTotals("CPU", 1, 1, 0, 0, 0, 2, 0, 2)
    assert "2 unknown" in str(plan)
    assert plan.unknown_sizes == "set 'batch', as in shapes={'batch': 1} or --dim batch=1"
    assert str(plan).count(plan.unknown_sizes) == 1  # in the warning about the limit
    assert f"\n\nunknown sizes: {plan.unknown_sizes}" in str(core.plan(model, "CPU"))
    plan = core.plan(model.with_types({"x": (np.float32, (5, 3))}), DEVICES)
    assert [value.bytes for value in plan.values] == [60, 60]
    assert not plan.unknown_sizes
    assert "unknown" not in str(plan)
    assert plan.totals[1] == DeviceTotals("CPU", 1, 1, 0, 60, 60, 0, 120, 0)


@pytest.mark.parametrize(
    ("dtype", "shape", "expected"),
    [
        (ml_dtypes.int4, (3, 5), 8),
        (ml_dtypes.bfloat16, (7,), 14),
        (np.bool_, (), 1),
        (np.str_, (4,), None),
        (np.float32, (0, 9), 0),
        (np.float64, (1 << 31, 1 << 31, 4), None),
        (None, (4,), None),
        (np.float32, None, None),
    ],
)
def test_bytes_of_values(core: hetero.Core, dtype: object, shape: object, expected: int | None) -> None:
    nodes = [
        helper.make_node("Frob", ["x"], ["a"], "frob", domain="mine"),
        helper.make_node("Grob", ["a"], ["y"], "grob", domain="mine"),
    ]
    proto = make_model(nodes)
    proto.opset_import.add(domain="mine", version=1)
    model = core.read_model(proto)
    if dtype is not None or shape is not None:
        model = model.with_types({"a": (dtype, shape)})
    for name in ("ALPHA", "BETA"):
        core.register_plugin(name, TakesAll)
    plan = core.plan(model, "HETERO:ALPHA,BETA", pins={"grob": "BETA"})
    (value,) = plan.values
    assert (value.name, value.bytes) == ("a", expected)


class TakesAll(hetero.Plugin):
    name = "ANY"

    def query_model(self, model: hetero.Model, config: object) -> hetero.Support:
        return hetero.Support.from_reasons(model.num_nodes, {})

    def compile_model(self, model: hetero.Model, config: object, context: object = None) -> hetero.CompiledModel:
        raise NotImplementedError


def test_weights_are_counted_once_per_device(core: hetero.Core) -> None:
    nodes = [node("Add", "x w", "a"), node("Exp", "a", "b"), node("Add", "b w", "c"), node("Pow", "c e", "y")]
    weights = {"w": np.zeros((2, 3), np.float32), "e": np.ones(1, np.float32), "unread": np.zeros(99, np.float32)}
    plan = core.plan(core.read_model(make_model(nodes, weights=weights)), DEVICES)
    assert [(total.device, total.weight_bytes) for total in plan.totals] == [("FPGA", 24), ("CPU", 4)]
    plan = core.plan(core.read_model(make_model(nodes, weights=weights)), DEVICES, pins={"c": "CPU"})
    assert [(total.device, total.weight_bytes) for total in plan.totals] == [("FPGA", 24), ("CPU", 28)]


def test_strings_weigh_what_they_take_in_the_file(core: hetero.Core) -> None:
    nodes = [helper.make_node("Equal", ["s", "t"], ["y"], "equal")]
    graph = helper.make_graph(
        nodes,
        "strings",
        [helper.make_tensor_value_info("s", TensorProto.STRING, [2])],
        [helper.make_tensor_value_info("y", TensorProto.BOOL, [2])],
        [numpy_helper.from_array(np.array(["ab", "cde"], object), "t")],
    )
    model = core.read_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=8))
    (total,) = core.plan(model, "HETERO:TEMPLATE").totals
    assert 5 <= total.weight_bytes <= 30


def test_what_nested_graphs_capture_is_read(core: hetero.Core) -> None:
    then = helper.make_graph([node("Neg", "a", "p")], "t", [], [helper.make_tensor_value_info("p", 1, None)])
    other = helper.make_graph([node("Abs", "a", "q")], "e", [], [helper.make_tensor_value_info("q", 1, None)])
    nodes = [
        node("Relu", "x", "a"),
        helper.make_node("Greater", ["x", "x"], ["g"], "g"),
        helper.make_node("If", ["c"], ["y"], "if", then_branch=then, else_branch=other),
    ]
    proto = make_model(nodes[:1] + nodes[2:])
    proto.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    plan = core.plan(core.read_model(proto), DEVICES)
    assert [(value.name, value.source, value.readers) for value in plan.values] == [("a", 1, (2,))]


@pytest.mark.parametrize("seed", range(5))
def test_values_agree_with_a_naive_count(core: hetero.Core, seed: int) -> None:
    rng = np.random.default_rng(seed)
    nodes = []
    for i in range(80):
        reads = [f"v{j}" for j in rng.integers(max(0, i - 9), i + 1, 2)]
        nodes.append(node(str(rng.choice(["Add", "Max", "Sub"], p=[0.6, 0.2, 0.2])), " ".join(reads), f"v{i + 1}"))
    model = core.read_model(make_model(nodes, inputs={"v0": [4]}, outputs=("v80",)))
    plan = core.plan(model, DEVICES)
    subgraph_of = {key: number for number, part in enumerate(plan.subgraphs, 1) for key in part.nodes}
    readers: dict[tuple[int, str], set[int]] = {}
    for view in model.nodes:
        for name in view.inputs:
            if name != "v0" and subgraph_of[name] != subgraph_of[view.key]:
                readers.setdefault((subgraph_of[name], name), set()).add(subgraph_of[view.key])
    found = {(value.source, value.name): set(value.readers) for value in plan.values}
    assert found == readers
    assert [value.source for value in plan.values] == sorted(value.source for value in plan.values)
    device_of = {number: part.device for number, part in enumerate(plan.subgraphs, 1)}
    for total in plan.totals:
        taken = {
            name
            for (source, name), numbers in readers.items()
            if device_of[source] != total.device and any(device_of[number] == total.device for number in numbers)
        }
        given = {
            name
            for (source, name), numbers in readers.items()
            if device_of[source] == total.device and any(device_of[number] != total.device for number in numbers)
        }
        assert (total.received_bytes, total.sent_bytes) == (16 * len(taken), 16 * len(given))
        assert total.nodes == sum(device == total.device for device in plan.affinity.values())


def test_a_device_without_a_node_is_told(core: hetero.Core) -> None:
    model = core.read_model(make_model([node("Relu", "x", "a"), node("LeakyRelu", "a", "y")]))
    (warning,) = core.plan(model, "HETERO:CPU,FPGA").warnings
    assert (warning.kind, warning.device) == ("unused", "FPGA")
    assert "FPGA has no node: the 2 nodes that it supports are on devices before it" in warning.message
    model = core.read_model(make_model([node("Exp", "x", "a"), node("Neg", "a", "b"), node("Exp", "b", "y")]))
    (warning,) = core.plan(model, DEVICES).warnings
    assert "supports none of the 3 nodes (2 nodes: the profile of FPGA does not list Exp; 1 node: " in warning.message
    model = core.read_model(make_model([node("Relu", "x", "a"), node("Relu", "a", "y")]))
    (warning,) = core.plan(model, DEVICES, {"MIN_SUBGRAPH": {"FPGA": 3}}).warnings
    assert "FPGA has no node: the constraints leave it none of the 2 nodes (2 nodes: its subgraph " in warning.message
    proto = make_model([node("Relu", "x", "a"), node("Relu", "a", "y")], {"x": [1, 2, 3, 4, 5]})
    (warning,) = core.plan(core.read_model(proto), DEVICES).warnings
    assert "(2 nodes: the profile of FPGA supports Relu only with at most rank 4, found rank 5)" in warning.message


def test_islands_are_told_with_what_surrounds_them(core: hetero.Core) -> None:
    ops = ["Relu", "Relu", "Exp", "Relu", "Relu", "Neg", "Relu"]
    nodes = [node(op, f"v{i}", f"v{i + 1}") for i, op in enumerate(ops)]
    model = core.read_model(make_model(nodes, inputs={"v0": [2]}, outputs=("v7",)))
    (warning,) = core.plan(model, DEVICES).warnings
    assert (warning.kind, warning.device, warning.subgraphs, warning.nodes) == ("islands", "CPU", (2, 4), ("v3", "v6"))
    assert "2 tiny islands on CPU next to subgraphs of FPGA" in warning.message
    assert "FPGA does not support Exp (1), Neg (1)" in warning.message
    messages = [warning.message for warning in core.plan(model, DEVICES, {"STAY_TOGETHER": ["v3|v4"]}).warnings]
    assert any(
        message.endswith("; FPGA does not support Exp (1), Neg (1), and constraints keep 1 node off FPGA")
        for message in messages
    ), messages
    ops = ["Exp", "Exp", "Exp", "Relu", "Exp", "Exp", "Exp"]
    nodes = [node(op, f"v{i}", f"v{i + 1}") for i, op in enumerate(ops)]
    model = core.read_model(make_model(nodes, inputs={"v0": [2]}, outputs=("v7",)))
    (warning,) = core.plan(model, DEVICES).warnings
    assert "CPU also supports it: pinned there, the model has 1 subgraph instead of 3" in warning.message
    assert (warning.device, warning.nodes, warning.subgraphs_after) == ("FPGA", ("v4",), 1)
    assert core.plan(model, DEVICES, pins={"v4": "CPU"}).num_subgraphs == 1


def test_pins_that_cost_subgraphs_are_told(core: hetero.Core, diamond: hetero.Model) -> None:
    plan = core.plan(diamond, DEVICES, pins={"six": "CPU", "four": "CPU"})
    (warning,) = [warning for warning in plan.warnings if warning.kind == "pin"]
    assert (warning.pin, warning.device, warning.nodes) == ("six", "CPU", ("six",))
    assert warning.subgraphs_after == core.plan(diamond, DEVICES, pins={"four": "CPU"}).num_subgraphs == 3
    assert warning.message == "the pin 'six' to CPU (1 node) costs 2 subgraphs: 5 with, 3 without"
    (warning,) = [
        warning
        for warning in core.plan(diamond.with_affinity({"six": "CPU"}), DEVICES).warnings
        if warning.kind == "pin"
    ]
    assert warning.message.startswith("affinities in the model (1 node) cost 2 subgraphs")


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (9996, "10.0 kB"), (999_499, "999 kB"), (999_500, "1.00 MB")],
)
def test_sizes_in_words(number: int, text: str) -> None:
    assert size(number) == text


@pytest.mark.filterwarnings("ignore:FPGA may exceed its limit")
@pytest.mark.parametrize("batch", ["batch", 5])
def test_columns_are_those_of_the_values(core: hetero.Core, batch: str | int) -> None:
    nodes = [node("Relu", "x", "a"), node("Exp", "a", "b"), node("Relu", "b", "c"), node("Add", "a c", "y")]
    plan = core.plan(core.read_model(make_model(nodes, inputs={"x": [batch, 3]})), DEVICES)
    loaded = hetero.Plan.from_json(plan.to_json(), "plan p.json")
    names = [value.name for value in plan.values]
    for boundary in (plan.boundary, Boundary.of(plan.values), loaded.boundary):
        assert boundary.values(names) == plan.values
        assert boundary.rows.tolist() == [row for row, value in enumerate(plan.values) for _ in value.readers]
    everything = np.arange(len(names))
    assert plan.boundary.total(everything) == (
        sum(value.bytes or 0 for value in plan.values),
        sum(value.bytes is None for value in plan.values),
    )
    assert loaded.subgraph_devices == list(plan.subgraph_devices) == [part.device for part in plan.subgraphs]
    assert [loaded.ends_of(i) for i in range(loaded.num_subgraphs)] == [
        plan.ends_of(i) for i in range(plan.num_subgraphs)
    ]
    assert str(loaded).splitlines()[:3] == str(plan).splitlines()[:3]


def test_printing_makes_no_object_for_each_value(core: hetero.Core, diamond: hetero.Model) -> None:
    plan = core.plan(diamond, DEVICES)
    str(plan)
    assert not {"values", "subgraphs"} & set(vars(plan))


def test_totals_above_64_bits() -> None:
    values = [BoundaryValue(f"v{i}", "uint8", (2**62, 2), 2**63 - 1, 1, (2,)) for i in range(3)]
    values.append(BoundaryValue("s", "str", (4,), None, 1, ()))
    boundary = Boundary.of(values)
    assert boundary.total(np.arange(4)) == (3 * (2**63 - 1), 1)
    assert boundary.total(np.array([], np.int64)) == (0, 0)
    assert boundary.readers.tolist() == [1, 1, 1]


@pytest.mark.parametrize("number", [-(2**63), -1, 0, 2**63 - 1])
def test_a_plan_file_with_any_numbers_of_subgraphs_prints(
    core: hetero.Core, diamond: hetero.Model, number: int
) -> None:
    data = json.loads(core.plan(diamond, DEVICES).to_json())
    data["values"][0].update(source=number, readers=[number])
    assert "subgraph" in str(hetero.Plan.from_json(json.dumps(data).encode(), "plan p.json"))
