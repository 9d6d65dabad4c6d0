"""The jobs of one node, as its file says, and how they follow when the file or the membership changes.

Knows the file, the jobs and the servers that their leases live on; must never know heartbeats or how a node comes
and goes.

Rules:
1. A file that is read anew changes what it says differently, and nothing else (`core/reload.py`).
2. A job whose lease stands in the way of its new definition is replaced, or removed, once it is idle.
3. Where live nodes name different lease keys for one job, the key of the node that joined first counts.
4. Where they have different definitions under the same key, the holder's decides what runs; it is said.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from orchestrator.core import info
from orchestrator.core.due import Due
from orchestrator.core.here import Here
from orchestrator.core.info import Identity
from orchestrator.core.job import Job
from orchestrator.core.job_view import why_not_well
from orchestrator.core.lease import Lease
from orchestrator.core.messages import Action, Say
from orchestrator.core.nouns import Bucket, Intent, JobName, Member, Moment, NodeName, Token, Trigger
from orchestrator.core.placement import rank_of
from orchestrator.core.reload import Effect, Revision, compare
from orchestrator.core.server import Server
from orchestrator.core.spec import ClusterSpec, JobSpec, Scope

DEFAULT_TTL_S = 15.0
"""The ttl where nobody says otherwise: a crash is taken over within it, and Redis may be away for half of it."""

MOST_NAMED = 5
"""Jobs that one line names."""


class Roster:
    """All jobs of a node.

    Attributes:
        spec: The file.
        jobs: By name, in the order of the file, which is the order of starts.
        servers: What is believed of the server of each bucket.
        info: What the node says of itself.
        intents: The standing orders, as far as they are known.
        heartbeat_s: The shortest of all leases.
        longest_ttl_s: Of all leases.
    """

    def __init__(self, spec: ClusterSpec, identity: Identity, here: Here, floors: Mapping[JobName, Token]) -> None:
        """Make a job of each one in the file.

        Args:
            spec: The file.
            identity: Who the node is.
            here: What its jobs know of it; this fills in what follows from the file.
            floors: The highest token this node ever saw for each job, from the state directory.
        """
        self.jobs: dict[JobName, Job] = {}
        self.servers: dict[Bucket, Server] = {}
        self.intents: Mapping[JobName, Intent] = {}
        self.due = Due()
        self._identity = identity
        self._here = here
        self._floors = floors
        # By key: a token that this incarnation ran must never be adopted again, though its job was gone meanwhile
        # (found by the simulation: removed from the file, its release unanswered, and put back).
        self._former: dict[str, Lease] = {}
        self._by_bucket: dict[Bucket, list[Job]] = {}
        self._members: tuple[Member, ...] = ()
        self._told_drift: dict[NodeName, list[JobName]] = {}
        self.request_timeout_s = min((job.lease.request_timeout_s for job in spec.jobs), default=1.0)
        here.why_not_up = self._why_not_up
        self._take(spec)
        for job in spec.jobs:
            self.jobs[job.name] = self._new_job(job)

    # --- questions ----------------------------------------------------------------------------------

    def longest_ttl(self, bucket: Bucket) -> float:
        """Return the longest ttl of any lease in a bucket, ours or a holder's, in seconds."""
        if not self._by_bucket:
            for job in self.jobs.values():
                self._by_bucket.setdefault(job.spec.bucket, []).append(job)
        ttls_s = [job.lease.longest_ttl_s for job in self._by_bucket.get(bucket, ())]
        return max(ttls_s, default=self.longest_ttl_s)  # its last job may be gone from the file

    def dependents(self, job: Job) -> dict[JobName, Job]:
        """Return the jobs that may have waited for what was just told of this one."""
        if not self._awaited:  # of most files nobody waits; with 1,000 jobs looking at each took 80 ms a heartbeat
            return {}
        return {name: each for name, each in self.jobs.items() if job.spec.job in each.spec.after}

    def _why_not_up(self, name: str, now: Moment) -> str:
        """Return why no instance of a job runs and is well, here or as far as is known elsewhere; "" if one does."""
        whys = [why_not_well(job, now) for job in self.jobs.values() if job.spec.job == name]
        return "" if not all(whys) else next(iter(whys), "")

    # --- the membership -----------------------------------------------------------------------------

    def place(self, members: tuple[Member, ...]) -> None:
        """Say who asks first for each job, and which jobs another node runs under another key (rule 3)."""
        self._members = members
        names = [member.name for member in members]
        first = sorted(members, key=lambda member: (member.since_ms, member.name))
        others = [member for member in first if member.name != self._identity.node]
        for name, job in self.jobs.items():
            job.lease.rank = rank_of(self._identity.node, name, names)
            job.conflict = info.conflict(job.spec, first)
            job.others = tuple(member.name for member in others if info.could_run(member, job.spec))
            job.drift = next((member.name for member in others if info.differs(member, job.spec)), "")

    def say_drift(self) -> Iterator[Say]:
        """Say which jobs another node has by another definition, once for each change of it (rule 4)."""
        drift: dict[NodeName, list[JobName]] = {}
        for name, job in self.jobs.items():
            if job.drift:
                drift.setdefault(NodeName(job.drift), []).append(name)
        for node, names in drift.items():
            if self._told_drift.get(node) != names:
                more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
                yield Say("file.differs", {"node": node, "jobs": ", ".join(names[:MOST_NAMED]) + more}, "warning")
        self._told_drift = drift

    def order(self, intents: Mapping[JobName, Intent], triggers: Sequence[Trigger]) -> None:
        """Give each job its standing order, and each cron the orders to run it once."""
        self.intents = intents
        for name, job in self.jobs.items():
            job.order(intents.get(name))
            if job.cron is not None:
                job.cron.triggers = tuple(trigger for trigger in triggers if trigger.job == name)

    # --- the file -----------------------------------------------------------------------------------

    def reload(self, spec: ClusterSpec, now: Moment) -> Iterator[Say]:
        """Take over what the file says now, as far as nothing stands in the way (rules 1 and 2)."""
        changes = compare(self.spec, spec)
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
        self._take(spec)
        self._forget()
        specs = {job.name: job for job in spec.jobs}
        for change in changes:
            job = self.jobs.get(change.job)
            if job is None:
                self.jobs[change.job] = fresh = self._new_job(specs[change.job])
                fresh.begin_here(now)
                fresh.order(self.intents.get(change.job))
            else:
                effect = Effect.MOVED if change.effect is Effect.ADDED else change.effect
                job.revision = Revision(effect, specs.get(change.job)).after(job.revision)
        # The order of the file is the order of starts; what is gone from it comes last, until it is idle.
        self.jobs = {name: self.jobs[name] for name in [*specs, *(self.jobs.keys() - specs.keys())]}
        self.place(self._members)
        yield from self.say_drift()

    def carry_out_revisions(self, now: Moment) -> Iterator[Action | Job]:
        """Replace and remove the jobs whose lease stood in the way until now; each fresh one is to be advanced."""
        for name, job in list(self.jobs.items()):
            revision = job.revision
            if revision is None or revision.effect < Effect.MOVED or not job.idle:
                continue
            if job.spec.scope is Scope.CLUSTER:
                self._former[job.spec.key] = job.lease
            self._forget()
            if revision.spec is None:
                del self.jobs[name]
                yield Say("job.removed", {"job": name})
                continue
            self.jobs[name] = fresh = self._new_job(revision.spec)
            fresh.begin_here(now, like=job)
            fresh.order(self.intents.get(name))
            self.place(self._members)
            yield fresh

    def _take(self, spec: ClusterSpec) -> None:
        """Take the numbers that all leases together ask for, and what the jobs are to each other."""
        self.spec = spec
        timings = [job.lease for job in spec.jobs]
        self.longest_ttl_s = max((timing.ttl_s for timing in timings), default=DEFAULT_TTL_S)
        self.heartbeat_s = min((timing.heartbeat_s for timing in timings), default=DEFAULT_TTL_S / 5)
        self.info = info.own(spec, self._identity)
        self._awaited = any(job.after for job in spec.jobs)
        self._here.capacity.limit = spec.max_running
        self._here.followers = _followers(spec.jobs)
        self._here.key_of = {job.job: job.key for job in spec.jobs if not job.instance}.__getitem__
        rate_error = max((job.lease.clock_rate_error for job in spec.jobs), default=0.01)
        for bucket in sorted({job.bucket for job in spec.jobs if job.scope is Scope.CLUSTER} - self.servers.keys()):
            self.servers[bucket] = Server(
                bucket,
                heartbeat_s=self.heartbeat_s,
                request_timeout_s=self.request_timeout_s,
                clock_rate_error=rate_error,
            )

    def _new_job(self, spec: JobSpec) -> Job:
        server = self.servers.get(spec.bucket) or Server(
            spec.bucket, heartbeat_s=self.heartbeat_s, request_timeout_s=1.0, clock_rate_error=0.0
        )
        job = Job(spec, self._here, server, self._floors.get(spec.name, Token(0)))
        former = self._former.pop(spec.key, None) if spec.scope is Scope.CLUSTER else None
        if former is not None:
            job.lease.inherit(former)
        return job

    def _forget(self) -> None:
        self._by_bucket.clear()
        self.due.forget()


def _followers(jobs: Sequence[JobSpec]) -> Callable[[str], tuple[JobName, ...]]:
    """Return who runs after each success of a job."""
    after: dict[str, tuple[JobName, ...]] = {}
    for job in jobs:
        if job.schedule is not None and job.schedule.after:
            after[job.schedule.after] = (*after.get(job.schedule.after, ()), job.name)
    return lambda name: after.get(name, ())
