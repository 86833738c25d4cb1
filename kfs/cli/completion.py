"""``kfs completion``."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the shell's completion script.

    \b
      eval "$(kfs completion bash)"          in ~/.bashrc
      eval "$(kfs completion zsh)"           in ~/.zshrc
      kfs completion fish | source           in config.fish
    """
    complete = get_completion_class(shell)
    assert complete is not None
    click.echo(complete(ctx.find_root().command, {}, "kfs", "_KFS_COMPLETE").source())
