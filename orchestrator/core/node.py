"""One node: its membership, its heartbeats, and its jobs.

              answered                     another incarnation bears the name
   JOINING ─────────────▶ MEMBER ◀───────────────┐
      │                      │ LeaveOrdered       │ its membership ran out
      ├── our own past ──▶ WAITING ───────────────┘
      └── a stranger ──▶ QUIT          MEMBER ── everything idle ──▶ LEAVING ──▶ QUIT

Rules:
1. One heartbeat is one batch: the membership, the servers, every lease. The next is sent only when this
   one was answered or given up; after a silence it comes sooner.
2. Before the name is ours nothing is asked for; looking is allowed (it fills the standby's memory).
3. A node never goes because the store is away. It goes when it is told to, or when its name is disputed.
4. Whoever waits for room (`max_running`, asks on their way) has its turn when there is some, whoever made it.
"""

from collections.abc import Iterable, Iterator, Mapping

from orchestrator.core import info
from orchestrator.core.answers import (
    ClusterLeft,
    IntentsRestored,
    LeaseRefused,
    LeaseRenewed,
    MembersSeen,
    NameRefused,
    ServerMet,
    StoreSilent,
    TriggerForgotten,
)
from orchestrator.core.here import Here
from orchestrator.core.info import Identity
from orchestrator.core.job import Job
from orchestrator.core.job_view import job_view, published_state
from orchestrator.core.lease import NEVER
from orchestrator.core.messages import Action, Event, ExpectRuns, FileReloaded, LeaveOrdered, Nudged, QuitNode, Say
from orchestrator.core.nouns import JobName, Member, Moment, Token
from orchestrator.core.requests import KeepMembership, LeaveCluster, RestoreIntents
from orchestrator.core.roster import Roster
from orchestrator.core.server import Server
from orchestrator.core.snapshot import ClusterView, iso_utc, node_view
from orchestrator.core.spec import ClusterSpec
from orchestrator.core.wall_clock import WallClock


