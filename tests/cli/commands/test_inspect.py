"""``hetero inspect``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from command_line import Invoke, Json


def test_inspect_onnx(hetero: Invoke, hetero_json: Json, diamond_path: Path, two_inputs_path: Path) -> None:
    found = hetero_json("inspect", diamond_path)
    assert found["kind"] == "onnx"
    assert found["operators"] == {"Relu": 2, "Add": 1, "Clip": 1, "LRN": 1}
    assert found["nodes"] == 5
    assert found["opsets"] == {"": 17}
    found = hetero_json("inspect", two_inputs_path)
    assert found["parameters"] == 31
    assert found["weight_bytes"] == 30 * 4 + 8
    assert found["inputs"][0] == {"name": "tokens", "dtype": "int64", "shape": ["batch", "length"]}
    assert "31 parameters" in hetero("inspect", two_inputs_path).stdout


def test_inspect_external_data_and_affinities(hetero_json: Json, hetero: Invoke, tmp_path: Path) -> None:
    node = onnx.helper.make_node("Add", ["x", "w"], ["y"], name="n")
    node.metadata_props.add(key="affinity", value="CPU")
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [onnx.helper.make_tensor_value_info("x", 1, [300])],
        [onnx.helper.make_tensor_value_info("y", 1, [300])],
        [numpy_helper.from_array(np.ones(300, np.float32), "w")],
    )
    onnx.save(
        onnx.helper.make_model(graph, ir_version=10),
        "e.onnx",
        save_as_external_data=True,
        location="e.bin",
        size_threshold=0,
    )
    found = hetero_json("inspect", "e.onnx")
    assert found["external_data"] == {"e.bin": 1200}
    assert found["affinities"] == {"CPU": 1}
    assert "External data" in hetero("inspect", "e.onnx").stdout
    Path("e.bin").unlink()
    assert "e.bin" in hetero("run", "e.onnx", code=1).stderr
    hetero("inspect", "e.onnx")  # says what the file says


def test_damaged_files(hetero: Invoke, diamond_path: Path) -> None:
    hetero("export", diamond_path, "-o", "d.hetero")
    data = bytearray(Path("d.hetero").read_bytes())
    data[len(data) // 2] ^= 1
    Path("bad.hetero").write_bytes(data)
    for command in ("inspect", "run", "bench"):
        assert "damaged" in hetero(command, "bad.hetero", code=1).stderr
    Path("cut.hetero").write_bytes(bytes(data[:100]))
    hetero("inspect", "cut.hetero", code=1)
    Path("short.onnx").write_bytes(diamond_path.read_bytes()[:-9])
    Path("text.onnx").write_text("no model")
    Path("empty.onnx").write_text("")
    for path in ("short.onnx", "text.onnx", "empty.onnx", "gone.onnx", "gone.hetero", "/"):
        for command in ("inspect", "run", "query", "export"):
            error = hetero(command, path, code=1).stderr
            assert error.count("\n") == 1
            assert path in error
            assert ("not an ONNX file" in error) == (path in ("short.onnx", "text.onnx"))
    for command in (["query", "d.hetero"], ["split", "d.hetero", "-d", "CPU", "-o", "parts"]):
        assert "give the ONNX file" in hetero(*command, code=1).stderr


def test_constants_of_nodes_and_of_nested_graphs_count(hetero: Invoke, hetero_json: Json) -> None:
    make = onnx.helper.make_node
    weight = numpy_helper.from_array(np.ones((3, 5), np.float32), "t")
    branches = {
        name: onnx.helper.make_graph(
            [make("Constant", [], ["c"], value=numpy_helper.from_array(np.full(7, number, np.float16)))],
            name,
            [],
            [onnx.helper.make_tensor_value_info("c", onnx.TensorProto.FLOAT16, [7])],
            [numpy_helper.from_array(np.zeros(2, np.int64), "unused")],
        )
        for number, name in enumerate(("then_branch", "else_branch"))
    }
    graph = onnx.helper.make_graph(
        [
            make("Constant", [], ["w"], value=weight),
            make("Constant", [], ["v"], value_floats=[1.0, 2.0, 3.0, 4.0, 5.0]),
            make("Constant", [], ["names"], value_strings=["a", "b"]),
            make("Add", ["w", "v"], ["sum"]),
            make("If", ["x"], ["y"], **branches),
        ],
        "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.BOOL, [])],
        [
            onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT16, [7]),
            onnx.helper.make_tensor_value_info("sum", onnx.TensorProto.FLOAT, [3, 5]),
        ],
        [numpy_helper.from_array(np.ones(4, np.int8), "i")],
    )
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), "c.onnx")
    found = hetero_json("inspect", "c.onnx")
    assert (found["initializers"], found["constants"]) == (1, 3)
    assert found["parameters"] == 4 + 15 + 5 + 2
    assert found["weight_bytes"] == 4 + 60 + 20  # without the strings
    nested = {"graphs": 2, "constants": 4, "parameters": 2 * (7 + 2), "weight_bytes": 2 * (14 + 16)}
    assert found["nested"] == nested
    text = hetero("inspect", "c.onnx").stdout
    assert "2 nodes, 1 initializer and 3 Constant nodes with 26 parameters, 84 B" in text
    assert "2 graphs inside nodes with 4 constants, 18 parameters, 60 B" in text


def test_inputs_with_a_default(hetero: Invoke, hetero_json: Json) -> None:
    names = [f"w{i}" for i in range(23)]
    infos = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in ("x", *names, "y")]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Sum", ["x", *names], ["y"])],
        "g",
        infos[:-1],
        infos[-1:],
        [numpy_helper.from_array(np.ones(2, np.float32), name) for name in names],
    )
    onnx.save(onnx.helper.make_model(graph, ir_version=8), "defaults.onnx")
    found = hetero_json("inspect", "defaults.onnx")
    assert [port["name"] for port in found["inputs"]] == ["x"]
    assert found["default_inputs"] == [{"name": name, "dtype": "float32", "shape": [2]} for name in names]
    shown = hetero("inspect", "defaults.onnx").stdout
    assert "Inputs with a default" in shown
    assert "w19" in shown
    assert "w20" not in shown
    assert "and 3 more" in shown
