"""`next`: when a schedule is due, from a file or from an expression alone."""

import os
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import click

from orchestrator import clock
from orchestrator.cli import talk, target
from orchestrator.cli.names import instance_meant
from orchestrator.cli.options import WHERE_HELP, Asked, cluster_options
from orchestrator.core.schedule import Schedule, parse_problem
from orchestrator.core.spec import ScheduleSpec
from orchestrator.errors import ConfigError, UsageError
from orchestrator.view import phrases

MOST_TICKS = 10_000
_WHOLE_SECOND = "%Y-%m-%dT%H:%M:%SZ"


@click.command("next", short_help="Show when a cron job is due next.", epilog=WHERE_HELP)
@click.argument("job", required=False)
@click.option("-n", "--count", type=click.IntRange(1, MOST_TICKS), default=5, show_default=True, help="How many ticks.")
@click.option("--cron", metavar="EXPR", help="An expression instead of a job; needs no file.")
@click.option("--timezone", metavar="TZ", help="Zone of --cron; UTC where it is not given.")
@click.option("--from", "start", metavar="INSTANT", help="Later than this; ISO 8601, UTC where it has no offset.")
@click.option("--json", "as_json", is_flag=True, help='Print a list of {"utc": ..., "local": ...}.')
@cluster_options
def next_ticks(
    job: str | None,
    *,
    count: int,
    cron: str | None,
    timezone: str | None,
    start: str | None,
    as_json: bool,
    asked: Asked,
) -> None:
    """Show when a cron job is due next.

    One line a tick: the local time in the job's zone, marked where the clocks are changed, and UTC.
    `next --cron "30 2 * * *" --timezone Europe/Berlin` tries an expression out.

    Exit status: 0, 2 the job is a service, 4 no such job, 78 the expression (or the file) is refused.
    """
    if (job is None) == (cron is None):
        raise UsageError("name a job, or give an expression with --cron, and not both")
    if timezone is not None and cron is None:
        raise UsageError("--timezone belongs to --cron; a job has its own")
    spec, name = (ScheduleSpec(cron=cron, timezone=timezone or "UTC"), "") if cron else _of_job(job or "", asked)
    problem = parse_problem(spec, name=name)
    if problem:
        raise ConfigError(problem)
    ticks = _ticks(Schedule(spec, name=name), clock.now().utc if start is None else _instant(start), count)
    if as_json:
        talk.print_json([{"utc": _utc(tick), "local": _local(tick, spec)} for tick, _ in ticks])
    else:
        _print(ticks)


def _of_job(job: str, asked: Asked) -> tuple[ScheduleSpec, str]:
    found = target.find(asked, os.environ, Path.cwd())
    spec = target.spec_of(found, os.environ)
    if spec is None:
        raise UsageError("no jobs.yaml is known here, and only that says when a job is due; add --file FILE")
    name = instance_meant(job, [each.name for each in spec.jobs])
    meant = next(each for each in spec.jobs if each.name == name)
    if meant.schedule is None:
        raise UsageError(f"`{name}` is a service: it runs all the time and has no ticks")
    return meant.schedule, meant.job


def _instant(text: str) -> float:
    utc = phrases.utc_of(text)
    if utc is None:
        raise UsageError(f"--from: `{text}` is no instant; write it as 2026-12-24T18:00:00Z")
    return utc


def _ticks(schedule: Schedule, after: float, count: int) -> list[tuple[float, str]]:
    ticks: list[tuple[float, str]] = []
    while len(ticks) < count and (tick := schedule.next_after(after)) is not None:
        ticks.append((tick, schedule.describe(tick)))
        after = tick
    return ticks


def _print(ticks: list[tuple[float, str]]) -> None:
    if not ticks:
        talk.tell("it is never due again")
    width = max((len(said) for _, said in ticks), default=0)
    for tick, said in ticks:
        click.echo(f"{said:<{width}}  {_utc(tick)}")


def _utc(tick: float) -> str:
    moment = datetime.fromtimestamp(tick, UTC)
    return moment.strftime(_WHOLE_SECOND) if not moment.microsecond else moment.isoformat().replace("+00:00", "Z")


def _local(tick: float, spec: ScheduleSpec) -> str:
    # A period knows no zone.
    zone = ZoneInfo(spec.timezone) if spec.cron else UTC
    return datetime.fromtimestamp(tick, zone).isoformat()
