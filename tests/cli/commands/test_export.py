"""``hetero export``, and files that must not be lost, or half-written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from command_line import NASTY, Invoke, Json

IS_ROOT = os.geteuid() == 0


def test_export_and_inspect(hetero: Invoke, hetero_json: Json, diamond_path: Path) -> None:
    made = hetero_json("export", diamond_path, "-d", "HETERO:FPGA,CPU")
    assert made["path"] == "diamond.hetero"
    assert made["bytes"] == os.path.getsize("diamond.hetero")
    assert made["model_bytes"] == os.path.getsize(diamond_path)
    assert hetero_json("export", "diamond.hetero", "-o", "again.hetero")["model_bytes"] is None
    assert "× the model's" in hetero("export", diamond_path, "-o", "said.hetero").stdout
    assert "model's" not in hetero("export", "diamond.hetero", "-o", "silent.hetero").stdout
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


def test_an_exported_model_is_no_onnx_file(hetero: Invoke, diamond_path: Path) -> None:
    done = hetero("export", diamond_path, "-d", "CPU", "-o", "e.onnx", code=2)
    assert "-o e.onnx: an exported model is not an ONNX file" in done.stderr


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
