"""One job instance on one node: couples its lease, its ticks, its restarts and its run.

| the lease is | and the run is | then |
|---|---|---|
| standby | none | ask when it is time, if the job is wanted here |
| standby, asking | alive | kill it: the lease it ran under is lost |
| held | none | service: start it when the backoff allows; cron: claim the due tick, start when claimed |
| held | none, not wanted | release |
| held | alive | renew; extend its deadlines; stop it when it is not wanted or its time is over |
| held | its end unproven | neither renew nor release nor start: the lease runs out, a new token is needed |
| held, silent | alive | nothing: at `term_at` and `kill_at` the leash acts alone |
| held, its end passed | any | standby |

Rules:
1. A run is started only under a held lease that still has time, with that lease's token.
2. The lease is released only when no run is left, and by proof.
3. A job is neither asked for nor started while an earlier run here is not proven to be over.
4. An ordered stop renews the lease as long as the stop takes.
5. What the store did not answer is asked again with the next heartbeat, never at once.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from zlib import crc32

from orchestrator.core.answers import (
    LeaseGranted,
    LeaseLost,
    LeaseRefused,
    LeaseReleased,
    LeaseRenewed,
    LeaseSeen,
    RenewalLate,
    RunRecorded,
    StatePublished,
    StoreSilent,
    TickClaimed,
    TickRefused,
)
from orchestrator.core.lease import NEVER, Lease, Phase
from orchestrator.core.messages import (
    Action,
    Event,
    ExtendRun,
    KillRun,
    Nudged,
    RememberToken,
    RunEnded,
    RunStarted,
    RunStuck,
    RunUnproven,
    Say,
    StartRun,
    StopRun,
)
from orchestrator.core.nouns import Intent, Moment, NodeName, RunId, Token
from orchestrator.core.requests import AcquireLease, PublishState, RecordRun, ReleaseLease
from orchestrator.core.restart import Restarts
from orchestrator.core.run import (
    LEASE_LOST,
    TIMED_OUT,
    Reason,
    Run,
    Stage,
    child_environment,
    describe_end,
    ended_by_itself,
    never_started,
    outcome,
    record_of,
)
from orchestrator.core.server import Server
from orchestrator.core.snapshot import iso_utc
from orchestrator.core.spec import JobSpec, Kind, Restart
from orchestrator.core.ticks import Ticks
from orchestrator.errors import InvariantError

MOST_UNRECORDED = 10
"""Records of ended runs that wait for the store; older ones are given up, the log has them."""

PUBLISH_AGAIN_BEATS = 20
"""A published state that somebody deleted or broke stands again after so many heartbeats (a minute)."""

AT_ONCE = 2
"""The urgency of a third request to go (`LeaveOrdered`): kill."""


@dataclass(slots=True)
class Here:
    """What a job must know of its node.

    Attributes:
        member: The node bears its name undisputed; before that nothing may be asked for.
        urgency: None while the node stays; 0, 1, 2 when it leaves (see `LeaveOrdered`).
        silence: Why the store does not answer, "" while it does.
    """

    node: NodeName
    incarnation: str
    member: bool = False
    urgency: int | None = None
    silence: str = ""


class Job:
    """The machine in the table above.

    Attributes:
        run: The run that has not been proven to be over, None if there is none.
        intent: The standing order of people, None if there is none.
        conflict: Another node's claim on this job under another lease key, "" if none.
        done: Why the service needs no further run, "" if it does.
        last: The record of the last run that ended here, None if none did.
    """

    def __init__(self, spec: JobSpec, here: Here, server: Server, floor: Token) -> None:
        """Begin as a standby without a run."""
        self.spec = spec
        self.here = here
        self.server = server
        self.lease = Lease(spec, node=here.node, incarnation=here.incarnation, floor=floor)
        self.ticks = Ticks(spec)
        self.restarts = Restarts(spec.backoff, f"{spec.name}|{here.node}")
        self.run: Run | None = None
        self.intent: Intent | None = None
        self.conflict = ""
        self.done = ""
        self.last: Mapping[str, object] | None = None
        self._starts = 0
        self._published = ""
        self._publishing = ""
        self._unpublished = False
        self._beats = crc32(spec.name.encode()) % PUBLISH_AGAIN_BEATS  # so that not all publish in one heartbeat
        self._unrecorded: list[RecordRun] = []

    # --- events: each changes the state; what follows from it comes from `advance` -------------------

    def handle(self, event: Event, now: Moment) -> Iterator[Action]:
        """Take in one event about this job."""
        floor = self.lease.floor
        yield from self._on_lease(event, now)
        yield from self._on_run(event, now)
        if self.lease.floor > floor:
            yield RememberToken(self.spec.name, self.lease.floor)

    def _on_lease(self, event: Event, now: Moment) -> Iterator[Action]:
        match event:
            case LeaseSeen():
                self.lease.on_seen(event, now.boot)
            case LeaseRefused():
                self.lease.on_refused(event, now.boot, self.server)
            case LeaseGranted():
                self.lease.on_granted(event)
                self._forget_published()
                yield self._say("lease.acquired", token=event.token)
                doubt_ms, lost_ms = self.server.doubt_ms(now), self.server.lost_until_ms(now)
                yield from self.ticks.begin(now, event.last_tick_ms, doubt_ms, lost_ms)
            case LeaseRenewed():
                yield from self._on_renewed(event)
            case RenewalLate():
                renewal = self.lease.on_late(event, now.boot)
                if renewal is not None:
                    yield renewal
            case LeaseLost() if self.lease.holds(event.token):
                yield self._say("lease.lost", token=event.token, why=event.why, level="warning")
                yield from self._lose("the lease was lost")
            case LeaseReleased():
                yield self._say("lease.released", token=event.token)
                yield from self._lose("the lease was given back")
            case Nudged():
                self.lease.on_nudged(now.boot)
            case StoreSilent():
                yield from self._on_silent(event)
            case _:
                pass

    def _on_run(self, event: Event, now: Moment) -> Iterator[Action]:
        match event:
            case TickClaimed():
                self.ticks.on_claimed(event, now)
            case TickRefused():
                self.ticks.on_refused(event, now)
            case RunStarted() if self.run and self.run.id == event.run:
                self.run.pid = event.pid
                self.run.stage = Stage.RUNNING if self.run.stage is Stage.STARTING else self.run.stage
                yield self._say("run.started", run=event.run, pid=event.pid, token=self.run.token)
            case RunUnproven() if self.run and self.run.id == event.run:
                self.run.unproven = event.why
                yield self._say("run.unproven", run=event.run, why=event.why, level="warning")
            case RunStuck() if self.run and self.run.id == event.run:
                self.run.stuck = f"{event.why} (pid {', '.join(map(str, event.pids))})"
                yield self._say("run.stuck", run=event.run, why=self.run.stuck, level="error")
            case RunEnded() if self.run and self.run.id == event.run:
                yield from self._on_ended(self.run, event, now)
            case RunRecorded():
                self._unrecorded = [record for record in self._unrecorded if record.run != event.run]
            case StatePublished():
                self._published, self._publishing = self._publishing if event.was_ours else "", ""
            case _:
                pass

    def _on_renewed(self, renewed: LeaseRenewed) -> Iterator[Action]:
        if not self.lease.on_renewed(renewed):
            return
        if renewed.put_back:
            self._forget_published()
            yield self._say("lease.put_back", token=renewed.token, level="warning")
        deadlines = self.lease.deadlines()
        if self.run is not None and deadlines is not None and self.run.token == renewed.token:
            yield ExtendRun(self.run.id, deadlines)

    def _on_silent(self, silent: StoreSilent) -> Iterator[Action]:
        match silent.request:
            case AcquireLease():
                self.lease.on_ask_unanswered()
            case ReleaseLease():
                yield from self._lose("the lease was given back")
            case PublishState():  # shown again with the next heartbeat
                self._published, self._publishing, self._unpublished = self._publishing, "", True
            case _:
                pass

    def _on_ended(self, run: Run, ended: RunEnded, now: Moment) -> Iterator[Action]:
        self.run = None
        self.last = record_of(self.spec, run, ended, self.here.node, now)
        word = outcome(self.spec, run, ended)
        yield self._say(
            "run.ended",
            run=run.id,
            outcome=word,
            end=describe_end(self.last),
            elapsed_s=round(ended.elapsed_s, 2),
            level="info" if word in ("ok", "stopped") else "warning",
        )
        record = RecordRun(self.spec.name, self.spec.key, run.token, run.id, json.dumps(self.last), asked_at=now.boot)
        self._unrecorded = [*self._unrecorded, record][-MOST_UNRECORDED:]
        yield record
        if run.tick_ms is not None and never_started(run, ended):
            yield self._say("tick.lost", tick=iso_utc(run.tick_ms / 1000), why=describe_end(self.last), level="warning")
        if self.spec.kind is Kind.SERVICE and ended_by_itself(run, ended):
            if self.spec.restart is Restart.NEVER or (self.spec.restart is Restart.ON_FAILURE and word == "ok"):
                self.done = f"done ({describe_end(self.last)})"
            else:
                self.restarts.on_ended(ended.elapsed_s, now.boot)

    def order(self, intent: Intent | None) -> None:
        """Take a standing order; a newer order to run also forgets failures and ends."""
        if (
            intent is not None
            and intent.want == "running"
            and (self.intent is None or intent.at_ms > self.intent.at_ms)
        ):
            self.restarts.forget()
            self.done = ""
        self.intent = intent

    # --- what follows from the state ----------------------------------------------------------------

    @property
    def unwanted(self) -> str:
        """Why this node should not hold the lease, "" if it should."""
        if not self.spec.enabled:
            return "it is disabled in the file"
        if self.here.urgency is not None:
            return "the node leaves"
        if not self.here.member:
            return "the node has not joined the cluster yet"
        if self.intent is not None and self.intent.want == "stopped":
            return "stop was ordered"
        return self.conflict

    def advance(self, now: Moment) -> Iterator[Action]:
        """Do what the table says for the present state; calling it again changes nothing."""
        if self.lease.held and now.boot >= self.lease.ends_at():
            yield self._say("lease.ended", why="it could not be renewed in time", level="warning")
            yield from self._lose("the lease ended")
        if self.run is not None:
            yield from self._mind(self.run, now)
        if self.lease.held:
            if self.run is None:
                yield from self._use_lease(now)
            if not self.unwanted and self.lease.value is not None and self.lease.held:
                yield from self._skip_overlap(now)
                yield from self.ticks.due(now, self.lease.value)
        elif self._may_ask and now.boot >= self.lease.ask_at:
            yield self.lease.ask(now, self.server)

    @property
    def _may_ask(self) -> bool:
        return self.run is None and self.lease.phase is Phase.STANDBY and bool(self.server.epoch) and not self.unwanted

    def _use_lease(self, now: Moment) -> Iterator[Action]:
        if self.unwanted:
            yield self.lease.release(now.boot, self.server)
        elif self.spec.kind is Kind.CRON and self.lease.may_start(now.boot):
            claim = self.ticks.take(now)
            if claim is not None:
                yield self._start(claim.run, claim.reason, now, tick_ms=claim.tick_ms)
        elif self._startable(now) and now.boot >= self.restarts.ready_at:
            self._starts += 1
            yield self._start(RunId(f"{self.spec.name}@{self._token()}.{self._starts}"), Reason.START, now)

    def _startable(self, now: Moment) -> bool:
        """Say whether only the backoff can keep a service from being started."""
        return (
            self.spec.kind is Kind.SERVICE
            and self.run is None
            and not (self.unwanted or self.done or self.restarts.given_up)
            and self.lease.may_start(now.boot)
        )

    def _start(self, run_id: RunId, reason: Reason, now: Moment, tick_ms: int | None = None) -> StartRun:
        self.run = Run(run_id, self._token(), tick_ms, reason, started=now)
        env = child_environment(self.spec, self.run, self.here.node)
        return StartRun(self.spec.name, run_id, self.run.token, self.lease.deadlines(), env)

    def _mind(self, run: Run, now: Moment) -> Iterator[Action]:
        if not self.lease.holds(run.token):
            yield from self._kill(run, LEASE_LOST)
        elif self.here.urgency == AT_ONCE:
            yield from self._kill(run, "the node was told to go at once")
        elif self.unwanted:
            grace_s = self.spec.stop.timeout_s
            if self.here.urgency:
                grace_s = min(grace_s, self.spec.lease.step_down_grace_s)
            yield from self._stop(run, grace_s, self.unwanted)
        elif self.spec.timeout_s is not None and now.boot >= run.started.boot + self.spec.timeout_s:
            yield from self._stop(run, self.spec.stop.timeout_s, TIMED_OUT)

    def _stop(self, run: Run, grace_s: float, why: str) -> Iterator[Action]:
        if grace_s < run.grace_s:
            run.stage = Stage.STOPPING
            run.grace_s = grace_s
            run.stop_why = run.stop_why or why
            yield StopRun(run.id, grace_s, why)

    def _kill(self, run: Run, why: str) -> Iterator[Action]:
        if not run.killed:
            run.stage = Stage.STOPPING
            run.killed = True
            run.stop_why = run.stop_why or why
            yield KillRun(run.id, why)

    def _skip_overlap(self, now: Moment) -> Iterator[Action]:
        if self.run is None:
            return
        claim = self.ticks.take(now)
        if claim is not None:
            why = f"{self.run.id} still runs (overlap: skip)"
            yield self._say("tick.skipped", tick=iso_utc(claim.tick_ms / 1000), why=why, level="warning")

    # --- heartbeats, publication, waking ------------------------------------------------------------

    def beat(self, now: Moment) -> Iterator[Action]:
        """Return this job's share of a heartbeat, and what is still owed to the store (rule 5)."""
        if self.run is None or not self.run.unproven:
            share = self.lease.beat(now.boot)
            if share is not None:
                yield share
        yield from self._unrecorded
        self._beats += 1
        if self._unpublished or self._beats % PUBLISH_AGAIN_BEATS == 0:
            self._forget_published()
        if self.lease.held:
            self.ticks.on_beat(now)

    def publish(self, state: Mapping[str, object], now: Moment) -> Iterator[Action]:
        """Show a changed state to everybody; one publication at a time."""
        if self.lease.value is None or not self.lease.held or self._publishing:
            return
        text = json.dumps({"token": self.lease.value.token, **state})
        if text != self._published:
            self._publishing = text
            yield PublishState(self.spec.name, self.spec.key, self.lease.value, text, asked_at=now.boot)

    def next_deadline(self, now: Moment) -> float:
        """Return the boot instant at which `advance` will have something to do, or earlier."""
        at = NEVER
        if self.lease.held:
            at = self.lease.ends_at()
            if self.ticks.next is not None and self.ticks.claim is None and not self.unwanted:
                at = min(at, now.boot + max(0.0, self.ticks.next - now.utc))
            if self._startable(now):
                at = min(at, self.restarts.ready_at)
        elif self._may_ask:
            at = self.lease.ask_at
        if self.run is not None and self.spec.timeout_s is not None and not (self.run.killed or self.run.stop_why):
            at = min(at, self.run.started.boot + self.spec.timeout_s)
        return at

    @property
    def idle(self) -> bool:
        """Whether nothing of it is left on this node: no run, no lease, no request that could bring one."""
        return self.run is None and self.lease.phase is Phase.STANDBY

    def _forget_published(self) -> None:
        self._published = self._publishing = ""
        self._unpublished = False

    def _lose(self, why: str) -> Iterator[Action]:
        self.lease.lose()
        self._forget_published()
        yield from self.ticks.drop(why)

    def _token(self) -> Token:
        if self.lease.value is None:
            raise InvariantError(f"{self.spec.name}: a start without a lease")
        return self.lease.value.token

    def _say(self, event: str, *, level: str = "info", **fields: object) -> Say:
        return Say(event, {"job": self.spec.name, **fields}, level)
