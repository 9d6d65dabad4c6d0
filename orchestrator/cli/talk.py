"""How a command speaks: data on stdout, talk on stderr, tables for who looks and plain text for who does not.

Talk that cannot be written is lost, and keeps no command from its work.
"""

import contextlib
import json
import sys
from collections.abc import Callable

import click
from rich.console import Console, RenderableType

from orchestrator.view.phrases import clean


def tell(message: str) -> None:
    """Print one line of talk on stderr."""
    with contextlib.suppress(OSError):
        click.echo(clean(message), err=True)


def tell_error(message: str) -> None:
    """Print an error on stderr, each of its lines behind the command's name."""
    for line in message.splitlines():
        tell(f"orchestrator: {line}")


def print_json(data: object) -> None:
    """Print data for a machine: ASCII, so that no terminal and no locale can spoil it."""
    click.echo(json.dumps(data, indent=2))


def print_json_line(data: object) -> None:
    """Print data for a machine that reads line by line."""
    click.echo(json.dumps(data, separators=(",", ":")))


def looked_at() -> bool:
    """Return whether stdout is a terminal."""
    return sys.stdout.isatty()


def print_view(draw: Callable[[int], RenderableType], plain: Callable[[], str]) -> None:
    """Print a table: drawn to the terminal's width, or plain into a pipe."""
    if looked_at():
        console = Console(markup=False, highlight=False, emoji=False)
        console.print(draw(console.width))
    else:
        click.echo(plain())
