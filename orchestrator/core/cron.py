"""The starts of one cron job on the node that holds its lease: one step at a time, each agreed with the store first.

| there is | and | then |
|---|---|---|
| an order to run it once | there is room | claim it; no room: refuse it, wait, or make room, as `overlap` says |
| an attempt that is to be tried again | its time has come | claim it in the place of the one that ended |
| ticks that passed | - | settle them: they are counted and recorded, never run |
| a due tick | there is room | claim it |
| a due tick | a run, or one that is to be tried again, is in the way | `overlap` says: settle it, wait, make room |
| a claim that was granted | the lease has time | start it |

Rules:
1. A start is claimed before it is made, and only when it could be made at once: what is not claimed is not lost with
   this node. So a tick that waits for room stays due, and what becomes of a late one says `misfire`.
2. One step is on its way at a time. It is repeated with the same words when nobody knows whether it was taken, with
   the heartbeat and never at once; so is one that came early by the server's clock, or whose lease the store says
   is not ours (the heartbeat also tells whether that is lost).
3. Of every tick it is told what became of it: the run that ended says so, or what settles it.
4. A run that is to be tried again is in the way as one that runs is.
5. After Redis lost data nobody knows what was done in the lost memory: an order from before is not obeyed, what a lease
   from before left open is not tried again (a token tells the time of its lease).
6. What was due while the job was stopped or paused is skipped when it goes on, unless the order says otherwise.
7. Where every node runs one, without a lease, the store is not asked: nobody else could answer.
"""

from collections.abc import Iterator, Mapping

from orchestrator.core.answers import LeaseGranted, SuccessesSeen, TickClaimed, TickRefused, TicksSettled
from orchestrator.core.attempts import Attempt, again, follower, ordered, ordered_run, rerun, scheduled
from orchestrator.core.bulletin import Bulletin
from orchestrator.core.ends import describe_end
from orchestrator.core.failures import Failures
from orchestrator.core.here import Here
from orchestrator.core.lease import NEVER
from orchestrator.core.messages import Action, RunEnded, Say
from orchestrator.core.nouns import Intent, LeaseValue, Moment, OpenRun, RunId, Trigger
from orchestrator.core.open_runs import mark_of, parse_mark
from orchestrator.core.overlap import in_the_way
from orchestrator.core.records import lost_record
from orchestrator.core.requests import ForgetTrigger, LookAtSuccesses
from orchestrator.core.run import REPLACED, Reason, Run, never_started
from orchestrator.core.snapshot import iso_utc, ordered_by
from orchestrator.core.spec import JobSpec, Misfire, Overlap, Scope
from orchestrator.core.steps import Step, request_of, told
from orchestrator.core.ticks import Fate, Passed, Ticks

CLOCKS_APART_S = 60.0
"""By so much more than it may another attempt waits, where two nodes' clocks differ; more is a clock that was set."""

TRIGGER_VALID_MS = 600_000
"""An order to run a job now is not obeyed later than this: by then somebody has found another way."""


