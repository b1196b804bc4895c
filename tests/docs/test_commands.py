"""docs/commands.md says what the commands are."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from hetero.cli import main
from hetero.cli.group import COMMANDS

DOCUMENT = Path(__file__).parents[2] / "docs" / "commands.md"
TEXT = DOCUMENT.read_text(encoding="utf-8") if DOCUMENT.is_file() else ""
EXAMPLES = re.findall(r"^\$ hetero (.*)$", TEXT, re.MULTILINE)


@pytest.mark.parametrize("line", EXAMPLES)
def test_examples_are_commands(line: str) -> None:
    name, *arguments = shlex.split(line.partition(";")[0].partition("|")[0])
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.make_context(name, arguments)


def test_every_command_is_there() -> None:
    for name in COMMANDS:
        assert f"\n## {name}\n" in TEXT
        assert f"[`{name}`](#{name})" in TEXT
        assert any(line.startswith(name) for line in EXAMPLES)


def test_options_are_there() -> None:
    known = {option for name in COMMANDS for option in _options(name)}
    text = TEXT.replace("ray start --head", "")  # which a device without its cluster tells one to run
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))
    assert named <= known | {"--help"}


def _options(name: str) -> set[str]:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    return {spelling for option in command.params for spelling in option.opts}
