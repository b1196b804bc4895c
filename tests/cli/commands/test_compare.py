"""``hetero compare``: what differs, by how much, and which tolerance would let it pass."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import pytest
from onnx import helper

import hetero as library
from command_line import Invoke, Json
from hetero.demo import light_model_path
from model_zoo import make_model
from quantized_blocks import residual


def test_agrees(hetero: Invoke, hetero_json: Json, diamond_path: Path) -> None:
    found = hetero_json("compare", diamond_path, "-d", "HETERO:FPGA,CPU", "-d", "TEMPLATE")
    assert found["passed"]
    assert [entry["name"] for entry in found["values"]] == ["y"]
    assert (found["device"], found["reference"]) == ("HETERO:FPGA,CPU", "TEMPLATE")
    assert "The value passes" in hetero("compare", diamond_path, "-d", "TEMPLATE").stdout


def test_maps(hetero: Invoke, hetero_json: Json, tmp_path: Path) -> None:
    """ZipMap is the last node of most classifiers of scikit-learn."""
    zip_map = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_strings=["a", "b", "c"])
    kind = helper.make_map_type_proto(onnx.TensorProto.STRING, helper.make_tensor_type_proto(1, []))
    graph = helper.make_graph(
        [zip_map],
        "classes",
        [helper.make_tensor_value_info("x", 1, [2, 3])],
        [helper.make_value_info("y", helper.make_sequence_type_proto(kind))],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "m.onnx")
    found = hetero_json("compare", tmp_path / "m.onnx", "-d", "CPU", "-d", "ORT")
    assert found["passed"]
    assert found["values"][0]["shape"] == [2, 3]
    printed = hetero("run", tmp_path / "m.onnx", "--save", tmp_path / "o.npz").stdout
    assert "y        maps    2x3" in printed
    assert np.load(tmp_path / "o.npz")["y.keys"].tolist() == ["a", "b", "c"]


def test_boundaries(hetero_json: Json, diamond_path: Path) -> None:
    found = hetero_json("compare", diamond_path, "-d", "HETERO:FPGA,CPU", "-d", "TEMPLATE", "--boundaries")
    core = library.Core()
    plan = core.plan(core.read_model(diamond_path), "HETERO:FPGA,CPU")
    assert plan.num_subgraphs == 3
    by_name = {entry["name"]: entry for entry in found["values"]}
    assert set(by_name) == {"a", "b", "c", "y"}
    made_in = {name: i for i, part in enumerate(plan.subgraphs, 1) for name in part.nodes}
    assert by_name["a"]["subgraph"] == made_in["first"]
    assert by_name["b"]["subgraph"] == made_in["norm"]
    assert by_name["y"]["subgraph"] == made_in["last"]


def test_boundaries_of_a_saved_plan(hetero_json: Json, diamond_path: Path) -> None:
    core = library.Core()
    core.plan(core.read_model(diamond_path), "HETERO:FPGA,CPU", pins={"last": "CPU"}).save("plan.json")
    found = hetero_json("compare", diamond_path, "--plan", "plan.json", "-d", "TEMPLATE", "--boundaries")
    assert {entry["name"] for entry in found["values"]} == {"a", "b", "c", "d", "y"}
    assert found["passed"]
    assert hetero_json("compare", diamond_path, "--plan", "plan.json")["passed"]


@pytest.mark.parametrize("option", ["rtol", "atol"])
def test_least_tolerance_lets_all_pass(option: str, hetero: Invoke, hetero_json: Json, diamond_path: Path) -> None:
    arguments = ("compare", diamond_path, "-d", "HETERO:FPGA,CPU", "-d", "TEMPLATE", "--boundaries")
    strict = hetero_json(*arguments, "--rtol", "0", "--atol", "0", code=3)
    assert not strict["passed"]
    ranks = [entry["relative"] for entry in strict["values"] if not entry["passes"]]
    assert ranks == sorted(ranks, reverse=True)
    assert "all pass with --rtol" in hetero(*arguments, "--rtol", "0", "--atol", "0", code=3).stdout
    least = strict[f"least_{option}"]
    other = "atol" if option == "rtol" else "rtol"
    hetero(*arguments, f"--{option}", repr(least * 1.000001), f"--{other}", "0")
    hetero(*arguments, f"--{option}", repr(least * 0.99), f"--{other}", "0", code=3)


def test_what_cannot_be_compared(hetero: Invoke, diamond_path: Path) -> None:
    assert "with itself" in hetero("compare", diamond_path, "-d", "CPU", code=2).stderr
    assert "-d twice" in hetero("compare", diamond_path, code=2).stderr
    assert "-d twice" in hetero("compare", diamond_path, "-d", "CPU", "-d", "ORT", "-d", "TEMPLATE", code=2).stderr


def test_with_outputs_of_a_real_model_against_onnxruntime() -> None:
    """A value inside, made an output, is what onnxruntime computes there."""
    onnxruntime = pytest.importorskip("onnxruntime")
    core = library.Core()
    proto = onnx.load(light_model_path("light_squeezenet"))
    model = core.read_model(proto)
    name = model.nodes[model.num_nodes // 2].outputs[0]
    more = model.with_outputs([name, name, model.outputs[0].name])
    assert [port.name for port in more.outputs] == [*(port.name for port in model.outputs), name]
    assert [port.name for port in model.outputs] != [port.name for port in more.outputs]
    x = {model.inputs[0].name: np.random.default_rng(0).random((1, 3, 224, 224), np.float32)}
    session = onnxruntime.InferenceSession(more.to_bytes(), providers=["CPUExecutionProvider"])
    expected = session.run([name], x)[0]
    found = core.compile_model(more, "CPU")(x)[name]
    assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()
    with pytest.raises(library.ModelError, match="nowhere"):
        model.with_outputs(["nowhere"])


@pytest.mark.parametrize("at", [1, 20, -1])
def test_outputs_that_are_dropped(at: int) -> None:
    """Of one value inside a real model, only the nodes that it needs are left."""
    onnxruntime = pytest.importorskip("onnxruntime")
    core = library.Core()
    model = core.read_model(light_model_path("light_squeezenet"))
    name = model.nodes[at % model.num_nodes].outputs[0]
    only = model.with_outputs([name], keep=False)
    assert [port.name for port in only.outputs] == [name]
    assert [port.name for port in only.inputs] == [port.name for port in model.inputs]
    x = {model.inputs[0].name: np.random.default_rng(0).random((1, 3, 224, 224), np.float32)}
    session = onnxruntime.InferenceSession(only.to_bytes(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, x)
    assert len(session.get_outputs()) == 1
    for device in ("CPU", "HETERO:FPGA,CPU"):
        (found,) = core.compile_model(only, device)(x)
        assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()
    if at > 0:
        assert only.num_nodes < model.num_nodes


def test_outputs_are_chosen_in_any_order() -> None:
    core = library.Core()
    node = helper.make_node
    proto = make_model(
        [
            node("Relu", ["x"], ["a"], "a"),
            node("Exp", ["a"], ["b"], "b"),
            node("Neg", ["x2"], ["c"], "c"),
            node("Split", ["b"], ["d", "", "e"], "s", axis=0),
            node("Add", ["d", "w"], ["y"], "y"),
        ],
        inputs={"x": [3], "x2": [2]},
        outputs=("y", "c"),
        weights={"w": np.ones(1, np.float32)},
    )
    model = core.read_model(proto)
    values = {"x": np.array([-1, 0, 2], np.float32), "x2": np.array([1, 2], np.float32)}
    expected = {"a": [0, 0, 2], "b": [1, 1, np.exp(2)], "c": [-1, -2], "x": [-1, 0, 2], "e": [np.exp(2)], "y": [2]}
    for names in (["c"], ["e", "a"], ["b", "c", "b"], ["x", "a"], ["y"], ["x"], list(expected)):
        part = model.with_outputs(names, keep=False)
        assert [port.name for port in part.outputs] == list(dict.fromkeys(names))
        found = core.compile_model(part, "CPU")(values)
        for name in names:
            np.testing.assert_allclose(found[name], np.array(expected[name], np.float32), rtol=1e-6)
    assert model.with_outputs(["c"], keep=False).num_nodes == 1
    assert model.with_outputs(["e"], keep=False).num_nodes == 3
    assert list(model.with_outputs(["c"], keep=False).initializers) == []
    again = core.read_model(model.with_outputs(["e", "c"], keep=False).to_bytes())
    assert [port.name for port in again.outputs] == ["e", "c"]
    twice = model.with_outputs(["b", "c"], keep=False).with_outputs(["a"]).with_outputs(["a"], keep=False)
    assert twice.num_nodes == 1
    for names, words in ((["nowhere"], "nowhere"), ([], "at least one"), (["w"], "'w' is a constant")):
        with pytest.raises(library.ModelError, match=words):
            model.with_outputs(names, keep=False)


def test_outputs_that_only_nested_graphs_read() -> None:
    """A value that the body of an If captures is needed as much as an input."""
    core = library.Core()
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(op, ["a"], ["r"])], name, [], [helper.make_tensor_value_info("r", 1, [2])]
        )
        for name, op in (("then", "Exp"), ("else", "Neg"))
    }
    nodes = [helper.make_node("Relu", ["x"], ["a"], "a"), helper.make_node("If", ["c"], ["y"], "if", **branches)]
    nodes.append(helper.make_node("Abs", ["y"], ["z"], "z"))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", 1, [2]), helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("z", 1, [2])],
    )
    model = core.read_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    part = model.with_outputs(["y"], keep=False)
    assert part.num_nodes == 2
    (found,) = core.compile_model(part, "CPU")({"x": np.array([1, -1], np.float32), "c": np.array(False)})
    assert found.tolist() == [-1, 0]


class Wrong(library.Plugin):
    """The CPU device, which computes some Relu nodes as LeakyRelu."""

    name = "WRONG"
    wrong: tuple[str, ...] = ()
    compiled: ClassVar[list[int]] = []

    def query_model(self, model: library.Model, config: Mapping[str, Any]) -> library.Support:
        return library.Support(np.ones(model.num_nodes, np.bool_), {})

    def compile_model(
        self, model: library.Model, config: Mapping[str, Any], context: Any = None
    ) -> library.CompiledModel:
        proto = onnx.load_from_string(model.to_bytes())
        self.compiled.append(model.num_nodes)
        for node in proto.graph.node:
            if node.name in self.wrong:
                node.op_type = "LeakyRelu"
                node.attribute.append(helper.make_attribute("alpha", 0.5))
        return library.Core().compile_model(proto, "CPU")


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> type[Wrong]:
    class Chosen(Wrong):
        compiled: ClassVar[list[int]] = []

    def core() -> library.Core:
        core = library.Core()
        core.register_plugin("WRONG", Chosen)
        return core

    monkeypatch.setattr("hetero.cli.session.Core", core)
    return Chosen


def chain(length: int, path: str) -> None:
    """p -> p - Relu(p) -> …, which negative numbers pass unchanged, and a difference too."""
    nodes = []
    for i in range(length):
        nodes += [
            helper.make_node("Relu", [f"p{i}"], [f"r{i}"], f"relu{i}"),
            helper.make_node("Sub", [f"p{i}", f"r{i}"], [f"p{i + 1}"], f"sub{i}"),
        ]
    onnx.save(make_model(nodes, inputs={"p0": [16]}, outputs=(f"p{length}",)), path)


@pytest.mark.spread(2)
@pytest.mark.parametrize("bisected", [False, True])
@pytest.mark.parametrize("faulty", [("relu3",), ("relu0",), ("relu9",), ("relu4", "relu7")])
def test_the_first_node_that_diverges(
    wrong: type[Wrong],
    hetero_json: Json,
    hetero: Invoke,
    monkeypatch: pytest.MonkeyPatch,
    faulty: tuple[str, ...],
    bisected: bool,
) -> None:
    wrong.wrong = faulty
    chain(10, "chain.onnx")
    if bisected:
        monkeypatch.setattr("hetero.cli.divergence._MOST_VALUES", 3)
    compare = ("compare", "chain.onnx", "-d", "WRONG", "-d", "CPU", "--nodes", "--range", "-1:0", "--atol", "1e-7")
    found = hetero_json(*compare, code=3)
    first = found["first_node"]
    assert (first["node"], first["op_type"], first["bisected"]) == (faulty[0], "Relu", bisected)
    assert [value["name"] for value in first["values"]] == [faulty[0].replace("relu", "r")]
    assert not first["values"][0]["passes"]
    if not bisected:
        names = {value["name"] for value in found["values"]}
        assert names == {f"r{i}" for i in range(10)} | {f"p{i}" for i in range(1, 11)}
    text = hetero(*compare, code=3).stdout
    assert f"First node that differs: {faulty[0]} (Relu), which computes" in text


def test_bisection_compiles_only_nodes_between_cuts(
    wrong: type[Wrong], hetero_json: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole model, a half, a quarter, and so on, wherever the wrong node is."""
    monkeypatch.setattr("hetero.cli.divergence._MOST_VALUES", 3)
    chain(32, "chain.onnx")
    for number in (0, 13, 31):
        wrong.wrong = (f"relu{number}",)
        wrong.compiled.clear()
        found = hetero_json("compare", "chain.onnx", "-d", "WRONG", "-d", "CPU", "--nodes", "--range", "-1:0", code=3)
        assert found["first_node"]["node"] == f"relu{number}"
        assert sum(wrong.compiled) <= 2.5 * 64, wrong.compiled


