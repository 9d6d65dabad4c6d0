"""`lease`: who holds which lease."""

import asyncio
import os
from pathlib import Path

import click

from orchestrator import clock
from orchestrator.cli import talk, target
from orchestrator.cli.names import instance_meant
from orchestrator.cli.options import WHERE_HELP, Asked, cluster_options
from orchestrator.cli.picture import Picture, take
from orchestrator.cli.status import tell_unread
from orchestrator.core.nouns import JobName
from orchestrator.core.snapshot import JobView
from orchestrator.errors import DegradedError
from orchestrator.view import lease as lease_view
from orchestrator.view.lease import LeaseView


@click.command("lease", short_help="Show who holds which lease, under which token, for how long.", epilog=WHERE_HELP)
@click.argument("job", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one object with JOB, else a list of them.")
@cluster_options
def lease(job: str | None, *, as_json: bool, asked: Asked) -> int:
    """Show who holds which lease, under which token, for how long.

    Without JOB one row a lease: job, holder, fencing token, what is left of it, how long it is held, its key.
    With JOB (an instance: worker is the first, worker.1 the second) all that is known of one: also the
    holder's incarnation, when the token was issued, the newest token ever issued, and the one that was last
    given back in order.

    Exit status: 0 good, 3 Redis does not answer and the node on this machine told what it knows, 4 no such
    job, 69 neither answers.
    """
    found = target.find(asked, os.environ, Path.cwd())
    picture = asyncio.run(take(found))
    readings = picture.reading.leases if picture.reading else {}
    rows = [(row, lease_view.lease_of(row, readings.get(JobName(row.name)))) for row in picture.view.jobs]
    if job is None:
        _print_all(rows, picture, as_json=as_json)
    else:
        name = instance_meant(job, [row.name for row, _ in rows])
        _print_one(*next(pair for pair in rows if pair[0].name == name), picture, as_json=as_json)
    return DegradedError.exit_status if tell_unread(picture) else 0


def _print_all(rows: list[tuple[JobView, LeaseView]], picture: Picture, *, as_json: bool) -> None:
    if as_json:
        talk.print_json([told.to_json() for _, told in rows])
        return
    node, now_utc = picture.view.node, clock.now().utc
    talk.print_view(
        lambda _: lease_view.leases(rows, node=node, now_utc=now_utc),
        lambda: lease_view.plain_leases(rows, node=node, now_utc=now_utc),
    )


def _print_one(row: JobView, told: LeaseView, picture: Picture, *, as_json: bool) -> None:
    if as_json:
        talk.print_json(told.to_json())
        return
    node, now_utc = picture.view.node, clock.now().utc
    talk.print_view(
        lambda _: lease_view.card(row, told, node=node, now_utc=now_utc),
        lambda: lease_view.plain_card(row, told, node=node, now_utc=now_utc),
    )
