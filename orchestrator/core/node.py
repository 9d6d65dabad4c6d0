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
4. Where live nodes name different lease keys for one job, the key of the node that joined first counts.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from orchestrator.core.answers import (
    ClusterLeft,
    IntentsRestored,
    LeaseRefused,
    MembersSeen,
    NameRefused,
    ServerMet,
    StoreSilent,
)
from orchestrator.core.job import Here, Job
from orchestrator.core.job_view import job_view, published_state
from orchestrator.core.lease import NEVER
from orchestrator.core.messages import Action, Event, LeaveOrdered, Nudged, QuitNode, Say
from orchestrator.core.nouns import Bucket, Intent, JobName, Member, Moment, NodeName, Token
from orchestrator.core.placement import rank_of
from orchestrator.core.requests import KeepMembership, LeaveCluster, RestoreIntents
from orchestrator.core.server import Server
from orchestrator.core.snapshot import ClusterView, iso_utc, node_view
from orchestrator.core.spec import ClusterSpec


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this node is.

    Attributes:
        incarnation: Random, new with every start of the process (host and pid collide in containers).
        state_id: Random, as old as the state directory.
    """

    node: NodeName
    incarnation: str
    state_id: str
    host: str
    pid: int
    version: str


class Node:
    """The whole of what one node decides.

    Attributes:
        members: The live nodes, as of the last answer.
    """

    def __init__(
        self, spec: ClusterSpec, identity: Identity, floors: Mapping[JobName, Token], *, new_cluster: bool = False
    ) -> None:
        """Begin outside the cluster.

        Args:
            spec: The file.
            identity: Who we are.
            floors: The highest token this node ever saw for each job, from the state directory.
            new_cluster: A young epoch at first contact is no loss of data.
        """
        self._spec = spec
        self._identity = identity
        self._vouched = new_cluster
        self._here = Here(identity.node, identity.incarnation)
        timings = [job.lease for job in spec.jobs]
        self._longest_ttl_s = max((timing.ttl_s for timing in timings), default=DEFAULT_TTL_S)
        self._heartbeat_s = min((timing.heartbeat_s for timing in timings), default=DEFAULT_TTL_S / 5)
        self.request_timeout_s = min((timing.request_timeout_s for timing in timings), default=1.0)
        rate_error = max((timing.clock_rate_error for timing in timings), default=0.01)
        self._servers: dict[Bucket, Server] = {
            bucket: Server(
                bucket,
                heartbeat_s=self._heartbeat_s,
                request_timeout_s=self.request_timeout_s,
                clock_rate_error=rate_error,
            )
            for bucket in sorted({job.bucket for job in spec.jobs})
        }
        self.jobs: dict[JobName, Job] = {
            job.name: Job(job, self._here, self._servers[job.bucket], floors.get(job.name, Token(0)))
            for job in spec.jobs
        }
        self.members: tuple[Member, ...] = ()
        self._info = self._own_info()
        self._beat_at = 0.0
        self._beating = False
        self._intents: Mapping[JobName, Intent] = {}
        self._intents_version = 0
        self._waiting_for = ""
        self._patience_until = NEVER
        self._silent_since: Moment | None = None
        self._farewell = ""
        self._leaving = False
        self._over = False

    # --- events -------------------------------------------------------------------------------------

    def handle(self, events: Iterable[Event], now: Moment) -> Iterator[Action]:
        """Take in what happened, then do what follows for every job it touched."""
        touched: dict[JobName, Job] = {}
        for event in events:
            name = _job_of(event)
            if name is not None:
                job = self.jobs.get(name)
                if job is not None:
                    touched[name] = job
                    yield from job.handle(event, now)
                    if isinstance(event, LeaseRefused):
                        yield from self._on_refused(event, job, now)
            else:
                yield from self._on_node_event(event, now)
                touched.update(self.jobs if self._concerns_all(event) else {})
            if isinstance(event, StoreSilent):
                yield from self._on_silent(event, now)
        for job in touched.values():
            yield from self._advance(job, now)
        yield from self._leave_when_idle(now)

    def tick(self, now: Moment) -> Iterator[Action]:
        """Do what is due by the clock alone."""
        for job in self.jobs.values():
            if job.next_deadline(now) <= now.boot:
                yield from self._advance(job, now)
        if now.boot >= self._beat_at and not self._beating and not self._over:
            yield from self._beat(now)
        yield from self._leave_when_idle(now)

    def next_deadline(self, now: Moment) -> float:
        """Return the boot instant at which `tick` wants to be called, at the latest."""
        soonest = min((job.next_deadline(now) for job in self.jobs.values()), default=NEVER)
        return min(soonest, NEVER if self._beating or self._over else self._beat_at)

    def view(self, now: Moment) -> ClusterView:
        """Return the node's own truth."""
        redis: dict[str, object] = {"ok": self._silent_since is None, "problem": self._here.silence}
        if self._silent_since is not None:
            redis["since"] = iso_utc(self._silent_since.utc)
        return ClusterView(
            cluster=self._spec.cluster,
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

    def _beat(self, now: Moment) -> Iterator[Action]:
        self._beating = True
        self._beat_at = now.boot + self._heartbeat_s
        yield KeepMembership(
            node=self._identity.node,
            incarnation=self._identity.incarnation,
            state_id=self._identity.state_id,
            ttl_ms=round(1000 * max(self._longest_ttl_s, 3 * self._heartbeat_s)),
            info=self._info,
            intents_known=self._intents_version,
            asked_at=now.boot,
        )
        for server in self._servers.values():
            yield server.meeting(now.boot)
        for job in self.jobs.values():
            yield from job.beat(now)

    def _on_node_event(self, event: Event, now: Moment) -> Iterator[Action]:
        match event:
            case ServerMet():
                server = self._servers[event.bucket]
                why = server.on_met(event, now.boot, self._longest_ttl(event.bucket), vouched=self._vouched)
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
            self._place()
        if seen.intents is not None:
            self._intents, self._intents_version = seen.intents, seen.intents_version
            for name, job in self.jobs.items():
                job.order(self._intents.get(name))
        elif seen.intents_version == 0 and self._intents_version:
            yield RestoreIntents(self._intents_version, self._intents, asked_at=now.boot)

    def _place(self) -> None:
        """Say who asks first for each job, and which jobs another node runs under another key (rule 4)."""
        names = [member.name for member in self.members]
        first = sorted(self.members, key=lambda member: (member.since_ms, member.name))
        for name, job in self.jobs.items():
            job.lease.rank = rank_of(self._identity.node, name, names)
            job.conflict = _conflict(job, first)

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
            self._patience_until = now.boot + left_s + self._heartbeat_s
            yield Say("node.waiting", {"why": "its old membership has to run out", "left_s": round(left_s, 1)})
        elif now.boot > self._patience_until:
            yield from self._quit(
                f"{name}, which has a copy of this state directory; choose another name and directory"
            )
        self._beat_at = now.boot + min(self._heartbeat_s, left_s + 0.05)

    def _on_refused(self, refused: LeaseRefused, job: Job, now: Moment) -> Iterator[Action]:
        if refused.reason == "epoch":
            self._beat_at = now.boot
        elif refused.reason == "clock":
            longest = self._longest_ttl(job.spec.bucket)
            why = job.server.on_clock_refused(refused.server_ms, refused.asked_at, now.boot, longest)
            yield from self._say_quarantine(job.server, why, now)

    def _say_quarantine(self, began: Server, why: str, now: Moment) -> Iterator[Action]:
        """Say it once, though every bucket of one server comes to know it by itself."""
        others = (server for server in self._servers.values() if server is not began)
        if why and not any(other.why == why and other.quarantined(now.boot) for other in others):
            left_s = round(began.quarantine_until - now.boot, 1)
            yield Say("quarantine.began", {"left_s": left_s, "why": why}, "warning")

    def _on_silent(self, silent: StoreSilent, now: Moment) -> Iterator[Action]:
        if isinstance(silent.request, KeepMembership):
            self._beating = False
            self._beat_at = now.boot + min(self._heartbeat_s, max(SHORTEST_RETRY_S, self._heartbeat_s / 4))
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
            yield QuitNode(problem)

    def _longest_ttl(self, bucket: Bucket) -> float:
        return max(job.lease.longest_ttl_s for job in self.jobs.values() if job.spec.bucket == bucket)

    def _concerns_all(self, event: Event) -> bool:
        return isinstance(event, MembersSeen | LeaveOrdered | NameRefused)

    def _own_info(self) -> str:
        info = {
            "host": self._identity.host,
            "pid": self._identity.pid,
            "version": self._identity.version,
            "tags": self._spec.node_tags,
            "jobs": {job.name: job.key for job in self._spec.jobs},
            "kinds": {job.name: job.kind.value for job in self._spec.jobs if job.kind.value != "service"},
        }
        return json.dumps(info, separators=(",", ":"))


def _conflict(job: Job, first_joined: list[Member]) -> str:
    for member in first_joined:
        keys = member.info.get("jobs")
        key = keys.get(job.spec.name) if isinstance(keys, Mapping) else None
        if key is not None:
            return "" if key == job.spec.key else f"node {member.name} runs it under the lease key `{key}`"
    return ""


def _job_of(event: Event) -> JobName | None:
    match event:
        case StoreSilent():
            return getattr(event.request, "job", None)
        case ServerMet() | MembersSeen() | NameRefused() | ClusterLeft() | IntentsRestored() | LeaveOrdered():
            return None
        case _:
            return event.job


DEFAULT_TTL_S = 15.0
"""The ttl where nobody says otherwise: a crash is taken over within it, and Redis may be away for half of it."""

SHORTEST_RETRY_S = 0.2
"""How soon after a silence the store is asked again, at the earliest."""
