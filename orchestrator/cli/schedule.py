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
from orchestrator.core.schedule import Schedule, jitter_of, parse_problem
from orchestrator.core.spec import Dst, ScheduleSpec
from orchestrator.errors import ConfigError, UsageError
from orchestrator.view import phrases

MOST_TICKS = 10_000
FIRST_UTC, LAST_UTC = -2_208_988_800.0, 32_503_680_000.0
"""The years 1900 to 2999: of what lies further off no zone knows anything, and calendars end."""
_WHOLE_SECOND = "%Y-%m-%dT%H:%M:%SZ"


@click.command("next", short_help="Show when a cron job is due next.", epilog=WHERE_HELP)
@click.argument("job", required=False)
@click.option("-n", "--count", type=click.IntRange(1, MOST_TICKS), default=5, show_default=True, help="How many ticks.")
@click.option("--cron", metavar="EXPR", help="An expression instead of a job; needs no file.")
@click.option("--timezone", metavar="TZ", help="Zone of --cron; UTC where it is not given.")
@click.option("--dst", type=click.Choice([each.value for each in Dst]), help="How --cron is read where clocks change.")
@click.option("--from", "start", metavar="INSTANT", help="Later than this; ISO 8601, UTC where it has no offset.")
@click.option("--json", "as_json", is_flag=True, help='Print a list of {"utc": ..., "local": ...}.')
@cluster_options
def next_ticks(
    job: str | None,
    *,
    count: int,
    cron: str | None,
    timezone: str | None,
    dst: str | None,
    start: str | None,
    as_json: bool,
    asked: Asked,
) -> None:
    """Show when a cron job is due next.

    One line a tick: the local time in the job's zone, marked where the clocks are changed, and UTC.
    `next --cron "30 2 * * *" --timezone Europe/Berlin` tries an expression out.
    Ticks are shown as they are called; how much later a job with `jitter` starts is said beside them.
    A job that runs `after` another one has no instants of its own.

    Exit status: 0, 2 the job is a service, 4 no such job, 78 the expression (or the file) is refused.
    """
    if (job is None) == (cron is None):
        raise UsageError("name a job, or give an expression with --cron, and not both")
    for option, given in (("--timezone", timezone), ("--dst", dst)):
        if given is not None and cron is None:
            raise UsageError(f"{option} belongs to --cron; a job has its own")
    if cron is not None:
        spec, name, jitter_s = ScheduleSpec(cron=cron, timezone=timezone or "UTC", dst=Dst(dst or Dst.CRON)), "", 0.0
    else:
        spec, name, jitter_s = _of_job(job or "", asked)
    if problem := parse_problem(spec, name=name):
        raise ConfigError(problem)
    ticks = _ticks(Schedule(spec, name=name), clock.now().utc if start is None else _instant(start), count)
    if as_json:
        talk.print_json([{"utc": _utc(tick), "local": _local(tick, spec)} for tick, _ in ticks])
    else:
        _print(ticks)
    _explain(spec, jitter_s, any_ticks=bool(ticks))


def _of_job(job: str, asked: Asked) -> tuple[ScheduleSpec, str, float]:
    """Return the schedule of a job, the name from which its `H` draws, and how much later than its ticks it starts."""
    found = target.find(asked, os.environ, Path.cwd())
    spec = target.spec_of(found, os.environ)
    if spec is None:
        raise UsageError("no jobs.yaml is known here, and only that says when a job is due; add --file FILE")
    name = instance_meant(job, [each.name for each in spec.jobs])
    meant = next(each for each in spec.jobs if each.name == name)
    if meant.schedule is None:
        raise UsageError(f"`{name}` is a service: it runs all the time and has no ticks")
    return meant.schedule, meant.job, jitter_of(meant.job, meant.jitter_s)


def _instant(text: str) -> float:
    utc = phrases.utc_of(text)
    if utc is None:
        raise UsageError(f"--from: `{text}` is no instant; write it as 2026-12-24T18:00:00Z")
    if not FIRST_UTC <= utc < LAST_UTC:
        raise UsageError(f"--from: `{text}` is out of range; write a year from 1900 to 2999")
    return utc


def _ticks(schedule: Schedule, after: float, count: int) -> list[tuple[float, str]]:
    ticks: list[tuple[float, str]] = []
    while len(ticks) < count and (tick := schedule.next_after(after)) is not None:
        ticks.append((tick, schedule.describe(tick)))
        after = tick
    return ticks


def _explain(spec: ScheduleSpec, jitter_s: float, *, any_ticks: bool) -> None:
    """Say what the ticks alone do not."""
    if spec.after:
        talk.tell(f"runs after each success of `{phrases.clean(spec.after)}`; no instants of its own")
    elif not any_ticks:
        talk.tell("it is never due again")
    elif jitter_s:
        talk.tell(f"starts {jitter_s:.1f} s after its tick (jitter)")


def _print(ticks: list[tuple[float, str]]) -> None:
    width = max((len(said) for _, said in ticks), default=0)
    for tick, said in ticks:
        click.echo(f"{said:<{width}}  {_utc(tick)}")


def _utc(tick: float) -> str:
    moment = datetime.fromtimestamp(tick, UTC)
    return moment.strftime(_WHOLE_SECOND) if not moment.microsecond else moment.isoformat().replace("+00:00", "Z")


def _local(tick: float, spec: ScheduleSpec) -> str:
    return datetime.fromtimestamp(tick, ZoneInfo(spec.timezone)).isoformat()
