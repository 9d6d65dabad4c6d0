"""`validate` and `schema`: about a jobs.yaml, with no cluster behind it."""

import os
import sys
from importlib import resources
from pathlib import Path

import click

from orchestrator import clock
from orchestrator.cli import target
from orchestrator.cli.options import filled
from orchestrator.core.schedule import Schedule
from orchestrator.core.spec import ClusterSpec, JobSpec, Scope
from orchestrator.errors import ConfigError
from orchestrator.view import phrases

_STDIN = "-"


@click.command("validate", short_help="Check a jobs.yaml and say what it means.")
@click.argument("file", callback=filled, metavar="[FILE]", default=target.DEFAULT_FILE)
def validate(file: str) -> None:
    """Check a jobs.yaml and say what it means.

    Prints one line for the file and one for each job: its kind, when it is due next or when it is restarted,
    and its lease's ttl. FILE may be - for stdin; without it, jobs.yaml. Complaints go to stderr, all at once,
    each as file:line:column and what to write instead.

    Exit status: 0 good, 78 bad.
    """
    spec = _from_stdin() if file == _STDIN else target.load(Path(file), os.environ)
    count = len(spec.jobs)
    click.echo(f"{phrases.clean(file)}: {count} {'job' if count == 1 else 'jobs'}, good")
    width = max((len(job.name) for job in spec.jobs), default=0)
    now_utc = clock.now().utc
    for job in spec.jobs:
        click.echo(f"  {job.name:<{width}}  {job.kind.value:<7}  {_under(job)}  {_when(job, now_utc)}")


@click.command("schema", short_help="Print the JSON Schema of jobs.yaml, for editors.")
def schema() -> None:
    """Print the JSON Schema of jobs.yaml, for editors.

    \b
    orchestrator schema > jobs.schema.json
    # and as the first line of jobs.yaml:
    # yaml-language-server: $schema=./jobs.schema.json
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines
    click.echo(resources.files("orchestrator").joinpath("jobs.schema.json").read_text("utf-8"), nl=False)


def _from_stdin() -> ClusterSpec:
    from orchestrator import config  # noqa: PLC0415 - pydantic is loaded only where a file is read

    try:
        text = sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"<stdin>: is not UTF-8 (byte {error.start}); save it as UTF-8") from None
    return config.parse(text, "<stdin>", os.environ)


def _under(job: JobSpec) -> str:
    return f"ttl {job.lease.ttl_s:g}s" if job.scope is Scope.CLUSTER else "every node"


def _when(job: JobSpec, now_utc: float) -> str:
    if not job.enabled:
        return "disabled"
    if job.schedule is None:
        return f"restart {job.restart.value}"
    if job.schedule.after:
        return f"after each success of {job.schedule.after}"
    schedule = Schedule(job.schedule, name=job.job)
    tick = schedule.next_after(now_utc)
    return "never due again" if tick is None else f"next {schedule.describe(tick)}"
