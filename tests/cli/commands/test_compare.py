"""``hetero compare``: what differs, by how much, and which tolerance would let it pass."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import hetero as library
from command_line import Invoke, Json
from hetero.demo import light_model_path
from model_zoo import make_model


def test_agrees(hetero: Invoke, hetero_json: Json, diamond_path: Path) -> None:
    found = hetero_json("compare", diamond_path, "-d", "HETERO:FPGA,CPU", "-d", "TEMPLATE")
    assert found["passed"]
    assert [entry["name"] for entry in found["values"]] == ["y"]
    assert (found["device"], found["reference"]) == ("HETERO:FPGA,CPU", "TEMPLATE")
    assert "The value passes" in hetero("compare", diamond_path, "-d", "TEMPLATE").stdout


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


def test_with_outputs_leaves_constants_out() -> None:
    model = library.Core().read_model(
        make_model([helper.make_node("Add", ["x", "w"], ["y"])], weights={"w": np.ones(3, np.float32)})
    )
    assert [port.name for port in model.with_outputs(["w", "x"]).outputs] == ["y", "x"]
