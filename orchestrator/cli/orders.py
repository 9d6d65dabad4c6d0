"""`stop` and `start`: standing orders, kept in Redis until the opposite is ordered.

1. Every name is looked up first; one unknown name, and nothing is ordered.
2. The order is written and the nodes are nudged.
3. The picture is taken again and again until `waiting` says how each order came out, or the time is over.
"""

import asyncio
import getpass
import os
import shutil
import socket
import sys
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from orchestrator import clock
from orchestrator.cli import talk, target, waiting
from orchestrator.cli.names import instances_meant
from orchestrator.cli.options import WHERE_HELP, Asked, a_number, cluster_options
from orchestrator.cli.picture import Camera, Picture
from orchestrator.core.nouns import Intent, JobName
from orchestrator.core.snapshot import JobView
from orchestrator.core.spec import ClusterSpec, StopSpec
from orchestrator.errors import ConfigError, NotFoundError, OrchestratorError, StoreUnreachableError
from orchestrator.view.phrases import clean

DEFAULT_PATIENCE_S = 60.0
"""A standby takes over within a ttl and a heartbeat; the job's own stop timeout comes on top."""
LOOK_PERIOD_S = 0.2
TELL_PERIOD_S = 1.0
_WIPED_LINE = "\r\x1b[K"

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _order_options(command: _Function) -> _Function:
    for option in (
        click.option(
            "--timeout",
            "patience_s",
            type=click.FloatRange(min=0),
            callback=a_number,
            metavar="SECONDS",
            help=_TIMEOUT_HELP,
        ),
        click.option("--no-wait", is_flag=True, help="Do not wait until it is done."),
        click.option("--why", default="", metavar="TEXT", help="Shown by `status` as the reason."),
        click.argument("jobs", nargs=-1, required=True, metavar="JOB..."),
    ):
        command = option(command)
    return command


_TIMEOUT_HELP = "Wait so long at most; 60 seconds and the job's stop timeout where it is not given."


@click.command("stop", short_help="Stop jobs, wherever they run, until they are started again.", epilog=WHERE_HELP)
@_order_options
@cluster_options
def stop(jobs: tuple[str, ...], *, why: str, no_wait: bool, patience_s: float | None, asked: Asked) -> int:
    """Stop jobs, wherever they run, until they are started again.

    JOB means all its instances; worker.1 means one, worker.0 the first alone. The order survives restarts and
    failovers. Waits until the job's processes are gone and its lease is free, and prints one line a job.

    Exit status: 0 stopped (or ordered, with --no-wait or while no node is alive), 1 not within the time
    or overtaken by a start, 4 no such job, 69 Redis does not answer.
    """
    return _carry_out(jobs, _Order(waiting.STOP, why, patience_s, wait=not no_wait), asked)


@click.command("start", short_help="Start jobs that were stopped or have failed.", epilog=WHERE_HELP)
@_order_options
@cluster_options
def start(jobs: tuple[str, ...], *, why: str, no_wait: bool, patience_s: float | None, asked: Asked) -> int:
    """Start jobs that were stopped or have failed.

    Takes back `stop`, and lets a failed service try again at once. Waits until a node runs the job, or holds
    its lease and waits for its tick, and prints one line a job.

    Exit status: 0 started (or ordered, with --no-wait), 1 not within the time, or it ended at once, or it is
    disabled in the file, or no node is alive, or overtaken by a stop, 4 no such job, 69 Redis does not answer.
    """
    return _carry_out(jobs, _Order(waiting.START, why, patience_s, wait=not no_wait), asked)


@dataclass(frozen=True, slots=True)
class _Order:
    want: str
    why: str
    patience_s: float | None
    wait: bool


def _carry_out(jobs: tuple[str, ...], order: _Order, asked: Asked) -> int:
    found = target.find(asked, os.environ, Path.cwd())
    good = asyncio.run(_give(jobs, order, found))
    return 0 if good else OrchestratorError.exit_status


async def _give(jobs: tuple[str, ...], order: _Order, found: target.Target) -> bool:
    """Give the order; return whether it was carried out for every job."""
    async with Camera(found) as camera:
        before = await camera.take()
        if before.reading is None or camera.reader is None:
            raise StoreUnreachableError(before.problem)
        spec = _spec(found)
        rows = _meant(jobs, before, spec)
        needless = [said for row in rows.values() if (said := _needless(order.want, row, before))]
        for said in needless:
            _tell(said)
        good = all(said.good for said in needless)
        rest = {name: row for name, row in rows.items() if name not in {said.name for said in needless}}
        if not rest:
            return good
        at_ms = await camera.reader.order(list(rest), Intent(order.want, _who(os.environ), order.why, at_ms=0))
        alive = bool(before.view.nodes)
        if not order.wait or not alive:
            return _tell_ordered(order, list(rest), alive=alive) and good
        wait = _Wait(order.want, rest, at_ms=at_ms, patience_s=_patience(order, rest, spec))
        return await wait.until_done(camera) and good


