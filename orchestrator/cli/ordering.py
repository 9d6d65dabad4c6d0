"""What every order needs: for which jobs it is, who gives it, and a line that tells what is waited for.

Asks nobody; `orders.py` and `trigger.py` give the orders.
"""

import getpass
import os
import shutil
import socket
import sys
from collections.abc import Iterable, Mapping

import click

from orchestrator import clock
from orchestrator.cli import target
from orchestrator.cli.names import instances_meant
from orchestrator.cli.picture import Picture
from orchestrator.core.nouns import JobName
from orchestrator.core.snapshot import JobView
from orchestrator.core.spec import ClusterSpec, Kind
from orchestrator.errors import ConfigError, NotFoundError, UsageError
from orchestrator.view.phrases import clean

DEFAULT_PATIENCE_S = 60.0
"""A standby takes over within a ttl and a heartbeat."""
LOOK_PERIOD_S = 0.2
TELL_PERIOD_S = 1.0
_WIPED_LINE = "\r\x1b[K"


def rows_meant(jobs: Iterable[str], before: Picture, spec: ClusterSpec | None) -> dict[JobName, JobView]:
    """Return the rows of the instances that names stand for, in the order they were asked for.

    Raises:
        NotFoundError: A name stands for nothing.
    """
    asked = list(jobs)
    rows = {JobName(row.name): row for row in before.view.jobs}
    if not rows:
        raise NotFoundError(
            f"no such job `{asked[0]}`: no node of the cluster `{before.view.cluster}` is alive to say which jobs"
            " there are; name the file with --file FILE"
        )
    return {name: rows[name] for name in instances_meant(asked, rows, spec)}


def crons_only(rows: Iterable[JobView], cure: str) -> None:
    """Refuse what means nothing for a service.

    Args:
        rows: The jobs it was asked for.
        cure: The command that does mean something, with `{}` for the job.

    Raises:
        UsageError: One of them is a service.
    """
    for row in rows:
        if row.kind == Kind.SERVICE:
            raise UsageError(f"`{row.name}` is a service and has no ticks; {cure.format(row.name)}")


def spec_if_sound(found: target.Target) -> ClusterSpec | None:
    """Return the file, if one is known and is in order."""
    try:
        return target.spec_of(found, os.environ)
    except ConfigError:
        # The node runs by what the file once said; its present state must not keep anybody from stopping a job.
        return found.spec


def who(environ: Mapping[str, str]) -> str:
    """Return login and host of who gives the order; behind sudo, the one who typed it."""
    try:
        login = environ.get("SUDO_USER") or getpass.getuser()
    except (OSError, KeyError):  # a uid without a name, as in many containers
        login = f"uid {os.getuid()}"
    return f"{login}@{socket.gethostname()}"


class PendingLine:
    """The last line of a terminal, on which is told what is waited for; nothing where nobody looks."""

    def __init__(self) -> None:
        """Begin without one."""
        self._told_at = clock.boot()

    def tell(self, said: str) -> None:
        """Replace the line, not more than once a second."""
        if clock.boot() < self._told_at + TELL_PERIOD_S or not sys.stderr.isatty():
            return
        self._told_at = clock.boot()
        width = shutil.get_terminal_size().columns - 1
        click.echo(f"{_WIPED_LINE}{clean(said)[:width]}", err=True, nl=False)

    def wipe(self) -> None:
        """Take the line off the terminal."""
        if sys.stderr.isatty():
            click.echo(_WIPED_LINE, err=True, nl=False)
