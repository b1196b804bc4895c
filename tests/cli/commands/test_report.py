"""``hetero report``."""

from __future__ import annotations

from pathlib import Path

from command_line import Invoke, Json

LIST = ("-d", "HETERO:FPGA,CPU")


def test_report(hetero: Invoke, hetero_json: Json, diamond_path: Path) -> None:
    assert "Wrote report.html" in hetero("report", diamond_path, *LIST).stdout
    assert "norm" in Path("report.html").read_text()
    assert "already exists" in hetero("report", diamond_path, *LIST, code=1).stderr
    found = hetero_json("report", diamond_path, *LIST, "--run", "--overlays", ".", "-o", "run.html")
    assert found["paths"][0] == "run.html"
    assert len(found["paths"]) == 3
    assert len(Path("run.html").read_text()) > len(Path("report.html").read_text())
    assert all(Path(path).is_file() for path in found["paths"])
    assert "already exists" in hetero("report", diamond_path, *LIST, "--overlays", ".", "-o", "2.html", code=1).stderr
    assert not Path("2.html").exists()
    assert "-d DEVICE or --plan" in hetero("report", diamond_path, code=2).stderr