class Node:
    """The whole of what one node decides.

    Attributes:
        members: The live nodes, as of the last answer.
    """

    def __init__(
        self,
        spec: ClusterSpec,
        identity: Identity,
        floors: Mapping[JobName, Token],
        *,
        new_cluster: bool = False,
        exit_on_failure: bool = False,
    ) -> None:
        """Begin outside the cluster.

        Args:
            spec: The file.
            identity: Who we are.
            floors: The highest token this node ever saw for each job, from the state directory.
            new_cluster: A young epoch at first contact is no loss of data.
            exit_on_failure: Leave as soon as a job has failed for good, with its exit status.
        """
        self._identity = identity
        self._vouched = new_cluster
        self._exit_on_failure = exit_on_failure
        self._exit_status = 0
        self._here = Here(identity.node, identity.incarnation)
        self._roster = Roster(spec, identity, self._here, floors)
        self._due = self._roster.due
        self._clock = WallClock()
        self.members: tuple[Member, ...] = ()
        self._beat_at = 0.0
        self._beating = False
        self._intents_version = 0
        self._waiting_for = ""
        self._patience_until = NEVER
        self._silent_since: Moment | None = None
        self._farewell = ""
        self._leaving = False
        self._over = False

    @property
    def jobs(self) -> Mapping[JobName, Job]:
        """All jobs, by name."""
        return self._roster.jobs

    @property
    def request_timeout_s(self) -> float:
        """When an unanswered request to the store counts as failed: the shortest of all leases."""
        return self._roster.request_timeout_s

    # --- events -------------------------------------------------------------------------------------

    def handle(self, events: Iterable[Event], now: Moment) -> Iterator[Action]:
        """Take in what happened, then do what follows for every job it touched."""
        now = self._clock.right(now, self._redis_ahead_s)
        touched: dict[JobName, Job] = {}
        for event in events:
            name = _job_of(event)
            if name is not None:
                job = self.jobs.get(name)
                if job is not None:
                    yield from job.handle(event, now)
                    if isinstance(event, LeaseRenewed) and job.bulletin.stands and job.awaits_nothing:
                        continue  # nothing follows but later deadlines, and these come a thousand a heartbeat
                    touched[name] = job
                    touched.update(self._roster.dependents(job))
                    if isinstance(event, LeaseRefused):
                        yield from self._on_refused(event, job, now)
            else:
                before = (self._here.member, self.members, self._intents_version)
                yield from self._on_node_event(event, now)
                touched.update(self.jobs if self._concerns_all(event, before) else {})
                self._due.forget()
            if isinstance(event, StoreSilent):
                yield from self._on_silent(event, now)
        for name, job in touched.items():
            yield from self._advance(job, now)
            self._due.note(name, job, now)
        yield from self._give_turns(now)
        yield from self._carry_out_revisions(now)
        yield from self._leave_when_idle(now)

    def tick(self, now: Moment) -> Iterator[Action]:
        """Do what is due by the clock alone."""
        now = self._clock.right(now, self._redis_ahead_s)
        for name in self._due.names(self.jobs, now):
            job = self.jobs[name]
            yield from self._advance(job, now)
            self._due.note(name, job, now)
        yield from self._carry_out_revisions(now)
        if now.boot >= self._beat_at and not self._beating and not self._over:
            yield from self._beat(now)
        yield from self._leave_when_idle(now)

    def next_deadline(self, now: Moment) -> float:
        """Return the boot instant at which `tick` wants to be called, at the latest."""
        now = self._clock.right(now, self._redis_ahead_s)
        soonest = self._due.soonest(self.jobs, now)
        return min(soonest, NEVER if self._beating or self._over else self._beat_at)

    def view(self, now: Moment) -> ClusterView:
        """Return the node's own truth."""
        now = self._clock.right(now, self._redis_ahead_s)
        redis: dict[str, object] = {"ok": self._silent_since is None, "problem": self._here.silence}
        if self._silent_since is not None:
            redis["since"] = iso_utc(self._silent_since.utc)
        return ClusterView(
            cluster=self._roster.spec.cluster,
            node=self._identity.node,
            nodes=tuple(sorted((node_view(member) for member in self.members), key=lambda node: node.name)),
            jobs=tuple(job_view(job, now) for job in self.jobs.values()),
            redis=redis,
        )

    # --- inside -------------------------------------------------------------------------------------

    def _advance(self, job: Job, now: Moment) -> Iterator[Action]:
        yield from job.advance(now)
        if job.lease.held:
            yield from job.publish(published_state(job, now), now)
        if self._exit_on_failure and job.fault is not None and self._here.urgency is None:
            self._exit_status, self._here.urgency = job.fault, 0
            yield Say("node.failed", {"job": job.spec.name, "exit_status": job.fault}, "error")
            self._due.forget()
            for each in self.jobs.values():
                yield from each.advance(now)

    @property
    def _redis_ahead_s(self) -> float | None:
        """By how much Redis's clock is ahead of the boot clock; None: it has not told it yet."""
        return next((server.ahead_s for server in self._roster.servers.values() if server.epoch), None)

    def _give_turns(self, now: Moment) -> Iterator[Action]:
        """Let those start, or ask, that waited for room (rule 4)."""
        for name in (*self._here.asks.turn(), *self._here.capacity.turn()):
            job = self.jobs.get(name)
            if job is not None:
                yield from self._advance(job, now)
                self._due.note(name, job, now)

    def _carry_out_revisions(self, now: Moment) -> Iterator[Action]:
        for fresh in self._roster.carry_out_revisions(now):
            if isinstance(fresh, Job):
                yield from self._advance(fresh, now)
            else:
                yield fresh

    def _beat(self, now: Moment) -> Iterator[Action]:
        yield from self._clock.say(self._redis_ahead_s)
        yield from self._expect(now)
        self._beating = True
        self._beat_at = now.boot + self._roster.heartbeat_s
        yield KeepMembership(
            node=self._identity.node,
            incarnation=self._identity.incarnation,
            state_id=self._identity.state_id,
            ttl_ms=round(1000 * max(self._roster.longest_ttl_s, 3 * self._roster.heartbeat_s)),
            info=info.with_node_jobs(self._roster.info, self.jobs.values(), now),
            intents_known=self._intents_version,
            asked_at=now.boot,
        )
        for server in self._roster.servers.values():
            yield server.meeting(now.boot)
        for job in self.jobs.values():
            yield from job.beat(now)

    def _expect(self, now: Moment) -> Iterator[Action]:
        """Have the starts made ready that are due soon, where they are many."""
        crons = (job.cron for job in self.jobs.values() if job.cron is not None and job.lease.held)
        waits_s = [cron.ticks.next - now.utc for cron in crons if cron.ticks.next is not None]
        soon_s = [wait_s for wait_s in waits_s if 0 < wait_s <= EXPECTED_WITHIN_S]
        if len(soon_s) >= FEWEST_EXPECTED:
            yield ExpectRuns(len(soon_s), now.boot + min(soon_s))

    def _on_node_event(self, event: Event, now: Moment) -> Iterator[Action]:
        match event:
            case ServerMet():
                server = self._roster.servers[event.bucket]
                why = server.on_met(event, now.boot, self._roster.longest_ttl(event.bucket), vouched=self._vouched)
                yield from self._say_quarantine(server, why, now)
            case MembersSeen():
                yield from self._on_members(event, now)
            case NameRefused():
                yield from self._on_name_refused(event, now)
            case Nudged(job=None):
                self._beat_at = now.boot
            case LeaveOrdered():
                if self._here.urgency is None or event.urgency > self._here.urgency:
                    self._here.urgency = event.urgency
                    yield Say("node.leaving", {"node": self._identity.node, "urgency": event.urgency})
            case ClusterLeft():
                yield from self._quit(self._farewell)
            case FileReloaded():
                yield from self._roster.reload(event.spec, now)
                self._beat_at = now.boot
            case _:
                pass

    def _on_members(self, seen: MembersSeen, now: Moment) -> Iterator[Action]:
        self._beating = False
        if self._silent_since is not None:
            away_s = round(now.boot - self._silent_since.boot, 1)
            yield Say("redis.answers", {"after_s": away_s})
            self._silent_since, self._here.silence = None, ""
        if not self._here.member:
            self._here.member = True
            yield Say("node.joined", {"node": self._identity.node, "members": len(seen.members)})
        if self.members != seen.members:
            self.members = seen.members
            self._roster.place(self.members)
            yield from self._roster.say_drift()
        if seen.intents is not None:
            self._intents_version = seen.intents_version
            self._roster.order(seen.intents, seen.triggers)
        elif seen.intents_version == 0 and self._intents_version:
            yield RestoreIntents(self._intents_version, self._roster.intents, asked_at=now.boot)

    def _on_name_refused(self, refused: NameRefused, now: Moment) -> Iterator[Action]:
        self._beating = False
        left_s = refused.left_ms / 1000
        name = f"the node name `{refused.node}` is in use by {refused.other}"
        if self._here.member:  # we were away for longer than our membership: give everything back, then go
            self._here.urgency = max(self._here.urgency or 0, 1)
            self._farewell = f"{name}, which took it while this node could not reach Redis"
        elif not refused.same_state:
            yield from self._quit(f"{name}; choose another with --node or stop that one")
        elif self._waiting_for != refused.incarnation:
            self._waiting_for = refused.incarnation
            self._patience_until = now.boot + left_s + self._roster.heartbeat_s
            yield Say("node.waiting", {"why": "its old membership has to run out", "left_s": round(left_s, 1)})
        elif now.boot > self._patience_until:
            yield from self._quit(
                f"{name}, which has a copy of this state directory; choose another name and directory"
            )
        self._beat_at = now.boot + min(self._roster.heartbeat_s, left_s + 0.05)

    def _on_refused(self, refused: LeaseRefused, job: Job, now: Moment) -> Iterator[Action]:
        if refused.reason == "epoch":
            self._beat_at = now.boot
        elif refused.reason == "clock":
            longest = self._roster.longest_ttl(job.spec.bucket)
            why = job.server.on_clock_refused(refused.server_ms, refused.asked_at, now.boot, longest)
            self._due.forget()
            yield from self._say_quarantine(job.server, why, now)

    def _say_quarantine(self, began: Server, why: str, now: Moment) -> Iterator[Action]:
        """Say it once, though every bucket of one server comes to know it by itself."""
        others = (server for server in self._roster.servers.values() if server is not began)
        if why and not any(other.why == why and other.quarantined(now.boot) for other in others):
            left_s = round(began.quarantine_until - now.boot, 1)
            yield Say("quarantine.began", {"left_s": left_s, "why": why}, "warning")

    def _on_silent(self, silent: StoreSilent, now: Moment) -> Iterator[Action]:
        if isinstance(silent.request, KeepMembership):
            self._beating = False
            self._beat_at = now.boot + min(
                self._roster.heartbeat_s, max(SHORTEST_RETRY_S, self._roster.heartbeat_s / 4)
            )
            if self._here.silence != silent.problem:
                self._silent_since = self._silent_since or now
                self._here.silence = silent.problem
                yield Say("redis.silent", {"problem": silent.problem}, "warning")
        elif isinstance(silent.request, LeaveCluster):
            yield from self._quit(self._farewell)

    def _leave_when_idle(self, now: Moment) -> Iterator[Action]:
        if self._here.urgency is not None and not self._leaving and all(job.idle for job in self.jobs.values()):
            self._leaving = True
            yield LeaveCluster(self._identity.node, self._identity.incarnation, asked_at=now.boot)

    def _quit(self, problem: str = "") -> Iterator[Action]:
        if not self._over:
            self._over = True
            yield QuitNode(problem, self._exit_status)

    def _concerns_all(self, event: Event, before: tuple[bool, tuple[Member, ...], int]) -> bool:
        """Say whether every job must look at itself; `before`: what a membership answer may have changed."""
        if isinstance(event, MembersSeen):  # most heartbeats tell nothing new
            return before != (self._here.member, self.members, self._intents_version)
        return isinstance(event, LeaveOrdered | NameRefused | FileReloaded)


def _job_of(event: Event) -> JobName | None:
    match event:
        case StoreSilent():
            return getattr(event.request, "job", None)
        case ServerMet() | MembersSeen() | NameRefused() | ClusterLeft() | IntentsRestored() | TriggerForgotten():
            return None
        case LeaveOrdered() | FileReloaded():
            return None
        case _:
            return event.job


EXPECTED_WITHIN_S = 10.0
FEWEST_EXPECTED = 4
"""So many starts within three heartbeats are worth making ready for; one is started in three milliseconds."""

SHORTEST_RETRY_S = 0.2
"""How soon after a silence the store is asked again, at the earliest."""
