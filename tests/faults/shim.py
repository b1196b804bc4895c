"""Builds shim.c and runs an operation under it.

python tests/faults/shim.py assign --step 40            fail every 40th allocation
python tests/faults/shim.py export --kind files         fail each call for files
python tests/faults/shim.py assign --kind interrupts --step 16      raise KeyboardInterrupt in each computation
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
CORE = "/hetero/_"
"""The path of each module of the core contains this."""


def build(folder: Path) -> Path:
    """The library to preload. Skips the test where it cannot be built or preloaded."""
    compiler = shutil.which("gcc")
    if sys.platform != "linux" or compiler is None:
        pytest.skip("needs gcc and the GNU C library")
    if "asan" in os.environ.get("LD_PRELOAD", ""):
        pytest.skip("the sanitizers have an allocator of their own")
    library = folder / "shim.so"
    flags = ["-std=gnu11", "-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([compiler, *flags, str(HERE / "shim.c"), "-o", str(library), "-ldl", "-lpthread"], check=True)
    return library


class Program:
    """program.py with the library preloaded. It imports hetero once, and runs each operation in a fork of itself."""

    def __init__(self, library: Path) -> None:
        environment = {**os.environ, "LD_PRELOAD": str(library), "FAULTS_CALLERS": CORE}
        self._errors = library.with_suffix(".stderr").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "program.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
        )

    def run(self, operation: str, kind: str, *, step: int = 1, first: int = 1) -> dict[str, Any]:
        """Fails every ``step``-th call, and returns what program.py found. For interrupts, ``step`` says how many there
        are."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([operation, kind, step, first]), file=self._process.stdin, flush=True)
        lines = []
        while (line := self._process.stdout.readline()).startswith("{"):
            lines.append(line)
        if line != "0\n" or not lines:
            self._errors.seek(0)
            raise AssertionError(f"wait status {line.strip() or 'unknown'}\n{self._errors.read()[-6000:]}")
        found: dict[str, Any] = json.loads(lines[-1])
        return found

    def close(self) -> None:
        self._process.communicate()
        self._errors.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operation", help="a name in operations.py")
    parser.add_argument("--kind", choices=["memory", "files", "short", "interrupts"], default="memory")
    parser.add_argument("--step", type=int, default=1)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(Program(build(Path(folder)))) as program:
        found = program.run(chosen.operation, chosen.kind, step=chosen.step)
    problems = found.pop("problems")
    print(*problems, found, sep="\n")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
