"""``hetero run``: inputs, outputs, counters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import hetero as library
from command_line import NASTY, Invoke, Json


def test_random_inputs_are_those_of_the_seed(hetero_json: Json, diamond_path: Path) -> None:
    one, same, other = (hetero_json("run", diamond_path, "--seed", seed)["outputs"] for seed in (1, 1, 2))
    assert one == same
    assert one != other
    (port,) = one
    assert (port["name"], port["dtype"], port["shape"]) == ("y", "float32", [1, 4, 5, 6])
    assert port["min"] <= port["mean"] <= port["max"]


def test_arrays_go_in_and_out(hetero: Invoke, hetero_json: Json, diamond_path: Path) -> None:
    x = np.random.default_rng(3).standard_normal((1, 4, 5, 6)).astype(np.float32)
    np.save("x.npy", x)
    np.savez("x.npz", x=x)
    expected = library.compile(diamond_path)(x)["y"]
    for given in ("x=x.npy", "x.npy", "x.npz"):
        found = hetero_json("run", diamond_path, "-i", given, "--save", "out.npz", "--force")
        assert found["inputs"][0]["source"] in ("x.npy", "x.npz")
        assert found["saved"] == {"path": "out.npz", "arrays": {"y": "y"}}
        np.testing.assert_array_equal(np.load("out.npz")["y"], expected)
    assert found["outputs"][0]["max"] == pytest.approx(expected.max())
    assert "Wrote out.npz" in hetero("run", diamond_path, "-o", "out.npz", "-f").stdout


@pytest.mark.parametrize("name", ["out.txt", "out.npy", "out.csv"])
def test_arrays_of_another_kind_of_file(name: str, hetero: Invoke, diamond_path: Path) -> None:
    failed = hetero("run", diamond_path, "--save", name, code=2)
    assert f"--save {name}: outputs are saved as an .npz file" in failed.stderr
    assert not Path(name).exists()


def test_counters(hetero: Invoke, hetero_json: Json, diamond_path: Path) -> None:
    counters = hetero_json("run", diamond_path, "-d", "HETERO:FPGA,CPU", "-pc")["counters"]
    assert {part["device"] for part in counters["subgraphs"]} == {"FPGA", "CPU"}
    assert [part["subgraph"] for part in counters["subgraphs"]] == [1, 2, 3]
    total = sum(part["real_us"] for part in counters["subgraphs"])
    assert total == pytest.approx(sum(row["real_us"] for row in counters["nodes"]))
    assert {row["node"] for row in counters["nodes"]} >= {"first", "norm"}
    assert "by subgraph" in hetero("run", diamond_path, "-d", "HETERO:FPGA,CPU", "-pc").stdout


def test_shapes_and_symbols(hetero_json: Json, hetero: Invoke, two_inputs_path: Path) -> None:
    def shapes(*options: str) -> list[list[int]]:
        return [entry["shape"] for entry in hetero_json("run", two_inputs_path, *options)["inputs"]]

    assert shapes() == [[1, 1], [1, 1]]
    assert shapes("--dim", "length=7") == [[1, 7], [1, 7]]
    assert shapes("--shape", "tokens=2x5") == [[2, 5], [2, 5]]
    assert shapes("--shape", "tokens=2x5,mask=2x5") == [[2, 5], [2, 5]]
    assert shapes("-shape", "tokens[2,5],mask[2,5]") == [[2, 5], [2, 5]]
    assert shapes("--shape", "tokens=2,5", "--shape", "mask=2,5") == [[2, 5], [2, 5]]
    np.save("tokens.npy", np.full((3, 2), 9))
    assert shapes("-i", "tokens=tokens.npy") == [[3, 2], [3, 2]]
    hetero("run", two_inputs_path, "--range", "tokens=0:10")
    for options, told in (
        (("--shape", "2x5"), "write NAME=…"),
        (("--shape", "token=2x5"), "did you mean tokens?"),
        (("--shape", "token=2x5,mask=2x5"), "has no input"),
        (("--shape", "tokens=two"), "expected NAME=1x3x224x224"),
        (("--shape", "tokens[2,5]rest"), "expected NAME=1x3x224x224"),
        (("--dim", "lenght=2"), "did you mean length?"),
        (("--dim", "length"), "SYMBOL=SIZE"),
        (("--range", "tokens=5:5"), "LOW must be less"),
        (("--range", "tokens=five"), "LOW:HIGH"),
        (("--range", "mask=0:1e400"), "expected finite numbers"),
        (("--range", "mask=-1e308:1e308"), "whose difference is finite"),
        (("--range", "tokens=0:5", "-i", "tokens=1,2"), "the values of 'tokens' are given by --input"),
    ):
        assert told in hetero("run", two_inputs_path, *options, code=2).stderr
    assert "length = 5" in hetero("run", two_inputs_path, "--shape", "tokens=1x5", "--shape", "mask=1x6", code=2).stderr
    assert "float32" in hetero("run", two_inputs_path, "-i", "mask=tokens.npy", code=1).stderr


def test_a_size_that_the_model_fixes(hetero: Invoke, diamond_path: Path) -> None:
    (port,) = onnx.load(diamond_path).graph.input
    shape = [dim.dim_value for dim in port.type.tensor_type.shape.dim]
    wrong = "x".join(map(str, [*shape[:-1], shape[-1] + 1]))
    done = hetero("run", diamond_path, "--shape", wrong, code=1)
    assert done.stderr.endswith(f"; the model fixes axis {len(shape) - 1} to {shape[-1]}\n")


def test_open_sizes_are_stated(hetero: Invoke, two_inputs_path: Path) -> None:
    """Only those of other axes than the first."""
    text = "the model does not fix these sizes, so they default to 1: length; set them with --shape or --dim"
    for command in ("run", "bench"):
        options = ("-t", "0.1") if command == "bench" else ()
        assert text in hetero(command, two_inputs_path, *options).stderr
        assert "sizes open" not in hetero(command, two_inputs_path, "--dim", "length=2", *options).stderr


def test_scalars_and_brackets_in_names() -> None:
    from hetero.cli.inputs import InputChoice
    from hetero.model.types import Port

    ports = [Port("a", np.dtype("f4"), None), Port("b=1", np.dtype("i1"), (2,)), Port("c", np.dtype(object), (2,))]
    made = InputChoice((), ("a=scalar",), (), (), 0).make(ports)
    assert made[0].array.shape == ()
    assert made[1].array.dtype == np.int8
    assert made[2].array.tolist() == ["", ""]
    assert InputChoice((), ("a=2x3", "b=1=2"), (), ("b=1=3:4",), 0).make(ports)[1].array.tolist() == [3, 3]


def test_bad_arrays(hetero: Invoke, diamond_path: Path) -> None:
    Path("text.npy").write_text("no array")
    np.save("objects.npy", np.array([{}]), allow_pickle=True)
    np.savez("wrong.npz", z=np.zeros(3))
    np.save("small.npy", np.zeros((1, 4, 5), np.float32))
    assert "as a .npy or .npz file" in hetero("run", diamond_path, "-i", "x=text.npy", code=1).stderr
    assert "as a .npy or .npz file" in hetero("run", diamond_path, "-i", "x=objects.npy", code=1).stderr
    assert "No such file" in hetero("run", diamond_path, "-i", "x=gone.npy", code=1).stderr
    assert "no input 'z'" in hetero("run", diamond_path, "-i", "wrong.npz", code=2).stderr
    assert "[1, 4, 5]" in hetero("run", diamond_path, "-i", "x=small.npy", code=1).stderr


def test_properties(hetero: Invoke, hetero_json: Json, diamond_path: Path) -> None:
    hetero("run", diamond_path, "--property", "INFERENCE_NUM_THREADS=1")
    hetero("run", diamond_path, "-d", "HETERO:FPGA,CPU", "--property", "CPU:INFERENCE_NUM_THREADS=1")
    assert "did you mean" in hetero("run", diamond_path, "--property", "NUM_STREAM=1", code=1).stderr
    assert "whole number" in hetero("run", diamond_path, "--property", "NUM_STREAMS=many", code=2).stderr
    assert "KEY=VALUE" in hetero("run", diamond_path, "--property", "NUM_STREAMS", code=2).stderr


def test_properties_that_are_mappings(hetero: Invoke, diamond_path: Path) -> None:
    def run(value: str, device: str = "HETERO:FPGA,CPU", code: int = 0) -> str:
        return str(hetero("run", diamond_path, "-d", device, "--property", value, code=code).stderr)

    run('DEVICE_PROPERTIES={"CPU": {"INFERENCE_NUM_THREADS": 1}}')
    assert "did you mean" in run('DEVICE_PROPERTIES={"CPU": {"NUM_STREAM": 1}}', code=1)
    assert "not valid JSON" in run('DEVICE_PROPERTIES={"CPU": }', code=2)
    pytest.importorskip("onnxruntime")
    run('ORT_SESSION_OPTIONS={"enable_mem_pattern": false}', "ORT")
    run('ORT:ORT_SESSION_OPTIONS={"enable_mem_pattern": false}', "HETERO:ORT,CPU")
    assert "expected bool, found 1" in run('ORT_SESSION_OPTIONS={"enable_mem_pattern": 1}', "ORT", code=1)


def test_plan_and_pins(hetero: Invoke, hetero_json: Json, diamond_path: Path) -> None:
    core = library.Core()
    core.plan(core.read_model(diamond_path), "HETERO:FPGA,CPU", pins={"last": "CPU"}).save("plan.json")
    by_plan = hetero_json("run", diamond_path, "--plan", "plan.json", "-pc")
    by_pin = hetero_json("run", diamond_path, "-d", "HETERO:FPGA,CPU", "--pin", "last=CPU", "-pc")
    devices = [[part["device"] for part in found["counters"]["subgraphs"]] for found in (by_plan, by_pin)]
    assert devices[0] == devices[1]
    assert by_plan["outputs"] == by_pin["outputs"]
    error = hetero("run", diamond_path, "-d", "HETERO:FPGA,CPU", "--pin", "lest=CPU", code=1).stderr
    assert "did you mean last?" in error
    assert "NODES=DEVICE" in hetero("run", diamond_path, "--pin", "last", code=2).stderr
    assert "--plan or --pin" in hetero("run", diamond_path, "--plan", "plan.json", "--pin", "last=CPU", code=2).stderr
    for command in (["run"], ["export"]):
        assert (
            "remove -d CPU, or --plan"
            in hetero(*command, diamond_path, "-d", "CPU", "--plan", "plan.json", code=2).stderr
        )


def test_hostile_names(hetero: Invoke, hetero_json: Json, nasty_path: Path) -> None:
    text = hetero("run", nasty_path, "-d", "HETERO:FPGA,CPU", "-pc", "--save", "out.npz").stdout
    assert "is stored as output_0" in text
    assert np.load("out.npz").files == ["output_0"]
    assert hetero_json("run", nasty_path)["outputs"][0]["name"] == f"{NASTY}out"


def test_an_input_with_a_default(hetero_json: Json, hetero: Invoke) -> None:
    x, w, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [3]) for name in "xwy")
    default = numpy_helper.from_array(np.float32([1, 2, 3]), "w")
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [x, w], [y], [default])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "d.onnx")
    left_out = hetero_json("run", "d.onnx", "-i", "x=0")
    assert [entry["name"] for entry in left_out["inputs"]] == ["x"]
    assert left_out["outputs"][0]["max"] == 3
    given = hetero_json("run", "d.onnx", "-d", "HETERO:FPGA,CPU", "-i", "x=0", "-i", "w=7,8,9")
    assert [entry["name"] for entry in given["inputs"]] == ["x", "w"]
    assert (given["outputs"][0]["min"], given["outputs"][0]["max"]) == (7, 9)
    assert hetero_json("compare", "d.onnx", "-d", "TEMPLATE", "-i", "w=1")["passed"]
    assert "takes" in hetero("run", "d.onnx", "-i", "w=1e39", code=2).stderr
    np.savez("both.npz", x=np.float32([1, 1, 1]), w=np.float32([4, 5, 6]))
    given = hetero_json("run", "d.onnx", "-i", "both.npz")
    assert [entry["name"] for entry in given["inputs"]] == ["x", "w"]
    assert (given["outputs"][0]["min"], given["outputs"][0]["max"]) == (5, 7)
    np.savez("wrong.npz", ww=np.float32([4, 5, 6]))
    for entry in ("ww=1", "wrong.npz"):
        assert "no input 'ww' (did you mean w?); its inputs: x, w" in hetero(
            "run", "d.onnx", "-i", entry, code=2
        ).stderr.replace("\n", " ")


@pytest.mark.parametrize("seed", ["-1", "1.5", "x"])
def test_bad_seeds(hetero: Invoke, diamond_path: Path, seed: str) -> None:
    assert "--seed" in hetero("run", diamond_path, "--seed", seed, code=2).stderr


def test_sizes_that_do_not_fit_a_branch_that_is_not_taken(hetero: Invoke, tmp_path: Path) -> None:
    """onnxruntime infers shapes there as well."""
    value = onnx.helper.make_tensor_value_info
    weights = [
        onnx.numpy_helper.from_array(np.ones(shape, np.float32), name)
        for name, shape in (("w", (1, 8, 4)), ("r", (1, 8, 2)))
    ]
    then = onnx.helper.make_graph(
        [
            onnx.helper.make_node("Squeeze", ["x"], ["s"]),
            onnx.helper.make_node("LSTM", ["s", "w", "r"], ["", "t"], hidden_size=2),
        ],
        "then",
        [],
        [value("t", 1, None)],
        weights,
    )
    other = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["e"])], "else", [], [value("e", 1, None)])
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)],
        "g",
        [value("c", onnx.TensorProto.BOOL, []), value("x", 1, ["a", "b", 4])],
        [value("y", 1, None)],
    )
    opsets = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "branch.onnx")
    given = ("run", tmp_path / "branch.onnx", "-i", "c=false", "--shape", "x=1x1x4")
    found = hetero(*given, "-d", "ORT")
    assert "1x1x4" in found.stdout
    assert not found.stderr
    assert "passes" in hetero("compare", *given[1:], "-d", "HETERO:ORT,CPU", "-d", "ORT").stdout
