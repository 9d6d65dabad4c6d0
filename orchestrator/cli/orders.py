"""`stop`, `start`, `pause` and `resume`: standing orders, kept in Redis until another one is given.

1. Every name is looked up first; one unknown name, and nothing is ordered.
2. The order is written and the nodes are nudged.
3. The picture is taken again and again until `waiting` says how each order came out, or the time is over.
"""

import asyncio
import os
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from orchestrator import clock
from orchestrator.cli import ordering, talk, target, waiting
from orchestrator.cli.options import WHERE_HELP, Asked, a_number, cluster_options
from orchestrator.cli.picture import Camera, Picture
from orchestrator.cli.waiting import Verb
from orchestrator.core.nouns import Intent, JobName
from orchestrator.core.snapshot import JobView
from orchestrator.core.spec import ClusterSpec, StopSpec
from orchestrator.errors import OrchestratorError, StoreUnreachableError

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


_TIMEOUT_HELP = "Wait so long at most; 60 seconds, and for stop and start the job's stop timeout, if not given."


@click.command("stop", short_help="Stop jobs, wherever they run, until they are started again.", epilog=WHERE_HELP)
@_order_options
@cluster_options
def stop(jobs: tuple[str, ...], *, why: str, no_wait: bool, patience_s: float | None, asked: Asked) -> int:
    """Stop jobs, wherever they run, until they are started again.

    JOB means all its instances; worker.1 means one, worker.0 the first alone. The order survives restarts and
    failovers. Waits until the job's processes are gone and its lease is free, and prints one line a job.

    Exit status: 0 stopped (or ordered, with --no-wait or while no node is alive), 1 not within the time
    or overtaken by another order, 4 no such job, 69 Redis does not answer.
    """
    return _carry_out(jobs, _Order(Verb.STOP, why, patience_s, wait=not no_wait), asked)


@click.command("start", short_help="Start jobs that were stopped or have failed.", epilog=WHERE_HELP)
@_order_options
@cluster_options
def start(jobs: tuple[str, ...], *, why: str, no_wait: bool, patience_s: float | None, asked: Asked) -> int:
    """Start jobs that were stopped or have failed.

    Takes back `stop` and `pause`, and lets a failed service try again at once. Waits until a node runs the job,
    or holds its lease and waits for its tick, and prints one line a job.

    Exit status: 0 started (or ordered, with --no-wait), 1 not within the time, or it ended at once, or it is
    disabled in the file, or no node is alive, or overtaken by another order, 4 no such job, 69 Redis does not
    answer.
    """
    return _carry_out(jobs, _Order(Verb.START, why, patience_s, wait=not no_wait), asked)


@click.command("pause", short_help="Let the ticks of cron jobs pass until they are resumed.", epilog=WHERE_HELP)
@_order_options
@cluster_options
def pause(jobs: tuple[str, ...], *, why: str, no_wait: bool, patience_s: float | None, asked: Asked) -> int:
    """Let the ticks of cron jobs pass until they are resumed.

    A run that goes on is left alone, the job keeps its node, and `orchestrator trigger` still runs it. The order
    survives restarts and failovers. Waits until the job is shown as paused, and prints one line a job.

    Exit status: 0 paused (or ordered, with --no-wait or while no node is alive), 1 not within the time, or the
    job is stopped, or overtaken by another order, 2 the job is a service, 4 no such job, 69 Redis does not answer.
    """
    return _carry_out(jobs, _Order(Verb.PAUSE, why, patience_s, wait=not no_wait), asked)


@click.command("resume", short_help="Let paused cron jobs run at their ticks again.", epilog=WHERE_HELP)
@_order_options
@click.option("--catch-up", is_flag=True, help="What was due meanwhile is late and not skipped: `misfire` decides.")
@cluster_options
def resume(
    jobs: tuple[str, ...], *, why: str, no_wait: bool, patience_s: float | None, catch_up: bool, asked: Asked
) -> int:
    """Let paused cron jobs run at their ticks again.

    What was due meanwhile is skipped, unless --catch-up. Waits until a node holds the job and shows it as paused
    no more, and prints one line a job.

    Exit status: 0 resumed (or ordered, with --no-wait), 1 not within the time, or it is stopped, or disabled in
    the file, or no node is alive, or overtaken by another order, 2 the job is a service, 4 no such job, 69 Redis
    does not answer.
    """
    return _carry_out(jobs, _Order(Verb.RESUME, why, patience_s, wait=not no_wait, catch_up=catch_up), asked)


