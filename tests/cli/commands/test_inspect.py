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
