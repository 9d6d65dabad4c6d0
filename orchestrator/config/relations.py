"""What is wrong between the keys of a file whose single values are sound.

Knows how keys depend on each other; must never know how a value is written, nor when a job runs: `schedules.py`
does. The rules:

1. The numbers of a lease leave room for a step-down (`LeaseTiming.problem`), or it would run out under a run.
2. Of keys that exclude each other (`Entry.ONE_OF`) there is one, or it would be chance which one counts.
3. What a service waits for (`after`) exists, is a service and does not wait for it in turn.
4. No two instances share a name, a lease key or a log file; with a shared key one of them would never run.
"""

from collections.abc import Collection, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import PurePath

from orchestrator.config.document import Complaint, Document
from orchestrator.config.document import Path as KeyPath
from orchestrator.config.entry import Entry
from orchestrator.config.model import Job, JobDefaults
from orchestrator.config.schedules import own_kind
from orchestrator.config.specs import timing_of
from orchestrator.config.values import listed, meant
from orchestrator.core.spec import JobSpec, OnUnhealthy, Scope

MAX_CIRCLES = 50
"""Complaints about circles of `after`; each costs a look at all jobs."""


def problems(name: str, own: Job, job: Job, aside: Mapping[str, str], document: Document) -> Iterator[Complaint]:
    """Yield what is wrong between the keys of one job.

    Args:
        name: Of the job.
        own: As it is written.
        job: With its defaults.
        aside: Which keys mean nothing for it, and why.
        document: For the places.
    """
    here: KeyPath = ("jobs", name)
    for key in own.model_fields_set & aside.keys():
        yield document.complaint((*here, key), aside[key], at_key=True)
    if problem := timing_of(job.lease).problem():
        yield document.complaint(document.source(here, "lease"), problem)
    for key, waits in (("backoff", job.backoff), ("retries", job.retries)):
        if waits.delay > waits.max_delay:
            yield document.complaint(document.source(here, key), "`delay` must not be longer than `max_delay`")
    if "retries" in own.model_fields_set and "count" not in job.retries.model_fields_set:
        yield document.complaint(
            (*here, "retries"), "must have `count`, which is how often it is tried again", at_key=True
        )
    for key in ("reload", "health"):
        written, merged = getattr(own, key), getattr(job, key)
        yield from _excluding((*here, key), written, document)
        if written is not None and not said(merged):
            yield document.complaint((*here, key), f"must have one of {listed(merged.ONE_OF)}", at_key=True)
    if "on_unhealthy" in own.model_fields_set and "on_unhealthy" not in aside:
        yield from _health_problems(here, own, job, document)


def _health_problems(here: KeyPath, own: Job, job: Job, document: Document) -> Iterator[Complaint]:
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


def dependencies(jobs: Mapping[str, Job], followers: Collection[str], document: Document) -> Iterator[Complaint]:
    """Yield what is wrong with what services wait for; `followers` are crons that run after another one."""
    graph: dict[str, list[str]] = {}
    crons = {name for name, job in jobs.items() if name in followers or own_kind(job)}
    for name, job in jobs.items():
        if name in crons:  # its `after` means something else, or is refused already
            continue
        for at, other in enumerate(job.after):
            if problem := _dependency_problem(name, other, jobs, crons, document):
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


def _dependency_problem(
    name: str, other: str, jobs: Mapping[str, Job], crons: Collection[str], document: Document
) -> str:
    if other == name:
        return "is the job itself, which would wait for ever; remove it"
    if ("jobs", other) not in document.keys:
        return f"no such job{meant(other, jobs) or '; name one of this file'}"
    if other in crons:
        return f"`{other}` is a cron job, for which no service waits; name services, or it alone to run after it"
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
