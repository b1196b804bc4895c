"""Runs the snippets of a Markdown page, one after the other in one folder, and compares what they print.

- A block of ``python`` is run; all of a page share their names. What it prints stands in a ``text`` block after it.
- In a block of ``console`` each line that begins with ``$`` is a command for bash; what it prints follows it. `hetero`
  is the command line of the package under test.
- A block whose first line is a comment with nothing but the name of a file, such as ``# npu.toml``, is written to it.
- Blocks of other languages are left alone.

``...`` in what is printed stands for anything within a line, and a line of ``...`` alone for any lines. After a comment
``<!-- numbers vary -->`` any number stands for any other in the next block. Runs of spaces and of lines drawn around
tables count as one. With ``HETERO_WRITE_DOCS=1`` in the environment, output that differs is
put into the page instead of failing; ``...`` are then for the author to put in.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["matches", "printed_file", "run_page"]

BLOCK = re.compile(r"(<!-- numbers vary -->\n+)?^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"(?:#|//) ([\w-]+\.\w+)\n")


def run_page(page: Path, folder: Path) -> int:
    """How many snippets were run. AssertionError for the first that prints something else than the page says."""
    text = page.read_text(encoding="utf-8")
    runner = _Runner(page.name, folder)
    parts, end = [], 0
    for block in BLOCK.finditer(text):
        parts += [text[end : block.start(3)], runner.block(block[2], block[3], bool(block[1]))]
        end = block.end(3)
    runner.nothing_left()
    if os.environ.get("HETERO_WRITE_DOCS"):
        page.write_text("".join(parts) + text[end:], encoding="utf-8")
    return runner.count


def printed_file(page: Path, name: str) -> str:
    """The block of the page that is written to the file ``name``, without the comment with its name."""
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        file = FILE.match(block[3])
        if file and file[1] == name:
            return block[3].partition("\n")[2]
    raise AssertionError(f"{page.name} has no block for {name}")


class _Runner:
    def __init__(self, page: str, folder: Path) -> None:
        self.page = page
        self.folder = folder
        self.names: dict[str, Any] = {}
        self.printed = ""
        self.last = ""
        self.count = 0

    def block(self, language: str, body: str, vary: bool = False) -> str:
        """The block as it should be, once it was run. ``vary``: whatever numbers it has."""
        file = FILE.match(body)
        if file:
            (self.folder / file[1]).write_text(body.partition("\n")[2], encoding="utf-8")
            return body
        if language == "python":
            self.nothing_left()
            self.last, self.printed = body, self._python(body)
            self.count += 1
        elif language == "text" and self.printed:
            body, self.printed = self._judged(body, self.printed, vary), ""
        elif language == "console":
            self.nothing_left()
            return "".join(self._commands(body, vary))
        return body

    def nothing_left(self) -> None:
        assert not self.printed, f"{self.page}: no block tells what is printed by\n{self.last}\nnamely\n{self.printed}"

    def _python(self, body: str) -> str:
        stream = io.StringIO()
        with contextlib.redirect_stdout(stream):
            exec(compile(body, f"{self.page}: {body.splitlines()[0]}", "exec"), self.names)
        return stream.getvalue()

    def _commands(self, body: str, vary: bool) -> list[str]:
        found = []
        for one in re.split(r"^(?=\$ )", body, flags=re.MULTILINE):
            if one:
                command, _, expected = one.partition("\n")
                self.last = command
                self.count += 1
                found.append(f"{command}\n{self._judged(expected, _output(command[2:], self.folder), vary)}")
        return found

    def _judged(self, expected: str, printed: str, vary: bool) -> str:
        if matches(expected, printed, vary):
            return expected
        if os.environ.get("HETERO_WRITE_DOCS"):
            return printed.rstrip("\n") + "\n"
        raise AssertionError(f"{self.page}:\n{self.last}\nthe page has\n{expected}\nbut it printed\n{printed}")


def matches(expected: str, printed: str, vary: bool = False) -> bool:
    """Whether the page says what was printed; see above for what ``...`` stands for. ``vary``: whatever the numbers."""
    if vary:
        expected, printed = (re.sub(r"\d+(\.\d+)?(e[-+]\d+)?", "1", text) for text in (expected, printed))
    lines = _plain(expected).splitlines()
    patterns = [r"(?:.*\n)*?" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*?") + r"\n" for line in lines]
    return re.fullmatch("".join(patterns), _plain(printed)) is not None


def _plain(text: str) -> str:
    lines = re.sub(r"─+", "─", re.sub(r" +", " ", text)).strip("\n").splitlines()
    return "".join(f"{line.strip()}\n" for line in lines)


def _output(command: str, folder: Path) -> str:
    binaries = folder / ".bin"
    if not binaries.is_dir():
        binaries.mkdir()
        for name, arguments in (("hetero", "-m hetero"), ("python", "")):
            (binaries / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
            (binaries / name).chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "100"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.decode().splitlines())
