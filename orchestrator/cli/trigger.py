"""`trigger`: an order to run a cron job once, now, which its holder obeys.

1. The name is looked up, and everything that speaks against the order is said; then nothing is ordered.
2. An order is written for each instance and the nodes are nudged. Its instant is the name of the run.
3. The job's past is read again and again until `triggered` says what became of the run, or the time is over.
"""

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

import click

from orchestrator import clock
from orchestrator.cli import asked_tick, ordering, talk, target, triggered, waiting
from orchestrator.cli.history import segment_of
from orchestrator.cli.options import WHERE_HELP, Asked, a_number, cluster_options
from orchestrator.cli.picture import DISABLED, Camera, Picture
from orchestrator.core.attempts import ordered_run
from orchestrator.core.cron import TRIGGER_VALID_MS
from orchestrator.core.instants import instant_of
from orchestrator.core.nouns import JobName, Trigger
from orchestrator.core.past import Past
from orchestrator.core.schedule import Schedule
from orchestrator.core.snapshot import JobView, stopped_by
from orchestrator.core.spec import ClusterSpec, JobSpec, Scope
from orchestrator.errors import OrchestratorError, StoreUnreachableError, UsageError
from orchestrator.store.reader import StoreReader
from orchestrator.view import phrases
from orchestrator.view.history import OUTPUT_LINES

_LONG_LOOK_PERIOD_S = 1.0
"""Between looks at a run that has started: its end may be hours away."""


@dataclass(frozen=True, slots=True)
class _Wish:
    """What was typed."""

    tick: float | None
    again: bool
    why: str
    wait: bool
    until_end: bool
    patience_s: float | None


@click.command("trigger", short_help="Run a cron job once, now, on the node that holds it.", epilog=WHERE_HELP)
@click.argument("job")
@click.option("--tick", metavar="INSTANT", help="Run it for this tick of the past; ISO 8601, UTC without an offset.")
@click.option("--again", is_flag=True, help="With --tick: also if that tick ran already.")
@click.option("--why", default="", metavar="TEXT", help="Shown by `history` as the reason.")
@click.option("--no-wait", is_flag=True, help="Do not wait until it has started.")
@click.option("--until-end", is_flag=True, help="Wait until it has ended, with all its retries, and say how.")
@click.option(
    "--timeout",
    "patience_s",
    type=click.FloatRange(min=0),
    callback=a_number,
    metavar="SECONDS",
    help="Wait so long at most; 60 seconds for the start, and for the end without limit, if not given.",
)
@cluster_options
def trigger(
    job: str,
    *,
    tick: str | None,
    again: bool,
    why: str,
    no_wait: bool,
    until_end: bool,
    patience_s: float | None,
    asked: Asked,
) -> int:
    """Run a cron job once, now, on the node that holds it.

    JOB means all its instances. The run counts as no tick; with --tick it is told that tick, to make up for one
    that was missed or failed. A paused job may be triggered; `overlap` decides whether it may while it runs.
    Waits until the run has started, and prints one line a job.

    Exit status: 0 started (or ordered, with --no-wait; or ended well, with --until-end), 1 it is stopped or
    disabled, no node is alive, the tick may not be run, it was skipped, it failed, or it was not taken up in
    time, 2 the job is a service, 4 no such job, 69 Redis does not answer.
    """
    if again and tick is None:
        raise UsageError("--again belongs to --tick: without a tick nothing can be run twice")
    if no_wait and until_end:
        raise UsageError("--no-wait and --until-end contradict each other")
    found = target.find(asked, os.environ, Path.cwd())
    wish = _Wish(None if tick is None else _instant(tick), again, why, not no_wait, until_end, patience_s)
    good = asyncio.run(_give(job, wish, found))
    return 0 if good else OrchestratorError.exit_status


def _instant(text: str) -> float:
    try:
        return instant_of(text, "UTC")
    except ValueError as problem:
        raise UsageError(f"--tick: `{text}` {problem}") from None


async def _give(job: str, wish: _Wish, found: target.Target) -> bool:
    """Give the order; return whether it came out well for every instance."""
    async with Camera(found) as camera:
        before = await camera.take()
        if before.reading is None or camera.reader is None:
            raise StoreUnreachableError(before.problem)
        spec = ordering.spec_if_sound(found)
        rows = ordering.rows_meant([job], before, spec)
        ordering.crons_only(rows.values(), "`orchestrator stop {0}` and `orchestrator start {0}` run it anew")
        refused = [f"{name} is not triggered: {why}" for name, row in rows.items() if (why := _standing(row, before))]
        if not refused and wish.tick is not None:
            refused = await _refused_ticks(wish, rows, before, camera.reader, spec)
        for said in refused:
            talk.tell_error(said)
        if refused:
            return False
        who = ordering.who(os.environ)
        tick_ms = None if wish.tick is None else round(wish.tick * 1000)
        orders = []
        for name in rows:
            order = Trigger(name, 0, tick_ms, who, wish.why)
            order_ms = await camera.reader.trigger(order)
            run = ordered_run(Trigger(name, order_ms, tick_ms, who, wish.why))
            orders.append(_Given(name, _key(name, before), run, order_ms))
        if not wish.wait:
            for given in orders:
                click.echo(phrases.clean(f"ordered: trigger {given.name} (run {given.run})"))
            return True
        return await _Wait(orders, wish).until_done(camera.reader)


