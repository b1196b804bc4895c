"""The ``hetero`` command: a module per command, imported when that command is used.

`group` finds the commands and turns errors into one line and an exit code. `options` defines the shared options, `text`
formats the output, and `outfile` checks the files that commands write. docs/commands.md is the user documentation.

Exit codes: 0, success; 1, failure, with one line on stderr; 2, invalid command line; 3, `compare` found differences;
130, interrupted.
"""

from __future__ import annotations

import click

from ..base.version import __version__
from .group import CommandGroup
from .options import HELP_OPTIONS, debug_option

__all__ = ["main"]


@click.group(cls=CommandGroup, context_settings=HELP_OPTIONS)
@click.version_option(__version__, prog_name="hetero")
@debug_option
def main() -> None:
    """Run one ONNX model on several devices.

    `hetero COMMAND --help` describes a command. Exit codes: 0 success, 1 failure, 2 invalid command line,
    3 `compare` found differences, 130 interrupted.
    """
