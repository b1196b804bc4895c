"""``hetero demo``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from hetero.cli import main
from hetero.demo import run_demo


@pytest.fixture
def runner() -> CliRunner:
    return CliRunner()


def test_demo(runner: CliRunner, tmp_path: Path) -> None:
    done = runner.invoke(main, ["demo", "--output", str(tmp_path / "out")], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "subgraphs" in done.output
    assert "Total time: " in done.output
    assert "simulated" in done.output
    assert "agrees with the CPU alone" in done.output
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "hetero_affinity_inception_v1.dot",
        "hetero_subgraphs_inception_v1.dot",
    }


def test_the_demo_writes_nothing_unless_asked(
    runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.chmod(0o555)
    try:
        done = runner.invoke(main, ["demo"], catch_exceptions=False)
        assert done.exit_code == 0
        assert "Wrote" not in done.output
        assert json.loads(runner.invoke(main, ["demo", "--json"]).stdout)["dot_files"] == []
    finally:
        tmp_path.chmod(0o755)
    assert not list(tmp_path.iterdir())


def test_demo_leaves_its_model(runner: CliRunner, tmp_path: Path) -> None:
    demo = ["demo", "--output", str(tmp_path), "--save-model", str(tmp_path / "net.onnx")]
    assert f"Wrote {tmp_path / 'net.onnx'}" in runner.invoke(main, demo, catch_exceptions=False).stdout
    planned = json.loads(runner.invoke(main, ["plan", demo[-1], "-d", "HETERO:FPGA,CPU", "--json"]).stdout)
    assert planned["model"]["name"] == "inception_v1"
    assert "--force" in runner.invoke(main, demo).stderr


def test_demo_json(runner: CliRunner, tmp_path: Path) -> None:
    found = json.loads(runner.invoke(main, ["demo", "--output", str(tmp_path), "--json"]).stdout)
    assert found["agrees"]
    assert [part["device"] for part in found["subgraphs"]] == ["FPGA", "CPU"] * 3
    assert len(found["counters"]["subgraphs"]) == 6
    assert all(Path(path).is_file() for path in found["dot_files"])


def test_demo_per_node(runner: CliRunner, tmp_path: Path) -> None:
    done = runner.invoke(main, ["demo", "--output", str(tmp_path), "--per-node"], catch_exceptions=False)
    assert "subgraph1: " in done.output
    assert ":EXECUTED layerType: Conv realTime: " in done.output


def test_demo_places_what_the_profile_lacks(tmp_path: Path) -> None:
    result = run_demo(tmp_path)
    types = {row.node: row.layer_type for row in result.profile}
    on_cpu = [key for key, device in result.plan.affinity.items() if device == "CPU"]
    assert sorted(types[key] for key in on_cpu) == ["LRN", "LRN", "Softmax"]
    assert result.agrees
    assert result.plan.num_subgraphs == 6


def test_unwritable_folder_is_one_line(runner: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = runner.invoke(main, ["demo", "--output", str(tmp_path / "file")])
    assert done.exit_code == 2
    assert "is a file" in done.output
    assert "Traceback" not in done.output
