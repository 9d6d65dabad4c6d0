"""From one job with its defaults to the specs of its instances.

Knows what of the file becomes what of a `JobSpec`; must never find fault: `relations.py` does. The rules:

1. Paths become absolute, short forms long: whoever gets a spec has nothing to look up.
2. Instances are `name`, `name.1`, `name.2` ..., each with a lease key and a log file of its own.
3. `definition` is a hash over everything that differs from what holds where nothing is said: nodes whose files
   differ must see it, and a node of a newer version with a new key must not look as if its file did.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, replace
from functools import lru_cache
from operator import attrgetter
from pathlib import Path

from orchestrator.config import sections
from orchestrator.config.model import Job
from orchestrator.core.instants import instant_of
from orchestrator.core.nouns import JobName
from orchestrator.core.spec import (
    Backoff,
    HealthSpec,
    HistorySpec,
    Hook,
    JobSpec,
    Kind,
    LogSpec,
    OnUnhealthy,
    ReloadSpec,
    RetrySpec,
    ScheduleSpec,
    Scope,
    StopSpec,
)
from orchestrator.core.timing import LeaseTiming


def specs_of(name: str, job: Job, directory: Path, *, follows: str = "") -> Iterator[JobSpec]:
    """Yield the instances of a job.

    Args:
        name: Of the job.
        job: With its defaults.
        directory: What paths are relative to; absolute.
        follows: The job after each success of which it runs, "" if there is none.
    """
    first = _first(name, job, directory, follows)
    yield first
    for number in range(1, job.instances):
        yield replace(
            first,
            name=JobName(f"{first.job}.{number}"),
            key=f"{first.key}.{number}",
            instance=number,
            log=replace(first.log, file=first.log.file and _numbered(first.log.file, number)),
        )


def _numbered(file: str, number: int) -> str:
    """Return `x-1.log` for `x.log`; `x.log.1` would be the first backup of `x.log`."""
    path = Path(file)
    return str(path.with_name(f"{path.stem}-{number}{path.suffix}"))


def _first(name: str, job: Job, directory: Path, follows: str) -> JobSpec:
    """Build the first instance of a job."""
    schedule = schedule_of(job, follows)
    spec = JobSpec(
        name=JobName(name),
        job=name,
        kind=Kind.CRON if schedule else Kind.SERVICE,
        argv=job.command,
        lease=timing_of(job.lease),
        key=job.lease.key or name,
        definition="",
        schedule=schedule,
        restart=job.restart,
        success_exit_codes=frozenset(job.success_exit_codes),
        no_restart_exit_codes=frozenset(job.no_restart_exit_codes),
        backoff=_backoff(job),
        on_crash_loop=job.on_crash_loop,
        max_age_s=job.max_age,
        max_rss_bytes=job.max_rss,
        health=_health(job.health),
        on_unhealthy=OnUnhealthy.RESTART if job.scope is Scope.NODE else job.on_unhealthy,
        stop=StopSpec(job.stop.signal, job.stop.timeout, job.stop.command),
        reload=_reload(job.reload),
        on_start=_hook(job.on_start),
        on_success=_hook(job.on_success),
        on_failure=_hook(job.on_failure),
        on_step_down=_hook(job.on_step_down),
        scope=job.scope,
        on_redis_loss=job.on_redis_loss,
        priority=job.priority,
        after=() if follows else job.after,
        env=job.env,
        env_files=tuple(str(directory / path) for path in job.env_file if path is not None),
        env_inherit=job.env_inherit,
        cwd=_absolute(job.cwd, directory),
        user=job.user,
        group=job.group,
        umask=job.umask,
        nice=job.nice,
        oom_score_adj=job.oom_score_adj,
        limits=_limits(job.limits),
        enabled=job.enabled,
        timeout_s=job.timeout,
        misfire_grace_s=job.misfire_grace,
        misfire=job.misfire,
        overlap=job.overlap,
        max_instances=job.max_instances,
        on_lost=job.on_lost,
        retries=RetrySpec(job.retries.count, job.retries.delay, job.retries.backoff, job.retries.max_delay),
        jitter_s=job.jitter,
        pause_after_failures=job.pause_after_failures,
        history=HistorySpec(job.history.runs, job.history.max_size),
        log=_log(job.log, directory),
        tags=job.tags,
    )
    return replace(spec, definition=definition(spec, job.instances))


def schedule_of(job: Job, follows: str = "") -> ScheduleSpec | None:
    """Return when a job is due, None for a service; `follows` names the job after whose successes it runs."""
    if follows:
        return ScheduleSpec(after=follows)
    if job.cron is None and job.every is None and job.at is None:
        return None
    instants = (
        None if text is None else instant_of(text, job.timezone) for text in (job.at, job.not_before, job.not_after)
    )
    at_utc, not_before_utc, not_after_utc = instants
    return ScheduleSpec(
        cron=job.cron or "",
        every_s=job.every or 0.0,
        timezone=job.timezone,
        at_utc=at_utc,
        dst=job.dst,
        not_before_utc=not_before_utc,
        not_after_utc=not_after_utc,
    )


def timing_of(lease: sections.Lease) -> LeaseTiming:
    """Return the numbers of a lease, scaled where they are not given."""
    return _scaled(lease.ttl, *(getattr(lease, key) for key in _NUMBERS.values()))


_NUMBERS = {
    "heartbeat_s": "heartbeat",
    "request_timeout_s": "request_timeout",
    "step_down_grace_s": "step_down_grace",
    "kill_time_s": "kill_time",
    "margin_s": "margin",
    "clock_rate_error": "clock_rate_error",
}
"""Of a lease: how the spec calls what the file gives."""


@lru_cache(maxsize=256)
def _scaled(ttl_s: float, *numbers: float | None) -> LeaseTiming:
    """Return the timing of these numbers; a file has many jobs, and few leases that differ."""
    given = {name: number for name, number in zip(_NUMBERS, numbers, strict=True) if number is not None}
    return LeaseTiming.scaled(ttl_s, **given)


def _backoff(job: Job) -> Backoff:
    given = job.backoff
    return Backoff(given.delay, given.factor, given.max_delay, job.healthy_after, job.max_failures)


def _health(health: sections.Health | None) -> HealthSpec | None:
    """Return how a service is checked; None where `defaults` has only the numbers of those that are."""
    if health is None or (health.exec, health.http, health.tcp) == (None, None, None):
        return None
    return HealthSpec(
        exec=health.exec,
        http=health.http,
        tcp=health.tcp,
        interval_s=health.interval,
        timeout_s=health.timeout,
        failures=health.failures,
        start_period_s=health.start_period,
    )


def _reload(reload: sections.Reload | None) -> ReloadSpec | None:
    if reload is None or (reload.signal, reload.command) == (None, None):
        return None
    return ReloadSpec(reload.signal, reload.command)


def _hook(hook: sections.Hook | None) -> Hook | None:
    return None if hook is None else Hook(hook.command, hook.timeout)


def _limits(limits: sections.Limits) -> tuple[tuple[str, int], ...]:
    given = ((key, getattr(limits, attribute)) for key, attribute in _LIMITS)
    return tuple((key, value) for key, value in given if value is not None) if limits.model_fields_set else ()


_LIMITS = sorted((field.alias or name, name) for name, field in sections.Limits.model_fields.items())


def _log(log: sections.Log | str, directory: Path) -> LogSpec:
    if not isinstance(log, sections.Log):
        return LogSpec(mode=log)
    return LogSpec(
        file=_absolute(log.file, directory),
        max_bytes=log.max_size,
        backups=log.backups,
        stderr=log.stderr,
        timestamps=log.timestamps,
    )


def _absolute(path: str | None, directory: Path) -> str | None:
    return None if path is None else str(directory / path)


def definition(spec: JobSpec, instances: int) -> str:
    """Return a short hash of everything a job is; the same on every node and in every Python."""
    return hashlib.sha256(_CANONICAL.encode([instances, spec]).encode()).hexdigest()[:12]


def _said(value: object) -> object:
    """Return what of a dataclass, whichever it is, differs from its defaults; a set as a list."""
    if isinstance(value, frozenset):
        return sorted(value)
    names, values_of, defaults = _shape(type(value))  # type: ignore[arg-type]  # a dataclass: JSON knows all else in a spec
    said = zip(names, values_of(value), defaults, strict=True)
    return {name: now for name, now, default in said if now != default}


@lru_cache(maxsize=64)
def _shape(kind: type[JobSpec]) -> tuple[list[str], Callable[[object], tuple[object, ...]], list[object]]:
    """Return the names of a dataclass's fields, how to get them all at once, and their defaults.

    What has no default equals nothing, and so is always said.
    """
    all_but_itself = [each for each in fields(kind) if each.name != "definition"]
    names = [each.name for each in all_but_itself]
    defaults = [each.default if each.default_factory is MISSING else each.default_factory() for each in all_but_itself]
    return names, attrgetter(*names), defaults


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=_said)
