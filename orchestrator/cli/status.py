"""`status`: every job of the cluster, once or again and again."""

import asyncio
import contextlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console
from rich.live import Live

from orchestrator import clock
from orchestrator.cli import talk, target
from orchestrator.cli.names import instances_meant
from orchestrator.cli.options import WHERE_HELP, Asked, cluster_options
from orchestrator.cli.picture import Camera, Picture, take
from orchestrator.core.snapshot import ClusterView
from orchestrator.errors import DegradedError, StoreUnreachableError
from orchestrator.view import table

WATCH_PERIOD_S = 2.0


@click.command("status", short_help="Show every job: its state, its holder, its lease, and why.", epilog=WHERE_HELP)
@click.argument("jobs", nargs=-1, metavar="[JOB]...")
@click.option("--json", "as_json", is_flag=True, help="Print the picture as JSON; with --watch one line a picture.")
@click.option("--watch", is_flag=True, help="Print it again every two seconds, until ^C.")
@cluster_options
def status(jobs: tuple[str, ...], *, as_json: bool, watch: bool, asked: Asked) -> int:
    """Show every job: its state, its holder, its lease, and why.

    A line about the cluster (its live nodes, `*` marks the one on this machine; Redis; how many jobs are in
    which state), then one row a job: kind, state, holder, fencing token, what is left of its lease and of
    which ttl, pid, how long it is up or when it is due next, how its last run ended, and why it is in its
    state. The width of the terminal decides how much of it; a pipe gets everything as plain text.

    Where Redis does not answer, the node on this machine tells what it knows.

    Exit status: 0 good, 3 degraded (a job that is enabled is failed, blocked or unheld, no node is
    alive, or Redis does not answer), 4 no such job, 69 neither Redis nor a node on this machine answers.
    """
    found = target.find(asked, os.environ, Path.cwd())
    if watch:
        asyncio.run(_watch(found, jobs, as_json=as_json))
    return show_once(found, jobs, as_json=as_json)


def show_once(found: target.Target, jobs: Sequence[str] = (), *, as_json: bool = False) -> int:
    """Print one picture; return the exit status."""
    picture = asyncio.run(take(found))
    view = only(picture.view, jobs, found)
    if as_json:
        talk.print_json(view.to_json())
    else:
        now_utc = clock.now().utc
        talk.print_view(
            lambda width: table.status(view, now_utc=now_utc, width=width),
            lambda: table.plain_status(view, now_utc=now_utc),
        )
    return exit_status(view, picture)


def exit_status(view: ClusterView, picture: Picture) -> int:
    """Return 0 or 3, and say on stderr if Redis does not answer us (or only the node on this machine)."""
    unread = tell_unread(picture)  # also where a job is in trouble, so not behind an `or`
    troubled = any(row.state in table.TROUBLED for row in view.jobs)
    deserted = picture.reading is not None and not picture.reading.members
    return DegradedError.exit_status if unread or troubled or deserted or not view.redis.get("ok", True) else 0


def tell_unread(picture: Picture) -> bool:
    """Return whether Redis did not answer, and say so on stderr."""
    if picture.problem:
        talk.tell(f"redis unreachable: {picture.problem}")
    return bool(picture.problem)


def only(view: ClusterView, jobs: Sequence[str], found: target.Target) -> ClusterView:
    """Return the picture of some jobs; of all where none is named.

    Raises:
        NotFoundError: There is no such job.
    """
    if not jobs:
        return view
    meant = set(instances_meant(jobs, [row.name for row in view.jobs], found.spec))
    return replace(view, jobs=tuple(row for row in view.jobs if row.name in meant))


async def _watch(found: target.Target, jobs: Sequence[str], *, as_json: bool) -> None:
    """Print picture after picture, on a terminal each in the place of the last one.

    ^C ends it; an outage does not.
    """
    console = Console(markup=False, highlight=False, emoji=False)
    live = Live(console=console, auto_refresh=False) if talk.looked_at() and not as_json else None
    async with Camera(found) as camera:
        with live or contextlib.nullcontext():
            while True:
                try:
                    view = only((await camera.take()).view, jobs, found)
                except StoreUnreachableError as error:
                    talk.tell_error(str(error))
                else:
                    _show(view, live, as_json=as_json)
                await asyncio.sleep(WATCH_PERIOD_S)


def _show(view: ClusterView, live: Live | None, *, as_json: bool) -> None:
    now_utc = clock.now().utc
    if live is not None:
        live.update(table.status(view, now_utc=now_utc, width=live.console.width), refresh=True)
    elif as_json:
        talk.print_json_line(view.to_json())
    else:
        click.echo(table.plain_status(view, now_utc=now_utc) + "\n")
