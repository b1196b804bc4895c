"""``hetero completion``, and what it completes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from command_line import Invoke
from hetero.cli import main


def complete(line: str) -> list[str]:
    words = line.split(" ")
    done = CliRunner().invoke(
        main,
        prog_name="hetero",
        env={
            "_HETERO_COMPLETE": "bash_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
        },
    )
    return [entry.partition(",")[2] for entry in done.stdout.splitlines() if entry]


def test_completion(diamond_path: Path) -> None:
    assert complete("hetero co") == ["compare", "completion"]
    assert complete("hetero run -d H") == ["HETERO:"]
    assert complete("hetero run -d HETERO:FPGA,C") == ["HETERO:FPGA,CPU", "HETERO:FPGA,CONTROL_FLOW"]
    assert "HETERO:FPGA,FPGA" not in complete("hetero run -d HETERO:FPGA,")
    assert complete(f"hetero split {diamond_path} --pin op:Cl") == ["op:Clip="]
    assert complete(f"hetero split {diamond_path} -d HETERO:FPGA,CPU --pin op:LRN=C") == ["op:LRN=CPU"]
    assert complete("hetero split missing.onnx --pin op:Cl") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script(shell: str, hetero: Invoke) -> None:
    script = hetero("completion", shell).output
    assert "_HETERO_COMPLETE" in script
    assert "hetero" in script


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("line", "replies"),
    [
        ("hetero com", ["compare", "completion"]),
        ("hetero run -d H", ["HETERO:"]),
        ("hetero run -d HETERO:FPGA,C", ["FPGA,CPU", "FPGA,CONTROL_FLOW"]),
        ("hetero run -d HETERO:FPGA,CPU m.onnx --json --p", ["--plan", "--pin", "--property", "--profile"]),
        ("hetero plan diamond.onnx --pin op:Cl", ["Clip="]),
        ("hetero plan diamond.onnx -d HETERO:FPGA,CPU --what-if FPGA=LRN,Cl", ["LRN,Clip"]),
    ],
)
def test_in_bash(line: str, replies: list[str], hetero: Invoke, diamond_path: Path) -> None:
    """Bash takes colons and equals signs for ends of words, and puts replies in place of the last word only."""
    script = hetero("completion", "bash").output
    asked = (
        "COMP_LINE=$1 COMP_POINT=${#1}; compopt() { :; }; _hetero_completion hetero; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    program = (
        f'hetero() {{ :; }}; env() {{ command env "${{@:1:$#-1}}" {sys.executable} -m hetero; }}\n{script}\n{asked}'
    )
    done = subprocess.run(["bash", "-c", program, "bash", line], capture_output=True, text=True, check=True)
    assert done.stdout.split() == replies


def test_completion_of_what_if(diamond_path: Path) -> None:
    assert complete(f"hetero plan {diamond_path} -d HETERO:FPGA,CPU --what-if F") == ["FPGA="]
    assert complete(f"hetero plan {diamond_path} --what-if FPGA=LRN,Cl") == ["FPGA=LRN,Clip"]
