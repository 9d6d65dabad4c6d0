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
6. A lease that is left to others (a crash loop, a service that is not healthy) is asked for again only after a
   while, if nobody took it; where no other node could take it, it is kept.
7. A service that came to its end for good stays so for every node, until it is ordered to start or is another one.
"""

from collections.abc import Iterator, Mapping

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
from orchestrator.core.bulletin import Bulletin
from orchestrator.core.fitness import Fitness
from orchestrator.core.here import Here
from orchestrator.core.lease import NEVER, Lease, Phase
from orchestrator.core.messages import (
    Action,
    Event,
    ExtendRun,
    Nudged,
    RememberToken,
    RunChecked,
    RunEnded,
    RunExited,
    RunMeasured,
    RunStarted,
    RunStuck,
    RunUnproven,
    Say,
    StartRun,
)
from orchestrator.core.node_lease import NodeLease
from orchestrator.core.nouns import Intent, Moment, RunId, Token
from orchestrator.core.reload import Effect, Revision, runs_are_cut
from orchestrator.core.requests import AcquireLease, PublishState, ReleaseLease
from orchestrator.core.restart import Restarts
from orchestrator.core.run import (
    LEASE_LOST,
    TIMED_OUT,
    Reason,
    Run,
    Stage,
    child_environment,
    describe_end,
    exit_status_of,
    never_started,
    outcome,
    record_of,
)
from orchestrator.core.server import Server
from orchestrator.core.snapshot import iso_utc
from orchestrator.core.spec import JobSpec, Kind, Scope
from orchestrator.core.ticks import Ticks
from orchestrator.errors import InvariantError

AT_ONCE = 2
"""The urgency of a third request to go (`LeaveOrdered`): kill."""


class Job:
    """The machine in the table above.

    Attributes:
        run: The run that has not been proven to be over, None if there is none.
        intent: The standing order of people, None if there is none.
        conflict: Another node's claim on this job under another lease key, "" if none.
        others: The other live nodes that could run it.
        drift: A live node that has another definition of it, "" if none has.
        last: The record of the last run that ended here, None if none did.
        fault: Its exit status when it has failed for good, or a cron's run has failed; None while neither.
        revision: What the file says now, while it cannot be taken over yet.
    """

    def __init__(self, spec: JobSpec, here: Here, server: Server, floor: Token) -> None:
        """Begin as a standby without a run."""
        self.spec = spec
        self.here = here
        self.server = server
        kind_of_lease = Lease if spec.scope is Scope.CLUSTER else NodeLease
        self.lease = kind_of_lease(spec, node=here.node, incarnation=here.incarnation, floor=floor)
        self.ticks = Ticks(spec)
        self.restarts = Restarts(spec.backoff, f"{spec.name}|{here.node}")
        self.fitness = Fitness(spec)
        self.bulletin = Bulletin(spec)
        self.run: Run | None = None
        self.intent: Intent | None = None
        self.conflict = ""
        self.others: tuple[str, ...] = ()
        self.drift = ""
        self.last: Mapping[str, object] | None = None
        self.fault: int | None = None
        self.revision: Revision | None = None
        self._starts = 0

    # --- events: each changes the state; what follows from it comes from `advance` -------------------

    def handle(self, event: Event, now: Moment) -> Iterator[Action]:
        """Take in one event about this job."""
        if isinstance(event, LeaseRenewed):  # by far the most frequent one
            yield from self._on_renewed(event)
            return
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
                yield from self._on_granted(event, now)
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
                self.fitness.begin(event.run, now)
                yield self._say("run.started", run=event.run, pid=event.pid, token=self.run.token)
            case RunChecked() if self.run and self.run.id == event.run:
                yield from self.fitness.on_checked(event, now)
            case RunExited() if self.run and self.run.id == event.run:
                self.run.exited = True
            case RunMeasured() if self.run and self.run.id == event.run:
                self.fitness.on_measured(event)
            case RunUnproven() if self.run and self.run.id == event.run:
                self.run.unproven = event.why
                yield self._say("run.unproven", run=event.run, why=event.why, level="warning")
            case RunStuck() if self.run and self.run.id == event.run:
                self.run.stuck = f"{event.why} (pid {', '.join(map(str, event.pids))})"
                yield self._say("run.stuck", run=event.run, why=self.run.stuck, level="error")
            case RunEnded() if self.run and self.run.id == event.run:
                yield from self._on_ended(self.run, event, now)
            case RunRecorded():
                self.bulletin.on_recorded(event.run)
            case StatePublished():
                self.bulletin.on_published(was_ours=event.was_ours)
            case _:
                pass

    def _on_granted(self, granted: LeaseGranted, now: Moment) -> Iterator[Action]:
        self.lease.on_granted(granted)
        self.bulletin.forget()
        yield self._say("lease.acquired", token=granted.token)
        if self.spec.kind is Kind.SERVICE and granted.last is not None:
            ordered_ms = self.intent.at_ms if self.intent is not None else 0
            if self.restarts.remember(self.spec, granted.last, ordered_ms):
                self.last = granted.last
        doubt_ms, lost_ms = self.server.doubt_ms(now), self.server.lost_until_ms(now)
        yield from self.ticks.begin(now, granted.last_tick_ms, doubt_ms, lost_ms)

    def _on_renewed(self, renewed: LeaseRenewed) -> Iterator[Action]:
        if not self.lease.on_renewed(renewed):
            return
        if renewed.put_back:
            self.bulletin.forget()
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
            case PublishState():
                self.bulletin.on_silent()
            case _:
                pass

    def _on_ended(self, run: Run, ended: RunEnded, now: Moment) -> Iterator[Action]:
        self.run = None
        self.fitness.forget()
        order_ms = self.intent.at_ms if self.intent is not None else 0
        self.last = record_of(self.spec, run, ended, self.here.node, now, order_ms=order_ms)
        word = outcome(self.spec, run, ended)
        yield self._say(
            "run.ended",
            run=run.id,
            outcome=word,
            end=describe_end(self.last) + (f": {run.stop_why}" if word == "stopped" and run.stop_why else ""),
            elapsed_s=round(ended.elapsed_s, 2),
            level="info" if word in ("ok", "stopped") else "warning",
        )
        if self.spec.scope is Scope.CLUSTER:
            yield self.bulletin.record(run.token, run.id, self.last, now)
        if run.tick_ms is not None and never_started(run, ended):
            yield self._say("tick.lost", tick=iso_utc(run.tick_ms / 1000), why=describe_end(self.last), level="warning")
        if self.spec.kind is Kind.SERVICE:
            self.restarts.judge(self.spec, run, ended, self.last, now.boot)
            if self.resting(now):
                yield self._say("lease.left", why=self.restarts.rest_why, level="warning")
        if word != "ok" and (self.restarts.over or (self.spec.kind is Kind.CRON and word in ("failed", "timeout"))):
            self.fault = exit_status_of(self.last)

    def order(self, intent: Intent | None) -> None:
        """Take a standing order; a newer order to run also forgets failures and ends."""
        if (
            intent is not None
            and intent.want == "running"
            and (self.intent is None or intent.at_ms > self.intent.at_ms)
        ):
            self.restarts.forget()
        self.intent = intent

    # --- what follows from the state ----------------------------------------------------------------

    @property
    def unwanted(self) -> str:
        """Why this node should not hold the lease, "" if it should."""
        if not self.spec.enabled:
            return "it is disabled in the file"
        if self.revision is not None and self.revision.spec is None:
            return "it was removed from the file"
        if self.here.urgency is not None:
            return "the node leaves"
        if not self.here.member and self.spec.scope is Scope.CLUSTER:
            return "the node has not joined the cluster yet"
        if self.intent is not None and self.intent.want == "stopped":
            return "stop was ordered"
        if self.revision is not None and self.revision.effect >= Effect.MOVED and (self.run is None or self._is_cut):
            return "its definition changed"
        return self.conflict

    @property
    def _is_cut(self) -> bool:
        return self.revision is not None and runs_are_cut(self.spec, self.revision.effect)

    def resting(self, now: Moment) -> bool:
        """Say whether the lease is left to another node that could take it (rule 6)."""
        return bool(self.others) and now.boot < self.restarts.rest_until

    def waits_for(self, now: Moment) -> tuple[str, str]:
        """Return the first job of `after` that is not up, and why; two empty texts if all are."""
        whys = ((name, self.here.why_not_up(name, now)) for name in self.spec.after)
        return next((pair for pair in whys if pair[1]), ("", ""))

    def advance(self, now: Moment) -> Iterator[Action]:
        """Do what the table says for the present state; calling it again changes nothing."""
        self._take_over(now)
        if self.lease.held and now.boot >= self.lease.ends_at():
            yield self._say("lease.ended", why="it could not be renewed in time", level="warning")
            yield from self._lose("the lease ended")
        if self.run is not None:
            yield from self._mind(self.run, now)
        if self._may_ask and now.boot >= self._ask_at(now):
            yield from self._ask(now)
        if self.lease.held and self.lease.value is not None and not self.unwanted:
            yield from self.ticks.due(now, self.lease.value)
        if self.lease.held:
            yield from self._use_lease(now) if self.run is None else self.ticks.skip(self.run.id, now)

    @property
    def _may_ask(self) -> bool:
        known = bool(self.server.epoch) or self.spec.scope is Scope.NODE
        return self.run is None and self.lease.phase is Phase.STANDBY and known and not self.unwanted

    def _ask_at(self, now: Moment) -> float:
        return max(self.lease.ask_at, self.restarts.rest_until) if self.resting(now) else self.lease.ask_at

    def _ask(self, now: Moment) -> Iterator[Action]:
        if isinstance(self.lease, NodeLease):
            self.lease.take()
            yield from self.ticks.begin(now, round(1000 * now.utc), 0, 0)
        else:
            yield self.lease.ask(now, self.server)

    def _use_lease(self, now: Moment) -> Iterator[Action]:
        if self.unwanted or self.resting(now):
            yield from self._give_back(now)
        elif self.spec.kind is Kind.CRON and self.lease.may_start(now.boot):
            claim = self.ticks.take(now)
            if claim is not None:
                yield self._start(claim.run, claim.reason, now, tick_ms=claim.tick_ms)
        elif self._startable(now) and now.boot >= self.restarts.ready_at:
            self._starts += 1
            under = self._token() or self.here.incarnation
            yield self._start(RunId(f"{self.spec.name}@{under}.{self._starts}"), Reason.START, now)

    def _give_back(self, now: Moment) -> Iterator[Action]:
        if isinstance(self.lease, NodeLease):
            yield from self._lose("it is stopped")
        else:
            yield self.lease.release(now.boot, self.server)

    def _startable(self, now: Moment) -> bool:
        """Say whether only the backoff can keep a service from being started."""
        return (
            self.spec.kind is Kind.SERVICE
            and self.run is None
            and not (self.unwanted or self.restarts.over)
            and self.lease.may_start(now.boot)
            and not self.waits_for(now)[0]
        )

    def _start(self, run_id: RunId, reason: Reason, now: Moment, tick_ms: int | None = None) -> StartRun:
        self.run = Run(run_id, self._token(), tick_ms, reason, started=now)
        env = child_environment(self.spec, self.run, self.here.node)
        return StartRun(self.spec.name, run_id, self.run.token, self.lease.deadlines(), env)

    def _mind(self, run: Run, now: Moment) -> Iterator[Action]:
        if not self.lease.holds(run.token):
            yield from run.kill(LEASE_LOST)
        elif self.here.urgency == AT_ONCE:
            yield from run.kill("the node was told to go at once")
        elif self.unwanted:
            grace_s = self.spec.stop.timeout_s
            if self.here.urgency:
                grace_s = min(grace_s, self.spec.lease.step_down_grace_s)
            yield from run.stop(grace_s, self.unwanted)
        elif self._is_cut:
            yield from run.stop(self.spec.stop.timeout_s, "its definition changed")
        elif run.exited:
            pass
        elif self.spec.timeout_s is not None and now.boot >= run.started.boot + self.spec.timeout_s:
            yield from run.stop(self.spec.stop.timeout_s, TIMED_OUT, failure=True)
        elif run.unfit is None and (verdict := self.fitness.verdict(now)) is not None:
            run.unfit = verdict
            yield from run.stop(self.spec.stop.timeout_s, verdict.why, failure=verdict.failure)

    def begin_here(self, now: Moment, *, like: "Job | None" = None) -> None:
        """Answer for ticks from now on: a job that is new here or edited never fires for the past."""
        self.lease.others_until = max(self.lease.others_until, now.boot)
        if like is not None and like.last is not None and self.spec.kind is Kind.SERVICE:
            self.last = like.last  # under another lease key there is no record of it
            self.restarts.remember(self.spec, like.last, self.intent.at_ms if self.intent is not None else 0)

    def _take_over(self, now: Moment) -> None:
        """Go over to another definition in place, where the lease allows it and no run stands in the way."""
        revision = self.revision
        if revision is None or revision.spec is None or revision.effect > Effect.RESTARTED:
            return
        if revision.effect is Effect.RESTARTED and self.run is not None:
            return
        self.revision = None
        if revision.spec.enabled and not self.spec.enabled:
            self.begin_here(now)
        self.spec = revision.spec
        self.lease.redefine(self.spec)
        self.ticks.redefine(self.spec)
        self.fitness.redefine(self.spec)
        self.restarts.redefine(self.spec, self.last or {}, another=revision.effect is Effect.RESTARTED)

    # --- heartbeats, publication, waking ------------------------------------------------------------

    def beat(self, now: Moment) -> Iterator[Action]:
        """Return this job's share of a heartbeat, and what is still owed to the store (rule 5)."""
        if self.run is None or not self.run.unproven:
            share = self.lease.beat(now.boot)
            if share is not None:
                yield share
        if self.bulletin.owes():
            yield from self.bulletin.beat()
        if self.lease.held:
            self.ticks.on_beat(now)

    def publish(self, state: Mapping[str, object], now: Moment) -> Iterator[Action]:
        """Show a changed state to everybody."""
        if self.lease.value is not None and self.lease.held and self.spec.scope is Scope.CLUSTER:
            yield from self.bulletin.publish(self.lease.value, state, now)

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
            at = self._ask_at(now)
        if self.run is not None and not (self.run.killed or self.run.stop_why or self.run.exited):
            at = min(at, self.fitness.due_at())
            if self.spec.timeout_s is not None:
                at = min(at, self.run.started.boot + self.spec.timeout_s)
        return at

    @property
    def idle(self) -> bool:
        """Whether nothing of it is left on this node: no run, no lease, no request that could bring one."""
        return self.run is None and self.lease.phase is Phase.STANDBY

    def _lose(self, why: str) -> Iterator[Action]:
        self.lease.lose()
        self.bulletin.forget()
        yield from self.ticks.drop(why)

    def _token(self) -> Token:
        if self.lease.value is None:
            raise InvariantError(f"{self.spec.name}: a start without a lease")
        return self.lease.value.token

    def _say(self, event: str, *, level: str = "info", **fields: object) -> Say:
        return Say(event, {"job": self.spec.name, **fields}, level)
