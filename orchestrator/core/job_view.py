"""In which state a job is on this node, and why, in one clause: what `status` shows and the holder publishes."""

from orchestrator.core.job import Job
from orchestrator.core.lease import Phase
from orchestrator.core.nouns import Moment
from orchestrator.core.run import Stage, describe_end
from orchestrator.core.snapshot import JobView, State, iso_utc, stopped_by
from orchestrator.core.spec import Kind


def published_state(job: Job, now: Moment) -> dict[str, object]:
    """Return what the holder shows to everybody; nothing in it changes by itself with time."""
    state, why, following = _held(job, now)
    return {
        "state": state.value,
        "pid": job.run.pid if job.run else None,
        "since": iso_utc(job.run.started.utc) if job.run else None,
        "next": following,
        "why": why,
    }


def job_view(job: Job, now: Moment) -> JobView:
    """Return the row of one job as this node sees it."""
    spec, lease = job.spec, job.lease
    holder, token, lease_ms = None, None, None
    if lease.held and lease.value is not None:
        state, why, following = _held(job, now)
        left_s = lease.renewed_at + lease.timing.ttl_s - now.boot
        if job.here.silence:
            why = why or f"the lease is not renewed: Redis does not answer ({job.here.silence})"
        holder, token, lease_ms = job.here.node, int(lease.value.token), round(1000 * left_s)
    else:
        state, why, following = *_not_held(job, now), None
        if state is State.STANDBY and lease.memory is not None:
            holder, token = lease.memory.value.node, int(lease.memory.value.token)
            lease_ms = round(1000 * (lease.memory.until - now.boot))
    return JobView(
        name=spec.name,
        kind=spec.kind.value,
        state=state.value,
        holder=holder,
        token=token,
        lease_ms=lease_ms,
        ttl_ms=spec.lease.ttl_ms,
        pid=job.run.pid if job.run else None,
        since=iso_utc(job.run.started.utc) if job.run else None,
        next=following,
        last=job.last,
        why=why,
        tags=spec.tags,
    )


def _held(job: Job, now: Moment) -> tuple[State, str, str | None]:
    following = iso_utc(job.ticks.next) if job.ticks.next is not None else None
    if job.run is not None:
        why = job.run.stuck or job.run.unproven or job.run.stop_why
        state = State.BLOCKED if job.run.unproven else _STATE_OF_STAGE[job.run.stage]
        return state, why, following
    if job.unwanted:
        return State.STOPPING, job.unwanted, None
    if job.spec.kind is Kind.CRON:
        return State.WAITING, "" if following else "it is never due again", following
    if job.done:
        return State.STOPPED, job.done, None
    if job.restarts.given_up:
        why = f"{_last_end(job)}; {job.restarts.failures} failures in a row, `orchestrator start` tries again"
        return State.FAILED, why, None
    if job.restarts.ready_at > now.boot:
        ready_utc = now.utc + job.restarts.ready_at - now.boot
        return State.BACKOFF, f"{_last_end(job)}; try {job.restarts.failures + 1} follows", iso_utc(round(ready_utc, 1))
    return State.STARTING, "", None


def _not_held(job: Job, now: Moment) -> tuple[State, str]:
    if job.run is not None:
        return State.BLOCKED, job.run.stuck or job.run.unproven or "its run is being ended: the lease is lost"
    if not job.spec.enabled:
        return State.STOPPED, job.unwanted
    if job.intent is not None and job.intent.want == "stopped":
        return State.STOPPED, stopped_by(job.intent)
    if job.here.silence:
        return State.UNHELD, f"waits for its lease: Redis does not answer ({job.here.silence})"
    if job.unwanted:
        return State.BLOCKED, job.unwanted
    if job.lease.memory is not None and now.boot < job.lease.memory.until:
        return State.STANDBY, ""
    if not job.server.epoch:
        return State.UNHELD, "Redis has not answered yet"
    if job.server.quarantined(now.boot):
        left_s = job.server.quarantine_until - now.boot
        return State.BLOCKED, f"{job.server.why}: a lease still alive may come back for {left_s:.0f} s more"
    if job.lease.phase is Phase.ASKING:
        return State.UNHELD, "asking for the lease"
    return State.UNHELD, _REFUSALS.get(job.lease.refusal, "about to ask for the lease")


def _last_end(job: Job) -> str:
    return describe_end(job.last) if job.last is not None else "never ran"


_STATE_OF_STAGE = {
    Stage.STARTING: State.STARTING,
    Stage.RUNNING: State.RUNNING,
    Stage.STOPPING: State.STOPPING,
}

_REFUSALS = {
    "hint": "the lease is left to the node it was handed to",
    "young": "its last holder may still be alive by its own clock",
    "vanished": "the lease key vanished, but its holder may still be alive by its own clock",
}
"""What a refusal of the store means to people; `held` is the standby's ordinary state."""
