"""`history`: how the runs of one job ended, and what became of its ticks.

Every tick must be accounted for: where the file is known, its schedule is asked how many there were.
"""

import asyncio
import os
from pathlib import Path

import click

from orchestrator import clock
from orchestrator.cli import ordering, talk, target
from orchestrator.cli.names import instance_meant
from orchestrator.cli.options import WHERE_HELP, Asked, cluster_options
from orchestrator.cli.picture import Camera
from orchestrator.core.nouns import JobName
from orchestrator.core.past import Past
from orchestrator.core.schedule import Schedule
from orchestrator.core.snapshot import JobView, LeaseReading
from orchestrator.core.spec import ClusterSpec, Scope
from orchestrator.errors import StoreUnreachableError
from orchestrator.view import entries
from orchestrator.view import history as history_view
from orchestrator.view.entries import HistoryView

MOST_SHOWN = 10_000
"""Far more than is kept of a job."""


@click.command(
    "history", short_help="Show how the runs of a job ended, and what became of its ticks.", epilog=WHERE_HELP
)
@click.argument("job")
@click.option(
    "-n", "--count", type=click.IntRange(1, MOST_SHOWN), default=20, show_default=True, help="How many entries."
)
@click.option("--failed", is_flag=True, help="Only runs that failed, took too long or were lost.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one object, its `runs` newest first.")
@cluster_options
def history(job: str, *, count: int, failed: bool, as_json: bool, asked: Asked) -> int:
    """Show how the runs of a job ended, and what became of its ticks.

    JOB is one instance: worker is the first, worker.1 the second. One row an entry, the newest last: the tick,
    when its run started and how late that was, how it ended and on which node, under which token, at which try,
    and why; below a run that failed, the last lines it wrote. Ticks that did not run have a row too: skipped or
    missed, and why. Then come runs that have not ended, and a sum of all ticks since the schedule began, also of
    those whose entries are gone: each of them ran, was skipped or was missed.

    Exit status: 0, 4 no such job, 69 Redis does not answer.
    """
    found = target.find(asked, os.environ, Path.cwd())
    view = asyncio.run(_told(job, found))
    spec = ordering.spec_if_sound(found)
    shown = entries.newest(view, count, failed=failed)
    if as_json:
        talk.print_json(shown.to_json())
    else:
        now_utc = clock.now().utc
        talk.print_view(
            lambda width: history_view.table(shown, now_utc=now_utc, width=width),
            lambda: history_view.plain_table(shown, now_utc=now_utc),
        )
        if not (shown.runs or shown.open):
            talk.tell(f"nothing of {view.job} is kept that failed" if failed else f"nothing of {view.job} is kept yet")
    unaccounted = _unaccounted(view, spec)
    if unaccounted:
        talk.tell_error(unaccounted)
    return 0


def segment_of(lease: LeaseReading) -> str:
    """Return the `<job>` segment of a lease key, by which the store knows everything of a job."""
    return lease.key.partition("}:")[2].removesuffix(":lease")


async def _told(job: str, found: target.Target) -> HistoryView:
    """Read the past of the one instance that a name stands for.

    Raises:
        NotFoundError: There is none.
        StoreUnreachableError: Redis does not answer.
    """
    async with Camera(found) as camera:
        picture = await camera.take()
        if picture.reading is None or camera.reader is None:
            raise StoreUnreachableError(picture.problem)
        name = instance_meant(job, [row.name for row in picture.view.jobs])
        row = next(row for row in picture.view.jobs if row.name == name)
        if row.scope == Scope.NODE:
            talk.tell(f"{name} runs on every node, and each has only its log: `orchestrator logs {name}`")
        lease = picture.reading.leases.get(JobName(name))
        past = await camera.reader.past(segment_of(lease)) if lease is not None else Past()
        return entries.history_of(name, past, since=_since(row, past))


def _since(row: JobView, past: Past) -> str | None:
    """Return when the run began that the holder shows, if it is one of those that have not ended."""
    return row.since if any(run.token == row.token and not run.retry_ms for run in past.open) else None


def _unaccounted(view: HistoryView, spec: ClusterSpec | None) -> str:
    """Return what is wrong with the sum of the ticks by the file's schedule, "" if nothing is."""
    since, settled = entries.counted_span(view)
    schedule = next((job.schedule for job in spec.jobs if job.name == view.job), None) if spec else None
    if schedule is None or schedule.after or since is None or settled is None:
        return ""
    name = next(job.job for job in spec.jobs if job.name == view.job) if spec else ""
    _, count = Schedule(schedule, name=name).newest_in(since, settled)
    if count == view.ticks:
        return ""
    return (
        f"{view.job}: ticks accounted for: {view.ticks:,}; by the schedule of the file: {count:,} (up to"
        f" {view.settled}): either the file of its holder has another schedule, or ticks went unnoticed"
    )
