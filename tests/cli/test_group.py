"""The group: help, versions, errors. No command is run for its work here."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from command_line import Invoke
from hetero.cli import main
from hetero.cli.group import COMMANDS


def test_version(hetero: Invoke) -> None:
    assert "0.1.0" in hetero("--version").output


@pytest.mark.parametrize("name", COMMANDS)
def test_help_begins_with_what_the_list_says(name: str, hetero: Invoke) -> None:
    ctx = click.Context(main)
    command = main.get_command(ctx, name)
    assert command is not None
    assert command.help is not None
    assert command.help.splitlines()[0] == COMMANDS[name]
    assert "--debug" in hetero(name, "--help").output


def test_lists_all_commands(hetero: Invoke) -> None:
    text = hetero("--help").output
    assert all(f"  {name} " in text for name in COMMANDS)
    assert "Exit codes" in text


def test_unknown_command(hetero: Invoke) -> None:
    assert "did you mean bench?" in hetero("bnech", code=2).output


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_an_example(name: str, hetero: Invoke) -> None:
    lines = hetero(name, "--help").output.rstrip().splitlines()
    assert lines[-2] == "  Example:"
    program, given_name, *arguments = shlex.split(lines[-1])
    assert (program, given_name) == ("hetero", name)
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.make_context(name, arguments)


def test_every_option_has_help() -> None:
    ctx = click.Context(main)
    for name in COMMANDS:
        command = main.get_command(ctx, name)
        assert command is not None
        for option in command.params:
            assert isinstance(option, click.Argument) or option.help, (name, option.name)


@pytest.mark.parametrize("arguments", [["--help"], ["bench", "--help"], ["run", "-h"], []])
def test_help_imports_little(arguments: list[str]) -> None:
    code = (
        f"import sys; sys.argv = ['hetero', *{arguments!r}]\n"
        "from hetero.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([m for m in ('onnx', 'rich', 'numpy', 'msgspec', 'hetero.core') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"
    assert "Usage" in done.stdout + done.stderr


def test_importing_the_commands_leaves_the_environment_alone() -> None:
    code = "import os; before = dict(os.environ); import hetero.cli; assert dict(os.environ) == before"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_no_model_or_two(hetero: Invoke, diamond_path: Path) -> None:
    assert "missing" in hetero("run", code=2).output
    assert "given twice" in hetero("run", diamond_path, "-m", diamond_path, code=2).output


def test_module_runs() -> None:
    done = subprocess.run([sys.executable, "-m", "hetero", "--version"], capture_output=True, text=True, check=True)
    assert "hetero" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bench", "m.onnx", "--warmup", "0.2"], "'0.2' is not a valid integer."),
        (["bench", "m.onnx", "-t", "long"], "'long' is not a valid number."),
        (["demo", "--seed", "-1"], "-1 is not in the range x>=0."),
    ],
)
def test_numbers_of_another_kind(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert message in done.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--property NOTHING=1", "CPU has no property 'NOTHING'; `hetero properties CPU` lists all"),
        (
            "--property CPU:NUM_STREAMS=2",
            "--property DEVICE:KEY=VALUE is for lists such as HETERO:FPGA,CPU; for CPU, write --property KEY=VALUE",
        ),
        (
            "-d HETERO:FPGA,CPU --property GPU:NUM_STREAMS=2",
            "--property GPU:KEY=VALUE: GPU is not in the list FPGA, CPU",
        ),
        ("--together op:Add", "--together is for lists such as HETERO:FPGA,CPU, and CPU is a single device"),
        ("--min-subgraph CPU=2", "--min-subgraph is for lists such as HETERO:FPGA,CPU, and CPU is a single device"),
    ],
)
def test_unknown_properties(options: str, message: str, hetero: Invoke, diamond_path: Path) -> None:
    given = options if "-d" in options else f"-d CPU {options}"
    for command in ("run", "plan"):
        failed = hetero(command, diamond_path, *given.split(), code=1)
        assert failed.stderr == f"Error: {message}\n"


@pytest.mark.parametrize("model", [["-"], ["-m", "-"]])
def test_a_model_from_standard_input(model: list[str], hetero: Invoke) -> None:
    for command in ("inspect", "run", "plan"):
        assert "a model is read from a file, not from standard input" in hetero(command, *model, code=2).stderr
