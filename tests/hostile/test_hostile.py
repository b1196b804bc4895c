"""Hostile files through all stages, each in a process of its own: no crash, no hang, no silent acceptance, and bounded
time and memory. `*_cases.py` have the files, `server.py` the processes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hostile.graph_cases
import hostile.operator_cases
import hostile.tensor_cases
import hostile.value_cases
import hostile.wire_cases  # noqa: F401
from fuzz.fuzzing import LONGEST
from hostile.case import CASES, Case

CHECKED = "libasan" in os.environ.get("LD_PRELOAD", "")

# Until a file is refused, and to read one that is not. Writing and compiling may take as much again for each copy of
# the file's names that they make. What a right model takes to run is its own affair.
# The promise is a fifth of these, on a machine that does nothing else.
CPU_S, ALL_CPU_S = 5.0, 25.0
LONGEST_MESSAGE = 70_000
GROWTH, GROWTH_PER_BYTE, ALL_GROWTH_PER_BYTE = 64 << 20, 2, 24


class Server:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        control = self.write(CASES["control"])
        here = Path(__file__).parent
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, str(here / "server.py"), str(control)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.baseline = self.answer()["growth"]

    def write(self, case: Case) -> Path:
        folder = self.folder / re.sub(r"\W+", "_", case.name) / "model"
        folder.mkdir(parents=True)
        made = case.make(folder)
        path = folder / "model.onnx"
        path.write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
        return path

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the server died: {self.process.wait()}"
        found: dict[str, Any] = json.loads(line)
        return found

    def run(self, path: Path, until: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(
            json.dumps({"path": str(path), "until": until, "limit_s": 400 if CHECKED else 40}) + "\n"
        )
        self.process.stdin.flush()
        return self.answer()

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("hostile"))
    yield server
    server.close()


@pytest.mark.parametrize(
    "case", [case for case in CASES.values() if case.name != "control"], ids=lambda case: case.name
)
def test_hostile_file(server: Server, case: Case) -> None:
    path = server.write(case)
    assert not case.large or path.stat().st_size >= LONGEST
    found = server.run(path, case.until)
    assert "died" not in found, found
    if found["stage"] != "fine":
        assert found["is_hetero"], f"{found['error']} at {found['stage']}: {found['message']}"
        assert re.search(case.pattern, found["message"], re.DOTALL), found["message"]
        assert found["message_length"] < LONGEST_MESSAGE
    if case.stage == "any":
        assert found["stage"] != "fine"
    elif case.stage != "bounded":
        assert found["stage"] == case.stage, found
    if CHECKED:  # the sanitizers take time and memory of their own
        return
    size = path.stat().st_size
    for stage, seconds in found["cpu_s"].items():
        growth = found["growth"][stage] - server.baseline[stage]
        strict = stage in ("read", found["stage"])
        if stage == "run":
            continue
        assert seconds < (CPU_S if strict else ALL_CPU_S), found["cpu_s"]
        assert growth < GROWTH + size * (GROWTH_PER_BYTE if strict else ALL_GROWTH_PER_BYTE), found["growth"]
