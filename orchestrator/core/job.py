"""One job instance on one node: couples its lease, its restarts or its schedule, and its runs.

| the lease is | and the run is | then |
|---|---|---|
| standby | none | ask when it is time, if the job is wanted here |
| standby, asking | alive | kill it: the lease it ran under is lost |
| held | none | service: start it when the backoff allows; cron: what `core/cron.py` says |
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
8. Of a service there is one run at most; of a cron as many as `overlap` allows, each with log files of its own.
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
    SuccessesSeen,
    TickClaimed,
    TickRefused,
    TicksSettled,
)
from orchestrator.core.attempts import NODE_LEAVES
from orchestrator.core.bulletin import Bulletin
from orchestrator.core.cron import Cron
from orchestrator.core.ends import describe_end, exit_status_of
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
    RunMeasured,
    RunStarted,
    Say,
    StartRun,
)
from orchestrator.core.minding import due_at, mind
from orchestrator.core.node_lease import NodeLease
from orchestrator.core.nouns import Intent, Moment, RunId, Token
from orchestrator.core.records import record_of
from orchestrator.core.reload import Effect, Revision, runs_are_cut
from orchestrator.core.requests import AcquireLease, PublishState, ReleaseLease
from orchestrator.core.restart import Restarts
from orchestrator.core.run import Reason, Run, child_environment, outcome
from orchestrator.core.server import Server
from orchestrator.core.spec import JobSpec, Kind, Scope
from orchestrator.errors import InvariantError


class Job:
    """The machine in the table above.

    Attributes:
        runs: The runs that have not been proven to be over, oldest first.
        cron: What a cron starts and when; None for a service.
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
        self.restarts = Restarts(spec.backoff, f"{spec.name}|{here.node}")
        self.fitness = Fitness(spec)
        self.bulletin = Bulletin(spec)
        self.runs: dict[RunId, Run] = {}
        self.cron = Cron(spec, here, self.bulletin, self.runs) if spec.kind is Kind.CRON else None
        self.intent: Intent | None = None
        self.conflict = ""
        self.others: tuple[str, ...] = ()
        self.drift = ""
        self.last: Mapping[str, object] | None = None
        self.fault: int | None = None
        self.revision: Revision | None = None
        self._starts = 0

    @property
    def run(self) -> Run | None:
        """The run, of several the oldest; None if there is none."""
        return next(iter(self.runs.values()), None)

    # --- events: each changes the state; what follows from it comes from `advance` -------------------

    def handle(self, event: Event, now: Moment) -> Iterator[Action]:
        """Take in one event about this job."""
        if isinstance(event, LeaseRenewed):  # by far the most frequent one
            yield from self._on_renewed(event)
            return
        floor = self.lease.floor
        yield from self._on_lease(event, now)
        run = self.runs.get(getattr(event, "run", RunId("")))
        if run is not None:
            yield from self._on_run(event, run, now)
        if self.cron is not None:
            yield from self._on_cron(event, self.cron, now)
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
                yield from self._lose("the lease was lost", now)
            case LeaseReleased():
                yield self._say("lease.released", token=event.token)
                yield from self._lose("the lease was given back", now)
            case Nudged():
                self.lease.on_nudged(now.boot)
            case StoreSilent():
                yield from self._on_silent(event, now)
            case RunRecorded():
                self.bulletin.on_recorded(event.run)
            case StatePublished():
                self.bulletin.on_published(was_ours=event.was_ours)
            case _:
                pass

    def _on_run(self, event: Event, run: Run, now: Moment) -> Iterator[Action]:
        match event:
            case RunStarted():
                self.fitness.begin(run.id, now)
            case RunChecked():
                yield from self.fitness.on_checked(event, now)
            case RunMeasured():
                self.fitness.on_measured(event)
            case RunEnded():
                yield from self._on_ended(run, event, now)
            case _:
                pass
        yield from run.learn(event)

    def _on_cron(self, event: Event, cron: Cron, now: Moment) -> Iterator[Action]:
        match event:
            case TickClaimed():
                yield from cron.on_claimed(event, now)
            case TickRefused():
                yield from cron.on_refused(event, now)
            case TicksSettled():
                yield from cron.on_settled(event, now)
            case SuccessesSeen():
                cron.on_successes(event, now)
            case Nudged() if self.lease.held:
                yield from cron.on_nudged(now)
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
        if self.cron is not None:
            yield from self.cron.begin(granted, now, self.server.doubt_ms(now), self.server.lost_until_ms(now))

    def _on_renewed(self, renewed: LeaseRenewed) -> Iterator[Action]:
        if not self.lease.on_renewed(renewed):
            return
        if renewed.put_back:
            self.bulletin.forget()
            yield self._say("lease.put_back", token=renewed.token, level="warning")
        deadlines = self.lease.deadlines()
        for run in self.runs.values():
            if deadlines is not None and run.token == renewed.token:
                yield ExtendRun(run.id, deadlines)

    def _on_silent(self, silent: StoreSilent, now: Moment) -> Iterator[Action]:
        match silent.request:
            case AcquireLease():
                self.lease.on_ask_unanswered()
            case ReleaseLease():
                yield from self._lose("the lease was given back", now)
            case PublishState():
                self.bulletin.on_silent()
            case _:
                pass

    def _on_ended(self, run: Run, ended: RunEnded, now: Moment) -> Iterator[Action]:
        del self.runs[run.id]
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
        if self.cron is not None:
            yield from self.cron.on_ended(
                run, ended, self.last, self.lease.value if self.lease.holds(run.token) else None, now
            )
            if self.cron.gave_up:
                self.fault = exit_status_of(self.last)
            return
        if self.spec.scope is Scope.CLUSTER:
            yield self.bulletin.record(run.token, run.id, self.last, now)
        self.restarts.judge(self.spec, run, ended, self.last, now.boot)
        if self.resting(now):
            yield self._say("lease.left", why=self.restarts.rest_why, level="warning")
        if word != "ok" and self.restarts.over:
            self.fault = exit_status_of(self.last)

    def order(self, intent: Intent | None) -> None:
        """Take a standing order; a newer order to run also forgets failures and ends."""
        known_ms = self.intent.at_ms if self.intent is not None else 0
        if intent is not None and intent.want == "running" and intent.at_ms > known_ms:
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
            return NODE_LEAVES
        if not self.here.member and self.spec.scope is Scope.CLUSTER:
            return "the node has not joined the cluster yet"
        if self.intent is not None and self.intent.want == "stopped":
            return "stop was ordered"
        if self.revision is not None and self.revision.effect >= Effect.MOVED and (not self.runs or self._is_cut):
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
            yield from self._lose("the lease ended", now)
        unwanted, cut = self.unwanted, self._is_cut
        for run in self.runs.values():
            holds = self.lease.holds(run.token)
            yield from mind(run, self.spec, self.here, self.fitness, now, holds=holds, unwanted=unwanted, cut=cut)
        asks, name = self.here.asks, self.spec.name
        asks.hold(name, int(self.lease.phase is Phase.ASKING))
        if not self._may_ask:
            asks.leave(name)
        elif now.boot >= self._ask_at(now) and asks.admits(name):
            yield from self._ask(now)
        if self.lease.held:
            yield from self._use_lease(now)

    @property
    def _may_ask(self) -> bool:
        known = bool(self.server.epoch) or self.spec.scope is Scope.NODE
        return not self.runs and self.lease.phase is Phase.STANDBY and known and not self.unwanted

    def _ask_at(self, now: Moment) -> float:
        return max(self.lease.ask_at, self.restarts.rest_until) if self.resting(now) else self.lease.ask_at

    def _ask(self, now: Moment) -> Iterator[Action]:
        if isinstance(self.lease, NodeLease):
            self.lease.take()
            if self.cron is not None:
                self.cron.begin_on_every_node(now)
        else:
            self.here.asks.hold(self.spec.name, 1)
            yield self.lease.ask(now, self.server)

    def _use_lease(self, now: Moment) -> Iterator[Action]:
        if self.unwanted or self.resting(now):
            if not self.runs:
                yield from self._give_back(now)
        elif self.cron is not None and self.lease.value is not None:
            yield from self.cron.advance(now, self.lease.value, self.intent)
            attempt = self.cron.take() if self.lease.may_start(now.boot) else None
            if attempt is not None:
                lanes = {run.lane for run in self.runs.values()}
                yield self._start(attempt.begun(self.spec, self._token(), now, lanes))
        elif self._startable(now) and now.boot >= self.restarts.ready_at:
            self._starts += 1
            run = RunId(f"{self.spec.name}@{self._token() or self.here.incarnation}.{self._starts}")
            yield self._start(Run(run, self._token(), None, Reason.START, now))

    def _give_back(self, now: Moment) -> Iterator[Action]:
        if isinstance(self.lease, NodeLease):
            yield from self._lose("it is stopped", now)
        else:
            yield self.lease.release(now.boot, self.server)

    def _startable(self, now: Moment) -> bool:
        """Say whether only the backoff can keep a service from being started."""
        return (
            self.spec.kind is Kind.SERVICE
            and not self.runs
            and not (self.unwanted or self.restarts.over)
            and self.lease.may_start(now.boot)
            and not self.waits_for(now)[0]
        )

    def _start(self, run: Run) -> StartRun:
        self.runs[run.id] = run
        env = child_environment(self.spec, run, self.here.node)
        return StartRun(
            self.spec.name, run.id, run.token, self.lease.deadlines(), env, lane=run.lane, last_attempt=run.last_attempt
        )

    def begin_here(self, now: Moment, *, like: "Job | None" = None) -> None:
        """Answer for ticks from now on: a job that is new here or edited never fires for the past."""
        self.lease.begun_at = max(self.lease.begun_at, now.boot)
        if like is not None and like.last is not None and self.spec.kind is Kind.SERVICE:
            self.last = like.last  # under another lease key there is no record of it
            self.restarts.remember(self.spec, like.last, self.intent.at_ms if self.intent is not None else 0)

    def _take_over(self, now: Moment) -> None:
        """Go over to another definition in place, where the lease allows it and no run stands in the way."""
        revision = self.revision
        if revision is None or revision.spec is None or revision.effect > Effect.RESTARTED:
            return
        if revision.effect is Effect.RESTARTED and self.runs:
            return
        self.revision = None
        if revision.spec.enabled and not self.spec.enabled:
            self.begin_here(now)
        self.spec = revision.spec
        self.lease.redefine(self.spec)
        if self.cron is not None:
            self.cron.redefine(self.spec, now)
        self.fitness.redefine(self.spec)
        self.restarts.redefine(self.spec, self.last or {}, another=revision.effect is Effect.RESTARTED)

    # --- heartbeats, publication, waking ------------------------------------------------------------

    def beat(self, now: Moment) -> Iterator[Action]:
        """Return this job's share of a heartbeat, and what is still owed to the store (rule 5)."""
        if not any(run.unproven for run in self.runs.values()):
            share = self.lease.beat(now.boot)
            if share is not None:
                yield share
        if self.bulletin.owes():
            yield from self.bulletin.beat()
        if self.lease.held and self.cron is not None:
            yield from self.cron.on_beat(now)

    def publish(self, state: Mapping[str, object], now: Moment) -> Iterator[Action]:
        """Show a changed state to everybody."""
        if self.lease.value is not None and self.lease.held and self.spec.scope is Scope.CLUSTER:
            yield from self.bulletin.publish(self.lease.value, state, now)

    def next_deadline(self, now: Moment) -> float:
        """Return the boot instant at which `advance` will have something to do, or earlier."""
        at = NEVER
        if self.lease.held:
            at = self.lease.ends_at()
            if self.cron is not None and not self.unwanted:
                at = min(at, self.cron.due_at(now, self.intent))
            if self._startable(now):
                at = min(at, self.restarts.ready_at)
        elif self._may_ask and not self.here.asks.waits(self.spec.name):
            at = self._ask_at(now)
        return min([at, *(due_at(run, self.spec, self.fitness) for run in self.runs.values())])

    @property
    def awaits_nothing(self) -> bool:
        """Whether a renewal changes nothing but deadlines."""
        return self.cron is None or self.cron.awaits_nothing

    @property
    def idle(self) -> bool:
        """Whether nothing of it is left on this node: no run, no lease, no request that could bring one."""
        return not self.runs and self.lease.phase is Phase.STANDBY

    def _lose(self, why: str, now: Moment) -> Iterator[Action]:
        value = self.lease.value
        self.lease.lose()
        self.bulletin.forget()
        if self.cron is not None:
            yield from self.cron.drop(why, value, now)

    def _token(self) -> Token:
        if self.lease.value is None:
            raise InvariantError(f"{self.spec.name}: a start without a lease")
        return self.lease.value.token

    def _say(self, event: str, *, level: str = "info", **fields: object) -> Say:
        return Say(event, {"job": self.spec.name, **fields}, level)
