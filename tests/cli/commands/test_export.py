"""``hetero export``, ``inspect`` and ``split``, and files that must not be lost, or half-written."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import hetero as library
from command_line import NASTY, Invoke, Json
from hetero.compiling.splitting import read_manifest

IS_ROOT = os.geteuid() == 0


def test_export_and_inspect(hetero: Invoke, hetero_json: Json, diamond_path: Path) -> None:
    made = hetero_json("export", diamond_path, "-d", "HETERO:FPGA,CPU")
    assert made["path"] == "diamond.hetero"
    assert made["bytes"] == os.path.getsize("diamond.hetero")
    found = hetero_json("inspect", "diamond.hetero", "--verify")
    assert found["kind"] == "hetero"
    assert found["device"] == "HETERO:FPGA,CPU"
    assert found["verified"] == "sha256"
    assert found["inputs"] == [{"name": "x", "dtype": "float32", "shape": [1, 4, 5, 6]}]
    assert [found["submodels"][part]["device"] for part in found["submodels"][0]["parts"]] == ["FPGA", "CPU", "FPGA"]
    assert "compiled for HETERO:FPGA,CPU" in hetero("inspect", "diamond.hetero").stdout
    direct, again = (hetero_json("run", path, "--seed", 3)["outputs"] for path in (diamond_path, "diamond.hetero"))
    assert direct == again
    assert "was compiled for HETERO" in hetero("run", "diamond.hetero", "-d", "ORT", code=1).stderr


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
            assert ("is it an ONNX file" in error) == (path in ("short.onnx", "text.onnx"))
    for command in (["query", "d.hetero"], ["split", "d.hetero", "-d", "CPU", "-o", "parts"]):
        assert "give the ONNX file" in hetero(*command, code=1).stderr


def test_split_and_run_with_onnxruntime(hetero: Invoke, hetero_json: Json, diamond_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    found = hetero_json("split", diamond_path, "-d", "HETERO:FPGA,CPU", "-o", "parts")
    assert [part["device"] for part in found["manifest"]["parts"]] == ["FPGA", "CPU", "FPGA"]
    assert [part["subgraph"] for part in found["manifest"]["parts"]] == [1, 2, 3]
    manifest = read_manifest("parts")
    values = {"x": np.random.default_rng(0).random((1, 4, 5, 6), np.float32)}
    for part in manifest.parts:
        session = onnxruntime.InferenceSession(f"parts/{part.file}", providers=["CPUExecutionProvider"])
        fed = {port.name: values[port.name] for port in part.inputs}
        values |= zip((port.name for port in part.outputs), session.run(None, fed), strict=True)
    np.testing.assert_allclose(values["y"], library.compile(diamond_path)({"x": values["x"]})["y"], rtol=1e-5)
    assert "3 parts" in hetero("split", diamond_path, "-d", "HETERO:FPGA,CPU", "-o", "other").stdout


def test_split_replaces_only_a_split(hetero: Invoke, diamond_path: Path) -> None:
    split = ("split", diamond_path, "-d", "HETERO:FPGA,CPU", "-o")
    hetero(*split, "parts")
    Path("parts/subgraph_1.onnx").write_bytes(b"old")
    assert "--force" in hetero(*split, "parts", code=1).stderr
    assert Path("parts/subgraph_1.onnx").read_bytes() == b"old"
    hetero(*split, "parts", "--force")
    assert Path("parts/subgraph_1.onnx").read_bytes() != b"old"
    # A split that fails leaves the old one.
    hetero("split", diamond_path, "-d", "HETERO:FPGA", "-o", "parts", "--force", code=1)
    assert len(read_manifest("parts").parts) == 3
    Path("parts/precious.txt").write_text("")
    assert "not part of an earlier split" in hetero(*split, "parts", "--force", code=1).stderr
    Path("file").write_text("precious")
    assert "not a folder" in hetero(*split, "file", "--force", code=1).stderr
    assert Path("file").read_text() == "precious"
    Path("empty").mkdir()
    hetero(*split, "empty")
    assert sorted(os.listdir()) == ["diamond.onnx", "empty", "file", "parts"]
    assert "--plan" in hetero("split", diamond_path, "-o", "x", code=2).stderr


def test_existing_files_are_kept(hetero: Invoke, diamond_path: Path) -> None:
    Path("out").write_text("precious")
    for command in (["export", diamond_path, "-o", "out"], ["run", diamond_path, "--save", "out"]):
        assert "out already exists: use --force to replace it" in hetero(*command, code=1).stderr
        assert Path("out").read_text() == "precious"
    hetero("export", diamond_path, "-o", "out", "--force")
    assert Path("out").read_bytes()[:2] == b"PK"


def test_where_nothing_can_be_written(hetero: Invoke, diamond_path: Path) -> None:
    Path("folder").mkdir()
    Path("file").write_text("")
    for target, told in (
        ("folder", "it is a folder"),
        ("gone/out", "No such file or directory"),
        ("file/out", "Not a directory"),
        ("/dev/full", "not a regular file"),
    ):
        for command in (["export", diamond_path, "-o"], ["run", diamond_path, "--save"]):
            error = hetero(*command, target, "--force", code=1).stderr
            assert told in error
            assert error.count("\n") == 1


@pytest.mark.skipif(IS_ROOT, reason="root may write anywhere")
def test_unwritable_folder(hetero: Invoke, diamond_path: Path) -> None:
    Path("locked").mkdir(mode=0o555)
    assert "Permission denied" in hetero("export", diamond_path, "-o", "locked/x.hetero", code=1).stderr


def test_hostile_names(hetero: Invoke, hetero_json: Json, nasty_path: Path) -> None:
    assert hetero_json("inspect", nasty_path)["name"] == NASTY
    assert "\\x1b[31m" in hetero("inspect", nasty_path).stdout
    hetero("split", nasty_path, "-d", "HETERO:FPGA,CPU", "-o", "parts")
    assert sorted(os.listdir("parts")) == ["manifest.json", "subgraph_1.onnx", "subgraph_2.onnx"]
    hetero("export", nasty_path, "-d", "HETERO:FPGA,CPU", "-o", "n.hetero")
    assert "[red]" in hetero("inspect", "n.hetero").stdout
