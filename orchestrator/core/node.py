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
5. Where they have different definitions under the same key, the holder's decides what runs; it is said.
6. A file that is read anew changes what it says differently, and nothing else (`core/reload.py`).
"""

from collections import Counter
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
)
from orchestrator.core.due import Due
from orchestrator.core.here import Here
from orchestrator.core.info import Identity
from orchestrator.core.job import Job
from orchestrator.core.job_view import job_view, published_state, why_not_well
from orchestrator.core.lease import NEVER, Lease
from orchestrator.core.messages import Action, Event, FileReloaded, LeaveOrdered, Nudged, QuitNode, Say
from orchestrator.core.nouns import Bucket, Intent, JobName, Member, Moment, NodeName, Token
from orchestrator.core.placement import rank_of
from orchestrator.core.reload import Effect, Revision, compare
from orchestrator.core.requests import KeepMembership, LeaveCluster, RestoreIntents
from orchestrator.core.server import Server
from orchestrator.core.snapshot import ClusterView, iso_utc, node_view
from orchestrator.core.spec import ClusterSpec, JobSpec, Scope


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
        self._spec = spec
        self._identity = identity
        self._floors = floors
        self._vouched = new_cluster
        self._exit_on_failure = exit_on_failure
        self._exit_status = 0
        self._here = Here(identity.node, identity.incarnation, why_not_up=self._why_not_up)
        self._servers: dict[Bucket, Server] = {}
        self.jobs: dict[JobName, Job] = {}
        # By key: a token that this incarnation ran must never be adopted again, though its job was gone meanwhile
        # (found by the simulation: removed from the file, its release unanswered, and put back).
        self._former: dict[str, Lease] = {}
        self._measure(spec)
        self.request_timeout_s = min((job.lease.request_timeout_s for job in spec.jobs), default=1.0)
        self._meet_buckets(spec)
        for job in spec.jobs:
            self.jobs[job.name] = self._new_job(job)
        self._due = Due()
        self._by_bucket: dict[Bucket, list[Job]] = {}
        self.members: tuple[Member, ...] = ()
        self._told_drift: dict[NodeName, list[JobName]] = {}
        self._info = info.own(self._spec, self._identity)
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
                    yield from job.handle(event, now)
                    if isinstance(event, LeaseRenewed) and job.bulletin.stands and job.ticks.claim is None:
                        continue  # nothing follows but later deadlines, and these come a thousand a heartbeat
                    touched[name] = job
                    touched.update(self._dependents(job))
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
        yield from self._carry_out_revisions(now)
        yield from self._leave_when_idle(now)

    def tick(self, now: Moment) -> Iterator[Action]:
        """Do what is due by the clock alone."""
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
        soonest = self._due.soonest(self.jobs, now)
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
        if self._exit_on_failure and job.fault is not None and self._here.urgency is None:
            self._exit_status, self._here.urgency = job.fault, 0
            yield Say("node.failed", {"job": job.spec.name, "exit_status": job.fault}, "error")
            self._due.forget()
            for each in self.jobs.values():
                yield from each.advance(now)

    def _beat(self, now: Moment) -> Iterator[Action]:
        self._beating = True
        self._beat_at = now.boot + self._heartbeat_s
        yield KeepMembership(
            node=self._identity.node,
            incarnation=self._identity.incarnation,
            state_id=self._identity.state_id,
            ttl_ms=round(1000 * max(self._longest_ttl_s, 3 * self._heartbeat_s)),
            info=info.with_node_jobs(self._info, self.jobs.values(), now),
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
            case FileReloaded():
                yield from self._on_reloaded(event.spec, now)
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
            yield from self._say_drift()
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
            job.conflict = info.conflict(job.spec, first)
            others = [member for member in first if member.name != self._identity.node]
            job.others = tuple(member.name for member in others if info.could_run(member, job.spec))
            job.drift = next((member.name for member in others if info.differs(member, job.spec)), "")

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
            self._due.forget()
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
            yield QuitNode(problem, self._exit_status)

    def _forget_jobs(self) -> None:
        self._by_bucket.clear()
        self._due.forget()

    def _longest_ttl(self, bucket: Bucket) -> float:
        if not self._by_bucket:
            for job in self.jobs.values():
                self._by_bucket.setdefault(job.spec.bucket, []).append(job)
        ttls_s = [job.lease.longest_ttl_s for job in self._by_bucket.get(bucket, ())]
        return max(ttls_s, default=self._longest_ttl_s)  # its last job may be gone from the file

    def _concerns_all(self, event: Event, before: tuple[bool, tuple[Member, ...], int]) -> bool:
        """Say whether every job must look at itself; `before`: what a membership answer may have changed."""
        if isinstance(event, MembersSeen):  # most heartbeats tell nothing new
            return before != (self._here.member, self.members, self._intents_version)
        return isinstance(event, LeaveOrdered | NameRefused | FileReloaded)

    # --- the file -----------------------------------------------------------------------------------

    def _measure(self, spec: ClusterSpec) -> None:
        """Take the numbers that all leases together ask for."""
        timings = [job.lease for job in spec.jobs]
        self._longest_ttl_s = max((timing.ttl_s for timing in timings), default=DEFAULT_TTL_S)
        self._heartbeat_s = min((timing.heartbeat_s for timing in timings), default=DEFAULT_TTL_S / 5)
        self._awaited = any(job.after for job in spec.jobs)

    def _meet_buckets(self, spec: ClusterSpec) -> None:
        rate_error = max((job.lease.clock_rate_error for job in spec.jobs), default=0.01)
        for bucket in sorted({job.bucket for job in spec.jobs if job.scope is Scope.CLUSTER} - self._servers.keys()):
            self._servers[bucket] = Server(
                bucket,
                heartbeat_s=self._heartbeat_s,
                request_timeout_s=self.request_timeout_s,
                clock_rate_error=rate_error,
            )

    def _new_job(self, spec: JobSpec) -> Job:
        server = self._servers.get(spec.bucket) or Server(
            spec.bucket, heartbeat_s=self._heartbeat_s, request_timeout_s=1.0, clock_rate_error=0.0
        )
        job = Job(spec, self._here, server, self._floors.get(spec.name, Token(0)))
        former = self._former.pop(spec.key, None) if spec.scope is Scope.CLUSTER else None
        if former is not None:
            job.lease.inherit(former)
        return job

    def _on_reloaded(self, spec: ClusterSpec, now: Moment) -> Iterator[Action]:
        changes = compare(self._spec, spec)
        count = Counter(change.effect for change in changes)
        yield Say(
            "file.reloaded",
            {
                "added": count[Effect.ADDED],
                "removed": count[Effect.REMOVED],
                "restarted": count[Effect.RESTARTED],
                "moved": count[Effect.MOVED],
                "applied": count[Effect.APPLIED],
            },
        )
        self._spec = spec
        self._measure(spec)
        self._meet_buckets(spec)
        self._forget_jobs()
        specs = {job.name: job for job in spec.jobs}
        for change in changes:
            job = self.jobs.get(change.job)
            if job is None:
                self.jobs[change.job] = fresh = self._new_job(specs[change.job])
                fresh.begin_here(now)
                fresh.order(self._intents.get(change.job))
            else:
                effect = Effect.MOVED if change.effect is Effect.ADDED else change.effect
                job.revision = Revision(effect, specs.get(change.job)).after(job.revision)
        # The order of the file is the order of starts; what is gone from it comes last, until it is idle.
        self.jobs = {name: self.jobs[name] for name in [*specs, *(self.jobs.keys() - specs.keys())]}
        self._info = info.own(self._spec, self._identity)
        self._beat_at = now.boot
        self._place()
        yield from self._say_drift()

    def _carry_out_revisions(self, now: Moment) -> Iterator[Action]:
        """Replace and remove the jobs whose lease stood in the way until now."""
        for name, job in list(self.jobs.items()):
            revision = job.revision
            if revision is None or revision.effect < Effect.MOVED or not job.idle:
                continue
            if job.spec.scope is Scope.CLUSTER:
                self._former[job.spec.key] = job.lease
            self._forget_jobs()
            if revision.spec is None:
                del self.jobs[name]
                yield Say("job.removed", {"job": name})
                continue
            self.jobs[name] = fresh = self._new_job(revision.spec)
            fresh.begin_here(now, like=job)
            fresh.order(self._intents.get(name))
            self._place()
            yield from self._advance(fresh, now)

    def _say_drift(self) -> Iterator[Action]:
        """Say which jobs another node has by another definition, once for each change of it."""
        drift: dict[NodeName, list[JobName]] = {}
        for name, job in self.jobs.items():
            if job.drift:
                drift.setdefault(NodeName(job.drift), []).append(name)
        for node, names in drift.items():
            if self._told_drift.get(node) != names:
                more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
                yield Say("file.differs", {"node": node, "jobs": ", ".join(names[:MOST_NAMED]) + more}, "warning")
        self._told_drift = drift

    # --- the jobs among each other ------------------------------------------------------------------

    def _why_not_up(self, name: str, now: Moment) -> str:
        """Return why no instance of a job runs and is well, here or as far as is known elsewhere; "" if one does."""
        whys = [why_not_well(job, now) for job in self.jobs.values() if job.spec.job == name]
        return "" if not all(whys) else next(iter(whys), "")

    def _dependents(self, job: Job) -> dict[JobName, Job]:
        """Return the jobs that may have waited for what was just told of this one."""
        if not self._awaited:  # of most files nobody waits; with 1,000 jobs looking at each took 80 ms a heartbeat
            return {}
        return {name: each for name, each in self.jobs.items() if job.spec.job in each.spec.after}


def _job_of(event: Event) -> JobName | None:
    match event:
        case StoreSilent():
            return getattr(event.request, "job", None)
        case ServerMet() | MembersSeen() | NameRefused() | ClusterLeft() | IntentsRestored():
            return None
        case LeaveOrdered() | FileReloaded():
            return None
        case _:
            return event.job


DEFAULT_TTL_S = 15.0
"""The ttl where nobody says otherwise: a crash is taken over within it, and Redis may be away for half of it."""

SHORTEST_RETRY_S = 0.2
"""How soon after a silence the store is asked again, at the earliest."""

MOST_NAMED = 5
"""Jobs that one line names."""
