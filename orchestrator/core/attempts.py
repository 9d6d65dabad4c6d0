"""One start of a cron on its way, and the one that may follow it: names, numbers, delays.

Knows how attempts are called and when another one is made; must never know ticks, the store or the other jobs.

Rules:
1. Each attempt is a run of its own, with an id of its own: `job@<tick>`, then `job@<tick>.2` and so on; an ordered
   run is `job@manual-<instant of the order>`. What all attempts share is the tick.
2. A failed run is tried again `retries.count` times, ever later; the count goes on wherever the lease goes.
3. A lost run is tried again where `on_lost` says so, and where it is certain that its command never started.
4. No tick is run for ever: a job that takes its node down with it is run again at most three times. Neither of the two
   counts takes anything from the other.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from itertools import count

from orchestrator.core.messages import RunEnded
from orchestrator.core.nouns import JobName, LeaseValue, Moment, OpenRun, RunId, Token, Trigger
from orchestrator.core.run import Reason, Run, never_started
from orchestrator.core.snapshot import iso_utc
from orchestrator.core.spec import JobSpec, OnLost
from orchestrator.core.ticks import DueTick

MOST_RERUNS = 3

NODE_LEAVES = "the node leaves"
"""Why a run is stopped when its node goes: its tick is not done, and another node may do it."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start, before there is a run.

    Attributes:
        tick_ms: None: it was ordered, and runs for no tick.
        number: Counts from 1.
        first_reason: Why the first attempt was made.
        trigger: The order that it obeys, None if there is none.
        instead: The run that it follows, None if it is the first.
        reruns: How many of the attempts up to this one follow a lost run.
    """

    run: RunId
    tick_ms: int | None
    reason: Reason
    number: int = 1
    first_reason: Reason = Reason.SCHEDULE
    trigger: Trigger | None = None
    instead: OpenRun | None = None
    reruns: int = 0

    @property
    def names(self) -> str:
        """What it is for: the tick as ISO 8601, of an ordered run without one its id."""
        return iso_utc(self.tick_ms / 1000) if self.tick_ms is not None else self.run

    def opened(self, value: LeaseValue) -> OpenRun:
        """Return what the store keeps of it until it has ended."""
        first, reruns = self.first_reason.value, self.reruns
        return OpenRun(self.run, self.tick_ms, value.token, value.node, self.number, first, reruns=reruns)

    def begun(self, spec: JobSpec, token: Token, now: Moment, lanes: Container[int]) -> Run:
        """Return the run that is started now; `lanes` are those of the runs that are alive."""
        return Run(
            self.run,
            token,
            self.tick_ms,
            self.reason,
            now,
            attempt=self.number,
            reruns=self.reruns,
            first_reason=self.first_reason,
            lane=next(lane for lane in count() if lane not in lanes),
            last_attempt=self.number - self.reruns > spec.retries.count,
            note=told_of(self.trigger) if self.trigger is not None else "",
        )


def scheduled(job: JobName, due: DueTick, *, after: bool) -> Attempt:
    """Return the first attempt at a tick."""
    reason = Reason.CATCH_UP if due.late else Reason.AFTER if after else Reason.SCHEDULE
    return Attempt(RunId(f"{job}@{iso_utc(due.utc)}"), due.ms, reason, first_reason=reason)


def ordered(trigger: Trigger) -> Attempt:
    """Return the run that somebody ordered."""
    run = ordered_run(trigger)
    return Attempt(run, trigger.tick_ms, Reason.MANUAL, first_reason=Reason.MANUAL, trigger=trigger)


def ordered_run(trigger: Trigger) -> RunId:
    """Return the id of the run that obeys an order; who gave it can look for it."""
    return RunId(f"{trigger.job}@manual-{trigger.order_ms}")


def told_of(trigger: Trigger) -> str:
    """Return who ordered a run and why, in one clause."""
    return f"ordered by {trigger.who}" + (f": {trigger.why}" if trigger.why else "")


def again(open_run: OpenRun) -> Attempt:
    """Return the attempt that follows one that is over."""
    number = open_run.attempt + 1
    base = open_run.run.removesuffix(f".{open_run.attempt}") if open_run.attempt > 1 else open_run.run
    try:
        first = Reason(open_run.reason)
    except ValueError:  # a word of another version
        first = Reason.SCHEDULE
    reason = Reason.RERUN if open_run.rerun else Reason.RETRY
    reruns = open_run.reruns + open_run.rerun
    run = RunId(f"{base}.{number}")
    return Attempt(run, open_run.tick_ms, reason, number, first, instead=open_run, reruns=reruns)


def follower(
    spec: JobSpec, run: Run, ended: RunEnded, record: Mapping[str, object], value: LeaseValue, now: Moment
) -> OpenRun | None:
    """Return what is to be tried again after a run that ended, None if nothing is."""
    outcome = record.get("outcome")
    opened = OpenRun(run.id, run.tick_ms, run.token, value.node, run.attempt, run.first_reason.value, reruns=run.reruns)
    if outcome in ("failed", "timeout"):
        return None if run.last_attempt else retried(spec, opened, now)
    cut = outcome == "lost" or (outcome == "stopped" and run.stop_why == NODE_LEAVES)
    return rerun(spec, opened, now, certain=never_started(run, ended)) if cut else None


def retried(spec: JobSpec, opened: OpenRun, now: Moment) -> OpenRun:
    """Return a failed run as one that is to be tried again, later (rule 2)."""
    retries = spec.retries
    failed_before = opened.attempt - 1 - opened.reruns
    delay_s = min(retries.max_delay_s, retries.delay_s * retries.backoff ** min(failed_before, 64))
    return _due_again(opened, round(1000 * (now.utc + delay_s)), rerun=False)


def rerun(spec: JobSpec, opened: OpenRun, now: Moment, *, certain: bool) -> OpenRun | None:
    """Return a lost run as one that is to be tried again at once, None if it is not (rules 3 and 4).

    Args:
        spec: Of the job.
        opened: The lost run.
        now: Both clocks.
        certain: Its command never started.
    """
    wanted = certain or spec.on_lost is OnLost.RERUN
    if not wanted or opened.reruns >= MOST_RERUNS:
        return None
    # What kept a command from starting (a lease about to end, a launcher that died) is not over at once.
    wait_s = spec.lease.heartbeat_s if certain else 0.0
    return _due_again(opened, round(1000 * (now.utc + wait_s)), rerun=True)


def _due_again(opened: OpenRun, retry_ms: int, *, rerun: bool) -> OpenRun:
    return replace(opened, retry_ms=retry_ms, rerun=rerun)