@dataclass(frozen=True, slots=True)
class _Order:
    verb: Verb
    why: str
    patience_s: float | None
    wait: bool
    catch_up: bool = False

    @property
    def intent(self) -> Intent:
        """What Redis is to keep of it, but for the instant."""
        who = ordering.who(os.environ)
        return Intent(self.verb.want, who, self.why, at_ms=0, catch_up=self.catch_up)


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
        spec = ordering.spec_if_sound(found)
        rows = ordering.rows_meant(jobs, before, spec)
        if order.verb in (Verb.PAUSE, Verb.RESUME):
            instead = _FOR_SERVICES[order.verb]
            ordering.crons_only(rows.values(), f"{instead} it with `orchestrator {instead} {{}}`")
        needless = [said for row in rows.values() if (said := _needless(order.verb, row, before))]
        for said in needless:
            _tell(said)
        good = all(said.good for said in needless)
        rest = {name: row for name, row in rows.items() if name not in {said.name for said in needless}}
        if not rest:
            return good
        at_ms = await camera.reader.order(list(rest), order.intent)
        alive = bool(before.view.nodes)
        if not order.wait or not alive:
            return _tell_ordered(order, list(rest), alive=alive) and good
        wait = _Wait(order.verb, rest, at_ms=at_ms, patience_s=_patience(order, rest, spec))
        return await wait.until_done(camera) and good


_FOR_SERVICES = {Verb.PAUSE: Verb.STOP, Verb.RESUME: Verb.START}


class _Wait:
    """Looks until it is known how the order came out for each job."""

    def __init__(self, verb: Verb, jobs: Mapping[JobName, JobView], *, at_ms: int, patience_s: float) -> None:
        self._verb = verb
        self._at_ms = at_ms
        self._before = dict(jobs)
        self._now = dict(jobs)
        self._began = clock.boot()
        self._until = self._began + patience_s
        self._line = ordering.PendingLine()
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
            self._line.wipe()
            talk.tell(f"interrupted; the order stands: {self._verb} {' '.join(self._now)}")
            raise

    async def _keep_looking(self, camera: Camera) -> bool:
        while self._now:
            await asyncio.sleep(ordering.LOOK_PERIOD_S)
            problem = await self._look(camera)
            if clock.boot() >= self._until:
                return self._give_up(problem)
            if self._now:
                self._line.tell(problem or "waiting for " + ", ".join(map(waiting.pending, self._now.values())))
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
            said = waiting.overtaken(self._verb, name, picture.reading.intents.get(name), self._at_ms)
            said = said or self._outcome(name)
            if said is not None:
                self._line.wipe()
                _tell(said, took_s=clock.boot() - self._began)
                self._good = self._good and said.good
                del self._now[name]
        return ""

    def _outcome(self, name: JobName) -> waiting.Outcome | None:
        """Return how it came out, as soon as that will stay so."""
        row = self._now[name]
        said = waiting.outcome(self._verb, self._before[name], row)
        if said is None or not said.good:
            return said
        if name in self._look_again:
            self._look_again.discard(name)
            return None
        run = waiting.run_of(row) if self._verb is Verb.START else None
        if run is None:
            return said
        if name not in self._seen or self._seen[name][0] != run:
            self._seen[name] = run, clock.boot()
        return said if clock.boot() >= self._seen[name][1] + waiting.SETTLE_S else None

    def _give_up(self, problem: str) -> bool:
        self._line.wipe()
        if problem and self._now:
            raise StoreUnreachableError(f"the order stands, but what became of it cannot be seen: {problem}")
        for row in self._now.values():
            talk.tell_error(f"not {self._verb.done} in time: {waiting.pending(row)}; the order stands")
        return self._good and not self._now


def _needless(verb: Verb, row: JobView, before: Picture) -> waiting.Outcome | None:
    return waiting.already(verb, row, before.reading.intents.get(JobName(row.name)) if before.reading else None)


def _patience(order: _Order, names: Container[JobName], spec: ClusterSpec | None) -> float:
    if order.patience_s is not None:
        return order.patience_s
    if order.verb in (Verb.PAUSE, Verb.RESUME):
        return ordering.DEFAULT_PATIENCE_S
    stops = [job.stop.timeout_s for job in spec.jobs if job.name in names] if spec else []
    return ordering.DEFAULT_PATIENCE_S + max(stops, default=StopSpec().timeout_s)


def _tell(said: waiting.Outcome, took_s: float | None = None) -> None:
    if said.good:
        click.echo(said.line(took_s))
    else:
        talk.tell_error(said.line(took_s))


def _tell_ordered(order: _Order, names: list[JobName], *, alive: bool) -> bool:
    """Say that the order stands though nobody waited for it; return whether that is all that was wanted."""
    for name in names:
        click.echo(
            f"ordered: {order.verb} {name}" + ("" if alive else " (no node is alive; it holds for whoever comes)")
        )
    return alive or not names or order.verb in (Verb.STOP, Verb.PAUSE) or not order.wait
