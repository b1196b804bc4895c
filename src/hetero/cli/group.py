"""The group of all commands. It imports each command on use, and turns errors into one line and an exit code."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import re
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import click

from ..base.collection import collection_rare
from ..base.interrupts import INTERRUPTED, interrupts_raised
from .text import clean_lines

__all__ = ["COMMANDS", "CommandGroup", "Failure"]

# In the order of the help. The help of each command begins with the same line; with this copy, the list of all commands
# can be printed without importing them.
COMMANDS = {
    "demo": "Run GoogLeNet v1 on HETERO:FPGA,CPU, with a simulated FPGA.",
    "devices": "List devices, with the reason if one is unavailable.",
    "properties": "Show the properties of a device, with values and descriptions.",
    "inspect": "Show the contents of a model, .onnx or .hetero, without running it.",
    "query": "Show which devices support which operators, and why they reject others.",
    "plan": "Show the device of each node with the reason, and the subgraphs, without compiling.",
    "report": "Write a plan or a run as one self-contained HTML file.",
    "split": "Write an ONNX file per subgraph, for any runtime, with a manifest.",
    "run": "Run one inference and summarize the outputs.",
    "bench": "Measure latency, throughput and CPU time of one or more devices.",
    "tune": "Measure plans for a list of devices, and write the fastest.",
    "compare": "Compare the results of two devices: outputs, or all values between subgraphs.",
    "export": "Compile a model and export it as one file that loads without compiling.",
    "completion": "Print a script that completes commands in a shell.",
}

_MOST_LINES = 25  # of an error message that lists nodes


class Failure(click.ClickException):
    """One line on stderr, and exit code 1."""

    exit_code = 1

    def show(self, file: Any = None) -> None:
        click.echo(f"Error: {clean_lines(self.message)}", file=file, err=file is None)


class CommandGroup(click.Group):
    """Lists the commands by name and imports each when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f".commands.{cmd_name}", __package__)
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        commands = [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]
        return commands or click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from ..errors import did_you_mean

            ctx.fail(f"there is no command {args[0]!r}{did_you_mean(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        from ..errors import HeteroError

        with contextlib.suppress(AttributeError):  # escape characters that the terminal cannot encode
            sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        try:
            with interrupts_raised(), _warnings_as_lines(), collection_rare():
                result = super().invoke(ctx)
                sys.stdout.flush()  # reports a full disk while errors are still handled
            return result
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except HeteroError as error:
            if is_debugging(ctx):
                raise
            noted = [_CHECK_NOTE.sub(r"for \1", note) for note in getattr(error, "__notes__", ())]
            notes = "".join(f" ({note})" for note in noted)
            raise Failure(_first_lines(_for_people(str(error))) + notes) from error
        except OSError as error:
            if error.errno == errno.EPIPE or is_debugging(ctx):
                raise  # click exits quietly if the reader of a pipe is gone
            name = f"{error.filename}: " if error.filename is not None else ""
            _forget_output()
            raise Failure(f"{name}{error.strerror or error}") from error
        except MemoryError as error:
            if is_debugging(ctx):
                raise
            raise Failure(f"out of memory{f': {error}' if str(error) else ''}") from error
        except Exception as error:
            if is_debugging(ctx):
                raise
            raise Failure(f"{type(error).__name__}: {error} (unexpected; --debug shows where)") from error
        except KeyboardInterrupt:
            if is_debugging(ctx):
                raise
            click.echo("Interrupted", err=True)
            raise SystemExit(INTERRUPTED) from None


def is_debugging(ctx: click.Context) -> bool:
    """Whether ``--debug`` was given, before or after the command."""
    return bool(ctx.meta.get("hetero.debug"))


# A text in an error of the library -> its counterpart on the command line.
_COUNTERPARTS = {
    "the exception's `unsupported` lists all": "`hetero query --nodes` lists all",
    "(Core.add_extension)": "(--extension)",
    "pass it as the device, after Plan.load, and the ONNX file as the model": "pass it as --plan, and the ONNX file",
}
_ALL_PROPERTIES = re.compile(r"^(\w+) (has no property .*); SUPPORTED_PROPERTIES lists all properties$", re.DOTALL)
_ALL_OF_LIST = re.compile(r"^(\w+ over .* has no property .*); SUPPORTED_PROPERTIES lists all properties$", re.DOTALL)
_OF_LISTS = re.compile(r"^(\w+) has no property '(DEVICE_PROPERTIES|STAY_TOGETHER|MIN_SUBGRAPH)'.*", re.DOTALL)
_FOR_LISTS = {
    "DEVICE_PROPERTIES": "--property DEVICE:KEY=VALUE is for lists such as HETERO:FPGA,CPU; for {}, write --property "
    "KEY=VALUE",
    "STAY_TOGETHER": "--together is for lists such as HETERO:FPGA,CPU, and {} is a single device",
    "MIN_SUBGRAPH": "--min-subgraph is for lists such as HETERO:FPGA,CPU, and {} is a single device",
}
_NOT_LISTED = re.compile(r"^DEVICE_PROPERTIES names '(.*)', which is not in")
_CHECK_NOTE = re.compile(r"in check_config, by (.*)")
_OPTIONS = {"STAY_TOGETHER": "--together", "MIN_SUBGRAPH": "--min-subgraph", "max_memory": "--max-memory"}
_SETTING = re.compile(rf"^({'|'.join(_OPTIONS)})\b(?= |: | of )")
_PLAN_TO_LOAD = re.compile(r"to use a plan, pass hetero.Plan.load\((.*)\) as the device")


def _for_people(message: str) -> str:
    """Replaces the Python names in a library error by their command-line counterparts."""
    for name, counterpart in _COUNTERPARTS.items():
        message = message.replace(name, counterpart)
    message = _OF_LISTS.sub(lambda match: _FOR_LISTS[match[2]].format(match[1]), message)
    message = _SETTING.sub(lambda match: _OPTIONS[match[1]], message)
    message = _NOT_LISTED.sub(r"--property \1:KEY=VALUE: \1 is not in", message)
    message = _ALL_PROPERTIES.sub(r"\1 \2; `hetero properties \1` lists all", message)
    message = _ALL_OF_LIST.sub(r"\1; `hetero properties DEVICE` lists those of each device", message)
    return _PLAN_TO_LOAD.sub(lambda match: f"a plan is given as --plan {match[1]}, without -d", message)


def _first_lines(message: str) -> str:
    lines = message.splitlines()
    if len(lines) <= _MOST_LINES:
        return message
    return "\n".join(
        [*lines[:_MOST_LINES], f"  … {len(lines) - _MOST_LINES} more; `hetero query` groups them by reason"]
    )


def _forget_output() -> None:
    """Discards unwritten stdout, so that Python does not report the same write error again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)


@contextlib.contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Prints each warning as one line, without its source location."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        click.echo(f"Warning: {clean_lines(str(message))}", err=True)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
