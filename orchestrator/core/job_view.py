"""In which state a job is on this node, and why, in one clause: what `status` shows and the holder publishes."""

from orchestrator.core.cron import Cron, is_paused
from orchestrator.core.ends import describe_end
from orchestrator.core.job import Job
from orchestrator.core.lease import Phase
from orchestrator.core.nouns import Moment
from orchestrator.core.run import Stage
from orchestrator.core.snapshot import OFF, JobView, State, iso_utc, stopped_by
from orchestrator.core.spec import Scope
from orchestrator.core.wall_clock import SET_S


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
        if job.here.silence and spec.scope is Scope.CLUSTER:
            why = why or f"the lease is not renewed: Redis does not answer ({job.here.silence})"
        holder = job.here.node
        if spec.scope is Scope.CLUSTER:
            token = int(lease.value.token)
            lease_ms = round(1000 * (lease.renewed_at + lease.timing.ttl_s - now.boot))
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
        ttl_ms=spec.lease.ttl_ms if spec.scope is Scope.CLUSTER else None,
        pid=job.run.pid if job.run else None,
        since=iso_utc(job.run.started.utc) if job.run else None,
        next=following,
        last=job.last,
        why=why or (f"node {job.drift} has another definition of it" if job.drift else ""),
        tags=spec.tags,
        scope=spec.scope.value,
    )


def told_of_node_job(job: Job, now: Moment) -> list[str]:
    """Return what a node tells the others of a job of its own (`scope: node`): state and why."""
    state, why = _held(job, now)[:2] if job.lease.held else _not_held(job, now)
    return [state.value, why]


def why_not_well(job: Job, now: Moment) -> str:
    """Return why a job does not run well, here or as far as is known elsewhere; "" if it does, or is done well."""
    if job.run is not None and job.run.pid is not None and not job.run.stop_why:
        return "" if job.spec.health is None or job.fitness.healthy else "is not healthy yet"
    if job.run is None and job.lease.held and job.restarts.done and job.fault is None:
        return ""
    if job.run is None and job.lease.memory is not None and now.boot < job.lease.memory.until:
        return ""
    if not job.spec.enabled:
        return "is disabled in the file"
    if job.intent is not None and job.intent.want == "stopped":
        return "is stopped"
    return "has failed" if job.restarts.over else "does not run yet"


def _held(job: Job, now: Moment) -> tuple[State, str, str | None]:
    following = _next_start(job)
    if job.run is not None:
        why = job.run.stuck or job.run.unproven or job.run.stop_why
        state = State.BLOCKED if job.run.unproven else _STATE_OF_STAGE[job.run.stage]
        waits = "what the file says now waits for the end of this run" if job.revision is not None else ""
        paused = stopped_by(job.intent) if job.intent is not None and is_paused(job.intent) else ""
        return state, why or paused or job.fitness.note or waits, following
    if job.unwanted:
        return State.STOPPING, job.unwanted, None
    if job.resting(now):
        return State.STOPPING, f"left to another node: {job.restarts.rest_why}", None
    if job.cron is not None:
        return *_cron_waits(job, job.cron, now, following), following
    if job.restarts.done:
        if job.last is not None and job.last.get("outcome") == "ok":
            return State.STOPPED, job.restarts.done, None
        return State.FAILED, f"{_last_end(job)}; it wants no restart, `orchestrator start` tries again", None
    if job.restarts.given_up:
        keeps = ", it keeps its lease" if job.others else ""
        why = f"{_last_end(job)}; {job.restarts.why}{keeps}, `orchestrator start` tries again"
        return State.FAILED, why, None
    if job.restarts.ready_at > now.boot:
        ready_utc = now.utc + job.restarts.ready_at - now.boot
        return State.BACKOFF, f"{_last_end(job)}; try {job.restarts.failures + 1} follows", iso_utc(round(ready_utc, 1))
    name, why = job.waits_for(now)
    never = job.restarts.ready_at <= now.boot and why.startswith(("is disabled", "has failed", "is stopped"))
    return State.BLOCKED if never else State.STARTING, f"waits for {name} (after), which {why}" if name else "", None


def _next_start(job: Job) -> str | None:
    """Return when the next start of a cron is due, of a tick or of another attempt."""
    if job.cron is None or is_paused(job.intent):
        return None
    ticks = [] if job.cron.ticks.next is None else [job.cron.ticks.next]
    return min(
        (iso_utc(at) for at in (*ticks, *(left.retry_ms / 1000 for left in job.cron.retries.values()))), default=None
    )


def _cron_waits(job: Job, cron: Cron, now: Moment, following: str | None) -> tuple[State, str]:
    if is_paused(job.intent) and job.intent is not None:
        return State.PAUSED, stopped_by(job.intent)
    if cron.waits:
        return State.WAITING, cron.waits
    left = next(iter(cron.retries.values()), None)
    if left is not None:
        what = "it was lost" if left.rerun else _last_end(job)
        return State.WAITING, f"{what}; attempt {left.attempt + 1} follows"
    if cron.ticks.settled_ms > 1000 * (now.utc + SET_S):
        return State.WAITING, f"the clock was set back: ticks until {iso_utc(cron.ticks.settled_ms / 1000)} have been"
    if following is None and cron.ticks.successes is not None:
        return State.WAITING, f"for a success of {job.spec.schedule.after if job.spec.schedule else '?'}"
    return State.WAITING, "" if following else "it is never due again"


def _not_held(job: Job, now: Moment) -> tuple[State, str]:
    if job.run is not None:
        return State.BLOCKED, job.run.stuck or job.run.unproven or "its run is being ended: the lease is lost"
    if not job.spec.enabled:
        return State.STOPPED, job.unwanted
    if job.intent is not None and job.intent.want in OFF:
        return State(job.intent.want), stopped_by(job.intent)
    if job.spec.scope is Scope.NODE:
        return State.STARTING, job.unwanted
    if job.here.silence:
        return State.UNHELD, f"waits for its lease: Redis does not answer ({job.here.silence})"
    if job.unwanted:
        return State.BLOCKED, job.unwanted
    if job.lease.memory is not None and now.boot < job.lease.memory.until:
        return State.STANDBY, ""
    return _about_to_ask(job, now)


def _about_to_ask(job: Job, now: Moment) -> tuple[State, str]:
    if job.resting(now):
        left_s = job.restarts.rest_until - now.boot
        return State.UNHELD, f"left to another node ({job.restarts.rest_why}); asks again in {left_s:.0f} s"
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
