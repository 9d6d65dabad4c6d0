"""From what was written to what will run: defaults merged, relations checked, instances counted out.

Knows how keys depend on each other; must never read YAML, a file or a clock. The rules:

1. A job's own key wins over `defaults`; mappings are merged key by key, as people know it from compose files.
2. `cron` or `every` makes a job a cron, else it is a service; both are refused, since two schedules are two jobs.
3. A key that means nothing for its kind of job is refused in the job and ignored in `defaults`: nothing that
   was written for one job stays silently without effect.
4. The numbers of a lease leave room for a step-down (`LeaseTiming.problem`), or it would run out under a run.
5. No two instances share a name, a lease key or a log file; with a shared key one of them would never run.
6. `definition` is a hash over everything resolved: nodes whose files differ must see it.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TypeVar

from orchestrator.config.document import Complaint, Document
from orchestrator.config.document import Path as KeyPath
from orchestrator.config.model import Entry, Job, JobDefaults, Lease, Log
from orchestrator.core.nouns import JobName
from orchestrator.core.schedule import parse_problem
from orchestrator.core.spec import Backoff, JobSpec, Kind, LeaseTiming, LogSpec, ScheduleSpec, StopSpec

ONLY_SERVICE = ("restart", "backoff", "healthy_after", "max_failures")
ONLY_CRON = ("timeout", "misfire_grace", "timezone")

_E = TypeVar("_E", bound=Entry)


@dataclass(frozen=True, slots=True)
class Resolved:
    """All jobs of a file, one spec an instance, and what is wrong with them together."""

    jobs: tuple[JobSpec, ...]
    complaints: tuple[Complaint, ...]


def resolve(jobs: Mapping[str, Job], defaults: JobDefaults, document: Document, directory: Path) -> Resolved:
    """Build the specs of jobs whose single values are sound.

    Args:
        jobs: By name.
        defaults: Merged into each.
        document: For the places of complaints.
        directory: What `cwd` and `log.file` are relative to; absolute.
    """
    complaints: list[Complaint] = []
    specs: list[JobSpec] = []
    for name, own in jobs.items():
        job = merge(defaults, own)
        complaints += _problems(name, own, job, document)
        specs += _instances(_spec(name, job, directory), job.instances)
    complaints += _collisions(specs, document)
    # A mistake in `defaults` shows once, not once a job.
    return Resolved(tuple(specs), tuple(dict.fromkeys(complaints)))


def merge(defaults: Entry, own: _E) -> _E:
    """Return `own` with what it does not say taken from `defaults`, mappings key by key."""
    update: dict[str, object] = {}
    for key in defaults.model_fields_set:
        theirs, ours = getattr(defaults, key), getattr(own, key)
        if isinstance(theirs, Entry) and isinstance(ours, Entry):
            update[key] = merge(theirs, ours)
        elif key not in own.model_fields_set:
            update[key] = theirs
        elif isinstance(theirs, dict) and isinstance(ours, dict):
            update[key] = {**theirs, **ours}
    return own.model_copy(update=update) if update else own


def _problems(name: str, own: Job, job: Job, document: Document) -> Iterator[Complaint]:
    """Yield what is wrong between the keys of one job."""
    here: KeyPath = ("jobs", name)
    if job.cron is not None and job.every is not None:
        yield document.complaint((*here, "every"), "`cron` and `every` exclude each other; make two jobs", at_key=True)
    is_cron = _kind(job) is Kind.CRON
    for key in ONLY_SERVICE if is_cron else ONLY_CRON:
        if key in own.model_fields_set:
            why = "means nothing for a cron job" if is_cron else "means nothing without `cron` or `every`"
            yield document.complaint((*here, key), f"{why}; remove it", at_key=True)
    if job.every is not None and job.cron is None and "timezone" in own.model_fields_set:
        yield document.complaint((*here, "timezone"), "means nothing with `every`; remove it", at_key=True)
    if job.cron is not None and (problem := parse_problem(_schedule(job), name=name)):
        yield document.complaint((*here, "cron"), problem)
    if problem := _timing(job.lease).problem():
        yield document.complaint(_source(document, here, "lease"), problem)
    if job.backoff.delay > job.backoff.max_delay:
        yield document.complaint(_source(document, here, "backoff"), "`delay` must not be longer than `max_delay`")


def _source(document: Document, job: KeyPath, key: str) -> KeyPath:
    """Return where a value that may come from `defaults` was written."""
    own = (*job, key)
    return own if own in document.values or ("defaults", key) not in document.values else ("defaults", key)


def _collisions(specs: list[JobSpec], document: Document) -> Iterator[Complaint]:
    """Yield a complaint for each instance whose name, lease key or log file another one has."""
    names: dict[str, JobSpec] = {}
    keys: dict[str, JobSpec] = {}
    files: dict[str, JobSpec] = {}
    for spec in specs:
        here: KeyPath = ("jobs", spec.job)
        if (first := names.setdefault(spec.name, spec)) is not spec:
            what = f"`{spec.name}` is also the name of an instance of `{_of(first, spec)}`; rename one of them"
            yield document.complaint(here, what, at_key=True)
        elif (first := keys.setdefault(spec.key, spec)) is not spec:
            what = f"the lease key `{spec.key}` is also that of `{first.name}`, so only one of them would ever run"
            yield document.complaint((*here, "lease", "key"), f"{what}; choose another `lease: {{key: ...}}`")
        if spec.log.file and (first := files.setdefault(spec.log.file, spec)) is not spec:
            what = f"the file is also that of `{first.name}`; two writers would cut each other's lines"
            yield document.complaint((*here, "log", "file"), f"{what}; choose another")


def _of(first: JobSpec, second: JobSpec) -> str:
    return first.job if first.instance else second.job


def _spec(name: str, job: Job, directory: Path) -> JobSpec:
    """Build the first instance of a job."""
    spec = JobSpec(
        name=JobName(name),
        job=name,
        kind=_kind(job),
        argv=job.command,
        lease=_timing(job.lease),
        key=job.lease.key or name,
        definition="",
        schedule=_schedule(job) if _kind(job) is Kind.CRON else None,
        restart=job.restart,
        success_exit_codes=frozenset(job.success_exit_codes),
        backoff=Backoff(
            delay_s=job.backoff.delay,
            factor=job.backoff.factor,
            max_delay_s=job.backoff.max_delay,
            healthy_after_s=job.healthy_after,
            max_failures=job.max_failures,
        ),
        stop=StopSpec(signal=job.stop.signal, timeout_s=job.stop.timeout),
        log=_log(job.log, directory),
        on_redis_loss=job.on_redis_loss,
        env=job.env,
        env_inherit=job.env_inherit,
        cwd=_absolute(job.cwd, directory),
        enabled=job.enabled,
        timeout_s=job.timeout,
        misfire_grace_s=job.misfire_grace,
        tags=job.tags,
    )
    return replace(spec, definition=definition(spec, job.instances))


def _instances(first: JobSpec, count: int) -> Iterator[JobSpec]:
    """Yield `name`, `name.1`, `name.2` ..., each with a lease key and a log file of its own."""
    yield first
    for number in range(1, count):
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


def definition(spec: JobSpec, instances: int) -> str:
    """Return a short hash of everything a job is; the same on every node and in every Python."""
    return hashlib.sha256(_CANONICAL.encode([instances, spec]).encode()).hexdigest()[:12]


def _plain(value: object) -> object:
    if isinstance(value, frozenset):
        return sorted(value)
    return {name: getattr(value, name) for name in _FIELDS[type(value)]}


_FIELDS: Mapping[type[object], tuple[str, ...]] = {
    kind: tuple(each.name for each in fields(kind) if each.name != "definition")
    for kind in (JobSpec, LeaseTiming, ScheduleSpec, Backoff, StopSpec, LogSpec)
}
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=_plain)


def _kind(job: Job) -> Kind:
    return Kind.SERVICE if job.cron is None and job.every is None else Kind.CRON


def _schedule(job: Job) -> ScheduleSpec:
    if job.cron is not None:
        return ScheduleSpec(cron=job.cron, timezone=job.timezone)
    return ScheduleSpec(every_s=job.every or 0.0)


def _timing(lease: Lease) -> LeaseTiming:
    given = {
        "heartbeat_s": lease.heartbeat,
        "request_timeout_s": lease.request_timeout,
        "step_down_grace_s": lease.step_down_grace,
        "kill_time_s": lease.kill_time,
        "margin_s": lease.margin,
        "clock_rate_error": lease.clock_rate_error,
    }
    return LeaseTiming.scaled(lease.ttl, **{key: value for key, value in given.items() if value is not None})


def _log(log: Log | str, directory: Path) -> LogSpec:
    if not isinstance(log, Log):
        return LogSpec(mode="none")
    return LogSpec(file=_absolute(log.file, directory), max_bytes=log.max_size, backups=log.backups)


def _absolute(path: str | None, directory: Path) -> str | None:
    return None if path is None else str(directory / path)
