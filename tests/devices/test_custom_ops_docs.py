"""docs/custom-operators.md does what it says."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import hetero

PAGE = Path(__file__).parents[2] / "docs" / "custom-operators.md"
SOURCES = str(Path(hetero.__file__).parents[1])


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_the_examples_run(tmp_path: Path) -> None:
    blocks = re.findall(r"```(\w+)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert [language for language, _ in blocks] == ["python", "c", "sh", "python"]
    (tmp_path / "scale.c").write_text(blocks[1][1])
    script = blocks[2][1].replace("$(python", f"$({sys.executable}")
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": SOURCES}
    subprocess.run(["sh", "-e", "-c", script], cwd=tmp_path, env=environment, check=True)
    program = "\n".join(text for language, text in blocks if language == "python")
    printed = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert printed.split() == ["[[0.125", "0.25", "0.5", "]", "[0.", "0.", "0.1", "]]", "[-3.", "-6.]"]