def test_nodes_that_all_agree(
    wrong: type[Wrong], hetero_json: Json, hetero: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain(4, "chain.onnx")
    compare = ("compare", "chain.onnx", "-d", "WRONG", "-d", "CPU", "--nodes")
    for most in (2000, 3):
        monkeypatch.setattr("hetero.cli.divergence._MOST_VALUES", most)
        found = hetero_json(*compare)
        assert found["passed"]
        assert found["first_node"] is None
        assert found["each_node"] == (most == 2000)
        assert ("Only the outputs were compared" in hetero(*compare).stdout) == (most == 3)


def test_bisection_of_a_difference_that_disappears_and_comes_back(
    wrong: type[Wrong], hetero_json: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wrong value is multiplied by zero on one way, and lives on along another."""
    node = helper.make_node
    nodes = [node("Relu", ["x"], ["a"], "a"), node("Mul", ["a", "zero"], ["b0"], "b0")]
    nodes += [node("Add", [f"b{i}", "one"], [f"b{i + 1}"], f"b{i + 1}") for i in range(20)]
    nodes += [node("Add", ["a", "b20"], ["y"], "y")]
    weights = {"zero": np.zeros(4, np.float32), "one": np.ones(4, np.float32)}
    onnx.save(make_model(nodes, inputs={"x": [4]}, outputs=("y",), weights=weights), "m.onnx")
    wrong.wrong = ("a",)
    monkeypatch.setattr("hetero.cli.divergence._MOST_VALUES", 3)
    found = hetero_json("compare", "m.onnx", "-d", "WRONG", "-d", "CPU", "--nodes", "--range", "-1:0", code=3)
    assert found["first_node"]["node"] == "a"


def test_nodes_over_several_devices(hetero_json: Json, hetero: Invoke, diamond_path: Path) -> None:
    found = hetero_json("compare", diamond_path, "-d", "HETERO:FPGA,CPU", "-d", "TEMPLATE", "--nodes")
    assert {entry["name"] for entry in found["values"]} == {"a", "b", "c", "d", "y"}
    assert found["first_node"] is None
    both = hetero("compare", diamond_path, "-d", "CPU", "-d", "TEMPLATE", "--nodes", "--boundaries", code=2)
    assert "give --boundaries or --nodes" in both.stderr


def test_nodes_of_separate_parts_on_one_device(hetero_json: Json) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"], "a"), helper.make_node("Abs", ["z"], ["w"], "b")]
    onnx.save(make_model(nodes, inputs={"x": [4], "z": [4]}, outputs=("y", "w")), "m.onnx")
    found = hetero_json("compare", "m.onnx", "-d", "CPU", "-d", "TEMPLATE", "--nodes")
    assert {value["name"] for value in found["values"]} == {"y", "w"}
    assert found["passed"]


def test_with_outputs_leaves_constants_out() -> None:
    model = library.Core().read_model(
        make_model([helper.make_node("Add", ["x", "w"], ["y"])], weights={"w": np.ones(3, np.float32)})
    )
    assert [port.name for port in model.with_outputs(["w", "x"]).outputs] == ["y", "x"]


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_tolerances_are_finite(hetero: Invoke, diamond_path: Path, value: str) -> None:
    wrong = hetero("compare", diamond_path, "-d", "CPU", "-d", "TEMPLATE", "--rtol", value, code=2)
    assert "is not a finite number" in wrong.stderr or "is not in the range" in wrong.stderr


def test_values_inside_units_are_left_out(hetero_json: Json, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device with patterns does not support a convolution whose float32 result is an output."""
    Path("residual.onnx").write_bytes(residual(2).to_bytes())
    command = ("compare", "residual.onnx", "-d", "HETERO:NPU_INT8,CPU", "--nodes")
    found = hetero_json(*command)
    names = {value["name"] for value in found["values"]}
    assert {"conv0_q", "mish0", "sum0_q", "y"} <= names
    assert names.isdisjoint({"conv0", "sum0"})
    monkeypatch.setattr("hetero.cli.divergence._MOST_VALUES", 1)
    monkeypatch.setattr("hetero.cli.divergence.Difference.passes", property(lambda entry: entry.name != "y"))
    assert hetero_json(*command, code=3)["first_node"]["node"] == "y"