def _standing(row: JobView, before: Picture) -> str:
    """Return what speaks against an order for a job as it stands, "" if nothing does."""
    if row.scope == Scope.NODE:
        return "it runs on every node, and no single one holds it"
    intent = before.reading.intents.get(JobName(row.name)) if before.reading else None
    if intent is not None and intent.want == "stopped":
        return f"it is {stopped_by(intent)}; `orchestrator start {row.name}` starts it"
    if row.holder is None and row.why == DISABLED:
        return f"{DISABLED}; write `enabled: true` there"
    return "" if before.view.nodes else "no node is alive"


async def _refused_ticks(
    wish: _Wish, rows: dict[JobName, JobView], before: Picture, reader: StoreReader, spec: ClusterSpec | None
) -> list[str]:
    """Return what speaks against the tick that was named, one sentence an instance.

    Raises:
        UsageError: Nothing says which instants are ticks.
    """
    if wish.tick is None or before.reading is None:
        return []
    now_utc = before.reading.server_ms / 1000
    refused = []
    for name in rows:
        job = next((job for job in spec.jobs if job.name == name), None) if spec else None
        if job is None or job.schedule is None:
            raise UsageError(f"no jobs.yaml here has {name}, and only that says when it is due; add --file FILE")
        past = await reader.past(_key(name, before))
        why = asked_tick.refusal(wish.tick, now_utc=now_utc, schedule=_schedule(job), past=past, again=wish.again)
        refused += [f"{name} is not triggered: {why}"] if why else []
    return refused


def _schedule(job: JobSpec) -> Schedule | None:
    follows = job.schedule is None or job.schedule.after
    return None if follows or job.schedule is None else Schedule(job.schedule, name=job.job)


def _key(name: JobName, picture: Picture) -> str:
    lease = picture.reading.leases.get(name) if picture.reading else None
    return segment_of(lease) if lease is not None else name


@dataclass(frozen=True, slots=True)
class _Given:
    """An order that stands.

    Attributes:
        key: The `<job>` segment of the lease key.
        run: The id of the run that obeys it.
        order_ms: Its instant, by the server's clock.
    """

    name: JobName
    key: str
    run: str
    order_ms: int


class _Wait:
    """Looks until it is known what became of each order."""

    def __init__(self, orders: list[_Given], wish: _Wish) -> None:
        self._orders = {given: triggered.Fate() for given in orders}
        self._until_end = wish.until_end
        self._began = clock.boot()
        self._patience_s = wish.patience_s
        self._line = ordering.PendingLine()
        self._good = True

    async def until_done(self, reader: StoreReader) -> bool:
        """Return whether it came out well for all of them.

        Raises:
            StoreUnreachableError: The time is over, and Redis does not answer.
        """
        try:
            return await self._keep_looking(reader)
        except asyncio.CancelledError:  # what ^C becomes while asyncio runs
            self._line.wipe()
            runs_on = all(fate.taken_up for fate in self._orders.values())
            names = ", ".join(given.name for given in self._orders)
            talk.tell(f"interrupted; {'what runs, runs on' if runs_on else 'the order stands'}: {names}")
            raise

    async def _keep_looking(self, reader: StoreReader) -> bool:
        while self._orders:
            problem = await self._look(reader)
            if self._orders and self._time_is_over():
                return self._give_up(problem)
            if self._orders:
                now_utc = clock.now().utc
                waited = (triggered.pending(given.name, fate, now_utc) for given, fate in self._orders.items())
                self._line.tell(problem or "waiting for " + ", ".join(waited))
                started = all(fate.taken_up for fate in self._orders.values())
                await asyncio.sleep(_LONG_LOOK_PERIOD_S if started and self._late() else ordering.LOOK_PERIOD_S)
        return self._good

    async def _look(self, reader: StoreReader) -> str:
        """Read the past of each and judge it; return why it could not be read, "" if it could."""
        for given in tuple(self._orders):
            try:
                past: Past = await reader.past(given.key)
            except StoreUnreachableError as error:
                return str(error)
            fate = self._orders[given] = triggered.fate_of(given.run, past)
            said = triggered.outcome(given.name, given.run, fate, until_end=self._until_end)
            if said is not None:
                self._line.wipe()
                self._tell(said, fate)
                self._good = self._good and said.good
                del self._orders[given]
        return ""

    def _tell(self, said: waiting.Outcome, fate: triggered.Fate) -> None:
        line = said.line(clock.boot() - self._began)
        if said.good:
            click.echo(line)
            return
        talk.tell_error(line)
        for text in fate.attempts[0].output[-OUTPUT_LINES:] if fate.attempts else ():
            talk.tell(f"    | {text}")

    def _late(self) -> bool:
        return clock.boot() - self._began > ordering.DEFAULT_PATIENCE_S

    def _time_is_over(self) -> bool:
        """Return whether nobody waits any longer: of their own accord only for what was not taken up."""
        if self._patience_s is not None:
            return clock.boot() >= self._began + self._patience_s
        return self._late() and not all(fate.taken_up for fate in self._orders.values())

    def _give_up(self, problem: str) -> bool:
        self._line.wipe()
        if problem:
            raise StoreUnreachableError(f"the order stands, but what became of it cannot be seen: {problem}")
        now = clock.now().utc
        for given, fate in self._orders.items():
            if fate.taken_up:
                talk.tell_error(f"not ended in time: {triggered.pending(given.name, fate, now)}; it runs on")
                continue
            left_s = (given.order_ms + TRIGGER_VALID_MS) / 1000 - now
            stands = f"the order stands for {phrases.span(left_s)} more"
            talk.tell_error(f"not taken up in time: {given.name}; {stands}, run {given.run}")
        return False
