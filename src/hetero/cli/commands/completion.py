"""``hetero completion``."""

from __future__ import annotations

import click

from ..options import new_command

__all__ = ["command"]

# Like click's own script, but it also completes words with ``:`` and ``=`` (lists of devices, pins), which bash splits.
# The line is split at blanks only, and each reply omits the part of the word that bash counts as earlier words.
_BASH = r"""_hetero_completion() {
    local response type value index
    local line="${COMP_LINE:0:COMP_POINT}"
    local -a words
    read -r -a words <<< "$line"
    index=$((${#words[@]} - 1))
    if [[ "$line" == *[[:space:]] ]]; then
        words+=("")
        index=$((index + 1))
    fi
    local last="${words[index]}"
    local before="${last%"${last##*[:=]}"}"
    response=$(env COMP_WORDS="$line" COMP_CWORD="$index" _HETERO_COMPLETE=bash_complete "$1")
    COMPREPLY=()
    while IFS=',' read -r type value; do
        case "$type" in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain)
                COMPREPLY+=("${value#"$before"}")
                [[ "$value" == *[:=] ]] && compopt -o nospace
                ;;
        esac
    done <<< "$response"
    return 0
}
complete -o nosort -F _hetero_completion hetero
"""


@new_command("completion bash")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print a script that completes commands in a shell.

    Add `eval "$(hetero completion bash)"` to ~/.bashrc, or `eval "$(hetero completion zsh)"` to ~/.zshrc. For fish, run
    `hetero completion fish > ~/.config/fish/completions/hetero.fish`.
    """
    if shell == "bash":
        click.echo(_BASH, nl=False)
        return
    from click.shell_completion import get_completion_class

    completion_class = get_completion_class(shell)
    assert completion_class is not None
    click.echo(completion_class(ctx.find_root().command, {}, "hetero", "_HETERO_COMPLETE").source())