class _Wait:
    """Looks until it is known how the order came out for each job."""

    def __init__(self, want: str, jobs: Mapping[JobName, JobView], *, at_ms: int, patience_s: float) -> None:
        self._want = want
        self._at_ms = at_ms
        self._before = dict(jobs)
        self._now = dict(jobs)
        self._began = self._told_at = clock.boot()
        self._until = self._began + patience_s
        self._good = True
        # Nobody held these when the order was given, but a node may have been about to: they are looked at twice.
        self._look_again = {name for name, row in jobs.items() if row.holder is None}
        self._seen: dict[JobName, tuple[object, float]] = {}  # which run of it, and since when

    async def until_done(self, camera: Camera) -> bool:
        """Return whether it came out well for all of them.

        Raises:
            StoreUnreachableError: The time is over, and Redis does not answer.
        """
        try:
            return await self._keep_looking(camera)
        except asyncio.CancelledError:  # what ^C becomes while asyncio runs
            _wipe()
            talk.tell(f"interrupted; the order stands: {waiting.VERBS[self._want]} {' '.join(self._now)}")
            raise

    async def _keep_looking(self, camera: Camera) -> bool:
        while self._now:
            await asyncio.sleep(LOOK_PERIOD_S)
            problem = await self._look(camera)
            if clock.boot() >= self._until:
                return self._give_up(problem)
            if clock.boot() >= self._told_at + TELL_PERIOD_S and sys.stderr.isatty():
                self._told_at = clock.boot()
                _tell_pending(problem or "waiting for " + ", ".join(map(waiting.pending, self._now.values())))
        return self._good

    async def _look(self, camera: Camera) -> str:
        """Take a picture and judge it; return why it could not be taken, "" if it could."""
        try:
            picture = await camera.take()
        except StoreUnreachableError as error:
            return str(error)
        if picture.reading is None:
            return picture.problem
        for name in tuple(self._now):
            self._now[name] = picture.view.job(name) or self._now[name]
            said = waiting.overtaken(self._want, name, picture.reading.intents.get(name), self._at_ms)
            said = said or self._outcome(name)
            if said is not None:
                _tell(said, took_s=clock.boot() - self._began)
                self._good = self._good and said.good
                del self._now[name]
        return ""

    def _outcome(self, name: JobName) -> waiting.Outcome | None:
        """Return how it came out, as soon as that will stay so."""
        row = self._now[name]
        said = waiting.outcome(self._want, self._before[name], row)
        if said is None or not said.good:
            return said
        if name in self._look_again:
            self._look_again.discard(name)
            return None
        run = waiting.run_of(row) if self._want == waiting.START else None
        if run is None:
            return said
        if name not in self._seen or self._seen[name][0] != run:
            self._seen[name] = run, clock.boot()
        return said if clock.boot() >= self._seen[name][1] + waiting.SETTLE_S else None

    def _give_up(self, problem: str) -> bool:
        _wipe()
        if problem and self._now:
            raise StoreUnreachableError(f"the order stands, but what became of it cannot be seen: {problem}")
        for row in self._now.values():
            talk.tell_error(f"not {_DONE[self._want]} in time: {waiting.pending(row)}; the order stands")
        return self._good and not self._now


_DONE = {waiting.STOP: "stopped", waiting.START: "started"}


def _needless(want: str, row: JobView, before: Picture) -> waiting.Outcome | None:
    intent = before.reading.intents.get(JobName(row.name)) if before.reading else None
    return waiting.already(want, row, intent.want if intent else None)


def _meant(jobs: tuple[str, ...], before: Picture, spec: ClusterSpec | None) -> dict[JobName, JobView]:
    rows = {JobName(row.name): row for row in before.view.jobs}
    if not rows:
        raise NotFoundError(
            f"no such job `{jobs[0]}`: no node of the cluster `{before.view.cluster}` is alive to say which jobs"
            " there are; name the file with --file FILE"
        )
    return {name: rows[name] for name in instances_meant(jobs, rows, spec)}


def _spec(found: target.Target) -> ClusterSpec | None:
    try:
        return target.spec_of(found, os.environ)
    except ConfigError:
        # The node runs by what the file once said; its present state must not keep anybody from stopping a job.
        return found.spec


def _patience(order: _Order, names: Container[JobName], spec: ClusterSpec | None) -> float:
    if order.patience_s is not None:
        return order.patience_s
    stops = [job.stop.timeout_s for job in spec.jobs if job.name in names] if spec else []
    return DEFAULT_PATIENCE_S + max(stops, default=StopSpec().timeout_s)


def _who(environ: Mapping[str, str]) -> str:
    """Return login and host of who gives the order; behind sudo, the one who typed it."""
    try:
        login = environ.get("SUDO_USER") or getpass.getuser()
    except (OSError, KeyError):  # a uid without a name, as in many containers
        login = f"uid {os.getuid()}"
    return f"{login}@{socket.gethostname()}"


def _tell(said: waiting.Outcome, took_s: float | None = None) -> None:
    _wipe()
    if said.good:
        click.echo(said.line(took_s))
    else:
        talk.tell_error(said.line(took_s))


def _tell_ordered(order: _Order, names: list[JobName], *, alive: bool) -> bool:
    """Say that the order stands though nobody waited for it; return whether that is all that was wanted."""
    for name in names:
        click.echo(
            f"ordered: {waiting.VERBS[order.want]} {name}"
            + ("" if alive else " (no node is alive; it holds for whoever comes)")
        )
    return alive or not names or order.want == waiting.STOP or not order.wait


def _tell_pending(said: str) -> None:
    width = shutil.get_terminal_size().columns - 1
    click.echo(f"{_WIPED_LINE}{clean(said)[:width]}", err=True, nl=False)


def _wipe() -> None:
    """Take the line that tells of the wait off the terminal."""
    if sys.stderr.isatty():
        click.echo(_WIPED_LINE, err=True, nl=False)
