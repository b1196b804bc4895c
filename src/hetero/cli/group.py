"""The group of all commands: each is imported on use, and what goes wrong in one is a line and an exit code."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import click

from .text import clean_lines

__all__ = ["COMMANDS", "CommandGroup", "Failure"]

# In the order of the help. What is said here is what the command's own help begins with, so that the list of all
# commands needs none of them.
COMMANDS = {
    "demo": "GoogLeNet v1 on HETERO:FPGA,CPU, the FPGA simulated: plan, run, counters, check.",
    "devices": "List devices, and say why those that cannot be used cannot.",
    "inspect": "Say what is in a model, .onnx or .hetero, without running it.",
    "query": "Say which devices take which operators, and why not the others.",
    "plan": "Say which node goes where and why, and how the model is cut, without compiling.",
    "report": "Write a plan, or a run, as one HTML file to look at, which needs no network.",
    "split": "Write an ONNX file per subgraph, for any runtime, and a manifest.",
    "run": "Run one inference and summarise the outputs.",
    "bench": "Measure latency, throughput and CPU time, of one device or of several in turn.",
    "compare": "Compare the results of two devices, outputs or all that passes between subgraphs.",
    "export": "Compile a model and write it as one file that loads without compiling.",
    "completion": "Print the script that completes commands in a shell.",
}

_MOST_LINES = 25  # of an error message that lists nodes
_INTERRUPTED = 130


class Failure(click.ClickException):
    """One line on stderr, and exit code 1."""

    exit_code = 1

    def show(self, file: Any = None) -> None:
        click.echo(f"Error: {clean_lines(self.message)}", file=file, err=file is None)


class CommandGroup(click.Group):
    """Knows the commands by name and finds them when they are used."""

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

        found = [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]
        return found or click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from ..errors import did_you_mean

            ctx.fail(f"there is no command {args[0]!r}{did_you_mean(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        from ..errors import HeteroError

        with contextlib.suppress(AttributeError):  # what a terminal's encoding lacks is shown by its number
            sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        try:
            with _warnings_as_lines():
                result = super().invoke(ctx)
                sys.stdout.flush()  # here a full disk is still an error
            return result
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except HeteroError as error:
            if is_debugging(ctx):
                raise
            notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
            raise Failure(_first_lines(_for_people(str(error))) + notes) from error
        except OSError as error:
            if error.errno == errno.EPIPE or is_debugging(ctx):
                raise  # click ends quietly where the reader of a pipe has gone
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
            raise SystemExit(_INTERRUPTED) from None


def is_debugging(ctx: click.Context) -> bool:
    """Whether ``--debug`` was given, before or after the command."""
    return bool(ctx.meta.get("hetero.debug"))


def _for_people(message: str) -> str:
    """What the library says to who catches an exception, said to who runs a command."""
    message = message.replace("the exception's `unsupported` lists all", "`hetero query --nodes` lists all")
    return message.replace("(Core.add_extension)", "(--extension)")


def _first_lines(message: str) -> str:
    lines = message.splitlines()
    if len(lines) <= _MOST_LINES:
        return message
    return "\n".join(
        [*lines[:_MOST_LINES], f"  … {len(lines) - _MOST_LINES} more; `hetero query` groups them by reason"]
    )


def _forget_output() -> None:
    """What could not be written to stdout is not tried again when the program ends, which would say so once more."""
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)


@contextlib.contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Warnings as one line, without the place in the source that they come from."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        click.echo(f"Warning: {clean_lines(str(message))}", err=True)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