class Cron:
    """The machine in the table above.

    Attributes:
        ticks: Which ticks are due.
        step: What is on its way, None if nothing is.
        retries: What is to be tried again, by the run that ended.
        triggers: Orders to run it once that were not obeyed yet, oldest first.
        failures: Those in a row.
        waits: Why a start that is due waits, "" if none does.
        gave_up: The last tick that came to an end has failed for good.
    """

    def __init__(self, spec: JobSpec, here: Here, bulletin: Bulletin, runs: Mapping[RunId, Run]) -> None:
        """Begin without a lease; `runs` are the runs of the job here, which its owner changes."""
        self.spec = spec
        self.ticks = Ticks(spec)
        self.step: Step | None = None
        self.retries: dict[RunId, OpenRun] = {}
        self.triggers: tuple[Trigger, ...] = ()
        self.failures = Failures()
        self.waits = ""
        self.gave_up = False
        self._here = here
        self._bulletin = bulletin
        self._runs = runs
        self._obeyed_ms = 0
        self._waited_from: float | None = None
        self._no_room = False
        self._enabled_ms = 0

    @property
    def awaits_nothing(self) -> bool:
        """Whether a heartbeat changes nothing for it: no step and no order is to be repeated."""
        return self.step is None and not self.failures.are_too_many(self.spec)

    # --- the lease comes and goes -------------------------------------------------------------------

    def begin(self, granted: LeaseGranted, now: Moment, doubt_ms: int, lost_ms: int) -> Iterator[Action]:
        """Take over with a new lease: plan, say what is in doubt, and close what a predecessor left open."""
        self.failures.begin(granted)
        self._obeyed_ms = max(self._obeyed_ms, granted.obeyed_ms, lost_ms)
        self.retries.clear()
        left_ms = [left.tick_ms for left in granted.open if left.tick_ms is not None]
        self._waited_from = min(left_ms) / 1000 if left_ms and self.spec.overlap is Overlap.QUEUE else None
        doubt = self.ticks.begin(now, granted.last_tick_ms, doubt_ms, lost_ms)
        self.step = Step(passed=doubt) if doubt is not None else None
        for left in granted.open:
            owed = self._bulletin.owed(left.run)
            in_doubt = left.token <= lost_ms
            follows = left if owed is None else parse_mark(left.run, owed.mark)  # it ended here, which is not told yet
            if left.run in self._runs or follows is None:
                continue
            if follows.retry_ms and not in_doubt:
                self.retries[left.run] = follows
            else:
                yield from self._close_lost(left, now, in_doubt=in_doubt)
        yield from self._look_at_successes(now)

    def begin_on_every_node(self, now: Moment) -> None:
        """Begin where there is no lease: nothing of the past is known."""
        self.ticks.plan(now, round(1000 * now.utc))

    def drop(self, why: str, value: LeaseValue | None, now: Moment) -> Iterator[Action]:
        """Forget what was on its way with the lease, and say that it does not run (or may not: nobody knows)."""
        step, self.step = self.step, None
        if self.spec.scope is Scope.NODE:
            for run in self.retries:
                yield self._say("retry.dropped", run=run, why=why)
        self.retries.clear()
        self._here.capacity.leave(self.spec.name)
        self._count()
        if step is None or step.attempt is None or not step.tried:
            return
        tick = step.attempt.names
        if not step.granted:
            why = f"{why} before its claim was answered: it runs only if it was not claimed"
            yield self._say("tick.lost", tick=tick, why=why)
            return
        yield self._say("tick.lost", tick=tick, why=f"{why} before it could start")
        if value is not None and self.spec.scope is Scope.CLUSTER:
            opened = step.attempt.opened(value)
            left = rerun(self.spec, opened, now, certain=True)
            mark = mark_of(left) if left is not None else ""
            record = {**lost_record(opened, now), "error": f"{why} before it could start"}
            yield self._bulletin.record(value.token, opened.run, record, now, mark=mark)

    def redefine(self, spec: JobSpec, now: Moment) -> None:
        """Go on under a definition with the same schedule; what was due while the file disabled it is no more."""
        if spec.enabled and not self.spec.enabled:
            self._enabled_ms = round(1000 * now.utc)
        self.spec = spec
        self.ticks.redefine(spec)

    # --- what happened ------------------------------------------------------------------------------

    def on_claimed(self, claimed: TickClaimed, now: Moment) -> Iterator[Action]:
        """Keep the granted claim until the run can start."""
        step = self.step
        if step is None or step.attempt is None or step.attempt.run != claimed.run:
            return
        step.granted = True
        yield from self._on_taken(step.attempt, now)

    def on_refused(self, refused: TickRefused, now: Moment) -> Iterator[Action]:
        """Drop what was made or settled already; any other refusal is asked about again (rule 2)."""
        step = self.step
        if step is None or step.granted or refused.reason != "duplicate" or step.attempt is None:
            return
        if refused.run != step.attempt.run:
            return
        self.step = None
        yield from self._on_taken(step.attempt, now, settled_ms=refused.last_tick_ms)

    def on_settled(self, settled: TicksSettled, now: Moment) -> Iterator[Action]:
        """Say what was settled, and go on behind it."""
        step = self.step
        if step is not None and step.passed is not None and settled.until_ms == step.passed.until_ms:
            self.step = None
            yield told(self.spec.name, step.passed)
            self.ticks.plan(now, max(settled.last_tick_ms, step.passed.until_ms))
        elif step is not None and step.refused is not None and settled.order_ms == step.refused.order_ms:
            self.step = None
            yield from self._refuse(step, now)

    def on_successes(self, seen: SuccessesSeen, now: Moment) -> None:
        """Learn when the job that is waited for succeeded."""
        if self.ticks.successes is not None:
            self.ticks.successes.tell(seen.at_ms)
            self.ticks.plan(now)

    def on_ended(
        self, run: Run, ended: RunEnded, record: Mapping[str, object], value: LeaseValue | None, now: Moment
    ) -> Iterator[Action]:
        """Record a run that ended, and see whether it is to be tried again.

        Args:
            run: The run.
            ended: How it ended.
            record: What is told of it.
            value: The lease, if it is still the one that the run was started under.
            now: Both clocks.
        """
        by = value or LeaseValue(run.token, self._here.node, self._here.incarnation)
        outcome = record["outcome"]
        self._count()
        left = follower(self.spec, run, ended, record, by, now)
        failures = None
        if run.tick_ms is not None and outcome == "lost" and never_started(run, ended):
            yield self._say("tick.lost", tick=iso_utc(run.tick_ms / 1000), why=describe_end(record))
        if left is not None:
            if value is not None:
                self.retries[left.run] = left
            at = iso_utc(left.retry_ms / 1000)
            if left.rerun:
                yield self._say("run.reruns", run=run.id, attempt=left.attempt + 1, at=at)
            else:
                yield self._say("run.retries", run=run.id, attempt=left.attempt + 1, at=at)
        elif outcome in ("ok", "failed", "timeout"):
            self.gave_up = outcome != "ok"
            if run.tick_ms is not None:
                failures = self.failures.on_result(now, ok=outcome == "ok")
        if self.spec.scope is Scope.CLUSTER:
            mark = mark_of(left) if left is not None else ""
            followers = self._here.followers(self.spec.job) if outcome == "ok" else ()
            yield self._bulletin.record(
                run.token, run.id, record, now, mark=mark, failures=failures, success_of=followers
            )

    def on_beat(self, now: Moment) -> Iterator[Action]:
        """Let an unanswered step be repeated; look at the wall clock anew where nothing is settled (it may be set)."""
        self.failures.on_beat()
        if self.step is None:
            if not self.ticks.settled_ms:
                self.ticks.plan(now)
            yield from self._look_at_successes(now)
        elif not self.step.granted:
            self.step.asked = False

    def on_nudged(self, now: Moment) -> Iterator[Action]:
        """Look whether the job that is waited for has succeeded."""
        yield from self._look_at_successes(now)

    # --- what follows -------------------------------------------------------------------------------

    def advance(self, now: Moment, value: LeaseValue, intent: Intent | None) -> Iterator[Action]:
        """Choose the next step if none is on its way, and ask the store for it."""
        if self.step is not None and self.step.is_unanswered and self.step.instant_ms > 1000 * now.utc:
            self.step = None  # it was due by a clock that was wrong
        if self.step is None:
            self.waits, self._no_room = "", False
            yield from self._choose(now, intent)
            if not self._no_room and self.step is None:  # what passes meanwhile costs it no place in the queue
                self._here.capacity.leave(self.spec.name)
        self._count()
        if self.step is None or not self.step.is_unanswered:
            return
        self.step.asked = self.step.tried = True
        if self.spec.scope is Scope.CLUSTER:
            yield request_of(self.step, self.spec, value, now)
            return
        if self.step.attempt is not None:
            self.step.granted = True
            yield from self._on_taken(self.step.attempt, now)
        elif self.step.refused is not None:
            refused, self.step = self.step, None
            yield from self._refuse(refused, now)
        elif self.step.passed is not None:
            passed, self.step = self.step.passed, None
            yield told(self.spec.name, passed)
            self.ticks.plan(now, passed.until_ms)
            yield from self.advance(now, value, intent)

    def take(self) -> Attempt | None:
        """Hand over the granted attempt, to be started now; None if there is none."""
        if self.step is None or not self.step.granted:
            return None
        attempt, self.step = self.step.attempt, None
        waits = self.spec.overlap is Overlap.QUEUE or self.spec.misfire is Misfire.ALL
        if waits and self._waited_from is None and attempt is not None and attempt.tick_ms is not None:
            self._waited_from = attempt.tick_ms / 1000
        return attempt

    def due_at(self, now: Moment, intent: Intent | None) -> float:
        """Return the boot instant at which there is a step to choose, NEVER while something must happen first."""
        if self.step is not None:
            return NEVER
        if self._open_orders and not self.waits:
            return now.boot
        if self._no_room:
            return NEVER
        waits_s = [self._retry_wait_s(left, now) for left in self._open_retries(intent)]
        if self.ticks.next is not None and not self.waits and not is_paused(intent):
            waits_s.append(self.ticks.next - now.utc)
        return now.boot + max(0.0, min(waits_s)) if waits_s else NEVER

    def _open_retries(self, intent: Intent | None) -> list[OpenRun]:
        """Return what is to be tried again; a pause concerns the schedule, and not what people order."""
        return [left for left in self.retries.values() if left.reason == Reason.MANUAL or not is_paused(intent)]

    def _retry_wait_s(self, left: OpenRun, now: Moment) -> float:
        """Return how long another attempt waits still; where the clock was set back meanwhile, no longer."""
        wait_s = left.retry_ms / 1000 - now.utc
        return wait_s if wait_s <= self.spec.retries.max_delay_s + CLOCKS_APART_S else 0.0

    def _choose(self, now: Moment, intent: Intent | None) -> Iterator[Action]:
        if intent is not None and intent.want == "running":
            self.failures.forgive(intent)
            yield from self._drop_retries_before(intent, now)
        off = self._passed_while_off(now, intent)
        if off is not None:
            self.step = Step(passed=off)
            return
        paused = is_paused(intent)
        due = [left for left in self._open_retries(intent) if self._retry_wait_s(left, now) <= 0]
        if due and not in_the_way(self.spec, self._runs, ()):  # before orders, which may wait for it
            self._claim(again(min(due, key=lambda left: left.retry_ms)))
        elif self._open_orders:
            yield from self._choose_order(self._open_orders[0], now)
        elif self.failures.are_too_many(self.spec) and not paused:
            self.waits = self.failures.why()  # until the pause is known nothing more starts here
            yield from self.failures.pause(self.spec, self._here.node, now)
        elif not paused:
            yield from self._choose_tick(now)

    def _choose_order(self, trigger: Trigger, now: Moment) -> Iterator[Action]:
        blocker = in_the_way(self.spec, self._runs, self.retries)
        if 1000 * now.utc - trigger.order_ms > TRIGGER_VALID_MS:
            self.step = Step(refused=trigger, why="nobody could obey it within 10 minutes")
        elif not blocker:
            self._claim(ordered(trigger))
        elif self.spec.overlap in (Overlap.SKIP, Overlap.ALLOW):
            self.step = Step(refused=trigger, why=blocker)
        else:
            self.waits = blocker
            yield from self._make_room(f"{REPLACED} {ordered_run(trigger)}", now)

    def _choose_tick(self, now: Moment) -> Iterator[Action]:
        blocker, overlap = in_the_way(self.spec, self._runs, self.retries), self.spec.overlap
        if blocker and overlap is Overlap.QUEUE:
            self.waits = blocker if self.ticks.next is not None and now.utc >= self.ticks.next else ""
            return
        due = self.ticks.look(now, self._waited_from)
        if due is None:
            self._waited_from = None
        elif isinstance(due, Passed):
            self.step = Step(passed=due)
        elif not blocker:
            self._claim(scheduled(self.spec.name, due, after=self.ticks.successes is not None))
        elif self.spec.misfire is Misfire.ALL and due.late:
            self.waits = blocker  # each of them runs, and to its end
        elif overlap is Overlap.REPLACE:
            self.waits = blocker
            yield from self._make_room(f"{REPLACED} the tick {iso_utc(due.utc)}", now)
        else:
            self.step = Step(passed=self.ticks.one(due, Fate.SKIPPED, blocker))

    def _claim(self, attempt: Attempt) -> None:
        """Claim a start, or wait for room on this node (rule 1)."""
        if self._here.capacity.admits(self.spec.name):
            self.step = Step(attempt=attempt)
        else:
            self._no_room = True
            self.waits = f"max_running: {self._here.capacity.limit} runs of cron jobs on this node"

    def _make_room(self, why: str, now: Moment) -> Iterator[Action]:
        """Stop what is in the way (`overlap: replace`); with any other rule it is waited for."""
        if self.spec.overlap is not Overlap.REPLACE:
            return
        for run in self._runs.values():
            yield from run.stop(self.spec.stop.timeout_s, why)
        for left in list(self.retries.values()):
            yield from self._give_up(left, now, why)
        if not self._runs:
            self.waits = ""  # what was to be tried again is gone: the next turn claims

    # --- ends without a run -------------------------------------------------------------------------

    def _passed_while_off(self, now: Moment, intent: Intent | None) -> Passed | None:
        if self._enabled_ms > self.ticks.settled_ms:
            enabled_ms, self._enabled_ms = self._enabled_ms, 0
            return self.ticks.in_span(now, enabled_ms, "it was disabled in the file")
        if intent is None or intent.want != "running" or not intent.off_ms or intent.catch_up:
            return None
        why = f"it was stopped or paused, until {ordered_by(intent)} let it go on"
        return self.ticks.in_span(now, min(intent.at_ms, round(1000 * now.utc)), why)

    def _drop_retries_before(self, intent: Intent, now: Moment) -> Iterator[Action]:
        if intent.off_ms and not intent.catch_up:
            for left in [left for left in self.retries.values() if left.retry_ms < intent.at_ms]:
                yield from self._give_up(left, now, "it was stopped or paused meanwhile")

    def _give_up(self, left: OpenRun, now: Moment, why: str) -> Iterator[Action]:
        """Try it no more: it is open no longer, and what was told of it stays."""
        del self.retries[left.run]
        failures = self.failures.count if left.rerun else self.failures.on_result(now, ok=False)
        yield self._say("retry.dropped", run=left.run, why=why)
        yield self._bulletin.record(left.token, left.run, lost_record(left, now), now, witness=False, failures=failures)

    def _close_lost(self, left: OpenRun, now: Moment, *, in_doubt: bool) -> Iterator[Action]:
        yield self._say("run.lost", run=left.run, node=left.node)
        follows = None if in_doubt else rerun(self.spec, left, now, certain=False)
        if follows is not None:
            self.retries[follows.run] = follows
        mark = mark_of(follows) if follows is not None else ""
        yield self._bulletin.record(left.token, left.run, lost_record(left, now), now, mark=mark, witness=False)

    # --- the store ----------------------------------------------------------------------------------

    @property
    def _open_orders(self) -> list[Trigger]:
        return [trigger for trigger in self.triggers if trigger.order_ms > self._obeyed_ms]

    def _count(self) -> None:
        """Tell the node how many runs of it there are, one on its way included."""
        is_claimed = self.step is not None and self.step.attempt is not None
        self._here.capacity.hold(self.spec.name, len(self._runs) + is_claimed)

    def _on_taken(self, attempt: Attempt, now: Moment, settled_ms: int = 0) -> Iterator[Action]:
        """A start was claimed, by us or by somebody before us: it is not to be claimed again."""
        if attempt.trigger is not None:
            yield from self._obeyed(attempt.trigger, now)
        elif attempt.instead is not None:
            self.retries.pop(attempt.instead.run, None)
        elif attempt.tick_ms is not None:
            self.ticks.on_claimed(now, max(settled_ms, attempt.tick_ms))

    def _refuse(self, step: Step, now: Moment) -> Iterator[Action]:
        if step.refused is not None:
            yield self._say("order.refused", run=ordered_run(step.refused), why=step.why)
            yield from self._obeyed(step.refused, now)

    def _obeyed(self, trigger: Trigger, now: Moment) -> Iterator[Action]:
        self._obeyed_ms = max(self._obeyed_ms, trigger.order_ms)
        yield ForgetTrigger(trigger.order_ms, asked_at=now.boot)

    def _look_at_successes(self, now: Moment) -> Iterator[Action]:
        schedule = self.spec.schedule
        if schedule is not None and schedule.after and self.spec.scope is Scope.CLUSTER:
            key = self._here.key_of(schedule.after)
            yield LookAtSuccesses(self.spec.name, key, self.ticks.settled_ms, asked_at=now.boot)

    # --- words --------------------------------------------------------------------------------------

    def _say(self, event: str, **fields: object) -> Say:
        return Say(event, {"job": self.spec.name, **fields}, "warning")


def is_paused(intent: Intent | None) -> bool:
    """Say whether people (or its own failures) have paused a job's schedule."""
    return intent is not None and intent.want == "paused"
