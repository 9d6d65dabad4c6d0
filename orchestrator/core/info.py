"""What nodes tell each other of themselves with their membership, and what follows from what others tell.

Knows the words of that text; must never trust them: another version, or another program, may have written them.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.core.job import Job
from orchestrator.core.job_view import told_of_node_job
from orchestrator.core.nouns import Member, Moment, NodeName
from orchestrator.core.spec import ClusterSpec, JobSpec, Kind, Scope

DEFINITION_DIGITS = 8
"""Of a definition's hash: enough to tell two from each other, small enough for each heartbeat."""


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


def own(spec: ClusterSpec, identity: Identity) -> str:
    """Return what a node says of itself, as JSON: host, pid, version, tags, and which jobs its file has."""
    jobs = spec.jobs
    told = {
        "host": identity.host,
        "pid": identity.pid,
        "version": identity.version,
        "tags": spec.node_tags,
        "jobs": {job.name: job.key for job in jobs if job.scope is Scope.CLUSTER},
        "kinds": {job.name: job.kind.value for job in jobs if job.kind is not Kind.SERVICE},
        "definitions": {job.name: _digits(job) for job in jobs},
    }
    return json.dumps(told, separators=(",", ":"))


def with_node_jobs(info: str, jobs: Iterable[Job], now: Moment) -> str:
    """Add how the jobs of this node alone are (`scope: node`), which nobody else could tell."""
    told = {job.spec.name: told_of_node_job(job, now) for job in jobs if job.spec.scope is Scope.NODE}
    return f'{info[:-1]},"local":{json.dumps(told, separators=(",", ":"))}}}' if told else info


def conflict(spec: JobSpec, first_joined: Sequence[Member]) -> str:
    """Return whose lease key counts for a job if it is not ours, "" if it is: that of the node that joined first."""
    if spec.scope is Scope.NODE:
        return ""
    for member in first_joined:
        key = _mapping(member, "jobs").get(spec.name)
        if key is not None:
            return "" if key == spec.key else f"node {member.name} runs it under the lease key `{key}`"
    return ""


def could_run(member: Member, spec: JobSpec) -> bool:
    """Say whether another node has a job, under the same lease key."""
    return _mapping(member, "jobs").get(spec.name) == spec.key


def differs(member: Member, spec: JobSpec) -> bool:
    """Say whether another node has a job by another definition."""
    known = _mapping(member, "definitions").get(spec.name)
    return known is not None and known != _digits(spec)


def _digits(spec: JobSpec) -> str:
    return spec.definition[:DEFINITION_DIGITS]


def _mapping(member: Member, field: str) -> Mapping[str, object]:
    value = member.info.get(field)
    return value if isinstance(value, Mapping) else {}
