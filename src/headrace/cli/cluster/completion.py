"""`headrace completion`: shell completion scripts for bash, zsh and fish.

eval "$(headrace completion bash)"          in ~/.bashrc (for zsh: in ~/.zshrc)
headrace completion fish > ~/.config/fish/completions/headrace.fish
"""

import click
from click.shell_completion import get_completion_class

from headrace.cli.common.tool import Tool

_SHELLS = ("bash", "zsh", "fish")


@click.command(cls=Tool)
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a completion script for SHELL."""
    completion_class = get_completion_class(shell)
    assert completion_class is not None
    click.echo(completion_class(ctx.find_root().command, {}, "headrace", "_HEADRACE_COMPLETE").source())
