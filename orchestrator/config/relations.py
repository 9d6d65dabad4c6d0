"""What is wrong between the keys of a file whose single values are sound.

Knows how keys depend on each other; must never know how a value is written. The rules:

1. `cron` or `every` makes a job a cron, else it is a service; both are refused, since two schedules are two jobs.
2. A key that means nothing for its job is refused in the job and left aside in `defaults`: nothing that was
   written for one job stays silently without effect.
3. The numbers of a lease leave room for a step-down (`LeaseTiming.problem`), or it would run out under a run.
4. Of keys that exclude each other (`Entry.ONE_OF`) there is one, or it would be chance which one counts.
5. What a service waits for (`after`) exists, is a service and does not wait for it in turn.
6. No two instances share a name, a lease key or a log file; with a shared key one of them would never run.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from pathlib import PurePath

from orchestrator.config.document import Complaint, Document
from orchestrator.config.document import Path as KeyPath
from orchestrator.config.entry import Entry
from orchestrator.config.model import Job, JobDefaults
from orchestrator.config.specs import is_cron, schedule_of, timing_of
from orchestrator.config.values import listed, meant
from orchestrator.core.schedule import parse_problem
from orchestrator.core.spec import JobSpec, OnUnhealthy, Scope

ONLY_SERVICE = (
    *("restart", "no_restart_exit_codes", "backoff", "healthy_after", "max_failures", "on_crash_loop"),
    *("max_age", "max_rss", "health", "on_unhealthy", "reload", "after"),
)
ONLY_CRON = ("timeout", "misfire_grace", "timezone")
ONLY_LEASED = ("instances", "lease", "on_redis_loss", "on_crash_loop")
"""What means nothing where every node runs one, without a lease."""
MAX_CIRCLES = 50
"""Complaints about circles of `after`; each costs a look at all jobs."""


def meaningless(job: Job, scope: Scope) -> Mapping[str, str]:
    """Return the keys that mean nothing for a job with this scope, each with why and what to do."""
    return _meaningless(scope, is_cron(job), job.cron is not None)


@lru_cache(maxsize=8)
def _meaningless(scope: Scope, is_cron: bool, has_expression: bool) -> Mapping[str, str]:
    aside: dict[str, str] = {}
    if is_cron:
        aside |= dict.fromkeys(ONLY_SERVICE, "means nothing for a cron job; remove it")
        aside["after"] = "planned for cron jobs, not in this version; remove it"
        if not has_expression:
            aside["timezone"] = "means nothing with `every`; remove it"
    else:
        aside |= dict.fromkeys(ONLY_CRON, "means nothing without `cron` or `every`; remove it")
    if scope is Scope.NODE:
        aside |= dict.fromkeys(ONLY_LEASED, "means nothing with `scope: node`, without a lease; remove it")
    return aside


def problems(name: str, own: Job, job: Job, document: Document) -> Iterator[Complaint]:
    """Yield what is wrong between the keys of one job: `own` as it is written, `job` with its defaults."""
    here: KeyPath = ("jobs", name)
    if job.cron is not None and job.every is not None:
        yield document.complaint((*here, "every"), "`cron` and `every` exclude each other; make two jobs", at_key=True)
    aside = meaningless(own, job.scope)
    for key in own.model_fields_set & aside.keys():
        yield document.complaint((*here, key), aside[key], at_key=True)
    if job.cron is not None and (problem := parse_problem(schedule_of(job), name=name)):
        yield document.complaint((*here, "cron"), problem)
    if problem := timing_of(job.lease).problem():
        yield document.complaint(_source(document, here, "lease"), problem)
    if job.backoff.delay > job.backoff.max_delay:
        yield document.complaint(_source(document, here, "backoff"), "`delay` must not be longer than `max_delay`")
    for key in ("reload", "health"):
        written, merged = getattr(own, key), getattr(job, key)
        yield from _excluding((*here, key), written, document)
        if written is not None and not said(merged):
            yield document.complaint((*here, key), f"must have one of {listed(merged.ONE_OF)}", at_key=True)
    yield from _health_problems(here, own, job, document)


def _source(document: Document, job: KeyPath, key: str) -> KeyPath:
    """Return where a value that may come from `defaults` was written."""
    own = (*job, key)
    return own if own in document.values or ("defaults", key) not in document.values else ("defaults", key)


def _health_problems(here: KeyPath, own: Job, job: Job, document: Document) -> Iterator[Complaint]:
    if "on_unhealthy" not in own.model_fields_set or is_cron(own):
        return
    if not said(job.health):
        yield document.complaint((*here, "on_unhealthy"), "means nothing without `health`; remove it", at_key=True)
    elif own.on_unhealthy is OnUnhealthy.RELEASE and job.scope is Scope.NODE:
        what = "`release` means nothing with `scope: node`, without a lease; write restart"
        yield document.complaint((*here, "on_unhealthy"), what)


def default_problems(defaults: JobDefaults, document: Document) -> Iterator[Complaint]:
    """Yield what is wrong in `defaults` whatever the jobs are."""
    yield from _excluding(("defaults", "reload"), defaults.reload, document)
    yield from _excluding(("defaults", "health"), defaults.health, document)


def said(entry: Entry | None) -> list[str]:
    """Return which of the keys that exclude each other a mapping has."""
    return [key for key in entry.ONE_OF if key in entry.model_fields_set] if entry else []


def _excluding(here: KeyPath, entry: Entry | None, document: Document) -> Iterator[Complaint]:
    if len(keys := said(entry)) > 1:
        what = f"{listed(keys, 'and')} exclude each other; choose one"
        yield document.complaint((*here, keys[-1]), what, at_key=True)


def dependencies(jobs: Mapping[str, Job], document: Document) -> Iterator[Complaint]:
    """Yield what is wrong with what services wait for."""
    graph: dict[str, list[str]] = {}
    for name, job in jobs.items():
        if is_cron(job):  # its `after` is refused already
            continue
        for at, other in enumerate(job.after):
            if problem := _dependency_problem(name, other, jobs, document):
                yield document.complaint(("jobs", name, "after", at), problem)
            else:
                graph.setdefault(name, []).append(other)
    for _ in range(MAX_CIRCLES):
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            circle = _from_the_first(error.args[1][:0:-1], jobs)
            graph[circle[0]].remove(circle[1])
            what = (
                f"in a circle nobody starts first: {' after '.join(f'`{name}`' for name in circle)}; remove one `after`"
            )
            yield document.complaint(("jobs", circle[0], "after"), what)
        else:
            return


def _dependency_problem(name: str, other: str, jobs: Mapping[str, Job], document: Document) -> str:
    if other == name:
        return "is the job itself, which would wait for ever; remove it"
    if ("jobs", other) not in document.keys:
        return f"no such job{meant(other, jobs) or '; name one of this file'}"
    if other in jobs and is_cron(jobs[other]):
        return f"`{other}` is a cron job, and runs only at instants; name a service"
    return ""


def _from_the_first(circle: list[str], jobs: Mapping[str, Job]) -> list[str]:
    """Return a circle from that job on, and back to it, which stands first in the file."""
    order = list(jobs)
    start = circle.index(min(circle, key=order.index))
    return [*circle[start:], *circle[: start + 1]]


def collisions(specs: list[JobSpec], document: Document) -> Iterator[Complaint]:
    """Yield a complaint for each instance whose name, lease key or log file another one has."""
    names: dict[str, JobSpec] = {}
    keys: dict[str, JobSpec] = {}
    files: dict[str, JobSpec] = {}
    for spec in specs:
        here: KeyPath = ("jobs", spec.job)
        if (first := names.setdefault(spec.name, spec)) is not spec:
            what = f"`{spec.name}` is also the name of an instance of `{_of(first, spec)}`; rename one of them"
            yield document.complaint(here, what, at_key=True)
            continue  # with another name it has another key and another file
        if (first := keys.setdefault(spec.key, spec)) is not spec:
            what = f"the lease key `{spec.key}` is also that of `{first.name}`, so only one of them would ever run"
            yield document.complaint((*here, "lease", "key"), f"{what}; choose another `lease: {{key: ...}}`")
        for file, stream in _log_files(spec):
            if (first := files.setdefault(file, spec)) is not spec:
                what = f"the file{stream} is also that of `{first.name}`; two writers would cut each other's lines"
                yield document.complaint((*here, "log", "file"), f"{what}; choose another")


def _of(first: JobSpec, second: JobSpec) -> str:
    return first.job if first.instance else second.job


def _log_files(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Yield each file that an instance writes to, and of which stream it is where that must be said."""
    if spec.log.mode != "file":
        return
    file = spec.log.file or f"logs/{spec.name}.log"  # in the state directory, whichever that is
    yield file, ""
    if spec.log.stderr == "separate":
        path = PurePath(file)
        separate = path.with_name(f"{path.stem}.err{path.suffix}")
        yield str(separate), f" `{separate.name}` of its stderr"
