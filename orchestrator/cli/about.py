"""`version` and `completion`: about the command itself."""

import click
from click.shell_completion import get_completion_class

from orchestrator import __version__


@click.command("version", short_help="Print the version.")
def version() -> None:
    """Print the version."""
    click.echo(f"orchestrator {__version__}")


@click.command("completion", short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash  eval "$(orchestrator completion bash)"             in ~/.bashrc
    zsh   eval "$(orchestrator completion zsh)"              in ~/.zshrc
    fish  orchestrator completion fish | source              in ~/.config/fish/config.fish
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines
    completes = get_completion_class(shell)
    if completes is None:
        raise click.UsageError(f"click knows no completion for {shell}")
    root = ctx.find_root()
    click.echo(completes(root.command, {}, "orchestrator", "_ORCHESTRATOR_COMPLETE").source())
