"""The ``hetero`` command: a module per command, imported when that command is used.

`group` finds the commands and turns errors into one line and an exit code, `options` has what commands share, `text`
what they print, `outfile` the rules for files that they write. docs/commands.md tells users.

Exit codes: 0, all is well; 1, something failed, as one line on stderr says; 2, the command line makes no sense; 3,
`compare` found differences; 130, interrupted.
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
    """Run one ONNX model over several devices.

    `hetero COMMAND --help` tells about a command. Exit codes: 0 all is well, 1 something failed, 2 the command line
    makes no sense, 3 `compare` found differences, 130 interrupted.
    """
