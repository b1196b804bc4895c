"""``hetero completion``."""

from __future__ import annotations

import click

from .options import new_command

__all__ = ["command"]


@new_command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands in a shell.

    In ~/.bashrc: `eval "$(hetero completion bash)"`; in ~/.zshrc: `eval "$(hetero completion zsh)"`; for fish:
    `hetero completion fish > ~/.config/fish/completions/hetero.fish`.
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(ctx.find_root().command, {}, "hetero", "_HETERO_COMPLETE").source())
